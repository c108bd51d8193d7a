"""The events screen: following, filters, wrapping, and what is older than the interface knows."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from kit import pilots
from kit.screens import NOW, FakeSource, event, settle, snapshot

from liverl.model import Event
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.last_visit import Visit
from liverl_tui.data.view import View
from liverl_tui.screens.events import EventsScreen, events_before
from liverl_tui.text.wrapping import LEAST, wrap
from liverl_tui.widgets.lists.events import EventList, event_line, event_rows, fits

LEVELS = ("info", "debug", "warning", "error")


def story(first: int, last: int) -> tuple[Event, ...]:
    return tuple(
        event(i, f"event {i}.", LEVELS[i % 4], "proxy" if i % 2 else None) for i in range(first, last + 1)
    )


def shown(first: int, last: int) -> View:
    return View(link="live", snapshot=snapshot(), events=story(first, last))


class Screen(pilots.Driven):
    @property
    def pane(self) -> EventList:
        return self.app.screen.query_one(EventList)

    @property
    def text(self) -> str:
        panes = self.app.screen.query(EventList)
        return panes.first().text if panes else ""

    @property
    def title(self) -> str:
        return self.text.splitlines()[0]


@asynccontextmanager
async def opened(
    view: View,
    run_dir: Path | str = "/runs/x/y",
    size: tuple[int, int] = (100, 20),
    visit: Visit | None = None,
) -> AsyncIterator[Screen]:
    app = LiverlApp(FakeSource(run_dir, view=view), last_visit=visit)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        screen = Screen(pilot)
        await screen.press("E")
        await screen.until(lambda: isinstance(app.screen, EventsScreen) and screen.text)
        yield screen


async def test_it_follows_until_one_goes_up_and_again_at_the_end() -> None:
    async with opened(shown(1, 60)) as screen:
        assert "event 60." in screen.text and "event 20." not in screen.text and "following" in screen.title
        assert "event 57." not in screen.text, "debug is not shown at first"
        screen.app.take(shown(1, 64))
        assert "event 64." in screen.text
        await screen.press("up")
        assert "not following" in screen.title
        screen.app.take(shown(1, 200))
        assert "event 64." in screen.text and "event 200." not in screen.text
        await screen.press("G")
        assert "event 200." in screen.text and "not following" not in screen.title
        await screen.press("pageup")
        before = screen.text
        screen.app.take(shown(1, 300))
        assert screen.text.splitlines()[1:] == before.splitlines()[1:], "nothing moves under the reader"
        await screen.press("f")
        assert "event 300." in screen.text
        await screen.press("f")
        screen.app.take(shown(1, 400))
        assert "event 400." not in screen.text
        await screen.press("g")
        assert "event 2." in screen.text and "event 1." not in screen.text
        await screen.press("pagedown", "pagedown", "j", "k")
        assert "event 2." not in screen.text


async def test_level_and_text_filter_and_their_keys() -> None:
    async with opened(shown(1, 60)) as screen:
        await screen.press("v")
        assert "warnings and errors" in screen.title and "event 60." not in screen.text and "▲" in screen.text
        await screen.press("v")
        assert "▲" not in screen.text and "✖" in screen.text
        await screen.press("v")
        assert "all levels" in screen.title and "event 57." in screen.text
        await screen.press("slash", "p", "r", "o", "x", "y", "space", "5", "enter")
        assert "/proxy 5" in screen.title and "event 57." in screen.text and "event 60." not in screen.text
        assert all("proxy" in line for line in screen.text.splitlines()[1:] if "event" in line)
        assert not screen.app.source.asked, "what is typed is no command"
        await screen.press("slash", "end", "x")
        assert "no event matches" in screen.text
        await screen.press("enter", "up", "down", "enter", "escape")
        assert "event 60." in screen.text and isinstance(screen.app.screen, EventsScreen)
        await screen.press("escape")
        assert not isinstance(screen.app.screen, EventsScreen)


async def test_escape_takes_filter_and_level_away_before_it_leaves() -> None:
    async with opened(shown(1, 60)) as screen:
        await screen.press("v", "slash", *"proxy", "enter")
        assert "warnings and errors" in screen.title and "/proxy" in screen.title
        await screen.press("escape")
        assert "warnings and errors" in screen.title and "/proxy" not in screen.title, "first the filter"
        await screen.press("escape")
        assert "without debug" in screen.title and "/proxy" not in screen.title and "event 60." in screen.text
        await screen.press("v", "v", "escape")
        assert "without debug" in screen.title and isinstance(screen.app.screen, EventsScreen)
        await screen.press("v", "v", "v", "escape")
        assert not isinstance(screen.app.screen, EventsScreen), (
            "where all is shown, there is nothing to clear"
        )


async def test_a_number_and_its_unit_stay_together() -> None:
    text = "r0: the weights took 12.5 GiB of memory, 97 % of what it has, and it was ready after 10 s. "
    told = event(2, text * 3, service="r0")
    for columns in range(60, 90):
        lines = "\n".join(row.text for row in event_rows(told, columns, day=False, data=False))
        for pair in ("12.5 GiB", "97 %", "10 s."):
            assert lines.count(pair) == 3, (columns, lines)
    async with opened(View(link="live", snapshot=snapshot(), events=(told,)), size=(80, 24)) as screen:
        assert all(screen.text.count(pair) == 3 for pair in ("12.5 GiB", "97 %", "10 s.")), screen.text


def test_what_is_no_number_with_a_unit_is_wrapped_as_ever() -> None:
    assert wrap("in turn 3 means", 9) == ["in turn 3", "means"]
    assert wrap("aaaaaaaa 123456 GiB", 8) == ["aaaaaaaa", "123456", "GiB"], (
        "where a line has no room for both"
    )
    assert wrap("took (1.2 GiB/s), twice", 15) == ["took", "(1.2 GiB/s),", "twice"]


async def test_an_event_tells_its_data_and_is_copied() -> None:
    long = "a text that goes on and on " * 8
    told = Event(2, 1_790_000_000.0, "state", long, "warning", "r0", {"state": "degraded", "n": [1, 2]})
    async with opened(View(link="live", snapshot=snapshot(), events=(*story(1, 1), told))) as screen:
        assert " ".join(screen.text.split()).count("goes on and on") == 8, "it is wrapped, not cut"
        await screen.press("enter")
        assert "kind: state" in screen.text and "n: [1,2]" in screen.text
        await screen.press("enter")
        assert "kind: state" not in screen.text
        assert screen.pane.copy_line().endswith(f"warning r0           {long}")
        assert len(screen.pane.copy_all().splitlines()) == 1
        await screen.pilot.resize_terminal(40, 10)
        await screen.until(lambda: screen.app.screen.size == (40, 10))
        await screen.until(lambda: "goes on" in screen.text)


async def test_older_events_come_from_the_file_when_one_goes_above_the_first(tmp_path: Path) -> None:
    everything = story(1, 3000)
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(msgspec.json.encode(e) for e in everything) + b"\n")
    async with opened(View(link="live", snapshot=snapshot(), events=everything[-500:]), tmp_path) as screen:
        await screen.press("v", "v", "v", "g")
        first = screen.pane.first_known
        assert first == 1 or first == 2501
        await screen.press("up")
        await screen.until(lambda: (screen.pane.first_known or 9999) < 2501 and not screen.pane.loading)
        assert screen.pane.first_known == 501, "a page"
        assert "event 2501." in screen.text and "event 2500." in screen.text, "the cursor stays where it was"
        await screen.press("L")
        await screen.until(lambda: screen.pane.complete)
        assert screen.pane.first_known == 1
        await screen.press("g")
        assert "event 1." in screen.text
        await screen.press("up", "up", "L")
        assert not screen.pane.loading
        # news come behind all that
        screen.app.take(View(link="live", snapshot=snapshot(), events=story(2600, 3002)))
        await screen.press("G")
        assert "event 3002." in screen.text
        # more came than the interface keeps: what is missing is read again when it is wanted
        screen.app.take(View(link="live", snapshot=snapshot(), events=story(9000, 9100)))
        assert "event 9100." in screen.text and not screen.pane.complete


async def test_a_filter_searches_the_older_ones_too(tmp_path: Path) -> None:
    everything = (event(1, "the needle", "error"), *(event(i, "hay") for i in range(2, 2990)))
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(msgspec.json.encode(e) for e in everything))
    async with opened(View(link="live", snapshot=snapshot(), events=everything[-500:]), tmp_path) as screen:
        await screen.press("slash", *"needle", "enter")
        await screen.until(lambda: "the needle" in screen.text)


async def test_a_run_without_events() -> None:
    async with opened(View()) as screen:
        assert "no events yet" in screen.text
        await screen.press("up", "down", "enter", "v", "f", "L", "G", "g")
        assert screen.pane.copy_line() == ""


def test_a_page_of_older_events(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(
        b"\n".join(msgspec.json.encode(e) for e in story(1, 10)) + b"\n{torn"
    )
    assert [e.seq for e in events_before(tmp_path, 8, 3)[0]] == [5, 6, 7]
    assert events_before(tmp_path, 8, 3)[1] is False and events_before(tmp_path, 8, 7)[1] is True
    assert events_before(tmp_path / "none", 8, None) == ([], True)


def test_what_fits_a_filter() -> None:
    said = event(1, "Ready after 3 s", "warning", "r0", "state")
    assert fits(said, "debug", "") and fits(said, "warning", "ready r0") and fits(said, "info", "state")
    assert fits(said, "debug", "Ready") and not fits(said, "debug", "READY"), "case matters with a capital"
    assert not fits(said, "error", "") and not fits(said, "debug", "ready r1")
    assert "\x1b" not in event_line(event(1, "a\x1b[2Jb"))


def test_the_first_event_of_a_day_has_its_date() -> None:
    rows = event_rows(event(1, "x"), 80, day=True, data=False)
    assert "2026" in rows[0].text and len(rows) == 2


@given(st.text(), st.integers(1, 60), st.integers(0, 60))
def test_wrapped_text_fits_and_loses_nothing(text: str, width: int, begin: int) -> None:
    from rich.cells import cell_len

    lines = wrap(text, width, begin)
    assert lines and all(cell_len(line) <= max(LEAST, width) for line in lines)
    assert "\x1b" not in "".join(lines) and "\n" not in "".join(lines)
    kept = {c for c in text if c.isalnum() and c.isascii()}
    assert kept <= set("".join(lines))


async def test_the_first_look_begins_where_the_last_visit_ended(tmp_path: Path) -> None:
    """Also where the view has only the newest events, and what is new is more than a screen."""
    lines = (msgspec.json.encode(e) for e in shown(1, 80).events)
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    visit = Visit(str(tmp_path), NOW - 600, 24, 1, 2, {})
    async with opened(shown(41, 80), tmp_path, visit=visit) as screen:
        await screen.until(lambda: "event 26." in screen.text)
        first = screen.text.splitlines()[1]
        assert "you left at" in first and "5 steps" in first, screen.text
        assert "not following" in screen.title and "event 80." not in screen.text
        await screen.press("escape", "E")
        await screen.until(lambda: "event 80." in screen.text)
        assert "not following" not in screen.title, "it was looked at"
    async with opened(shown(17, 30), visit=visit) as screen:
        await screen.until(lambda: "event 30." in screen.text)
        assert "you left at" in screen.text and "not following" not in screen.title, "all that is new fits"


async def test_a_row_says_where_the_last_visit_ended() -> None:
    visit = Visit("/runs/x/y", NOW - 600, 4, 1, 0, {})
    async with opened(shown(1, 9), visit=visit) as screen:
        await screen.until(lambda: "event 8." in screen.text)
        lines = screen.text.splitlines()
        (mark,) = [i for i, line in enumerate(lines) if "you left at" in line]
        assert "event 4." in lines[mark - 1] and "event 6." in lines[mark + 1], "event 5 is a debug event"
        assert "since then: 7 steps" in lines[mark]
        assert screen.app.view.snapshot is not None
        later = msgspec.structs.replace(screen.app.view.snapshot, step=19)
        screen.app.take(msgspec.structs.replace(shown(1, 9), snapshot=later))
        await screen.until(lambda: "since then: 19 steps" in screen.text)
    async with opened(shown(1, 9), visit=msgspec.structs.replace(visit, seq=9)) as screen:
        await screen.until(lambda: "event 8." in screen.text)
        assert "you left" not in screen.text, "nothing is new"
    async with opened(shown(6, 9), visit=msgspec.structs.replace(visit, at=time.time())) as screen:
        await screen.until(lambda: "event 8." in screen.text)
        assert "you left" not in screen.text, "the events before are not loaded"
