"""The rewards of which a histogram is shown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from liverl.model import TrialHead
from liverl.util.plural import quantity

if TYPE_CHECKING:
    from liverl.observe.trials.index import TrialIndex


class Shown(Struct, frozen=True):
    """``unknown``: trials without a reward; ``what``: whose rewards they are; ``within``: a filter that chooses these
    trials, with a space behind it, empty where they are those that are listed."""

    rewards: list[float]
    unknown: int
    what: str
    within: str = ""


def of_whole_run(index: TrialIndex, rows: Sequence[int]) -> Shown:
    """Those of the rows of all trials of the run."""
    rewards = list(index.rewards(rows))
    return Shown(rewards, len(rows) - len(rewards), quantity(len(rows), "trial"))


def of_step(known: Iterable[TrialHead], step: int | None) -> Shown:
    """Those of the trials of ``step``, which is listed; without one, of the newest step that has a reward."""
    present = [head for head in known if not head.earlier]
    listed = step is not None
    if not listed:
        rewarded = (h.step for h in present if h.step is not None and h.reward is not None)
        step = max(rewarded, default=None)
    heads = [head for head in present if head.step == step]
    rewards = [head.reward for head in heads if head.reward is not None]
    within = f"step={step} " if heads and step is not None and not listed else ""
    return Shown(rewards, len(heads) - len(rewards), f"step {step}" if heads else "", within)
