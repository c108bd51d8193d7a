"""A run without a backend, as its files tell it."""

from __future__ import annotations

import os
from pathlib import Path

from liverl.model import Snapshot


class OfflineRun:
    """Reads the files of one run directory; ``poll`` sees what its services still write."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self.run_dir = Path(run_dir)

    def poll(self) -> Snapshot | None:
        """The last known state; None where nothing tells one."""
        return None
