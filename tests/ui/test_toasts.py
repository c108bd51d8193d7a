"""Toasts: short, above the key bar, and whole where they are told nowhere else."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kit.pilots import until
from kit.screens import FakeSource, event, settle, view
from textual.notifications import Notify
from textual.widgets._toast import Toast

from liverl.model import Symptom
from liverl_tui.app import notifications
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.last_visit import Visit, since_then
from liverl_tui.data.view import View
from liverl_tui.text.themes import PALETTES
from liverl_tui.widgets.base.keybar import KeyBar

SIZES = [(80, 24), (120, 40), (40, 10)]


async def toasts(pilot: Any, number: int) -> list[Toast]:
    """Those that are seen, once there are so many and they have their places."""
    screen = pilot.app.screen

    def placed() -> list[Toast]:
        return [toast for toast in screen.query(Toast) if toast.region]

    await until(pilot, lambda: len(placed()) == number, lambda: str(placed()))
    return placed()


def said(toast: Toast) -> str:
    """What can be read of it."""
    rows = toast.screen._compositor.render_strips()
    x, y, width, height = toast.region
    lines = [row.crop(x + 1, x + width).text.strip() for row in rows[y : y + height]]
    return " ".join(line for line in lines if line)


@pytest.mark.parametrize("theme", [*PALETTES])
@pytest.mark.parametrize("size", SIZES)
async def test_a_toast_stands_above_the_key_bar_and_is_as_wide_as_its_text(
    theme: str, size: tuple[int, int]
) -> None:
    app = LiverlApp(FakeSource(view=view()), theme=theme)
    async with app.run_test(size=size, notifications=True) as pilot:
        await settle(pilot)
        app.notifications.toast("cannot suspend", "warning")
        (toast,) = await toasts(pilot, 1)
        bar = app.screen.query_one(KeyBar).region
        assert bar.height == 1 and toast.region.bottom == bar.y and toast.region.height == 1
        assert toast.region.right == size[0] and toast.region.width <= len("▲ cannot suspend") + 3
        assert said(toast) == "▲ cannot suspend"


async def test_of_refused_keys_only_the_last_one_has_a_toast() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        app.notifications.toast("saved a picture")
        for text in ("cannot suspend", "no services yet", "nothing to copy here"):
            app.notifications.toast(text, "warning")
        app.notifications.toast("restart replica-0: failed", "error")
        found = [said(toast) for toast in await toasts(pilot, 3)]
        assert found == ["saved a picture", "▲ nothing to copy here", "✖ restart replica-0: failed"]


async def test_a_key_without_an_effect_says_where_it_has_one() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        for keys, words in (
            (("A", "4"), "4 has no effect here; elsewhere: Dashboard (trajectories)"),
            (("escape", "2", "u"), "u has no effect here; elsewhere: Trajectories pane (group)"),
            (("4", "exclamation_mark", "u"), "a filter lists trials, not groups; press Esc to remove"),
        ):
            for key in keys:
                await pilot.press(key)
                await settle(pilot)
            (toast,) = await toasts(pilot, 1)
            assert words in said(toast)
        await pilot.press("slash", "x", "4", "enter")
        await settle(pilot)
        (toast,) = await toasts(pilot, 1)
        assert "filter lists" in said(toast), "typed text is no key without an effect"


@pytest.mark.parametrize("way", [("A",), ("colon",), ("question_mark",), ("I", "escape")])
async def test_an_answer_to_a_key_belongs_to_its_screen(way: tuple[str, ...]) -> None:
    """It covered the legend of the next screen for seconds. What was done is told there, too."""
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        if way[1:]:
            await pilot.press(way[0])
            await settle(pilot)
        app.notifications.toast("saved a picture")
        app.notifications.toast("u has no effect here", "warning")
        assert len(await toasts(pilot, 2)) == 2
        await pilot.press(way[-1])
        await settle(pilot)
        (toast,) = await toasts(pilot, 1)
        assert said(toast) == "saved a picture"
        app.notifications.toast("u has no effect here", "warning")
        assert len(await toasts(pilot, 2)) == 2, "on each screen anew"


async def test_what_the_header_or_the_events_tell_too_is_one_line() -> None:
    before = view()
    long = "two of the replicas are loaded but idle " * 6
    symptom = Symptom("idle", "critical", long, "", "liverl-tui restart proxy")
    after = view(symptoms=(symptom,))
    asked = event(99, f"somebody asked to {long}", kind="command")
    after = View(link="live", snapshot=after.snapshot, events=(*after.events, asked))
    app = LiverlApp(FakeSource(view=before))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        app.take(after)
        found = await toasts(pilot, 2)
        assert [toast.region.height for toast in found] == [1, 1]
        assert [toast.region.y for toast in found] == [21, 22]
        for toast, begin in zip(found, ("✖ two of the replicas", "somebody asked to two"), strict=True):
            assert said(toast).startswith(begin) and said(toast).endswith("…")


async def test_an_answer_that_is_told_nowhere_else_is_whole() -> None:
    app = LiverlApp(FakeSource("/runs/liverl/first", view=view()))
    text = "saved " + "/a/long/path" * 9 + "/with/a/name.svg, which is more than what one line holds"
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        app.notifications.toast(text)
        (toast,) = await toasts(pilot, 1)
        assert toast.region.bottom == 23 and toast.region.height < 5
        assert "".join(said(toast).split()) == "".join(text.split())


async def test_where_the_header_has_no_row_a_toast_says_what_has_happened() -> None:
    shown = view()
    assert shown.snapshot is not None
    visit = Visit(shown.snapshot.run_dir, time.time() - 900, 0, 1, 2, {})
    app = LiverlApp(FakeSource(view=shown), last_visit=visit)
    async with app.run_test(size=(80, 19), notifications=True) as pilot:
        await settle(pilot)
        (toast,) = await toasts(pilot, 1)
        assert ": 5 steps" in said(toast)
        assert said(toast) == f"▲ {since_then(visit, shown, visit.at + 900)} (E shows it)"
        app.take(view(step=9))
        await settle(pilot)
        assert len(app.screen.query(Toast)) == 1, "it is said once"


async def test_one_that_comes_as_the_program_ends_looks_for_no_screen() -> None:
    """Its last screen has gone by then."""
    app = LiverlApp(FakeSource(view=view()))
    assert not app.screen_stack
    app.on_notify(Notify(notifications.Toast("late")))
