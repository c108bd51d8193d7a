"""What the reader's thread sends to the log view: the lines on the screen and the facts of the title. Frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from liverl.logs.text import last_state, plain
from liverl.model import Level

if TYPE_CHECKING:
    from liverl.logs.document import Place
    from liverl.logs.query import Needle, Query
    from liverl.logs.stamps import Clock

ALL = ""  # name of the tab with the logs of all services, merged by time


class LogLine(msgspec.Struct, frozen=True):
    """One line, or the separator between two files. ``text``: with color sequences, cut if it is huge; ``raw``: the
    bytes of the file, the last ``RAW_BYTES`` of them; ``clock``: when it was written."""

    place: Place
    text: str
    raw: bytes = b""
    level: Level | None = None
    clock: Clock | None = None

    @property
    def service(self) -> str:
        """The service whose log holds the line."""
        return self.place.segment.service

    @property
    def mark(self) -> bool:
        """Whether it is the separator between two files."""
        return self.place.separates

    @property
    def copy(self) -> str:
        """What is copied: the line without color sequences, uncut; of a progress bar the last state."""
        return self.text if self.mark else plain(last_state(self.raw).decode("utf-8", "replace"))


RAW_BYTES = 64 << 10  # bytes of one line that can be copied


class Search(msgspec.Struct, frozen=True):
    """The state of a search. ``number``: of the hit under the cursor, from 1; ``total``: hits so far; ``progress``:
    ratio 0..1 of the bytes that were searched, None when done."""

    needle: Needle
    total: int = 0
    number: int | None = None
    progress: float | None = None
    seeking: bool = False  # a jump to a hit waits until enough has been searched


class Filter(msgspec.Struct, frozen=True):
    """Which lines are shown: those that match ``include`` and not ``exclude``, of ``level`` or above. ``access``: also
    routine lines, as access lines of successful calls. ``kept``: no level hides lines that contain any of these."""

    include: Needle | None = None
    exclude: Needle | None = None
    level: Level | None = None
    access: bool = False
    kept: tuple[str, ...] = ()

    @property
    def narrows(self) -> bool:
        """Whether other lines than routine lines may be hidden."""
        return self.include is not None or self.exclude is not None or self.level is not None

    def query(self, *more: Needle, spared: Needle | None = None) -> Query:
        """The filter as a query that also wants ``more``. ``spared``: routine lines with it are shown."""
        from liverl.logs.query import Query  # not at the top: before the first paint nothing is filtered

        include = () if self.include is None else (self.include,)
        exclude = () if self.exclude is None else (self.exclude,)
        return Query(include + more, exclude, self.level, not self.access, spared, self.kept)


class Frame(msgspec.Struct, frozen=True):
    """Everything that one drawing of the log view needs."""

    unread: bool = False  # the files have not been looked at yet
    tab: str = ALL  # name of a service or file
    lines: tuple[LogLine, ...] = ()  # that fill the view, oldest first
    skip: int = 0  # rows of the first line that are above the top
    cursor: int | None = None  # index of the selected line
    follow: bool = True
    wrap: bool = False
    fresh: int = 0  # lines written since the view stopped following
    file: str = ""  # name of the file of the selected line; empty if several files are merged
    number: int | None = None  # of the selected line in its file, from 1
    total: int | None = None  # lines of that file, None until counted
    at: float | None = None  # Unix time at which the selected line was written; None without a time index
    end: float = 0.0  # Unix time of the newest line
    size: int = 0  # bytes of all files of the tab
    filter: Filter = Filter()
    hidden: int = 0  # routine lines left out of the bytes that were filtered
    all_filtered: bool = True  # these bytes are the whole log
    marked: int | None = None  # index of the line that `show_line` was asked for
    scanned: float | None = None  # ratio 0..1 of the bytes that were filtered, None when done
    search: Search | None = None
    lag: float = 0.0  # seconds by which the view is behind the files
    note: str = ""  # result of the last command, if it needs words: "not found"
    error: str = ""  # why the files cannot be read
    services: tuple[str, ...] = ()  # that have log files
