"""What the trials of steps waited for: shares of their time, the last ones of each step, and what the replicas took.
Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from liverl.model import ReplicaTimes, StepMetrics, StepTrials
from liverl.observe.trials.phases import AGENT, MODEL, REWARD, TOOL, WAITS

QUEUE, SANDBOX, VERIFIER = WAITS["queue"], WAITS["setup"], WAITS["verifier"]
KINDS = (SANDBOX, MODEL, TOOL, REWARD, VERIFIER, AGENT)
_LOOP = "timing_s/agent_loop/"
# The means of verl's own agent loop, and of LiveRL's with Harbor: what a trial waited for, in seconds.
_MEANS = {
    "harbor_env_setup": SANDBOX,
    "harbor_agent_setup": SANDBOX,
    "harbor_agent_model_inference": MODEL,
    "generate_sequences": MODEL,
    "harbor_agent_tool_call": TOOL,
    "tool_calls": TOOL,
    "harbor_verifier": VERIFIER,
    "compute_score": VERIFIER,
}


class Last(NamedTuple):
    """The trials that end last, in the median step: ``trials`` of ``of``, which take ``share`` of the rollouts' time
    behind all others; ``long``: see ``StepTail``; ``waits``: what most of the slowest ones waited for, "" if not
    known."""

    trials: int
    of: int
    share: float
    long: bool
    waits: str


class Rollouts(NamedTuple):
    """``waits``: of the time of the trials without their queue, 0..1; ``queue``: in the queue, of all of their time,
    None if not known;
    ``last``: None if not known; ``replicas``: what each answered, by step; ``steps``: how many."""

    steps: int
    waits: Mapping[str, float]
    queue: float | None
    last: Last | None
    replicas: Sequence[Mapping[str, ReplicaTimes]]


def of_trials(steps: Sequence[StepTrials], least: int) -> Rollouts | None:
    """What the trials of steps waited for; None if it is known of less than ``least`` steps."""
    ended = [
        step
        for step in steps
        if step.finished and not step.running and sum(_active(step.waits).values()) > 0.0
    ]
    if len(ended) < least:
        return None
    shares = [_shares(_active(step.waits)) for step in ended]
    queues = [step.waits[QUEUE] / sum(step.waits.values()) for step in ended if QUEUE in step.waits]
    waits = {kind: median(share.get(kind, 0.0) for share in shares) for kind in KINDS}
    queue = median(queues) if len(queues) >= least else None
    return Rollouts(len(ended), waits, queue, _last(ended, least), [step.replicas for step in ended])


def of_metrics(steps: Sequence[StepMetrics], least: int) -> Rollouts | None:
    """The same out of the means that verl's agent loops report."""
    shares = []
    for step in steps:
        found: dict[str, float] = {}
        for name, kind in _MEANS.items():
            if (seconds := step.values.get(f"{_LOOP}{name}/mean")) is not None:
                found[kind] = found.get(kind, 0.0) + max(0.0, seconds)
        # Without the model's time it is not known which of them is long.
        if MODEL in found and sum(found.values()) > 0.0:
            shares.append(_shares(found))
    if len(shares) < least:
        return None
    return Rollouts(len(shares), {k: median(s.get(k, 0.0) for s in shares) for k in KINDS}, None, None, ())


def _active(waits: Mapping[str, float]) -> dict[str, float]:
    return {kind: seconds for kind, seconds in waits.items() if kind in KINDS}


def _shares(seconds: Mapping[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    return {kind: one / total for kind, one in seconds.items()}


def _last(steps: Sequence[StepTrials], least: int) -> Last | None:
    tails = [(step, step.tail) for step in steps if step.tail is not None and step.tail.span > 0.0]
    if len(tails) < least:
        return None
    waits = Counter(slow.spent_on for step, tail in tails for slow in step.slowest[: tail.trials])
    return Last(
        trials=int(median(tail.trials for _, tail in tails)),
        of=int(median(tail.of for _, tail in tails)),
        share=median(tail.seconds / tail.span for _, tail in tails),
        long=2 * sum(tail.long for _, tail in tails) > len(tails),
        waits=next((what for what, count in waits.most_common(1) if 2 * count > waits.total()), ""),
    )
