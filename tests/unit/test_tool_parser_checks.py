"""The render probe: what a chat template writes decides which parser is right, in every place that names one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import yaml
from kit import checked_runs
from kit.chat_templates import (
    AS_PYTHON,
    CODER,
    HERMES,
    HOSTILE,
    IN_TEXT,
    LLAMA3,
    NO_ARGUMENTS,
    NO_CALLS,
    ONLY_TEXT,
    STYLES,
    UNKNOWN,
    Style,
)
from kit.checked_runs import TwoGpus, tree

from liverl.causes.catalogue import rows
from liverl.engines import ENGINES
from liverl.engines.tool_formats import FORMATS, VERL_FORMATS, reads, written
from liverl.observe.gpu import sampler
from liverl.preflight import chat_template, template_program
from liverl.preflight.chat_template import NoTemplate, Template, find, probe
from liverl_tui.cli import main as cli

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def probed(text: str) -> chat_template.Probe:
    return probe(Template(text, "file", TOKENS))


@pytest.mark.parametrize("name", STYLES)
def test_the_format_is_what_the_template_writes(name: str) -> None:
    style = STYLES[name]
    found = probed(style.text)
    assert (found.fault, found.drops, found.arguments) == ("", "", "")
    assert found.format is not None and found.format.title == style.title
    assert found.format.parsers[0] == style.parser and found.format.verl == style.verl
    assert chat_template.NAME in found.emitted and chat_template.VALUE in found.emitted
    assert chat_template._USER["content"] not in found.emitted, "what comes before the call is not part of it"
    names = (*found.format.readers, *found.format.sglang, *filter(None, [found.format.verl]))
    assert all(reads(parser, found.format) for parser in names) and not reads(style.wrong, found.format)


@pytest.mark.parametrize(
    ("text", "drops", "arguments"),
    [
        (NO_CALLS, "call", ""),
        (NO_ARGUMENTS, "arguments", ""),
        (IN_TEXT, "", "text"),
        (AS_PYTHON, "", "only text"),
        (ONLY_TEXT, "", "only text"),
    ],
)
def test_what_a_template_loses(text: str, drops: str, arguments: str) -> None:
    found = probed(text)
    assert (found.fault, found.drops, found.arguments) == ("", drops, arguments)
    assert ("can only concatenate" in found.why) == (text is ONLY_TEXT)


HARM = {
    "an endless loop": "does not end",
    "a huge output": "too long",
    "a huge text": "too long",
    "a huge number": "",  # by time or by memory
    "an attribute of Python's": "'__class__' of 'str'",
    "globals": "'__init__'",
    "a format": "'__init__'",
    "a change of the conversation": "'clear' of 'list'",
    "another file": "no loader",
    "no template": "line 1",
    "deep": "too long",
    "a refusal": "no tools here",
    "nothing": "empty",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_bounded_and_refused_in_words(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    monkeypatch.setattr(chat_template, "_CPU_SECONDS", 1)
    found = probed(HOSTILE[name])
    assert found.fault and HARM[name] in found.fault and "Traceback" not in found.fault
    assert found.format is None and "s3cret" not in found.fault


def test_without_jinja_nothing_is_said_of_the_template(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is no fault of the template's."""
    broken = tmp_path / "program.py"
    broken.write_text("import no_such_module\n")
    monkeypatch.setattr(template_program, "__file__", str(broken))
    with pytest.raises(NoTemplate, match="could not be rendered: ModuleNotFoundError") as caught:
        probed(HERMES)
    assert not caught.value.missing


@pytest.mark.parametrize(
    ("seconds", "program", "said"),
    [
        (0.0, "", "not rendered within 0 s: this machine is too busy"),
        (60.0, "import os; os.kill(os.getpid(), 9)\n", "its process ended with -9"),
    ],
)
def test_what_happens_to_its_process_is_no_fault_of_the_template(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds: float, program: str, said: str
) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", seconds)
    if program:
        (tmp_path / "program.py").write_text(program)
        monkeypatch.setattr(template_program, "__file__", str(tmp_path / "program.py"))
    with pytest.raises(NoTemplate, match=said):
        probed(HERMES)


def test_its_process_ends_by_itself() -> None:
    """Also where nobody waits for it any more."""
    request = {"template": HOSTILE["an endless loop"], "variables": {}, "conversations": [{}]}
    program = [sys.executable, "-I", template_program.__file__, "1"]
    ended = subprocess.run(program, input=json.dumps(request).encode(), env={}, timeout=120, check=False)
    assert ended.returncode == -signal.SIGXCPU


def test_a_template_sees_no_variable_and_no_file_of_ours() -> None:
    """Also one that the sandbox would let through: its process has no variables, and writes no file."""
    (answer,) = chat_template._render(Template("{{ env is defined }} {{ os is defined }}", "", {}), [{}])
    assert answer.text == "False False"


class Found(NamedTuple):
    """Files of a model's folder, and the text of the template that is used; None = there is none."""

    files: Mapping[str, Any]
    text: str | None
    words: str = ""


@pytest.mark.parametrize(
    "case",
    [
        Found({"tokenizer_config.json": {"chat_template": "a"}}, "a"),
        Found({"tokenizer_config.json": {"chat_template": "a"}, "chat_template.jinja": "b"}, "b"),
        Found({"tokenizer_config.json": {"chat_template": [{"name": "default", "template": "a"}]}}, "a"),
        Found(
            {
                "tokenizer_config.json": {
                    "chat_template": [
                        {"name": "default", "template": "a"},
                        {"name": "tool_use", "template": "t"},
                    ]
                }
            },
            "t",
        ),
        Found({"chat_template.jinja": "b", "additional_chat_templates/tool_use.jinja": "t"}, "t"),
        Found({"chat_template.json": {"chat_template": "j"}}, "j"),
        Found({"tokenizer_config.json": {}}, None, "has no chat template"),
        Found({"tokenizer_config.json": "[]"}, None, "not a mapping"),
        Found({"tokenizer_config.json": '{"a'}, None, "cannot parse"),
        Found({"tekken.json": {}}, None, "Mistral's own tokenizer"),
        Found({"tokenizer_config.json": {"chat_template": "a" * (2 << 20)}}, None, "2,097,152 characters"),
    ],
)
def test_where_a_template_stands(case: Found, tmp_path: Path) -> None:
    for name, content in case.files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    if case.text is not None:
        assert find(tmp_path).text == case.text
        return
    with pytest.raises(NoTemplate, match=case.words) as caught:
        find(tmp_path)
    assert caught.value.missing == (case.words == "has no chat template")


def test_special_tokens_are_given_in_both_spellings(tmp_path: Path) -> None:
    settings = {"chat_template": "a", "bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert find(tmp_path).variables == TOKENS


# --- the table


def test_there_is_one_table() -> None:
    titles = [form.title for form in FORMATS]
    assert len(set(titles)) == len(titles)
    for form in FORMATS:
        assert set(form.readers) <= set(ENGINES["vllm"].tool_parsers), form.title
        assert bool(form.call) == bool(form.parsers), "what a template writes has a parser"
    assert set(VERL_FORMATS.values()) == {
        *("hermes", "gpt-oss", "qwen3_coder", "glm", "seed", "minimax", "kimi", "deepseek_v4", "gemma4")
    }
    assert written("Hello, {name}!") is None and written("") is None


def test_what_doctor_proposes_stands_in_the_table() -> None:
    proposed = {row.patch["model.tool_parser"] for row in rows() if "model.tool_parser" in row.patch}
    assert proposed and all("{" in name or name in VERL_FORMATS for name in proposed)


# --- the command


class Run(NamedTuple):
    """A configured run: ``check`` with further ``--set``."""

    folder: Path
    check: Callable[..., tuple[int, list[dict[str, Any]]]]

    @property
    def model(self) -> Path:
        return self.folder / "models" / "Toy-1B"

    def template(self, text: str | None) -> None:
        (self.model / "tokenizer_config.json").unlink(missing_ok=True)
        if text is not None:
            settings = {"chat_template": text, **TOKENS}
            (self.model / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Run]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("LIVERL_CACHE_DIR", "XDG_CACHE_HOME", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sampler, "open_nvml", lambda given=None: (TwoGpus(), ""))

    def check(*sets: str) -> tuple[int, list[dict[str, Any]]]:
        before = tree(tmp_path)
        words = [word for text in sets for word in ("--set", text)]
        code = cli.run(["check", "--json", "--config", str(tmp_path / "my.yaml"), *words])
        captured = capsys.readouterr()
        assert captured.out, captured.err
        assert tree(tmp_path) == before, "a check changes nothing, and builds nothing"
        return code, [c for c in json.loads(captured.out)["checks"] if c["id"] == "tool-parser"]

    def make(topology: str) -> Run:
        checked_runs.configured(tmp_path, topology)
        checked_runs.kubectl(tmp_path, *checked_runs.CLUSTER)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        return Run(tmp_path, check)

    return make


def one(checks: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [check for check in checks if check["name"] == name]
    return found


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_the_wrong_pair_fails_with_the_right_parser(run: Callable[[str], Run], style: Style) -> None:
    place = run("managed")
    place.template(style.text)
    code, checks = place.check(f"model.tool_parser={style.wrong}")
    told = one(checks, "tool parser")
    assert code == 3 and told["status"] == "fail" and style.title in told["text"]
    assert told["patch"] == {"model.tool_parser": style.parser} and style.parser in told["fix"]
    assert chat_template.NAME in told["evidence"][0]["text"]
    code, checks = place.check(f"model.tool_parser={style.parser}")
    assert code == 0 and [check["status"] for check in checks] == ["ok", "ok"]


class Case(NamedTuple):
    """``sets`` with ``template`` under ``topology``: the check ``name`` has ``status`` and says ``words``."""

    topology: str
    template: str | None
    sets: tuple[str, ...]
    name: str
    status: str
    words: str
    fix: str = ""
    patch: Mapping[str, str] = MappingProxyType({})


_ENGINE = "trainer.overrides.actor_rollout_ref.rollout.engine_kwargs.vllm"
_FORM = "trainer.overrides.actor_rollout_ref.rollout.multi_turn.format"
CASES = {
    "right, for verl": Case("verl", CODER, (), "tool parser", "ok", "model.tool_parser is qwen3_coder"),
    "wrong, for verl": Case(
        "verl", HERMES, (), "tool parser", "fail", "but the model writes Hermes JSON",
        "set model.tool_parser to hermes", {"model.tool_parser": "hermes"},
    ),
    "wrong, in process": Case(
        "in_process", HERMES, (), "tool parser", "fail", "but the model writes Hermes JSON", "to hermes",
        {"model.tool_parser": "hermes"},
    ),
    "verl itself has no parser": Case(
        "in_process", LLAMA3, (), "tool parser", "fail", "which no parser of vLLM reads", "set model.model_path",
    ),
    "verl's format, overridden": Case(
        "verl", CODER, (f'trainer.overrides={{"{_FORM[18:]}": "hermes"}}',), "tool parser", "fail",
        f"{_FORM} is hermes, but", f"set {_FORM} to qwen3_coder",
    ),
    "the engine's flag, overridden": Case(
        "verl", CODER, (f'trainer.overrides={{"+{_ENGINE[18:]}.tool_call_parser": "hermes"}}',), "tool parser",
        "fail", f"{_ENGINE}.tool_call_parser is hermes", "to qwen3_coder",
    ),
    "calls are dropped": Case("verl", NO_CALLS, (), "chat template", "fail", "drops tool calls"),
    "calls are dropped, managed": Case("managed", NO_CALLS, (), "chat template", "fail", "drops tool calls"),
    "arguments are dropped": Case("verl", NO_ARGUMENTS, (), "chat template", "fail", "the arguments of tool calls"),
    "arguments within a string": Case(
        "verl", IN_TEXT, ("model.tool_parser=hermes",), "chat template", "warn", "as a string within the JSON"),
    "arguments only as text": Case(
        "managed", ONLY_TEXT, ("model.tool_parser=hermes",), "chat template", "warn", "can only concatenate"),
    "no template": Case("verl", None, (), "chat template", "fail", "has no chat template", "chat_template.jinja"),
    "no template, managed": Case("managed", None, (), "chat template", "warn", "has no chat template"),
    "an unknown format": Case("managed", UNKNOWN, (), "tool parser", "skipped", "is not known"),
    "a parser of no known format": Case(
        "managed", CODER, ("model.tool_parser=hf",), "tool parser", "warn", "model.tool_parser is hf, but",
        "to qwen3_coder", {"model.tool_parser": "qwen3_coder"}),
    "hostile": Case("verl", HOSTILE["globals"], (), "chat template", "fail", "no business of a template"),
    "reasoning swallows calls": Case(
        "verl", HERMES,
        ("model.tool_parser=hermes", f'trainer.overrides={{"+{_ENGINE[18:]}.reasoning_parser": "qwen3"}}'),
        "reasoning parser", "fail", "swallows the tool calls", "reasoning_parser: this model does not reason",
    ),
    "reasoning that a call ends": Case(
        "verl", CODER, (f'trainer.overrides={{"+{_ENGINE[18:]}.reasoning_parser": "qwen3"}}',),
        "reasoning parser", "ok", "qwen3",
    ),
    "reasoning of deepseek": Case(
        "verl", CODER, (f'trainer.overrides={{"+{_ENGINE[18:]}.reasoning_parser": "deepseek_r1"}}',),
        "reasoning parser", "fail", "swallows the tool calls",
    ),
    "reasoning that is not known": Case(
        "verl", CODER, (f'trainer.overrides={{"+{_ENGINE[18:]}.reasoning_parser": "granite"}}',),
        "reasoning parser", "skipped", "was not looked at",
    ),
    "not on this host": Case(
        "managed", CODER, ("model.model_path=toys/none-such",), "tool parser", "skipped", "is not on this host"),
    "embedded": Case(
        "embedded", CODER, ("model.model_path=builtin:hermes",), "tool parser", "fail", "Hermes JSON",
        "to hermes", {"model.tool_parser": "hermes"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_place_that_names_a_parser(
    run: Callable[[str], Run], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    place = run(case.topology)
    place.template(case.template)
    code, checks = place.check(*case.sets)
    told = one(checks, case.name)
    assert (told["status"], told["patch"]) == (case.status, dict(case.patch)), told
    assert case.words in told["text"] and case.fix in told["fix"], told
    assert code == 3 if case.status == "fail" else code in (0, 3)


FILES = {
    "harbor_verl_sync.yaml": "rollout:\n  vllm:\n    tool-call-parser: {parser}\n",
    "agent_loop_config_cc.yaml": "- name: cc\n  tool_parser: {parser}  # of the agents\n",
}


@pytest.mark.parametrize(("file", "line"), [*zip(FILES, (3, 2), strict=True)])
@pytest.mark.parametrize("parser", ["hermes", "qwen3_coder", "${oc.env:HARBOR_TOOL_PARSER,hermes}"])
def test_files_of_a_launch_script(run: Callable[[str], Run], file: str, line: int, parser: str) -> None:
    place = run("script")
    (place.folder / file).write_text(FILES[file].replace("{parser}", parser))
    code, checks = place.check()
    told = one(checks, "tool parser")
    where = f"{place.folder / file}:{line}"
    if parser == "qwen3_coder":
        assert (code, told["status"]) == (0, "ok") and where in told["text"]
        return
    assert (code, told["status"], told["patch"]) == (3, "fail", {})
    assert (
        told["text"].startswith(f"{where}") and " is hermes, but the model writes Qwen3-Coder" in told["text"]
    )
    assert f"replace hermes by qwen3_coder in {where}" in told["fix"]
    # LiveRL's variable comes before the default of such a line.
    code, checks = place.check("model.tool_parser=qwen3_coder")
    assert code == (0 if "oc.env" in parser else 3)


def test_the_variable_of_a_launch_script(run: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch) -> None:
    place = run("script")
    monkeypatch.setenv("HARBOR_TOOL_PARSER", "hermes")
    code, checks = place.check()
    told = one(checks, "tool parser")
    assert code == 3 and "model.tool_parser (HARBOR_TOOL_PARSER) is hermes" in told["text"]


# --- model.tool_parser: auto


@pytest.mark.parametrize("topology", ["embedded", "managed", "verl", "in_process"])
@pytest.mark.parametrize("style", ["hermes", "coder"])
def test_auto_is_what_the_template_writes(
    run: Callable[[str], Run], topology: str, style: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place, parser = run(topology), STYLES[style].parser
    place.template(STYLES[style].text)
    own = [f"model.model_path=builtin:{parser}"] if topology == "embedded" else []
    sets = ["model.tool_parser=auto", *own]
    code, checks = place.check(*sets)
    assert code == 0 and f"model.tool_parser is {parser}" in one(checks, "tool parser")["text"]
    words = [word for text in sets for word in ("--set", text)]
    cli.run(["plan", "--json", "--config", str(place.folder / "my.yaml"), *words])
    plan = capsys.readouterr().out
    assert not any(f"{option}{mark}auto" in plan for option in ("parser", "format") for mark in ("=", '", "'))
    assert plan.count(parser) > 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "has no chat template"),
        (NO_CALLS, "drops tool calls"),
        (UNKNOWN, "in a format that is not known here"),
        (HOSTILE["globals"], "no business of a template"),
    ],
)
def test_auto_that_cannot_be_told_names_the_key(
    run: Callable[[str], Run], text: str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = run("managed")
    place.template(text)
    file = place.folder / "my.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["model"]["tool_parser"] = "auto"
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    line = next(n for n, row in enumerate(file.read_text().splitlines(), 1) if "tool_parser" in row)
    assert cli.run(["check", "--config", str(file)]) == 2
    told = capsys.readouterr().err
    assert f"{file}:{line}: model.tool_parser: " in told and words in told
    assert "found:   'auto'" in told and "qwen3_coder" in told and "Traceback" not in told


def test_a_template_of_another_user_is_not_executed_by_name(tmp_path: Path) -> None:
    """Nothing is told by a name: a folder called hermes with the template of another family."""
    folder = tmp_path / "Hermes-3-Llama"
    folder.mkdir()
    (folder / "chat_template.jinja").write_text(CODER)
    found = probe(find(folder))
    assert found.format is not None and found.format.parsers[0] == "qwen3_coder"
    assert os.listdir(folder) == ["chat_template.jinja"]
