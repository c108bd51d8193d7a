"""What the service reports to the backend in ``sessions/status.<generation>.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from liverl.util.atomic_file import write_atomic


class ReportFile:
    """The report of one process. It is written when it differs from the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""

    def write(self, report: dict[str, Any]) -> None:
        """Write the report, unless it says what the file says.

        Raises:
            OSError: it cannot be written.
        """
        data = msgspec.json.encode(report)
        if data != self._written:
            write_atomic(self._path, data, 0o600, sync=False)
            self._written = data
