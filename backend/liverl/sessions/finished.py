"""What is kept of sessions that have ended: one line each in one file, while their rows are in their trials."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from liverl.sessions.counters import Counters, together
from liverl.sessions.keys import same_key
from liverl.sessions.segments import Row
from liverl.sessions.trial_log import ROWS
from liverl.util.regular_file import open_append, read_regular

NAME = "finished.ndjson"  # not ``.jsonl``, as journals are


class Ended(msgspec.Struct, frozen=True):
    """A session that has ended. ``trial_dir``: absolute path of the directory with its rows."""

    id: str
    key: str
    trial_dir: str
    counters: Counters

    def accepts(self, key: str) -> bool:
        """Whether ``key`` is the session's."""
        return same_key(key, self.key)

    def rows(self) -> list[Row]:
        """The rows that were written when it ended.

        Raises:
            OSError: the trial's file cannot be read.
            msgspec.DecodeError: it has been changed.
        """
        return msgspec.json.decode(read_regular(Path(self.trial_dir) / ROWS), type=_Rows).rows


class _Rows(msgspec.Struct, frozen=True):
    rows: list[Row]


class FinishedSessions:
    """The sessions that have ended, by id."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._ended: dict[str, Ended] = {}
        self.total = Counters()  # of all of them

    def read(self) -> None:
        """Read the file. Lines that a crash has cut, or that cannot be read, are left out.

        Raises:
            OSError: it cannot be read.
        """
        try:
            lines = read_regular(self._path).splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                ended = msgspec.json.decode(line, type=Ended)
            except msgspec.DecodeError:
                continue
            self._ended[ended.id] = ended
        self.total = together(ended.counters for ended in self._ended.values())

    def add(self, ended: Ended) -> None:
        """Write a session down.

        Raises:
            OSError: it cannot be written.
        """
        fd = open_append(self._path, 0o600)
        try:
            # The newline comes first as well: the line before may have been cut.
            os.write(fd, b"\n" + msgspec.json.encode(ended) + b"\n")
        finally:
            os.close(fd)
        self._ended[ended.id] = ended
        self.total = together((self.total, ended.counters))

    def get(self, name: str) -> Ended | None:
        """The session of this id; None if none of this id has ended."""
        return self._ended.get(name)

    def __len__(self) -> int:
        return len(self._ended)
