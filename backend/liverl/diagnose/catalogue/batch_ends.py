"""A rule for the end of the batch job in which a run lives. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.diagnose.tracker import GOING, Resolved, Window
from liverl.model import BatchEnd, Evidence, Snapshot, Symptom
from liverl.observe.metrics.names import keys_of
from liverl.observe.metrics.recent import RecentSteps
from liverl.util.ages import ago
from liverl.util.before_end import SAVE_S

_STEP = keys_of("seconds per step")
_SAVE = "timing_s/save_checkpoint"


def batch_end_unsaved(window: Window) -> Iterator[Symptom | Resolved]:
    """The batch job ends before the run can make another step, save it, and have ``batch.margin`` to spare, and
    nothing saves what was trained since the newest checkpoint. The sum is that of verl's ``esi_redundant_time``: the
    longest step, the longest save, the margin. Where the trainer saves by itself before the end, it is raised if only
    the margin is left and the trainer has not saved.

    - the job is Slurm's, and you may change it -> ``scontrol update JobId=$SLURM_JOB_ID TimeLimit=+60``
    - the end is your own ``batch.end_time`` -> have the job's limit raised, then set the key to the new end
    - neither can be changed -> the steps since the newest checkpoint are made again; set a lower
      ``training.save_freq`` for the next job
    """
    now, recent = window.now, window.beside.recent
    end = now.batch_end
    if end is None or end.at is None or now.state not in GOING or now.step is None:
        return
    step, save = _longest(recent), max(recent.values(_SAVE), default=SAVE_S)
    left = end.at - now.at
    if step is None or _is_saved(now, recent) or _done_before(now, left):
        return
    if left >= (step + save + end.margin if end.unsaved else end.margin):
        return
    saved = max((one.step for one in recent.steps if _SAVE in one.values), default=None)
    if not end.unsaved and (now.step - (saved or 0)) * step < step + save + end.margin:
        return  # it was saved as late as that goes
    why = end.unsaved or "the trainer has not saved one, which it should have"
    behind = "no step was saved" if saved is None else f"the newest checkpoint is of step {saved}"
    soon = f"ends in {ago(left)}" if left > 0 else "is over its time"
    yield Symptom(
        id="batch_end_unsaved",
        severity="critical",
        title="the batch job ends before the next checkpoint",
        cause=f"it {soon} ({end.by}), a step takes up to {ago(step)} and a checkpoint {ago(save)}; {behind} of "
        f"{now.step}, and {why}",
        fix=f"{_more_time(end)}; for the next job set training.save_freq so that the steps between two checkpoints "
        "may be lost",
        evidence=(
            Evidence(f"seconds left: {max(0.0, left):.0f}", value=max(0.0, left)),
            Evidence(f"longest step: {step:.1f} s", value=step),
        ),
    )


def _more_time(end: BatchEnd) -> str:
    """How the job gets more time."""
    if end.by == "batch.end_time":
        return "have the time limit of the job raised, then set batch.end_time"
    command = "scontrol update JobId=$SLURM_JOB_ID TimeLimit=+60"
    return f"raise the time limit of the job ({command}, mostly for operators only)"


def _longest(recent: RecentSteps) -> float | None:
    """Seconds of the longest step that is remembered; None without one."""
    values = [value for key in _STEP for value in recent.values(key)]
    values += [value for key in _STEP for _, value in recent.course(key)]
    return max(values, default=None)


def _is_saved(now: Snapshot, recent: RecentSteps) -> bool:
    """Whether the newest step has a checkpoint."""
    return bool(recent.steps) and recent.steps[-1].step == now.step and _SAVE in recent.steps[-1].values


def _done_before(now: Snapshot, left: float) -> bool:
    """Whether the last step, which saves too, ends in ``left`` seconds."""
    if not now.total_steps or now.step_seconds is None or now.step is None:
        return False
    return (now.total_steps - now.step) * now.step_seconds + SAVE_S <= left
