"""The rule for steps that take longer and longer, and which part of them does. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from liverl.diagnose.catalogue.broken_policy import silent_while_broken
from liverl.diagnose.catalogue.course import SMOOTH, beginning, evidence, key_of, reward_falls, rise
from liverl.diagnose.tracker import SHOWN, Resolved, Window
from liverl.model import Evidence, Snapshot, StepMetrics, Symptom
from liverl.observe.metrics.names import keys_of
from liverl.observe.metrics.recent import RecentSteps

SLOWER = 2.0  # times the first steps; an estimate, the documents say "minutes per step up sharply" (liverl.md §7 T11)
GROWN_PART = 1.5  # times as long: a part of a part that is worth a line
# Not of each step, so that a step with them is not a slow one. verl counts them in ``timing_s/step`` in some places.
_NOW_AND_THEN = ("timing_s/testing", "timing_s/save_checkpoint")
_NO_PARTS = ("timing_s/step", "timing_s/start_profile", "timing_s/stop_profile", *_NOW_AND_THEN)
_INSIDE = "timing_s/agent_loop/"  # parts of rollouts, which lie in parallel: verl's and Harbor's
_TOKENS = ("perf/total_num_tokens", "response_length/mean")
# Part of a step -> what makes it slow and what to do; the beginning of a name is enough.
_WHAT_TO_DO = (
    (
        "gen",
        "compare the replicas with those at the beginning, and the sandboxes' start-up times; raise vllm.gpu_memory_"
        "utilization by 0.05 if requests wait for KV cache, or lower harbor_runtime.num_workers by a quarter if the "
        "sandboxes' host is overloaded",
    ),
    (
        "update_weights",
        "look at the network between trainer and replicas: nvidia-smi topo -m, and NCCL_DEBUG=INFO in trainer.env",
    ),
    (
        "param_sync",
        "look at the network between trainer and replicas: nvidia-smi topo -m, and NCCL_DEBUG=INFO in trainer.env",
    ),
    ("reward", "look at the time that the verifier takes in a trial, and at the load of the sandboxes' host"),
    ("agent_loop", "look at the slowest trials of the newest step"),
    (
        "",
        "look for other processes on the GPUs and for throttled GPU clocks: nvidia-smi -q -d PERFORMANCE,CLOCK; "
        "stop processes that do not belong to the run",
    ),
)

_UNKNOWN = (
    "compare the replicas, the load of the sandboxes' host and the other processes on the GPUs (nvidia-smi) with "
    "those at the beginning; where a trainer reports timing_s/gen and timing_s/update_actor, this alert names the part"
)


class _Parts(NamedTuple):
    """Seconds of each part of a step: at the first steps, and at the newest ones."""

    before: Mapping[str, float]
    now: Mapping[str, float]

    @property
    def most(self) -> str | None:
        """The part that has grown most; None if none has."""
        grown = {key: self.now[key] - self.before.get(key, 0.0) for key in self.now}
        key = max(grown, key=grown.__getitem__, default=None)
        return key if key is not None and grown[key] > 0.0 else None


@silent_while_broken
def steps_slow_down(window: Window) -> Iterator[Symptom | Resolved]:
    """A step takes at least ``SLOWER`` times as long as the first ``SMOOTH`` ones, and has grown. The fastest steps of
    the run are no measure: usual ones are slow beside them. The time of validation and checkpoints does not
    count. The time that more tokens explain does not count either, unless the reward falls: then longer responses are
    no progress.

    - the advice says that the CPUs of the host are full -> end other programs on it first: ``top`` shows them
    - the alert names a part of the step -> look where its advice says: the replicas, the network, the verifier
    - it names none -> compare the replicas, the sandboxes' host and the GPUs with what they were at the beginning
    """
    recent = window.beside.recent
    key = key_of(recent, keys_of("seconds per step"))
    if key is None:
        return
    points = [
        (float(step.step), _seconds(step, key))
        for steps in (recent.earlier, recent.steps)
        for step in steps
        if key in step.values
    ]
    found = rise(key, points)
    if found is None or not found.sure:
        return
    first, (last, low), now = int(points[0][0]), beginning(points), found.now
    factor = now / low
    if factor < SLOWER:
        return
    tokens = _more_tokens(recent, first)
    if factor < SLOWER * tokens and not reward_falls(recent, found.since):
        return
    parts = _parts(recent, first)
    most = parts.most
    name = most.removeprefix("timing_s/") if most is not None else None
    where = (
        f"{name} has grown most, from {parts.before.get(most, 0.0):.3g} s to {parts.now[most]:.3g} s"
        if most is not None
        else "the metrics do not say which part of it (no timing_s/*)"
    )
    yield Symptom(
        id="steps_slow_down",
        severity="warning",
        title=f"steps take {factor:.1f} times as long as at the beginning",
        cause=f"a step took {low:.3g} s up to step {last}, and takes {now:.3g} s now, without "
        f"validation and checkpoints; {where}{_tokens(tokens)}{_fewer(window.now)}",
        fix=_cpus(window.now)
        + (_UNKNOWN if name is None else next(text for part, text in _WHAT_TO_DO if name.startswith(part))),
        evidence=(*_lines(parts), *_inside(recent, first), *evidence(recent.steps[-SHOWN:], key))[
            : 2 * SHOWN
        ],
    )


def _seconds(step: StepMetrics, key: str) -> float:
    """Seconds of a step without what is not done in each of them."""
    total = step.values[key]
    extra = sum(step.values.get(name, 0.0) for name in _NOW_AND_THEN)
    others = sum(value for name, value in step.values.items() if _is_part(name))
    return total - extra if extra and total >= others + extra else total


def _is_part(key: str) -> bool:
    return key.startswith("timing_s/") and key.count("/") == 1 and key not in _NO_PARTS


def _at(recent: RecentSteps, since: int) -> Sequence[StepMetrics]:
    """The ``SMOOTH`` steps from a step on, or the means with them."""
    return [step for step in (*recent.earlier, *recent.steps) if step.step >= since][:SMOOTH]


def _median(steps: Sequence[StepMetrics], key: str) -> float | None:
    values = [step.values[key] for step in steps if key in step.values]
    return median(values) if values else None


def _parts(recent: RecentSteps, since: int) -> _Parts:
    begin, end = _at(recent, since), recent.steps[-SMOOTH:]
    names = sorted({key for step in end for key in step.values if _is_part(key)})
    before = {key: value for key in names if (value := _median(begin, key)) is not None}
    return _Parts(before, {key: value for key in names if (value := _median(end, key)) is not None})


def _more_tokens(recent: RecentSteps, since: int) -> float:
    """How many times as many tokens the newest steps have; 1 if they have fewer, or it is not known."""
    key = key_of(recent, _TOKENS)
    begin = _median(_at(recent, since), key) if key is not None else None
    end = _median(recent.steps[-SMOOTH:], key) if key is not None else None
    return max(1.0, end / begin) if begin and end else 1.0


def _lines(parts: _Parts) -> Iterator[Evidence]:
    grown = sorted(parts.now, key=lambda key: parts.before.get(key, 0.0) - parts.now[key])
    for key in grown[:3]:
        before, now = parts.before.get(key, 0.0), parts.now[key]
        if now > before:
            yield Evidence(f"{key}: {before:.3g} s, now {now:.3g} s", value=now)


def _inside(recent: RecentSteps, since: int) -> Iterator[Evidence]:
    """Parts of the rollouts that take much longer than before: the start of sandboxes, tools, the verifier."""
    begin, end = _at(recent, since), recent.steps[-SMOOTH:]
    names = sorted(
        {key for step in end for key in step.values if key.startswith(_INSIDE) and key.endswith("/mean")}
    )
    for key in names:
        before, now = _median(begin, key), _median(end, key)
        if before and now and now >= GROWN_PART * before:
            yield Evidence(f"{key}: {before:.3g} s, now {now:.3g} s", value=now)


def _tokens(factor: float) -> str:
    return f"; it has {factor:.1f} times as many tokens" if factor >= GROWN_PART else ""


def _cpus(now: Snapshot) -> str:
    """What to do first where the CPUs of the host are full."""
    full = now.step_time is not None and now.step_time.cpus_full
    return "stop other programs on the host, whose CPUs are full (top shows them); " if full else ""


def _fewer(now: Snapshot) -> str:
    replicas = now.replicas
    if not replicas.expected or replicas.ready >= replicas.expected:
        return ""
    return f"; {replicas.ready} of {replicas.expected} replicas serve"
