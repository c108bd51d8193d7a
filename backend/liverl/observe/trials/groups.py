"""Groups of trials: those of one prompt in one step. Pure, and imports nothing that reads trials."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from liverl.model import TrialHead

# Step, task, prompt of the step, whether it is of an earlier attempt at the step
GroupKey = tuple[int | None, str, str, bool]


def group_of(head: TrialHead) -> GroupKey:
    """The GRPO group of a trial: the trials of one prompt in one step."""
    return head.step, head.task, head.group, head.earlier


def equal_groups(heads: Iterable[TrialHead]) -> frozenset[GroupKey]:
    """Return the groups whose trials are all finished with the same reward: GRPO learns nothing from them. Trials that
    are not trained do not count.

    ``heads`` must contain every trial of a step.
    """
    rewards: dict[GroupKey, list[float | None]] = defaultdict(list)
    for head in heads:
        if head.counts:
            rewards[group_of(head)].append(head.reward)
    return frozenset(
        group
        for group, group_rewards in rewards.items()
        if len(group_rewards) > 1 and None not in group_rewards and len(set(group_rewards)) == 1
    )
