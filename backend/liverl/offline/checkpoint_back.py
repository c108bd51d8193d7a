"""Going back to an earlier checkpoint: the later ones are set aside, and the trainer's mark names the earlier one.

verl 0.9.1 takes the step from ``latest_checkpointed_iteration.txt`` (``utils/checkpoint/checkpoint_manager.py``), the
embedded trainer the newest folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from liverl.model import SCHEMA
from liverl.observe.checkpoint_files import checkpoint_steps, read_checkpoint
from liverl.observe.checkpoints import LATEST
from liverl.offline.checkpoint_aside import RECORD, SetAside, WentBack, new_folder, remove_if_empty, went_back
from liverl.offline.checkpoints import CheckpointList, list_checkpoints, steady
from liverl.rundir.commands import resume_command, run_words
from liverl.util.atomic_file import write_atomic
from liverl.util.checked_path import open_folder
from liverl.util.listing import listing

_FOLDER = "global_step_"


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
        raise CannotGoBack(f"{found.run}: {found.live}; its checkpoints are moved only once it has ended")
    _require_whole(found, step)
    with steady(run_dir, found.live) as why:
        if why:
            raise CannotGoBack(why)
        base = Path(found.folder)
        try:
            return _moved(base, found, step, resume_command(run_dir))
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


def _moved(base: Path, found: CheckpointList, step: int, command: str) -> BackReport:
    later = {at: path for at, path in checkpoint_steps(base).items() if at > step}
    aside = new_folder(base) if later else None
    if aside is not None:
        record = WentBack(step, found.latest, tuple(sorted(later)))
        write_atomic(aside / RECORD, msgspec.json.encode(record), inside=base)
    # The mark before the moves: verl starts from nothing where it names a folder that is gone.
    write_atomic(base / LATEST, str(step).encode(), inside=base)
    if aside is not None:
        _move([later[at].name for at in sorted(later, reverse=True)], base, aside)
    return BackReport(found.run, str(base), step, tuple(sorted(later)), str(aside or ""), command)


def _move(names: Iterable[str], here: Path, there: Path) -> None:
    source, target = open_folder(here), open_folder(there)
    try:
        for name in names:
            os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
    finally:
        os.close(source)
        os.close(target)


# --- undone ---------------------------------------------------------------------------------------------


class UndoReport(msgspec.Struct, frozen=True):
    """What ``checkpoints back --undo --json`` prints. ``undone``: whether they were moved; ``set_aside``: the folder
    whose checkpoints, of the steps ``later``, go back to their places; ``step``: from which the next attempt then goes
    on, None where none of them is whole; ``next``: the command."""

    run: str
    folder: str
    set_aside: str
    later: tuple[int, ...]
    step: int | None
    undone: bool
    next: str
    schema: int = SCHEMA


def undo_of(run_dir: Path, name: str | None) -> UndoReport:
    """What undoing would do: of the folder ``name``, else of the newest one. Nothing is moved. Blocking.

    Raises:
        CannotGoBack: the run has not ended, nothing was set aside, or a later attempt has written checkpoints since.
        NoCheckpoints: there are none.
    """
    found = list_checkpoints(run_dir)
    if found.live:
        raise CannotGoBack(f"{found.run}: {found.live}; its checkpoints are moved only once it has ended")
    aside = _chosen(found, name)
    base = Path(found.folder)
    here, there = checkpoint_steps(base), checkpoint_steps(Path(aside.path))
    _require_free(found.run, run_words(run_dir), aside, here, there)
    every = {**here, **there}
    step = _mark(went_back(Path(aside.path)), every)
    command = resume_command(run_dir)
    return UndoReport(found.run, str(base), aside.path, tuple(sorted(there)), step, False, command)


def undo(run_dir: Path, planned: UndoReport) -> UndoReport:
    """Move the checkpoints that ``planned`` names back to their places. Blocking.

    Raises:
        CannotGoBack: see ``undo_of``, or a file cannot be changed.
        NoCheckpoints: there are none.
    """
    with steady(run_dir, "") as why:
        if why:
            raise CannotGoBack(why)
        now = undo_of(run_dir, Path(planned.set_aside).name)
        base, aside = Path(now.folder), Path(now.set_aside)
        try:
            _move([f"{_FOLDER}{step}" for step in now.later], aside, base)
            # The mark after the moves, as the other way round: it names no folder that is not there.
            if now.step is not None:
                write_atomic(base / LATEST, str(now.step).encode(), inside=base)
            remove_if_empty(aside)
        except OSError as error:
            raise CannotGoBack(f"{error.filename or base}: {error.strerror or error}") from error
        return msgspec.structs.replace(now, undone=True)


def _chosen(found: CheckpointList, name: str | None) -> SetAside:
    """Raises:
    CannotGoBack: nothing was set aside, or not that.
    """
    if not found.set_aside:
        raise CannotGoBack(f"{found.run}: nothing is set aside in {found.folder}: there is nothing to undo")
    if name is None:
        return found.set_aside[-1]
    names = [Path(one.path).name for one in found.set_aside]
    if name not in names:
        raise CannotGoBack(f"{found.run} has no {name} in {found.folder}; it has: {', '.join(names)}")
    return found.set_aside[names.index(name)]


def _require_free(
    run: str, words: str, aside: SetAside, here: Mapping[int, Path], there: Mapping[int, Path]
) -> None:
    """No attempt has gone on from where the run went back to: else checkpoints of two would be mixed.

    Raises:
        CannotGoBack: a checkpoint is there that is neither of before nor of those that an undo has already moved.
    """
    record = went_back(Path(aside.path))
    begin = record.step if record is not None else min(there, default=0) - 1
    moved = set(record.later) - set(there) if record is not None else set()
    newer = [step for step in here if step > begin and step not in moved]
    if not newer:
        return
    name = Path(aside.path).name
    first = max((step for step in here if step <= begin), default=None)
    again = f"liverl-tui checkpoints back {words} {first}" if first is not None else "move them elsewhere"
    raise CannotGoBack(
        f"{run}: checkpoints of step {listing([str(one) for one in newer])} have come since it went back. To "
        f"set those aside and bring these back: {again}, then: liverl-tui checkpoints back {words} {name} --undo"
    )


def _mark(record: WentBack | None, every: Mapping[int, Path]) -> int | None:
    """The step to write into the trainer's mark file: the one that it had before, else that of the newest complete
    checkpoint."""
    if record is not None and record.latest in every:
        return record.latest
    looked_at = (read_checkpoint(step, path, None, "") for step, path in every.items())
    return max((one.step for one in looked_at if one.state != "incomplete"), default=None)
