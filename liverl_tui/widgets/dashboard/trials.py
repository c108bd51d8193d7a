"""The trajectories pane: the newest trials, all trials of one step, or a line per step."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import msgspec
from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType

from liverl.model import TrialHead, TrialsStatus
from liverl.observe.trials.cut_off import cut_off_head
from liverl.observe.trials.steps import equal_groups, heads_of_step, steps_on_disk
from liverl_tui.data.host import host_of
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import bindings, find
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.base.prompt import TitlePrompt
from liverl_tui.widgets.base.rows import RowsPane
from liverl_tui.widgets.base.trial_words import Tally, part_of, replica_names, state_of, tally_heads, tally_of
from liverl_tui.widgets.dashboard.trial_groups import group_head, group_row, lone_row
from liverl_tui.widgets.dashboard.trial_listing import UNTOUCHED, Listing, grouped_listing, plain_listing
from liverl_tui.widgets.dashboard.trial_rows import (
    ORDERS,
    RowContext,
    arrange,
    step_head,
    step_row,
    trial_head,
    trial_row,
    untouched_row,
)
from liverl_tui.widgets.dashboard.trial_title import newest_words, sentence, short_sentence

AGAIN_S = 5.0  # seconds between two readings of a running step, or 20 times as long as one reading takes
_GAP = " · "  # between the parts of the title
_STEP = "step:"  # prefix of the keys of rows in the table of steps


class TrialsPane(RowsPane):
    """Lists the newest trials, all trials of one step, or one line per step.

    The newest trials come with the snapshot; the trials of a step are read from its directory. Groups with flagged
    trials are first, then those of the newest step, and one row stands for all that have no turn yet. In another order
    than the first, and where a filter chooses trials, each has a row of its own. The cursor is on the first row and
    follows the list until it is moved; then it stays on its row as long as that is listed and the pane has the focus.
    """

    scope = "trials"
    title = "Trajectories"
    number = find("dashboard", "jump('trials')").name
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("trials"), Binding("escape", "up_a_level", show=False)]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view = View()
        self._clock = Clock()
        self._row_context = RowContext()
        self._status = TrialsStatus()
        self._prompt = TitlePrompt()
        self._only_flagged = False
        self._order = 0
        self._table = False  # show one line per step
        self._step: int | None = None  # list all trials of this step; None: the newest trials of all steps
        self._read: dict[str, TrialHead] = {}  # heads of that step from its files, by path
        self._busy = False  # a step is being read
        self._read_at = self._read_took = 0.0  # end (monotonic) and seconds of the last reading
        self._problem = ""
        self._names: list[str] = []
        self._listing = Listing()
        self._tallies: dict[str, Tally] = {}
        self._tally = Tally(None)  # of the chosen step, from what was read
        self._grouped = True
        self._opened: set[str] = set()  # the groups whose trials have rows
        self._listed_all = False  # trials without a turn have rows of their own
        self._at_top = True  # the cursor stays on the first row, whichever trial that is
        self._at_end = False  # the cursor was moved to the last row

    # -- what is shown

    @property
    def trials(self) -> list[TrialHead]:
        """The listed trials, in their order, also those in groups that are closed."""
        return list(self._listing.trials.values())

    def trials_now(self) -> list[TrialHead]:
        """The listed trials according to the newest view, also while another screen covers this pane. Called by the
        trajectory screen to go to the next trial."""
        self._take(host_of(self).view)
        return self.trials

    def show(self, view: View) -> None:
        """Take a view; reads the chosen step again where that has changed."""
        self._take(view)
        self.update()

    def _take(self, view: View) -> None:
        before, self._view = self._view, view
        self._clock.take(view)
        if view is not before:
            status = view.snapshot.trials if view.snapshot is not None else TrialsStatus()
            drawn_with = self._row_context.link, self._row_context.names
            if status != self._status or drawn_with != (view.link, replica_names(view.snapshot)):
                self._status = status
                self._arrange()
            self._refresh_step()
        self._row_context = replace(self._row_context, now=self._clock.now())

    def _arrange(self) -> None:
        """Compute tallies, rows and their order from the status and the trials that were read."""
        trials = self._status.newest if self._step is None else self._of_step()
        equal = equal_groups(trials if self._step is not None else self._whole_steps())
        self._row_context = RowContext(
            self._clock.now(), self._view.link, replica_names(self._view.snapshot), equal
        )
        tallies = [tally_of(step) for step in self._status.steps]
        self._tallies = {f"{_STEP}{tally.step}": tally for tally in tallies}
        shown = arrange(trials, self._order, self._prompt.text, self._only_flagged, equal)
        if self._order == 0 and not self._prompt.text and not self._only_flagged:
            self._listing = grouped_listing(shown, self._grouped, self._opened, self._listed_all)
        else:
            self._listing = plain_listing(shown)
        self._names = list(self._tallies) if self._table else list(self._listing.names)
        self._tally = tally_heads(self._step, trials) if self._step is not None else Tally(None)

    def _whole_steps(self) -> list[TrialHead]:
        """The newest trials, of those steps only of which all trials are among the newest: only these can be
        compared."""
        newest = Counter(head.step for head in self._status.newest if not head.earlier)
        complete = {step.step for step in self._status.steps if newest[step.step] == step.total}
        return [head for head in self._status.newest if head.step in complete]

    def _of_step(self) -> list[TrialHead]:
        """All trials of the chosen step, newest first: those that were read, updated by the snapshot's heads."""
        over = self._status.cut_off > 0  # trials whose files have no end will not be finished any more
        heads = {path: cut_off_head(head) if over else head for path, head in self._read.items()}
        for head in self._status.newest:
            if head.step == self._step:
                # Within a step that is still to be begun again, no trial is an earlier one.
                earlier = heads[head.path].earlier if head.path in heads else head.earlier
                heads[head.path] = msgspec.structs.replace(head, earlier=earlier)
        return sorted(heads.values(), key=lambda h: (h.started_at or h.updated_at, h.path), reverse=True)

    # -- room

    @property
    def wanted_rows(self) -> int:
        """Two rows while the run has no trials; else the rows of a short list."""
        return 8 if self._status.total else 2

    @property
    def least_rows(self) -> int:
        """Two rows while the run has no trials; else the rows of the shortest list of use."""
        return min(4, self.wanted_rows)

    # -- title and rows

    def facts(self) -> tuple[str, str]:
        """Filter text, problem, tally of the step, order and filter, joined by ``_GAP``; and their style."""
        (words, *more), style = self._summary()
        parts = [self._prompt.shown, self._problem, words]
        if not self._table:
            parts.append("" if self._order == 0 else ORDERS[self._order][0])
            parts.append("flagged only" if self._only_flagged else "")
            parts.append("" if self._grouped else "ungrouped")
        return _GAP.join(part for part in (*parts, *more) if part), "warn" if self._problem else style

    def title_words(self, width: int, facts: str, window: tuple[int, int] | None, total: int) -> str:
        """See ``RowsPane.title_words``. Where the title is too narrow, whole facts are left out, the last one
        first."""
        places = [""]
        if window is not None:
            place = f"{window[0] + 1}-{window[1]} of "
            places = [f"  {place}{words}" for words in self._total_words(total)]
        parts = facts.split(_GAP)
        texts = [_GAP.join(parts[:kept]) for kept in range(len(parts), 0, -1)]
        forms = [
            texts[0] + places[0],
            *(text + places[-1] for text in texts),
            *texts[-1:],
            *self._short_title(),
        ]
        room = width - len(f" {self.number} {self.title} ") - 2
        return next((form for form in forms if cell_len(form.strip()) <= room), forms[-1]).strip()

    def _total_words(self, total: int) -> tuple[str, str]:
        """The number of rows in a long and a short form; only the newest trials are known, so it may be a part of
        all."""
        newest = len(self._status.newest)
        if self._table or self._step is not None or newest >= self._status.total:
            return str(total), str(total)
        if self._listing.groups:
            return f"{total} rows, the newest {newest} of {self._status.total:,} trials", f"{total}+"
        if total < newest:  # a filter hides some
            return f"{total} in the newest {newest}", f"{total}+"
        return f"the newest {newest} of {self._status.total:,}", f"{total}+"

    @property
    def among(self) -> str:
        """What the listed trials are a part of, where not all trials are known: `` newest of 1,240``; else empty."""
        if self._step is not None:
            return ""
        return part_of(len(self.trials), len(self._status.newest), self._status.total)

    def _summary(self) -> tuple[list[str], str]:
        """(texts, style): how the trials of the step go, the most important text first."""
        snapshot = self._view.snapshot
        planned = snapshot.trials_per_step if snapshot is not None else None
        if self._step is None:
            return newest_words(self._status, list(self._tallies.values()), planned)
        if self._busy and not self._tally.total:
            return [f"reading step {self._step} …"], "info"
        words = [sentence(self._tally, planned, "all of ")]
        words += [f"{self._tally.earlier} of an earlier attempt"] if self._tally.earlier else []
        return words, self._tally.style if self._tally.zero else "dim"

    def _short_title(self) -> list[str]:
        tallies = [self._tally] if self._step is not None else list(self._tallies.values())[:1]
        plain = not (self._prompt.shown or self._problem)
        return [short_sentence(tally) for tally in tallies if plain and tally.total]

    def keys(self) -> Sequence[str]:
        """Paths of the listed trials relative to the run directory; in the table of steps ``step:N``."""
        return self._names

    def head(self, width: int) -> Row | None:
        """The column heads of the trials, of groups if these come first, or of the table of steps."""
        if self._table:
            return step_head(width)
        return group_head(width) if self._folded else trial_head(width)

    @property
    def _folded(self) -> bool:
        """Whether groups come first and none is open: then all rows have the columns of groups."""
        return bool(self._names) and not self._opened and self._names[0] in (*self._listing.groups, UNTOUCHED)

    def row(self, key: str, width: int) -> Row:
        """One trial, one group or one step as a line."""
        if self._table:
            return step_row(self._tallies[key], width)
        if key == UNTOUCHED:
            state = state_of(self._listing.untouched[0], self._view.link)
            return untouched_row(len(self._listing.untouched), state, find("trials", "select").mention)
        if (group := self._listing.groups.get(key)) is not None:
            equal = group.key in self._row_context.equal
            ended = self._view.link == "ended"
            return group_row(group, width, key in self._opened, equal, self._row_context.now, ended)
        head, context = self._listing.trials[key], self._row_context
        if self._folded:
            return lone_row(head, width, context.link, context.now)
        return trial_row(head, width, context)

    def empty(self, width: int) -> Iterable[Row]:
        """Why there are no rows: nothing matches, or no trials yet; nothing while a step is read."""
        if self._busy:
            return ()
        if self._prompt.text or self._only_flagged:
            flagged = "flagged " if self._only_flagged else ""
            reason = f"no {flagged}trial matches" if self._prompt.text else "no flagged trials"
            return (Row((f"  {reason}", "dim")),)
        if self._view.snapshot is None:
            return ()
        return (Row(("  no trials yet", "dim")),)

    def copy_line(self) -> str:
        """The absolute path of the trial under the cursor; for any other row, the line."""
        key = self.cursor
        head = self._listing.trials.get(key) if key is not None and not self._table else None
        return str(self._run_dir / head.path) if head is not None else super().copy_line()

    @property
    def _run_dir(self) -> Path:
        return host_of(self).source.run.path

    # -- the cursor

    def _settle(self, keys: Sequence[str]) -> None:
        # Textual focuses nothing while the terminal has no focus; that does not count.
        unfocused = self.app.app_focus and self.screen.focused is not self
        if unfocused or not (self._at_end or self._cursor in keys):
            self._at_top = True
        if self._at_top and keys:
            self._cursor = keys[0]
        super()._settle(keys)

    def _go(self, place: int) -> None:
        self._at_top, self._at_end = place <= 0, place >= len(self.keys()) - 1
        if self.screen.focused is not self:
            self.screen.set_focus(self)  # the mouse wheel moves the cursor without a focus
        super()._go(place)

    def select(self, key: str) -> None:
        """Put the cursor on a trial, where it then stays. Opens its group."""
        self._at_top = self._at_end = False
        group = self._listing.group_with(key)
        if group is not None and group not in self._opened:
            self._opened.add(group)
            self._arrange()
        super().select(key)

    # -- typing a filter

    def on_key(self, event: events.Key) -> None:
        """While the filter is typed, keys edit it."""
        if self._prompt.open:
            self._prompt.key(event)
            self._show_again()

    def on_paste(self, event: events.Paste) -> None:
        """While the filter is typed, insert the pasted text into it."""
        if self._prompt.open:
            event.stop()
            self._prompt.paste(event.text)
            self._show_again()

    def on_blur(self) -> None:
        """End typing; the text so far stays as the filter."""
        self._prompt.open = False

    def _show_again(self) -> None:
        self._arrange()
        self.update()

    # -- actions

    def action_select(self) -> None:
        """Open the trial under the cursor; in the table, list the trials of that step; on a group, open or close it; on
        the row of those without a turn, list them."""
        key = self.cursor
        if key is None:
            return
        if self._table:
            self._table = False
            self._open_step(int(key.removeprefix(_STEP)))
            return
        if key == UNTOUCHED:
            self._listed_all = True
            self._show_again()
            return
        if key in self._listing.groups:
            self._opened ^= {key}
            self._at_top = False
            self._show_again()
            return
        self.select(key)  # also on the first row: after the return the cursor is on this trial
        host_of(self).navigation.open_trial(
            key, trials=self.trials_now, among=lambda: self.among, moved=self.select
        )

    def action_filter(self) -> None:
        """Begin to type a filter."""
        self._table = False
        self._prompt.begin()
        self._show_again()

    def action_flagged(self) -> None:
        """Switch between all trials and flagged ones only."""
        self._table = False
        self._only_flagged = not self._only_flagged
        self._show_again()

    def action_group(self) -> None:
        """Switch between groups and a row for each trial."""
        self._table = False
        self._grouped = not self._grouped
        self._show_again()

    def action_sort(self) -> None:
        """Sort by the next of ``ORDERS`` and go to the first row."""
        self._table = False
        self._order = (self._order + 1) % len(ORDERS)
        self._at_top = True
        self._show_again()

    def action_steps(self) -> None:
        """Switch between trials and the table of steps."""
        self._table = not self._table
        self._at_top = True
        self._show_again()

    def action_up_a_level(self) -> None:
        """Leave the table of steps, else drop the filters, else close what was opened in the list, else go back to the
        newest trials, else leave the pane."""
        if self._table:
            self._table = False
        elif self._prompt.text or self._only_flagged:
            self._prompt.clear()
            self._only_flagged = False
        elif self._listed_all or self._opened:
            self._listed_all = False
            self._opened.clear()
        elif self._step is not None:
            self._to_newest()
        else:
            host_of(self).navigation.action_back()
        self._show_again()

    def action_older(self) -> None:
        """List the trials of the step before; from the newest trials, those of the last step."""
        self._turn_page(-1)

    def action_newer(self) -> None:
        """List the trials of the step after; behind the last step, the newest trials."""
        self._turn_page(1)

    # -- one step, read from its files

    def _turn_page(self, by: int) -> None:
        self.run_worker(self._other_step(by), group="trials", exclusive=True)

    async def _other_step(self, by: int) -> None:
        """List the next older or newer step; behind the newest step, the newest trials."""
        try:
            steps = await asyncio.to_thread(steps_on_disk, self._run_dir)
        except OSError as error:
            self._problem = _read_problem(error)
            self._show_again()
            return
        steps = sorted({*steps, *(step.step for step in self._status.steps)})
        if self._step is None:
            target = steps[-1:] if by < 0 else []
        else:
            here = self._step
            target = [s for s in steps if s < here][-1:] if by < 0 else [s for s in steps if s > here][:1]
        if target:
            self._open_step(target[0])
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
        """Read the chosen step again if the snapshot counts other trials of it than were read, at most every
        ``AGAIN_S``."""
        if (
            self._step is None
            or self._busy
            or time.monotonic() < self._read_at + max(AGAIN_S, 20 * self._read_took)
        ):
            return
        step = next((s for s in self._status.steps if s.step == self._step), None)
        counts = self._tally.total, self._tally.running
        if step is not None and (step.total, step.running) != counts:
            self._begin_reading()

    def _begin_reading(self) -> None:
        self._busy = True
        assert self._step is not None
        self.run_worker(self._read_step(self._step), group="trials-of-step", exclusive=True)

    async def _read_step(self, step: int) -> None:
        begun = time.monotonic()
        heads: list[TrialHead] = []
        try:
            heads = await asyncio.to_thread(heads_of_step, self._run_dir, step)
            problem = ""
        except OSError as error:
            problem = _read_problem(error)
        if step != self._step:
            return  # another step was chosen meanwhile
        self._read = {head.path: head for head in heads}
        self._busy, self._problem = False, problem
        self._read_at = time.monotonic()
        self._read_took = self._read_at - begun
        self._show_again()


def _read_problem(error: OSError) -> str:
    return f"▲ cannot read {error.filename or 'the trials'}: {error.strerror or error}"
