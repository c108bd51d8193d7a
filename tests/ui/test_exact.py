"""What is sent to the terminal: the cells that changed, drawn as Textual would draw them."""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.pilots import press, until
from kit.screens import NOW, FakeSource, gpu, replica, settle, trial, view
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import CompositorUpdate, LayoutUpdate
from textual._context import visible_screen_stack
from textual.color import Color
from textual.geometry import Region
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets._toast import Toast

from liverl.model import ReplicaSet, TrialsStatus
from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.screens.dialogs import Option, Question, Wrapped
from liverl_tui.term.cell_diff import ExactUpdate, Piece, WholeUpdate, transition
from liverl_tui.term.see_through import SeenThrough
from liverl_tui.widgets.base.cells import CellPanel, _cells
from liverl_tui.widgets.dashboard.gpus import GpusPane

COLOURS = st.sampled_from(["default", "red", "bright_blue", "color(120)", "#14171c", "#6cb6ff"])
STYLES = st.builds(
    lambda fg, bg, bold, reverse: Style(color=fg, bgcolor=bg, bold=bold, reverse=reverse),
    st.one_of(st.none(), COLOURS),
    st.one_of(st.none(), COLOURS),
    st.booleans(),
    st.booleans(),
)
WIDTH = 24


def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False)


def drawn(*sequences: str) -> list[object]:
    """The cells of a terminal that has been sent ``sequences``."""
    screen = pyte.Screen(WIDTH, 4)
    stream = pyte.Stream(screen)
    for sequence in sequences:
        stream.feed(sequence)
    return [screen.buffer[y][x] for y in range(4) for x in range(WIDTH)]


def codes(style: Style) -> str:
    return Strip.render_ansi(style, ColorSystem.TRUECOLOR)


@given(STYLES, STYLES)
def test_a_change_of_style_ends_in_the_new_style(one: Style, other: Style) -> None:
    before, after = codes(one), codes(other)
    start = f"\x1b[{before}m" if before else ""
    reached = drawn(f"{start}a{transition(before, after)}b")[1]
    fresh = drawn(f"\x1b[{after}m b" if after else " b")[1]
    assert reached == fresh


@st.composite
def lines(draw: st.DrawFn) -> list[Segment]:
    """Segments of WIDTH columns together."""
    left, found = WIDTH, []
    while left:
        size = draw(st.integers(1, left))
        found.append(Segment(draw(st.text("abc ─●", min_size=size, max_size=size)), draw(STYLES)))
        left -= size
    return found


@settings(max_examples=50)
@given(st.lists(lines(), min_size=4, max_size=4), st.data())
def test_the_same_cells_as_textual_would_draw(rows: list[list[Segment]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, WIDTH - 1))  # two widgets beside each other
    spans = []
    for y in data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True)):
        start = data.draw(st.integers(0, WIDTH - 1))
        spans.append((y, start, data.draw(st.integers(start + 1, WIDTH))))
    strips = [Strip(row, WIDTH) for row in rows]
    pieces = [
        Piece(y, max(start, left), min(end, right), left, strips[y].crop(left, right))
        for y, start, end in spans
        for left, right in ((0, cut), (cut, WIDTH))
        if max(start, left) < min(end, right)
    ]
    exact = ExactUpdate(pieces).render_segments(console())
    whole = "".join(f"\x1b[{y + 1};1H{strip.render(console())}" for y, strip in enumerate(strips))
    cells, blank = drawn(exact), pyte.screens.Char(" ")
    for index, (got, wanted) in enumerate(zip(cells, drawn(whole), strict=True)):
        inside = any(y == index // WIDTH and start <= index % WIDTH < end for y, start, end in spans)
        assert got == (wanted if inside else blank)


@settings(max_examples=50)
@given(st.lists(lines(), min_size=4, max_size=4), st.integers(1, WIDTH - 1))
def test_a_whole_screen_is_what_textual_would_draw(rows: list[list[Segment]], cut: int) -> None:
    strips = [[Strip(row, WIDTH).crop(0, cut), Strip(row, WIDTH).crop(cut, WIDTH)] for row in rows]
    whole = WholeUpdate(list(strips), Region(0, 0, WIDTH, 4))
    assert drawn(whole.render_segments(console())) == drawn(LayoutUpdate.render_segments(whole, console()))


async def test_the_first_paint_sends_no_style_twice() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        whole = app.screen._compositor.render_full_update()
        sent, textual = whole.render_segments(console()), LayoutUpdate.render_segments(whole, console())
        assert len(sent) - 200 * 50 < 0.5 * (len(textual) - 200 * 50), "bytes beside those of the cells"


@pytest.mark.parametrize("front", ["nothing", "dialog"])
async def test_the_dashboard_sends_little_and_what_it_sends_is_right(front: str) -> None:
    """Numbers that move in every row of a large dashboard, seen through a terminal; a dialog in front of it makes
    nothing dearer."""
    app = LiverlApp(FakeSource())
    size = (200, 50)

    def shown(tick: int) -> object:
        cards = tuple(gpu(i, power_w=600.0 + tick * i, utilization=0.5 + 0.03 * (tick % 9)) for i in range(8))
        items = tuple(
            replica(i, running=float(20 + tick + i), tokens_per_s=1000.0 + 17 * tick) for i in range(8)
        )
        return view(gpus=cards, replicas=ReplicaSet(8, 8, 8, items))

    async with app.run_test(size=size) as pilot:
        app.take(shown(0))  # type: ignore[arg-type]
        await settle(pilot)
        if front == "dialog":
            await press(pilot, "q")
            await settle(pilot)
            await pilot.pause(0.05)
        screen = pyte.Screen(*size)
        stream = pyte.Stream(screen)
        stream.feed(_whole(app))
        sent: list[str] = []
        show = app._display

        def display(on: object, renderable: object) -> None:
            if on is app.screen and isinstance(renderable, CompositorUpdate):
                sent.append(renderable.render_segments(app.console))
            show(on, renderable)  # type: ignore[arg-type]

        app._display = display  # type: ignore[method-assign,assignment]
        for tick in range(1, 6):
            app.take(shown(tick))  # type: ignore[arg-type]
            await settle(pilot)
        for sequence in sent:
            stream.feed(sequence)
        assert sent
        assert sum(map(len, sent)) / 5 < 700, (
            "bytes for each new snapshot; as Textual does it 1,500 behind a dialog"
        )
        wanted = pyte.Screen(*size)
        pyte.Stream(wanted).feed(_whole(app))
        assert screen.display == wanted.display


@pytest.mark.parametrize("tint", ["transparent", "#40201066"])
async def test_a_dialog_shows_behind_it_what_textual_would_show(tint: str) -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "q")
        await settle(pilot)
        dialog, whole = app.screen, Region(0, 0, 120, 40)
        dialog.styles.background = Color.parse(tint)
        visible_screen_stack.set(app._background_screens)
        wanted = Screen.render_lines(dialog, whole)
        assert [_cells(strip) for strip in dialog.render_lines(whole)] == [_cells(strip) for strip in wanted]
        assert "Replicas" in "".join(strip.text for strip in wanted)
        part = Region(7, 3, 50, 9)
        expected = [_cells(strip.crop(7, 57)) for strip in wanted[3:12]]
        assert [_cells(strip) for strip in dialog.render_lines(part)] == expected


async def test_behind_a_dialog_only_lines_that_have_changed_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = LiverlApp(FakeSource())
    async with app.run_test(size=(120, 40)) as pilot:
        app.take(view(gpus=(gpu(0), gpu(1), gpu(2))))
        await settle(pilot)
        await press(pilot, "q")
        await settle(pilot)
        await pilot.pause(0.05)
        lines: list[int] = []
        render = SeenThrough.render_lines

        def counted(self: SeenThrough[Any], crop: Region) -> list[Strip]:
            strips = render(self, crop)
            lines.append(len(strips))
            return strips

        monkeypatch.setattr(SeenThrough, "render_lines", counted)
        monkeypatch.setattr(
            BackgroundScreen, "__rich_console__", None
        )  # Textual's own draws the whole screen
        # The first and the last line of the pane of GPUs, and none between them.
        app.take(view(gpus=(gpu(0, power_w=111.0), gpu(1), gpu(2, power_w=112.0))))
        await until(pilot, lambda: bool(lines))
        await settle(pilot)
        assert sum(lines) <= 3, "of 40"


async def test_a_covered_screen_draws_nothing_and_shows_the_newest_state_on_top_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = LiverlApp(FakeSource())
    async with app.run_test(size=(120, 40)) as pilot:
        app.take(view(gpus=(gpu(0),)))
        await settle(pilot)
        drawn: list[str] = []
        compose = CellPanel.update

        def counted(self: CellPanel) -> None:
            before = self.changes_drawn
            compose(self)
            if self.changes_drawn != before:
                drawn.append(type(self.screen).__name__)

        monkeypatch.setattr(CellPanel, "update", counted)
        await press(pilot, "E")
        await settle(pilot)
        assert not isinstance(app.screen, Dashboard)
        drawn.clear()
        app.take(view(at=NOW + 9, step=8, gpus=(gpu(0, power_w=123.0),)))
        await settle(pilot)
        assert "Dashboard" not in drawn
        # A pane that draws nothing for a view that it has already is drawn as well.
        monkeypatch.setattr(GpusPane, "show", lambda _pane, _view: None)
        await press(pilot, "escape")
        await settle(pilot)
        assert isinstance(app.screen, Dashboard)
        assert "123" in app.screen.query_one(GpusPane).text


async def test_what_changes_behind_toasts_and_dialogs_stays_behind_them() -> None:
    """Every partial update on a screen with something in front, against the same screen drawn at once."""
    app = LiverlApp(FakeSource())
    size = (120, 40)

    def shown(tick: int) -> object:
        items = tuple(replica(i, running=float(20 + tick + i), tokens_per_s=17.0 * tick) for i in range(8))
        return view(
            at=NOW + tick,
            replicas=ReplicaSet(8, 8, 8, items),
            phase=f"step {tick}/1000: " + "long words " * 9,
        )

    async with app.run_test(size=size) as pilot:
        app.take(shown(0))  # type: ignore[arg-type]
        await settle(pilot)
        for front in ("toast", "dialog"):
            if front == "toast":
                app.notify("in front of the panes\n" * 3, timeout=60)
            else:
                await press(pilot, "q")
            await settle(pilot)
            await pilot.pause(0.05)
            screen = pyte.Screen(*size)
            stream = pyte.Stream(screen)
            stream.feed(_whole(app))
            sent: list[str] = []
            display = app._display

            def record(on: object, update: object, sent: list[str] = sent, display: object = display) -> None:
                if isinstance(update, CompositorUpdate) and not isinstance(update, LayoutUpdate):
                    sent.append(update.render_segments(app.console))
                display(on, update)  # type: ignore[operator]

            app._display = record  # type: ignore[method-assign,assignment]
            for tick in range(1, 4):
                app.take(shown(tick))  # type: ignore[arg-type]
                await settle(pilot)
            app._display = display  # type: ignore[method-assign]
            assert sent, front
            for sequence in sent:
                stream.feed(sequence)
            wanted = pyte.Screen(*size)
            pyte.Stream(wanted).feed(_whole(app))
            # No colours: Rich remembers a style's codes for the first kind of terminal that it is drawn for.
            assert screen.display == wanted.display, front


async def _sent(app: LiverlApp, size: tuple[int, int], act: Callable[[], Awaitable[None]]) -> tuple[Any, Any]:
    """What a terminal shows after all that is sent during ``act``, and what it should show."""
    screen, wanted = pyte.Screen(*size), pyte.Screen(*size)
    stream = pyte.Stream(screen)
    stream.feed(_whole(app))
    display = app._display

    def record(on: object, update: object) -> None:
        if on is app.screen and isinstance(update, CompositorUpdate):
            stream.feed(update.render_segments(app.console))
        display(on, update)  # type: ignore[arg-type]

    app._display = record  # type: ignore[method-assign,assignment]
    await act()
    app._display = display  # type: ignore[method-assign]
    pyte.Stream(wanted).feed(_whole(app))
    return screen.display, wanted.display


async def test_another_trial_is_drawn_whole_while_the_pane_behind_follows(tmp_path: Path) -> None:
    heads = [trial(n, step=n) for n in range(8)]
    for n, head in enumerate(heads):
        (tmp_path / head.path).mkdir(parents=True)
        message = {"role": "assistant", "content": f"line {n}\n" * (5 + n)}
        told = {
            "success": True,
            "response_body": {"choices": [{"finish_reason": "stop", "message": message}]},
        }
        (tmp_path / head.path / "litellm-trajectory.jsonl").write_text(json.dumps(told) + "\n")
        (tmp_path / head.path / "result.json").write_text("{}")
    app = LiverlApp(FakeSource(tmp_path, view=view(trials=TrialsStatus(len(heads), newest=tuple(heads)))))
    size = (120, 40)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await press(pilot, "4", "u", "o", *"newest", "enter")  # in the order in which they come
        await press(pilot, "enter")
        await settle(pilot)

        def text() -> str:
            return app.screen.query_one("#trajectory").text  # type: ignore[attr-defined, no-any-return]

        await until(pilot, lambda: "line 0" in text(), text)
        await settle(pilot)

        for n in range(1, len(heads)):

            async def act(n: int = n) -> None:
                await press(pilot, "J")
                await until(pilot, lambda: f"line {n}" in text(), text)
                await settle(pilot)
                await pilot.pause(0.05)

            got, wanted = await _sent(app, size, act)
            assert got == wanted, f"trial {n}"

        async def back() -> None:
            await press(pilot, "escape")
            await settle(pilot)
            await pilot.pause(0.05)

        got, wanted = await _sent(app, size, back)
        assert got == wanted and any("Trajectories" in line for line in wanted)


async def test_a_dialog_is_drawn_whole_while_facts_change_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own changes and those behind it are painted together, whichever comes first."""
    app = LiverlApp(FakeSource(view=view()))
    size = (120, 40)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        app.push_screen(Question("Which?", "because", [Option("yes", "y", "do it")], "yes"))
        await settle(pilot)
        await pilot.pause(0.05)
        why = app.screen.query(Wrapped).last()
        paint = Dashboard._compositor_refresh
        says: list[str] = []

        def painted(dashboard: Dashboard, first: str) -> None:
            if first == "behind":
                paint(dashboard)
            if says:
                why.say(says.pop())
            if first == "in front":
                paint(dashboard)

        for tick, first in enumerate(("behind", "in front", "behind", "in front"), 1):
            monkeypatch.setattr(Dashboard, "_compositor_refresh", lambda d, first=first: painted(d, first))

            async def act(tick: int = tick) -> None:
                says.append(f"reason {tick}")
                app.take(view(at=NOW + tick, phase=f"step {tick}/1000: " + "long words " * 9))
                await until(pilot, lambda: not says, lambda: why.text)
                await settle(pilot)
                await pilot.pause(0.05)

            got, wanted = await _sent(app, size, act)
            assert any(f"step {tick}/1000" in line for line in wanted)
            assert got == wanted, first


def _whole(app: LiverlApp) -> str:
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    assert update is not None
    return update.render_segments(app.console)  # type: ignore[attr-defined, no-any-return]


async def test_a_toast_is_drawn_whole_while_facts_change_behind() -> None:
    newest = tuple(trial(i, updated_at=NOW - 5) for i in range(30))
    app = LiverlApp(FakeSource(view=view(trials=TrialsStatus(30, 0, 30, newest=newest))))
    size = (80, 24)
    async with app.run_test(size=size, notifications=True) as pilot:
        await settle(pilot)
        app.notifications.toast("response_mask must contain at least one valid token " * 3, "error")
        await until(pilot, lambda: any(t.region.height > 1 for t in app.screen.query("Toast")), str)
        await pilot.pause(0.05)
        for tick in range(1, 4):

            async def act(tick: int = tick) -> None:
                app.take(view(at=NOW + 11 * tick, trials=TrialsStatus(30, 0, 30, newest=newest)))
                await settle(pilot)
                await pilot.pause(0.05)

            got, wanted = await _sent(app, size, act)
            assert any("valid token" in line for line in wanted)
            assert got == wanted, tick


@pytest.mark.parametrize("link", ["live", "ended"])
async def test_what_a_toast_covered_is_seen_when_it_has_gone(link: str) -> None:
    newest = tuple(trial(i, updated_at=NOW - 5) for i in range(30))
    shown = view(trials=TrialsStatus(30, 0, 30, newest=newest))
    shown = msgspec.structs.replace(shown, link=link)
    app = LiverlApp(FakeSource(view=shown))
    size = (80, 24)
    async with app.run_test(size=size, notifications=True) as pilot:
        await settle(pilot)
        app.notify("response_mask must contain at least one valid token " * 3, timeout=600.0)
        await until(pilot, lambda: any(t.region.height > 1 for t in app.screen.query("Toast")), str)

        async def act() -> None:
            app.screen.query_one(Toast)._expire()  # as its timer does
            await until(pilot, lambda: not app.screen.query("Toast"), str)
            await settle(pilot)
            await pilot.pause(0.3)

        got, wanted = await _sent(app, size, act)
        assert not any("valid token" in line for line in wanted)
        assert got == wanted


async def test_what_a_toast_covered_is_seen_when_the_places_were_asked_for_meanwhile() -> None:
    """A toast scrolls its rack, whereupon Textual keeps the places of what is seen alone; whoever asks for those of
    all between a toast's end and the next layout makes Textual forget that it was there."""
    app = LiverlApp(FakeSource(view=view()))
    size = (80, 24)
    async with app.run_test(size=size, notifications=True) as pilot:
        await settle(pilot)
        app.notify("response_mask must contain at least one valid token " * 3, timeout=60.0)
        await until(pilot, lambda: any(t.region.height > 1 for t in app.screen.query("Toast")), str)
        await pilot.pause(0.05)
        app.screen._refresh_layout(scroll=True)

        async def act() -> None:
            await app.screen.query_one("Toast").remove()
            assert app.screen._compositor.full_map
            await settle(pilot)
            await pilot.pause(0.1)

        got, wanted = await _sent(app, size, act)
        assert not any("valid token" in line for line in wanted)
        assert got == wanted
