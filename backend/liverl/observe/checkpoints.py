"""The newest complete checkpoint of a run, and where an attempt begins to train."""

from __future__ import annotations

from pathlib import Path

from liverl.util.plural import quantity
from liverl.util.regular_file import read_regular

# Written by verl and by the embedded trainer once a checkpoint is complete; a trainer resumes from the one it names.
LATEST = "latest_checkpointed_iteration.txt"


def newest_checkpoint(checkpoints: Path) -> int | None:
    """The step of the newest complete checkpoint in the directory ``checkpoints``; None if there is none."""
    try:
        step = int(read_regular(checkpoints / LATEST)[:32])
    except (OSError, ValueError):
        return None
    return step if (checkpoints / f"global_step_{step}").is_dir() else None


def first_step_words(checkpoint: int | None, wanted: int | None) -> str:
    """Where an attempt begins to train. ``checkpoint``: the step of the newest one; None: there is none. ``wanted``: as
    for ``nothing_left``."""
    if checkpoint is None:
        return "no checkpoint: training starts at step 1"
    if nothing_left(checkpoint, wanted):
        return (
            f"no step is left to train: the newest checkpoint is of step {checkpoint}, and {_wanted(wanted)}"
        )
    return f"training goes on from the checkpoint of step {checkpoint}"


def nothing_left(checkpoint: int | None, wanted: int | None) -> bool:
    """Whether a trainer that starts from the checkpoint of this step ends without further training. ``wanted``: the
    steps of the whole training; None: not known."""
    return wanted is not None and checkpoint is not None and checkpoint >= wanted


def end_words(checkpoint: int | None, done: int | None, wanted: int | None) -> str:
    """What becomes of a run whose trainer is restarted with fewer steps than it has made, in whole sentences; empty if
    it goes on beyond them, or nobody knows. ``done``: the finished steps."""
    if wanted is None or max(checkpoint or 0, done or 0) < wanted:
        return ""
    if nothing_left(checkpoint, wanted):
        return f"The run then ends: its newest checkpoint is of step {checkpoint}, and {_wanted(wanted)}."
    first = (checkpoint or 0) + 1
    again = f"step {first} is" if first == wanted else f"steps {first} to {wanted} are"
    made = quantity(done or 0, "step")
    return f"The run then ends soon: {_wanted(wanted)}, and {made} done already; {again} made again."


def _wanted(steps: int | None) -> str:
    return f"{quantity(steps or 0, 'step')} {'is' if steps == 1 else 'are'} wanted"
