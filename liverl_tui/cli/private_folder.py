"""A private temporary folder of a command, removed at its end."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from liverl.exit_codes import of_signal
from liverl.util.remove_tree import remove_tree


class PrivateFolder:
    """Inside a ``with`` block: a folder, which is removed at the end, also after SIGTERM and SIGHUP. Those of commands
    that were killed are removed first. ``prefix``: of its name, which also has the pid."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Path:
        self._remove_left_over()
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._previous[number] = signal.signal(number, _leave)
        self.path = Path(tempfile.mkdtemp(prefix=f"{self.prefix}{os.getpid()}-"))
        return self.path

    def __exit__(self, *_: object) -> None:
        remove_tree(self.path)
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remove_left_over(self) -> None:
        """Remove the folders of this user's commands whose process has exited."""
        from liverl.procs import procfs

        try:
            entries = list(os.scandir(tempfile.gettempdir()))
        except OSError:
            return
        pattern = re.compile(rf"{re.escape(self.prefix)}(\d+)-\w+")
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            try:
                directory = entry.is_dir(follow_symlinks=False)
                ours = directory and entry.stat(follow_symlinks=False).st_uid == os.getuid()
            except OSError:
                continue  # removed meanwhile
            if match and ours and not procfs.alive(int(match[1]), None):
                remove_tree(entry.path)


def _leave(number: int, _frame: object) -> None:
    sys.exit(of_signal(number))
