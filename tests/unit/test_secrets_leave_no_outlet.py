"""No secret leaves a run: each way out against each form in which programs print secrets, and what must stay."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.screens import snapshot

from liverl.causes.finding import Evidence as Proof
from liverl.causes.finding import Explanation, Verdict
from liverl.config import shown_yaml
from liverl.diagnose.report import report
from liverl.model import Cause, Check, Evidence, Result, Symptom
from liverl.offline import archive
from liverl.offline.doctor import report as doctor
from liverl.offline.doctor.examine import Examination
from liverl.plan.render import plan_brief, plan_json, plan_text
from liverl.plan.spec import EnvironmentSpec, FileSpec, NotifyPlan, NotifyTarget, Plan
from liverl.plan.spec import ServiceSpec as Service
from liverl.replay.scrub import Scrub
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import encode_snapshot, plain_snapshot
from liverl.supervise.services.event_log import EventLog
from liverl.util import redact
from liverl.util.late_pattern import LatePattern
from liverl_tui.app import crash

SECRET = "0123456789abcdefQx"
SHAPES = {
    "printenv": "WANDB_API_KEY=§",
    "after a prefix of Ray": "(TaskRunner pid=12) HF_TOKEN=§",
    "a token without its usual form": "HF_TOKEN=§",
    "export": "export GITHUB_TOKEN=§",
    "export in quotes": 'export DB_PASSWORD="§"',
    "declare": 'declare -x MY_SECRET="§"',
    "a trace of bash": "+ WANDB_API_KEY='§'",
    "docker": "docker run -e PGPASSWORD=§ --rm image",
    "before a command": "HF_TOKEN=§ python train.py",
    "setenv": "setenv HF_TOKEN §",
    "JSON": '{"WANDB_API_KEY": "§", "max_tokens": 512}',
    "JSON without blanks": '{"password":"§"}',
    "JSON, indented": '{\n  "clientSecret": "§"\n}',
    "JSON in a string": r'{"body": "{\"API_KEY\": \"§\", \"n\": 1}"}',
    "JSON in a string in a string": r'{"a": "{\"b\": \"{\\\"API_KEY\\\": \\\"§\\\"}\"}"}',
    "lines in a string of JSON": r'{"output": "A=1\nWANDB_API_KEY=§\nB=2"}',
    "a list of variables": '["PATH=/bin", "HF_TOKEN=§"]',
    "Python": "{'HF_TOKEN': '§', 'n': 1}",
    "pairs of Python": "[('HF_TOKEN', '§'), ('A', '1')]",
    "environ": 'os.environ["OPENAI_API_KEY"] = "§"',
    "arguments of Python": "Client(api_key=§, timeout=5)",
    "YAML": "hf_token: §",
    "YAML in quotes": "  apiKey: '§'",
    "Kubernetes": "- name: HF_TOKEN\n  value: §",
    "Kubernetes in JSON": '{"name": "HF_TOKEN", "value": "§"}',
    "TOML": 'api_key = "§"',
    "Hydra": "trainer.wandb_api_key=§",
    "Hydra, added": "++env_vars.HF_TOKEN=§",
    "option": "vllm serve m --api-key § --port 8000",
    "option with =": "--hf-token=§",
    "argv": "['vllm', '--api-key', '§']",
    "header": "Authorization: Bearer §",
    "header, basic": "authorization: Basic §",
    "headers of Python": "{'Authorization': 'Bearer §'}",
    "curl": 'curl -H "X-Api-Key: §" http://127.0.0.1/',
    "curl with a user": "curl -u me:§ http://127.0.0.1/",
    "cookie": "Set-Cookie: session=§; Path=/",
    "URL": "https://me:§@host/simple",
    "URL with a token only": "https://§@host/simple",
    "query": "GET /v1?key=§&alt=sse",
    "passphrase": "PASSPHRASE=correct horse §",
    "AWS": "aws_secret_access_key = §",
    "glued": "OPENAIKEY=§",
    "numbered": "API_KEY_2=§",
    "secret in front": "TOKEN_GITHUB=§",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMII§\n§\n-----END RSA PRIVATE KEY-----",
}
HARMLESS = (
    *(
        "max_tokens=512",
        "num_key_value_heads=4",
        "tokens: 1234",
        "KEYS: 3",
        "monkey=banana",
        "eos_token_id: 2",
    ),
    *('pad_token: "<pad>"', '"pad_token": "</s>"', "TOKENIZERS_PARALLELISM=false", "KeyError: 'reward'"),
    *("data.prompt_key=prompt", "reward_fn_key: data_source", "sorted(rows, key=lambda row: row.step)"),
    *(
        "api_key=None",
        "HF_TOKEN=${HF_TOKEN}",
        "api_key: os.environ/PROXY_KEY",
        "def f(api_key: str | None = None)",
    ),
    *(
        "WANDB_API_KEY_FILE=/run/key",
        "SSL_KEYFILE=/etc/x.pem",
        "--max-num-batched-tokens 8192",
        "token=<eos>",
    ),
    *(
        "Unexpected token: foo",
        "loss_agg_mode=token-mean",
        "bearer token was missing",
        "self.api_key = api_key",
    ),
    *("time_per_output_token: 0.02", "PWD=/home/me", "key: actor.model.path", "secrets: 3", "author: me"),
    *(
        "tokenizer_class: Qwen2Tokenizer",
        "TOKEN_LIMIT=4096",
        "KEY_VALUE_HEADS=8",
        "perf/tokens_per_second: 12.5",
    ),
    *(
        "step:3 - response_length/mean:512.0 - perf/total_num_tokens:91",
        "cache_key=abc",
        "the key: value pairs",
    ),
)
Outlet = Callable[[str, Path], str]


def _cause(text: str) -> Cause:
    return Cause(
        "trainer", text, 1.0, "attempt_001/logs/trainer.1.log", 7, evidence=(Evidence(text),), why=text
    )


def _symptom(text: str) -> Symptom:
    return Symptom("x", "critical", text, text, text, (Evidence(text, value=1.0),))


def _result(text: str) -> Result:
    return Result("failed", 1, _cause(text), 1, 1.0, 2.0, summary=text)


def _examination(text: str) -> Examination:
    found = Explanation("x", "critical", text, text, text, evidence=(Proof(text, "a.log", 3),))
    return Examination(Verdict(found, (), (found,)), (), {})


def _copied(source: Path, target: Path) -> str:
    return archive._copy(archive._File(source, target.name, 1 << 20), target)


def _archived(name: str) -> Outlet:
    def outlet(text: str, folder: Path) -> str:
        source, target = folder / name, folder / "archive" / name
        source.write_text(f"first line\n{text}\nlast line\n")
        copy = archive._copy_tail if name.endswith(".log") else _copied
        assert copy(source, target) == ""
        return target.read_text()

    return outlet


def _event(text: str, folder: Path) -> str:
    log = EventLog(folder / "events.jsonl", lambda: 1.0, lambda _: None)
    log.add("x", text, "info", "trainer", fix=text, more={"a": [text]})
    log.close()
    return (folder / "events.jsonl").read_text()


def _crash(text: str, folder: Path) -> str:
    printed = crash.report(RuntimeError(text), RunDir(folder), in_run=True)
    return printed + (folder / "interface-crash.log").read_text()


def _plan(text: str) -> Plan:
    """A plan with a text wherever a user's words may stand."""
    script = Service(
        "trainer",
        "trainer",
        argv=("bash", "-c", text),
        env={"LINE": text},
        files=(FileSpec("/f", text),),
        ends_run=True,
    )
    target = NotifyTarget("command", ("tell", text))
    return Plan(
        run="p/n",
        run_dir="/r",
        topology="verl",
        environments=(EnvironmentSpec("verl", requirements=(text,)),),
        services=(script,),
        replica_template=None,
        expected_replicas=0,
        warnings=(text,),
        notify=NotifyPlan((target,), ("done",)),
    )


OUTLETS: dict[str, Outlet] = {
    "plan": lambda text, _: plan_text(_plan(text)),
    "plan in short": lambda text, _: plan_brief(_plan(text)),
    "plan --json": lambda text, _: plan_json(
        _plan(text),
        {},
        (Check("a", "ok", text, fix=text, evidence=(Evidence(text),), patch={"run.name": text}),),
    ),
    "config": lambda text, _: shown_yaml(yaml.safe_dump({"trainer": {"command": ["sh", "-c", text]}})),
    "a target of notifications": lambda text, _: NotifyTarget("command", ("t", text)).title,
    "archive: a log": _archived("trainer.1.log"),
    "archive: the script": _archived("train.sh"),
    "archive: the configuration": _archived("config.yaml"),
    "archive: a trajectory": _archived("litellm-trajectory.jsonl"),
    "report": lambda text, _: report(snapshot(symptoms=(_symptom(text),)), _result(text), (), ()),
    "result": lambda text, _: msgspec.json.encode(redact.struct(_result(text))).decode(),
    "events": _event,
    "snapshot": lambda text, _: encode_snapshot(
        snapshot(symptoms=(_symptom(text),), result=_result(text))
    ).decode(),
    "status --json": lambda text, _: json.dumps(plain_snapshot(snapshot(symptoms=(_symptom(text),)))),
    "doctor": lambda text, _: doctor.as_text(_examination(text)),
    "doctor --json": lambda text, _: doctor.as_json(_examination(text)),
    "crash of the interface": _crash,
    "recording": lambda text, _: Scrub("run", "/runs/p/n", "host")(text),
}


def _fresh(folder: Path, number: int) -> Path:
    made = folder / str(number)
    made.mkdir()
    return made


@pytest.mark.parametrize("outlet", OUTLETS)
def test_no_form_of_a_secret_passes_any_way_out(outlet: str, tmp_path: Path) -> None:
    passed = []
    for number, (shape, text) in enumerate(SHAPES.items()):
        out = OUTLETS[outlet](text.replace("§", SECRET), _fresh(tmp_path, number))
        if SECRET in out or redact.HIDDEN not in out:
            passed.append(shape)
    assert passed == []


@pytest.mark.parametrize("outlet", OUTLETS)
def test_what_is_no_secret_passes(outlet: str, tmp_path: Path) -> None:
    made = ((text, OUTLETS[outlet](text, _fresh(tmp_path, at))) for at, text in enumerate(HARMLESS))
    assert [text for text, out in made if redact.HIDDEN in out] == []


def test_an_archived_configuration_stays_yaml(tmp_path: Path) -> None:
    out = _archived("config.yaml")("key: 1", tmp_path)
    assert redact.HIDDEN not in out
    (tmp_path / "litellm.yaml").write_text(f"a:\n  api_key: {SECRET}\n  n: 3\nb: [1]\n")
    _copied(tmp_path / "litellm.yaml", tmp_path / "out.yaml")
    read = yaml.safe_load((tmp_path / "out.yaml").read_text())
    assert read == {"a": {"api_key": "***", "n": 3}, "b": [1]}


@pytest.mark.parametrize("value", [[SECRET, "x"], {"a": SECRET}])
def test_plain_data_is_hidden_by_the_key_above_it(value: Any) -> None:
    assert SECRET not in json.dumps(redact.document({"api_keys": value, "b": f"TOKEN={SECRET}"}))


PIECES = st.sampled_from(
    [
        "API_KEY",
        "=",
        ":",
        '"',
        "'",
        "\\",
        "\n",
        " ",
        "token",
        "HF_TOKEN=abc",
        "Bearer x1",
        '{"a":"b"}',
        ",",
        "-",
        "1",
    ]
    + [
        "--api-key",
        "https://u:p@h",
        "name",
        "value",
        "]",
        "[",
        "-u a:b",
        "password: ",
        "\\n",
        "{",
        "}",
        "\u0130",
    ]
)
TEXTS = st.lists(PIECES, max_size=20).map("".join)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["password", "HF_TOKEN", "apiKey", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(PLAIN, st.sampled_from([None, 1]))
def test_json_stays_json(plain: Any, indent: int | None) -> None:
    text = json.dumps(plain, indent=indent).replace("'", "")  # a single one may begin a string of Python's
    json.loads(redact.value(text))
    inner = json.loads(redact.value(json.dumps({"text": text})))["text"]
    json.loads(inner)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_hiding_again_changes_nothing(text: str) -> None:
    once = redact.value(text)
    assert redact.value(once) == once


HEAVY = (
    *(
        "a_key=",
        "key",
        'token="',
        'token=\\"',
        "x_key=,",
        "A_KEY=1 ",
        '"token":',
        "key\\",
        "token.",
        "-u a:b ",
        "a[key]",
    ),
    *(
        "a[key]",
        "api_key=a(",
        "password: ",
        "name: A\n",
        "--token ",
        "token:'\\'",
        'key="\\\\"',
        "_pat",
        "a.key-",
    ),
)


class Counting:
    """A compiled pattern that counts the characters that it looked at: up to the end of its match, and all that it was
    given where it found none."""

    seen = 0

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def match(self, text: str, start: int = 0, *end: int) -> re.Match[str] | None:
        match = self._pattern.match(text, start, *end)
        Counting.seen += 1 + (match.end() - start if match is not None else 0)
        return match

    def fullmatch(self, text: str) -> re.Match[str] | None:
        Counting.seen += len(text)
        return self._pattern.fullmatch(text)

    def search(self, text: str, start: int = 0, *end: int) -> re.Match[str] | None:
        match = self._pattern.search(text, start, *end)
        Counting.seen += 1 + (min(len(text), *end, len(text)) if match is None else match.end()) - start
        return match


@pytest.mark.parametrize("piece", HEAVY)
def test_the_work_grows_with_the_length_only(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counting: dict[re.Pattern[str], Counting] = {}
    for name, found in list(vars(redact).items()):
        if isinstance(found, (re.Pattern, LatePattern)) and name.isupper():
            counting[found] = Counting(found)
            monkeypatch.setattr(redact, name, counting[found])
    closing = {quote: Counting(pattern) for quote, pattern in redact._CLOSING.items()}
    monkeypatch.setattr(redact, "_CLOSING", closing)
    forms = tuple((words, tuple(counting[form] for form in forms)) for words, forms in redact._FORMS)
    monkeypatch.setattr(redact, "_FORMS", forms)
    work = []
    for length in (4000, 32000):
        Counting.seen = 0
        redact.value((piece * length)[:length])
        work.append(Counting.seen)
    assert 0 < work[1] <= 10 * work[0], "eight times the text, ten times the work at most"


ARGV = ("vllm", "serve", "m", "--api-key", SECRET, "--port", "8000", f"trainer.wandb_api_key={SECRET}")


def test_words_of_a_command_are_hidden_by_the_option_before_them() -> None:
    plan = _plan("x")
    spec = msgspec.structs.replace(plan.services[0], argv=ARGV, env={"MY_API_KEY": SECRET, "N": "8"})
    plan = msgspec.structs.replace(
        plan, services=(spec,), notify=NotifyPlan((NotifyTarget("command", ("tell", *ARGV[3:5])),), ("done",))
    )
    shown = yaml.safe_load(shown_yaml(yaml.safe_dump({"trainer": {"command": list(ARGV), "env": spec.env}})))
    for text in (plan_text(plan), plan_brief(plan), plan_json(plan), str(shown)):
        assert SECRET not in text and ("8000" in text or "tell" in text)
    assert shown["trainer"]["env"] == {"MY_API_KEY": redact.HIDDEN, "N": "8"}
    words = json.loads(plan_json(plan))["services"][0]["argv"]
    assert words == [*ARGV[:4], "***", "--port", "8000", "trainer.wandb_api_key=***"]


def test_a_plan_without_a_secret_is_shown_as_it_is() -> None:
    spec = msgspec.structs.replace(
        _plan("x").services[0],
        secret_env={"ANTHROPIC_API_KEY": "/r/secrets/run_key"},
        env={"KEY_FILE": "/k", "A": "1"},
    )
    plan = msgspec.structs.replace(_plan("x"), services=(spec,))
    told = json.loads(plan_json(plan))
    assert told["services"] == [json.loads(msgspec.json.encode(spec))]
    text = "# mine\ntrainer:\n  command: [bash, train.sh]  # by hand\n"
    assert shown_yaml(text) == text
