"""What has happened in a run since its user closed the interface."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kit.screens import NOW, event, service, snapshot
from msgspec.structs import replace

from liverl.model import Event, Result, Rewards, Snapshot
from liverl_tui.data.last_visit import Visit, news, read_visit, since_then, visit_of, write_visit
from liverl_tui.data.view import View

BEFORE = Visit("/runs/liverl/first", NOW - 720, 100, 1, 3, {"r0": 1})
LEFT = time.strftime("%H:%M", time.localtime(BEFORE.at))


def alert(seq: int, level: str = "warning") -> Event:
    return event(seq, "r0 failed", level, "r0", kind="symptom")


def now(*events: Event, **fields: Any) -> View:
    return View("live", snapshot=snapshot(**fields), events=events)


def restarts(**counts: int) -> tuple[Any, ...]:
    return tuple(service(name, "replica", restarts=count) for name, count in counts.items())


def test_steps_restarts_and_alerts_are_summed_up() -> None:
    view = now(
        alert(100), alert(101), event(102, "ready"), alert(103, "error"), services=restarts(r0=2, r1=2)
    )
    assert since_then(BEFORE, view, NOW) == (
        f"since you left at {LEFT}: 4 steps, r0 restarted, r1 restarted 2 times, 2 alerts"
    )
    assert (
        since_then(replace(BEFORE, step=6), now(alert(101)), NOW)
        == f"since you left at {LEFT}: 1 step, 1 alert"
    )


def test_the_sentence_stays_true_while_it_is_shown() -> None:
    """It is made once: an age in it ("2m ago") would be false later."""
    view = now(alert(101))
    assert since_then(BEFORE, view, NOW) == since_then(BEFORE, view, NOW + 400)
    day = time.strftime("%Y-%m-%d", time.localtime(BEFORE.at))
    assert since_then(BEFORE, view, NOW + 86_400).startswith(f"since you left at {LEFT} on {day}: ")


def test_where_nothing_has_happened_nothing_is_said() -> None:
    same = replace(BEFORE, step=7)
    quiet = now(event(101, "a poll"), alert(102, "info"), services=restarts(r0=1))
    ended = replace(quiet, link="ended")
    assert since_then(same, ended, NOW) == ""
    assert since_then(BEFORE, now(alert(101)), BEFORE.at + 29) == "", "a short absence"
    assert since_then(BEFORE, now(alert(101)), BEFORE.at + 30) != ""
    assert since_then(BEFORE, View(), NOW) == ""


def test_a_run_that_goes_on_without_news_says_so_only_if_every_event_is_known() -> None:
    same = replace(BEFORE, step=7)
    told = f"since you left at {LEFT}: no step, no alert, no restart"
    assert since_then(same, now(event(101, "a poll"), services=restarts(r0=1)), NOW) == told
    assert since_then(same, now(seq=100, services=restarts(r0=1)), NOW) == told
    assert since_then(same, now(event(102, "a poll"), services=restarts(r0=1)), NOW) == ""
    assert since_then(same, now(seq=101, services=restarts(r0=1)), NOW) == ""


def test_the_reward_and_the_end_are_told() -> None:
    before = replace(BEFORE, reward=0.25)
    over = Result("failed", 6, None, 7, NOW - 900, NOW - 300)
    view = now(rewards=Rewards(7, 0.1, 0.875, (0.875,)), result=over)
    assert news(before, view) == ["the run has failed", "4 steps", "reward 0.25 → 0.88"]
    assert news(replace(before, reward=0.8751), view)[-1] == "reward still 0.88"
    assert news(before, now(rewards=Rewards())) == ["4 steps"]
    earlier = replace(before, at=NOW - 200, step=7)
    assert news(earlier, view) == [], "it had ended before"


def test_many_restarts_and_events_that_are_not_known_any_more() -> None:
    view = now(alert(300), services=restarts(r0=3, r1=1, r2=1, r3=1))
    text = since_then(BEFORE, view, NOW)
    assert text == f"since you left at {LEFT}: 4 steps, 5 restarts of 4 services, 1 or more alerts"


def test_a_new_attempt_counts_its_own_restarts() -> None:
    view = now(attempt=2, step=3, services=restarts(r0=1))
    assert since_then(BEFORE, view, NOW) == f"since you left at {LEFT}: attempt 2 has begun, r0 restarted"


def test_a_visit_is_noted_for_its_run_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run_dir = tmp_path / "runs" / "liverl" / "first"
    state: Snapshot = snapshot(run_dir=str(run_dir), seq=7, services=restarts(r0=1, r1=0))
    assert read_visit(run_dir) is None
    write_visit(run_dir, View("live", snapshot=state, events=(event(9, "newest"),)), NOW)
    assert read_visit(run_dir) == Visit(str(run_dir), NOW, 9, 1, 7, {"r0": 1}, state.rewards.last)
    write_visit(run_dir, View("connecting"), NOW + 5)
    assert read_visit(run_dir) is not None, "what was never seen is no visit"
    assert read_visit(tmp_path / "other" / "liverl" / "first") is None, "another run of this name"
    (noted,) = (tmp_path / "state").rglob("last-visit.json")
    noted.write_text("{")
    assert read_visit(run_dir) is None
    assert not run_dir.exists()


def test_where_it_cannot_be_noted_the_interface_closes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    write_visit(tmp_path / "runs" / "a" / "b", View("live", snapshot=snapshot()), NOW)


def test_the_newest_event_of_a_visit_is_that_of_its_snapshot_or_later() -> None:
    ended = visit_of(View("live", snapshot=snapshot(seq=12), events=(event(9, "older"),)), NOW)
    assert ended is not None and ended.seq == 12
