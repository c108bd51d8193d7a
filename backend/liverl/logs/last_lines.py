"""The last lines of a log file, and an index of when each byte was written."""

from __future__ import annotations

import os
from pathlib import Path

from liverl.logs.prefixes import plain
from liverl.util.append import append_whole
from liverl.util.regular_file import open_binary, open_regular, require_regular

UNKNOWN = "0 0.000\n"  # an entry: the log was begun at any time since the epoch


class TailIndex:
    """Records how far a log has grown at which time, in ``<log>.idx``: lines of ``offset unix_time``.

    ``offset`` is the size of the log at that time: all earlier bytes are at least that old. After a restart
    the index is continued. ``since_unknown``: nobody knows when the log was begun, so that its bytes of the first entry
    may have any age: the index then begins with ``UNKNOWN``.
    """

    def __init__(
        self, log: str | os.PathLike[str], interval: float = 1.0, *, since_unknown: bool = False
    ) -> None:
        self.log = Path(log)
        self.path = Path(f"{os.fspath(log)}.idx")
        self.interval = interval  # seconds between two entries
        last = _last_entry(self.path)
        self._size, self._at = last if last is not None else (0, 0.0)
        self._first = UNKNOWN if since_unknown and last is None else ""

    def tick(self, now: float, status: os.stat_result | None = None) -> bool:
        """Append an entry if the log has grown and the last entry is old enough; ``now`` is Unix time.

        Returns whether an entry was written. Costs one ``stat`` if there is nothing to do, none with the ``status`` of
        the log, where the caller has just asked for it.

        Raises:
            RefusedFileError: the log or the index is no regular file.
            OSError: the index cannot be written (disk full).
        """
        if 0 <= now - self._at < self.interval:
            return False
        try:
            status = self.log.stat() if status is None else status
        except FileNotFoundError:
            return False
        require_regular(status.st_mode, self.log)
        size = status.st_size
        if size <= self._size:
            return False
        append_whole(self.path, f"{self._first}{size} {now:.3f}\n".encode())
        self._size, self._at, self._first = size, now, ""
        return True


def time_of(log: str | os.PathLike[str], offset: int) -> float | None:
    """Return the Unix time at which the byte at ``offset`` of ``log`` was written, to about a second.

    This is the first index entry beyond it; None if there is no index, if it does not reach that far, or if nobody
    knows when that piece of the log was begun.
    """
    unknown = False
    try:
        with open_binary(f"{os.fspath(log)}.idx") as file:
            for line in file:
                entry = _entry(line)
                if entry is not None and entry[0] > offset:
                    return None if unknown else entry[1]
                unknown = entry == (0, 0.0)
    except FileNotFoundError:
        return None
    return None


def _last_entry(path: Path) -> tuple[int, float] | None:
    data, _ = read_tail(path, 4096)
    entries = (_entry(line) for line in reversed(data.splitlines(keepends=True)))
    return next((entry for entry in entries if entry is not None), None)


def _entry(line: bytes) -> tuple[int, float] | None:
    words = line.split()
    if len(words) != 2 or not line.endswith(b"\n"):  # incomplete after a crash
        return None
    try:
        return int(words[0]), float(words[1])
    except ValueError:
        return None


def read_tail(path: str | os.PathLike[str], max_bytes: int, start: int = 0) -> tuple[bytes, int]:
    """Return (data, offset): at most the last ``max_bytes`` bytes after ``start``, beginning at a line start
    if possible.

    A missing file is empty.

    Raises:
        OSError: the file exists and cannot be read.
    """
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return b"", 0
    try:
        size = os.fstat(fd).st_size
        first = max(start, size - max_bytes)
        if first >= size:
            return b"", size
        data = os.pread(fd, size - first, first)
        if first > start and os.pread(fd, 1, first - 1) != b"\n":
            cut = data.find(b"\n") + 1
            data, first = data[cut:], first + cut
        return data, first
    finally:
        os.close(fd)


def last_lines(path: str | os.PathLike[str], n: int, max_bytes: int = 256 << 10) -> list[str]:
    """Return the last ``n`` non-empty lines as a terminal would show them. Reads at most ``max_bytes`` bytes.

    A missing file has none.

    Raises:
        OSError: the file exists and cannot be read.
    """
    data, _ = read_tail(path, max_bytes)
    lines: list[str] = []
    for raw in reversed(data.split(b"\n")):
        if len(lines) >= n:
            break
        text = plain(raw.decode("utf-8", "replace")).rstrip()
        if text:
            lines.append(text)
    lines.reverse()
    return lines
