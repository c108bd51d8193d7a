"""The trajectories pane: the newest trials, all trials of one step, or a line per step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from liverl.model import StepTrials, TrialHead, TrialsStatus
from liverl.observe.trials.earlier import Earlier, earlier_of
from liverl.observe.trials.groups import equal_groups
from liverl.observe.trials.query import parse, without
from liverl_tui.data.host import host_of
from liverl_tui.data.saved_filters import save_filter, saved_filters
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import bindings, find
from liverl_tui.widgets.base.arranging import Arrangement, fitted
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.base.fitting import Chosen, Column
from liverl_tui.widgets.base.rows import RowsPane
from liverl_tui.widgets.base.trial_words import (
    Tally,
    attempt_before,
    part_of,
    replica_names,
    state_of,
    tally_heads,
    tally_of,
)
from liverl_tui.widgets.dashboard.trial_empty import why_empty
from liverl_tui.widgets.dashboard.trial_groups import (
    GROUP,
    GroupFacts,
    group_row,
    groups_of,
    lone_group,
    lone_row,
)
from liverl_tui.widgets.dashboard.trial_ids import lone_id, short_ids
from liverl_tui.widgets.dashboard.trial_listing import UNTOUCHED, Choices, Listing, group_facts
from liverl_tui.widgets.dashboard.trial_pair import pair_of
from liverl_tui.widgets.dashboard.trial_rewards import of_step, of_whole_run
from liverl_tui.widgets.dashboard.trial_rows import (
    FLAGGED,
    NEWEST,
    STEP,
    TRIAL,
    RowContext,
    TrialFacts,
    listed,
    step_row,
    trial_row,
    untouched_row,
)
from liverl_tui.widgets.dashboard.trial_steps import StepReader
from liverl_tui.widgets.dashboard.trial_title import (
    SHORT_WIDTH,
    StepWords,
    Title,
    earlier_words,
    match_words,
    places,
    total_words,
    unrecorded_words,
)
from liverl_tui.widgets.dashboard.trial_whole import FIELD_OF, Asked, Heads, Paths, Where, WholeRun, corrected

_WINDOW = 400  # trials around the cursor that the screen of a trial can go to
_STEP = "step:"  # prefix of the keys of rows in the table of steps


class TrialsPane(RowsPane):
    """Lists the newest trials, all trials of one step, or one line per step.

    The newest trials come with the snapshot; the trials of a step are read from its directory. Groups with flagged
    trials are first, then those of the newest step, and one row stands for all that have no turn yet. Where a filter
    chooses trials, each has a row of its own. The cursor is on the first row and follows the list until it is moved;
    then it stays on its row as long as that is listed and the pane has the focus.
    """

    scope = "trials"
    title = "Trajectories"
    number = find("dashboard", "jump('trials')").name
    list_name = "trials"
    BINDINGS = bindings("trials")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view = View()
        self._clock = Clock()
        self._row_context = RowContext()
        self._status = TrialsStatus()
        self._steps = Arrangement("steps")  # of the table of steps
        self._only_flagged = False
        self._table = False  # show one line per step
        self._reader = StepReader(self.run_worker, lambda: self._run_dir, self.rearrange)
        self._whole = WholeRun(self.run_worker, self._where, self.rearrange)
        self._heads: Heads | None = None  # those of all trials of the run, once they were listed
        self._saved: dict[str, str] = {}  # saved filters by name
        self._names: Sequence[str] = []
        self._paths: Sequence[str] = []  # of all trials that are known, whether listed or not
        self._listing = Listing()
        self._tallies: dict[str, Tally] = {}
        self._steps_counted: dict[int, StepTrials] = {}  # what ``_tallies`` were made of
        self._tally = Tally(None)  # of the chosen step, from what was read
        self._grouped = True
        self._opened: set[str] = set()  # the groups whose trials have rows
        self._listed_all = False  # trials without a turn have rows of their own
        self._at_top = True  # the cursor stays on the first row, whichever trial that is
        self._at_end = False  # the cursor was moved to the last row

    # -- what is shown

    @property
    def trials(self) -> list[TrialHead]:
        """The listed trials, in their order, also those in groups that are closed; of all trials of the run, those
        around the cursor."""
        if (heads := self._listed_heads) is not None:
            return heads.window(self._cursor, _WINDOW)
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
                self._compute()
            elif self._whole.due:
                self._compute()
            self._reader.refresh(self._status, self._tally)
        self._row_context = replace(self._row_context, now=self._clock.now())

    def _compute(self) -> None:
        """Compute tallies, rows and their order from the status, the trials that were read and the user's choices."""
        step = self._reader.step
        trials = self._status.newest if step is None else self._reader.heads(self._status)
        equal = equal_groups(trials if step is not None else self._whole_steps())
        names, wanted = replica_names(self._view.snapshot), self.arrangement.drawn
        ids = short_ids(trials)
        self._row_context = RowContext(self._clock.now(), self._view.link, names, equal, wanted, ids)
        self._tallies = self._counted(self._status.steps)
        self._tally = tally_heads(step, trials) if step is not None else Tally(None)
        if self._table:
            self._names = list(super()._arrange())
            return
        if self._show_whole():
            return
        self._paths = [head.path for head in trials]
        text = self.prompt.text
        self._listing = self._listed(listed(trials, text, self._only_flagged, equal, self._saved))
        self._names = list(self._listing.names)
        if self.arrangement.marks:
            groups = (group.name for group in groups_of(trials))
            self.arrangement.forget_others({*self._paths, *groups, *self._names})

    def _counted(self, steps: Sequence[StepTrials]) -> dict[str, Tally]:
        """The tallies of ``steps`` by the keys of their rows. Those of steps that are as before are kept: a view
        changes one or two of many."""
        before, self._steps_counted = self._steps_counted, {step.step: step for step in steps}
        return {
            (key := f"{_STEP}{step.step}"): self._tallies[key]
            if before.get(step.step) == step
            else tally_of(step)
            for step in steps
        }

    @property
    def _in_whole(self) -> bool:
        """Whether the list is of all trials of the run: it is filtered or sorted, and the snapshot has the newest ones
        only."""
        column = self.sorting
        chosen = self._filtered or column is not None
        if column is not None and column.name not in FIELD_OF:
            return False  # a column that only groups have
        known = self._status.total <= len(self._status.newest)
        return chosen and not self._table and self._reader.step is None and not known

    def _show_whole(self) -> bool:
        """List what was found among all trials; False if they are not wanted, or nothing was found yet."""
        if not self._in_whole:
            self._whole.close()
            return False
        column, order = self.sorting, self.arrangement.order
        asked = Asked(parse(self.prompt.text, self._saved), self._only_flagged)
        if column is not None and order is not None:
            asked = replace(asked, sort=FIELD_OF[column.name], descending=order.descending)
        self._whole.ask(asked, (self._status, self._view.link))
        # Fewer are on disk than the snapshot has: files were removed, or are not where they were, as in a recording.
        if not self._whole.ready or len(self._whole.index) < len(self._status.newest):
            return False
        newest = {head.path: head for head in self._status.newest}
        paths = Paths(self._whole.index, corrected(self._whole.index, self._whole.rows, asked, newest))
        self._heads = Heads(paths, newest)
        self._listing, self._names, self._paths = Listing(), paths, paths
        return True

    @property
    def _whole_listed(self) -> bool:
        """Whether the rows are of all trials of the run."""
        return isinstance(self._names, Paths)

    @property
    def _listed_heads(self) -> Heads | None:
        """All trials of the run, if the rows are of these."""
        return self._heads if self._whole_listed else None

    def _listed(self, trials: list[TrialHead]) -> Listing:
        """The rows for ``trials``, which come newest first."""
        choices = Choices(
            self._row_context,
            self.arrangement.order,
            self.sorting,
            newest_first=self.in_own_order(NEWEST),
            filtered=self._filtered,
            grouped=self._grouped,
            opened=frozenset(self._opened),
            listed_all=self._listed_all,
        )
        return choices.listing(trials)

    # -- the list

    @property
    def arrangement(self) -> Arrangement:
        """That of the table of steps, or of the trials and their groups."""
        return self._steps if self._table else self._arrangement

    def arrangements(self) -> Sequence[Arrangement]:
        """See ``RowsPane.arrangements``."""
        return self._arrangement, self._steps

    @property
    def own_orders(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of the trials and of the table of steps."""
        return ("newest step first",) if self._table else (FLAGGED, NEWEST)

    @property
    def _filtered(self) -> bool:
        """Whether a filter chooses among the trials."""
        return bool(self._arrangement.prompt.text) or self._only_flagged

    @property
    def _in_groups(self) -> bool:
        """Whether the trials of a prompt have one row."""
        return self._grouped and not (self._filtered or self._table or self._whole_listed)

    def items(self) -> Sequence[str]:
        """Paths of all known trials relative to the run directory; in the table of steps ``step:N`` of each."""
        return list(self._tallies) if self._table else self._paths

    def keys(self) -> Sequence[str]:
        """Paths of the listed trials, keys of groups and ``UNTOUCHED``; in the table of steps ``step:N``."""
        return self._names

    def columns(self) -> tuple[Column, ...]:
        """The columns of the table of steps, of groups, or of trials."""
        if self._table:
            return STEP
        return GROUP if self._in_groups else TRIAL

    def table(self, width: int) -> Chosen:
        """See ``RowsPane.table``. Where groups do not come first, or one is open, their rows have the columns of
        trials."""
        drawn = STEP if self._table else GROUP if self._folded else TRIAL
        return fitted(drawn, self.arrangement.drawn, width)

    def item(self, key: str) -> Tally | TrialFacts | GroupFacts | None:
        """What is known of a step, trial or group; None for the row of trials without a turn."""
        if self._table:
            return self._tallies[key]
        if key == UNTOUCHED:
            return None
        if self._whole_listed:
            return TrialFacts(self._head_of(key), self._row_context)
        group = self._listing.groups.get(key)
        if group is None and not self._in_groups:
            return TrialFacts(self._listing.trials[key], self._row_context)
        return group_facts(group or lone_group(self._listing.trials[key]), self._row_context)

    def filtered_words(self) -> str:
        """See ``RowsPane.filtered_words``."""
        if self._table:
            return super().filtered_words() if self.prompt.text else ""
        if self._whole_listed:
            return match_words(len(self._names), len(self._whole.index) - self._earlier.total)
        known, total = len(self._paths), self._status.total
        newest = self._reader.step is None and known < total
        return match_words(len(self.trials), known - self._earlier.total, "newest" if newest else "")

    def action_filter(self) -> None:
        """Begin to type a filter; saved ones are read."""
        self._saved = saved_filters()
        super().action_filter()

    def set_filter(self, text: str) -> None:
        """See ``ArrangedList.set_filter``."""
        self._saved = saved_filters()
        super().set_filter(text)

    def _where(self) -> Where:
        host = host_of(self)
        return Where(self._run_dir, not (host.readonly or self._view.demo), self._view.link == "live")

    def rearrange(self) -> None:
        """See ``RowsPane.rearrange``."""
        self._compute()
        self.update()

    def to_top(self) -> None:
        """See ``RowsPane.to_top``."""
        self._at_top = True

    def _whole_steps(self) -> list[TrialHead]:
        """The newest trials, of those steps only of which all trials are among the newest: only these can be
        compared."""
        newest = Counter(head.step for head in self._status.newest if not head.earlier)
        complete = {step.step for step in self._status.steps if newest[step.step] == step.total}
        return [head for head in self._status.newest if head.step in complete]

    # -- room

    @property
    def wanted_rows(self) -> int:
        """Two rows while the run has no trials; else the rows of a short list, or of all that there are."""
        if not self._status.total:
            return 2
        # A list that a filter makes short keeps its room: the panes must not move while it is typed.
        return 8 if self._filtered or self._table else max(4, min(8, 2 + len(self._names)))

    @property
    def least_rows(self) -> int:
        """Two rows while the run has no trials; else the rows of the shortest list of use."""
        return min(4, self.wanted_rows)

    # -- title and rows

    def facts(self) -> tuple[str, str]:
        """How the trials of the step go, and the style of the title; ``title_words`` has the rest."""
        (words, *_), style = self._of_steps.summary()
        return words, "warn" if self._reader.problem else style

    def title_words(self, width: int, facts: str, window: tuple[int, int] | None, total: int) -> str:
        """See ``RowsPane.title_words``. Where the title is too narrow, the sentence on the step is cut, and what the
        user has chosen stays: filter, marks, order and the number of rows."""
        step_words = self._of_steps
        (words, *more), _ = step_words.summary()
        totals = (f"{total:,}", f"{total:,}")
        if not self._table and not self._filtered and not self._whole_listed and self._reader.step is None:
            totals = total_words(self._status, total, bool(self._listing.groups))
        older = self._status.older_steps if self._table and not self.prompt.text else 0
        if older:
            totals = (of := f"{total:,} of {total + older:,} steps", of)
        # While they are read, nothing can be said of the number.
        reading = self._in_whole and self._whole.progress and not total
        counted = self.filtered_words() if (self.prompt.text or self._only_flagged) and not reading else ""
        # Where the user looks for some, a title that leaves this out says that there were none.
        chosen = self._table or self._filtered or self._whole_listed
        title = Title(
            before=(*self.chosen_words(), *self._problems()),
            forms=step_words.sentences(words),
            after=[
                "flagged trials only" if self._only_flagged and not self._table else "",
                earlier_words(self._earlier, width),
                self.order_words(),
                self._unrecorded_in(width) if chosen else "",
            ],
            more=[
                "" if chosen else self._unrecorded,
                "" if self._grouped or self._table else "ungrouped",
                "older ones: liverl-tui trials steps --step N" if older else "",
                *more,
            ],
            places=places(window, totals, (counted, f"{total:,} match") if counted else None),
        )
        return title.fitting(width - len(f" {self.number} {self.title} ") - 2)

    @property
    def _unrecorded(self) -> str:
        """Of a recorded run, which steps have no trials in the recording; see ``unrecorded_words``."""
        snapshot = self._view.snapshot
        if snapshot is None or not self._view.demo or self._status.older_steps:
            return ""
        return unrecorded_words(snapshot.step, tuple(self._tallies.values()))

    def _unrecorded_in(self, width: int) -> str:
        words = self._unrecorded
        return words if width >= SHORT_WIDTH else words.removeprefix("trials of ")

    @property
    def _earlier(self) -> Earlier:
        """How many trials the filter leaves out because another one stands in their place."""
        chosen = self._filtered or self._whole_listed
        if self._table or not chosen or parse(self.prompt.text, self._saved).earlier_too:
            return Earlier()
        return self._whole.earlier if self._whole_listed else earlier_of(self._known().values())

    def _problems(self) -> list[str]:
        """What is wrong with the filter, and how far all trials are read."""
        if self._table:
            return []
        problems = parse(self.prompt.text, self._saved).problems
        words = [f"▲ {problems[0]}"] if problems and not self.prompt.open else []
        if self._in_whole:
            words += [word for word in (self._whole.problem, self._whole.progress) if word]
        return words

    @property
    def among(self) -> str:
        """What the listed trials are a part of, where not all trials are known: `` newest of 1,240``; else empty."""
        if self._reader.step is not None:
            return ""
        if self._whole_listed:
            return f" of {len(self._names):,}"
        return part_of(len(self.trials), len(self._status.newest), self._status.total)

    @property
    def _of_steps(self) -> StepWords:
        """What is said of the step that is listed, or of the newest ones."""
        snapshot, reader = self._view.snapshot, self._reader
        return StepWords(
            self._status,
            tuple(self._tallies.values()),
            planned=snapshot.trials_per_step if snapshot is not None else None,
            before=self._attempt_before,
            step=reader.step,
            tally=self._tally,
            busy=reader.busy,
            problem=reader.problem,
        )

    @property
    def _attempt_before(self) -> str:
        """The name of the attempt that made all trials, if the present one has made none yet; else empty."""
        snapshot, newest = self._view.snapshot, next(iter(self._tallies.values()), None)
        if snapshot is None or newest is None:
            return ""
        before = self._status.steps_before(snapshot.attempt, snapshot.started_at)
        return attempt_before(snapshot) if newest.step in before else ""

    @property
    def _folded(self) -> bool:
        """Whether groups come first and none is open: then all rows have the columns of groups."""
        if self._in_groups and not self._opened and self.sorting is not None:
            return bool(self._listing.groups)
        first = self._names[0] if self._names and not self._opened else ""
        return first == UNTOUCHED or first in self._listing.groups

    def row(self, key: str, width: int) -> Row:
        """One trial, one group or one step as a line."""
        if self._table:
            return step_row(self._tallies[key], width, self._steps.drawn)
        if key == UNTOUCHED:
            state = state_of(self._listing.untouched[0], self._view.link)
            return untouched_row(len(self._listing.untouched), state, find("trials", "select").mention)
        if (group := self._listing.groups.get(key)) is not None:
            equal = group.key in self._row_context.equal
            ended = self._view.link == "ended"
            context = self._row_context
            opened = key in self._opened
            wanted, mixed = context.wanted, not self._folded
            return group_row(group, width, opened, equal, context.now, ended, wanted, among_trials=mixed)
        head, context = self._head_of(key), self._row_context
        if self._whole_listed:
            return trial_row(head, width, replace(context, ids={head.path: lone_id(head.name, head.task)}))
        if self._folded:
            short_id = context.ids.get(key, "")
            return lone_row(head, width, context.link, context.now, context.wanted, short_id)
        return trial_row(head, width, context)

    def _head_of(self, key: str) -> TrialHead:
        heads = self._listed_heads
        return self._listing.trials[key] if heads is None else heads[key]

    def empty_rows(self, width: int) -> Iterable[Row]:
        """Why there are no rows: nothing matches, or no trials yet; nothing while a step is read."""
        if self._reader.busy or self._view.snapshot is None:
            return ()
        if self._in_whole and self._whole.progress:
            return (Row(("  none found yet: the trials are still being read", "dim")),)
        return why_empty(
            steps=self._table,
            any_trials=bool(self._status.total),
            filtered=bool(self.prompt.text),
            only_flagged=self._only_flagged and not self._table,
            unrecorded=self._unrecorded,
            ended=self._view.link == "ended",
            trainer_ready=self._trainer_ready,
        )

    @property
    def _trainer_ready(self) -> bool:
        """Whether a trainer of the run is ready; also where the run starts none."""
        snapshot = self._view.snapshot
        trainers = [s for s in snapshot.services if s.kind == "trainer"] if snapshot is not None else []
        return not trainers or any(service.state == "ready" for service in trainers)

    @property
    def marked_services(self) -> list[str] | None:
        """None: a trial is no service."""
        return None

    def copy_row(self, key: str) -> str:
        """The absolute path of a trial; those of a marked group or row of trials, one per line; for a step, the
        line."""
        heads = self._listed_heads
        listed_here = key in (self._listing.trials if heads is None else heads)
        if self._table or not (self.arrangement.marks or listed_here):
            return super().copy_row(key)
        return "\n".join(str(self._run_dir / path) for path in self._paths_of(key))

    def _paths_of(self, key: str) -> list[str]:
        group = self._listing.groups.get(key)
        if group is not None:
            return [head.path for head in group.trials]
        return [head.path for head in self._listing.untouched] if key == UNTOUCHED else [key]

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
            self._compute()
        super().select(key)

    # -- actions

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: a row is listed."""
        if action in ("pair", "rewards") and self._table:
            return "this is a list of steps; open one first"
        what = "step" if self._table else "trial"
        return f"no {what} is listed" if action in ("select", "pair") and self.cursor is None else ""

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
            self.rearrange()
            return
        if key in self._listing.groups:
            self._opened ^= {key}
            self._at_top = False
            self.rearrange()
            return
        self.select(key)  # also on the first row: after the return the cursor is on this trial
        host_of(self).navigation.open_trial(
            key, trials=self.trials_now, among=lambda: self.among, moved=self.select
        )

    def action_flagged(self) -> None:
        """Switch between all trials and flagged ones only."""
        self._table = False
        self._only_flagged = not self._only_flagged
        self.rearrange()

    def action_group(self) -> None:
        """Switch between groups and a row for each trial; a filter lists trials, so then there is nothing to switch."""
        if self._filtered and not self._table:
            key = find("list", "clear").mention
            self.say(f"a filter lists trials, not groups; press {key} to remove the filter first")
            return
        self._table = False
        self._grouped = not self._grouped
        self.rearrange()

    def action_pair(self) -> None:
        """Show two trials side by side: the marked ones if two are marked, else the best and the worst of the prompt
        under the cursor."""
        heads, cursor = self._listed_heads, self.cursor
        known = self._known() if heads is None else heads
        row = known.get(self._paths_of(cursor)[0]) if cursor is not None else None
        chosen = pair_of(known, self.arrangement.marks, row, None if heads is None else self._whole.index)
        if isinstance(chosen, str):
            self.say(chosen)
        else:
            host_of(self).navigation.open_pair(*chosen)

    def action_rewards(self) -> None:
        """Show the histogram of the rewards of the listed trials, or of the step; a bar becomes the filter."""
        if isinstance(self._names, Paths):
            found = of_whole_run(self._whole.index, self._names.rows)
        else:
            found = of_step(self._known().values(), self._reader.step)
        if not found.rewards:
            self.say("no trial here has a reward yet")
            return

        def narrow(term: str) -> None:
            self.narrow(found.within + term)

        host_of(self).navigation.choose_rewards(narrow, found.rewards, found.unknown, found.what)

    def narrow(self, term: str) -> None:
        """Put terms on the reward (and the step) into the filter, in place of those that are there."""
        fields = {one.field.name.lower() for one in parse(term).terms}
        self.set_filter(f"{without(self.prompt.text, fields)} {term}".strip())

    def go_to_row(self, number: int) -> None:
        """Go to a row of the list, counted from 1; behind the last one to that."""
        keys = self.keys()
        if keys:
            place = min(number, len(keys)) - 1
            self.select(keys[place])
            self.say(f"row {place + 1:,} of {len(keys):,}")

    def find_trial(self, text: str) -> None:
        """Open the trial that ``text`` names out of all trials of the run; list them if there are several."""
        self.run_worker(self._find_trial(text), group="find-trial", exclusive=True)

    async def _find_trial(self, text: str) -> None:
        try:
            paths = await self._whole.find(text, 2)
        except OSError as error:
            self.say(f"cannot read {error.filename or 'the trials'}: {error.strerror or error}")
            return
        if not paths:
            self.say(f"no trial of the run has {text!r} in its name")
        elif len(paths) == 1:
            host_of(self).navigation.open_trial(paths[0])
        else:
            self.set_filter(f'name~"{text}"')

    def save_filter(self, name: str) -> None:
        """Save the present filter under a name; without one, remove the filter of that name."""
        try:
            save_filter(name, self.prompt.text)
        except (ValueError, OSError) as error:
            self.say(f"the filter was not saved: {error}")
            return
        self._saved = saved_filters()
        saved = f"filter saved; type @{name} in a filter to use it"
        what = saved if self.prompt.text else f"saved filter @{name} removed"
        host_of(self).notifications.toast(what)

    def _known(self) -> dict[str, TrialHead]:
        """All trials that the list chooses from, by path."""
        trials = self._status.newest if self._reader.step is None else self._reader.heads(self._status)
        return {head.path: head for head in trials}

    def action_steps(self) -> None:
        """Switch between trials and the table of steps."""
        self._table = not self._table
        self._at_top = True
        self.rearrange()

    @property
    def more_to_clear(self) -> bool:
        """Whether something is shown but the newest trials, closed groups, all flags; see ``RowsPane``."""
        return (
            self._table
            or self._only_flagged
            or self._listed_all
            or bool(self._opened)
            or (self._reader.step is not None)
        )

    def clear_more(self) -> None:
        """Leave the table of steps, else list trials without flags too, else close what was opened in the list, else
        go back to the newest trials."""
        if self._table:
            self._table = False
        elif self._only_flagged:
            self._only_flagged = False
        elif self._listed_all or self._opened:
            self._listed_all = False
            self._opened.clear()
        else:
            self._to_newest()
        self.rearrange()

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
        step = await self._reader.neighbour(by, [step.step for step in self._status.steps])
        if step is None and by > 0:
            here = self._reader.step
            last = "there is no newer step" if here is None else f"step {here} is the newest one"
            self.say(f"{last}; these are the newest trials of all steps")
            self._to_newest()
        elif step is not None and step != self._reader.step:
            self._open_step(step)
        else:
            self.say("there is no older step")

    def show_step(self, step: int) -> None:
        """List all trials of a step; filters stay."""
        self._open_step(step)

    def _open_step(self, step: int) -> None:
        self._table, self._at_top = False, True
        self._reader.open(step)
        self.rearrange()

    def _to_newest(self) -> None:
        self._reader.close()
        self._at_top = True
        self.rearrange()
