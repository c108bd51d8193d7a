"""What the trials of a step take on the disk, and when the disk is full at that rate."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from liverl.model import DiskStatus
from liverl.observe.trials.root import STEP_DIR
from liverl.observe.volumes import RUN_DIRECTORY, TRIALS, Volume, bytes_of


class StepSizes:
    """Measures the folder of each finished step once. ``trials``: the folder with the steps' folders."""

    def __init__(self, trials: Path) -> None:
        self._trials = trials
        self._step: int | None = None  # the newest that was measured, or looked for
        self.newest: int | None = None  # bytes of the newest step that has a folder

    def look(self, step: int | None) -> None:
        """Measure ``step``, the newest finished one, if it was not measured yet. Blocking."""
        if step is None or step == self._step:
            return
        self._step = step
        try:
            with os.scandir(self._trials) as entries:
                names = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            folder = next((name for name in names if _step_of(name) == step), None)
            self.newest = bytes_of(folder) if folder is not None else self.newest
        except OSError:
            return  # it was removed meanwhile, or the storage failed: the previous number stays


def _step_of(path: str) -> int | None:
    match = STEP_DIR.fullmatch(os.path.basename(path))
    return int(match.group(1)) if match is not None else None


def disk_status(
    volumes: Iterable[Volume], step_bytes: int | None, step_seconds: float | None
) -> DiskStatus | None:
    """The file system of the trials; None if it was not measured. ``step_seconds``: the pace of the training. Pure."""
    by_what = {volume.what: volume for volume in volumes}
    volume = by_what.get(TRIALS, by_what.get(RUN_DIRECTORY))
    if volume is None:
        return None
    left = volume.seconds_left
    if left is None and step_bytes and step_seconds:
        left = volume.free / step_bytes * step_seconds
    return DiskStatus(volume.total, volume.free, step_bytes, left)
