"""Where the time of one step of a run goes, for scripts and plain text. Blocking, read-only."""

from __future__ import annotations

import msgspec

from liverl.diagnose.where.parts import PREFIX
from liverl.model import SCHEMA, Snapshot, StepTime
from liverl.observe.metrics.names import keys_of
from liverl.observe.metrics.series import Series
from liverl.observe.trials.steps import steps_on_disk
from liverl.offline.replica_names import names_of
from liverl.offline.step_timeline import StepTimeline, read_step
from liverl.offline.tables import metrics_of
from liverl.rundir.layout import RunDir


class TimelineShown(msgspec.Struct, frozen=True):
    """What ``timeline --json`` prints. ``step``: the lanes and parts of one step; ``step_time``: where the time of the
    newest steps goes, whichever step is asked for; None: not known."""

    run: str
    run_dir: str
    live: bool
    step: StepTimeline
    step_time: StepTime | None = None
    schema: int = SCHEMA


class NoSuchStep(Exception):
    """The step is not there; the text says which are."""


def timeline_shown(run: RunDir, state: Snapshot | None, live: bool, step: int | None) -> TimelineShown:
    """The timeline of ``step``; without it of the newest step that has ended, else of the newest one.

    Raises:
        NoSuchStep: the run has no such step.
        OSError: the storage failed.
    """
    series = metrics_of(run).series
    ended = sorted({step for key, one in series.items() if _is_time(key) for step in one.steps})
    known = sorted({*ended, *steps_on_disk(run.path)})
    if not known:
        raise NoSuchStep(f"run {run.name} has no step yet")
    chosen = step if step is not None else (ended or known)[-1]
    if chosen not in known:
        several = f"steps {known[0]} to {known[-1]}" if len(known) > 1 else f"step {known[0]}"
        raise NoSuchStep(f"run {run.name} has no step {chosen}; it has {several}")
    names = names_of(state)
    values = {key: value for key, one in series.items() if (value := _at(one, chosen)) is not None}
    ended_at = state.result.ended_at if state is not None and state.result is not None else None
    at, counts = (state.at, state.trials) if state is not None else (0.0, None)
    shown = read_step(run.path, chosen, values, names, at, ended_at, counts)
    spent = state.step_time if state is not None else None
    return TimelineShown(run.name, str(run.path), live, shown, spent)


def _is_time(key: str) -> bool:
    return key.startswith(PREFIX) or key in keys_of("seconds per step")


def _at(series: Series, step: int) -> float | None:
    point = series.at(step)
    return point[1] if point is not None and point[0] == step else None
