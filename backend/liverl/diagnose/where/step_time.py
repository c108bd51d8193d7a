"""Where the time of a run's newest steps goes, from its metrics and its trials. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from liverl.diagnose.advice import ANY, Means
from liverl.diagnose.where import parts
from liverl.diagnose.where.bottleneck import LEAST_STEPS, Kind, bottleneck
from liverl.diagnose.where.rollouts import Rollouts, of_metrics, of_trials
from liverl.diagnose.where.slower import slower
from liverl.model import StepTime, TrialsStatus
from liverl.observe.metrics.pace import NEWEST  # what was mended before is no bottleneck any more
from liverl.observe.metrics.recent import RecentSteps

_EMBEDDED = "timing_s/trial/mean"  # a metric that only the embedded trainer has
_ASYNC = "fully_async/"  # its trainer waits for samples, not for the last trial of a step


class NewestStepTime:
    """What ``step_time`` says of a run, worked out again only where what it is given has changed."""

    def __init__(self) -> None:
        self._recent: RecentSteps | None = None
        self._trials: TrialsStatus | None = None
        self._names: Mapping[str, str] = {}
        self._means = ANY
        self._slower = ""
        self._value: StepTime | None = None

    def of(
        self, recent: RecentSteps, trials: TrialsStatus, names: Mapping[str, str], run: Means = ANY
    ) -> StepTime | None:
        """See ``step_time``."""
        if recent is not self._recent:
            self._slower = slower(recent)
        elif trials is self._trials and names == self._names and run == self._means:
            return self._value
        self._recent, self._trials, self._names, self._means = recent, trials, names, run
        self._value = _step_time(recent, trials, names, run, self._slower)
        return self._value


def step_time(
    recent: RecentSteps, trials: TrialsStatus, names: Mapping[str, str], run: Means = ANY
) -> StepTime | None:
    """Where the time of the newest steps goes; None if the metrics of none say how long its parts take. ``names``: see
    ``replica_names``; ``run``: what an advice may name."""
    return _step_time(recent, trials, names, run, slower(recent))


def _step_time(
    recent: RecentSteps, trials: TrialsStatus, names: Mapping[str, str], run: Means, grown: str
) -> StepTime | None:
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
    return StepTime(
        len(steps),
        round(median(total for _, total in each), 3),
        ordered,
        bottleneck(shares, rollouts, kind, names, run) if len(steps) >= LEAST_STEPS else None,
        grown,
    )


def _split(shares: dict[str, float], rollouts: Rollouts) -> dict[str, float]:
    """The shares with what the trials waited for in place of the rollouts."""
    generate = shares.get(parts.GENERATE, 0.0)
    whole = sum(rollouts.waits.values())
    rest = {part: share for part, share in shares.items() if part != parts.GENERATE}
    return {**{what: generate * share / whole for what, share in rollouts.waits.items()}, **rest}
