"""What the rules find in the metrics and trials of any run, at any time: for readers of files. Pure."""

from __future__ import annotations

from typing import Any

from liverl.diagnose.catalogue.rules import FILE_RULES
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import BackendInfo, GpuStatus, Snapshot, Symptom, TrialsStatus, UnreadableFile
from liverl.observe.metrics.recent import RecentSteps

_NO_TRIALS = TrialsStatus()
_RANK = {"critical": 0, "warning": 1, "info": 2}


def judge_course(
    recent: RecentSteps,
    *,
    trials: TrialsStatus = _NO_TRIALS,
    unreadable: tuple[UnreadableFile, ...] = (),
    total_steps: int | None = None,
    gpus: tuple[GpuStatus, ...] = (),
    engine_versions: tuple[str, ...] = (),
    at: float = 0.0,
) -> tuple[Symptom, ...]:
    """What is wrong after the newest of these steps, by their metrics and by ``trials``, of whose files these are
    ``unreadable``; the most severe first. ``total_steps``, ``gpus`` and ``engine_versions`` as far as they are known;
    ``at``: Unix time of the newest step. Of steps in the order in which they were written,
    ``observe.metrics.recent.of_steps`` makes ``recent``."""
    now = _snapshot(recent, at=at, total_steps=total_steps, trials=trials, unreadable=unreadable, gpus=gpus)
    window = Window(now, None, RunContext(recent=recent, engine_versions=engine_versions))
    found = [s for rule in FILE_RULES for s in rule.look(window) if isinstance(s, Symptom)]
    return tuple(sorted(found, key=lambda s: _RANK[s.severity]))


def _snapshot(recent: RecentSteps, *, at: float, **known: Any) -> Snapshot:
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
