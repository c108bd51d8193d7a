"""``exits/TOKEN.json``: how each service has ended, on disk."""

import contextlib
import json
import os
import time

from .descriptors import Reserve
from .faults import Faults
from .messages import Record

FOLDER = "exits"  # in the run directory, the working directory
RETRY_MS = 5_000  # between two attempts to write an exit status


class ExitFiles:
    """Exits that are reported, and not written yet."""

    def __init__(self, reserve: Reserve, faults: Faults) -> None:
        self._reserve = reserve
        self._faults = faults
        self._unwritten: list[Record] = []
        self._failed: list[Record] = []  # the same after a write error
        self._retry_at = 0.0  # monotonic seconds; when ``_failed`` are written again

    @property
    def failed(self) -> bool:
        """Whether there are some that could not be written, and will be tried again."""
        return bool(self._failed)

    def add(self, child: Record) -> None:
        """A child that has ended."""
        self._unwritten.append(child)

    def write(self, *, retry: bool = False) -> None:
        """Write the exits that are due; with ``retry`` also those that would be tried again later."""
        if self._failed and (retry or time.monotonic() >= self._retry_at):
            self._unwritten += self._failed
            self._failed = []
        while self._unwritten:
            child = self._unwritten.pop(0)
            try:
                self._reserve.use(lambda: write_exit(child))  # noqa: B023 - called at once
            except (OSError, ValueError) as error:
                # Its record stays among the children, which "hello" returns: a full disk must not lose an exit status.
                self._faults.complain(f"could not write the exit status of {child['token']}: {error}")
                self._failed.append(child)
                self._retry_at = time.monotonic() + RETRY_MS / 1000


def write_exit(child: Record) -> None:
    """Write ``exits/TOKEN.json`` with fsync. Raises OSError."""
    path = f"{FOLDER}/{child['token']}.json"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + ".tmp")
    # A new file only: another program may have put a link or a FIFO there.
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump(child, file)
        file.flush()
        os.fsync(fd)
    os.replace(path + ".tmp", path)
