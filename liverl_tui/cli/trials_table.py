"""Trials and steps as plain text: a table of columns, sentences about a step, and one trial in all its parts. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from liverl.model import SlowTrial, StepTrials, TrialHead
from liverl.observe.trials.earlier import Earlier, counted
from liverl.observe.trials.ending_words import DONE, counted_endings, ending_of, endings_of
from liverl.observe.trials.phases import PHASES, acts_in
from liverl.observe.trials.query import calls_known
from liverl.observe.trials.replica_names import replica_name
from liverl.offline.trials import TrialShown, TrialsListed, TurnShown, marks_of
from liverl.util.plural import quantity
from liverl.util.visible import visible
from liverl_tui.text.facts import step_reward_words
from liverl_tui.text.reward_lines import (
    command_lines,
    commands_title,
    may_be_none,
    report_lines,
    reward_title,
)
from liverl_tui.text.table import aligned
from liverl_tui.text.trial_phases import WAITED, phase_words, short_time
from liverl_tui.text.words import UNKNOWN, duration, number, one_line, size, step_word

GAP = "   "
_LONGEST = 40  # characters of a task or an ending


class Column(NamedTuple):
    """``text``: (trial, now in Unix seconds) -> its cell; ``rank``: columns with the highest go first where a terminal
    is too narrow, 0: it stays; ``right``: numbers; ``least``: width where rows come one by one."""

    title: str
    text: Callable[[TrialHead, float], str]
    rank: int
    right: bool = False
    least: int = 0


def _phase(name: str) -> Callable[[TrialHead, float], str]:
    def cell(head: TrialHead, now: float) -> str:
        seconds = head.phases.get(name)
        if (
            seconds is None
            and head.state == "running"
            and head.phase == name
            and head.phase_since is not None
        ):
            return f"{duration(max(0.0, now - head.phase_since))}+"
        return short_time(seconds)

    return cell


def _calls(head: TrialHead) -> str:
    calls = calls_known(head)
    return UNKNOWN if calls is None else str(calls)


COLUMNS: tuple[Column, ...] = (
    Column("NAME", lambda head, now: one_line(head.name) or UNKNOWN, 0, least=24),
    Column("STEP", lambda head, now: step_word(head.step, head.validated, UNKNOWN), 5, right=True),
    Column("STATE", lambda head, now: head.state.replace("_", " "), 0, least=8),
    Column("REWARD", lambda head, now: reward_cell(head), 0, right=True),
    Column("TURNS", lambda head, now: UNKNOWN if head.dumped else str(head.turns), 6, right=True),
    Column("CALLS", lambda head, now: _calls(head), 7, right=True),
    Column("TIME", lambda head, now: short_time(head.took(now)), 0, right=True, least=6),
    Column("QUEUE", _phase("queue"), 10, right=True, least=6),
    Column("SETUP", _phase("setup"), 4, right=True, least=6),
    Column("AGENT", _phase("agent"), 4, right=True, least=6),
    Column("VERIFIER", _phase("verifier"), 4, right=True, least=6),
    Column("WAITS-FOR", lambda head, now: head.waits_for or UNKNOWN, 3, least=8),
    Column("MOSTLY", lambda head, now: head.spent_on or UNKNOWN, 8, least=8),
    Column(
        "ENDED-BY",
        lambda head, now: one_line(head.error or ending_of(head))[:_LONGEST] or UNKNOWN,
        2,
        least=12,
    ),
    Column("FLAGS", lambda head, now: ",".join(sorted(marks_of(head) - {"error"})) or UNKNOWN, 9),
)


def reward_cell(head: TrialHead) -> str:
    """The trial's reward; of several without one named so, how many there are."""
    if head.reward is not None:
        return f"{head.reward:g}" if head.reward == int(head.reward) else number(head.reward)
    return f"{len(head.rewards)} others" if head.rewards else UNKNOWN


def chosen(heads: Sequence[TrialHead], now: float, width: int | None) -> tuple[Column, ...]:
    """The columns that fit into ``width``; all of them for None."""
    columns = list(COLUMNS)
    widths = {c.title: _width(c, heads, now) for c in columns}
    while width is not None and sum(widths[c.title] + len(GAP) for c in columns) - len(GAP) > width:
        last = max(columns, key=lambda column: column.rank)
        if not last.rank:
            break
        columns.remove(last)
    return tuple(columns)


def table(heads: Sequence[TrialHead], now: float, width: int | None = None) -> list[str]:
    """A line of titles and one line for each trial. ``now``: Unix seconds; ``width``: of a terminal, None: nothing is
    left out."""
    columns = chosen(heads, now, width)
    widths = [_width(column, heads, now) for column in columns]
    rows = [[column.title for column in columns]]
    rows += [[column.text(head, now) for column in columns] for head in heads]
    return [_line(row, columns, widths) for row in rows]


def left_out(found: TrialsListed, *, filtered: bool) -> str | None:
    """Which trials a list leaves out, and which -n shows them; None if it has all trials of the run or the step.
    ``filtered``: only trials that match were wanted."""
    words = _left_out(found, filtered=filtered)
    earlier = earlier_words(counted(found.earlier, found.repeated)) if found.earlier else None
    return "\n".join(part for part in (words, earlier) if part) or None


def earlier_words(left: Earlier) -> str:
    """Which trials are left out as another one stands in their place, and what lists them."""
    return f"{left.words} left out; --filter earlier=yes lists them"


def _left_out(found: TrialsListed, *, filtered: bool) -> str | None:
    shown, of = len(found.trials), "the run" if found.step is None else f"step {found.step}"
    if not found.total and found.earlier:
        return f"{of} has no trials of the present attempt"
    if not found.total:
        return f"run {found.run} has no trials yet"
    if not filtered and shown == found.total:
        return None
    only_newest = found.searched < found.total
    searched = f"the newest {found.searched} of {found.total} trials" if only_newest else str(found.total)
    if not filtered:
        return f"{shown} of {quantity(found.total, 'trial')} of {of}; -n {found.total} shows all"
    more = f"; -n {found.total} searches all" if only_newest else ""
    if not found.matched:
        return f"no trial of {of} matches ({searched} searched){more}"
    if not only_newest and shown < found.matched:
        more = f"; -n {found.matched} shows all"
    return f"{shown} of {quantity(found.matched, 'matching trial')} of {of} ({searched} searched){more}"


class Rows:
    """Lines of one table whose rows come one by one."""

    def __init__(self, first: Sequence[TrialHead], now: float, width: int | None) -> None:
        self._columns = chosen(first, now, width)
        self._widths = [max(column.least, _width(column, first, now)) for column in self._columns]

    @property
    def titles(self) -> str:
        """The line of titles."""
        return _line([column.title for column in self._columns], self._columns, self._widths)

    def line(self, head: TrialHead, now: float) -> str:
        """The line of one trial."""
        return _line([column.text(head, now) for column in self._columns], self._columns, self._widths)


def _width(column: Column, heads: Iterable[TrialHead], now: float) -> int:
    return max([len(column.title), *(len(column.text(head, now)) for head in heads)])


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    shown = (
        cell.rjust(width) if column.right else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    )
    return GAP.join(shown).rstrip()


def step_lines(step: StepTrials, now: float) -> list[str]:
    """A step's trials in sentences: how many have ended, how they ended, the times of their phases, and the slowest."""
    lines = [f"step {step.step}: {step.finished} of {quantity(step.total, 'trial')} finished{_rest(step)}"]
    if set(endings := endings_of(step)) - {DONE}:
        lines.append(f"  ended by: {one_line(counted_endings(endings))}")
    if step.failures:
        lines.append(f"  errors: {histogram(step.failures)}")
    if step.failed_in:
        lines.append(f"  errors in: {histogram(step.failed_in)}")
    for phase in PHASES:
        times = step.phases.get(phase)
        if times is not None:
            lines.append(
                f"  {phase}: mean {short_time(times.mean)}, longest {short_time(times.longest)} "
                f"({quantity(times.trials, 'trial')})"
            )
    lines += [f"  {slow_words(slow, now)}" for slow in step.slowest]
    return lines


def _rest(step: StepTrials) -> str:
    words = [f"{step.running} running"] if step.running else []
    words += [f"{step.cut_off} cut off"] if step.cut_off else []
    words += [said] if (said := step_reward_words(step)) else []
    return "".join(f", {word}" for word in words)


def histogram(counts: Mapping[str, int]) -> str:
    """``submit 50, AgentTimeoutError 11``: the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{one_line(name)} {count}" for name, count in ordered)


def slow_words(slow: SlowTrial, now: float) -> str:
    """``slow: NAME has run for 12m03s, waits for its tool``."""
    name = one_line(slow.name)
    if slow.state == "running":
        ran = f"has run for {duration(now - slow.started_at)}" if slow.started_at is not None else "runs"
        waits = (
            f"waits for {WAITED[slow.waits_for]}"
            if slow.waits_for in WAITED
            else "what it waits for is not known"
        )
        return f"slow: {name} {ran}, {waits}"
    spent = f", most of it for {WAITED[slow.spent_on]}" if slow.spent_on in WAITED else ""
    verb = "was cut off after" if slow.state == "cut_off" else "took"
    return f"slow: {name} {verb} {short_time(slow.seconds)}{spent}"


NO_NAMES: Mapping[str, str] = {}


def shown_lines(shown: TrialShown, now: float, names: Mapping[str, str] = NO_NAMES) -> list[str]:
    """One trial: its facts, why it got its reward, its turns and its files. ``names``: of the replicas, by address."""
    head = shown.trial
    rewards = ", ".join(f"{one_line(name)} {value:g}" for name, value in head.rewards.items())
    acted = acts_in(head.kind, head.tool_calls, head.turns)
    facts = (
        ("name", head.name),
        ("path", head.path),
        ("task", head.task),
        ("step", "" if head.step is None else str(head.step)),
        ("validation after step", "" if head.validated is None else str(head.validated)),
        ("state", head.state.replace("_", " ")),
        ("rewards", rewards or (reward_cell(head) if head.reward is not None else "none")),
        ("no reward", head.no_reward),
        ("started", _stamp(head.started_at)),
        ("time", short_time(head.took(now))),
        ("phases", phase_words(head.phases, head.model_seconds, head.kind, acted=acted)),
        ("phase", _phase_now(head, now)),
        ("waits for", WAITED.get(head.waits_for, "not known" if head.state == "running" else "")),
        ("most time", f"for {WAITED[head.spent_on]}" if head.spent_on in WAITED else ""),
        ("ended by", ending_of(head)),
        ("error", shown.exception),
        ("ending", shown.ending),
        ("flags", ", ".join(sorted(marks_of(head) - {"error"}))),
        ("replica", replica_name(head.replica, names) if head.replica else ""),
        ("note", shown.note),
    )
    lines = [f"{name + ':':<11} {one_line(value)}" for name, value in facts if value]
    if head.state == "finished" and (head.rewards or shown.verifier.known):
        lines += ["", f"{reward_title(head.rewards)}:"]
        none = may_be_none(head.rewards, head.outcome, bool(shown.exception))
        lines += [f"  {line}" for line in report_lines(head.rewards, shown.verifier, none=none)]
    if shown.commands:
        lines += ["", f"{commands_title(shown.commands)}:", *command_lines(shown.commands)]
    lines += ["", *_turn_lines(shown)] if shown.turns else ["", "no turns are recorded"]
    if not any(turn.tool_calls for turn in shown.turns):  # of an agent with tools they would be pages
        lines += _chat_lines(shown)
    if shown.files:
        lines += ["", "files:", *(f"  {size(file.size):>6}  {one_line(file.name)}" for file in shown.files)]
    return lines


def _phase_now(head: TrialHead, now: float) -> str:
    if head.phase is None or head.phase in head.phases:
        return ""
    since = (
        f" for {duration(now - head.phase_since)}"
        if head.phase_since is not None and head.state == "running"
        else ""
    )
    return f"{head.phase}{since}" if head.state == "running" else f"{head.phase}, which it did not finish"


def _finish(turn: TurnShown) -> str:
    """How a turn ended, in words."""
    if not turn.success:
        return "failed"
    return "answer not recorded" if turn.tool_calls is None else one_line(turn.finish_reason or "-")


def _turn_lines(shown: TrialShown) -> list[str]:
    rows = [("TURN", "AT", "TIME", "CALLS", "PROMPT", "REPLY", "FINISH")]
    for turn in shown.turns:
        at = shown.trial.started_at
        rows.append(
            (
                str(turn.number),
                "-"
                if turn.started_at is None or at is None
                else f"+{short_time(max(0.0, turn.started_at - at))}",
                short_time(turn.seconds),
                "-" if turn.tool_calls is None else str(turn.tool_calls),
                "-" if turn.prompt_tokens is None else str(turn.prompt_tokens),
                "-" if turn.completion_tokens is None else str(turn.completion_tokens),
                _finish(turn),
            )
        )
    return list(aligned(rows, right=range(len(rows[0]) - 1), gap=GAP))


def _chat_lines(shown: TrialShown) -> Iterator[str]:
    """What the model was asked and what it said, turn by turn."""
    for turn in shown.turns:
        number = f" in turn {turn.number}" if len(shown.turns) > 1 else ""
        for title, text in (("asked", turn.asked), ("the model said", turn.said)):
            yield ""
            yield f"{title}{number}:" if text else f"{title}{number}: nothing is recorded"
            yield from (f"  {visible(line)}" for line in text.splitlines())


def _stamp(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at is not None else ""
