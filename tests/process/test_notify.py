"""Notifications of a real backend to a real webhook and a real program: each event once, also where backends are
killed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.injected import begins_with
from kit.processes import command_lines
from kit.receivers import TOKEN, Hook, keeper_of, kept, webhook
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.plan.spec import NotifyPlan, NotifyTarget, RestartPolicy, StopStage
from liverl.procs import procfs

ALL = ("failed", "stalled", "alert", "done", "stopped", "resumed")
# It ignores TERM, so that the run is stopping for as long as the test needs, and the next stage is not due before.
SLOW = (StopStage("TERM", "leader", 600.0), StopStage("KILL", "tree", 5.0))
# A message waits for others about the same for as long as this backend lives.
HOLDS = "from liverl.notify import inbox; inbox.HOLD_S = 3600.0"


@pytest.fixture
def hook() -> Iterator[Hook]:
    with webhook() as hook:
        yield hook


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Callable[..., ToyRun]:
    def made(*targets: NotifyTarget, code: int = 1, deaf: bool = False, timeout: float = 60.0) -> ToyRun:
        trainer = toy(
            "trainer",
            *("exit-when", str(code), "go"),
            kind="trainer",
            ends_run=True,
            restart=RestartPolicy(mode="never"),
        )
        services = [trainer, toy("other", "deaf-until", "over", stop=SLOW)] if deaf else [trainer]
        notify = NotifyPlan(targets, ALL, timeout=timeout)
        return ending(make_run(tmp_path, services, notify=notify))

    return made


def go(run: ToyRun) -> None:
    run.until("trainer", "ready")
    (run.run_dir / "go").touch()


def words_of(run: ToyRun, kind: str) -> list[str]:
    return [event.text for event in run.events() if event.kind == kind]


def test_each_event_is_told_once_although_backends_are_killed(
    make: Callable[..., ToyRun], hook: Hook, tmp_path: Path
) -> None:
    got = tmp_path / "got.jsonl"
    run = make(hook.target(tmp_path), keeper_of(got), deaf=True)
    run.start(env=begins_with(tmp_path / "site", HOLDS))
    run.until("other", "ready")
    go(run)
    wait_until(lambda: any(e.kind == "run_failed" for e in run.events()), what="the failure")
    run.kill_backend()  # the message waits for others about the same
    assert hook.asked == [] and kept(got) == []
    hook.gate.clear()
    run.start()
    wait_until(lambda: hook.asked, what="a message")
    run.kill_backend()  # while the webhook has been asked and has not answered
    hook.gate.set()
    run.start()
    (run.run_dir / "over").touch()
    assert run.result().state == "failed"
    assert hook.kinds() == Counter(failed=1), hook.asked
    assert Counter(one["body"]["event"] for one in kept(got)) == Counter(failed=1)
    (body,) = hook.asked
    assert (
        kept(got) == [{"body": body, "env": ["HOME", "PATH"], "cwd": "/"}]
        or "LC_CTYPE" in kept(got)[0]["env"]
    )
    assert body["run"] == "tests/toy" and body["state"] == "failed" and body["level"] == "critical"
    assert "trainer" in body["text"] and "liverl-tui up --resume tests/toy" in body["hint"]
    assert sorted(words_of(run, "notified"))[-1].startswith("failed: sent to webhook in ")
    assert not list((run.run_dir / "notify").iterdir()), "nothing of a delivery is left"

    for name in ("go", "over"):
        (run.run_dir / name).unlink()
    run.start(resume=True)
    for name in ("trainer", "other"):
        run.until(name, "ready")
    run.command("stop")
    (run.run_dir / "over").touch()
    run.result()
    assert hook.kinds() == Counter(failed=1, resumed=1, stopped=1)
    assert Counter(one["body"]["event"] for one in kept(got)) == Counter(failed=1, resumed=1, stopped=1)
    assert len({one["id"] for one in hook.asked}) == 3


def test_the_end_of_a_run_waits_for_its_message_and_no_secret_is_written(
    make: Callable[..., ToyRun], hook: Hook, tmp_path: Path
) -> None:
    run = make(hook.target(tmp_path), code=0)
    hook.delay = 1.0
    run.start()
    go(run)
    assert run.result().state == "done"
    assert hook.kinds() == Counter(done=1)
    assert hook.asked[0]["state"] == "done" and hook.asked[0]["level"] == "info"
    for path in run.run_dir.rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path


def test_the_address_is_on_no_command_line(make: Callable[..., ToyRun], hook: Hook, tmp_path: Path) -> None:
    """While the webhook holds its answer back, the delivering process lives."""
    run = make(hook.target(tmp_path), code=0)
    hook.gate.clear()
    run.start()
    go(run)
    lines: set[str] = set()

    def seen() -> bool:
        lines.update(command_lines())
        return any("notify/sender.py" in line or "liverl.notify" in line for line in lines)

    wait_until(seen, what="the delivering process")
    wait_until(lambda: hook.asked, what="its request")
    lines |= command_lines()
    hook.gate.set()
    run.result()
    assert not [line for line in lines if TOKEN in line or f":{hook.port}" in line]
    assert hook.kinds() == Counter(done=1)


def test_who_cannot_be_told_is_tried_again_and_named_and_the_run_goes_on(
    make: Callable[..., ToyRun], hook: Hook, tmp_path: Path
) -> None:
    """At the end of the run the webhook still fails: the next attempt tells it."""
    hook.status, hook.answer = 503, f"no such hook: /hook/{TOKEN}".encode()
    program = NotifyTarget("command", words=("/bin/sh", "-c", "echo password=sk-verysecretkey1 >&2; exit 7"))
    run = make(hook.target(tmp_path), program, code=0, timeout=2.0)
    run.start()
    go(run)
    assert run.result().state == "done"
    lost = words_of(run, "not_notified")
    assert len(lost) == 2 and len(hook.asked) > 1
    assert any("HTTP 503: no such hook: ***" in text for text in lost), lost
    assert any("exit 7: password=***" in text for text in lost), lost
    assert {one["id"] for one in hook.asked} == {"tests/toy#" + hook.asked[0]["id"].partition("#")[2]}

    hook.status = 200
    before = len(hook.asked)
    (run.run_dir / "go").unlink()
    run.start(resume=True)
    wait_until(lambda: len(hook.asked) > before, what="the message of the attempt before")
    assert hook.asked[before]["event"] == "done"
    wait_until(
        lambda: any(s.id.startswith("notify_failing:") for s in run.snapshot().symptoms),
        what="an alert on the program",
    )
    (alert,) = [s for s in run.snapshot().symptoms if s.id.startswith("notify_failing:")]
    assert alert.severity == "warning" and alert.title == "notifications do not reach target 2"
    assert "exit 7" in alert.cause and "liverl-tui notify --test" in alert.fix
    run.command("stop", now=True)
    run.result()
    assert "alert" not in hook.kinds(), "nobody is notified of a notification"


def test_a_program_that_hangs_is_ended_with_all_that_it_started(
    make: Callable[..., ToyRun], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    script = f"setsid sh -c 'echo $$ >> {pids}; exec sleep 300' & echo $$ >> {pids}; sleep 300"
    run = make(NotifyTarget("command", words=("/bin/sh", "-c", script)), timeout=3.0)
    run.start()
    run.until("trainer", "ready")
    run.command("stop", now=True)  # there is time for one try
    assert run.result().state == "stopped"
    assert any("did not end in time" in text for text in words_of(run, "not_notified"))
    for pid in map(int, pids.read_text().split()):
        wait_until(
            lambda pid=pid: not procfs.alive(pid, None) or os.getpgid(pid) == os.getpgrp(),
            what=f"end of {pid}",
        )
