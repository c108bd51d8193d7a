"""The timeline screen: where the time of one step goes, and of all steps."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding

from liverl.diagnose.where.parts import PREFIX, parts_of, seconds_of
from liverl.diagnose.where.words import note
from liverl.observe.metrics.names import key_in, keys_of
from liverl.offline.tables import as_csv
from liverl_tui.keys.bindings import Scope, bindings, find
from liverl_tui.screens.base import RunScreen
from liverl_tui.screens.metrics import POLL_S
from liverl_tui.screens.run_metrics import metrics_of
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.header.header import Header
from liverl_tui.widgets.timeline.step import StepPane
from liverl_tui.widgets.timeline.steps import StepsPane

if TYPE_CHECKING:
    from textual.binding import BindingType
    from textual.dom import DOMNode

    from liverl.model import Snapshot
    from liverl.offline.step_notes import StepNote, StepNotes
    from liverl.offline.step_timeline import StepTimeline
    from liverl_tui.data.view import View

_KEYS: list[BindingType] = [*bindings("timeline"), Binding("escape", "back", show=False)]
LIVE_S = 4.0  # seconds between two looks at a step that runs


class TimelineScreen(RunScreen):
    """One step, or all of them. Without a choice the newest step that has ended is shown, and followed."""

    scope = "timeline"
    BINDINGS = _KEYS
    AUTO_FOCUS = "#step"
    DEFAULT_CSS = """
    TimelineScreen { layout: vertical; }
    TimelineScreen StepPane { width: 1fr; height: 1fr; }
    TimelineScreen StepsPane { width: 1fr; height: 1fr; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._wanted: int | None = None  # a step that the user has chosen; None: the newest
        self._shown: StepTimeline | None = None
        self._read_at = 0.0  # of the monotonic clock
        self._drawn: object = None
        self._reading = False
        self._notes: StepNotes | None = None
        self._marks: Mapping[int, Sequence[StepNote]] = {}

    def compose(self) -> ComposeResult:
        """Both panes, of which one is seen, above the key bar."""
        self._metrics = metrics_of(self.app, self.liverl.source.run.path)
        steps = StepsPane(id="steps")
        steps.display = False
        yield Header()
        yield StepPane(id="step")
        yield steps
        yield KeyBar()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        """The keys that move in the pane, those of this screen, and those of the app."""
        return self.moving_and_own()

    def on_mount(self) -> None:
        """Read the metrics and the step at once, and then every ``POLL_S`` seconds."""
        super().on_mount()
        self.set_interval(POLL_S, self._poll)
        self._poll()

    def show(self, view: View) -> None:
        """Take names and notes from the view."""
        super().show(view)
        if self._composed:
            self._draw()

    # -- reading

    def _poll(self) -> None:
        if not self._reading:
            self._reading = True
            # A worker of the app: closing the screen would cancel it and lose what it has read.
            self.app.run_worker(self._read(), group="timeline")

    async def _read(self) -> None:
        try:
            await self._metrics.read()
            if self.is_attached:
                await self._read_step()
                await self._read_notes()
                self._draw()
        finally:
            self._reading = False

    def _steps(self) -> list[int]:
        """The steps that can be shown: those with metrics, and the one that runs."""
        snapshot = self.liverl.view.snapshot
        # Of verl and of the embedded trainer, the trials of the next step have begun.
        listed = {step.step for step in snapshot.trials.steps} if snapshot is not None else set()
        return sorted(listed.union(self._ended()))

    def _ended(self) -> Sequence[int]:
        """The steps that say how long they took, ascending."""
        series = self._metrics.charts.series.series
        key = key_in("seconds per step", series) or next(
            (key for key in series if key.startswith(PREFIX)), ""
        )
        return series[key].steps if key else ()

    def _times(self) -> dict[int, tuple[dict[str, float], float]]:
        """Of each step that has ended the seconds of its parts, and its own."""
        series = self._metrics.charts.series.series
        wanted = [key for key in series if key.startswith(PREFIX) or key in keys_of("seconds per step")]
        values: dict[int, dict[str, float]] = {step: {} for step in self._ended()}
        for key in wanted:
            for step, value in zip(series[key].steps, series[key].values, strict=True):
                if step in values and math.isfinite(value):
                    values[step][key] = value
        return {
            step: (parts_of(found) or {"other": total}, total)
            for step, found in values.items()
            if (total := seconds_of(found)) is not None
        }

    async def _read_step(self) -> None:
        from liverl.offline.replica_names import names_of
        from liverl.offline.step_timeline import read_step

        pane, steps = self.query_one(StepPane), self._steps()
        ended = self._ended()
        step = self._wanted if self._wanted is not None else next(reversed(ended or steps), None)
        if step is None:
            if self._metrics.done:
                pane.words = self._none_begun
            return
        shown, now = self._shown, time.monotonic()
        same = shown is not None and shown.step == step
        still = shown is not None and not shown.running and not shown.left  # it does not change
        if same and (still or now - self._read_at < LIVE_S):
            return
        if self._metrics.problem:
            pane.words = self._metrics.problem
        snapshot = self.liverl.view.snapshot
        if snapshot is None:
            pane.words = "the state of the run was not read yet"
            return
        path, at = self.liverl.source.run.path, snapshot.at
        ended_at = snapshot.result.ended_at if snapshot.result is not None else None
        self._read_at = now
        try:
            names = await asyncio.to_thread(names_of, snapshot)
            self._shown = await asyncio.to_thread(
                read_step, path, step, self._values(step), names, at, ended_at, snapshot.trials
            )
        except OSError as error:
            pane.words = f"cannot read the step: {error.strerror or error}"
            self._shown = None
        self._drawn = None

    async def _read_notes(self) -> None:
        from liverl.offline.step_notes import StepNotes

        if self._notes is None:
            self._notes = StepNotes(self.liverl.source.run.path)
        try:
            self._marks = await asyncio.to_thread(self._notes.poll)
        except OSError:
            return  # what was read stays; the pane says of the step that it cannot be read

    def _values(self, step: int) -> dict[str, float]:
        series = self._metrics.charts.series.series
        found = {}
        for key, one in series.items():
            if (point := one.at(step)) is not None and point[0] == step:
                found[key] = point[1]
        return found

    def _draw(self) -> None:
        if not self.is_attached:  # it was closed during a reading
            return
        view = self.liverl.view
        snapshot = view.snapshot
        series = self._metrics.charts.series
        notes = _notes(snapshot)
        displayed = self.query_one(StepsPane).display
        state = (
            series.version,
            id(self._shown),
            notes,
            self._metrics.done,
            displayed,
            tuple(self._marks.items()),
        )
        if state == self._drawn:
            return
        self._drawn = state
        pane = self.query_one(StepPane)
        pane.total = snapshot.total_steps if snapshot is not None else None
        pane.notes = notes
        gpus = {gpu.uuid: f"GPU {gpu.index}" for gpu in snapshot.gpus} if snapshot is not None else {}
        pane.take(self._shown, gpus)
        steps = self.query_one(StepsPane)
        steps.marks = self._marks
        steps.notes = notes
        if self._metrics.done and not self._ended():
            yet = "" if self.liverl.view.link == "ended" else " yet"
            steps.words = f"no step says{yet} what its parts took (timing_s/*)"
        if steps.display:
            steps.take(self._times())

    def exporters(self) -> dict[str, Callable[[], str]]:
        """See ``RowsPane.exporters``: the step that is shown, or what all steps took."""
        shown, steps = self._shown, self.query_one(StepsPane)
        if steps.display:
            return {"csv": lambda: as_csv(steps.seconds_table())}
        if shown is None:
            return {}
        return {"json": lambda: msgspec.json.format(msgspec.json.encode(shown), indent=1).decode() + "\n"}

    @property
    def _none_begun(self) -> str:
        return "no step has begun" if self.liverl.view.link == "ended" else "no step has begun yet"

    # -- keys

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: one step is shown, or the list of all of them."""
        steps = self.query_one(StepsPane)
        if not self._steps():
            return self._none_begun if action in ("step", "open") else ""
        if action == "step" and steps.display:
            return f"all steps are shown; {find('timeline', 'open').press} to open the one under the cursor"
        if action == "open" and not steps.display:
            return f"one step is shown already; {find('timeline', 'all_steps').press} to list all steps"
        return "no step has ended yet" if action == "open" and steps.chosen is None else ""

    def action_step(self, by: int) -> None:
        """Show the step ``by`` places further; behind the last one the newest is followed again."""
        steps = self._steps()
        pane = self.query_one(StepPane)
        here = pane.step if pane.step in steps else steps[-1]
        if by > 0 and here == steps[-1]:
            self._wanted = None
            self.liverl.notifications.toast(f"step {here} is the newest one", "warning")
            return
        if by < 0 and here == steps[0]:
            self.liverl.notifications.toast(f"step {here} is the first one", "warning")
            return
        place = max(0, min(len(steps) - 1, steps.index(here) + by))
        self._show_step(steps[place])

    def _show_step(self, step: int) -> None:
        self._wanted = step
        self._poll()

    def action_all_steps(self) -> None:
        """Show all steps as stacked bars, or the one step."""
        step, steps = self.query_one(StepPane), self.query_one(StepsPane)
        steps.display, step.display = not steps.display, steps.display
        self.set_focus(steps if steps.display else step)
        self._drawn = None
        self._draw()
        self.refresh_keys()

    def action_open(self) -> None:
        """In the list of steps: show the one under the cursor."""
        steps = self.query_one(StepsPane)
        if steps.display and steps.chosen is not None:
            self._show_step(steps.chosen)
            self.action_all_steps()

    def action_back(self) -> None:
        """From all steps back to the one; else close the screen."""
        if self.query_one(StepsPane).display:
            self.action_all_steps()
        else:
            self.app.pop_screen()


def _notes(snapshot: Snapshot | None) -> tuple[tuple[str, str], ...]:
    """What the newest steps wait for, or that no bottleneck is named, and what takes longer than before; each with its
    style."""
    time = snapshot.step_time if snapshot is not None else None
    if time is None:
        return ()
    first = (note(time), "warn" if time.bottleneck is not None else "dim")
    return (first, (f"slower: {time.slower}", "warn")) if time.slower else (first,)
