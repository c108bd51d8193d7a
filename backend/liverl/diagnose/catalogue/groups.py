"""The trials of a step in the groups that advantages are relative to, as far as their heads are listed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from liverl.diagnose.catalogue.step_shares import is_over
from liverl.diagnose.tracker import FEWEST
from liverl.model import Snapshot, StepTrials, TrialHead


def complete_step(now: Snapshot) -> StepTrials | None:
    """The newest step whose trials have all finished."""
    return next(complete_steps(now), None)


def complete_steps(now: Snapshot) -> Iterator[StepTrials]:
    """The steps whose trials have all finished, the newest first."""
    for step in now.trials.steps:
        if is_over(now, step) and step.finished == step.total >= FEWEST:
            yield step


def without_tools(step: StepTrials) -> bool:
    """Whether half of its trials called no tool, which is then told (``zero_tool_calls``). Trials that are offered no
    tools are none of them."""
    return step.zero_tool_calls > 0 and 2 * step.zero_tool_calls >= step.judged


def heads_of(now: Snapshot, step: StepTrials) -> list[TrialHead]:
    """Those of its trials that are listed, and count."""
    return [h for h in now.trials.newest if h.step == step.step and not h.earlier]


def groups_of(now: Snapshot, step: StepTrials) -> dict[str, list[float]]:
    """The rewards of each group of trials of a step, without those of trials that are not trained; empty if one is not
    known, or a group has only one trial."""
    heads = heads_of(now, step)
    sizes = Counter(head.group for head in heads)
    known = all(head.group and (head.reward is not None or not head.counts) for head in heads)
    if not known or len(heads) != step.total or min(sizes.values(), default=0) < 2:
        return {}
    groups: dict[str, list[float]] = {name: [] for name in sizes}
    for head in heads:
        if (reward := head.counted_reward) is not None:
            groups[head.group].append(reward)
    return groups
