"""The trajectories pane's title: how the trials of a step are going, as a sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from liverl.model import TrialsStatus
from liverl_tui.widgets.base.trial_words import Tally


def sentence(tally: Tally, planned: int | None, of: str = "") -> str:
    """``step 10: 17 of 32 trials done, 15 running; ▲ 2 call no tool``. ``planned``: trials of a step; ``of``: before
    the step."""
    total = max(tally.total, planned or 0) if tally.running else tally.total
    words = [f"{tally.done} of {total} trials done"]
    words += [f"{tally.running} running"] if tally.running else []
    words += [f"{tally.cut_off} cut off"] if tally.cut_off else []
    tools = f"; {without_tools(tally)}" if tally.zero else ""
    return f"{of}step {tally.step}: {', '.join(words)}{tools}"


def short_sentence(tally: Tally) -> str:
    """``step 10: 17 done, ▲ 2 call no tool``, for a narrow title."""
    words = [without_tools(tally)] if tally.zero else []
    return f"step {tally.step}: {', '.join([f'{tally.done} done', *words])}"


def without_tools(tally: Tally) -> str:
    """``▲ 2 call no tool``, or that none of those does that have ended."""
    if tally.calling or tally.zero < tally.done:
        return f"{tally.glyph} {tally.zero} call{'s' if tally.zero == 1 else ''} no tool"
    return f"{tally.glyph} none of {tally.zero} calls a tool"


def newest_words(
    status: TrialsStatus, tallies: Sequence[Tally], planned: int | None
) -> tuple[list[str], str]:
    """(texts, style) for the newest trials, the most important text first. ``tallies``: of the newest steps, newest
    first. While the newest step has shown nothing of tool calls yet, the one before it says so."""
    if not status.total:
        return [""], "dim"
    if not tallies:  # trials that belong to no step
        cut = f", {status.cut_off} cut off" if status.cut_off else ""
        counts = f"{status.finished} of {status.total} trials done, {status.running} running{cut}"
        if status.zero_tool_calls:
            return [f"{counts}; ▲ {status.zero_tool_calls} call no tool"], "warn"
        return [counts], "dim"
    now = tallies[0]
    decided = next((tally for tally in tallies if tally.decided), now)
    words = [sentence(now, planned)]
    if decided is not now and decided.zero:
        words.append(f"step {decided.step}: {without_tools(decided)}")
    words += [f"{now.earlier} of an earlier attempt"] if now.earlier else []
    more = status.zero_tool_calls - decided.zero
    words += [f"{more} earlier without tool calls"] if more > 0 else []
    return words, decided.style if decided.zero else "dim"


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


def fitting_title(
    texts: Sequence[str],
    window: tuple[int, int] | None,
    totals: tuple[str, str],
    short: Sequence[str],
    room: int,
) -> str:
    """The longest form that fits into ``room`` columns. ``texts``: from the longest to the shortest; ``window``: as of
    ``CursorList.title_words``; ``totals``: the number of rows in a long and a short form; ``short``: the last forms to
    try."""
    places = [""]
    if window is not None:
        places = [f"  {window[0] + 1}-{window[1]} of {words}" for words in totals]
    forms = [texts[0] + places[0], *(text + places[-1] for text in texts), *texts[-1:], *short]
    return next((form for form in forms if cell_len(form.strip()) <= room), forms[-1]).strip()
