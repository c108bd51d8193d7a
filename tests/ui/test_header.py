"""The dashboard's head: run, stages, phase, alerts, news."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.screens import NOW, FakeSource, event, replica, service, settle, snapshot, view

from liverl.model import ReplicaSet, Result, Symptom
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.widgets.base.fitting import pack
from liverl_tui.widgets.header.header import Header, news_row, run_parts, stage_row, worst
from liverl_tui.widgets.log.pane import LogsPane

LISTLESS = Symptom(
    "listless", "warning", "r1 is loaded but idle", "it is not in the proxy's list", "restart the proxy"
)
TOOLLESS = Symptom(
    "toolless", "critical", "No trial calls a tool", "the parser", "set the tool-call parser", since=NOW
)


def first(shown: View, width: int = 200, readonly: bool = False) -> str:
    assert shown.snapshot is not None
    return pack(run_parts(shown, shown.snapshot, NOW, readonly), width).text


def second(width: int = 200, news: bool = False, **fields: object) -> str:
    return stage_row(snapshot(**fields), NOW, width, news).text


def booting(**fields: object) -> dict[str, object]:
    """A start whose first replica loads weights and whose second waits to be started again."""
    services = (
        service("env:litellm", "environment", pid=None, log=None, members=()),
        service("r0", "replica", "starting"),
        service("r1", "replica", "backing_off", deadline=NOW + 8),
        service("proxy", "proxy", "waiting", pid=None),
        service("trainer", "trainer", "waiting", pid=None),
    )
    first = replica(0, "starting", stage="loading weights", progress=0.43, since=NOW - 72)
    items = (first, replica(1, "backing_off", since=NOW - 2))
    return {"state": "starting", "services": services, "replicas": ReplicaSet(2, 0, 0, items), **fields}


# -- the first line


def test_a_run_under_way() -> None:
    text = first(view(step_seconds=60.0, attempt=2))
    for part in (
        "liverl/first",
        "● running",
        "live",
        "7/20 steps done",
        "ETA 13m",
        "attempt 2",
        "elapsed 2m00s",
    ):
        assert part in text
    assert "read-only" not in text
    assert "(!)" not in text


def test_a_first_attempt_and_an_unknown_pace_are_not_mentioned() -> None:
    text = first(view())
    assert "attempt" not in text
    assert "ETA" not in text


@pytest.mark.parametrize(
    ("link", "why", "text"),
    [
        ("lost", "pid 990 is gone", "✖ backend died: U restarts it; showing files"),
        ("ended", "", "○ run has ended"),
        ("connecting", "", "◌ connecting"),
        ("live", "no answer for 5 s; trying again", "▲ backend does not answer"),
    ],
)
def test_how_we_know_it(link: str, why: str, text: str) -> None:
    assert text in first(msgspec.structs.replace(view(), link=link, why=why))


def test_a_reader_is_told_so_and_not_to_restart_anything() -> None:
    text = first(msgspec.structs.replace(view(), link="lost"), readonly=True)
    assert "read-only" in text
    assert "✖ backend died; showing files" in text


def test_alerts_are_counted_and_the_worst_gives_the_look() -> None:
    assert "▲ 1 alert (!)" in first(view(symptoms=(LISTLESS,)))
    shown = view(symptoms=(LISTLESS, TOOLLESS))
    assert "✖ 2 alerts (!)" in first(shown)
    assert shown.snapshot is not None
    parts = run_parts(shown, shown.snapshot, NOW, False)
    assert ("✖ 2 alerts (!)", "alarm") in pack(parts, 200).spans
    note = Symptom("note", "info", "a note", "", "")
    assert "(!)" not in first(view(symptoms=(note,)))
    third = news_row(view(symptoms=(note,)), snapshot(symptoms=(note,)), NOW).text
    assert "a note" not in third and "event 5" in third, "a note hides no event"


def test_of_equal_alerts_the_earliest_is_named() -> None:
    """What came later may follow from it."""
    end = Symptom("service_failed:trainer", "critical", "trainer has failed", "", "mend it", since=NOW - 1)
    cause = msgspec.structs.replace(TOOLLESS, since=NOW - 30)
    for symptoms in ((end, cause), (cause, end)):
        assert worst(symptoms) is cause


def test_how_it_ended() -> None:
    result = Result("failed", 3, None, 7, NOW - 120, NOW - 30, summary="failed: trainer: CUDA out of memory")
    fields = {"state": "failed", "phase": "failed", "result": result}
    text = first(view(**fields))
    assert "✖ failed (exit code 3)" in text
    assert "elapsed 1m30s" in text
    assert second(**fields) == "✖ failed: trainer: CUDA out of memory"


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_what_matters_stays_where_the_line_is_short(width: int) -> None:
    shown = view(symptoms=(TOOLLESS,), step_seconds=60.0, attempt=3, run="some-long-project/some-longer-name")
    text = first(msgspec.structs.replace(shown, link="lost"), width)
    assert len(text) <= width
    assert "some-long-p" in text
    assert "● running" in text
    assert "U" in text
    assert re.search("✖ ?1", text)
    assert ("reward 0.51" in text) == (width > 40)


# -- the stages


def test_finished_stages_say_little_and_the_phase_stands_behind() -> None:
    text = second()
    assert text == "● environments  ● replicas 2/2  ● proxy  ● trainer  step 8/20: rollout 5/16 trials"
    assert second(80) == "● env  ● replicas 2/2  ● proxy  ● trainer  step 8/20: rollout 5/16 trials"
    assert second(44) == "● replicas 2/2  step 8/20: rollout 5/16 trials"


def test_a_start_shows_each_stage_with_its_progress_and_time() -> None:
    text = second(**booting())
    assert (
        text
        == "● environments > ↻ replicas 0/2 backing off, retry in 8s > ◌ proxy waiting > ◌ trainer waiting"
    )
    only = replica(0, "starting", stage="loading weights", progress=0.43, since=NOW - 72)
    text = second(**booting(replicas=ReplicaSet(1, 0, 0, (only,))))
    assert "> ◐ replicas 0/1 loading weights 43% 1m12s >" in text


@given(
    st.integers(10, 120), st.lists(st.sampled_from(["ready", "stopping", "starting"]), min_size=5, max_size=5)
)
def test_no_glyph_stands_without_a_word(width: int, states: list[str]) -> None:
    kinds = ("environment", "replica", "proxy", "trainer", "ray")
    services = tuple(service(k, k, s, deadline=NOW + 9) for k, s in zip(kinds, states, strict=True))
    for state in ("starting", "running", "stopping"):
        text = second(width, state=state, services=services, phase="step 84/150: rollout 0/32 trials")
        assert not re.search(r"[●◐◑]\s*([●◐◑>]|$)|^>", text[:width].rstrip("●◐◑ ") + "."), text


def test_every_state_is_read_at_80_columns() -> None:
    text = second(80, **booting())
    assert len(text) <= 80
    for part in ("replicas 0/2 ", "retry in 8s", "proxy waiting", "trainer waiting"):
        assert part in text


def test_verl_starts_its_replicas_after_its_trainer() -> None:
    services = (
        service("ray", "ray"),
        service("trainer", "trainer", "starting", stage="creating workers", since=NOW - 5),
        service("proxy", "proxy"),
    )
    text = second(topology="verl", state="starting", services=services, replicas=ReplicaSet(2, 0, 0, ()))
    assert text == "● ray > ◐ trainer creating workers 5s > ◌ replicas 0/2 missing > ● proxy"


def test_a_swap_of_the_proxy_and_a_stop_are_seen() -> None:
    services = (
        service("proxy", "proxy", retiring_pids=(1, 2)),
        service("trainer", "trainer", "stopping", deadline=NOW + 13),
    )
    text = second(services=services)
    assert "● proxy 2 draining" in text
    assert "◑ trainer stopping, forced in 13s" in text


def test_an_alert_stands_in_the_second_line_where_there_is_no_third() -> None:
    assert "✖ No trial calls a tool" in second(80, news=True, symptoms=(TOOLLESS,))
    assert "No trial" not in second(80, news=False, symptoms=(TOOLLESS,))


# -- the news


def test_the_news() -> None:
    shown = view()
    assert shown.snapshot is not None
    assert news_row(shown, shown.snapshot, NOW).text == "• 1m ago  event 5"
    events = (*shown.events, event(90, "listed\x1b[31m now", service="r1"), event(91, "noise", "debug"))
    row = news_row(msgspec.structs.replace(shown, events=events), shown.snapshot, NOW)
    assert row.text == "• 10s ago  r1: listed now"
    sick = snapshot(symptoms=(LISTLESS, TOOLLESS))
    assert news_row(shown, sick, NOW).text == "✖ No trial calls a tool  set the tool-call parser"
    cut_off = msgspec.structs.replace(shown, link="lost", why="pid 990 is gone")
    assert news_row(cut_off, sick, NOW).text == "pid 990 is gone"


# -- on the screen


async def test_it_has_three_rows_on_large_screens_only() -> None:
    app = LiverlApp(FakeSource(view=view()), readonly=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        header = app.screen.query_one(Header)
        assert len(header.rows) == 3
        assert "event 5" in header.text
        assert "read-only" in header.text
        for width, height in ((120, 29), (99, 40), (80, 24)):
            await pilot.resize_terminal(width, height)
            await settle(pilot)
            assert len(header.rows) == 2, (width, height)


async def test_before_the_first_snapshot_it_says_so() -> None:
    app = LiverlApp(FakeSource(view=View()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "◌ connecting" in app.screen.query_one(Header).text


async def test_after_the_end_ages_go_on_and_the_log_has_an_end() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        log = app.screen.query_one(LogsPane)
        assert "following" in log.rows[0].text
        app.take(msgspec.structs.replace(view(), link="ended"))
        seen = (clock := app.screen.query_one(Header)._clock).now()
        await settle(pilot)
        assert NOW <= seen < clock.now()
        assert "■ end" in log.rows[0].text and "following" not in log.rows[0].text


async def test_clocks_stand_still_when_nobody_tells_us_any_more() -> None:
    """What was known when the backend died is not known to go on."""
    app = LiverlApp(FakeSource(view=msgspec.structs.replace(view(), link="lost", why="pid 990 is gone")))
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        clock = app.screen.query_one(Header)._clock
        assert clock.now() == NOW
        app.take(view())
        seen = clock.now()
        await settle(pilot)
        assert NOW < seen < clock.now()
        assert re.search(r"elapsed 2m\d\ds", app.screen.query_one(Header).text)
