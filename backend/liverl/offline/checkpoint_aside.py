"""Checkpoints that ``checkpoints back`` has set aside: ``set_aside_NNN/`` in the folder of the checkpoints."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from liverl.observe.checkpoint_files import checkpoint_steps
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.modes import make_directory
from liverl.util.regular_file import read_regular
from liverl.util.remove_tree import remove_tree
from liverl.util.tree_size import measure

SET_ASIDE = "set_aside"  # with a number, in the folder of the checkpoints: so a move is a rename
RECORD = "went_back.json"  # beside the checkpoints in such a folder; older ones have none
_NAME = re.compile(rf"{SET_ASIDE}_\d{{3,9}}")


class WentBack(msgspec.Struct, frozen=True):
    """What was so when the run went back. ``step``: to which it went; ``latest``: which one the trainer's mark named
    before, None if there was none; ``later``: those that were to be set aside."""

    step: int
    latest: int | None
    later: tuple[int, ...]


class SetAside(msgspec.Struct, frozen=True):
    """One folder ``path`` of checkpoints that were set aside. ``steps``: of those that it holds; ``bytes``: on the
    disk; ``back_to``: the step to which the run went back then, None if that is not recorded."""

    path: str
    steps: tuple[int, ...]
    bytes: int
    back_to: int | None = None


def is_aside(name: str) -> bool:
    """Whether a folder of this name holds checkpoints that were set aside."""
    return _NAME.fullmatch(name) is not None


def set_aside_folders(base: Path) -> tuple[SetAside, ...]:
    """Those of ``base``, the oldest first. Links are left out.

    Raises:
        OSError: ``base`` or one of them cannot be read.
    """
    found = [
        entry for entry in os.scandir(base) if is_aside(entry.name) and entry.is_dir(follow_symlinks=False)
    ]
    return tuple(_looked_at(Path(entry.path)) for entry in sorted(found, key=lambda one: _number(one.name)))


def _looked_at(folder: Path) -> SetAside:
    record = went_back(folder)
    size = measure(folder)
    return SetAside(
        str(folder), tuple(checkpoint_steps(folder)), size.bytes, record.step if record is not None else None
    )


def went_back(folder: Path) -> WentBack | None:
    """What is recorded in ``folder`` of the moment in which its checkpoints were set aside; None: nothing."""
    try:
        return decode_json(read_regular(folder / RECORD), type=WentBack)
    except (OSError, *BAD_JSON):
        return None


def new_folder(base: Path) -> Path:
    """Make the next folder: its number is larger than that of each other one, so that the newest is the last."""
    numbers = [_number(name) for name in os.listdir(base) if is_aside(name)]
    path = base / f"{SET_ASIDE}_{max(numbers, default=0) + 1:03d}"
    make_directory(path, inside=base)
    return path


def _number(name: str) -> int:
    return int(name.rpartition("_")[2])


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that holds nothing any more but its record.

    Raises:
        OSError: it cannot be removed.
    """
    if set(os.listdir(folder)) <= {RECORD} and (errors := remove_tree(folder, inside=folder.parent)):
        raise errors[0]
