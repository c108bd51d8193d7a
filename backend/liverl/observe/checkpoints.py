"""The newest complete checkpoint of a run, and where an attempt begins to train."""

from __future__ import annotations

from pathlib import Path

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


def first_step_words(checkpoint: int | None) -> str:
    """Where an attempt begins to train. ``checkpoint``: the step of the newest one; None: there is none."""
    if checkpoint is None:
        return "no checkpoint: training starts at step 1"
    return f"training goes on from the checkpoint of step {checkpoint}"
