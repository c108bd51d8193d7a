"""The trajectories pane's title: how the trials of a step are going, as a sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from rich.cells import cell_len

from liverl.model import TrialsStatus
from liverl.observe.trials.earlier import Earlier
from liverl.util.plural import plural
from liverl_tui.widgets.base.rows import FACTS_GAP
from liverl_tui.widgets.base.trial_words import Tally, damage_words


def sentence(tally: Tally, planned: int | None, of: str = "") -> str:
    """``step 10: 17 of 32 trials done, 3 of them failed, 15 running; ▲ 2 call no tool``. ``planned``: trials of a step;
    ``of``: before the step."""
    total = max(tally.total, planned or 0) if tally.running else tally.total
    words = [f"{tally.done} of {total} trials done"]
    words += [f"{tally.failed} of them failed"] if tally.failed else []
    words += [f"{tally.running} running"] if tally.running else []
    words += [f"{tally.cut_off} cut off"] if tally.cut_off else []
    tools = f"; {without_tools(tally)}" if tally.zero else ""
    return f"{of}step {tally.step}: {', '.join(words)}{tools}"


def short_sentence(tally: Tally) -> str:
    """``step 10: 17 done, ▲ 2 call no tool``, for a narrow title."""
    words = [without_tools(tally)] if tally.zero else []
    done = f"{tally.done} done ({tally.failed} failed)" if tally.failed else f"{tally.done} done"
    return f"step {tally.step}: {', '.join([done, *words])}"


def shortest_sentence(tally: Tally) -> str:
    """``▲ 2 call no tool``, or ``step 10`` where all do, for the narrowest title."""
    return without_tools(tally) if tally.zero else f"step {tally.step}"


def without_tools(tally: Tally) -> str:
    """``▲ 2 call no tool``, or that none of those does that have ended."""
    if tally.calling or tally.zero < tally.done:
        return f"{tally.glyph} {tally.zero} {plural(tally.zero, 'calls', 'call')} no tool"
    return f"{tally.glyph} none of {tally.zero} calls a tool"


def newest_words(
    status: TrialsStatus, tallies: Sequence[Tally], planned: int | None, before: str = ""
) -> tuple[list[str], str]:
    """(texts, style) for the newest trials, the most important text first. ``tallies``: of the newest steps, newest
    first. While the newest step has shown nothing of tool calls yet, the one before it says so. ``before``: the name of
    an earlier attempt, if all of these trials are its: then they say nothing of the present one."""
    if not status.total:
        return [""], "dim"
    if not tallies:  # trials that belong to no step
        cut = f", {status.cut_off} cut off" if status.cut_off else ""
        counts = f"{status.finished} of {status.total} trials done, {status.running} running{cut}"
        if status.zero_tool_calls:
            return [f"{counts}; ▲ {status.zero_tool_calls} call no tool"], "warn"
        return [counts], "dim"
    now = tallies[0]
    if before:
        return [sentence(now, planned, f"{before}, ")], "dim"
    decided = next((tally for tally in tallies if tally.decided), now)
    words = [sentence(now, planned)]
    if decided is not now and decided.zero:
        words.append(f"step {decided.step}: {without_tools(decided)}")
    damage = damage_words(now)
    words += damage
    words += [now.earlier.short] if now.earlier.total else []
    more = status.zero_tool_calls - decided.zero
    words += [f"{more} earlier without tool calls"] if more > 0 else []
    return words, decided.style if decided.zero else "warn" if damage else "dim"


def total_words(status: TrialsStatus, total: int, groups: bool) -> tuple[str, str]:
    """The number of rows, ``total``, in a long and a short form; only the newest trials are known, so it may be a part
    of all. ``groups``: some rows are groups of trials."""
    newest = len(status.newest)
    if newest >= status.total:
        return str(total), str(total)
    if groups:
        return f"{total} rows, the newest {newest} of {status.total:,} trials", f"{total}+"
    if total < newest:  # a filter hides some
        return f"{total} in the newest {newest}", f"{total}+"
    return f"the newest {newest} of {status.total:,}", f"{total}+"


def unrecorded_words(steps_done: int | None, tallies: Sequence[Tally]) -> str:
    """Of a recorded run, which of the steps that are done have no trials in the recording: ``trials of steps 1-14 not
    recorded``. Empty if all have some. ``tallies``: of all steps with trials."""
    missing = sorted({*range(1, (steps_done or 0) + 1)} - {tally.step for tally in tallies})
    if not missing:
        return ""
    whole = missing[-1] - missing[0] + 1 == len(missing)
    which = (
        f"step {missing[0]}"
        if len(missing) == 1
        else f"steps {missing[0]}-{missing[-1]}"
        if whole
        else f"{len(missing)} steps"
    )
    return f"trials of {which} not recorded"


SHORT_WIDTH = 100  # columns of a title below which what is left out of a list is said in fewer words


class StepWords(Struct, frozen=True):
    """What a title says of steps. ``tallies``: of the newest steps, newest first; ``planned``: trials of a step;
    ``before``: see ``newest_words``. ``step``: the one whose trials are listed, None for the newest trials;
    ``tally``: its counts; ``busy``: it is being read; ``problem``: why it could not be."""

    status: TrialsStatus
    tallies: tuple[Tally, ...]
    planned: int | None
    before: str
    step: int | None
    tally: Tally
    busy: bool
    problem: str

    def summary(self) -> tuple[list[str], str]:
        """(texts, style): how the trials of the step go, the most important text first."""
        if self.step is None:
            return newest_words(self.status, self.tallies, self.planned, self.before)
        if self.busy and not self.tally.total:
            return [f"reading step {self.step} …"], "info"
        words = [sentence(self.tally, self.planned, "all of "), *damage_words(self.tally)]
        words += [self.tally.earlier.short] if self.tally.earlier.total else []
        return words, self.tally.style if self.tally.zero else "dim"

    def sentences(self, words: str) -> list[str]:
        """What the title says of the step, from the longest form to the shortest. ``words``: the longest one."""
        if self.problem:
            return [FACTS_GAP.join(part for part in (self.problem, words) if part), self.problem]
        tallies = [self.tally] if self.step is not None else self.tallies[:1]
        before = self.before if self.step is None else ""
        short = [form(t) for form in (short_sentence, shortest_sentence) for t in tallies if t.total]
        return [words, *(f"{before}, {form}" if before else form for form in short)]


class Title(Struct, frozen=True):
    """The parts of a title. ``before`` and ``after`` the sentence is what the user has chosen: it is never left out.
    ``forms``: the sentence, from the longest to the shortest; ``more``: facts that are left out before the sentence is
    shortened, the last one first; ``places``: which rows are visible, in a long and a short form."""

    before: Sequence[str]
    forms: Sequence[str]
    after: Sequence[str]
    more: Sequence[str] = ()
    places: tuple[str, str] = ("", "")

    def fitting(self, room: int) -> str:
        """The longest form that fits into ``room`` columns, or the shortest one."""
        lines = [self._line(self.forms[0], len(self.more), self.places[0])]
        for form in (*self.forms, ""):
            lines += [self._line(form, kept, self.places[1]) for kept in range(len(self.more), -1, -1)]
        return next((line for line in lines if cell_len(line) <= room), lines[-1])

    def _line(self, form: str, kept: int, place: str) -> str:
        parts = (*self.before, form, *self.after, *self.more[:kept])
        return f"{FACTS_GAP.join(part for part in parts if part)}{place}".strip()


def earlier_words(left: Earlier, width: int) -> str:
    """How many trials a filter leaves out as another one stands in their place; "" for none. ``width``: of the
    title."""
    if not left.total:
        return ""
    return f"{left.short if width >= SHORT_WIDTH else f'{left.total:,} discarded'} left out"


def match_words(hits: int, total: int, which: str = "") -> str:
    """``12 of 640 match``: how many a filter lets through. ``which``: what ``total`` are, where these are not all:
    ``newest``."""
    return f"{hits:,} of {f'the {which} ' if which else ''}{total:,} match"


def places(
    window: tuple[int, int] | None, totals: tuple[str, str], matching: tuple[str, str] | None = None
) -> tuple[str, str]:
    """Which rows are visible, with the number of rows in a long and a short form. ``window``: as of
    ``CursorList.title_words``; ``matching``: how many a filter lets through, in both forms: the only total then."""
    if matching is not None:
        long, short = matching
        rows = f", rows {window[0] + 1}-{window[1]}" if window is not None else ""
        return f"  {long}{rows}", f"  {short}"
    if window is None:
        return "", ""
    long, short = (f"  {window[0] + 1}-{window[1]} of {words}" for words in totals)
    return long, short
