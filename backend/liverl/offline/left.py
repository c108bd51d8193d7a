"""What a backend that has died has left of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from liverl.offline.run import OfflineRun
from liverl.offline.services import anything_left

# services: some still run; complete: the training is, and only a backend can close the run; nothing: no process
Left = Literal["services", "complete", "nothing"]


def left_of(run_dir: Path) -> Left:
    """What is left on this host of a run without a backend and without a result."""
    seen = OfflineRun(run_dir).poll()
    if seen is not None and seen.awaits_closing:
        return "complete"
    return "services" if anything_left(run_dir) else "nothing"
