"""Rows of the trajectories pane: trials and steps, in any width; which trials are listed and in which order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct, field

from liverl.model import TrialHead
from liverl.observe.trials.ending_words import counted_endings
from liverl.observe.trials.groups import GroupKey, group_of
from liverl.observe.trials.preview import LONGEST
from liverl.observe.trials.query import calls_known, parse
from liverl.util.plural import quantity
from liverl_tui.data.view import Link
from liverl_tui.text.words import count, number, one_line, short_name, step_word
from liverl_tui.widgets.base.arranging import Wanted, fitted
from liverl_tui.widgets.base.cells import Row, Span
from liverl_tui.widgets.base.fitting import Chosen, Column
from liverl_tui.widgets.base.trial_words import (
    UNKNOWN,
    Tally,
    calls_of,
    ending,
    flag_words,
    flagged,
    ran,
    replica_name,
    reward_word,
    state_of,
    time_word,
    turns_of,
)
from liverl_tui.widgets.dashboard.trial_cells import table_row
from liverl_tui.widgets.dashboard.trial_ids import task_with_id


class RowContext(Struct, frozen=True):
    """What a trial's row shows beside its head. ``now``: Unix time; ``names``: replica names by root address;
    ``equal``: groups (step, task) in which all rewards are equal; ``ids``: short ids by path."""

    now: float = 0.0
    link: Link = "connecting"
    names: Mapping[str, str] = field(default_factory=dict)
    equal: frozenset[GroupKey] = frozenset()
    wanted: Wanted = frozenset()
    ids: Mapping[str, str] = field(default_factory=dict)


class TrialFacts(Struct, frozen=True):
    """What the columns read of one trial."""

    head: TrialHead
    context: RowContext

    @property
    def ran(self) -> float | None:
        """Seconds that it took, or has taken so far; see ``trial_words.ran``."""
        return ran(self.head, self.context.now, self.context.link == "ended")

    @property
    def flags(self) -> str:
        """Its flags in words; empty without any."""
        return ", ".join(text for text, _ in flag_words(self.head, group_of(self.head) in self.context.equal))

    @property
    def replica(self) -> str:
        """The name of the replica that served it; ``-`` if none did."""
        return replica_name(self.head.replica, self.context.names)


TRIAL = (
    Column("state", "state", 9, 0, value=lambda f: state_of(f.head, f.context.link)[0][2:]),
    Column("step", "step", 4, 5, ">", value=lambda f: f.head.step, largest_first=True),
    Column("task", "task", 16, 1, grows=6, value=lambda f: f.head.task),
    Column("turns", "turns", 5, 4, ">", value=lambda f: f.head.turns, largest_first=True),
    Column(
        "calls",
        "calls",
        10,
        2,
        ">",
        value=lambda f: calls_known(f.head),
        largest_first=True,
        label="tool calls",
    ),
    Column("reward", "reward", 6, 3, ">", value=lambda f: f.head.reward, largest_first=True),
    Column("finish", "finish", 12, 6, grows=6, value=lambda f: ending(f.head, f.context.link)[0]),
    Column("time", "time", 5, 8, ">", value=lambda f: f.ran, largest_first=True),
    Column("tokens", "tokens", 6, 10, ">", value=lambda f: f.head.completion_tokens, largest_first=True),
    Column("replica", "replica", 9, 11, grows=12, value=lambda f: f.replica if f.head.replica else None),
    Column("flags", "flags", 11, 7, grows=15, value=lambda f: f.flags or None),
    Column("preview", "last call or words", 24, 9, grows=LONGEST, value=lambda f: f.head.preview or None),
    Column("name", "name", 14, 12, grows=20, value=lambda f: f.head.name, shown=False),
)
STEP = (
    Column("step", "step", 6, 0, ">", value=lambda t: t.step, largest_first=True),
    Column(
        "share",
        "tools",
        20,
        1,
        value=lambda t: t.zero if t.decided else None,
        largest_first=True,
        label="trials without a tool call",
    ),
    Column("reward", "mean reward", 11, 2, ">", value=lambda t: t.mean_reward, largest_first=True),
    Column("running", "running", 7, 3, ">", value=lambda t: t.running, largest_first=True),
    Column("finishes", "endings", 21, 4, grows=60, value=lambda t: counted_endings(t.finishes) or None),
    Column("total", "trials", 6, 5, ">", value=lambda t: t.total, largest_first=True, shown=False),
)


def marked_validation(
    words: str, validated: int | None, shown: Chosen, column: str, places: tuple[str, ...] = ("step", "task")
) -> str:
    """``val8 3 turns``: the words of ``column``, with what says that the row is a validation if that stands in no
    column before it. ``validated``: the step after which it ran; None: it is training; ``places``: columns that say it,
    the first one that is shown does."""
    names = {one.name for one, _ in shown}
    if validated is None or column != next((name for name in places if name in names), ""):
        return words
    return f"{step_word(None, validated)} {words}"


def trial_row(head: TrialHead, width: int, context: RowContext) -> Row:
    """One trial as a line."""
    # Every snapshot has new heads, but what a line shows of them seldom changes: the cache compares just that.
    return Row(
        *_trial_spans(
            width,
            context.wanted,
            state_of(head, context.link),
            step_word(head.step, head.validated),
            head.validated,
            head.task,
            context.ids.get(head.path, ""),
            turns_of(head),
            calls_of(head),
            head.reward,
            ending(head, context.link),
            None if head.dumped else head.completion_tokens,
            replica_name(head.replica, context.names),
            time_word(head, context.now, context.link == "ended"),
            flag_words(head, group_of(head) in context.equal),
            head.preview,
            head.name,
        )
    )


@lru_cache(maxsize=256)
def _trial_spans(
    width: int,
    wanted: Wanted,
    state: Span,
    step: str,
    validated: int | None,
    task: str,
    short_id: str,
    turns: Span,
    calls: Span,
    reward: float | None,
    finish: Span,
    tokens: int | None,
    replica: str,
    time: str,
    flags: tuple[Span, ...],
    preview: str,
    name: str,
) -> tuple[Span, ...]:
    """The spans of a trial's line. Cached, so it depends on nothing but its arguments."""
    cells: dict[str, Span | list[Span]] = {
        "state": state,
        "step": (step, "dim"),
        "turns": turns,
        "calls": calls,
        "reward": (reward_word(reward), "dim" if reward is None else "text"),
        "finish": finish,
        "tokens": (UNKNOWN if tokens is None else count(tokens), "dim"),
        "replica": (replica, "dim"),
        "time": (time, "dim"),
        "flags": _flags_cell(flags),
        "preview": (one_line(preview), "dim"),
        "name": (one_line(name), "dim"),
    }
    chosen = fitted(TRIAL, wanted, width)
    widths = {column.name: wide for column, wide in chosen}
    task = marked_validation(task, validated, chosen, "task")
    cells["task"] = (task_with_id(task, short_id, widths.get("task", 0)), "text")
    if "replica" in widths:
        cells["replica"] = (short_name(replica, widths["replica"]), "dim")
    return tuple(table_row(cells, chosen).spans)


def step_row(tally: Tally, width: int, wanted: Wanted = frozenset()) -> Row:
    """One step as a line: how many trials call tools, mean reward, running trials, endings."""
    cells: dict[str, Span | list[Span]] = {
        "step": (str(tally.step), "text"),
        "share": (
            tally.share if tally.decided else f"{tally.total} trials" if tally.total > tally.cut_off else "-",
            tally.style if tally.decided else "dim",
        ),
        "reward": (number(tally.mean_reward), "text" if tally.mean_reward is not None else "dim"),
        "running": (str(tally.running) if tally.running else "-", "info" if tally.running else "dim"),
        "finishes": (one_line(counted_endings(tally.finishes)) or "-", "dim"),
        "total": (str(tally.total), "text"),
    }
    return table_row(cells, fitted(STEP, wanted, width))


def _flags_cell(flags: Sequence[Span]) -> list[Span]:
    """The flags in the style of the worst one; words that are no flags follow, dim."""
    problems = [text for text, style in flags if style != "dim"]
    rest = [text for text, style in flags if style == "dim"]
    cell = [(", ".join(problems), flags[0][1])] if problems else []
    if rest:
        cell.append((", " * bool(problems) + ", ".join(rest), "dim"))
    return cell or [("", "dim")]


# -- selection and order

# The last group of the first order: trials of earlier steps that are not flagged or not recent
EARLIER_STEPS = 3

FLAGGED, NEWEST = "flagged first", "newest first"  # the orders of the list; see ``attention`` for the first


def words_of(head: TrialHead, equal: bool) -> str:
    """The text of a trial in which the filter looks: task, name, flags, tool calls, end, finish reason, state and
    preview. ``equal``: the trial's group has equal rewards, which is one of the words."""
    words = [head.task, head.name, head.finish_reason or "", *head.flags, calls_of(head)[0], head.preview]
    words += [ending(head, "live")[0], head.ended_by or ""]
    words += _validation_words(head)
    words += [word for word, _ in flag_words(head, equal)]
    words.append({"running": "running", "finished": "done", "cut_off": "cut off"}[head.state])
    words += ["failed"] if head.error else []
    return "\n".join(words)


def _validation_words(head: TrialHead) -> list[str]:
    """How the list names a validation: ``val8``, or ``v12`` where the column is narrow."""
    if head.validated is None:
        return []
    return [f"val{head.validated}", f"v{head.validated}", "validation"]


def listed(
    trials: Sequence[TrialHead],
    text: str = "",
    only_flagged: bool = False,
    equal: frozenset[GroupKey] = frozenset(),
    saved: Mapping[str, str] | None = None,
) -> list[TrialHead]:
    """The trials that the filter lets through, in their order; without any, all of them. ``saved``: see
    ``query.parse``."""
    query = parse(text, saved)
    return [
        head
        for head in trials
        if (not only_flagged or flagged(head))
        and ((query.empty and not text) or query.holds_for(head, words_of(head, group_of(head) in equal)))
    ]


def flagged_first(trials: Sequence[TrialHead]) -> list[TrialHead]:
    """The trials, which come newest first, so that what needs attention is first: flagged trials of the newest two
    steps, finished ones of the newest step, running ones, the rest."""
    newest = newest_step(trials)
    return sorted(trials, key=lambda head: attention(head, newest))


def newest_step(trials: Sequence[TrialHead]) -> int | None:
    """The newest step of the trials, without those whose step was begun again."""
    return max((head.step for head in trials if head.step is not None and not head.earlier), default=None)


def attention(head: TrialHead, newest: int | None) -> int:
    """The place of a trial's group in the first order. ``newest``: the newest step. Flags of earlier steps need no
    attention any more; those of the step before do, while the new one has hardly begun."""
    behind = 0 if head.step is None or newest is None else newest - head.step
    if head.earlier:
        return EARLIER_STEPS
    if flagged(head) and behind <= 1:
        return 0
    if head.state == "running":
        return 2
    return EARLIER_STEPS if behind else 1


def untouched(head: TrialHead) -> bool:
    """Whether the trial runs and has no turn yet, so that its row would say nothing."""
    return head.state == "running" and not head.turns and not head.tool_calls and not flagged(head)


def untouched_row(number: int, state: Span, key: str) -> Row:
    """One line for all running trials without a turn, which are in ``state``. ``key`` lists them."""
    return Row(state).add(f"  {quantity(number, 'trial')}, no turn yet ({key} lists them)", "dim")
