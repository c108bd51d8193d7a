"""What a reward that all trials have means: nothing is solved, all is solved, or the reward cannot tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from liverl.observe.metrics.solved import FULL

Level = Literal["none", "solved", "same"]
KEEP = (
    "nothing is broken: let the run end, or stop it and keep its newest checkpoint. "
    "To continue training, use harder tasks"
)
# A verifier that cannot fail, and a policy that has found its gap, look like solved tasks.
CAN_FAIL = "if a trial is not as good as its reward says, check that the verifier can fail"


def level_of(reward: float, seen: Iterable[float]) -> Level:
    """``none``: at most 0; ``solved``: at least ``FULL``, and no other step had a higher mean (``seen``); ``same``:
    neither. The highest so far is no ceiling: all trials of a step may have got a bonus for their format alone."""
    if reward <= 0.0:
        return "none"
    return "solved" if reward >= FULL and max(seen, default=reward) <= reward else "same"
