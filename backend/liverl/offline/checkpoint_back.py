"""Going back to an earlier checkpoint: the later ones are set aside, and the trainer's mark names the earlier one.

verl 0.9.1 takes the step from ``latest_checkpointed_iteration.txt`` (``utils/checkpoint/checkpoint_manager.py``), the
embedded trainer the newest folder."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from liverl.model import SCHEMA
from liverl.observe.checkpoint_files import checkpoint_steps
from liverl.observe.checkpoints import LATEST
from liverl.offline.checkpoints import CheckpointList, list_checkpoints, steady
from liverl.rundir.commands import resume_command
from liverl.util.atomic_file import write_atomic
from liverl.util.checked_path import open_folder
from liverl.util.modes import make_directory

SET_ASIDE = "set_aside"  # with a number, in the folder of the checkpoints: so a move is a rename


class CannotGoBack(Exception):
    """The run cannot go back to this checkpoint; the message says why, and what to do."""


class BackReport(msgspec.Struct, frozen=True):
    """What ``checkpoints back --json`` prints. ``step``: from which the next attempt goes on; ``later``: the steps
    whose checkpoints were set aside, in the folder ``set_aside`` (empty: there were none); ``next``: the command."""

    run: str
    folder: str
    step: int
    later: tuple[int, ...]
    set_aside: str
    next: str
    schema: int = SCHEMA


def go_back(run_dir: Path, step: int) -> BackReport:
    """Let the next attempt of a run that has ended go on from its checkpoint of ``step``. Nothing is removed. Blocking.

    Raises:
        CannotGoBack: the run has not ended, there is no such checkpoint, it is not whole, or a file cannot be changed.
        NoCheckpoints: there are none.
    """
    found = list_checkpoints(run_dir)
    if found.live:
        raise CannotGoBack(f"{found.run}: {found.live}")
    _require_whole(found, step)
    with steady(run_dir, found.live) as why:
        if why:
            raise CannotGoBack(why)
        base = Path(found.folder)
        try:
            return _moved(base, found.run, step, resume_command(run_dir))
        except OSError as error:
            raise CannotGoBack(f"{error.filename or base}: {error.strerror or error}") from error


def _require_whole(found: CheckpointList, step: int) -> None:
    """Raises:
    CannotGoBack: the checkpoint is missing, or files of it are.
    """
    row = next((row for row in found.rows if row.step == step), None)
    if row is None:
        whole = ", ".join(str(one.step) for one in found.rows if one.state != "incomplete") or "none"
        raise CannotGoBack(f"{found.run} has no checkpoint of step {step}; it has: {whole}")
    if row.state == "incomplete":
        raise CannotGoBack(f"the checkpoint of step {step} is not complete: {row.why}")


def _moved(base: Path, run: str, step: int, command: str) -> BackReport:
    later = {at: path for at, path in checkpoint_steps(base).items() if at > step}
    # First the mark: verl starts from nothing where it names a folder that is gone.
    write_atomic(base / LATEST, str(step).encode(), inside=base)
    aside = _new_folder(base) if later else None
    if aside is not None:
        source, target = open_folder(base), open_folder(aside)
        try:
            for at in sorted(later, reverse=True):
                name = later[at].name
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
        finally:
            os.close(source)
            os.close(target)
    return BackReport(run, str(base), step, tuple(sorted(later)), str(aside or ""), command)


def _new_folder(base: Path) -> Path:
    number = 1
    while (path := base / f"{SET_ASIDE}_{number:03d}").exists() or path.is_symlink():
        number += 1
    make_directory(path, inside=base)
    return path
