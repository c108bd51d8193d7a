"""The state of a log view without its drawing: files, filter, search and position. Used by one thread.

Everything here may block on a disk. ``work`` searches and counts in small slices, so that a key never waits for the
search of a whole file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.logs.document import MARK, Chain, Document, Place
from liverl.logs.files import LogFile
from liverl.logs.levels import Levels, continues, ends_traceback, own_level
from liverl.logs.library import Library
from liverl.logs.prefixes import colourless, without_prefix
from liverl.logs.query import Needle
from liverl.logs.segment import Segment
from liverl.logs.stamps import clock_of
from liverl.logs.text import bare, shown
from liverl.model import Level
from liverl_tui.text.log_names import shown_name
from liverl_tui.widgets.log.filtering import NewLines, Passing, begin_in_view
from liverl_tui.widgets.log.frame import ALL, RAW_BYTES, Filter, Frame, LogLine
from liverl_tui.widgets.log.seek import Jump, Seeker, search, search_near, unfinished
from liverl_tui.widgets.log.viewport import Viewport, Window

if TYPE_CHECKING:
    from liverl.rundir.layout import RunDir

LOOK_S = 2.0  # seconds between two looks for new files
INDEX_S = 1.0  # seconds between two reads of the time indexes
FILL_S = 0.03  # seconds for which a frame waits for the lines that fill it
ABOVE = 4096  # bytes before an indented line that are searched for the error to which it belongs

Rows = Callable[[str, int], int]  # (text with color sequences, columns) -> rows it takes when wrapped


class LogSession:
    """The state of one log view. Not thread-safe."""

    def __init__(self, rows: Rows, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.library = Library()
        self.run: RunDir | None = None
        self.services: tuple[str, ...] = ()
        self.current: dict[str, Path] = {}
        self.own: set[str] = set()
        self.tab = ALL
        self.width = 80
        self.height = 24
        self.wrap = False
        self.filter = Filter()
        self.lag = 0.0
        self.note = ""
        self.error = ""
        self._measure = rows
        self._views: dict[str, Viewport] = {}
        self._seeker: Seeker | None = None
        self._passing = Passing(self.filter)
        self._new = NewLines(self.filter)
        self._marked: Place | None = None  # the line that ``show_line`` was asked for
        self._polled: object = None  # what the files were like at the last poll
        self._quiet: object = None  # what was looked at by the last poll after which nothing was to be done
        self._refreshed_at = self._indexed_at = 0.0  # Unix time of the last look for files, at the indexes
        self._lines: dict[Place, LogLine] = {}  # complete lines of the last frame

    # -- files

    def open(self, path: Path) -> None:
        """Show one file, which belongs to no run."""
        self.tab = path.name
        self.library.add(self.tab, [LogFile(self.tab, 0, path)], self.clock())

    def set_run(
        self, run: RunDir, services: tuple[str, ...], current: Mapping[str, Path], own: Mapping[str, Path]
    ) -> None:
        """Set the run. ``services``: in the order of the tabs; ``current``: the log that each service writes now;
        ``own``: further files, such as the backend's log, which have tabs but are not merged with the others."""
        self.run, self.services = run, services
        self.current, self.own = {**own, **current}, {name for name in own if name not in services}
        self._refreshed_at = 0.0
        self.poll()

    def select(self, tab: str) -> None:
        """Show the log of a service, or of all with ``ALL``."""
        if tab != self.tab:
            self.tab = tab
            self.note = ""
            if self._seeker is not None:
                self._seeker.jump = None
            self._stay()
            self.poll()
            if not self.filter.narrows and not self.view.follow and self.view.cursor is not None:
                self._passing.near(self.view.cursor, self.document)

    def show_line(self, service: str, path: Path, offset: int) -> None:
        """Show and mark the line that holds byte ``offset`` of the file ``path``; nothing moves if the service has no
        such file."""
        self.select(service)
        document = self.document
        for segment in document.segments:
            if segment.path == path:
                places = document.back(Place(segment, offset + 1), 1).places
                if places:
                    self._marked = places[0]
                    self._go(places[0])
                    self._stay()

    @property
    def document(self) -> Document:
        """The files of the tab as one document: those of all services merged by time, or those of one in sequence."""
        if self.tab == ALL:
            return self.library.merged(self._merged())
        return self.library.chain(self.tab)

    def _merged(self) -> list[str]:
        """The services whose logs are merged: those of the run, and those of which only files exist."""
        others = (
            name for name in self.library.services if name not in self.services and name not in self.own
        )
        return [*self.services, *others]

    @property
    def view(self) -> Viewport:
        """The position in the tab's document, with the present size and filter. Each tab has its own."""
        view = self._views.get(self.tab)
        if view is None:
            view = self._views[self.tab] = Viewport(self.document, self._rows_of)
        view.document = self.document
        view.height = self.height
        view.picker = self._passing.picker
        return view

    # -- new content

    def poll(self) -> bool:
        """Read what was written since the last poll; look for new files every ``LOOK_S``. Return whether there may be
        something new to filter, count or draw."""
        now = self.clock()
        names = self._merged() if self.tab == ALL else [self.tab]
        document = self.document
        sizes = {segment: segment.size for segment in document.segments}
        epochs = [segment.epoch for segment in document.segments]
        refreshes = self.run is not None and not 0 <= now - self._refreshed_at < LOOK_S
        if self.run is not None and refreshes:
            self._refreshed_at = now
            self.library.refresh(self.run, self.current, now)
            names = self._merged() if self.tab == ALL else [self.tab]
        for name in names:
            self.library.look(self.library.chain(name), now)
        looked = self.tab, self.filter, self._views.get(self.tab), self._seen(document)
        if not refreshes and 0 <= now - self._indexed_at < INDEX_S and looked == self._quiet:
            return False
        if epochs != [segment.epoch for segment in document.segments]:
            self._lines.clear()
        document = self.document
        if self.view.follow and not self.filter.narrows:
            self._passing.to_end(document)  # much was written while nobody looked
        if not self.view.follow:
            self._new.grown(sizes, document)
        if not 0 <= now - self._indexed_at < INDEX_S:
            self._indexed_at = now
            for segment in document.segments:
                if segment.live and not segment.moved:
                    segment.times.refresh()
        content = self._content(document)
        changed, self._polled = content != self._polled, content
        self._quiet = None if changed else looked
        return changed

    def _seen(self, document: Document) -> object:
        """What a look at the files can change of ``document``, and whether the view follows its end."""
        files = [(s, s.epoch, s.size, s.live, s.moved) for s in document.segments]
        return self.view.follow, files

    def _content(self, document: Document) -> object:
        """What a poll can change: equal as long as the files and what is known of them stay the same."""
        files = [(s, s.epoch, s.size, s.live, len(s.times.times), s.times.end) for s in document.segments]
        return self.tab, files, self.library.services

    def work(self, seconds: float) -> bool:
        """Search and count lines for about ``seconds``; return whether there is more to do."""
        deadline = time.monotonic() + seconds
        while True:
            more = self._step()
            if not more or time.monotonic() >= deadline:
                return more

    def _step(self) -> bool:
        document, view, picked = self.document, self.view, self._passing.matches
        # Only routine lines are hidden: filter what is near the view, not the whole log
        lazy = not self.filter.narrows
        if picked is not None:
            unread = lazy and self._passing.unread(view)
            if not unread:
                view.build()  # what is filtered next depends on the lines in view
            if (unread or not lazy or not view.window.complete) and search(picked, document):
                return True
        if not view.follow and self._new.step(document):
            return True
        if self._seeker is not None:
            more = self._seeker.step(document)
            self._arrive()
            if more:
                return True
        if picked is not None and lazy and search_near(picked, document, view.window):
            return True
        if isinstance(document, Chain) and lazy:
            cursor = view.cursor
            counted = [s for s in document.segments if s.live or (cursor is not None and s is cursor.segment)]
            return sum(segment.count() for segment in counted) > 0
        return False

    def _fill(self) -> Window:
        """The window. If a filter that hides only routine lines was not searched far enough to fill it, search on for
        at most ``FILL_S``: a frame with too few lines would flash."""
        view, picked, deadline = self.view, self._passing.matches, time.monotonic() + FILL_S
        window = view.build()
        if picked is not None and not self.filter.narrows:
            while (not window.complete or self._passing.unread(view)) and search(picked, view.document):
                window = view.build()
                if time.monotonic() >= deadline:
                    break
        return window

    # -- moving

    def resize(self, width: int, height: int) -> None:
        """Set the size of the lines' area in columns and rows. The selected line stays in view."""
        view = self.view
        selected = not view.follow and view.cursor in view.window.places
        self.width, self.height = width, max(1, height)
        if selected:
            self.view.reveal()

    def _moved(self, move: Callable[[Viewport], None]) -> None:
        self._fill()
        view = self.view
        follow = view.follow
        self.note = ""
        move(view)
        if view.follow != follow:
            self._stay()

    def _stay(self) -> None:
        """Count new lines from now on."""
        self._new = NewLines(self.filter, self._spared, self.document)

    def move(self, by: int) -> None:
        """Select the line ``by`` lines below (above if negative)."""
        self._moved(lambda view: view.move(by))

    def page(self, by: int) -> None:
        """Move one screen down (1) or up (-1)."""
        self._moved(lambda view: view.page(by))

    def scroll(self, by: int) -> None:
        """Move the view by rows; the selected line stays selected while it is visible."""
        self._moved(lambda view: view.scroll(by))

    def first(self) -> None:
        """Go to the first line of the document."""

        def move(_view: Viewport) -> None:
            self._passing.near(None, self.document)
            self.view.first()

        self._moved(move)

    def end(self) -> None:
        """Go to the newest line, and follow."""

        def move(_view: Viewport) -> None:
            self._passing.to_end(self.document)
            self.view.end()

        self._moved(move)

    def pause(self) -> None:
        """Stop following; if stopped, follow again."""
        if self.view.follow:
            self._moved(Viewport.pause)
        else:
            self.end()

    def _go(self, place: Place) -> None:
        """Go to a line."""

        def move(_view: Viewport) -> None:
            self._passing.near(place, self.document)
            self.view.go(place)

        self._moved(move)

    def choose(self, index: int) -> None:
        """Select a line in view by its index in the frame."""

        def move(view: Viewport) -> None:
            if 0 <= index < len(view.window.places):
                view.pause()
                view.cursor = view.window.places[index]

        self._moved(move)

    def set_wrap(self, wrap: bool) -> None:
        """Wrap long lines, or cut them."""
        self.wrap = wrap

    def at_time(self, at: float) -> None:
        """Go to the first line written at Unix time ``at`` or later. Without a time index, or without such a line,
        ``note`` says so."""
        document = self.document
        if not any(segment.times.known for segment in document.segments):
            self.note = "cannot go to a time: this log has no time index"
            return
        place = document.at_time(at)
        clock = time.strftime("%H:%M:%S", time.localtime(at))
        if place is None:
            self.end()
            self.note = f"no lines since {clock}"
            return
        self._go(place)  # the title shows the time of that line

    def at_line(self, number: int) -> None:
        """Go to line ``number`` (from 1) of the file of the selected line, else of the newest file. ``note`` says if it
        has fewer lines, or if several files are merged."""
        document, cursor = self.document, self.view.cursor
        if not isinstance(document, Chain):
            self.note = "lines have numbers only in the log of one service"
            return
        if not document.segments:
            return
        live = cursor is None or self.view.follow or cursor.segment not in document.segments
        segment = document.segments[-1] if live or cursor is None else cursor.segment
        offset = segment.offset_of(number)
        if offset is None:
            self.end()
            self.note = f"{shown_name(segment.path)} has no line {number:,}"
            return
        self._go(Place(segment, offset))

    # -- filter and search

    def set_filter(self, chosen: Filter) -> None:
        """Filter the lines. A search goes on among them."""
        self.view.build()
        self.filter = chosen
        if self._seeker is None:
            self._refilter()
        else:
            self.search(self._seeker.needle, jump=False)
        self.note = ""
        self._stay()

    @property
    def _spared(self) -> Needle | None:
        """Access lines with this are shown: what is searched for."""
        return None if self._seeker is None else self._seeker.needle

    def _refilter(self) -> None:
        self._passing = Passing(self.filter, self._spared)
        begin_in_view(self._passing.matches, self.view)

    def search(self, needle: Needle, *, jump: bool = True) -> None:
        """Search for a pattern; routine lines that contain it are shown. ``jump``: go to the newest hit while
        following, else to the next one from the selected line."""
        view = self.view
        view.build()
        self._seeker = Seeker(needle, self.filter.query(needle, spared=needle))
        begin_in_view(self._seeker.hits, view)
        self._refilter()
        self.note = ""
        if jump:
            from_end = view.follow or view.cursor is None
            self._seeker.jump = Jump(-1, None) if from_end else Jump(1, view.cursor, first=True)
            self._arrive()

    def next_hit(self, by: int) -> None:
        """Go to the next hit (1) or the one before (-1), around the ends."""
        if self._seeker is not None:
            view = self.view
            view.build()
            self.note = ""
            self._seeker.jump = Jump(by, view.cursor)
            self._arrive()

    def end_search(self) -> None:
        """Forget the search and its hits."""
        self.view.build()
        self._seeker = None
        self._refilter()
        self.note = ""

    def _arrive(self) -> None:
        """Go to the target of the jump, if it is certain by now."""
        seeker = self._seeker
        if seeker is not None and seeker.jump is not None:
            place = seeker.resolve(self.document)
            if place is not None:
                self._go(place)
            if seeker.jump is None:
                self.note = seeker.note

    # -- drawing

    def frame(self) -> Frame:
        """What is to be drawn now."""
        view = self.view
        window, picked = self._fill(), self._passing.matches
        lines = tuple(self._line(place) for place in window.places)
        self._lines = {place: self._lines[place] for place in window.places if place in self._lines}
        segment = view.cursor.segment if view.cursor is not None else None
        if segment is None and view.document.segments:
            segment = view.document.segments[-1]
        number = total = at = None
        if view.cursor is not None and segment is not None and not view.follow:
            at = view.document.shown_time_of(view.cursor) if segment.times.known else None
            if isinstance(view.document, Chain) and not self.filter.narrows:
                number = segment.number(max(0, view.cursor.offset))
                total = segment.number(segment.size)
        return Frame(
            tab=self.tab,
            lines=lines,
            skip=window.skip,
            cursor=window.places.index(view.cursor) if view.cursor in window.places else None,
            follow=view.follow,
            wrap=self.wrap,
            fresh=0 if view.follow else self._new.count(view.document),
            file=shown_name(segment.path) if segment is not None and isinstance(view.document, Chain) else "",
            number=None if number is None else number + 1,
            total=total,
            at=at,
            end=view.document.end,
            size=sum(segment.size for segment in view.document.segments),
            filter=self.filter,
            hidden=0 if picked is None else picked.hidden(view.document.segments),
            all_filtered=(scanned := unfinished(picked, view.document)) is None,
            marked=window.places.index(self._marked) if self._marked in window.places else None,
            scanned=scanned if self.filter.narrows or not window.complete else None,
            search=None if self._seeker is None else self._seeker.state(view.document, view.cursor),
            lag=self.lag,
            note=self.note,
            error=self.error,
            services=tuple(self.library.services),
        )

    def _rows_of(self, place: Place) -> int:
        if not self.wrap or place.offset == MARK:
            return 1
        return self._measure(self._line(place).text, self.width)

    def _line(self, place: Place) -> LogLine:
        cached = self._lines.get(place)
        if cached is not None:
            return cached
        segment, offset = place
        if offset == MARK:
            return LogLine(place, _border(self.document, segment))
        raw, ended = segment.line(offset)
        text = shown(raw)
        written = self.document.shown_time_of(place) if segment.times.known else None
        clock = clock_of(colourless(text), written)
        line = LogLine(place, text, raw[-RAW_BYTES:], _level(segment, offset, text), clock)
        if ended:
            self._lines[place] = line
        return line

    def close(self) -> None:
        """Close all files."""
        self.library.close()


def _border(document: Document, segment: Segment) -> str:
    """The text of the separator above the first line of a file."""
    name, before = shown_name(segment.path), document.segments[: document.segments.index(segment)]
    if segment.epoch:
        return f"{name} was truncated; its earlier lines are lost"
    if any(other.path == segment.path for other in before):
        return f"{name} was replaced by a new file"
    since = segment.times.began
    clock = "" if since is None else time.strftime(", %Y-%m-%d %H:%M:%S", time.localtime(since))
    return f"{name}: generation {segment.generation} of {segment.service}{clock}"


def _level(segment: Segment, offset: int, text: str) -> Level | None:
    line = colourless(text)
    level = own_level(line)
    rest = without_prefix(line)[1]
    if level is None and (continues(rest) or ends_traceback(rest)):
        above = bare(segment.above(offset, ABOVE)).split("\n")[:-1]
        return Levels(above).of(line)
    return level
