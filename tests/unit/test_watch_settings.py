"""What a watched run says of its own settings, which of a run of ours stand in its configuration."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.watched import Started

from liverl.external.script_steps import ScriptSteps
from liverl.model import Snapshot, Symptom
from liverl.observe.config_dump import read_dump, sampling_of
from liverl.observe.trials.engine_parser import EngineParser
from liverl.observe.trials.script_sampling import ScriptSampling
from liverl.procs.procfs import free_port
from liverl.watch.scene import SceneFinder
from liverl.watch.settings import Settings, SettingsReader, passed, sampling_on
from liverl.watch.target import Target
from liverl.watch.watcher import Watcher

H200 = Path(__file__).parents[1] / "data/recordings/h200"
RAY = "\x1b[36m(TaskRunner pid=7)\x1b[0m "
# As verl 0.9 prints it, abridged; another actor writes in between.
DUMP = (
    f"{RAY}{{'actor_rollout_ref': {{'actor': {{'lr': 1e-06}},\n"
    "(vLLMHttpServer pid=9) INFO 11-21 00:20:17 [core.py:61] Initializing a V1 LLM engine (v0.10.2) with config: x\n"
    f"{RAY}                       'rollout': {{'temperature': 0.7,\n"
    "ray init kwargs: {}\n"
    f"{RAY}                                   'top_p': 1,\n"
    f"{RAY}                                   'val_kwargs': {{'temperature': 0, 'top_p': 0.9}}}}}},\n"
    f"{RAY} 'trainer': {{'total_training_steps': 40}}}}\n"
)
TOLD = ScriptSampling({"temperature": 0.7, "top_p": 1.0}, {"temperature": 0.0, "top_p": 0.9})
STEP = f"{RAY}step:1 - critic/rewards/mean:0.5 - timing_s/step:1.0\n"
TOTAL, BAR = (
    f"{RAY}Total training steps: 12\n",
    f"{RAY}Training Progress:   8%|8  | 1/30 [00:10<04:50, 10.0s/it]\n",
)


@pytest.mark.parametrize(
    ("text", "sampling"),
    [
        (DUMP, TOLD),
        (DUMP.replace(RAY, ""), TOLD),
        (DUMP.replace("0.7", "1.0") + DUMP, TOLD),  # the newest of one file
        (DUMP + DUMP[:200], TOLD),  # the next one is not complete
        (DUMP[:-30], None),
        (DUMP.replace("'temperature'", "'other'").replace("'top_p'", "'b'"), None),
        (DUMP.replace("0.7", "object()"), None),
        (DUMP.replace("0.7", "True"), ScriptSampling({"top_p": 1.0}, TOLD.validation)),
        ("", None),
    ],
)
def test_the_configuration_in_the_log(text: str, sampling: ScriptSampling | None) -> None:
    found = read_dump(text.split("\n"))
    assert (sampling_of(found) if found is not None else None) == sampling


@pytest.mark.parametrize(
    ("argv", "steps", "sampling"),
    [
        ((), None, None),
        (("trainer.total_training_steps=7", "+trainer.total_training_steps=9"), 9, None),
        (("trainer.total_training_steps=null", "xtrainer.total_training_steps=9"), None, None),
        (
            ("actor_rollout_ref.rollout.temperature=0.6", "actor_rollout_ref.rollout.val_kwargs.top_p=0.95"),
            None,
            ScriptSampling({"temperature": 0.6}, {"top_p": 0.95}),
        ),
        (("actor_rollout_ref.rollout.top_k=5", "actor_rollout_ref.rollout.temperature=1.2.3"), None, None),
    ],
)
def test_the_command_line(argv: tuple[str, ...], steps: int | None, sampling: ScriptSampling | None) -> None:
    found = passed(argv)
    assert (found.steps if found is not None else None, sampling_on(argv)) == (steps, sampling)


def settings(folder: Path) -> Settings:
    from liverl.watch.folder import Surveyor

    scene = SceneFinder(Target(folder)).look(Surveyor().survey((folder,)))
    return SettingsReader((folder,)).look(scene)


@pytest.mark.parametrize(
    ("text", "steps", "source", "versions"),
    [
        (STEP, None, "", ()),
        (TOTAL + STEP, 12, "its log", ()),
        (TOTAL + BAR, 30, "its progress bar", ()),
        (DUMP + STEP, 40, "the configuration in its log", ("0.10.2",)),
        ("INFO 11-21 00:20:17 [api_server.py:1043] vLLM API server version 0.24.0\n", None, "", ("0.24.0",)),
    ],
)
def test_a_log_without_a_process(
    text: str, steps: int | None, source: str, versions: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "run.log").write_text(text)
    found = settings(tmp_path)
    said = (found.owed.steps, found.owed.source) if found.owed is not None else (None, "")
    assert (*said, found.versions, found.unreadable) == (steps, source, versions, ())


def test_a_real_log_of_verl() -> None:
    found = settings(H200)
    assert found.owed is not None and found.owed.steps == 6 and found.versions == ("0.24.0",)


YAML = "repos/harbor-verl-train/configs/harbor_verl_sync.yaml"


@pytest.mark.parametrize(
    ("text", "parser"),
    [
        ("a:\n  tool-call-parser: hermes\n", EngineParser("hermes", f"{YAML}:2")),
        ("tool-call-parser: ${HARBOR_TOOL_PARSER:-hermes}\n", EngineParser()),  # the variable may be set
        ("x: y\n", EngineParser()),
    ],
)
def test_the_parser_in_the_files_of_a_script(text: str, parser: EngineParser, tmp_path: Path) -> None:
    (tmp_path / YAML).parent.mkdir(parents=True)
    (tmp_path / YAML).write_text(text)
    (tmp_path / "run.log").write_text(STEP)
    place = f"{tmp_path}/{parser.place}" if parser.place else ""
    assert settings(tmp_path).parser == EngineParser(parser.name, place)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    one = Started(tmp_path / "run7")
    one.folder.mkdir()
    yield one
    one.stop()


@pytest.mark.parametrize(("given", "name"), [({"HARBOR_TOOL_PARSER": "glm45"}, "glm45"), ({}, "hermes")])
def test_a_variable_of_the_trainers_process(
    given: dict[str, str], name: str, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated: the trainer."""
    for variable in ("HARBOR_TOOL_PARSER", "TOOL_CALL_PARSER"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    (started.folder / "harbor_verl_sync.yaml").write_text("tool-call-parser: ${HARBOR_TOOL_PARSER:-hermes}\n")
    started.trainer(started.folder / "train.log")
    deadline = time.monotonic() + 60
    while (found := settings(started.folder)).parser.name != name and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found.parser == EngineParser(name, f"{started.folder}/harbor_verl_sync.yaml:1", variable=True)


def test_a_large_log_is_read_at_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liverl.external.script_steps.MOST", 1 << 14)
    monkeypatch.setattr("liverl.external.script_steps.HEAD", 1 << 12)
    monkeypatch.setattr("liverl.external.script_steps.READ", 1 << 12)
    log, steps = tmp_path / "train.log", ScriptSteps()
    log.write_text(TOTAL + "work\n" * 4500 + TOTAL.replace("12", "99") + "work\n" * 4500 + BAR)
    steps.look([log])
    assert (steps.total, steps.told.total) == (30, 12), "the middle is passed over"
    with log.open("a") as file:
        file.write(BAR.replace("1/30", "2/31"))
    steps.look([log])
    assert steps.total == 31
    log.write_text(TOTAL)  # begun anew
    steps.look([log])
    assert steps.total == 12
    steps.look([])
    assert steps.total is None


def trial(folder: Path, text: str, temperature: float) -> None:
    folder.mkdir(parents=True)
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function"}],
        "temperature": temperature,
    }
    answer = {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}}]}
    turn = {"success": True, "request_body": body, "response_body": answer}
    (folder / "litellm-trajectory.jsonl").write_text(json.dumps(turn) + "\n")
    (folder / "result.json").write_text(json.dumps({"verifier_result": {"rewards": {"reward": 0.0}}}))


def seen(folder: Path, until: Callable[[Snapshot], object]) -> Snapshot:
    watcher = Watcher(Target(folder), Path(tempfile.mkdtemp(dir=folder.parent)))
    watcher.start()
    deadline = time.monotonic() + 60
    try:
        while not until(now := watcher.poll()) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        watcher.close()
    return now


def alerts(now: Snapshot) -> dict[str, Symptom]:
    return {one.id: one for one in now.symptoms}


@pytest.mark.parametrize(
    ("parser", "title", "fix"),
    [
        ("", "parser unknown", "start the engine with --tool-call-parser qwen3_coder"),
        ("hermes", "parser is hermes", "replace it by qwen3_coder in "),
    ],
)
def test_rules_on_settings_judge_a_watched_run(parser: str, title: str, fix: str, tmp_path: Path) -> None:
    """Its parser and what its trainer takes trials to be sampled with. No key of ours is named: none sets them."""
    folder = tmp_path / "repo"
    folder.mkdir()
    now_stamp = time.strftime("%m-%d %H:%M:%S")
    (folder / "train.log").write_text(DUMP.replace("11-21 00:20:17", now_stamp) + STEP)
    if parser:
        (folder / "harbor_verl_sync.yaml").write_text(f"tool-call-parser: {parser}\n")
    for number in range(4):
        trial(
            folder / f"trials/step_0001/a-{number}",
            "<tool_call>\n<function=a>\n</function>\n</tool_call>",
            0.2,
        )
    now = seen(folder, lambda one: {"zero_tool_calls", "sampled_otherwise"} <= alerts(one).keys())
    found = alerts(now)
    assert now.total_steps == 40 and "step 2/40" in now.phase
    calls, sampled = found["zero_tool_calls"], found["sampled_otherwise"]
    assert title in calls.title and fix in calls.fix and not calls.patch
    assert "actor_rollout_ref.rollout.temperature is 0.7" in sampled.cause
    for one in (calls, sampled):
        assert (
            "model.tool_parser" not in f"{one.cause} {one.fix}"
            and "algorithm." not in f"{one.cause} {one.fix}"
        )


# A server that is well, and that refuses a request each 20 ms.
SERVER = """
import http.server, sys, threading, time


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
while True:
    print('INFO:     127.0.0.1:5 - "POST /v1/chat/completions HTTP/1.1" 404 Not Found', flush=True)
    time.sleep(0.02)
"""


def test_requests_that_fail_while_it_is_watched(started: Started) -> None:
    """Simulated: the server, whose log is that of uvicorn."""
    program = started.program("vllm")
    program.write_text(SERVER)
    log = started.folder / "serve.log"
    started.start(log, sys.executable, program, "serve", "org/model", "--port", free_port())
    now = seen(started.folder, lambda one: any(i.startswith("responses_404") for i in alerts(one)))
    assert [one for one in alerts(now) if one.startswith("responses_404")] == ["responses_404:replica-0"]
