"""What the log view draws: lines, and what there is to say about them. Frozen, made by the reader's thread."""

from __future__ import annotations

import msgspec

from liverl.logs.document import MARK, Place
from liverl.logs.query import Needle
from liverl.logs.text import last_state, plain
from liverl.model import Level

ALL = ""  # the tab of all services together


class LogLine(msgspec.Struct, frozen=True):
    """One line. ``text`` has its colour sequences, and is cut where it is huge; ``raw`` is what was written, up
    to ``RAW_BYTES``."""

    place: Place
    text: str
    raw: bytes = b""
    level: Level | None = None

    @property
    def service(self) -> str:
        return self.place.segment.service

    @property
    def mark(self) -> bool:
        """Whether it is the border between two files."""
        return self.place.offset == MARK

    @property
    def copy(self) -> str:
        """What a person wants who copies it: the words, uncut."""
        return self.text if self.mark else plain(last_state(self.raw).decode("utf-8", "replace"))


RAW_BYTES = 64 << 10


class Search(msgspec.Struct, frozen=True):
    """How a search stands. ``number``: of the hit under the cursor, from 1; ``progress`` 0..1, None when done."""

    needle: Needle
    total: int = 0
    number: int | None = None
    progress: float | None = None
    seeking: bool = False  # a jump waits for what has not been searched yet


class Filter(msgspec.Struct, frozen=True):
    """What is let through."""

    include: Needle | None = None
    exclude: Needle | None = None
    level: Level | None = None

    @property
    def active(self) -> bool:
        return self.include is not None or self.exclude is not None or self.level is not None


class Frame(msgspec.Struct, frozen=True):
    tab: str = ALL
    lines: tuple[LogLine, ...] = ()
    skip: int = 0  # rows of the first line that are above the top
    cursor: int | None = None  # index of the selected line
    follow: bool = True
    wrap: bool = False
    fresh: int = 0  # lines that came since the view stopped following
    file: str = ""  # name of the file that is in view
    number: int | None = None  # of the selected line in its file, from 1
    total: int | None = None  # lines of that file
    at: float | None = None  # Unix time at which the selected line was written, where an index tells
    end: float = 0.0  # Unix time of the newest line
    size: int = 0  # bytes of all files of the tab
    filter: Filter = Filter()
    scanned: float | None = None  # share that the filter has looked at, None when done
    search: Search | None = None
    lag: float = 0.0  # seconds by which the view is behind the files
    note: str = ""  # the answer to what was asked last
    error: str = ""  # why the files cannot be read
    services: tuple[str, ...] = ()  # those that have a log
