"""What a reward that all trials have means: nothing is solved, all is solved, or the reward cannot tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

# Rewards of verifiers are 0 to 1 (verl's reward functions, Harbor's reward.txt): 1 is a full solution.
FULL = 1.0
Level = Literal["none", "solved", "same"]
KEEP = (
    "nothing is broken: let the run end, or stop it and keep its newest checkpoint. "
    "To continue training, use harder tasks"
)


def level_of(reward: float, seen: Iterable[float]) -> Level:
    """``none``: at most 0; ``solved``: at the ceiling: no other step had a higher mean, and it is ``FULL``, or
    others had a lower one (``seen``); ``same``: neither is known."""
    if reward <= 0.0:
        return "none"
    others = tuple(seen)
    if max(others, default=reward) > reward:
        return "same"
    return "solved" if reward >= FULL or min(others, default=reward) < reward else "same"
