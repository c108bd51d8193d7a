"""Every key in a footer does something, or says why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.ended_runs import a_run
from kit.pilots import press, until
from kit.screens import FakeSource, settle, view

from liverl_tui.app.app import LiverlApp
from liverl_tui.keys.bindings import offered
from liverl_tui.keys.idle import is_idle
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.cells import CellPanel
from liverl_tui.widgets.base.keybar import KeyBar

# Screen -> the keys that open it, on the dashboard of a run of which nothing is known but its state.
SCREENS: dict[str, tuple[str, ...]] = {
    "gpus": ("1",),
    "replicas": ("2",),
    "logs": ("3",),
    "trials": ("4",),
    "steps of trials": ("4", "c"),
    "metrics": ("M",),
    "timeline": ("I",),
    "all steps": ("I", "c"),
    "services": ("V",),
    "events": ("E",),
    "alerts": ("exclamation_mark",),
    "sandboxes": ("W",),
    "runs": ("Z",),
    "disk": ("K",),
    "help": ("question_mark",),
}
# They ask, leave the screen or act elsewhere: tests of their own.
ELSEWHERE = ("leave", "restart_carrier", "add_replica", "suspend_process")


def state(app: LiverlApp) -> tuple[Any, ...]:
    """What an action may change."""
    panels = tuple(panel.text for panel in app.screen.query(CellPanel) if not isinstance(panel, KeyBar))
    return (
        app.screen,
        app.screen.focused,
        panels,
        [toast.message for toast in app.toasts()],
        tuple(app.workers),
    )


def in_footer(screen: RunScreen) -> Iterator[str]:
    """The keys that the footer offers, as Textual names them."""
    nodes = dict(reversed(screen.scoped_nodes()))
    for key in offered(tuple(scope for scope, _ in screen.scoped_nodes())):
        if key.action not in ELSEWHERE and not is_idle(nodes[key.scope], key):
            yield key.bound[0]


@pytest.mark.parametrize("size", [(200, 50)])
@pytest.mark.parametrize("name", SCREENS)
async def test_every_key_of_a_footer_acts_or_says_why_not(
    name: str, size: tuple[int, int], tmp_path: Path
) -> None:
    run = a_run(tmp_path, "bare", [])
    app = LiverlApp(FakeSource(run, view=view()))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await press(pilot, *SCREENS[name])
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, RunScreen)
        for key in list(in_footer(screen)):
            before = state(app)
            await press(pilot, key)
            await settle(pilot)
            assert state(app) != before, f"{key} does nothing on {name}, and says nothing"
            for toast in app.toasts():
                app.drop_toast(toast)
            for _ in range(3):
                if app.screen is screen and app.screen.focused is before[1]:
                    break
                await press(pilot, "escape")
                await settle(pilot)
            if app.screen is not screen:  # the key has closed it
                break


async def test_what_has_nothing_to_do_is_left_out_and_says_why(tmp_path: Path) -> None:
    run = a_run(tmp_path, "two", [0.1, 0.2])
    steps = [
        json.dumps({"step": step, "data": {"timing_s/step": 9.0, "timing_s/gen": 5.0}}) for step in (1, 2)
    ]
    (run / "metrics.jsonl").write_text("\n".join(steps) + "\n")
    app = LiverlApp(FakeSource(run, view=view()))
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        await press(pilot, "M")
        charts = app.screen.query_one(KeyBar)
        await until(
            pilot, lambda: "Enter one chart" in charts.text, lambda: charts.text
        )  # once they are read
        assert "all steps" not in charts.text
        await press(pilot, "plus", "escape", "I")
        bar = app.screen.query_one(KeyBar)
        await until(pilot, lambda: "all steps" in bar.text, lambda: bar.text)
        assert "Enter open" not in bar.text
        await press(pilot, "enter")
        assert [toast.message for toast in app.toasts()] == [
            "▲ one step is shown already; press c to list all steps"
        ]
        await press(pilot, "c")
        await until(pilot, lambda: "Enter open" in bar.text, lambda: bar.text)
        assert "next step" not in bar.text
