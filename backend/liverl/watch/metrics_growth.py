"""Whether metrics of a run are being written, where no log of its trainer tells."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from liverl.watch.quiet import GAPS, LEAST_S
from liverl.watch.scene import stat_of
from liverl.watch.services import ELSEWHERE_S


class MetricsGrowth:
    """The files with metrics over time. One thread at a time."""

    def __init__(self) -> None:
        self._sizes: dict[Path, int] = {}
        self._grown = False  # one was seen to grow

    def look(self, files: Iterable[Path], now: float, step_seconds: float | None, alone: bool) -> bool:
        """Whether one of ``files`` was written within the time that a few steps take. ``now``: Unix seconds;
        ``step_seconds``: None if it is not known; ``alone``: nothing else was found of the run. Beside logs only what
        was seen to grow counts: the files may be copies."""
        newest = 0.0
        for path in files:
            size, modified = stat_of(path)
            self._grown = self._grown or self._sizes.get(path, size) < size
            self._sizes[path] = size
            newest = max(newest, modified)
        allowed = min(ELSEWHERE_S, max(LEAST_S, GAPS * (step_seconds or 0.0)))
        return (self._grown or alone) and now - newest < allowed
