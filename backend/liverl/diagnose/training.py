"""What the rules find in the metrics and trials of any run, at any time: for readers of files. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liverl.diagnose.catalogue import (
    gone_astray,
    gradients,
    learning,
    metrics,
    off_policy,
    responses,
    step_times,
)
from liverl.diagnose.catalogue.rules import FILE_RULES
from liverl.diagnose.muting import mutes
from liverl.diagnose.tracker import Rule, RunContext, Window
from liverl.model import BackendInfo, GpuStatus, Snapshot, Symptom, TrialsStatus, UnreadableFile
from liverl.observe.metrics.recent import RecentSteps

_RANK = {"critical": 0, "warning": 1, "info": 2}
_MODULES = frozenset(
    one.__name__ for one in (gone_astray, gradients, learning, metrics, off_policy, responses, step_times)
)
METRIC_RULES = tuple(rule for rule in FILE_RULES if rule.look.__module__ in _MODULES)


def judge_training(
    recent: RecentSteps,
    *,
    total_steps: int | None = None,
    gpus: Sequence[GpuStatus] = (),
    engine_versions: Sequence[str] = (),
    mute: Sequence[str] = (),
) -> tuple[Symptom, ...]:
    """What is wrong after the newest of these steps by their metrics, the most severe first. ``total_steps``, ``gpus``
    and ``engine_versions`` as far as they are known. Of steps in the order in which they were written,
    ``observe.metrics.recent.of_steps`` makes ``recent``."""
    if not recent.steps:
        return ()
    context = RunContext(recent=recent, engine_versions=tuple(engine_versions), mute=tuple(mute))
    return _found(METRIC_RULES, _snapshot(recent, total_steps=total_steps, gpus=tuple(gpus)), context)


def judge_course(
    recent: RecentSteps,
    *,
    trials: TrialsStatus,
    unreadable: tuple[UnreadableFile, ...] = (),
    total_steps: int | None = None,
    at: float,
) -> tuple[Symptom, ...]:
    """The same with what is wrong with ``trials``, of whose files these are ``unreadable``. ``at``: Unix time of the
    newest step."""
    now = _snapshot(recent, at=at, total_steps=total_steps, trials=trials, unreadable=unreadable)
    return _found(FILE_RULES, now, RunContext(recent=recent))


def _found(rules: Sequence[Rule], now: Snapshot, context: RunContext) -> tuple[Symptom, ...]:
    window = Window(now, None, context)
    found = [s for rule in rules for s in rule.look(window) if isinstance(s, Symptom)]
    return tuple(sorted((s for s in found if not mutes(context.mute, s.id)), key=lambda s: _RANK[s.severity]))


def _snapshot(recent: RecentSteps, *, at: float = 0.0, **known: Any) -> Snapshot:
    newest = recent.steps[-1] if recent.steps else None
    return Snapshot(
        seq=0,
        at=at,
        run="",
        run_dir="",
        state="running",
        phase="",
        attempt=1,
        topology="managed",
        backend=BackendInfo(0, 0.0, "", ""),
        started_at=0.0,
        step=None if newest is None else newest.step,
        metrics=newest,
        **known,
    )
