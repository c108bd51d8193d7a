"""Folders of trials: each file's part in the head and in the trajectory, and when a scan looks at which."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverl.model import StepTrials, TrialHead, TrialsStatus
from liverl.observe.trials import scanner as scanning
from liverl.observe.trials import trajectory as reading
from liverl.observe.trials.files import MOST, head_of_file, list_files
from liverl.observe.trials.records import (
    ProxyTrajectory,
    RecordedTurn,
    TrialResult,
    count,
    moment,
    parse_config,
    parse_object,
    parse_proxy_trajectory,
    parse_result,
    parse_reward,
    parse_turn,
)
from liverl.observe.trials.scanner import LineReader, TrialScanner, cut_off, cut_off_head
from liverl.observe.trials.steps import heads_of_step, steps_on_disk
from liverl.observe.trials.trajectory import Trajectory, TrajectoryReader, read_trajectory
from liverl.observe.trials.trial import Trial, over

FILE = "litellm-trajectory.jsonl"
T = 1_800_000_000.0  # Unix time, whole so that differences are exact
TOOL = {"id": "c", "function": {"name": "bash", "arguments": "{}"}}


def call(*, calls: int = 0, finish: str | None = "stop", **other: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Done.", "tool_calls": [TOOL] * calls}
    return {
        "success": True,
        "request_time": T - 100,
        "request_body": {"messages": [{"role": "user", "content": "Go."}]},
        "response_body": {"choices": [{"finish_reason": finish, "message": message}]},
        "usage": {"completion_tokens": 4},
        "replica": "http://a:1",
        **other,
    }


FAILED = call(success=False, response_body=None, usage=None, failure={"status_code": 500})
GONE = call(success=False, response_body=None, usage=None, failure={"error_type": "client_disconnected"})


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def put(path: Path, text: str | bytes, at: float = T) -> Path:
    """A file and its folder, both last changed at ``at``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (at, at))
    os.utime(path.parent, (at, at))
    return path


# -- records


def parsed(**fields: Any) -> RecordedTurn:
    turn = parse_turn(json.dumps({"success": True, **fields}).encode())
    assert turn is not None
    return turn


EMPTY = RecordedTurn(True, None, None, 0, None, False, None, False)


@pytest.mark.parametrize(
    ("body", "calls", "finish"),
    [
        (None, None, None),
        ("data: raw", None, None),
        ({}, None, None),
        ({"choices": []}, None, None),
        ({"choices": [{}]}, None, None),
        ({"choices": [{"finish_reason": "stop", "message": None}]}, None, "stop"),
        ({"choices": [{"finish_reason": 3, "message": {}}]}, 0, None),
        ({"choices": [{"finish_reason": "a", "message": {}}, {"finish_reason": "b"}]}, 0, "a"),
        ({"choices": [{"message": {"tool_calls": [TOOL, TOOL, TOOL]}}]}, 3, None),
        ({"choices": [{"message": {"tool_calls": [TOOL], "function_call": {}}}]}, 1, None),
        ({"choices": [{"message": {"tool_calls": [], "function_call": {"name": "x"}}}]}, 1, None),
        ({"choices": [{"message": {"tool_calls": {"a": 1}, "content": [{"type": "tool_use"}]}}]}, 1, None),
        ({"choices": [{"message": {"content": [{"type": "tool_use"}, {"type": "text"}, {}]}}]}, 1, None),
        ({"choices": [{"message": {"content": [3]}}]}, 0, None),
        ({"choices": [{"message": {"content": "[]"}}]}, 0, None),
        ({"content": [{"type": "tool_use"}] * 2, "stop_reason": "tool_use"}, 2, "tool_use"),
        ({"content": [], "stop_reason": 3}, 0, None),
        ({"content": "text", "stop_reason": "end_turn"}, None, "end_turn"),
        ({"content": [1], "stop_reason": "end_turn"}, None, "end_turn"),
        ({"choices": [], "content": [{"type": "tool_use"}]}, 1, None),
    ],
)
def test_calls_and_finish_reason_of_a_response(body: object, calls: int | None, finish: str | None) -> None:
    turn = parsed(response_body=body)
    assert (turn.tool_calls, turn.finish_reason) == (calls, finish)
    assert parsed(success=False, response_body=body).tool_calls is None


def test_what_a_record_may_leave_out() -> None:
    assert parsed() == EMPTY
    for nothing in (b"{}", b"", b"[]", b'{"success": 1}', b'{"success": null}'):
        assert parse_turn(nothing) is None
    both = b'{"success": false}{"success": true}'
    assert parse_turn(both) is None
    start = both.index(b"}") + 1
    first, second = parse_turn(both, 0, start), parse_turn(both, start)
    assert first is not None and second is not None and (first.success, second.success) == (False, True)


@pytest.mark.parametrize(
    ("fields", "replica"),
    [
        ({"replica": "r"}, "r"),
        ({"replica": 3}, None),
        ({"replica": "r", "failure": {"deployment": {"api_base": "d"}}}, "r"),
        ({"failure": {"deployment": {"api_base": "d"}}}, "d"),
        ({"failure": {"deployment": {"api_base": 3}}}, None),
        ({"failure": {"deployment": "d"}}, None),
        ({"failure": "d"}, None),
    ],
)
def test_the_replica_of_a_record(fields: dict[str, Any], replica: str | None) -> None:
    assert parsed(**fields).replica == replica


def test_a_moved_and_an_abandoned_call() -> None:
    assert [parsed(moved_from=value).moved for value in ("r", "", None)] == [True, False, False]
    gone = {"error_type": "client_disconnected"}
    assert parsed(success=False, failure=gone).abandoned and not parsed(success=True, failure=gone).abandoned
    assert not parsed(success=False, failure={"error_type": "x"}).abandoned
    assert not parsed(success=False).abandoned


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"usage": {"completion_tokens": 7, "output_tokens": 8}}, 7),
        ({"usage": {"output_tokens": 8}}, 8),
        ({"usage": {"completion_tokens": True}}, 0),
        ({"usage": {"completion_tokens": 7.5}}, 0),
        ({"usage": {"completion_tokens": 7}, "response_body": {"usage": {"completion_tokens": 9}}}, 7),
        ({"usage": None, "response_body": {"usage": {"completion_tokens": 9}}}, 9),
        ({"usage": 3, "response_body": {"usage": 3}}, 0),
        ({"response_body": "x"}, 0),
    ],
)
def test_generated_tokens_of_a_record(fields: dict[str, Any], tokens: int) -> None:
    assert parsed(**fields).completion_tokens == tokens


def test_a_request_inside_of_something_else_is_no_request() -> None:
    record = '{"success":true,"meta":{"request_body":1},"replica":"r","x":{"response_body":2}}'
    turn = parse_turn(record.encode())
    assert turn is not None and turn.replica == "r"
    response = '"response_body":{"choices":[{"message":{"tool_calls":[1]}}]}'
    for text in (
        f'{{"success":true,"request_body":{{}},"replica":"r",{response}}}',
        f'{{"success":true,{response},"replica":"r","request_body":{{}}}}',
        f'{{"request_body":{{"response_body":3}},"replica":"r","success":true,{response}}}',
    ):
        turn = parse_turn(text.encode())
        assert turn is not None and turn.tool_calls == 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1e9, 1e9),
        (1e9 - 1, None),
        (1e11 - 1, 1e11 - 1),
        (1e11, 1e8),
        (1_795_220_000_500, 1_795_220_000.5),
        (0, None),
        (-1e12, None),
        (10**400, None),
        (True, None),
        (None, None),
        ({}, None),
        ("", None),
        ("1795220000", None),
        ("0001-01-01", None),
        ("2026-11-21T00:13:21+01:00", 1_795_216_401.0),
        ("2026-11-21T00:13:21.250Z", 1_795_220_001.25),
    ],
)
def test_a_moment(value: object, seconds: float | None) -> None:
    assert moment(value) == seconds


@pytest.mark.parametrize(
    ("fields", "began"),
    [
        ({"request_time": T, "timestamp": T + 9, "duration_ms": 500}, T),
        ({"request_time": "x", "timestamp": T + 9, "duration_ms": 500}, T + 8.5),
        ({"timestamp": T, "duration_ms": 0.5}, T - 0.0005),
        ({"timestamp": T, "duration_ms": True}, T),
        ({"timestamp": T, "duration_ms": "500"}, T),
        ({"timestamp": 5, "duration_ms": 500}, None),
    ],
)
def test_when_a_call_began(fields: dict[str, Any], began: float | None) -> None:
    assert parsed(**fields).started_at == began


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, None),
        ({"messages": []}, ProxyTrajectory(0, 0, 0)),
        ({"messages_snapshot": [], "messages": [{"role": "assistant"}]}, ProxyTrajectory(0, 0, 0)),
        (
            {
                "messages": [
                    {"role": "user", "tool_calls": [TOOL]},
                    {"role": "assistant", "tool_calls": [TOOL, TOOL]},
                    {"role": "assistant", "content": [{"type": "tool_use"}]},
                    {"role": "assistant", "content": "x"},
                ],
                "traj_response_mask": [1, 0, 1],
            },
            ProxyTrajectory(3, 3, 2),
        ),
        ({"traj_response_mask": []}, None),
        ({"traj_response_mask": [0, 0]}, ProxyTrajectory(0, None, 0)),
        ({"traj_response_mask": [0, 1, 1, 0, 0.0, 1.0]}, ProxyTrajectory(2, None, 3)),
        ({"traj_response_mask": [1, 1]}, ProxyTrajectory(1, None, 2)),
        ({"messages": 3}, None),
    ],
)
def test_counts_of_a_proxy_trajectory(document: object, expected: ProxyTrajectory | None) -> None:
    assert parse_proxy_trajectory(json.dumps(document).encode()) == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, TrialResult()),
        (
            {
                "task_name": "t",
                "step": 3,
                "started_at": T,
                "turns": 4,
                "verifier_result": {"rewards": {"reward": 0.5}},
            },
            TrialResult("t", 3, 0.5, T, 4),
        ),
        ({"task_name": {"name": "n", "path": "p"}}, TrialResult("n")),
        ({"task_name": {"name": "", "path": "p"}}, TrialResult("p")),
        ({"task_name": {"path": 3}}, TrialResult()),
        ({"task_name": "", "turns": -1, "step": 2.0}, TrialResult()),
        ({"verifier_result": {"rewards": {"tests": 2}}}, TrialResult(reward=2.0)),
        ({"verifier_result": {"rewards": {"tests": 2, "style": 3}}}, TrialResult()),
        ({"verifier_result": {"rewards": {"tests": 2, "reward": 3}}}, TrialResult(reward=3.0)),
        ({"verifier_result": {"rewards": {}}}, TrialResult()),
        ({"verifier_result": {"rewards": [1]}}, TrialResult()),
        ({"verifier_result": 3}, TrialResult()),
    ],
)
def test_what_a_result_says(told: dict[str, Any], expected: TrialResult) -> None:
    assert parse_result(json.dumps(told).encode()) == expected


def test_what_a_configuration_says() -> None:
    def config(**told: Any) -> TrialResult | None:
        return parse_config(json.dumps(told).encode())

    assert config(task="t", step=3, task_name="no") == TrialResult("t", 3)
    assert config(task={"path": "p"}) == TrialResult("p") and config(step="3") == TrialResult()
    for broken in (b"", b"[1]", b'{"task": "t"', b"\xff", b"[" * 100_000):
        assert parse_config(broken) is parse_result(broken) is parse_object(broken) is None
    assert [count(value) for value in (3, 1, 0, -1, True, 2.0, "2", None)] == [3, 1, 0, 0, 0, 0, 0, 0]


def test_a_rewards_text_is_its_first_64_bytes() -> None:
    assert parse_reward(b"1" * 65) == float("1" * 64)
    assert parse_reward(b"0.5" + b" " * 61 + b"x") == 0.5
    assert parse_reward(b"0.5" + b" " * 60 + b"x") is None
    assert parse_reward(b"1e400") is None


# -- the head of one trial


class One:
    """A trial's folder, looked at with the clock set to ``T`` and later."""

    def __init__(self, root: Path, path: str = "step_0003/fix-it-0a1b2c", step: int | None = 3) -> None:
        self.root = root
        self.folder = root / path
        self.folder.mkdir(parents=True)
        self.trial = Trial(str(root), path, step)
        self.lines = LineReader()

    def put(self, name: str, text: str | bytes, at: float = T) -> None:
        put(self.folder / name, text, at)
        os.utime(self.folder, (at, at))

    def head(self, now: float = T) -> TrialHead:
        assert self.trial.check(self.lines, now)
        return self.trial.head()


@pytest.fixture
def one(tmp_path: Path) -> One:
    return One(tmp_path)


def test_a_new_trial_has_an_empty_head(one: One) -> None:
    os.utime(one.folder, (T, T))
    assert one.head() == TrialHead(
        name="fix-it-0a1b2c",
        step=3,
        task="fix-it",
        state="running",
        turns=0,
        tool_calls=0,
        reward=None,
        finish_reason=None,
        completion_tokens=0,
        replica=None,
        started_at=None,
        updated_at=T,
        flags=(),
        path="trials/step_0003/fix-it-0a1b2c",
    )
    assert (one.trial.due, one.trial.unread, one.trial.closed, one.trial.bad) == (T, False, False, 0)
    shutil.rmtree(one.folder)
    assert one.trial.check(one.lines, T) is False
    one.folder.write_text("a file")
    assert one.trial.check(one.lines, T) is False


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("fix-it-0a1b2c", "fix-it"),
        ("fix-it-0a1b2", "fix-it-0a1b2"),
        ("fix-it-0a1b2c3d4e5f", "fix-it"),
        ("fix-it-0A1B2C", "fix-it-0A1B2C"),
        ("fix__Ab3dE6g", "fix"),
        ("fix__Ab3dE6", "fix__Ab3dE6"),
        ("fix__Ab3dE6gh", "fix__Ab3dE6gh"),
        ("plain", "plain"),
    ],
)
def test_the_task_in_a_trials_name(tmp_path: Path, name: str, task: str) -> None:
    trial = Trial(str(tmp_path), f"step_0001/{name}", 1)
    assert (trial.name, trial.task) == (name, task)
    assert Trial(str(tmp_path), name, None).name == name


def test_turns_add_up_in_the_head(one: One) -> None:
    one.put(
        FILE, lines(call(calls=2, finish="tool_calls"), FAILED, call(calls=1, finish="length", replica=None))
    )
    head = one.head()
    assert (head.turns, head.tool_calls, head.completion_tokens) == (2, 3, 8)
    assert (head.finish_reason, head.replica, head.started_at) == ("length", "http://a:1", T - 100)
    assert head.flags == ("failed_turns",)
    one.put(FILE, lines(call(finish=None, usage=None, request_time=None)))
    head = one.head()  # shorter: written anew
    assert (head.turns, head.tool_calls, head.completion_tokens, head.flags) == (1, 0, 0, ())
    assert (head.finish_reason, head.started_at) == (None, None)
    one.put(FILE, lines({"success": True}))
    assert one.head().replica is None


def test_a_file_that_is_written_anew_is_counted_anew(one: One) -> None:
    one.put(FILE, lines(call(calls=1, moved_from="x"), FAILED, call(replica="http://b:1"), GONE))
    head = one.head()
    assert (head.turns, head.tool_calls, head.flags) == (2, 1, ("moved_replica", "failed_turns"))
    one.put(FILE, lines(call(replica="http://c:1", request_time=T - 50)))
    head = one.head()
    assert (head.turns, head.tool_calls, head.completion_tokens, head.started_at) == (1, 0, 4, T - 50)
    assert head.flags == ("zero_tool_calls",), "a replica of the old file is none that it moved from"
    one.put(FILE, "")
    head = one.head()
    assert (head.turns, head.finish_reason, head.replica, head.started_at, head.flags) == (
        0,
        None,
        None,
        None,
        (),
    )


@pytest.mark.parametrize(
    ("records", "flags"),
    [
        ([call(calls=1), call()], ()),
        ([call(), call()], ("zero_tool_calls",)),
        ([call(finish="end_turn")], ("zero_tool_calls",)),
        ([call(finish="stop_sequence")], ("zero_tool_calls",)),
        ([call(finish="tool_calls")], ()),
        ([call(finish="length")], ()),
        ([call(response_body=None)], ()),
        ([call(response_body=None), call()], ("zero_tool_calls",)),
        ([call(calls=1), call(replica=None), call(replica="http://a:1")], ()),
        ([call(calls=1), call(replica="http://b:1")], ("moved_replica",)),
        ([call(calls=1, moved_from="x")], ("moved_replica",)),
        ([call(calls=1), FAILED], ("failed_turns",)),
        ([call(calls=1), GONE], ()),
        ([GONE, call(calls=1)], ("failed_turns",)),
        ([GONE, GONE], ("failed_turns",)),
        ([FAILED | {"replica": "http://b:1"}, call(calls=1)], ("failed_turns",)),
    ],
)
def test_flags_of_a_running_trial(one: One, records: list[dict[str, Any]], flags: tuple[str, ...]) -> None:
    one.put(FILE, lines(*records))
    head = one.head()
    assert (head.flags, head.state) == (flags, "running")
    found = read_trajectory(one.folder)
    assert tuple(flag for flag in found.flags if flag != "truncated") == flags
    assert ("truncated" in found.flags) == (found.turns[-1].finish_reason == "length")


def test_a_replica_that_only_failed_is_none_that_served(one: One) -> None:
    one.put(
        FILE, lines(FAILED | {"replica": "http://b:1"}, call(calls=1), FAILED | {"replica": "http://c:1"})
    )
    assert read_trajectory(one.folder).replicas == ("http://a:1",)
    assert [turn.replica for turn in read_trajectory(one.folder).turns] == [
        "http://b:1",
        "http://a:1",
        "http://c:1",
    ]
    assert one.head().replica == "http://a:1"


def test_a_cut_off_call_is_a_failure_of_a_finished_trial(one: One) -> None:
    one.put(FILE, lines(call(calls=1), GONE))
    one.put("result.json", "{}")
    assert one.head().flags == ("failed_turns",)
    assert read_trajectory(one.folder).flags == ("failed_turns",)


def test_reasons_to_end() -> None:
    assert [
        over(reason) for reason in ("stop", "end_turn", "stop_sequence", "length", "tool_calls", None)
    ] == [
        *[True] * 3,
        *[False] * 3,
    ]


def test_a_failed_call_tells_when_the_trial_began(one: One) -> None:
    one.put(FILE, lines(FAILED | {"request_time": T - 70}, call(), FAILED))
    assert one.head().started_at == T - 70
    one.put(FILE, lines(FAILED | {"request_time": None}, FAILED | {"request_time": T - 60}))
    assert one.head().started_at == T - 60
    assert one.head().turns == 0


def test_the_result_and_the_configuration_name_task_and_step(tmp_path: Path) -> None:
    one = One(tmp_path, "fix-it-0a1b2c", None)
    assert one.head().step is None
    one.put("config.json", '{"task": "from config", "step": 4}')
    assert (one.head().task, one.head().step) == ("from config", 4)
    one.put(
        "result.json", json.dumps({"task_name": "from result", "step": 5, "started_at": T - 9, "turns": 6})
    )
    head = one.head()
    assert (head.task, head.step, head.started_at, head.turns) == ("from result", 4, T - 9, 6)
    assert (head.state, head.reward) == ("finished", None)
    one = One(tmp_path, "step_0003/a", 3)
    one.put("config.json", '{"step": 4}')
    one.put("result.json", '{"step": 5}')
    assert (one.head().task, one.head().step) == ("a", 3)
    one = One(tmp_path, "b", None)
    one.put("result.json", '{"step": 0}')
    assert one.head().step == 0


def test_the_first_word_on_the_start_stands(one: One) -> None:
    one.put(FILE, lines(call()))
    assert one.head().started_at == T - 100
    one.put("result.json", json.dumps({"started_at": T - 300}))
    assert one.head().started_at == T - 100


def test_a_configuration_is_read_until_it_is_whole_or_old(one: One) -> None:
    one.put("config.json", '{"task": ')
    assert one.head(T + 5).task == "fix-it"
    one.put("config.json", '{"task": "whole"}')
    assert one.head(T + 5).task == "whole"
    one.put("config.json", '{"task": "changed"}')
    assert one.head(T + 6).task == "whole", "read once"


def test_a_broken_configuration_is_given_up_after_five_seconds(one: One) -> None:
    one.put("config.json", "{")
    one.head(T + 5.25)
    one.put("config.json", '{"task": "late"}')
    assert one.head(T + 6).task == "fix-it"


@pytest.mark.parametrize(
    ("later", "state", "bad"), [(0.0, "running", 0), (4.75, "running", 0), (5.0, "finished", 1)]
)
def test_a_broken_result_is_one_after_five_seconds(one: One, later: float, state: str, bad: int) -> None:
    one.put("result.json", '{"task_name": "x"')
    assert (one.head(T + later).state, one.trial.bad) == (state, bad)
    assert one.head(T + later).state == state and one.trial.bad == bad
    one.put("result.json", '{"task_name": "x"}', T + 10)
    assert one.head(T + 10).task == ("x" if state == "running" else "fix-it")


def test_the_newest_file_dates_the_head(one: One) -> None:
    one.put(FILE, lines(call()), T - 30)
    os.utime(one.folder, (T - 40, T - 40))
    assert one.head().updated_at == T - 30
    one.put("result.json", "{}", T - 20)
    os.utime(one.folder, (T - 25, T - 25))
    assert one.head().updated_at == T - 20
    os.utime(one.folder, (T - 10, T - 10))
    assert one.head().updated_at == T - 10
    os.utime(one.folder, (T - 35, T - 35))
    assert one.head().updated_at == T - 10, "it never goes back"


def test_a_documents_time_and_counts(one: One) -> None:
    messages = [{"role": "assistant", "tool_calls": [TOOL]}, {"role": "assistant"}]
    one.put(
        "proxy_trajectory.json", json.dumps({"messages": messages, "traj_response_mask": [1, 1, 1]}), T - 10
    )
    os.utime(one.folder, (T - 20, T - 20))
    head = one.head()
    assert (head.turns, head.tool_calls, head.completion_tokens, head.updated_at) == (2, 1, 3, T - 10)
    assert head.flags == ()
    # It is written once: read once.
    one.put("proxy_trajectory.json", json.dumps({"messages": messages[:1]}))
    assert one.head().turns == 2


@pytest.mark.parametrize(
    ("document", "turns", "flags", "bad"),
    [
        ({"messages": [{"role": "assistant"}]}, 1, ("zero_tool_calls",), 0),
        ({"messages": []}, 0, (), 0),
        ({"traj_response_mask": [1, 0, 1]}, 2, (), 0),
        ({"else": 1}, 0, (), 1),
    ],
)
def test_flags_of_a_document(one: One, document: object, turns: int, flags: object, bad: int) -> None:
    one.put("proxy_trajectory.json", json.dumps(document))
    head = one.head()
    assert (head.turns, head.flags, head.state, one.trial.bad) == (turns, flags, "running", bad)
    one.head()
    assert one.trial.bad == bad


def test_records_come_before_a_document(one: One) -> None:
    one.put("proxy_trajectory.json", json.dumps({"messages": [{"role": "assistant"}] * 5}))
    one.put(FILE, lines(call(calls=1)))
    assert one.head().turns == 1
    one.put("proxy_trajectory.json", "")
    one.put(FILE, "")
    assert one.head().turns == 0, "an empty document is none yet"
    one.put("proxy_trajectory.json", json.dumps({"messages": [{"role": "assistant"}] * 5}))
    assert one.head().turns == 5


def test_the_verifiers_text_is_read_when_the_trial_is_over(one: One) -> None:
    one.put("verifier/reward.txt", "0.25\n")
    one.put(FILE, lines(call(finish="tool_calls")))
    assert one.head().reward is None, "it goes on"
    one.put(FILE, lines(call(finish="tool_calls"), call(finish="stop")))
    assert one.head().reward == 0.25
    one.put("verifier/reward.txt", "0.75\n")
    assert one.head().reward == 0.25, "read once"


def test_the_results_reward_comes_before_the_verifiers_text(one: One) -> None:
    one.put("verifier/reward.txt", "0.25\n")
    one.put("result.json", '{"verifier_result": {"rewards": {"reward": 0}}}')
    assert one.head().reward == 0.0
    other = One(one.root, "step_0003/b")
    other.put("result.json", "{}")
    other.put("verifier/else.txt", "")
    assert other.head().reward is None
    other.put("verifier/reward.txt", "")
    assert other.head().reward is None
    other.put("verifier/reward.txt", "1")
    assert other.head().reward == 1.0


def test_a_reward_without_the_verifiers_folder_in_sight_is_not_looked_for(
    one: One, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *a, **k: opened.append(str(path)) or real(path, *a, **k))
    one.put("result.json", "{}")
    one.head()
    assert [Path(path).name for path in opened if str(one.folder) in path] == ["result.json"]
    opened.clear()
    one.put("verifier/reward.txt", "1")
    one.head()
    one.head()
    assert [Path(path).name for path in opened if str(one.folder) in path] == ["reward.txt"]


def test_records_of_the_agents_folder(one: One) -> None:
    one.put("agent/other.txt", "")
    assert one.head().turns == 0
    one.put(f"agent/{FILE}", lines(call()))
    assert one.head().turns == 1
    one = One(one.root, "step_0003/b")
    one.put("agent/other.txt", "")
    assert one.head().turns == 0
    one.put(FILE, lines(call(), call()))
    assert one.head().turns == 2, "it appeared in the trial's own folder instead"


def test_a_trial_is_closed_five_seconds_after_its_last_word(one: One) -> None:
    one.put(FILE, lines(call(calls=1)) + json.dumps(call(calls=1)))
    one.put("result.json", "{}")
    assert (one.head(T + 5).turns, one.trial.closed) == (1, False)
    assert (one.head(T + 5.25).turns, one.trial.closed) == (2, True)
    assert one.trial.bad == 0


def test_a_trial_that_still_writes_is_not_closed(one: One) -> None:
    one.put("result.json", "{}")
    one.put(FILE, lines(call(calls=1)), T + 9)
    assert (one.head(T + 10).turns, one.trial.closed) == (1, False)
    one.put(FILE, lines(call(calls=1), call(calls=1)), T + 5)
    assert (one.head(T + 10).turns, one.trial.closed) == (2, True), "what came was five seconds old"
    assert one.trial.head().updated_at == T + 9


def test_a_torn_record_of_a_closed_trial_is_bad(one: One) -> None:
    one.put(FILE, lines(call(calls=1)) + "\n  \n" + '{"success": tr')
    one.put("result.json", "{}")
    assert (one.head(T + 60).turns, one.trial.closed, one.trial.bad) == (1, True, 1)


@pytest.mark.parametrize(
    ("idle", "wait"), [(0.0, 0.0), (5.0, 0.5), (100.0, 10.0), (300.0, 30.0), (9000.0, 30.0)]
)
def test_a_quiet_trial_is_looked_at_less_often(one: One, idle: float, wait: float) -> None:
    one.put(FILE, lines(call()), T)
    one.head(T + idle)
    assert one.trial.due == T + idle + wait
    one.head(T - 10)
    assert one.trial.due == T - 10, "a file from the future is no reason to wait"


@pytest.mark.parametrize(("later", "listed"), [(1.75, True), (2.0, False), (2.5, False), (100.0, False)])
def test_a_folder_is_listed_again_while_it_is_two_seconds_young(one: One, later: float, listed: bool) -> None:
    """A file system may give two changes in the same tick the same time."""
    os.utime(one.folder, (T, T))
    one.head(T)
    (one.folder / "result.json").write_text("{}")
    os.utime(one.folder, (T, T))
    assert (one.head(T + later).state == "finished") is listed
    os.utime(one.folder, (T + 1, T + 1))
    assert one.head(T + 200).state == "finished"


# -- all trials


class Scan:
    def __init__(self, run: Path) -> None:
        self.trials = run / "trials"
        self.trials.mkdir()
        self.scanner = TrialScanner(run)

    def finished(self, path: str, *records: dict[str, Any], at: float = T, **told: Any) -> None:
        put(self.trials / path / FILE, lines(*(records or [call(calls=1)])), at)
        put(self.trials / path / "result.json", json.dumps(told), at)
        for folder in (self.trials / path).parent, self.trials:
            os.utime(folder, (at, at))

    def scan(self, now: float = T, budget: float = 60.0) -> TrialsStatus:
        return self.scanner.scan(budget, now)


@pytest.fixture
def run(tmp_path: Path) -> Scan:
    return Scan(tmp_path)


def rewarded(reward: float) -> dict[str, Any]:
    return {"verifier_result": {"rewards": {"reward": reward}}}


def test_the_status_counts_finished_and_running_trials(run: Scan) -> None:
    run.finished("step_0001/a", call(calls=1), **rewarded(1.0))
    run.finished("step_0001/b", call(finish="length"), **rewarded(0.5))
    run.finished("step_0002/c", call(calls=1, finish=None))
    put(run.trials / "step_0002/d" / FILE, lines(call()))
    put(run.trials / "step_0002/e" / FILE, lines(call(calls=2, finish="tool_calls")))
    put(run.trials / "flat" / FILE, lines(call(calls=1)))
    expected = {
        "total": 6,
        "running": 3,
        "finished": 3,
        "zero_tool_calls": 2,
        "cut_off": 0,
        "steps": (
            StepTrials(2, 3, 1, 1, None, 2, {"stop": 1, "tool_calls": 1}),
            StepTrials(1, 2, 2, 1, 0.75, 1, {"stop": 1, "length": 1}),
        ),
    }
    for now in (T, T + 1, T + 60, T + 120):  # finished trials are tallied once, running ones each time
        status = run.scan(now)
        assert {name: getattr(status, name) for name in expected} == expected
        assert len(status.newest) == 6
    assert run.scan(T + 180) is status
    assert (run.scanner.unread, run.scanner.errors, run.scanner.error, run.scanner.bad_lines) == (
        0,
        0,
        None,
        0,
    )
    # A status that was handed out does not change.
    run.finished("step_0002/f", call(finish="stop"), at=T + 200)
    later = run.scan(T + 400)
    assert status.steps == expected["steps"]
    assert later.steps[0] == StepTrials(2, 4, 2, 2, None, 2, {"stop": 2, "tool_calls": 1})


def test_newest_trials_come_first(run: Scan) -> None:
    for name, began in (("a", T - 30), ("b", T - 10), ("c", T - 20), ("d", T - 10)):
        run.finished(f"step_0001/{name}", call(calls=1, request_time=began))
    put(run.trials / "step_0001/r" / FILE, lines(call(calls=1, request_time=T - 15)))
    put(run.trials / "step_0001/n" / "config.json", "{}", T - 25)  # not begun: as old as its files
    assert [head.name for head in run.scan().newest] == ["d", "b", "r", "c", "n", "a"]
    assert [head.name for head in run.scan(T + 60).newest] == ["d", "b", "r", "c", "n", "a"]
    assert [head.name for head in heads_of_step(run.trials.parent, 1)] == ["d", "b", "r", "c", "n", "a"]


def test_the_newest_200_trials_and_50_steps_are_shown(run: Scan) -> None:
    for number in range(204):
        step = number % 52
        run.finished(f"step_{step:04d}/t{number}", call(calls=1, request_time=T - 1000 + number))
    status = run.scan(T + 60)
    assert (status.total, status.finished, len(status.newest), len(status.steps)) == (204, 204, 200, 50)
    assert [head.name for head in status.newest] == [f"t{number}" for number in range(203, 3, -1)]
    assert [step.step for step in status.steps] == list(range(51, 1, -1))
    put(run.trials / "step_0051/new" / FILE, lines(call(calls=1, request_time=T)), T + 60)
    status = run.scan(T + 120)
    assert (status.total, len(status.newest), status.newest[0].name) == (205, 200, "new")


def test_new_trials_appear_in_the_newest_folders(run: Scan) -> None:
    root = str(run.trials)
    assert run.scanner.newest_folders() == [root]
    for step in (1, 0, 2):
        (run.trials / f"step_{step:04d}").mkdir()
        run.scan()
    assert run.scanner.newest_folders() == [root, f"{root}/step_0001", f"{root}/step_0002"]
    (run.trials / "step_10").mkdir()
    run.scan()
    assert run.scanner.newest_folders() == [root, f"{root}/step_0002", f"{root}/step_10"]


def test_folders_that_hold_no_trials(run: Scan) -> None:
    put(run.trials / "step_x/a" / FILE, lines(call()))  # a trial of its own, whatever its name
    put(run.trials / "step_0001" / "_partial" / FILE, lines(call()))
    put(run.trials / "step_0001" / ".hidden" / FILE, lines(call()))
    put(run.trials / "step_0001" / "notes.txt", "")
    put(run.trials / "step_1234567890/b" / FILE, lines(call()))  # no step has ten digits
    put(run.trials / "_unattributed" / FILE, lines(call()))
    assert sorted(head.name for head in run.scan().newest) == ["step_1234567890", "step_x"]
    assert steps_on_disk(run.trials.parent) == [1] and heads_of_step(run.trials.parent, 1) == []


def looked_at(run: Scan, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the step folders that are asked for their time from now on."""
    names: list[str] = []
    real = os.stat

    def stat(path: Any, **more: Any) -> os.stat_result:
        if Path(path).parent == run.trials:
            names.append(Path(path).name)
        return real(path, **more)

    monkeypatch.setattr(scanning.os, "stat", stat)
    return names


def test_old_steps_are_looked_at_in_turn(run: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(13):
        (run.trials / f"step_{step:04d}").mkdir()
    names = looked_at(run, monkeypatch)
    scans = []
    for later in range(9):
        names.clear()
        run.scan(T + later)
        scans.append(list(names))
    assert sorted(scans[0]) == [f"step_{step:04d}" for step in range(13)]
    for scan in scans[1:]:
        assert scan[:2] == ["step_0012", "step_0011"] and len(set(scan)) == len(scan) == 6
    old = [f"step_{step:04d}" for step in range(11)]
    for start in range(1, 7):
        assert {name for scan in scans[start : start + 3] for name in scan[2:]} == set(old), (
            "all in three scans"
        )


def test_few_steps_are_all_looked_at(run: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    names = looked_at(run, monkeypatch)
    for step in range(6):
        (run.trials / f"step_{step:04d}").mkdir()
        for later in range(2):
            names.clear()
            run.scan(T + later)
            assert sorted(names) == [f"step_{known:04d}" for known in range(step + 1)]


def test_no_step_is_listed_once_the_time_is_over(run: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    run.finished("flat")
    run.finished("step_0001/a")
    status = run.scan(budget=-1.0)
    assert (status.total, run.scanner.unread) == (0, 1), "it is known, and not read"
    clock = iter(range(1000))
    monkeypatch.setattr(scanning.time, "monotonic", lambda: float(next(clock)))
    run.finished("step_0002/b")
    run.finished("step_0003/c")
    # Each look at the clock takes a second: one step is listed, then the time is over.
    status = run.scan(budget=1.0)
    assert (status.total, run.scanner.unread) == (0, 2)
    # All three steps are listed, then two of the four trials are read.
    status = run.scan(budget=5.0)
    assert (status.total, run.scanner.unread) == (2, 2)
    status = run.scan(budget=60.0)
    assert (status.total, run.scanner.unread) == (4, 0)


@pytest.mark.parametrize(("later", "found"), [(1.75, 2), (2.25, 1)])
def test_a_steps_folder_is_listed_again_while_it_is_two_seconds_young(
    run: Scan, later: float, found: int
) -> None:
    run.finished("step_0001/a", at=T)
    assert run.scan(T).total == 1
    run.finished("step_0001/b", at=T)
    assert run.scan(T + later).total == found
    os.utime(run.trials / "step_0001", (T + 1, T + 1))
    assert run.scan(T + 100).total == 2


def test_trials_are_looked_at_when_they_are_due(run: Scan) -> None:
    for name, age in (("a", 100.0), ("b", 50.0)):
        put(run.trials / "step_0001" / name / FILE, lines(call(calls=1)), T - age)
    assert run.scan(T).total == 2
    for name in "ab":
        put(run.trials / "step_0001" / name / FILE, lines(call(calls=1), call(calls=1)), T)
    assert [head.turns for head in run.scan(T + 4.75).newest] == [1, 1]
    assert {head.name: head.turns for head in run.scan(T + 5.0).newest} == {"a": 1, "b": 2}
    assert {head.name: head.turns for head in run.scan(T + 10.0).newest} == {"a": 2, "b": 2}


def test_a_removed_trial_is_no_longer_counted(run: Scan) -> None:
    for name in "ab":
        put(run.trials / name / FILE, lines(call(calls=1)))
    first = run.scan()
    assert (first.total, run.scanner.unread) == (2, 0)
    shutil.rmtree(run.trials / "a")
    status = run.scan(T + 60)
    assert (status.total, [head.name for head in status.newest], run.scanner.unread) == (1, ["b"], 0)
    assert run.scan(T + 120) is status


def test_bad_lines_of_all_trials_add_up(run: Scan) -> None:
    put(run.trials / "a" / FILE, "x\ny\n")
    put(run.trials / "b" / FILE, "z\n")
    run.scan()
    assert run.scanner.bad_lines == 3
    put(run.trials / "a" / FILE, "x\ny\n\nw\n")
    run.scan(T + 1)
    assert run.scanner.bad_lines == 4


def test_the_storages_errors_end_no_scan(run: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    put(run.trials / "a" / FILE, lines(call(calls=1)))
    run.scan()

    def broken(path: Any) -> Any:
        raise OSError(5, "Input/output error", str(path))

    real = os.scandir
    monkeypatch.setattr(scanning.os, "scandir", broken)
    put(run.trials / "a" / FILE, lines(call(calls=1), call()), T + 10)
    os.utime(run.trials, (T + 10, T + 10))
    run.scan(T + 10)
    assert run.scanner.errors == 2 and "Input/output error" in str(run.scanner.error)
    monkeypatch.setattr(scanning.os, "scandir", real)
    assert [head.turns for head in run.scan(T + 20).newest] == [2]
    assert run.scanner.errors == 2


def test_requests_without_a_trial_are_counted_eight_mib_at_a_time(run: Scan) -> None:
    path = run.trials / "_unattributed" / FILE
    path.parent.mkdir()
    with path.open("wb") as file:
        for line in (1, 8 << 20, (8 << 20) + 1, 16 << 20, 17 << 20):  # bytes up to and with each newline
            file.seek(line - 1)
            file.write(b"\n")
    counted = []
    for _ in range(4):
        run.scan()
        counted.append(run.scanner.unattributed)
    assert counted == [2, 4, 5, 5]
    path.write_bytes(b"a\nb\n")
    run.scan()
    assert run.scanner.unattributed == 2


def test_a_run_that_ended_cuts_its_trials_off(run: Scan) -> None:
    run.finished("step_0001/a")
    put(run.trials / "step_0001/b" / FILE, lines(call(calls=1)))
    status = run.scan(T + 60)
    ended = cut_off(status)
    assert (ended.total, ended.running, ended.finished, ended.cut_off) == (2, 0, 1, 1)
    assert {head.name: head.state for head in ended.newest} == {"a": "finished", "b": "cut_off"}
    assert [(step.step, step.total, step.finished, step.cut_off) for step in ended.steps] == [(1, 2, 1, 1)]
    assert cut_off(ended) is ended
    assert cut_off_head(ended.newest[0]) == ended.newest[0]
    again = cut_off(TrialsStatus(running=2, cut_off=3))
    assert (again.running, again.cut_off) == (0, 5)


# -- lines


def read_all(path: Path, reader: LineReader, offset: int = 0) -> tuple[list[bytes], list[tuple[int, bool]]]:
    found: list[bytes] = []
    ends: list[tuple[int, bool]] = []
    more = True
    while more:
        offset, more = reader(
            str(path), offset, lambda data, start, end: found.append(bytes(data[start:end]))
        )
        ends.append((offset, more))
        assert len(ends) < 100, "it gets nowhere"
    return found, ends


@settings(max_examples=60)
@given(
    st.lists(st.binary(max_size=24).map(lambda line: line.replace(b"\n", b"x")), max_size=12),
    st.binary(max_size=20),
)
def test_every_complete_line_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, whole: list[bytes], rest: bytes
) -> None:
    rest = rest.replace(b"\n", b"x")
    path = tmp_path_factory.mktemp("lines") / "file"
    data = b"".join(line + b"\n" for line in whole)
    path.write_bytes(data + rest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_BUFFER", 4)
        patch.setattr(scanning, "_PER_TRIAL", 16)
        found, ends = read_all(path, LineReader())
        assert (found, ends[-1]) == (whole, (len(data), False))
        for (before, _), (after, _) in zip([(0, True), *ends], ends, strict=False):
            assert after - before < 16 + 32, "16 bytes at a time, or one line"
        start = len(whole[0]) + 1 if whole else 0
        assert read_all(path, LineReader(), start)[0] == whole[1:]
        for most in (0, 1, 7, 100):
            with path.open("rb") as file:
                lines_read, size = LineReader().count(file.fileno(), start, most)
            assert lines_read == (data + rest)[start : start + size].count(b"\n")
            assert size == min(len(data + rest) - start, -(-most // 4) * 4)


def test_sixteen_mib_of_a_trial_are_read_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes((b"x" * ((1 << 20) - 1) + b"\n") * 18 + b"end")
    found, ends = read_all(path, LineReader())
    assert len(found) == 18
    assert ends == [(16 << 20, True), (18 << 20, False)]
    assert LineReader()(str(tmp_path / "none"), 7, lambda *_: None) == (7, False)


def test_a_line_that_is_too_long_is_skipped_and_the_buffer_shrinks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_BUFFER", 4)
    monkeypatch.setattr(scanning, "MAX_LINE", 16)
    path = tmp_path / "file"
    path.write_bytes(b"a" * 15 + b"\n" + b"b" * 40 + b"\nc\n")
    sizes: list[int] = []
    real = os.preadv

    def preadv(fd: int, buffers: Any, offset: int) -> int:
        sizes.append(len(buffers[0]))
        return real(fd, buffers, offset)

    monkeypatch.setattr(scanning.os, "preadv", preadv)
    reader = LineReader()
    found, ends = read_all(path, reader)
    assert found == [b"a" * 15, b"b" * 8, b"c"] and ends[-1] == (59, False)
    assert sizes[:4] == [4, 8, 16, 16] and max(sizes) == 16
    sizes.clear()
    read_all(path, reader)
    assert sizes[0] == 4


# -- files beside the records


def test_files_are_listed_verifier_first(tmp_path: Path) -> None:
    for name in ("z.txt", "a.txt", "agent/b", "verifier/d/e", "verifier/c", "sandbox/f", "agent/g/h"):
        put(tmp_path / name, name)
    names = ["a.txt", "z.txt", "verifier/c", "verifier/d/e", "agent/b", "agent/g/h", "sandbox/f"]
    assert [(file.name, file.size) for file in list_files(tmp_path)] == [(name, len(name)) for name in names]
    left = list_files(tmp_path, leave_out=("a.txt", "verifier/c", "d/e", None))
    assert [file.name for file in left] == [name for name in names if name not in ("a.txt", "verifier/c")]
    assert list_files(tmp_path / "none") == ()


def test_at_most_200_files_are_listed(tmp_path: Path) -> None:
    for number in range(205):
        put(tmp_path / "a" / f"{number:03d}", "")
    put(tmp_path / "b" / "x", "")
    assert [file.name for file in list_files(tmp_path)] == [f"a/{number:03d}" for number in range(200)]
    assert MOST == 200


def test_at_most_500_folders_are_searched(tmp_path: Path) -> None:
    for number in range(1, 504):
        (tmp_path / f"{number:03d}").mkdir()
    for number in (1, 498, 499, 500, 501, 503):
        put(tmp_path / f"{number:03d}" / "x", "")
    assert [file.name for file in list_files(tmp_path)] == ["001/x", "498/x", "499/x"]


@pytest.mark.parametrize(
    ("text", "lines", "shown"),
    [
        ("", 3, ""),
        ("a\nb\n", 3, "a\nb\n"),
        ("a\nb\nc", 3, "a\nb\nc"),
        ("a\nb\nc\n", 3, "a\nb\nc\n… the first 3 lines of 6 bytes"),
        ("a\nb\nc\nd", 2, "a\nb\n… the first 2 lines of 7 bytes"),
        ("\xff", 3, "ÿ"),
    ],
)
def test_the_head_of_a_file(tmp_path: Path, text: str, lines: int, shown: str) -> None:
    put(tmp_path / "f", text)
    assert head_of_file(tmp_path, "f", lines) == shown


def test_the_head_of_a_large_file(tmp_path: Path) -> None:
    size = 256 << 10
    put(tmp_path / "f", "x" * size)
    assert head_of_file(tmp_path, "f") == "x" * size
    put(tmp_path / "f", "x" * (size + 1))
    assert head_of_file(tmp_path, "f") == "x" * size + f"\n… the first 1 lines of {size + 1} bytes"
    put(tmp_path / "f", "x\n" * 200)
    assert head_of_file(tmp_path, "f") == "x\n" * 200 + "… the first 200 lines of 400 bytes"
    put(tmp_path / "f", b"a\xff\n")
    assert head_of_file(tmp_path, "f") == "a\ufffd\n"
    put(tmp_path / "f", b"a" * size + b"\0")
    assert head_of_file(tmp_path, "f").startswith("aaa"), "what is not read is not judged"
    put(tmp_path / "f", b"a" * (size - 1) + b"\0")
    assert head_of_file(tmp_path, "f") == "[not a text file]"
    with pytest.raises(OSError):
        head_of_file(tmp_path, "none")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        head_of_file(tmp_path, "folder")


# -- steps on disk


def test_a_step_has_trials_in_both_layouts(tmp_path: Path) -> None:
    assert steps_on_disk(tmp_path) == [] and heads_of_step(tmp_path, 1) == []
    (tmp_path / "trials").write_text("a file")
    assert steps_on_disk(tmp_path) == []
    (tmp_path / "trials").unlink()
    trials = tmp_path / "trials"
    put(trials / "step_10/a" / FILE, lines(call()))
    put(trials / "step_0002/b" / FILE, lines(call()))
    put(trials / "step_2/c" / FILE, lines(call()))
    put(trials / "flat1" / "config.json", '{"step": 2}')
    put(trials / "flat2" / "config.json", '{"task": "x"}')
    put(trials / "flat2" / "result.json", '{"step": 2}')
    put(trials / "flat3" / "config.json", '{"step": 3}')
    put(trials / "flat3" / "result.json", '{"step": 2}')
    put(trials / "flat4" / "config.json", "{")
    put(trials / "flat4" / "result.json", '{"step": 2}')
    put(trials / "flat5" / "result.json", '{"step": 2}')
    put(trials / "flat6" / FILE, lines(call()))
    put(trials / "_flat7" / "config.json", '{"step": 2}')
    (trials / "notes.txt").write_text("")
    assert steps_on_disk(tmp_path) == [2, 10]
    names = sorted(head.name for head in heads_of_step(tmp_path, 2))
    assert names == ["b", "c", "flat1", "flat2", "flat4", "flat5"]
    assert [(head.name, head.step) for head in heads_of_step(tmp_path, 10)] == [("a", 10)]
    assert [head.name for head in heads_of_step(tmp_path, 3)] == ["flat3"]


# -- the whole trajectory


def test_times_of_a_trajectory(tmp_path: Path) -> None:
    def seconds(*records: dict[str, Any], **told: Any) -> tuple[float | None, float | None]:
        folder = tmp_path / "a"
        shutil.rmtree(folder, ignore_errors=True)
        put(folder / FILE, lines(*records))
        if told:
            put(folder / "result.json", json.dumps(told))
        found = read_trajectory(folder)
        return found.started_at, found.seconds

    early, late = call(request_time=T, duration_ms=9000), call(request_time=T + 4, duration_ms=2000)
    assert seconds(early, late) == (T, 9.0)
    assert seconds(late, early) == (T, 9.0)
    assert seconds(early, late, started_at=T - 1, finished_at=T + 30) == (T - 1, 31.0)
    assert seconds(early, started_at=T - 1) == (T - 1, 10.0)
    assert seconds(early, finished_at=T + 30) == (T, 30.0)
    assert seconds(early, started_at=T + 60) == (T + 60, 0.0), "never negative"
    unknown = call(request_time=None)
    assert seconds(unknown) == (None, None)
    assert seconds(unknown, early) == (T, 9.0)
    assert seconds(unknown, started_at=T) == (T, None)
    assert seconds(unknown, finished_at=T) == (None, None)
    assert seconds() == (None, None)


def test_a_trajectory_of_which_nothing_is_known(tmp_path: Path) -> None:
    found = read_trajectory(tmp_path / "step_0001" / "a")
    assert msgspec.structs.replace(found, note="", step=None) == Trajectory(found.name, found.path, "a")
    assert (found.running, found.torn, found.bad_records, found.told_turns) == (True, False, 0, 0)
    assert found.note == "its directory was removed"


def test_what_a_trajectory_says_of_its_trial(tmp_path: Path) -> None:
    folder = tmp_path / "step_0007" / "fix-it-0a1b2c"
    put(folder / FILE, lines(call(calls=1), call(replica="http://b:1"), call(replica=None), call()))
    found = read_trajectory(folder)
    assert (found.name, found.path, found.task, found.step) == ("fix-it-0a1b2c", str(folder), "fix-it", 7)
    assert (found.running, found.source, found.note, found.torn, found.bad_records) == (
        True,
        FILE,
        "",
        False,
        0,
    )
    assert found.replicas == ("http://a:1", "http://b:1") and "moved_replica" in found.flags
    assert (found.tool_calls, found.completion_tokens, found.told_turns) == (1, 16, 0)
    assert (found.model, found.policy_version, found.ended_by, found.exception) == (None,) * 4
    put(folder / "config.json", '{"task": {"path": "tasks/x"}, "step": 1}')
    assert (read_trajectory(folder).task, read_trajectory(folder).step) == ("tasks/x", 7)
    put(folder / "config.json", '{"task": {"name": "n", "path": "tasks/x"}}')
    assert read_trajectory(folder).task == "n"
    told = {
        "task_name": "told",
        "policy_version": 0,
        "ended_by": "agent",
        "turns": 9,
        "exception_info": {"exception_type": "ValueError", "exception_message": "why"},
    }
    put(folder / "result.json", json.dumps(told))
    found = read_trajectory(folder)
    assert (found.task, found.running, found.policy_version, found.ended_by) == ("told", False, 0, "agent")
    assert (found.told_turns, found.exception) == (9, "ValueError: why")
    for info, text in (
        ({"exception_type": "A"}, "A"),
        ({"exception_message": "m"}, "m"),
        ({}, None),
        ("x", None),
    ):
        put(
            folder / "result.json",
            json.dumps({"exception_info": info, "policy_version": True, "ended_by": 3}),
        )
        found = read_trajectory(folder)
        assert (found.exception, found.policy_version, found.ended_by) == (text, None, None)


@pytest.mark.parametrize(
    ("folder", "config", "told", "step"),
    [
        ("step_0007", 1, 2, 7),
        ("step_x", 1, 2, 1),
        ("0007", None, 2, 2),
        ("trials", 0, 2, 0),
        ("trials", True, "2", None),
        ("trials", None, None, None),
    ],
)
def test_the_step_of_a_trajectory(
    tmp_path: Path, folder: str, config: Any, told: Any, step: int | None
) -> None:
    put(tmp_path / folder / "a" / "config.json", json.dumps({"step": config}))
    put(tmp_path / folder / "a" / "result.json", json.dumps({"step": told}))
    assert read_trajectory(tmp_path / folder / "a").step == step


@pytest.mark.parametrize(
    ("result", "json_file", "text", "rewards"),
    [
        ({"rewards": {"a": 1, "b": True, "c": "1", "d": 0.5}}, '{"e": 1}', "9", {"a": 1.0, "d": 0.5}),
        ({"rewards": {}}, '{"e": 1}', "9", {"reward": 9.0}),
        ({"rewards": [1]}, '{"e": 1}', "9", {"e": 1.0}),
        (None, '{"e": NaN, "f": Infinity}', "9", {"reward": 9.0}),
        (3, "[1]", "9", {"reward": 9.0}),
        (None, None, "x", {}),
        (None, None, "", {}),
        (None, None, "0." + "1" * 70, {"reward": float("0." + "1" * 62)}),
        (None, None, None, {}),
    ],
)
def test_rewards_of_a_trajectory(
    tmp_path: Path, result: Any, json_file: str | None, text: str | None, rewards: dict[str, float]
) -> None:
    put(tmp_path / "result.json", json.dumps({"verifier_result": result}))
    if json_file is not None:
        put(tmp_path / "verifier" / "reward.json", json_file)
    if text is not None:
        put(tmp_path / "verifier" / "reward.txt", text)
    assert read_trajectory(tmp_path).rewards == rewards


def test_the_trials_own_records_come_before_those_of_the_agents_folder(tmp_path: Path) -> None:
    put(tmp_path / "agent" / FILE, lines(call(), call()))
    reader = TrajectoryReader(tmp_path)
    found = reader.read()
    assert (len(found.turns), found.source, found.files) == (2, f"agent/{FILE}", ())
    put(tmp_path / FILE, lines(call(), call(), call()))
    found = reader.read()
    assert (len(found.turns), found.source) == (3, FILE)
    assert [file.name for file in found.files] == [f"agent/{FILE}"]
    (tmp_path / FILE).unlink()
    assert len(reader.read().turns) == 2
    shutil.rmtree(tmp_path / "agent")
    (tmp_path / "agent").write_text("a file")
    found = reader.read()
    assert (found.turns, found.source, found.note) == ((), None, "")
    put(tmp_path / FILE, lines(call()))
    assert len(reader.read().turns) == 1


def test_a_trajectory_is_the_same_object_until_it_changes(tmp_path: Path) -> None:
    put(tmp_path / FILE, lines(call()))
    reader = TrajectoryReader(tmp_path)
    first = reader.read()
    assert reader.read() is first
    put(tmp_path / FILE, lines(call(), call()))
    second = reader.read()
    assert (len(first.turns), len(second.turns)) == (1, 2) and reader.read() is second
    put(tmp_path / FILE, lines(call()))
    assert len(reader.read().turns) == 1, "written anew and shorter"
    (tmp_path / "new").write_text(lines(call(), call(), call()))
    os.replace(tmp_path / "new", tmp_path / FILE)
    assert len(reader.read().turns) == 3, "another file in its place"


@pytest.mark.parametrize(
    ("rest", "closed", "turns", "torn"),
    [
        (json.dumps(call()), False, 1, False),
        (json.dumps(call()), True, 2, False),
        (json.dumps(call())[:-9], False, 1, False),
        (json.dumps(call())[:-9], True, 1, True),
    ],
)
def test_the_last_record_without_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str, closed: bool, turns: int, torn: bool
) -> None:
    put(tmp_path / FILE, lines(call()) + "garbage\n" + rest, T)
    put(tmp_path / "result.json", "{}", T)
    monkeypatch.setattr(reading.time, "time", lambda: T + (5.25 if closed else 5.0))
    reader = TrajectoryReader(tmp_path)
    found = reader.read()
    assert (len(found.turns), found.torn, found.bad_records) == (turns, torn, 1)
    assert reader.read() == found
    # The rest of the record may still come.
    put(tmp_path / FILE, lines(call()) + "garbage\n" + lines(call()), T + 1)
    found = reader.read()
    assert (len(found.turns), found.torn, found.bad_records) == (2, False, 1)
    (tmp_path / "result.json").unlink()
    put(tmp_path / FILE, lines(call(), call()) + rest, T)
    assert len(TrajectoryReader(tmp_path).read().turns) == 2, "without a result it is still being written"


def test_a_record_that_is_too_long_is_one_bad_record_per_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(lines(call()))
    monkeypatch.setattr(reading, "MAX_LINE", size)
    put(tmp_path / FILE, lines(call()) + "x" * (size + 5) + "\n" + lines(call()))
    found = TrajectoryReader(tmp_path).read()
    assert (len(found.turns), found.turns[1].offset, found.torn) == (2, size + size + 6, False)
    assert found.bad_records == 1, "the rest of it is a line of its own"


def test_a_document_is_read_again_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "proxy_trajectory.json"
    put(path, json.dumps({"messages": [{"role": "assistant", "content": "Hi."}]}), T)
    read: list[Path] = []
    real: Callable[..., bytes | None] = reading._bytes
    monkeypatch.setattr(reading, "_bytes", lambda p, *more: read.append(p) or real(p, *more))
    reader = TrajectoryReader(tmp_path)
    found = reader.read()
    assert (len(found.turns), found.source, found.running) == (1, path.name, True)
    assert found.flags == ("zero_tool_calls",), "it is written at the end"
    assert reader.read() is found and read.count(path) == 1
    put(path, json.dumps({"messages": [{"role": "assistant", "content": "Oh."}]}), T + 1)
    assert reader.read().turns[0].written == "Oh." and read.count(path) == 2
    put(path, json.dumps({"messages": [{"role": "assistant", "content": "Oh, oh."}]}), T + 1)
    assert reader.read().turns[0].written == "Oh, oh."
    put(path, "{")
    assert "unknown shape" in reader.read().note
    put(tmp_path / FILE, lines(call()))
    found = reader.read()
    assert (len(found.turns), found.source, found.note) == (1, FILE, "")


def test_a_records_bytes_are_shown_from_the_file_that_was_read(tmp_path: Path) -> None:
    put(tmp_path / "agent" / FILE, lines(call(), call(calls=1)))
    reader = TrajectoryReader(tmp_path)
    turns = reader.read().turns
    assert json.loads(reader.raw_record(turns[1])) == call(calls=1)
    text = json.dumps(call(calls=1))
    assert reader.raw_record(turns[1], most=7) == text[:7]
    put(tmp_path / FILE, "{}")
    other = TrajectoryReader(tmp_path)
    assert other.raw_record(turns[0]) == "{}", "nothing was read yet"


def test_the_rest_of_a_records_file_is_read_where_a_turn_has_no_size(tmp_path: Path) -> None:
    put(tmp_path / "proxy_trajectory.json", json.dumps({"messages": [{"role": "assistant"}]}))
    reader = TrajectoryReader(tmp_path)
    (turn,) = reader.read().turns
    assert json.loads(reader.raw_record(turn)) == {"messages": [{"role": "assistant"}]}
    assert reader.raw_record(turn, most=5) == '{"mes'
