"""One trial, turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from liverl.model import TrialHead
from liverl.observe.trials.files import head_of_file
from liverl.observe.trials.trajectory import Trajectory, TrajectoryReader, no_tools, parser_in_use
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import bindings
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.base.trial_words import flagged, part_of, replica_names
from liverl_tui.widgets.trajectory.document import KINDS, build, raw_blocks
from liverl_tui.widgets.trajectory.flow import START, Place
from liverl_tui.widgets.trajectory.head import header_rows
from liverl_tui.widgets.trajectory.view import TrajectoryView

POLL_S = 1.0  # between two looks at a trial that goes on
AFTERWARDS = 10  # looks at one that has ended: the proxy may still write its last turn


class TrajectoryScreen(RunScreen):
    """``path``: of the trial's directory, relative to the run's. ``trials``: the list it is one of, in its order
    now, for the keys that go to another one (default: the newest); ``among``: what that list is part of.
    ``moved`` hears which one is gone to."""

    scope = "trajectory"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("trajectory")]
    AUTO_FOCUS = "#trajectory"
    DEFAULT_CSS = """
    TrajectoryScreen { layout: vertical; }
    TrajectoryScreen TrajectoryView { width: 1fr; height: 1fr; }
    """

    def __init__(
        self,
        path: str,
        trials: Callable[[], Sequence[TrialHead]] | None = None,
        among: Callable[[], str] | None = None,
        moved: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self.path = path
        self.trajectory: Trajectory | None = None
        self._trials = trials if trials is not None else self._newest
        self._among = among if among is not None else self._among_all
        self._tell = moved
        self._hidden: set[str] = set()
        self._files: dict[str, str] = {}
        self._raw: int | None = None  # the turn whose record is shown ...
        self._came_from = 1  # ... the one from which it was asked for ...
        self._back: tuple[Place, Place] = (START, START)  # ... and where to go back to
        self._reader: TrajectoryReader | None = None
        self._reading = False
        self._quiet = 0  # looks since it has ended
        self._parser: str | None = None
        self._problem = ""
        self._names: dict[str, str] = {}
        self._head: TrialHead | None = None  # as the list had it last
        self._place = ("", "", "")

    def compose(self) -> ComposeResult:
        view = TrajectoryView(id="trajectory")
        view.header, view.open_file = self._header, self._open_file
        yield view
        yield KeyBar()

    @property
    def pane(self) -> TrajectoryView:
        return self.query_one(TrajectoryView)

    def on_mount(self) -> None:
        self._open(self.path)
        self.set_interval(POLL_S, self._look)

    def show(self, view: View) -> None:
        super().show(view)
        names = replica_names(view.snapshot)
        if names != self._names:
            self._names = names
            self._draw()
        if self._find_place() != self._place and self.is_mounted:
            self.pane.update()  # the list has gone on under it

    def _newest(self) -> Sequence[TrialHead]:
        snapshot = self.liverl.view.snapshot
        return snapshot.trials.newest if snapshot is not None else ()

    def _listed(self) -> list[TrialHead]:
        """The list as it is now."""
        trials = list(self._trials())
        self._head = next((head for head in trials if head.path == self.path), self._head)
        return trials

    def _find_place(self) -> tuple[str, str, str]:
        """Its place in the list, what the list is part of, and in words that it is no longer in there."""
        paths = [head.path for head in self._listed()]
        if self.path in paths:
            return f"{paths.index(self.path) + 1}/{len(paths)}", self._among(), ""
        if self._head is None:
            return "", "", ""  # it never was
        newest = self._newest()
        if any(head.path == self.path for head in newest):
            return "", "", "no longer in the list"
        return "", "", f"no longer among the newest {len(newest):,}"

    def _among_all(self) -> str:
        snapshot = self.liverl.view.snapshot
        if snapshot is None:
            return ""
        known = len(snapshot.trials.newest)
        return part_of(known, known, snapshot.trials.total)

    # -- reading

    def _open(self, path: str) -> None:
        """Show another trial."""
        self.path = path
        self.trajectory, self._raw, self._files, self._problem = None, None, {}, ""
        self._reader = TrajectoryReader(self.liverl.source.run.path / path)
        self._reading, self._quiet = False, 0
        self._head = None
        self._listed()
        self.pane.begin()
        self._look()

    def _look(self) -> None:
        if not self._reading and self._quiet < AFTERWARDS and self._reader is not None:
            self._reading = True
            self.run_worker(self._read(self._reader), group="trajectory")

    async def _read(self, reader: TrajectoryReader) -> None:
        problem, found = "", None
        try:
            found = await asyncio.to_thread(reader.read)
            if "zero_tool_calls" in found.flags and self._parser is None:
                self._parser = await asyncio.to_thread(parser_in_use, self.liverl.source.run.path)
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
        if reader is not self._reader:
            return  # another trial is shown by now
        self._reading = False
        if found is not None and not found.running:
            self._quiet += 1
        if (found or self.trajectory) is not self.trajectory or problem != self._problem:
            self.trajectory, self._problem = found or self.trajectory, problem
            self._draw()

    def _draw(self) -> None:
        if not self.is_mounted:
            return
        trajectory = self.trajectory
        self.pane.turns = len(trajectory.turns) if trajectory is not None else 0
        if self._raw is not None:
            self.pane.update()
            return
        if trajectory is None:
            self.pane.update()
            return
        blocks = build(
            trajectory,
            why=no_tools(trajectory, self._parser),
            hidden=self._hidden,
            names=self._names,
            files=self._files,
        )
        self.pane.set_blocks(blocks)

    def _header(self, width: int, facts: str) -> list[Row]:
        self._place = place, among, gone = self._find_place()
        return header_rows(
            width,
            self.path,
            self.trajectory,
            place=place,
            among=among,
            gone=gone,
            facts=facts,
            problem=self._problem,
            hidden=self._hidden,
            raw=self._raw is not None,
            names=self._names,
            link=self.liverl.view.link,
        )

    def _open_file(self, name: str) -> None:
        self.run_worker(self._read_file(self.path, name), group="files")

    async def _read_file(self, path: str, name: str) -> None:
        try:
            text = await asyncio.to_thread(head_of_file, self.liverl.source.run.path / path, name)
        except OSError as error:
            text = f"cannot be read: {error.strerror or error}"
        if path == self.path:
            self._files = {**self._files, name: text}
            self._draw()

    # -- actions

    def action_fold(self) -> None:
        self.pane.fold()

    def action_fold_all(self) -> None:
        self.pane.fold_all()

    def action_hide(self, kind: str) -> None:
        if kind in KINDS:
            self._hidden ^= {kind}
            self._draw()

    def action_find(self) -> None:
        self.pane.find()

    def action_hit(self, by: int) -> None:
        self.pane.go_hit(by)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # Esc goes on to the app, which goes back, when there is nothing of ours to clear
        return action != "clear" or any(pane.looked_for for pane in self.query(TrajectoryView))

    def action_clear(self) -> None:
        self.pane.end_search()

    async def action_turn(self, by: int) -> None:
        if self._raw is None:
            self.pane.go_turn(by)
        else:
            await self._show_record(self._raw + by)

    def action_trial(self, by: int) -> None:
        self._step(by, lambda _head: True)

    def action_flagged(self, by: int) -> None:
        self._step(by, flagged)

    def _step(self, by: int, wanted: Callable[[TrialHead], bool]) -> None:
        """To the next trial in a direction that is ``wanted``: of the list, or by age if it is no longer in there."""
        trials, own = self._listed(), self._head
        here = next((n for n, head in enumerate(trials) if head.path == self.path), None)
        if here is not None:
            others = trials[here + 1 :] if by > 0 else trials[:here][::-1]
        elif own is not None and by > 0:
            others = sorted((head for head in trials if _when(head) < _when(own)), key=_when, reverse=True)
        elif own is not None:
            others = sorted((head for head in trials if _when(head) > _when(own)), key=_when)
        else:
            others = trials[::by]
        found = next((head for head in others if wanted(head)), None)
        if found is None:
            self.notify("no other flagged trial" if wanted is flagged else "no other trial", timeout=2)
            return
        self._open(found.path)
        self._head = found
        if self._tell is not None:
            self._tell(found.path)

    async def action_raw(self) -> None:
        """The record of the turn under the cursor as it stands in the file, and back."""
        if self._raw is None:
            self._back, self._came_from = self.pane.places, self.pane.turn
            await self._show_record(self._came_from)
            return
        turn, self._raw = self._raw, None
        self._draw()
        if turn == self._came_from:
            self.pane.places = self._back
        else:
            self.pane.to_turn(turn)

    async def _show_record(self, number: int) -> None:
        """The record of a turn, where there is that turn."""
        reader, trajectory = self._reader, self.trajectory
        if reader is None or trajectory is None or not 1 <= number <= len(trajectory.turns):
            return
        self._raw, turn = number, trajectory.turns[number - 1]
        try:
            text = await asyncio.to_thread(reader.raw_record, turn)
        except OSError as error:
            text = f"cannot be read: {error.strerror or error}"
        if self._raw == number and reader is self._reader:
            self.pane.set_blocks(raw_blocks(turn, text))
            self.pane.action_first()


def _when(head: TrialHead) -> tuple[int, float, str]:
    """How new a trial is, to compare it with others."""
    return -1 if head.step is None else head.step, head.started_at or head.updated_at, head.path
