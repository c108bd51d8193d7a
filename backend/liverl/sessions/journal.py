"""What a session must not forget: one file per session, appended before a reply goes out, read again after a restart.

The first line opens the session and holds its key, so only the owner can read the file. A line that a crash has cut is
removed: its reply never went out. A line that cannot be read costs what follows it, not what comes before.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from liverl.sessions.counters import Counters
from liverl.sessions.sampling import Limits
from liverl.sessions.segments import Turn
from liverl.sessions.short_floats import short_floats
from liverl.sessions.wire import Answer
from liverl.util.append import append_to
from liverl.util.atomic_file import write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.clocks import Moment
from liverl.util.decode import JsonDecoder
from liverl.util.regular_file import open_append, open_binary, reopen_append

SUFFIX = ".jsonl"


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """The first line. ``trial_dir``: absolute path, as it was asked for; ``created``: Unix seconds; ``at``: the same
    moment, None in journals of earlier versions; ``resolved``: the path without links, "" in those."""

    id: str
    key: str
    trial_dir: str
    created: float
    limits: Limits = Limits()
    at: Moment | None = None
    resolved: str = ""

    @property
    def moment(self) -> Moment:
        """When it was opened."""
        return self.at or Moment(self.created)

    @property
    def place(self) -> Path:
        """The trial's directory: what it was when the session was opened, whatever stands there now."""
        return Path(self.resolved or os.path.realpath(self.trial_dir))


class Recorded(msgspec.Struct, frozen=True, tag="turn"):
    """A reply that was sampled. ``request``: digest of its request; ``counters``: after it; ``began``: Unix seconds at
    which the request came; ``seconds``: that the turn took; ``ended``: when the reply was there, None in journals of
    earlier versions; ``replica``: root address of the one that sampled the reply, "" in journals of earlier
    versions."""

    request: bytes
    turn: Turn
    answer: Answer
    counters: Counters
    began: float = 0.0
    seconds: float = 0.0
    ended: Moment | None = None
    replica: str = ""

    @property
    def replied(self) -> Moment:
        """When the reply was there."""
        return self.ended or Moment(self.began + self.seconds)


class Delivered(msgspec.Struct, frozen=True, tag="delivered", omit_defaults=True):
    """A reply has reached its client. ``request``: digest of the request; ``answer``: id of the reply, as equal
    requests may have several; "": not known, in journals of earlier versions."""

    request: bytes
    answer: str = ""


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    """The counters after a request that got no reply."""

    counters: Counters


class Doubted(msgspec.Struct, frozen=True, tag="doubted"):
    """Turns, by their numbers, whose prompts may have other ids than the engine would have made: they are not
    trained."""

    turns: list[int]


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The trainer has ended the session."""


Entry = Opened | Recorded | Delivered | Counted | Doubted | Finished
_decode = JsonDecoder(Entry).decode
# What a session takes over before it is written: a reply and the end are written first, and not taken over without.
_TAKEN = (Delivered, Counted, Doubted)


class DamagedJournal(ValueError):
    """A journal that does not say whose it is: its first line opens no session."""


class Contents(msgspec.Struct):
    """The entries of a journal up to the first line that cannot be read. ``damage``: what is wrong there, "" if
    nothing is."""

    entries: list[Entry]
    damage: str = ""


def read_journal(path: Path) -> Contents:
    """Read a journal, after removing a last line that was cut. No entries if nothing complete was written.

    Raises:
        DamagedJournal: the first line is no entry, or does not open a session.
        OSError: the file cannot be read or shortened.
    """
    entries: list[Entry] = []
    whole = size = 0
    with open_binary(
        path
    ) as file:  # line by line: the journal of a long session may be larger than its entries
        for number, line in enumerate(file, 1):
            size += len(line)
            if not line.endswith(b"\n"):
                break
            whole = size
            try:
                entries.append(_decode(line))
            except BAD_JSON as error:
                if not entries:
                    raise DamagedJournal(f"{path}, line {number}: {error}") from None
                return Contents(entries, f"{path}, line {number}: {error}")
            if not isinstance(entries[0], Opened):
                raise DamagedJournal(f"{path}, line 1: the first line does not open a session")
    if whole < size:
        fd = open_append(path)
        try:
            os.ftruncate(fd, whole)
        finally:
            os.close(fd)
    return Contents(entries)


def first_entry(path: Path) -> Entry | None:
    """The first entry of a journal; None if nothing complete was written.

    Raises:
        DamagedJournal: it is no entry.
        OSError: the file cannot be read.
    """
    with open_binary(path) as file:
        line = file.readline()
    if not line.endswith(b"\n"):
        return None
    try:
        entry: Entry = _decode(line)
    except BAD_JSON as error:
        raise DamagedJournal(f"{path}, line 1: {error}") from None
    return entry


def set_aside(path: Path) -> Path | None:
    """Rename what is at ``path``, so that it is no journal any more; return its new path, None if nothing is there.

    Raises:
        OSError: it cannot be renamed.
    """
    if not os.path.lexists(path):
        return None
    numbers = itertools.count(1)
    asides = (path.with_name(f"{path.name}.set-aside-{number}") for number in numbers)
    aside = next(each for each in asides if not os.path.lexists(each))
    path.rename(aside)
    return aside


class Journal:
    """The file of one session, open only while it is written: there may be more sessions than a process may have
    descriptors. The caller writes before it changes its own state.

    A file that somebody has removed, replaced or changed is written anew from what the session knows (``whole``)."""

    def __init__(self, path: Path) -> None:
        """Raises:
        OSError: the file cannot be created.
        """
        self.path = path
        self.whole: Callable[[], Iterable[Entry]] | None = None  # all entries; None: they are not known
        self.told: Callable[[str], None] = lambda why: None  # called when that was done
        self._closed = False
        self._behind = False  # the session knows what could not be written
        self._written: int | None = None  # bytes behind the last line of this process
        fd = open_append(path, 0o600)
        try:
            self._known = _identity(os.fstat(fd))
        finally:
            os.close(fd)

    @property
    def empty(self) -> bool:
        """Whether nothing was written yet, by this process or one before."""
        return self.path.stat().st_size == 0

    def write(self, entry: Entry) -> None:
        """Append an entry, whole or not at all. What the session has taken over before it was written (``_TAKEN``) is
        written by the next ``mend`` then.

        Raises:
            OSError: the disk is full or the file cannot be written; what was written of the line is removed.
        """
        if self._closed:
            raise OSError(errno.EBADF, "the journal is closed", str(self.path))
        try:
            self._append(entry)
        except OSError:
            self._behind = self._behind or isinstance(entry, _TAKEN)
            raise

    def _append(self, entry: Entry) -> None:
        fd = None if self._behind else reopen_append(self.path, self._is_ours)
        if fd is None:
            self.mend()
            fd = open_append(self.path, 0o600, read=True)
        try:
            append_to(fd, self.path, _line(entry), self._written)
            self._known = _identity(os.fstat(fd))
            self._written = self._known[2]
        finally:
            os.close(fd)

    def mend(self) -> None:
        """Write the file anew if it is not the one that was written last, or lacks an entry. Another file in its place
        is set aside.

        Raises:
            OSError: it cannot be written.
        """
        why = self._why_not_ours()
        if not why and self._behind and self.whole is not None:
            self._write_whole()
            return
        if not why or (self.whole is None and not self._is_empty()):
            return
        self.rewrite()
        self.told(why)

    def _is_empty(self) -> bool:
        """Whether nothing is there that could be continued."""
        try:
            return self.empty
        except (FileNotFoundError, NotADirectoryError):
            return True

    def rewrite(self) -> None:
        """Write the file anew; what is in its place is set aside.

        Raises:
            OSError: it cannot be written, or its entries are not known.
        """
        if self.whole is None:
            raise FileNotFoundError(errno.ENOENT, "the session's journal was removed", str(self.path))
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        set_aside(self.path)
        self._write_whole()

    def _write_whole(self) -> None:
        assert self.whole is not None
        write_atomic(self.path, b"".join(map(_line, self.whole())), 0o600)
        self._known = _identity(self.path.lstat())
        self._written = self._known[2]
        self._behind = False

    def _why_not_ours(self) -> str:
        try:
            found = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return "was removed"
        ours = stat.S_ISREG(found.st_mode) and self._is_ours(found)
        return "" if ours else "was replaced or changed"

    def _is_ours(self, status: os.stat_result) -> bool:
        return _identity(status) == self._known

    def close(self) -> None:
        """Accept nothing more."""
        self._closed = True


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_size


def _line(entry: Entry) -> bytes:
    return msgspec.json.encode(_short(entry)) + b"\n"


def _short(entry: Entry) -> Entry:
    """The entry with log-probabilities of few digits: a row has them as float32."""
    if not isinstance(entry, Recorded):
        return entry
    turn = msgspec.structs.replace(entry.turn, logprobs=short_floats(entry.turn.logprobs))
    return msgspec.structs.replace(entry, turn=turn)
