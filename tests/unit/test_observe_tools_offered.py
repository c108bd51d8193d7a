"""Whether trials call no tool is judged only where tools were offered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.trial_folders import FILE, TOOL, T, call, lines, put

from liverl.config import load_config
from liverl.config.dump import dump_yaml
from liverl.model import TrialsStatus
from liverl.observe.trials.scanner import TrialScanner
from liverl.observe.trials.steps import heads_of_step
from liverl.observe.trials.tools_offered import in_request, in_verl
from liverl.observe.trials.trajectory import read_trajectory

ASKED = {"messages": [{"role": "user", "content": "Go."}]}
ZERO = ("zero_tool_calls",)


@pytest.mark.parametrize(
    ("record", "offered"),
    [
        ({"request_body": {"messages": [], "tools": [TOOL]}, "response_body": {}}, True),
        ({"request_body": {"functions": [{"name": "f"}]}}, True),
        ({"request_body": {"tools": []}, "response_body": {"tools": [1]}}, False),
        ({"request_body": {"tools": None}}, False),
        ({"request_body": {"tools": {"properties": {"tools": [1]}}}}, True),
        ({"request_body": {"messages": [{"content": '"tools": [1]'}]}}, False),
        ({"request_body": {}}, False),
        ({"request_body": None, "tools": [1]}, None),
        ({"request_body": "truncated"}, None),
        ({"response_body": {"tools": [1]}}, None),
    ],
)
@pytest.mark.parametrize("separators", [None, (",", ":")])
def test_what_a_request_offers(record: dict[str, Any], offered: bool | None, separators: Any) -> None:
    data = json.dumps(record, separators=separators).encode()
    assert in_request(data, 0, len(data)) is offered
    assert in_request(b"x" * 9 + data + b'"request_body":{"tools":[1]}', 9, 9 + len(data)) is offered


class Run:
    def __init__(self, path: Path) -> None:
        self.path, self.scanner = path, TrialScanner(path)

    def trial(self, name: str, *records: dict[str, Any]) -> Path:
        return put(self.path / "trials" / "step_0001" / name / FILE, lines(*records)).parent

    def scan(self) -> TrialsStatus:
        return self.scanner.scan(now=T)

    def flags(self) -> dict[str, tuple[str, ...]]:
        flags = {head.name: head.flags for head in self.scan().newest}
        assert flags == {head.name: head.flags for head in heads_of_step(self.path, 1)}
        return flags

    def zero(self) -> tuple[int, int]:
        status = self.scan()
        return status.zero_tool_calls, status.steps[0].zero_tool_calls


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_chat_without_tools_is_not_flagged(run: Run) -> None:
    chat = run.trial("chat", call(request_body=ASKED))
    silent = run.trial("silent", call())
    late = run.trial("late", call(request_body=ASKED), call(), call(request_body=ASKED))
    run.trial("calls", call(calls=1))
    assert run.flags() == {"chat": (), "silent": ZERO, "late": ZERO, "calls": ()}
    assert run.zero() == (2, 2) and run.scan().steps[0].judged == 3
    assert [read_trajectory(path).flags for path in (chat, silent, late)] == [(), ZERO, ZERO]


def test_unknown_requests_are_judged_once_a_trial_has_called_a_tool(run: Run) -> None:
    unknown = call(request_body=None)
    run.trial("unknown", unknown)
    put(run.path / "trials/step_0001/unknown/result.json", "{}")
    assert run.flags() == {"unknown": ()} and run.zero() == (0, 0)
    run.scanner.scan(now=T + 100)  # it is closed
    run.trial("calls", call(calls=1))
    assert run.flags() == {"unknown": ZERO, "calls": ()} and run.zero() == (1, 1)


@pytest.mark.parametrize(
    ("sets", "given"),
    [
        ("trainer.overrides={actor_rollout_ref.rollout.multi_turn.tool_config_path: tools.yaml}", True),
        ("trainer.overrides={+actor_rollout_ref.rollout.multi_turn.function_tool_path: f.py}", True),
        ("trainer.overrides={actor_rollout_ref.rollout.multi_turn.enable: true}", False),
        ("agent.tools=/tools.yaml", True),
        ("agent.functions=/f.py", True),
        ("agent.tools=", False),
    ],
)
def test_tools_that_verl_was_given(run: Run, sets: str, given: bool) -> None:
    config = load_config(profile="cpu-verl", sets=[sets], env={}).config
    (run.path / "config.yaml").write_text(dump_yaml(config))
    assert in_verl(run.path) is given
    run.trial("unknown", call(request_body=None))
    run.trial("chat", call(request_body=ASKED))
    assert run.flags() == {"unknown": ZERO if given else (), "chat": ()}


@pytest.mark.parametrize("text", ["", "{", "trainer: 3", "trainer: {overrides: null}", "x: 1"])
def test_a_configuration_that_says_nothing_of_tools(run: Run, text: str) -> None:
    assert in_verl(run.path) is False
    (run.path / "config.yaml").write_text(text)
    assert in_verl(run.path) is False


@pytest.mark.parametrize(("tools", "flags"), [([TOOL], ZERO), ([], ()), (None, ())])
def test_a_document_says_what_was_offered(run: Run, tools: object, flags: tuple[str, ...]) -> None:
    answer = {"role": "assistant", "content": "Done."}
    document = {"messages_snapshot": [*ASKED["messages"], answer], "tools": tools}
    file = put(run.path / "trials/step_0001/a/proxy_trajectory.json", json.dumps(document))
    assert run.flags() == {"a": flags}
    assert read_trajectory(file.parent).flags == (() if tools == [] else ZERO), "it knows no other trial"
