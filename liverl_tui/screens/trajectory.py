"""The trajectory screen: one trial, turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import BindingType

from liverl.model import TrialHead
from liverl.observe.trials.dumped_trajectory import Reader, reader_of
from liverl.observe.trials.engine_parser import EngineParser, engine_parser
from liverl.observe.trials.files import head_of_file
from liverl.observe.trials.pairing import opposite
from liverl.observe.trials.trajectory import Trajectory, no_tools
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import bindings, find
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.base.trial_words import flagged, part_of, replica_names
from liverl_tui.widgets.header.header import Header
from liverl_tui.widgets.trajectory.document import KINDS, build, raw_blocks
from liverl_tui.widgets.trajectory.flow import START, Place
from liverl_tui.widgets.trajectory.head import header_rows
from liverl_tui.widgets.trajectory.view import TrajectoryView

POLL_S = 1.0  # seconds between two reads of a trial's files
READS_AFTER_END = 10  # reads after a trial has ended: the proxy may still write its last turn


class TrajectoryScreen(RunScreen):
    """Shows the messages, tool calls and files of one trial while its files grow; keys open the neighbours in a list.

    ``path``: the trial's directory, relative to the run's. ``trials``: returns the list that contains the trial, in
    its present order (default: the newest trials of the snapshot). ``among``: returns words for what that list is a
    part of, such as `` newest of 1,240``. ``moved``: called with the path of another trial that was opened here.
    """

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
        self._moved = moved
        self._hidden: set[str] = set()  # kinds of parts
        self._files: dict[str, str] = {}  # name -> text, of the files that were opened
        self._raw: int | None = None  # the turn whose raw record is shown; None = the trajectory is shown
        # The turn at the cursor, and (top, cursor) of the trajectory, when the first raw record was opened.
        self._raw_from = 1
        self._places_before_raw: tuple[Place, Place] = (START, START)
        self._reader: Reader | None = None
        self._reading = False
        self._reads_after_end = 0  # reads since the trial has ended
        self._parser = EngineParser()  # the tool parser in use; read once a trial has no tool calls
        self._problem = ""  # why the last read failed
        self._names: Mapping[str, str] = {}  # replicas by root address
        self._head: TrialHead | None = None  # of the shown trial, as the list had it last
        self._place = ("", "", "")  # as drawn; see ``_find_place``

    def compose(self) -> ComposeResult:
        """The trajectory, above the key bar."""
        view = TrajectoryView(id="trajectory")
        view.header, view.open_file = self._header, self._open_file
        yield Header()
        yield view
        yield KeyBar()

    @property
    def pane(self) -> TrajectoryView:
        """The widget that shows the trajectory."""
        return self.query_one(TrajectoryView)

    def on_mount(self) -> None:
        """Read the trial now and every ``POLL_S`` seconds."""
        self._open(self.path)
        self.set_interval(POLL_S, self._poll)

    def show(self, view: View) -> None:
        """Take the names of the replicas, and the trial's new place in the list."""
        super().show(view)
        names = replica_names(view.snapshot)
        if names != self._names:
            self._names = names
            self._draw()
        if self._find_place() != self._place and self.is_mounted:
            self.pane.update()  # the header says the place

    def _newest(self) -> Sequence[TrialHead]:
        snapshot = self.liverl.view.snapshot
        return snapshot.trials.newest if snapshot is not None else ()

    def _listed(self) -> list[TrialHead]:
        """Return the list that contains the trial as it is now; keep the trial's own entry in ``_head``."""
        trials = list(self._trials())
        self._head = next((head for head in trials if head.path == self.path), self._head)
        return trials

    def _find_place(self) -> tuple[str, str, str]:
        """Return the trial's place in the list (``3/200``), what the list is part of, and words that it is no longer
        in the list; each may be empty."""
        paths = [head.path for head in self._listed()]
        if self.path in paths:
            return f"{paths.index(self.path) + 1}/{len(paths)}", self._among(), ""
        if self._head is None:
            return "", "", ""  # the trial was never in the list
        newest = self._newest()
        if any(head.path == self.path for head in newest):
            return "", "", "no longer in the list"
        return "", "", f"no longer among the newest {len(newest):,}"

    def _among_all(self) -> str:
        """Return words for how many of all trials the newest ones are."""
        snapshot = self.liverl.view.snapshot
        if snapshot is None:
            return ""
        count = len(snapshot.trials.newest)
        return "" if count == snapshot.trials.total else part_of(count, count, snapshot.trials.total)

    # -- reading

    def _open(self, path: str) -> None:
        """Show the trial at ``path``, from its beginning."""
        self.path = path
        self.trajectory, self._raw, self._files, self._problem = None, None, {}, ""
        self._reader = reader_of(self.liverl.source.run.path / path)
        self._reading, self._reads_after_end = False, 0
        self._head = None
        self._listed()
        self.pane.begin()
        self._poll()

    def _poll(self) -> None:
        if not self._reading and self._reads_after_end < READS_AFTER_END and self._reader is not None:
            self._reading = True
            self.run_worker(self._read(self._reader), group="trajectory")

    async def _read(self, reader: Reader) -> None:
        problem, trajectory = "", None
        try:
            trajectory = await asyncio.to_thread(reader.read)
            if "zero_tool_calls" in trajectory.flags and self._parser.name is None:
                self._parser = await asyncio.to_thread(engine_parser, self.liverl.source.run.path)
        except OSError as error:
            problem = f"cannot read this trial: {error.strerror or error}"
        if reader is not self._reader:
            return  # another trial was opened meanwhile
        self._reading = False
        if trajectory is not None and not trajectory.running:
            self._reads_after_end += 1
        if (trajectory or self.trajectory) is not self.trajectory or problem != self._problem:
            self.trajectory, self._problem = trajectory or self.trajectory, problem
            self._draw()

    def _draw(self) -> None:
        """Draw the trajectory; while a raw record is shown, only the header."""
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
            why=no_tools(trajectory, self._parser.name, self._parser.place),
            hidden=self._hidden,
            names=self._names,
            files=self._files,
        )
        self.pane.set_blocks(blocks)

    def _with_step(self) -> Trajectory | None:
        """The trajectory with the step that the list has where its own files tell none, as in a flat folder."""
        step = None if self._head is None else self._head.step
        if self.trajectory is None or self.trajectory.step is not None or step is None:
            return self.trajectory
        return msgspec.structs.replace(self.trajectory, step=step)

    def _header(self, width: int, facts: str) -> list[Row]:
        """Return the rows above the trajectory; ``facts`` are the view's words for search and turn."""
        self._place = place, among, missing = self._find_place()
        return header_rows(
            width,
            self.path,
            self._with_step(),
            place=place,
            among=among,
            gone=missing,
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
        """Read the head of a file of the trial at ``path``, and show it unless another trial was opened meanwhile."""
        try:
            text = await asyncio.to_thread(head_of_file, self.liverl.source.run.path / path, name)
        except OSError as error:
            text = f"cannot read {name}: {error.strerror or error}"
        if path == self.path:
            self._files = {**self._files, name: text}
            self._draw()

    # -- actions

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: the trial was read, and hits need a search."""
        needs = ("fold", "fold_all", "hide", "find", "hit", "turn", "raw")
        if action in needs and self.trajectory is None:
            return "the trial is not read"
        if action in ("raw", "turn") and self.trajectory is not None and not self.trajectory.turns:
            return "this trial has no turn"
        if action == "hit" and not self.pane.looked_for:
            return f"nothing is searched for; {find('trajectory', 'find').press} to find a text"
        return ""

    def action_fold(self) -> None:
        """Open or close the part under the cursor; on a rule, all parts up to the next rule."""
        self.pane.fold()

    def action_fold_all(self) -> None:
        """Open all parts but files, or restore the state in which the trial was opened."""
        self.pane.fold_all()

    def action_hide(self, kind: str) -> None:
        """Show or hide the parts of one kind; ``kind`` is one of ``KINDS``, others do nothing."""
        if kind in KINDS:
            self._hidden ^= {kind}
            self._draw()

    def action_find(self) -> None:
        """Begin to type a text to search for."""
        self.pane.find()

    def action_hit(self, by: int) -> None:
        """Go to the next (1) or previous (-1) match, around the end."""
        self.pane.go_hit(by)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Refuse ``clear`` while nothing is searched for: Esc then reaches the app, which closes this screen."""
        return action != "clear" or any(pane.looked_for for pane in self.query(TrajectoryView))

    def action_clear(self) -> None:
        """End the search, and remove its marks."""
        self.pane.end_search()

    async def action_turn(self, by: int) -> None:
        """Go to the next (1) or previous (-1) turn; among raw records, to that turn's record."""
        if self._raw is None:
            self.pane.go_turn(by)
        else:
            await self._show_record(self._raw + by)

    def action_tokens(self) -> None:
        """Show the tokens of the trial, from the turn under the cursor on."""
        turn = self._raw if self._raw is not None else self.pane.turn
        self.liverl.navigation.open_tokens(self.path, turn if turn > 1 else 0)

    def action_pair(self) -> None:
        """Show the trial beside the best one of its prompt, the best one beside the worst: out of all trials of its
        step, also of those that a filter hides."""
        self.run_worker(self._open_pair(self.path, self._listed()), group="pair", exclusive=True)

    async def _open_pair(self, path: str, listed: Sequence[TrialHead]) -> None:
        step = self._head.step if self._head is not None else None
        lists = (await self._of_step(step), self._newest(), listed)
        found = next((pair for heads in lists if (pair := opposite(heads, path)) is not None), None)
        if found is None:
            self.liverl.notifications.toast("no other trial of this prompt has a reward", "warning")
        else:
            self.liverl.navigation.open_pair(*(head.path for head in found))

    async def _of_step(self, step: int | None) -> list[TrialHead]:
        """All trials of a step: the newest ones of the run, if the step's are all among them, else as their files say;
        none if the step is not known, or they cannot be read."""
        if step is None:
            return []
        snapshot = self.liverl.view.snapshot
        newest = [head for head in self._newest() if head.step == step]
        counted = snapshot.trials.steps if snapshot is not None else ()
        if newest and any((one.step, one.total + one.earlier) == (step, len(newest)) for one in counted):
            return newest
        from liverl.observe.trials.steps import heads_of_step

        try:
            return await asyncio.to_thread(heads_of_step, self.liverl.source.run.path, step)
        except OSError:
            return []

    def action_trial(self, by: int) -> None:
        """Open the next (1) or previous (-1) trial of the list."""
        self._step(by, lambda _head: True)

    def action_flagged(self, by: int) -> None:
        """Open the next (1) or previous (-1) flagged trial of the list."""
        self._step(by, flagged)

    def _step(self, by: int, wanted: Callable[[TrialHead], bool]) -> None:
        """Open the next trial of the list that is ``wanted``; ``by``: 1 = further down, -1 = further up. If the shown
        trial is no longer in the list, the next older or newer one of the list."""
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
        target = next((head for head in others if wanted(head)), None)
        if target is None:
            text = "no other flagged trial" if wanted is flagged else "no other trial"
            self.liverl.notifications.toast(text, "warning")
            return
        self._open(target.path)
        self._head = target
        if self._moved is not None:
            self._moved(target.path)

    async def action_raw(self) -> None:
        """Show the raw JSON record of the turn under the cursor, or the trajectory again: at the place that was left,
        or at the turn that was gone to meanwhile."""
        if self._raw is None:
            self._places_before_raw, self._raw_from = self.pane.places, self.pane.turn
            await self._show_record(self._raw_from)
            return
        turn, self._raw = self._raw, None
        self._draw()
        if turn == self._raw_from:
            self.pane.places = self._places_before_raw
        else:
            self.pane.to_turn(turn)

    async def _show_record(self, number: int) -> None:
        """Show the raw record of turn ``number``, counted from 1; do nothing if there is no such turn."""
        reader, trajectory = self._reader, self.trajectory
        if reader is None or trajectory is None or not 1 <= number <= len(trajectory.turns):
            return
        self._raw, turn = number, trajectory.turns[number - 1]
        try:
            text = await asyncio.to_thread(reader.raw_record, turn)
        except OSError as error:
            text = f"cannot read the record of turn {number}: {error.strerror or error}"
        if self._raw == number and reader is self._reader:
            self.pane.set_blocks(raw_blocks(turn, text))
            self.pane.action_first()


def _when(head: TrialHead) -> tuple[int, float, str]:
    """Return a key that sorts trials from old to new; those without a step come first."""
    return -1 if head.step is None else head.step, head.started_at or head.updated_at, head.path
