"""What the rules find in the metrics of a training alone, of any run and at any time: for readers of files. Pure."""

from __future__ import annotations

from collections.abc import Sequence

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
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import BackendInfo, GpuStatus, Snapshot, Symptom
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
    """What is wrong after the newest of these steps, the most severe first. ``total_steps``, ``gpus`` and
    ``engine_versions`` as far as they are known. Of steps in the order in which they were written,
    ``observe.metrics.recent.of_steps`` makes ``recent``."""
    if not recent.steps:
        return ()
    newest = recent.steps[-1]
    snapshot = Snapshot(
        seq=0,
        at=0.0,
        run="",
        run_dir="",
        state="running",
        phase="",
        attempt=1,
        topology="",
        backend=BackendInfo(0, 0.0, "", ""),
        started_at=0.0,
        step=newest.step,
        total_steps=total_steps,
        metrics=newest,
        gpus=tuple(gpus),
    )
    window = Window(
        snapshot, None, RunContext(recent=recent, engine_versions=tuple(engine_versions), mute=tuple(mute))
    )
    found = [s for rule in METRIC_RULES for s in rule.look(window) if isinstance(s, Symptom)]
    return tuple(sorted((s for s in found if not mutes(mute, s.id)), key=lambda s: _RANK[s.severity]))
