"""The runs screen: every run of this host, to open one, or to compare some."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from liverl.offline.run_list import RunListed
from liverl.rundir.state_home import default_run_root
from liverl_tui.data.run_list import RunList
from liverl_tui.keys.bindings import Scope, find
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.runs.list import RunsPane

if TYPE_CHECKING:
    from textual.dom import DOMNode

POLL_S = 5.0  # seconds between two looks at the runs


class RunsScreen(RunScreen):
    """One list of runs. Its keys are those of the scope ``runs``, whose actions the list has. ``run_root``: a further
    directory of runs, beside those that this host knows of; ``shown``: the run that the interface shows."""

    scope = "runs"
    AUTO_FOCUS = "#runs"
    DEFAULT_CSS = """
    RunsScreen { layout: vertical; }
    RunsScreen RunsPane { width: 1fr; height: 1fr; }
    """

    def __init__(self, run_root: Path | None = None, shown: Path | None = None) -> None:
        super().__init__()
        self._list, self._shown = RunList(run_root), shown
        self._roots = dict.fromkeys(map(str, (default_run_root(), *((run_root,) if run_root else ()))))

    def compose(self) -> ComposeResult:
        """The list of runs, above the key bar."""
        pane = RunsPane(self._open, self._compare, id="runs")
        pane.shown, pane.where = self._shown, " or ".join(self._roots)
        yield pane
        yield KeyBar()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        """Return the list for the scope ``runs``, also while it has no focus, then the app."""
        return self.scopes_of(RunsPane)

    @property
    def pane(self) -> RunsPane:
        """The list of runs."""
        return self.query_one(RunsPane)

    def on_mount(self) -> None:
        """Read the runs at once, and then every ``POLL_S`` seconds."""
        super().on_mount()
        self.set_interval(POLL_S, self._poll)
        self._poll()

    def _poll(self) -> None:
        if all(worker.is_finished for worker in self.workers if worker.group == "runs"):
            self.run_worker(self._read(), group="runs")

    async def _read(self) -> None:
        pane = self.pane
        try:
            runs = await asyncio.to_thread(self._list.read)
        except OSError as error:
            pane.problem = f"cannot read {error.filename or 'the runs'}: {error.strerror or error}"
            pane.update()
            return
        pane.problem = ""
        pane.take(runs)
        for run in runs:
            pane.take_size(run.run_dir, await asyncio.to_thread(self._list.size, run))
        if (chosen := pane.chosen) is not None:
            pane.take_best(chosen.run_dir, await asyncio.to_thread(self._list.best, chosen))

    # -- what keys do

    def _open(self, run: RunListed) -> None:
        self.liverl.open_run(run)

    def _compare(self, runs: Sequence[RunListed], why: str) -> None:
        from liverl.offline.compare import MOST
        from liverl_tui.screens.compare import CompareScreen

        if 2 <= len(runs) <= MOST:
            in_order = oldest_first(runs)
            self.app.push_screen(CompareScreen([Path(run.run_dir) for run in in_order], why))
            return
        if len(self.pane.runs) == 1:
            self.liverl.notifications.toast(
                "only one run is listed: there is none to compare it with", "warning"
            )
            return
        mark, none = find("list", "mark").mention, f"{why}; " if why else ""
        self.liverl.notifications.toast(
            f"{none}mark 2 to {MOST} runs to compare them ({mark}); marked now: {len(self.pane.marked)}",
            "warning",
        )


def oldest_first(runs: Sequence[RunListed]) -> list[RunListed]:
    """Runs as they are compared, however they were chosen: A is the oldest one; those whose start is not known are
    last."""
    return sorted(runs, key=lambda run: run.started_at if run.started_at is not None else math.inf)
