"""What a session must not forget: one file per session, appended before a reply goes out, read again after a restart.

The first line opens the session and holds its key, so only the owner can read the file. A line that a crash has cut is
removed: its reply never went out.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec

from liverl.sessions.counters import Counters
from liverl.sessions.sampling import Limits
from liverl.sessions.segments import Turn
from liverl.sessions.wire import Answer
from liverl.util.regular_file import open_append, read_regular

SUFFIX = ".jsonl"


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """The first line. ``trial_dir``: absolute path; ``created``: Unix seconds."""

    id: str
    key: str
    trial_dir: str
    created: float
    limits: Limits = Limits()


class Recorded(msgspec.Struct, frozen=True, tag="turn"):
    """A reply that was sampled. ``request``: digest of its request; ``counters``: after it; ``began``: Unix seconds at
    which the request came; ``seconds``: that the turn took."""

    request: bytes
    turn: Turn
    answer: Answer
    counters: Counters
    began: float = 0.0
    seconds: float = 0.0


class Delivered(msgspec.Struct, frozen=True, tag="delivered"):
    """The reply to a request has reached its client."""

    request: bytes


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The trainer has ended the session."""


Entry = Opened | Recorded | Delivered | Finished
_decode = msgspec.json.Decoder(Entry).decode


class DamagedJournal(ValueError):
    """A journal whose complete lines cannot be read."""


def read_journal(path: Path) -> list[Entry]:
    """All entries, after removing a last line that was cut. Empty if nothing complete was written.

    Raises:
        DamagedJournal: a complete line is no entry, or the first one does not open a session.
        OSError: the file cannot be read or shortened.
    """
    data = read_regular(path)
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    entries: list[Entry] = []
    for number, line in enumerate(data[:whole].splitlines(), 1):
        try:
            entries.append(_decode(line))
        except msgspec.DecodeError as error:
            raise DamagedJournal(f"{path}, line {number}: {error}") from None
    if entries and not isinstance(entries[0], Opened):
        raise DamagedJournal(f"{path}, line 1: the first line does not open a session")
    return entries


class Journal:
    """The file of one session, open only while it is written: there may be more sessions than a process may have
    descriptors. The caller writes before it changes its own state."""

    def __init__(self, path: Path) -> None:
        """Raises:
        OSError: the file cannot be created.
        """
        self.path = path
        self._closed = False
        os.close(open_append(path, 0o600))

    @property
    def empty(self) -> bool:
        """Whether nothing was written yet, by this process or one before."""
        return self.path.stat().st_size == 0

    def write(self, entry: Entry) -> None:
        """Append an entry, whole or not at all.

        Raises:
            OSError: the disk is full or the file cannot be written; what was written of the line is removed.
        """
        if self._closed:
            raise OSError(errno.EBADF, "the journal is closed", str(self.path))
        line = msgspec.json.encode(entry) + b"\n"
        fd = open_append(self.path, 0o600)
        try:
            before = os.fstat(fd).st_size
            if not before and not isinstance(entry, Opened):
                raise FileNotFoundError(errno.ENOENT, "the session's journal was removed", str(self.path))
            try:
                written = os.write(fd, line)
                if written != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            except OSError:
                os.ftruncate(fd, before)
                raise
        finally:
            os.close(fd)

    def close(self) -> None:
        """Accept nothing more."""
        self._closed = True
