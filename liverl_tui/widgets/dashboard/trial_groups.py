"""The trajectories pane's GRPO groups: what is known of the trials of one prompt in one step, as one line. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter

from msgspec import Struct

from liverl.model import TrialHead
from liverl.observe.trials.groups import GroupKey, group_of
from liverl.util.plural import quantity
from liverl_tui.data.view import Link
from liverl_tui.text.words import count, one_line, step_word
from liverl_tui.widgets.base.arranging import Wanted, fitted
from liverl_tui.widgets.base.cells import Row, Span
from liverl_tui.widgets.base.fitting import Chosen, Column
from liverl_tui.widgets.base.trial_words import (
    ALL_EQUAL,
    UNKNOWN,
    calls_of,
    flag_words,
    ran,
    state_of,
    time_word,
)
from liverl_tui.widgets.dashboard.trial_cells import table_row
from liverl_tui.widgets.dashboard.trial_ids import task_with_id
from liverl_tui.widgets.dashboard.trial_rows import TRIAL, marked_validation

_PREFIX = "group:"  # of the keys of rows


class Group(Struct, frozen=True):
    """The known trials of one prompt in one step, in the order in which they are listed."""

    key: GroupKey
    trials: tuple[TrialHead, ...]

    @property
    def name(self) -> str:
        """The key of its row."""
        return _PREFIX + "\0".join(map(str, self.key))

    @property
    def began(self) -> float:
        """When its first trial began: Unix seconds."""
        return min(h.started_at if h.started_at is not None else h.updated_at for h in self.trials)

    @property
    def zero(self) -> int:
        """How many of its trials made no tool call."""
        return sum("zero_tool_calls" in head.flags for head in self.trials)


# What a line says of each trial of a group, but for its time
_DRAWN = attrgetter(
    "state",
    "error",
    "reward",
    "flags",
    "tool_calls",
    "turns",
    "completion_tokens",
    "dumped",
    "finish_reason",
    "earlier",
    "validated",
)


class Looks:
    """A group by what its line says: equal to each other group whose line is the same, but for the time in it. Trials
    that run change with each view in what no line shows."""

    __slots__ = ("drawn", "group")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.drawn = (group.key, tuple(map(_DRAWN, group.trials)))

    def __hash__(self) -> int:
        return hash(self.drawn)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Looks) and self.drawn == other.drawn


def groups_of(trials: Iterable[TrialHead]) -> list[Group]:
    """The groups of ``trials``, in the order of the first trial of each. A group may have a single trial."""
    members: dict[GroupKey, list[TrialHead]] = {}
    for head in trials:
        members.setdefault(group_of(head), []).append(head)
    return [Group(key, tuple(heads)) for key, heads in members.items()]


def mean_and_deviation(rewards: Sequence[float]) -> tuple[float, float] | None:
    """(mean, sample standard deviation) of the rewards of a group; None without rewards, deviation 0 for one.

    The sample's (n - 1), as GRPO normalises: verl's ``compute_grpo_outcome_advantage`` divides by ``torch.std``, whose
    default is unbiased, and so does ``liverl.embedded.trainer.grpo``.
    """
    if not rewards:
        return None
    mean = math.fsum(rewards) / len(rewards)
    return mean, math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / max(len(rewards) - 1, 1))


class GroupFacts(Struct, frozen=True):
    """What the columns read of one group. ``now``: Unix time; ``ended``: the run is, so nothing runs any more."""

    group: Group
    now: float
    ended: bool

    @property
    def rewards(self) -> tuple[float, float] | None:
        """See ``mean_and_deviation``."""
        return _rewards(self.group)

    @property
    def running(self) -> int:
        """How many trials run."""
        return 0 if self.ended else sum(head.state == "running" for head in self.group.trials)

    @property
    def ran(self) -> float | None:
        """Seconds that the longest trial took."""
        seconds = [ran(head, self.now, self.ended) for head in self.group.trials]
        return max((value for value in seconds if value is not None), default=None)

    @property
    def flags(self) -> str | None:
        """The flags of its trials in words; None without any."""
        return ", ".join(text for head in self.group.trials for text, _ in flag_words(head)) or None

    def mean(self, read: Callable[[TrialHead], float]) -> float:
        """The mean of a value of its trials."""
        return sum(map(read, self.group.trials)) / len(self.group.trials)


def _deviation(facts: GroupFacts) -> float | None:
    rewards = facts.rewards if len(facts.group.trials) > 1 else None
    return None if rewards is None else rewards[1]


_SAYS_STEP = (
    "step",
    "state",
    "task",
)  # columns of groups: the first that is shown says that a row is a validation
GROUP = (
    Column(
        "size", "group", 9, 0, value=lambda f: len(f.group.trials), largest_first=True, label="size of group"
    ),
    Column("step", "step", 4, 5, ">", value=lambda f: f.group.key[0], largest_first=True),
    Column("task", "task", 10, 1, grows=12, value=lambda f: f.group.key[1]),
    Column(
        "state",
        "trials",
        17,
        4,
        grows=6,
        value=lambda f: f.running,
        largest_first=True,
        label="running trials",
    ),
    Column("reward", "reward", 15, 3, value=lambda f: f.rewards and f.rewards[0], largest_first=True),
    Column(
        "calls",
        "tools",
        13,
        2,
        value=lambda f: f.mean(lambda h: h.tool_calls),
        largest_first=True,
        label="tool calls",
    ),
    Column("time", "time", 5, 7, ">", value=lambda f: f.ran, largest_first=True),
    Column("flags", "flags", 11, 6, grows=40, value=lambda f: f.flags),
    Column("deviation", "dev", 5, 8, ">", value=_deviation, label="deviation of rewards", shown=False),
    Column(
        "turns",
        "turns",
        5,
        8,
        ">",
        value=lambda f: f.mean(lambda h: h.turns),
        largest_first=True,
        shown=False,
    ),
    Column(
        "tokens",
        "tokens",
        6,
        8,
        ">",
        value=lambda f: f.mean(lambda h: h.completion_tokens),
        largest_first=True,
        shown=False,
    ),
)


def group_row(
    group: Group,
    width: int,
    expanded: bool,
    equal: bool,
    now: float,
    ended: bool,
    wanted: Wanted = frozenset(),
    *,
    among_trials: bool = False,
) -> Row:
    """One group as a line; its time is that of its longest trial. ``equal``: all rewards are the same; ``now``: Unix
    time; ``ended``: the run is, so nothing runs any more; ``among_trials``: in the columns of trials, whose heads stand
    above as soon as a group is open."""
    longest = _longest(group, now, ended)
    spans = _spans_among_trials if among_trials else _group_spans
    return Row(*spans(Looks(group), width, expanded, equal, longest, ended, wanted))


@lru_cache(maxsize=256)
def _spans_among_trials(
    looks: Looks, width: int, expanded: bool, equal: bool, longest: Span, ended: bool, wanted: Wanted
) -> tuple[Span, ...]:
    """The spans of a group's line in the columns of its trials: what a column says of one of them, of all."""
    group = looks.group
    step, task, _, earlier = group.key
    style = "dim" if earlier else "text"
    rewards = _rewards(group)
    chosen = fitted(TRIAL, wanted, width)
    cells: dict[str, Span | list[Span]] = {
        "state": (f"{'▾' if expanded else '▸'} ×{len(group.trials)}", style),
        "step": (step_word(step, group.trials[0].validated), "dim"),
        "task": (marked_validation(one_line(task), group.trials[0].validated, chosen, "task"), style),
        "calls": (f"✖ {group.zero} NONE", "alarm") if group.zero else _tools(group),
        "reward": ("-", "dim") if rewards is None else (f"{rewards[0]:.2f}", style),
        "finish": (_states(group, ended), style),
        "time": longest,
        "flags": _flags(group, equal),
        **_means(group, chosen),
        **dict.fromkeys(("replica", "preview", "name"), ("", "dim")),
    }
    return tuple(table_row(cells, chosen).spans)


@lru_cache(maxsize=256)
def _group_spans(
    looks: Looks, width: int, expanded: bool, equal: bool, longest: Span, ended: bool, wanted: Wanted
) -> tuple[Span, ...]:
    """The spans of a group's line. Cached: few groups change from one view to the next."""
    group = looks.group
    step, task, _, earlier = group.key
    chosen = fitted(GROUP, wanted, width)
    cells: dict[str, Span | list[Span]] = {
        "size": (f"{'▾' if expanded else '▸'} ×{len(group.trials)}", "dim" if earlier else "text"),
        "step": (step_word(step, group.trials[0].validated), "dim"),
        "reward": _reward(group),
        "calls": _tools(group),
        "time": longest,
        "flags": _flags(group, equal),
        **_means(group, chosen),
    }
    states = marked_validation(_states(group, ended), group.trials[0].validated, chosen, "state", _SAYS_STEP)
    style = "dim" if earlier else "text"
    cells["state"] = (states, style)
    named = marked_validation(one_line(task), group.trials[0].validated, chosen, "task", _SAYS_STEP)
    cells["task"] = (named, style)
    return tuple(table_row(cells, chosen).spans)


_MEANS = frozenset(("deviation", "turns", "tokens"))


def _means(group: Group, chosen: Chosen) -> dict[str, Span | list[Span]]:
    """The cells of the columns that are not shown by default; none if none of them is among ``chosen``."""
    if _MEANS.isdisjoint(column.name for column, _ in chosen):
        return {}
    facts = GroupFacts(group, 0.0, False)
    deviation = _deviation(facts)
    dumped = any(head.dumped for head in group.trials)
    return {
        "deviation": ("-" if deviation is None else f"{deviation:.2f}", "dim"),
        "turns": (UNKNOWN if dumped else f"{facts.mean(lambda h: h.turns):.1f}", "dim"),
        "tokens": (UNKNOWN if dumped else count(facts.mean(lambda h: h.completion_tokens)), "dim"),
    }


def lone_row(
    head: TrialHead, width: int, link: Link, now: float, wanted: Wanted = frozenset(), short_id: str = ""
) -> Row:
    """A trial that no group has, in the columns of ``group_row``. ``now``: Unix time; ``short_id``: see
    ``trial_ids``."""
    return Row(*_lone_spans(head, width, link, time_word(head, now, link == "ended"), wanted, short_id))


@lru_cache(maxsize=256)
def _lone_spans(
    head: TrialHead, width: int, link: Link, time: str, wanted: Wanted, short_id: str
) -> tuple[Span, ...]:
    """The spans of a lone trial's line, cached as those of a group."""
    calls, style = calls_of(head)
    chosen = fitted(GROUP, wanted, width)
    room = next((wide for column, wide in chosen if column.name == "task"), 0)
    turns = UNKNOWN if head.dumped else quantity(head.turns, "turn")
    named = marked_validation(head.task, head.validated, chosen, "task", _SAYS_STEP)
    cells: dict[str, Span | list[Span]] = {
        "size": state_of(head, link),
        "step": (step_word(head.step, head.validated), "dim"),
        "task": (task_with_id(named, short_id, room), "text"),
        "state": (marked_validation(turns, head.validated, chosen, "state", _SAYS_STEP), "text"),
        "reward": ("-", "dim") if head.reward is None else (f"{head.reward:.2f}", "text"),
        "calls": (calls, style)
        if style == "alarm" or calls == UNKNOWN
        else (f"{calls} call{'' if calls == '1' else 's'}", style),
        "time": (time, "dim"),
        "flags": _joined(flag_words(head)),
        **_means(lone_group(head), chosen),
    }
    return tuple(table_row(cells, chosen).spans)


def lone_group(head: TrialHead) -> Group:
    """A trial as a group of its own."""
    return Group((head.step, head.task, head.path, head.earlier), (head,))


def _states(group: Group, ended: bool) -> str:
    counts: Counter[str] = Counter(
        "cut_off" if ended and h.state == "running" else "failed" if h.error else h.state
        for h in group.trials
    )
    words: Mapping[str, str] = {
        "failed": "failed", "finished": "done", "running": "running", "cut_off": "cut off"
    }  # fmt: skip
    return ", ".join(f"{counts[state]} {word}" for state, word in words.items() if counts[state])


def _rewards(group: Group) -> tuple[float, float] | None:
    return mean_and_deviation(
        [reward for head in group.trials if (reward := head.counted_reward) is not None]
    )


def _reward(group: Group) -> Span:
    known = _rewards(group)
    if known is None:
        return "-", "dim"
    mean, deviation = known
    spread = f" ±{deviation:.2f}" if len(group.trials) > 1 else ""
    return f"mean {mean:.2f}{spread}", "dim" if group.key[3] else "text"


def _tools(group: Group) -> Span:
    if group.zero:
        return f"✖ {group.zero} NO TOOLS", "alarm"
    # As for a step: of a trial that was cut off nothing is concluded.
    trials = [head for head in group.trials if head.state != "cut_off"]
    calling = sum(head.tool_calls > 0 for head in trials)
    return (f"tools {calling}/{len(trials)}", "text") if calling else ("-", "dim")


def _longest(group: Group, now: float, ended: bool) -> Span:
    return time_word(max(group.trials, key=lambda head: ran(head, now, ended) or 0.0), now, ended), "dim"


def _flags(group: Group, equal: bool) -> list[Span]:
    counts: Counter[Span] = Counter(span for head in group.trials for span in flag_words(head))
    words = [
        (t if times == len(group.trials) else f"{times} {t}", style) for (t, style), times in counts.items()
    ]
    return _joined([*words, *([(ALL_EQUAL, "dim")] if equal else ())])


def _joined(words: Iterable[Span]) -> list[Span]:
    """The words with commas between them; a blank cell without any."""
    return [(f"{', ' if place else ''}{text}", style) for place, (text, style) in enumerate(words)] or [
        ("", "dim")
    ]
