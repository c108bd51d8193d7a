"""Rows of the trajectories pane: trials and steps, in any width; which trials are listed and in which order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from rich.cells import cell_len

from liverl.model import TrialHead
from liverl_tui.data.view import Link
from liverl_tui.text.words import age, count, number, one_line, short_name
from liverl_tui.widgets.base.cells import Row, Span, fit
from liverl_tui.widgets.base.fitting import Column, choose, heads
from liverl_tui.widgets.base.trial_words import (
    Tally,
    calls_of,
    finish_words,
    flag_words,
    flagged,
    replica_name,
    reward_word,
    state_of,
)

_TRIAL = (
    Column("state", "state", 9, 0),
    Column("step", "step", 4, 5, ">"),
    Column("task", "task", 12, 1, grows=28),
    Column("turns", "turns", 5, 4, ">"),
    Column("calls", "calls", 10, 2, ">"),
    Column("reward", "reward", 6, 3, ">"),
    Column("finish", "finish", 10, 6),
    Column("tokens", "tokens", 6, 9, ">"),
    Column("replica", "replica", 9, 10, grows=12),
    Column("age", "age", 5, 7, ">"),
    Column("flags", "flags", 11, 8, grows=30),
)
_STEP = (
    Column("step", "step", 6, 0, ">"),
    Column("share", "tools", 28, 1),
    Column("reward", "mean reward", 11, 2, ">"),
    Column("running", "running", 7, 3, ">"),
    Column("finishes", "finish reasons", 21, 4, grows=60),
)


@dataclass(frozen=True)
class RowContext:
    """What a trial's row shows beside its head. ``now``: Unix time; ``names``: replica names by root address;
    ``equal``: groups (step, task) in which all rewards are equal."""

    now: float = 0.0
    link: Link = "connecting"
    names: Mapping[str, str] = field(default_factory=dict)
    equal: frozenset[tuple[int | None, str]] = frozenset()


def trial_head(width: int) -> Row:
    """The column heads of a list of trials."""
    return heads(choose(_TRIAL, width))


def trial_row(head: TrialHead, width: int, context: RowContext) -> Row:
    """One trial as a line."""
    # Every snapshot has new heads, but what a line shows of them seldom changes: the cache compares just that.
    return Row(
        *_trial_spans(
            width,
            state_of(head, context.link),
            head.step,
            head.task,
            head.turns,
            calls_of(head),
            head.reward,
            head.finish_reason,
            head.completion_tokens,
            replica_name(head.replica, context.names),
            _age(context.now - head.updated_at),
            flag_words(head, (head.step, head.task) in context.equal),
        )
    )


@lru_cache(maxsize=256)
def _trial_spans(
    width: int,
    state: Span,
    step: int | None,
    task: str,
    turns: int,
    calls: Span,
    reward: float | None,
    finish: str | None,
    tokens: int,
    replica: str,
    age: str,
    flags: tuple[Span, ...],
) -> tuple[Span, ...]:
    """The spans of a trial's line. Cached, so it depends on nothing but its arguments."""
    cells: dict[str, Span | list[Span]] = {
        "state": state,
        "step": ("-" if step is None else str(step), "dim"),
        "task": (one_line(task), "text"),
        "turns": (str(turns), "text"),
        "calls": calls,
        "reward": (reward_word(reward), "dim" if reward is None else "text"),
        "finish": (one_line(finish or "-"), "dim"),
        "tokens": (count(tokens), "dim"),
        "replica": (replica, "dim"),
        "age": (age, "dim"),
        "flags": _flags_cell(flags),
    }
    chosen = choose(_TRIAL, width)
    room = next((wide for column, wide in chosen if column.name == "replica"), 0)
    cells["replica"] = (short_name(replica, room), "dim") if room else cells["replica"]
    return tuple(_row(cells, chosen).spans)


def step_head(width: int) -> Row:
    """The column heads of the table of steps."""
    return heads(choose(_STEP, width))


def step_row(tally: Tally, width: int) -> Row:
    """One step as a line: how many trials call tools, mean reward, running trials, finish reasons."""
    cells: dict[str, Span | list[Span]] = {
        "step": (str(tally.step), "text"),
        "share": (
            tally.share if tally.decided else f"{tally.total} trials",
            tally.style if tally.decided else "dim",
        ),
        "reward": (number(tally.mean_reward), "text" if tally.mean_reward is not None else "dim"),
        "running": (str(tally.running) if tally.running else "-", "info" if tally.running else "dim"),
        "finishes": (one_line(finish_words(tally.finishes)) or "-", "dim"),
    }
    return _row(cells, choose(_STEP, width))


def _flags_cell(flags: Sequence[Span]) -> list[Span]:
    """The flags in the style of the worst one; words that are no flags follow, dim."""
    problems = [text for text, style in flags if style != "dim"]
    rest = [text for text, style in flags if style == "dim"]
    cell = [(", ".join(problems), flags[0][1])] if problems else []
    if rest:
        cell.append((", " * bool(problems) + ", ".join(rest), "dim"))
    return cell or [("", "dim")]


def _row(cells: Mapping[str, Span | list[Span]], chosen: Sequence[tuple[Column, int]]) -> Row:
    row = Row()
    for index, (column, width) in enumerate(chosen):
        cell = cells[column.name]
        spans = cell if isinstance(cell, list) else [cell]
        text = "".join(part for part, _ in spans)
        # Not padded to the column: the background of an alarm is only as wide as its words.
        own = fit(text, min(width, cell_len(text)))
        blank = " " * (width - cell_len(own))
        before, after = (blank, "") if column.align == ">" else ("", blank)
        if lead := " " * (index > 0) + before:
            row.add(lead)
        at = 0
        for part, style in spans:
            row.add(own[at : at + len(part)], style)
            at += len(part)
        if after:
            row.add(after)
    return row


def _age(seconds: float) -> str:
    """The age as text. Below a minute in steps of 10 s: otherwise every row of young trials changes every second."""
    if seconds < 10:
        return "now"
    return age(seconds - seconds % 10 if seconds < 60 else seconds)


# -- selection and order

_EARLIER = 3  # the last group of the first order: trials of earlier steps that are not flagged or not recent

Order = tuple[str, Callable[[TrialHead], tuple[bool, float]] | None]  # name and sort key; None: as they come
ORDERS: tuple[Order, ...] = (
    ("flagged first", None),  # see ``_attention``
    ("newest first", None),
    ("by reward", lambda h: (h.reward is None, -(h.reward or 0.0))),
    ("by turns", lambda h: (False, -h.turns)),
    ("by tokens", lambda h: (False, -h.completion_tokens)),
)


def matches(head: TrialHead, text: str, equal: bool) -> bool:
    """Whether task, name, flags, tool calls, finish reason or state contain ``text``, ignoring case. ``equal``: the
    trial's group has equal rewards, which is one of the words."""
    words = [head.task, head.name, head.finish_reason or "", *head.flags, calls_of(head)[0]]
    words += [word for word, _ in flag_words(head, equal)]
    words.append({"running": "running", "finished": "done", "cut_off": "cut off"}[head.state])
    return text.lower() in "\n".join(words).lower()


def arrange(
    trials: Sequence[TrialHead],
    order: int,
    text: str = "",
    only_flagged: bool = False,
    equal: frozenset[tuple[int | None, str]] = frozenset(),
) -> list[TrialHead]:
    """The trials to list, in the order of ``ORDERS[order]``. ``trials`` come newest first, and ties keep that
    order. In the first order, what needs attention is first: flagged trials of the newest two steps, finished ones
    of the newest step, running ones, the rest."""
    shown = [
        head
        for head in trials
        if (not only_flagged or flagged(head))
        and (not text or matches(head, text, (head.step, head.task) in equal))
    ]
    key = ORDERS[order][1]
    if order == 0:
        newest = _newest(shown)
        return sorted(shown, key=lambda head: _attention(head, newest))
    return shown if key is None else sorted(shown, key=key)


def present(trials: Sequence[TrialHead]) -> int:
    """How many of ``trials``, in the first order, come before those of earlier steps."""
    newest = _newest(trials)
    return sum(_attention(head, newest) < _EARLIER for head in trials)


def _newest(trials: Sequence[TrialHead]) -> int | None:
    return max((head.step for head in trials if head.step is not None), default=None)


def _attention(head: TrialHead, newest: int | None) -> int:
    """The place of a trial's group in the first order. ``newest``: the newest step. Flags of earlier steps need no
    attention any more; those of the step before do, while the new one has hardly begun."""
    behind = 0 if head.step is None or newest is None else newest - head.step
    if flagged(head) and behind <= 1:
        return 0
    if head.state == "running":
        return 2
    return _EARLIER if behind else 1


def untouched(head: TrialHead) -> bool:
    """Whether the trial runs and has no turn yet, so that its row would say nothing."""
    return head.state == "running" and not head.turns and not head.tool_calls and not flagged(head)


def untouched_row(number: int, state: Span, key: str) -> Row:
    """One line for all running trials without a turn, which are in ``state``. ``key`` lists them."""
    return Row(state).add(f"  {number} trials, no turn yet ({key} lists them)", "dim")
