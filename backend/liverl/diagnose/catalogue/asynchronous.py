"""Rules for asynchronous training, where replicas and trainer work at the same time with a queue between them. Pure.

verl's fully asynchronous trainer logs its limits with each version of the parameters. So the alerts can name the next
value of a key, for a launch script as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from liverl.diagnose.catalogue.course import IN_A_ROW, evidence, newest
from liverl.diagnose.tracker import Resolved, Window
from liverl.model import Symptom
from liverl.util.plural import plural

# Share of a step that trainer or rollouter waits; an estimate, the documents say "high" (knowledge/liverl.md §7 T14).
IDLE = 0.5
# The reference documents' reading: 0 is strictly on-policy, 1 tolerates rollouts a version old. More is not advised.
MOST_STALE = 1.0
LEAST_STALE = 0.1  # verl's default, and what comes after 0
_KEYS = "verl.fully_async"
_DROPPED = "fully_async/count/dropped_stale_samples"
_STALENESS, _CONCURRENT, _MOST, _REQUIRED = (
    f"fully_async/static/{name}"
    for name in (
        "staleness_threshold",
        "max_concurrent_samples",
        "max_required_samples",
        "required_samples",
    )
)


IDLES = {  # what each means
    "trainer_idle": "the trainer waits for the rollouts",
    "rollouter_idle": "the replicas wait for the trainer, as the queue between them is full",
}


def waits_for_the_other(window: Window) -> Iterator[Symptom | Resolved]:
    """It is raised if the waiting takes more than the share ``IDLE`` of each of the newest steps.

    - trainer_idle: ``liverl-tui trials ls --waits-for queue`` lists many trials -> raise
      ``harbor_runtime.num_workers``
    - trainer_idle: the replicas have room (``liverl-tui status``: few requests run, none wait) -> raise
      ``verl.fully_async.concurrent_samples_per_replica``
    - trainer_idle: the alert says that ``staleness_threshold`` allows no more -> raise that key, as far as the alert
      says
    - trainer_idle: the replicas are full (requests wait) -> give the rollouts more GPUs
    - rollouter_idle: the alert names a higher ``staleness_threshold`` -> set it, and watch ``rollout_corr/kl``: above
      0.01 it does harm, and then take it back
    - rollouter_idle: the threshold is at its limit, or ``rollout_corr/kl`` is above 0.01 -> give the trainer more
      GPUs and the rollouts fewer
    """
    for who, other, fix in (
        ("trainer", "rollouts", _more_rollouts),
        ("rollouter", "trainer", _more_training),
    ):
        key = f"fully_async/{who}/idle_ratio"
        steps = newest(window.beside.recent, key)
        if not steps or any(step.values[key] <= IDLE for step in steps):
            continue
        yield Symptom(
            id=f"{who}_idle",
            severity="info",
            title=f"the {who} is idle for {steps[-1].values[key]:.0%} of a step",
            cause=f"the {who} waits for the {other}: {key} was above {IDLE:g} in the last {len(steps)} steps",
            fix=fix(steps[-1].values),
            evidence=evidence(steps, key),
        )


def _more_rollouts(values: Mapping[str, float]) -> str:
    """What gives the trainer samples sooner."""
    now, most = values.get(_CONCURRENT), values.get(_MOST)
    gpus = "give the rollouts more GPUs (verl.rollout_gpus, verl.rollout_nodes)"
    trials = "if trials wait in the queue, raise harbor_runtime.num_workers"
    if now is None:
        return (
            f"raise {_KEYS}.concurrent_samples_per_replica, for example to twice as many; {trials}; or {gpus}"
        )
    if most is not None and now >= most:
        allowed = f"{_KEYS}.staleness_threshold allows no more than {now:g} prompts at a time"
        return f"{allowed}: {_staler(values) or gpus}; {trials}"
    target = 2 * now if most is None else min(2 * now, most)
    return (
        f"raise {_KEYS}.concurrent_samples_per_replica so that {target:g} prompts run at a time on all replicas "
        f"together, not {now:g}; {trials}; or {gpus}"
    )


def _more_training(values: Mapping[str, float]) -> str:
    """What lets the replicas go on."""
    gpus = "give the trainer more GPUs and the rollouts fewer (verl.rollout_gpus, verl.train_nodes)"
    staler = _staler(values)
    if staler is None:
        return f"{gpus}: {_KEYS}.staleness_threshold is {values[_STALENESS]:g} already"
    return f"{staler}, and watch rollout_corr/kl (keep it below 0.01); or {gpus}"


def _staler(values: Mapping[str, float]) -> str | None:
    """The next value of the staleness; None if there is none."""
    now = values.get(_STALENESS)
    if now is None:
        return f"raise {_KEYS}.staleness_threshold, at most to {MOST_STALE:g}"
    if now >= MOST_STALE:
        return None
    following = min(MOST_STALE, max(LEAST_STALE, 2 * now))
    return f"raise {_KEYS}.staleness_threshold from {now:g} to {following:g}"


def fresher(values: Mapping[str, float]) -> str | None:
    """What makes rollouts newer, with the next value of the staleness; None where nothing is left, or where these are
    not the metrics of verl's fully asynchronous trainer."""
    now = values.get(_STALENESS)
    if now is None or now <= 0.0:
        return None
    following = 0.0 if now <= LEAST_STALE else max(LEAST_STALE, now / 2)
    return f"lower {_KEYS}.staleness_threshold from {now:g} to {following:g}"


def seldomer(values: Mapping[str, float]) -> str:
    """What updates the replicas' weights less often. verl logs the number of steps between two updates only as a factor
    of the largest number of samples: required samples * (1 + staleness) * steps."""
    key = f"{_KEYS}.trigger_parameter_sync_step"
    staleness, most, required = (values.get(one) for one in (_STALENESS, _MOST, _REQUIRED))
    if staleness is None or most is None or not required:
        return f"double {key}"
    now = max(1, round(most / (required * (1.0 + staleness))))
    return f"raise {key} from {now} to {2 * now}"


def samples_dropped(window: Window) -> Iterator[Symptom | Resolved]:
    """The queue was full, and verl threw finished samples away, in each of the newest steps (``Queue full, dropped
    sample``): the work of replicas and sandboxes is lost.

    - the trainer is the slow part for good (its ``update_actor`` takes most of a step: ``liverl-tui timeline``) ->
      give the trainer more GPUs
    - it keeps up most of the time -> lower ``verl.fully_async.concurrent_samples_per_replica``, by what the alert
      says
    """
    recent = window.beside.recent
    steps = newest(recent, _DROPPED, IN_A_ROW + 1)
    if not steps or any(later.values[_DROPPED] <= one.values[_DROPPED] for one, later in pairwise(steps)):
        return
    lost = steps[-1].values[_DROPPED] - steps[0].values[_DROPPED]
    each = steps[-1].values.get(_CONCURRENT)
    fewer = (
        "" if each is None or each < 2 else f", so that {each // 2:g} prompts run at a time and not {each:g}"
    )
    yield Symptom(
        id="samples_dropped",
        severity="warning",
        title=f"{lost:g} finished {plural(int(lost), 'sample')} were thrown away in {IN_A_ROW} steps",
        cause=f"the queue between replicas and trainer was full in each of the last {IN_A_ROW} steps, and verl threw "
        f"its oldest samples away untrained ({_DROPPED} has risen from {steps[0].values[_DROPPED]:g} to "
        f"{steps[-1].values[_DROPPED]:g})",
        fix=f"lower {_KEYS}.concurrent_samples_per_replica" + fewer + "; or give the trainer more GPUs",
        evidence=evidence(steps, _DROPPED),
    )
