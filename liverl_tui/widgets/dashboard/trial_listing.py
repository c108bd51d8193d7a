"""Which rows the trajectories pane has, and in which order: trials, groups of trials, and one for those without a turn.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from msgspec import Struct, field

from liverl.model import TrialHead
from liverl_tui.widgets.base.arranging import Order, in_order
from liverl_tui.widgets.base.fitting import Column
from liverl_tui.widgets.dashboard.trial_groups import Group, GroupFacts, groups_of, lone_group
from liverl_tui.widgets.dashboard.trial_rows import (
    EARLIER_STEPS,
    RowContext,
    TrialFacts,
    attention,
    flagged_first,
    newest_step,
    untouched,
)

T = TypeVar("T")
UNTOUCHED = "untouched:"  # key of the row that stands for all running trials without a turn


class Listing(Struct, frozen=True):
    """The rows of a list of trials. ``names``: keys of the rows, in order; ``trials``: the listed trials by path, in
    order, with those inside closed groups; ``groups``: by key; ``untouched``: the trials that one row stands for."""

    names: tuple[str, ...] = ()
    trials: dict[str, TrialHead] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    untouched: tuple[TrialHead, ...] = ()

    def group_with(self, path: str) -> str | None:
        """The key of the group that a trial is in; None if it has a row of its own."""
        return next(
            (name for name, group in self.groups.items() if any(h.path == path for h in group.trials)), None
        )


def plain_listing(trials: Sequence[TrialHead]) -> Listing:
    """A row for each trial."""
    heads = {head.path: head for head in trials}
    return Listing(tuple(heads), heads)


def grouped_listing(
    trials: Sequence[TrialHead],
    grouped: bool,
    opened: Collection[str],
    untouched_too: bool,
    order: Callable[[list[Group]], list[Group]] | None = None,
) -> Listing:
    """The trials, which are in the first order, with a row for each group that has more than one of them, if
    ``grouped``; ``opened``: keys of the groups whose trials follow in rows of their own. Running trials without a turn
    are in one row, unless ``untouched_too``; those of a group with other trials are in the group. ``order``: sorts
    groups and trials outside of groups; None keeps the first order."""
    newest = newest_step(trials)
    parts = groups_of(trials) if grouped else [lone_group(head) for head in trials]
    hidden: list[TrialHead] = []
    if not untouched_too:
        hidden = [head for part in parts if all(map(untouched, part.trials)) for head in part.trials]
        hidden = hidden if len(hidden) > 1 else []
    apart = {head.path for head in hidden}
    shown = [part for part in parts if part.trials[0].path not in apart]
    if order is not None:
        shown = order(shown)
    elif grouped:
        shown.sort(key=lambda part: (_attention(part, newest), -part.began))
    names: list[str] = []
    listed: dict[str, TrialHead] = {}
    groups: dict[str, Group] = {}
    place = None
    for part in shown:
        if hidden and place is None and _attention(part, newest) >= EARLIER_STEPS:
            place = len(names)
        listed.update((head.path, head) for head in part.trials)
        if len(part.trials) > 1:
            groups[part.name] = part
            names.append(part.name)
        if len(part.trials) == 1 or part.name in opened:
            names += [head.path for head in part.trials]
    if hidden:
        names.insert(len(names) if place is None else place, UNTOUCHED)
    return Listing(tuple(names), listed, groups, tuple(hidden))


class Choices(Struct, frozen=True):
    """What the user has chosen of a list of trials. ``column`` sorts, in the direction of ``order``; without it, the
    newest are first (``newest_first``), or those that need attention. ``filtered``: a filter has chosen the trials;
    others as of ``grouped_listing``."""

    context: RowContext
    order: Order | None
    column: Column | None
    newest_first: bool
    filtered: bool
    grouped: bool
    opened: frozenset[str]
    listed_all: bool

    def listing(self, trials: list[TrialHead]) -> Listing:
        """The rows for ``trials``, which come newest first."""
        if self.column is None and not self.newest_first:
            trials = flagged_first(trials)
            if self.filtered:
                return plain_listing(trials)
            return grouped_listing(trials, self.grouped, self.opened, self.listed_all)
        if self.grouped and not self.filtered:
            return grouped_listing(trials, True, self.opened, True, self._in_order)
        return plain_listing(self._sorted(trials, lambda head: TrialFacts(head, self.context)))

    def _in_order(self, groups: list[Group]) -> list[Group]:
        return self._sorted(groups, lambda group: group_facts(group, self.context))

    def _sorted(self, items: list[T], facts: Callable[[T], object]) -> list[T]:
        """``items`` by the column that sorts; as they come without one."""
        read = self.column.value if self.column is not None else None
        if read is None or self.order is None:
            return items
        return in_order(items, lambda item: read(facts(item)), self.order.descending)


def group_facts(group: Group, context: RowContext) -> GroupFacts:
    """What the columns read of a group."""
    return GroupFacts(group, context.now, context.link == "ended")


def _attention(group: Group, newest: int | None) -> int:
    """The place of a group, whose trials are in the first order: 0 with a flagged trial that needs attention, 1 in the
    newest step, else after these."""
    best = attention(group.trials[0], newest)
    if len(group.trials) == 1:
        return best
    return min(best, 1) if best < EARLIER_STEPS else best
