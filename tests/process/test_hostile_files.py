"""Files in a run's directory that somebody has replaced: nothing freezes, each is named, and the run can be stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

TRAJECTORY = "litellm-trajectory.jsonl"
TURN = {
    "success": True,
    "response_body": {
        "choices": [{"message": {"role": "assistant", "tool_calls": [{}]}, "finish_reason": "stop"}]
    },
}
DEEP = b'{"success": true, "response_body": {"content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}\n"


@pytest.fixture
def run(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    return ending(make_run(tmp_path, [toy("steady", "sleep")]))


def trial(run: ToyRun, name: str, *, finished: bool = True) -> Path:
    folder = run.run_dir / "trials" / "step_0001" / name
    folder.mkdir(parents=True)
    (folder / TRAJECTORY).write_text(json.dumps(TURN) + "\n")
    if finished:
        (folder / "result.json").write_text(json.dumps({"verifier_result": {"rewards": {"reward": 1.0}}}))
    return folder


def unreadable(run: ToyRun) -> dict[str, str]:
    return {file.path: file.why for file in run.snapshot().unreadable}


def test_a_fifo_as_a_result_freezes_no_other_trial_and_no_stop(run: ToyRun) -> None:
    bad = trial(run, "bad", finished=False)
    os.mkfifo(bad / "result.json")
    trial(run, "good")
    run.start()
    run.until("steady", "ready")
    wait_until(lambda: run.snapshot().trials.finished == 1, 60)
    path = "trials/step_0001/bad/result.json"
    wait_until(lambda: path in unreadable(run), 60)
    assert unreadable(run)[path] == "not a regular file but a FIFO"
    wait_until(
        lambda: [s for s in run.snapshot().symptoms if s.id == "file_unreadable"], 60, "it is an alert"
    )
    trial(run, "later")
    wait_until(lambda: run.snapshot().trials.finished == 2, 60)
    run.command("stop")
    assert run.result().state == "stopped"


def test_a_line_nested_deeply_and_a_link_out_of_the_run_hide_nothing_else(run: ToyRun) -> None:
    deep = trial(run, "deep")
    with (deep / TRAJECTORY).open("ab") as file:
        file.write(DEEP)
    outer = trial(run, "outer", finished=False)
    (outer / "result.json").symlink_to("/etc/hostname")
    trial(run, "good")
    run.start()
    run.until("steady", "ready")
    wait_until(lambda: run.snapshot().trials.finished == 2, 60)
    path = "trials/step_0001/outer/result.json"
    wait_until(lambda: path in unreadable(run), 60)
    assert unreadable(run)[path].startswith("a link to /etc/hostname, which is outside of")


def test_a_log_replaced_by_a_fifo_is_named_and_the_run_goes_on(run: ToyRun) -> None:
    run.start()
    run.until("steady", "ready")
    logs = run.run_dir / "attempt_001" / "logs"
    for log in logs.glob("steady.*.log"):
        log.unlink()
        os.mkfifo(log)
    (run.run_dir / "metrics.jsonl").unlink(missing_ok=True)
    os.mkfifo(run.run_dir / "metrics.jsonl")
    wait_until(lambda: "metrics.jsonl" in unreadable(run), 60)
    assert run.command("restart", service="steady")["generation"] == 2
    run.until("steady", lambda s: s.generation == 2 and s.state == "ready")
    run.command("stop")
    assert run.result().state == "stopped"


def test_an_adopting_backend_does_not_hang_at_a_fifo_either(run: ToyRun) -> None:
    run.start()
    first = run.until("steady", "ready").pid
    bad = trial(run, "bad", finished=False)
    os.mkfifo(bad / "result.json")
    os.mkfifo(bad / "config.json")
    run.kill_backend()
    run.start()
    assert run.until("steady", "ready").pid == first
    wait_until(lambda: len(unreadable(run)) == 2, 60)
    run.command("stop", now=True)
    assert run.result().state == "stopped"
