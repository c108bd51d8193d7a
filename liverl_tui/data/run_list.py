"""The runs of this host and user, read again and again for a list: those that have ended are read once. Blocking."""

from __future__ import annotations

import time
from pathlib import Path

from liverl.offline.run_list import RunListed, listed
from liverl.rundir.index import RunInfo, every_run
from liverl.util.tree_size import measure

LIVE = ("live", "elsewhere", "orphaned")  # states in which a run may still change
_SIZE_S = 60.0  # seconds after which the size of a run that may still grow is measured again


class RunList:
    """``run_root``: a further directory of runs, beside what this host knows of."""

    def __init__(self, run_root: Path | None = None) -> None:
        self.run_root = run_root
        self._ended: dict[Path, tuple[tuple[str, float], RunListed]] = {}
        self._best: dict[str, tuple[tuple[str, int | None], str]] = {}
        self._sizes: dict[str, tuple[tuple[str, float | None], float, int | None]] = {}

    def read(self) -> list[RunListed]:
        """All runs, the live ones first, then the newest first."""
        found = [self._of(info) for info in every_run(self.run_root)]
        return sorted(found, key=lambda one: LIVE.index(one.state) if one.state in LIVE else len(LIVE))

    def _of(self, info: RunInfo) -> RunListed:
        state = info.state, info.changed_at
        known = self._ended.get(info.run_dir)
        if known is not None and known[0] == state and info.state not in LIVE:
            return known[1]
        found = listed(info)
        self._ended[info.run_dir] = state, found
        return found

    def best(self, run: RunListed) -> str:
        """Which checkpoint of a run is the best and by what, as a phrase; empty without checkpoints."""
        from liverl.offline.checkpoints import NoCheckpoints, best_words, list_checkpoints

        state = run.state, run.steps
        known = self._best.get(run.run_dir)
        if known is None or known[0] != state:
            try:
                found = list_checkpoints(Path(run.run_dir))
                words = best_words(found) if found.rows else "no checkpoint"
            except (NoCheckpoints, OSError):
                words = "no checkpoint"
            known = self._best[run.run_dir] = state, words
        return known[1]

    def size(self, run: RunListed) -> int | None:
        """Bytes that removing the run's directory would give back; None if it cannot be looked at. Takes long for a run
        of many trials; asked again, it is looked at again only if the run may have changed."""
        state, now = (run.state, run.seconds), time.monotonic()
        known = self._sizes.get(run.run_dir)
        if known is not None and (known[0] == state or (run.state in LIVE and now - known[1] < _SIZE_S)):
            return known[2]
        try:
            bytes_: int | None = measure(run.run_dir).bytes
        except OSError:
            bytes_ = None
        self._sizes[run.run_dir] = state, now, bytes_
        return bytes_
