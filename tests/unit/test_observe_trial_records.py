"""Records, results and configurations of a trial, parsed from every form of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.trial_folders import TOOL, T

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


def test_what_an_agent_asked_is_not_decoded() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    record = b'{"success":true,"request_body":%b,"response_body":{"usage":{"completion_tokens":3}}}'
    turn = parse_turn(record % deep)
    assert turn is not None and turn.completion_tokens == 3
    assert parse_turn(b'{"success":true,"request":%b}' % deep) is None


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
            ProxyTrajectory(3, 3, 2, preview="x"),
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
            TrialResult("t", 3, reward=0.5, started_at=T, turns=4, rewards={"reward": 0.5}),
        ),
        ({"task_name": {"name": "n", "path": "p"}}, TrialResult("n")),
        ({"task_name": {"name": "", "path": "p"}}, TrialResult("p")),
        ({"task_name": {"path": 3}}, TrialResult()),
        ({"task_name": "", "turns": -1, "step": 2.0}, TrialResult()),
        ({"verifier_result": {"rewards": {"tests": 2}}}, TrialResult(reward=2.0, rewards={"tests": 2.0})),
        (
            {"verifier_result": {"rewards": {"tests": 2, "style": 3}}},
            TrialResult(
                no_reward="2 rewards, none of them named reward: tests 2, style 3",
                rewards={"tests": 2.0, "style": 3.0},
            ),
        ),
        (
            {"verifier_result": {"rewards": {"tests": 2, "reward": 3}}},
            TrialResult(reward=3.0, rewards={"tests": 2.0, "reward": 3.0}),
        ),
        (
            {"verifier_result": {"rewards": {"a": 1, "b": "x", "c": True, "d": float("nan"), "reward": 0}}},
            TrialResult(reward=0.0, rewards={"a": 1.0, "reward": 0.0}),
        ),
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
