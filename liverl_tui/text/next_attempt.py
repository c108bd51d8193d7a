"""What the next attempt of a run does, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from liverl.model import Snapshot
from liverl.observe.checkpoints import end_words
from liverl.rundir import commands

HIDDEN = "..."  # stands for the value of a secret


def set_options(values: Mapping[str, str], secret: Mapping[str, bool] | None = None) -> str:
    """``--set key=value`` for each of ``values``, quoted for a shell. ``secret``: keys whose value is not shown."""
    hidden = secret or {}
    return commands.set_options(
        {k: commands.BLANK if hidden.get(k) else value for k, value in values.items()}
    )


def question(values: str, *, live: bool) -> str:
    """The question of the dialog. ``values``: ``key=value, key=value``. ``live``: the run must be stopped first."""
    return f"Stop the run and resume it with {values}?" if live else f"Resume the run with {values}?"


def consequences(
    snapshot: Snapshot | None,
    trainer: str,
    checkpoint: int | None,
    *,
    live: bool,
    wanted: int | None = None,
) -> str:
    """What a new attempt costs, in whole sentences with numbers. ``trainer``: the value of ``trainer.kind``;
    ``checkpoint``: the step of the newest one, None without one; ``live``: the run must be stopped first; ``wanted``:
    the steps of the training in that attempt, None if not known."""
    running = snapshot.trials.running if snapshot is not None and live else 0
    cut_off = f"{running} running {'trial is' if running == 1 else 'trials are'} cut off." if running else ""
    return " ".join(
        part for part in (_training(snapshot, trainer, checkpoint, live, wanted), cut_off) if part
    )


def _training(
    snapshot: Snapshot | None, trainer: str, checkpoint: int | None, live: bool, wanted: int | None
) -> str:
    if trainer == "none":
        return "This run has no trainer; its replicas and its proxy are started again."
    if trainer == "command":
        return "The launch script is run again; it decides from which checkpoint training resumes."
    step = snapshot.step if snapshot is not None and snapshot.step is not None else 0
    if end := end_words(checkpoint, step, wanted):
        return end
    total = snapshot.total_steps if snapshot is not None else None
    begun = step + 1 if live and (total is None or step < total) else step
    repeated = _repeated(checkpoint or 0, begun)
    if checkpoint is None:
        return f"There is no checkpoint yet: training starts at step 1; {repeated}."
    return f"Training resumes from the checkpoint of step {checkpoint}; {repeated}."


def _repeated(checkpoint: int, last: int) -> str:
    if last <= checkpoint:
        return "no step is repeated"
    if last == checkpoint + 1:
        return f"step {last} is repeated"
    return f"steps {checkpoint + 1} to {last} are repeated"
