"""Trials on disk: layouts, both trajectory shapes, flags, growth, and what must not be read again."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from liverl.model import TrialHead
from liverl.observe.trials import scanner as trials_module
from liverl.observe.trials import tallies
from liverl.observe.trials.records import (
    parse_config,
    parse_proxy_trajectory,
    parse_result,
    parse_reward,
    parse_turn,
)
from liverl.observe.trials.scanner import TrialScanner
from liverl.observe.trials.trial import SETTLE

CALL = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"response_body": "x"}'}}


def record(*, calls: int = 0, finish: str | None = "stop", **other: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "ü", "tool_calls": [CALL] * calls or None}
    return {
        "session_id": "s",
        "success": True,
        "request_time": 1_795_220_000_000.0,
        "timestamp": "2026-11-21T00:13:21Z",
        "duration_ms": 1000,
        "request_body": {
            "messages": [{"role": "user", "content": 'say "response_body": {'}],
            "tools": [{"name": "bash"}],
        },
        "response_body": {"choices": [{"index": 0, "finish_reason": finish, "message": message}]},
        "usage": {"prompt_tokens": 9, "completion_tokens": 4},
        "replica": "http://127.0.0.1:4001",
        **other,
    }


FAILED = record(success=False, response_body=None, usage=None, replica=None) | {
    "failure": {"status_code": 500, "deployment": {"api_base": "http://127.0.0.1:4002"}}
}


class Run:
    """A run directory that is written as proxy and trainer write it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scanner = TrialScanner(root)
        self.now = time.time()

    def trial(self, path: str) -> Path:
        folder = self.root / "trials" / path
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def call(self, path: str, *records: dict[str, Any], sub: str = "") -> None:
        folder = self.trial(path) / sub
        folder.mkdir(exist_ok=True)
        with (folder / "litellm-trajectory.jsonl").open("a") as file:
            file.writelines(json.dumps(r) + "\n" for r in records)

    def result(self, path: str, reward: float | None = 1.0, **other: Any) -> None:
        verdict = None if reward is None else {"rewards": {"reward": reward}}
        text = json.dumps(
            {"task_name": "fix-it", "verifier_result": verdict, "exception_info": None, **other}
        )
        (self.trial(path) / "result.json").write_text(text)

    def heads(self, later: float = 0.0) -> dict[str, TrialHead]:
        return {head.name: head for head in self.scanner.scan(now=self.now + later).newest}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_result_before_its_records(run: Run) -> None:
    run.result("step_0001/a", turns=3)
    run.result("step_0001/b", turns=True)
    heads = run.heads()
    assert (heads["a"].turns, heads["b"].turns) == (3, 0)
    assert heads["a"].flags == ()
    run.call("step_0001/a", *[record(calls=1)] * 4)
    assert run.heads(1.0)["a"].turns == 4, "what was recorded, where it is more"


def test_no_trials_yet(run: Run) -> None:
    assert run.scanner.scan().total == 0


def test_head_of_a_finished_trial(run: Run) -> None:
    run.trial("step_0003/fix-it-0a1b2c3d")
    run.call("step_0003/fix-it-0a1b2c3d", record(calls=2, finish="tool_calls"), record())
    run.result("step_0003/fix-it-0a1b2c3d", 0.5)
    head = run.heads()["fix-it-0a1b2c3d"]
    assert (head.step, head.task, head.state) == (3, "fix-it", "finished")
    assert (head.turns, head.tool_calls, head.completion_tokens) == (2, 2, 8)
    assert (head.reward, head.finish_reason, head.replica) == (0.5, "stop", "http://127.0.0.1:4001")
    assert head.started_at == 1_795_220_000.0
    assert head.flags == ()
    assert head.path == "trials/step_0003/fix-it-0a1b2c3d"
    status = run.scanner.status
    assert (status.total, status.running, status.finished, status.zero_tool_calls) == (1, 0, 1, 0)
    assert (status.steps[0].step, status.steps[0].mean_reward) == (3, 0.5)


def test_flat_layout_agent_folder_and_what_is_skipped(run: Run) -> None:
    run.call("solo__Ab3dE6g", record(calls=1), sub="agent")
    (run.trial("solo__Ab3dE6g") / "config.json").write_text('{"step": 9, "task": {"path": "tasks/solo"}}')
    run.call("_unattributed", record(), record())
    run.trial("step_0001/_partial")
    (run.root / "trials" / "notes.txt").write_text("not a trial")
    heads = run.heads()
    assert list(heads) == ["solo__Ab3dE6g"]
    assert (heads["solo__Ab3dE6g"].step, heads["solo__Ab3dE6g"].task) == (9, "tasks/solo")
    assert run.scanner.unattributed == 2
    run.call("_unattributed", record())
    run.heads()
    assert run.scanner.unattributed == 3


def test_no_finished_turn_is_running_not_zero(run: Run) -> None:
    run.trial("step_0001/empty")
    run.call("step_0001/failing", FAILED)
    run.call("step_0001/torn")
    (run.trial("step_0001/torn") / "litellm-trajectory.jsonl").write_text(json.dumps(record())[:-5])
    heads = run.heads()
    assert {head.state for head in heads.values()} == {"running"}
    assert run.scanner.status.zero_tool_calls == 0
    assert heads["failing"].flags == ("failed_turns",)
    assert heads["torn"].turns == 0
    assert run.scanner.bad_lines == 0, "a torn last line is no bad line while the trial runs"


def test_a_call_that_its_client_left_is_a_failure_only_if_the_trial_went_on(run: Run) -> None:
    """A run that is stopped cuts its trials off in the middle of a call."""
    left = FAILED | {"failure": {"status_code": 499, "error_type": "client_disconnected"}}
    for name in ("cut", "ended"):
        run.call(f"step_0001/{name}", record(calls=1, finish="tool_calls"), left)
    run.call("step_0001/retried", left, record(calls=1, finish="tool_calls"))
    run.call("step_0001/failed", FAILED, left)
    run.result("step_0001/ended")
    flags = {name: head.flags for name, head in run.heads().items()}
    assert flags.pop("cut") == ()
    assert flags == dict.fromkeys(("ended", "retried", "failed"), ("failed_turns",))


def test_zero_tool_calls_at_once_when_the_agent_stopped(run: Run) -> None:
    run.call("step_0001/silent", record(finish="stop"))
    run.call("step_0001/cut", record(finish="length"))
    run.call("step_0001/works", record(calls=1, finish="tool_calls"), record(finish="stop"))
    heads = run.heads()
    assert heads["silent"].flags == ("zero_tool_calls",) and heads["silent"].state == "running"
    assert heads["cut"].flags == () and heads["works"].flags == ()
    run.result("step_0001/cut", 0.0)
    assert run.heads(1.0)["cut"].flags == ("zero_tool_calls",)
    assert run.scanner.status.zero_tool_calls == 2


@pytest.mark.parametrize(
    ("message", "writes"),
    [
        ({"content": "<function=bash>"}, "Qwen3-Coder XML"),
        ({"content": 'so: <tool_call>{"name": "x"}'}, "Hermes JSON"),
        ({"content": None, "reasoning_content": "<function=bash>"}, "Qwen3-Coder XML"),
        ({"content": [{"type": "text", "text": "[TOOL_CALLS]"}]}, "Mistral"),
        ({"content": "I am done."}, None),
        ({"content": "[broken"}, None),
    ],
)
def test_the_format_that_the_parser_did_not_read(
    run: Run, message: dict[str, Any], writes: str | None
) -> None:
    body = {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", **message}}]}
    text = record(finish="stop") | {"response_body": body}
    run.call("step_0001/silent", text, record(finish="stop"))
    run.call("step_0001/works", text, record(calls=1, finish="tool_calls"))
    heads = run.heads()
    assert heads["silent"].writes == writes
    assert heads["works"].writes is None, "it has called a tool"


def test_the_exact_format_counts_more_than_its_mark(run: Run) -> None:
    def says(text: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        return record(finish="stop") | {"response_body": {"choices": [{"message": message}]}}

    run.call("step_0001/silent", says("<tool_call>"), says("<function=bash>"), says("[TOOL_CALLS]"))
    assert run.heads()["silent"].writes == "Qwen3-Coder XML"


def test_the_format_in_a_trajectory_of_the_proxy(run: Run) -> None:
    messages = [{"role": "user", "content": "<arg_key>"}, {"role": "assistant", "content": "<function=bash>"}]
    (run.trial("step_0001/silent") / "proxy_trajectory.json").write_text(json.dumps({"messages": messages}))
    assert run.heads()["silent"].writes == "Qwen3-Coder XML"


def test_anthropic_responses(run: Run) -> None:
    blocks = [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "t", "name": "bash", "input": {}}]
    body = {"type": "message", "content": blocks, "stop_reason": "tool_use", "usage": {"output_tokens": 6}}
    run.call("step_0001/a", record(response_body=body, usage=None))
    run.call("step_0001/b", record(response_body=body | {"content": blocks[:1], "stop_reason": "end_turn"}))
    heads = run.heads()
    assert (heads["a"].tool_calls, heads["a"].finish_reason, heads["a"].completion_tokens) == (
        1,
        "tool_use",
        6,
    )
    assert heads["b"].flags == ("zero_tool_calls",)


def test_a_response_that_was_not_recorded_is_no_evidence(run: Run) -> None:
    run.call("step_0001/a", record(response_body=None))
    run.result("step_0001/a")
    head = run.heads()["a"]
    assert head.turns == 1 and head.flags == ("not_recorded",)


def test_moved_replica(run: Run) -> None:
    run.call("step_0001/named", record(calls=1, moved_from="http://127.0.0.1:4000"))
    run.call("step_0001/seen", record(calls=1), record(calls=1, replica="http://127.0.0.1:4002"))
    assert all(head.flags == ("moved_replica",) for head in run.heads().values())


def test_only_appended_bytes_are_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets: list[int] = []
    real = os.preadv

    def counting(fd: int, buffers: Any, offset: int) -> int:
        offsets.append(offset)
        return real(fd, buffers, offset)

    monkeypatch.setattr(trials_module.os, "preadv", counting)
    run.call("step_0001/a", record(calls=1))
    assert run.heads()["a"].turns == 1
    size = (run.root / "trials/step_0001/a/litellm-trajectory.jsonl").stat().st_size
    run.heads(1.0)
    run.call("step_0001/a", record(calls=1))
    assert run.heads(2.0)["a"].turns == 2
    assert offsets == [0, size]


def test_a_finished_trial_is_not_read_again(run: Run) -> None:
    run.call("step_0001/a", record(calls=1))
    run.result("step_0001/a")
    assert run.heads()["a"].turns == 1
    run.call("step_0001/a", record(calls=1))
    assert run.heads(1.0)["a"].turns == 2, "the last call may be written after the result"
    run.heads(2 * SETTLE)
    run.heads(4 * SETTLE)
    run.call("step_0001/a", record(calls=1))
    assert run.heads(60.0)["a"].turns == 2
    assert run.scanner.status.total == 1


def test_the_same_status_while_nothing_changes(run: Run) -> None:
    run.call("step_0001/a", record(calls=1))
    first = run.scanner.scan(now=run.now)
    assert run.scanner.scan(now=run.now + 1) is first


def test_a_trial_that_does_not_move_is_asked_less_often(run: Run) -> None:
    run.call("step_0001/a", record(calls=1))
    run.heads(300.0)
    run.call("step_0001/a", record(calls=1))
    assert run.heads(310.0)["a"].turns == 1
    assert run.heads(331.0)["a"].turns == 2


def test_the_last_scan_leaves_out_no_trial_that_is_not_due(run: Run) -> None:
    run.call("step_0001/a", record(calls=1))
    run.heads(300.0)
    run.call("step_0001/a", record(calls=1))
    (head,) = run.scanner.scan(now=run.now + 301.0, last=True).newest
    assert head.turns == 2


def test_new_trials_in_old_and_new_steps_are_found(run: Run) -> None:
    for step in range(1, 12):
        run.trial(f"step_{step:04d}/first")
    run.heads()
    run.trial("step_0001/late")
    run.trial("step_0011/late")
    for later in range(1, 5):
        run.heads(later)
    assert {head.step for head in run.heads(5.0).values() if head.name == "late"} <= {1, 11}
    assert run.scanner.status.total == 13


def test_a_removed_trial_is_forgotten(run: Run) -> None:
    folder = run.trial("step_0001/a")
    assert run.heads()
    folder.rmdir()
    assert not run.heads(1.0)


def test_bad_lines_and_bad_results_are_counted(run: Run) -> None:
    run.call("step_0001/a", record(calls=1))
    with (run.root / "trials/step_0001/a/litellm-trajectory.jsonl").open("a") as file:
        file.write('garbage\n\n{"success": "yes"}\n')
    (run.trial("step_0001/a") / "result.json").write_text('{"task_na')
    assert run.heads()["a"].state == "running", "it may still be being written"
    assert run.heads(2 * SETTLE)["a"].state == "finished"
    assert run.scanner.bad_lines == 3


def test_reward_from_text(run: Run) -> None:
    run.call("step_0001/a", record())
    (run.trial("step_0001/a/verifier") / "reward.txt").write_text("0.25\n")
    run.result("step_0001/a", None)
    assert run.heads()["a"].reward == 0.25


def test_proxy_trajectory_with_messages_and_with_tokens(run: Run) -> None:
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "ok"},
        {"role": "assistant", "content": "done"},
    ]
    (run.trial("step_0001/both") / "proxy_trajectory.json").write_text(
        json.dumps({"messages_snapshot": messages})
    )
    silent = json.dumps({"session_id": "s", "messages_snapshot": messages[:1] + messages[3:]})
    (run.trial("step_0001/silent") / "proxy_trajectory.json").write_text(silent)
    tokens = {
        "traj_acc_ids": [1] * 9,
        "initial_prompt_token_len": 2,
        "traj_response_mask": [1, 1, 0, 0, 1, 1, 1],
    }
    (run.trial("step_0001/tokens") / "proxy_trajectory.json").write_text(json.dumps(tokens))
    heads = run.heads()
    assert (heads["both"].turns, heads["both"].tool_calls, heads["both"].flags) == (2, 1, ())
    assert heads["silent"].flags == ("zero_tool_calls",)
    assert (heads["tokens"].turns, heads["tokens"].completion_tokens, heads["tokens"].flags) == (2, 5, ())


def test_long_lines_and_many_of_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials_module, "_PER_TRIAL", 1 << 20)
    long = record(calls=1, request_body={"messages": ["x" * (3 << 20)]})
    run.call("step_0001/a", long, record(calls=1), long)
    later = 0.0
    while run.heads(later)["a"].turns < 3 and later < 10:
        later += 1.0
    assert run.heads(later)["a"].turns == 3
    assert run.scanner.bad_lines == 0


def test_the_last_record_needs_no_newline(run: Run) -> None:
    run.call("step_0001/a", record(calls=1))
    with (run.root / "trials/step_0001/a/litellm-trajectory.jsonl").open("a") as file:
        file.write(json.dumps(record(calls=1)))
    run.result("step_0001/a")
    for later in (0.0, 2 * SETTLE, 5 * SETTLE):
        heads = run.heads(later)
    assert heads["a"].turns == 2


def test_without_time_nothing_is_lost(run: Run) -> None:
    for number in range(20):
        run.call(f"step_0001/t{number}", record(calls=1))
    run.scanner.scan(budget=-1.0, now=run.now)
    assert run.scanner.status.total == 0
    run.heads()
    assert run.scanner.status.total == 20 and run.scanner.unread == 0


def test_newest_heads_and_steps_are_capped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials_module, "NEWEST", 5)
    monkeypatch.setattr(tallies, "STEPS", 2)
    for step in range(1, 5):
        for number in range(3):
            path = f"step_{step:04d}/s{step}t{number}"
            run.call(path, record(calls=number, request_time=1.79e12 + 1000 * step))
            run.result(path, float(number))
    run.heads()
    run.heads(3 * SETTLE)
    status = run.scanner.scan(now=run.now + 60)
    assert (status.total, status.finished, status.zero_tool_calls) == (12, 12, 4)
    assert [head.step for head in status.newest] == [4, 4, 4, 3, 3]
    assert [(s.step, s.total, s.mean_reward, s.zero_tool_calls) for s in status.steps] == [
        (4, 3, 1.0, 1),
        (3, 3, 1.0, 1),
    ]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=8)
    | st.sampled_from(["response_body", "success"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["request_body", "response_body", "success", "choices", "message", "tool_calls", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(
        st.sampled_from(["request_body", "response_body", "success", "replica", "usage", "x"]), JSON
    )
)
@example({"request_body": None, "replica": "r", "response_body": None})
def test_the_order_and_the_spaces_of_a_record_change_no_answer(fields: dict[str, Any]) -> None:
    fields = {**fields, "success": True}
    compact = json.dumps(fields).encode()
    spaced = json.dumps(dict(reversed(fields.items())), separators=(" , ", " : ")).encode()
    assert parse_turn(compact) == parse_turn(spaced)


@pytest.mark.parametrize("request_body", [b"[" * 5000 + b"]" * 5000, b'"\xff"', b"{,}"])
def test_a_request_that_cannot_be_decoded_is_passed_over(request_body: bytes) -> None:
    rest = (
        b'"response_body":{"choices":[{"finish_reason":"stop","message":{"content":"hi"}}]},"success":true}'
    )
    turn = parse_turn(b'{"replica":"r","request_body":' + request_body + b"," + rest)
    assert turn is not None and (turn.finish_reason, turn.replica) == ("stop", "r")
    assert parse_turn(b'{"x":{"request_body":' + request_body + b"," + rest + b"}") is None


@given(st.binary(max_size=300))
def test_any_file_is_survived(data: bytes) -> None:
    parse_turn(data)
    parse_turn(b'{"success":true,"request_body":' + data + b',"response_body":' + data + b"}")
    parse_proxy_trajectory(data)
    parse_result(data)
    parse_config(data)
    parse_reward(data)


@given(JSON)
def test_any_document_is_survived(value: Any) -> None:
    data = json.dumps(value).encode()
    parse_turn(data)
    parse_proxy_trajectory(data)
    parse_result(json.dumps({"verifier_result": value, "started_at": value, "step": value}).encode())
    parse_config(json.dumps({"task": value}).encode())
