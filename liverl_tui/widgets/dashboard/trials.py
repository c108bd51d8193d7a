"""The trajectories pane: the newest trials, all trials of one step, or a line per step."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType

from liverl.model import TrialHead, TrialsStatus
from liverl.observe.trials.scanner import cut_off_head
from liverl.observe.trials.steps import equal_groups, heads_of_step, steps_on_disk
from liverl_tui.data.host import host_of
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import bindings
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.base.prompt import TitlePrompt
from liverl_tui.widgets.base.rows import RowsPane
from liverl_tui.widgets.base.trial_words import Tally, part_of, replica_names, tally_heads, tally_of
from liverl_tui.widgets.dashboard.trial_rows import (
    ORDERS,
    Known,
    arrange,
    step_head,
    step_row,
    trial_head,
    trial_row,
)

AGAIN_S = 5.0  # between two readings of a step that goes on; longer where reading takes long
_GAP = " · "  # between the parts of the title
_STEP = "step:"  # begins the names of the rows of the table of steps


class TrialsPane(RowsPane):
    """``trials``: what is shown, in its order."""

    scope = "trials"
    title = "Trajectories"
    number = "4"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("trials"), Binding("escape", "up_a_level", show=False)]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view = View()
        self._clock = Clock()
        self._known = Known()
        self._status = TrialsStatus()
        self._prompt = TitlePrompt()
        self._only_flagged = False
        self._order = 0
        self._table = False  # a line per step
        self._step: int | None = None  # all trials of this one; None = the newest of all
        self._read: dict[str, TrialHead] = {}  # of that step
        self._busy = False
        self._read_at = self._read_took = 0.0
        self._problem = ""
        self._names: list[str] = []
        self._heads: dict[str, TrialHead] = {}
        self._tallies: dict[str, Tally] = {}
        self._tally = Tally(None)  # of the chosen step
        self._at_top = True  # the cursor is on the first row, whichever that is
        self._at_end = False  # it was put on the last row

    # -- what is shown

    @property
    def trials(self) -> list[TrialHead]:
        """Those that are listed, in this order."""
        return [self._heads[name] for name in self._names if name in self._heads]

    def trials_now(self) -> list[TrialHead]:
        """The same as it is now, though another screen is seen and nothing is drawn here."""
        self._take(host_of(self).view)
        return self.trials

    def show(self, view: View) -> None:
        self._take(view)
        self.update()

    def _take(self, view: View) -> None:
        before, self._view = self._view, view
        self._clock.take(view)
        if view is not before:
            status = view.snapshot.trials if view.snapshot is not None else TrialsStatus()
            known = self._known.link, self._known.names
            if status != self._status or known != (view.link, replica_names(view.snapshot)):
                self._status = status
                self._arrange()
            self._refresh_step()
        self._known = replace(self._known, now=self._clock.now())

    def _arrange(self) -> None:
        """What there is to show, from what is known."""
        trials = self._status.newest if self._step is None else self._of_step()
        equal = equal_groups(trials if self._step is not None else self._whole_steps())
        self._known = Known(self._clock.now(), self._view.link, replica_names(self._view.snapshot), equal)
        tallies = [tally_of(told) for told in self._status.steps]
        self._tallies = {f"{_STEP}{tally.step}": tally for tally in tallies}
        shown = arrange(trials, self._order, self._prompt.text, self._only_flagged, equal)
        self._heads = {head.path: head for head in shown}
        self._names = list(self._tallies if self._table else self._heads)
        self._tally = tally_heads(self._step, trials) if self._step is not None else Tally(None)

    def _whole_steps(self) -> list[TrialHead]:
        """The newest trials, of steps of which they are all: only these can be compared."""
        shown = Counter(head.step for head in self._status.newest)
        whole = {told.step for told in self._status.steps if shown[told.step] == told.total}
        return [head for head in self._status.newest if head.step in whole]

    def _of_step(self) -> list[TrialHead]:
        """All trials of the chosen step: those that were read, and what the snapshot knows better."""
        over = self._status.cut_off > 0  # nobody will finish what the files know no end of
        known = {path: cut_off_head(head) if over else head for path, head in self._read.items()}
        known.update((head.path, head) for head in self._status.newest if head.step == self._step)
        return sorted(known.values(), key=lambda h: (h.started_at or h.updated_at, h.path), reverse=True)

    # -- title and rows

    def facts(self) -> tuple[str, str]:
        (words, *more), style = self._summary()
        parts = [self._prompt.shown, self._problem, words]
        if not self._table:
            parts.append("" if self._order == 0 else f"by {ORDERS[self._order][0]}")
            parts.append("flagged only" if self._only_flagged else "")
        return _GAP.join(part for part in (*parts, *more) if part), "warn" if self._problem else style

    def title_words(self, width: int, facts: str, window: tuple[int, int] | None, total: int) -> str:
        """What does not fit is left out whole: what stands last comes last."""
        places = [""]
        if window is not None:
            place = f"{window[0] + 1}-{window[1]} of "
            places = [f"  {place}{words}" for words in self._total_words(total)]
        parts = facts.split(_GAP)
        said = [_GAP.join(parts[:kept]) for kept in range(len(parts), 0, -1)]
        forms = [said[0] + places[0], *(words + places[-1] for words in said), said[-1]]
        room = width - len(f" {self.number} {self.title} ") - 2
        return next((form for form in forms if cell_len(form.strip()) <= room), forms[-1]).strip()

    def _total_words(self, total: int) -> tuple[str, str]:
        """How many rows there are, the long form and the short one: of the newest trials, only so many are known."""
        known = len(self._status.newest)
        if self._table or self._step is not None or known >= self._status.total:
            return str(total), str(total)
        if total < known:  # some are left out
            return f"{total} in the newest {known}", f"{total}+"
        return f"the newest {known} of {self._status.total:,}", f"{total}+"

    @property
    def among(self) -> str:
        """What the trials are part of, where only so many of the newest are known: `` newest of 1,240``."""
        if self._step is not None:
            return ""
        return part_of(len(self.trials), len(self._status.newest), self._status.total)

    def _summary(self) -> tuple[list[str], str]:
        """How the trials go, the most important words first, and their style."""
        if self._step is not None:
            if self._busy and not self._tally.total:
                return [f"reading step {self._step} …"], "info"
            words = _words(f"all of step {self._step}", self._tally)
            return words, self._tally.style if self._tally.zero else "dim"
        decided = next((t for t in self._tallies.values() if t.decided), None)
        status = self._status
        if decided is not None:
            words = _words(f"step {decided.step}", decided)
            more = status.zero_tool_calls - decided.zero
            words += [f"{more} earlier do not"] if more > 0 else []
            return words, decided.style if decided.zero else "dim"
        if not status.total:
            return [""], "dim"
        if status.zero_tool_calls:  # trials that belong to no step
            return [f"▲ {status.zero_tool_calls} of {status.total} trials call no tool"], "warn"
        cut = f", {status.cut_off} cut off" if status.cut_off else ""
        return [f"{status.total} trials, {status.running} running{cut}"], "dim"

    def keys(self) -> Sequence[str]:
        return self._names

    def head(self, width: int) -> Row | None:
        return step_head(width) if self._table else trial_head(width)

    def row(self, key: str, width: int) -> Row:
        if self._table:
            return step_row(self._tallies[key], width)
        return trial_row(self._heads[key], width, self._known)

    def empty(self, width: int) -> Iterable[Row]:
        if self._busy:
            return ()
        if self._prompt.text or self._only_flagged:
            flagged = "flagged " if self._only_flagged else ""
            said = f"no {flagged}trial matches" if self._prompt.text else "no trial is flagged"
            return (Row((f"  {said}", "dim")),)
        if self._view.snapshot is None:
            return ()
        return (Row(("  no trial has begun yet", "dim")),)

    def copy_line(self) -> str:
        """The path of the trial; a line of the table as it stands."""
        key = self.cursor
        if key is None or self._table:
            return super().copy_line()
        return str(self._run_dir / self._heads[key].path)

    @property
    def _run_dir(self) -> Path:
        return host_of(self).source.run.path

    # -- the cursor: it goes along with the newest trials, on the first row. Moved off it, it stays with its trial,
    #    while there is that trial and the pane has the focus.

    def _settle(self, keys: Sequence[str]) -> None:
        elsewhere = self.app.app_focus and self.screen.focused is not self  # not: the terminal has no focus
        if elsewhere or not (self._at_end or self._cursor in keys):
            self._at_top = True
        if self._at_top and keys:
            self._cursor = keys[0]
        super()._settle(keys)

    def _go(self, place: int) -> None:
        self._at_top, self._at_end = place <= 0, place >= len(self.keys()) - 1
        if self.screen.focused is not self:
            self.screen.set_focus(self)  # by the wheel: a list that is looked through is at work
        super()._go(place)

    def select(self, key: str) -> None:
        self._at_top = self._at_end = False
        super().select(key)

    # -- typing a filter

    def on_key(self, event: events.Key) -> None:
        if self._prompt.open:
            self._prompt.key(event)
            self._show_again()

    def on_paste(self, event: events.Paste) -> None:
        if self._prompt.open:
            event.stop()
            self._prompt.paste(event.text)
            self._show_again()

    def on_blur(self) -> None:
        self._prompt.open = False

    def _show_again(self) -> None:
        self._arrange()
        self.update()

    # -- actions

    def action_select(self) -> None:
        key = self.cursor
        if key is None:
            return
        if self._table:
            self._table = False
            self._open_step(int(key.removeprefix(_STEP)))
            return
        self.select(key)  # also of the first row: back from it, the cursor is where it was
        host_of(self).navigation.open_trial(
            key, trials=self.trials_now, among=lambda: self.among, moved=self.select
        )

    def action_filter(self) -> None:
        self._table = False
        self._prompt.begin()
        self._show_again()

    def action_flagged(self) -> None:
        self._table = False
        self._only_flagged = not self._only_flagged
        self._show_again()

    def action_sort(self) -> None:
        self._table = False
        self._order = (self._order + 1) % len(ORDERS)
        self._at_top = True
        self._show_again()

    def action_steps(self) -> None:
        self._table = not self._table
        self._at_top = True
        self._show_again()

    def action_up_a_level(self) -> None:
        """One level up: out of the table, the filter, the step; then out of the pane."""
        if self._table:
            self._table = False
        elif self._prompt.text or self._only_flagged:
            self._prompt.clear()
            self._only_flagged = False
        elif self._step is not None:
            self._to_newest()
        else:
            host_of(self).navigation.action_back()
        self._show_again()

    def action_older(self) -> None:
        self._turn_page(-1)

    def action_newer(self) -> None:
        self._turn_page(1)

    # -- one step, read from its files

    def _turn_page(self, by: int) -> None:
        self.run_worker(self._other_step(by), group="trials", exclusive=True)

    async def _other_step(self, by: int) -> None:
        """The next older or newer step; newer than the newest is the live view."""
        try:
            steps = await asyncio.to_thread(steps_on_disk, self._run_dir)
        except OSError as error:
            self._problem = _complaint(error)
            self._show_again()
            return
        steps = sorted({*steps, *(told.step for told in self._status.steps)})
        if self._step is None:
            found = steps[-1:] if by < 0 else []
        else:
            here = self._step
            found = [s for s in steps if s < here][-1:] if by < 0 else [s for s in steps if s > here][:1]
        if found:
            self._open_step(found[0])
        elif by > 0:
            self._to_newest()

    def _open_step(self, step: int) -> None:
        self._step, self._read, self._table, self._at_top = step, {}, False, True
        self._read_at = self._read_took = 0.0
        self._begin_reading()
        self._show_again()

    def _to_newest(self) -> None:
        self._step, self._busy, self._at_top = None, False, True
        self._show_again()

    def _refresh_step(self) -> None:
        """Read a step that goes on again, where the newest trials do not hold all of it."""
        if (
            self._step is None
            or self._busy
            or time.monotonic() < self._read_at + max(AGAIN_S, 20 * self._read_took)
        ):
            return
        told = next((t for t in self._status.steps if t.step == self._step), None)
        known = self._tally.total, self._tally.running
        if told is not None and (told.total, told.total - told.finished - told.cut_off) != known:
            self._begin_reading()

    def _begin_reading(self) -> None:
        self._busy = True
        assert self._step is not None
        self.run_worker(self._read_step(self._step), group="trials-of-step", exclusive=True)

    async def _read_step(self, step: int) -> None:
        begun = time.monotonic()
        found: list[TrialHead] = []
        try:
            found = await asyncio.to_thread(heads_of_step, self._run_dir, step)
            problem = ""
        except OSError as error:
            problem = _complaint(error)
        if step != self._step:
            return  # its reader has gone on
        self._read = {head.path: head for head in found}
        self._busy, self._problem = False, problem
        self._read_at = time.monotonic()
        self._read_took = self._read_at - begun
        self._show_again()


def _complaint(error: OSError) -> str:
    return f"▲ cannot read the trials: {error.strerror or error}"


def _words(of: str, tally: Tally) -> list[str]:
    words = [f"{of}: {tally.share if tally.decided else f'{tally.total} trials'}"]
    words += [f"{tally.running} running"] if tally.running else []
    words += [f"{tally.cut_off} cut off"] if tally.cut_off else []
    return words + ([f"{tally.undecided} no call yet"] if tally.decided and tally.undecided else [])
