"""What else must not follow the system's clock when it is set: trials that are looked at, replicas of trials, ages of
alerts, ended sessions. The clocks are simulated."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from kit.runs import make_run, toy
from kit.screens import NOW, snapshot
from kit.trial_folders import FILE, T, call, lines, put

from liverl.daemon.run_supervisor import RunSupervisor
from liverl.diagnose.tracker import Diagnosis, Rule, RunContext, words
from liverl.model import Symptom
from liverl.observe.trials.scanner import TrialScanner
from liverl.plan.spec import Plan
from liverl.proxy.runtime.assignments import FORGET_AFTER, Assignments
from liverl.sessions.counters import Counters
from liverl.sessions.finished import KEPT_S, Ended, FinishedSessions
from liverl.util import clocks
from liverl.util.clocks import Moment

DAY = 86_400.0


@pytest.mark.parametrize("jump", [-5 * DAY, -3600.0, 5 * DAY])
def test_trials_are_read_on_after_the_clock_was_set(tmp_path: Path, jump: float) -> None:
    """Set back, they would have been due again in five days."""
    trial = tmp_path / "trials" / "step_0001" / "t-1"
    put(trial / FILE, lines(call()), T - 1000)
    scanner = TrialScanner(tmp_path)
    for seconds in (0.0, 1.0):
        scanner.scan(now=T + seconds)
    assert [head.turns for head in scanner.status.newest] == [1]
    put(trial / FILE, lines(call(), call()), T + jump + 40)
    scanner.scan(now=T + jump + 41)
    assert [head.turns for head in scanner.status.newest] == [2]


@pytest.mark.parametrize("jump", [5 * DAY, -5 * DAY])
def test_a_new_proxy_knows_the_replicas_of_trials_after_the_clock_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    wall = time.time
    old = Assignments(tmp_path / "a.jsonl", 1)
    old.settle("t", lambda _: "http://a")
    monkeypatch.setattr(time, "time", lambda: wall() + jump)
    new = Assignments(tmp_path / "a.jsonl", 2)
    assert new.get("t") == "http://a" and new.live() == {"http://a": 1}
    # Of an earlier version there is only the system's time.
    line = f'{{"trial": "x", "replica": "http://b", "at": {wall()}}}\n'
    (tmp_path / "b.jsonl").write_text(line)
    expected = None if jump > FORGET_AFTER else "http://b"
    assert Assignments(tmp_path / "b.jsonl", 1).get("x") == expected


def test_an_alert_is_not_older_than_its_attempt() -> None:
    """Its beginning was the stamp of a file that was written before the clock was set: "resolved after 2880m05s"."""
    found = Symptom("bad", "warning", "it is bad", "so", "mend it", since=NOW - 2 * DAY)
    diagnosis = Diagnosis([Rule(lambda _: iter((found,)), alerts={"bad": ""})])
    now = snapshot(at=NOW, started_at=NOW - 60.0)
    (news,) = diagnosis.update(now, RunContext())
    assert news.symptom.since == NOW - 60.0
    assert words(news._replace(what="cleared"), NOW + 5.0)[0].startswith("resolved after 1m05s")


def test_ended_sessions_are_kept_for_a_day_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = time.time
    sessions = FinishedSessions(tmp_path, most=2)
    sessions.read()
    now = clocks.moment()
    sessions.add(Ended("t-0", "k", "/t", Counters(), "", now.wall, now))
    monkeypatch.setattr(time, "time", lambda: wall() + 5 * DAY)
    for number in range(1, 5):
        at = clocks.moment()
        sessions.add(Ended(f"t-{number}", "k", "/t", Counters(), "", at.wall, at))
    assert [each for each in range(5) if sessions.get(f"t-{each}")] == [3, 4], (
        "the newest, as many as are kept"
    )
    fresh = FinishedSessions(tmp_path, most=10)
    fresh.read()
    one = fresh.get("t-4")
    assert one is not None and one.age < KEPT_S
    assert Ended("old", "k", "/t", Counters(), "", wall()).age > KEPT_S, "of an earlier version: by the clock"
    assert Ended("unknown", "k", "/t", Counters()).age == 0.0


async def test_a_backend_goes_on_from_the_times_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, [toy("a", "sleep")])
    plan = msgspec.json.decode((run.run_dir / "plan.json").read_bytes(), type=Plan)
    wall, began = time.time, clocks.moment()
    monkeypatch.setattr(time, "time", lambda: wall() + 5 * DAY)
    adopted = RunSupervisor(plan, run.run_dir, 1, 1.0, goes_on=Moment(began.wall, began.ran))
    try:
        assert 0.0 <= adopted.now() - began.wall < 60.0, "not five days"
    finally:
        adopted.records.close()
    fresh = RunSupervisor(plan, run.run_dir, 2, 1.0)
    try:
        assert abs(fresh.now() - time.time()) < 60.0, "a new attempt begins with the clock as it is"
    finally:
        fresh.records.close()
