"""Where the time of a run's newest steps goes, from its metrics and its trials. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median

from msgspec.structs import replace

from liverl.diagnose.advice import ANY, WORKERS, Means
from liverl.diagnose.where import parts
from liverl.diagnose.where.bottleneck import LEAST_STEPS, Kind, bottleneck, limit_of
from liverl.diagnose.where.rollouts import Rollouts, of_metrics, of_trials
from liverl.diagnose.where.slower import slower
from liverl.model import ReplicaStatus, StepTime, TrialsStatus
from liverl.observe.metrics.pace import NEWEST  # what was mended before is no bottleneck any more
from liverl.observe.metrics.recent import RecentSteps

_EMBEDDED = "timing_s/trial/mean"  # a metric that only the embedded trainer has
_ASYNC = "fully_async/"  # its trainer waits for samples, not for the last trial of a step
FULL = 95.0  # percent of the host's CPUs: from there on more trials at once only wait for each other
_LOOKS, _FEWEST = 30, 10  # newest looks at the CPUs whose median counts, and of fewer nothing is concluded


class NewestStepTime:
    """What ``step_time`` says of a run, worked out again only where what it is given has changed."""

    def __init__(self) -> None:
        self._recent: RecentSteps | None = None
        self._trials: TrialsStatus | None = None
        self._names: Mapping[str, str] = {}
        self._means = ANY
        self._slower = ""
        self._cpus: deque[float] = deque(maxlen=_LOOKS)
        self._full: bool | None = None
        self._value: StepTime | None = None

    def of(
        self,
        recent: RecentSteps,
        trials: TrialsStatus,
        names: Mapping[str, str],
        run: Means = ANY,
        *,
        replicas: Iterable[ReplicaStatus] = (),
        cpu_percent: float | None = None,
    ) -> StepTime | None:
        """See ``step_time``. ``cpu_percent``: of the host on which the trials run, at this look; None: not known."""
        if cpu_percent is not None:
            self._cpus.append(cpu_percent)
        full = median(self._cpus) >= FULL if len(self._cpus) >= _FEWEST else None
        if recent is not self._recent:
            self._slower = slower(recent)
        elif trials is self._trials and names == self._names and run == self._means and full == self._full:
            return self._value
        self._recent, self._trials, self._names, self._means = recent, trials, names, run
        self._full = full
        self._value = _step_time(recent, trials, names, run, self._slower, replicas, full)
        return self._value


def step_time(
    recent: RecentSteps, trials: TrialsStatus, names: Mapping[str, str], run: Means = ANY
) -> StepTime | None:
    """Where the time of the newest steps goes; None if the metrics of none say how long its parts take. ``names``: see
    ``replica_names``; ``run``: what an advice may name."""
    return _step_time(recent, trials, names, run, slower(recent))


def _step_time(
    recent: RecentSteps,
    trials: TrialsStatus,
    names: Mapping[str, str],
    run: Means,
    grown: str,
    replicas: Iterable[ReplicaStatus] = (),
    full: bool | None = None,
) -> StepTime | None:
    if full:  # more trials at once would only wait for each other: see ``Means.inert``
        run = replace(run, inert=run.inert | {WORKERS})
    steps = [step for step in recent.steps[-NEWEST:] if parts.parts_of(step.values)]
    if not steps:
        return None
    each = [(parts.parts_of(step.values), parts.seconds_of(step.values) or 0.0) for step in steps]
    present = dict.fromkeys(part for one, _ in each for part in one)
    shares = {name: median(one.get(name, 0.0) / total for one, total in each) for name in present}
    rollouts = of_trials(trials.steps[:NEWEST], LEAST_STEPS) or of_metrics(steps, LEAST_STEPS)
    keys = steps[-1].values
    if rollouts is not None and any(key.startswith(_ASYNC) for key in keys):
        rollouts = rollouts._replace(last=None)
    kind = Kind(
        any("setup" in step.phases for step in trials.steps) and _EMBEDDED not in keys, _EMBEDDED in keys
    )
    if rollouts is not None:
        shares = _split(shares, rollouts)
    ordered = {
        part: round(share, 3) for part, share in sorted(shares.items(), key=lambda item: -item[1]) if share
    }
    limit = limit_of(kind)
    return StepTime(
        len(steps),
        round(median(total for _, total in each), 3),
        ordered,
        bottleneck(shares, rollouts, kind, names, run) if len(steps) >= LEAST_STEPS else None,
        grown,
        round(rollouts.queue, 3) if rollouts is not None and rollouts.queue is not None else None,
        limit if limit not in run.inert else "",
        None if rollouts is None else _engine(rollouts, replicas),
        full,
    )


def _engine(rollouts: Rollouts, replicas: Iterable[ReplicaStatus]) -> float | None:
    """The share of the trials' wait for the model that the engines themselves took: seconds per token of both."""
    served = [times for step in rollouts.replicas for times in step.values()]
    waited, sampled = sum(one.seconds for one in served), sum(one.tokens for one in served)
    seconds = tokens = 0.0
    for engine in (replica.engine for replica in replicas):
        if engine.answers and engine.seconds_per_answer and engine.seconds_per_token:
            took = engine.answers * engine.seconds_per_answer
            seconds, tokens = seconds + took, tokens + took / engine.seconds_per_token
    if waited <= 0.0 or not sampled or not tokens:
        return None
    return round(min(1.0, (seconds / tokens) / (waited / sampled)), 2)


def _split(shares: dict[str, float], rollouts: Rollouts) -> dict[str, float]:
    """The shares with what the trials waited for in place of the rollouts."""
    generate = shares.get(parts.GENERATE, 0.0)
    whole = sum(rollouts.waits.values())
    rest = {part: share for part, share in shares.items() if part != parts.GENERATE}
    return {**{what: generate * share / whole for what, share in rollouts.waits.items()}, **rest}
