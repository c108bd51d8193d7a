"""The list of the run's events: newest last, wrapped, filtered and followed."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec
from rich.cells import cell_len

from liverl.model import Event, Level
from liverl_tui.data.last_visit import Visit
from liverl_tui.keys.bindings import bindings, find
from liverl_tui.text.words import LEVEL_GLYPH, LEVEL_STYLE, one_line
from liverl_tui.text.wrapping import wrap
from liverl_tui.widgets.base.arranging import in_order, matches
from liverl_tui.widgets.base.cells import Row, fit
from liverl_tui.widgets.base.fitting import Column
from liverl_tui.widgets.base.rows import FACTS_GAP, RowsPane

LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")
_LEVEL_WORDS: dict[Level, str] = {
    "debug": "all levels",
    "info": "without debug",
    "warning": "warnings and errors",
    "error": "errors",
}
_NARROW: tuple[Level, ...] = ("warning", "error")  # levels that hide events which are shown by default
_SERVICE = 12  # columns of the service's name
COLUMNS = (
    Column("time", "time", 8, 0, value=lambda e: e.at),
    Column("level", "", 1, 0, value=lambda e: LEVELS.index(e.level), largest_first=True, label="level"),
    Column("service", "service", _SERVICE, 0, value=lambda e: e.service or "run"),
    Column("event", "event", 20, 0, value=lambda e: e.text),
    Column("kind", "kind", _SERVICE, 1, value=lambda e: e.kind, shown=False),
    Column("number", "number", 6, 1, value=lambda e: e.seq, shown=False),
)
_DEFAULT = frozenset(column.name for column in COLUMNS if column.shown)


def fits(event: Event, least: Level, text: str) -> bool:
    """Whether an event passes a filter: at least the level ``least``, and every word of ``text`` in its service, kind
    or text; see ``matches``."""
    if LEVELS.index(event.level) < LEVELS.index(least):
        return False
    return not text or matches(text, f"{event.service or 'run'} {event.kind} {event.text}")


def event_line(event: Event) -> str:
    """An event as one line of text, with date and level, for copying."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    return f"{stamp} {event.level:<7} {event.service or 'run':<{_SERVICE}} {one_line(event.text)}"


def event_rows(
    event: Event, width: int, *, day: bool, data: bool, shown: Collection[str] = _DEFAULT
) -> list[Row]:
    """An event as rows of ``width`` columns. ``day``: begin with a row with the date; ``data``: add the event's kind,
    level, number and data; ``shown``: names of the columns."""
    when = time.localtime(event.at)
    rows = [Row((time.strftime(" %A %d %B %Y", when), "head"))] if day else []
    name_width = min(_SERVICE, max(4, width // 5))
    style = LEVEL_STYLE[event.level]
    first = Row((" ", "text"))
    if "time" in shown:
        first.add(time.strftime("%H:%M:%S ", when), "dim")
    if "number" in shown:
        first.add(f"{event.seq:>6} ", "dim")
    if "level" in shown:
        first.add(f"{LEVEL_GLYPH[event.level]} ", style)
    if "service" in shown:
        first.add(fit(one_line(event.service or "run"), name_width) + " ", "info")
    if "kind" in shown:
        first.add(fit(one_line(event.kind), name_width) + " ", "dim")
    head = cell_len(first.text)
    for index, line in enumerate(wrap(event.text if "event" in shown else "", width - head)):
        rows.append(Row((" " * head, "text"), (line, style)) if index else first.add(line, style))
    if data:
        facts = {"kind": event.kind, "level": event.level, "number": event.seq, **event.data}
        for name, value in facts.items():
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for line in wrap(f"{name}: {text}", width - head):
                rows.append(Row((" " * head, "text"), (line, "dim")))
    return rows


def visit_row(visit: Visit, told: str) -> Row:
    """The row between the events that the user may have seen and those that are new. ``told``: what these are."""
    when = time.strftime("%H:%M:%S", time.localtime(visit.at))
    return Row((f" ── you left at {when}; since then: {told and f'{told} '}──", "warn"))


class EventList(RowsPane):
    """The events that the filter and the level let through. With ``following`` the cursor is on the newest one, as long
    as the newest is the last one. ``_at`` and ``_top`` are indices into ``_shown``.

    ``older`` is called when events before the first known one are needed, with True for all of them; the answer comes
    by ``take_older``. A row says where the user's last ``visit`` ended and what has happened since (``told``); with
    ``fresh`` the list begins there, if not all that is new fits.
    """

    scope = "events"
    title = "Events"
    list_name = "events"
    own_orders = ("newest last",)
    BINDINGS = bindings("events")

    def __init__(
        self,
        older: Callable[[bool], None],
        *,
        visit: Visit | None = None,
        told: str = "",
        fresh: bool = False,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._visit, self._told = visit, told
        self._to_visit = fresh and visit is not None  # the place where the visit ended is not shown yet
        self._older = older
        self._known: list[Event] = []  # all events that were loaded, by number
        self._newest: Sequence[Event] = ()  # the argument of the last ``take``
        self._shown: list[Event] = []  # those of ``_known`` that pass the filter
        self._to_first = False  # put the cursor on the first event when the list is arranged next
        self._rows_of: list[int] = []  # for each row below the title, the index of its event in ``_shown``
        self._open: set[int] = set()  # numbers of events whose data are shown
        self._fill = False  # draw as many events above the cursor as fit, whatever ``_top`` is
        self.least: Level = "info"  # the lowest level that is shown
        self.following = True
        self.complete = False  # whether the oldest event of the run is loaded
        self.reading = False  # whether older events are being read

    # -- new and older events

    def tell(self, told: str) -> None:
        """What has happened since the last visit, as of now; drawn with the next drawing."""
        if told != self._told:
            self._told = told
            self.update()

    @property
    def first_known(self) -> int | None:
        """The number of the oldest loaded event; None before the first one."""
        return self._known[0].seq if self._known else None

    def take(self, newest: Sequence[Event]) -> None:
        """Add the new ones of ``newest``, the newest events of a view. If events between them and the loaded ones are
        missing, the loaded ones are dropped and read again when they are needed."""
        if newest is self._newest:
            return
        self._newest = newest
        last = self._known[-1].seq if self._known else 0
        if newest and newest[0].seq > last + 1:
            self._known, self._shown, last = [], [], 0
            self.complete = newest[0].seq <= 1
        fresh = [e for e in newest if e.seq > last]
        self._known += fresh
        if self.sorting is not None and fresh:
            self.rearrange()
            return
        self._shown += [e for e in fresh if fits(e, self.least, self.prompt.text)]
        self._seek_visit()
        self.update()

    def take_older(self, older: Sequence[Event], complete: bool) -> None:
        """Add events from before the first loaded one. ``complete``: there are no older ones."""
        self.reading, self.complete = False, complete
        first = self.first_known
        older = [e for e in older if first is None or e.seq < first]
        self._known = [*older, *self._known]
        self._seek_visit()
        self.rearrange()

    def _seek_visit(self) -> None:
        """Request the events back to the last visit, where the list is to begin."""
        first = self.first_known
        if self._to_visit and self._visit is not None and first is not None and first > self._visit.seq + 1:
            self._want_older()

    def rearrange(self) -> None:
        """Apply filter, level and order again. The cursor stays on its event, or moves to the next one."""
        seq = self._shown[self._at].seq if self._at < len(self._shown) else 0
        self._shown = [e for e in self._known if fits(e, self.least, self.prompt.text)]
        self.arrangement.forget_others(map(_key, self._known) if self.arrangement.marks else ())
        column, order = self.sorting, self.arrangement.order
        if column is not None and column.value is not None and order is not None:
            self._shown = in_order(self._shown, column.value, order.descending)
            self._at = next((i for i, e in enumerate(self._shown) if e.seq == seq), self._at)
        else:
            self._at = bisect_left(self._shown, seq, key=lambda e: e.seq)
        if self._to_first:
            self._at, self._to_first, self.following = 0, False, column is None
        self._top = self._at  # with ``_fill``, drawing shows as many events above it as fit
        self._fill = True
        if self._narrow and len(self._shown) < self.content_size.height:
            self._want_older()
        self.update()

    # -- the list

    def items(self) -> Sequence[str]:
        """The numbers of the loaded events."""
        return list(map(_key, self._known))

    def keys(self) -> Sequence[str]:
        """The numbers of the events that the filter and the level let through."""
        return list(map(_key, self._shown))

    def columns(self) -> tuple[Column, ...]:
        """All columns."""
        return COLUMNS

    def item(self, key: str) -> Event:
        """The event with a number."""
        return self._known[bisect_left(self._known, int(key), key=lambda e: e.seq)]

    def words(self, key: str) -> str:
        """Service, kind and text."""
        event = self.item(key)
        return f"{event.service or 'run'} {event.kind} {event.text}"

    def head(self, width: int) -> Row | None:
        """None: an event may have several lines."""
        return None

    @property
    def marked_services(self) -> list[str] | None:
        """None: an event is no service."""
        return None

    @property
    def cursor(self) -> str | None:
        """The number of the event under the cursor; None in an empty list."""
        return _key(self._shown[self._at]) if self._shown else None

    def to_top(self) -> None:
        """See ``RowsPane.to_top``; in the list's own order the newest event is followed."""
        self._to_first = True

    @property
    def more_to_clear(self) -> bool:
        """Whether a level hides events that are shown by default."""
        return self.least in _NARROW

    def clear_more(self) -> None:
        """Show the default levels."""
        self.least = "info"
        self.rearrange()

    # -- drawing

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """Title and the events around the cursor; the newest ones while following."""
        room = max(1, height - 1)
        shown = self._shown
        newest = max(0, len(shown) - 1)
        self.following = self.following and self.sorting is None
        if self._to_visit:
            self._begin_at_visit(width, room)
        self._at = newest if self.following else max(0, min(self._at, newest))
        rows = [self.title_row(width, self.title_facts()[0], "warn" if self.prompt.text else "dim")]
        self._rows_of = []
        if not shown:
            return [*rows, Row((" no events yet" if not self._known else " no event matches", "dim"))]
        for index, block in self._blocks(width, room):
            for row in block:
                row.cursor = index == self._at and self.has_focus
                rows.append(row)
                self._rows_of.append(index)
        return rows

    def _begin_at_visit(self, width: int, room: int) -> None:
        """Put the first event after the last visit at the top, once it is known and if not all that follow it fit."""
        first = self.first_known
        assert self._visit is not None
        if self.reading or first is None:
            return
        self._to_visit = False
        index = bisect_left(self._shown, self._visit.seq + 1, key=lambda e: e.seq)
        rows = 0
        for place in range(index, len(self._shown)):
            rows += len(self._block(place, width))
            if rows > room:
                self._at = self._top = index
                self.following = self._fill = False
                return

    def _blocks(self, width: int, room: int) -> list[tuple[int, list[Row]]]:
        """(index, rows) of each visible event, the one under the cursor among them, in ``room`` rows at most."""
        cursor = self._block(self._at, width)
        above: list[tuple[int, list[Row]]] = []
        free = room - len(cursor)
        index = self._at - 1
        stop = -1 if self.following or self._fill else self._top - 1
        while index > stop and index >= 0 and free > 0:
            block = self._block(index, width)
            free -= len(block)
            above.append((index, block))
            index -= 1
        above.reverse()
        if free < 0 and above:  # the beginning of the first event is above the edge
            at, block = above[0]
            above[0] = (at, block[-free:])
        blocks = [*above, (self._at, cursor[:room])]
        self._top, self._fill = blocks[0][0], False
        index = self._at + 1
        while free > 0 and index < len(self._shown):
            block = self._block(index, width)[:free]
            free -= len(block)
            blocks.append((index, block))
            index += 1
        return blocks

    def _block(self, index: int, width: int) -> list[Row]:
        event = self._shown[index]
        day = index == 0 or _day(self._shown[index - 1]) != _day(event)
        parts = {column.name for column in COLUMNS if self.arrangement.shows(column)}
        opened = event.seq in self._open
        block = event_rows(event, width - self.gutter_width, day=day, data=opened, shown=parts)
        block = self.signed(_key(event), block)
        if self._visit is None or not self._begins_after_visit(index):
            return block
        return [visit_row(self._visit, self._told), *block]

    def _begins_after_visit(self, index: int) -> bool:
        """Whether the event is the first one after the last visit; False where the list is in another order."""
        if self._visit is None or self.sorting is not None:
            return False
        seq = self._visit.seq
        before = self._shown[index - 1].seq if index else 0 if self.complete else seq + 1
        return before <= seq < self._shown[index].seq

    def filtered_words(self) -> str:
        """Nothing: ``facts`` say how many events are listed."""
        return ""

    def facts(self) -> tuple[str, str]:
        """Level, place, and whether the newest event is followed."""
        parts = [_LEVEL_WORDS[self.least]]
        if self._shown:
            of = f" (of {len(self._known)} known)" if self._narrow else ""
            number = len(self._shown) if self.following else self._at + 1
            parts.append(f"{number} of {len(self._shown)}{of}")
        follows = find("events", "follow").mention
        parts.append("following" if self.following else f"not following ({follows} follows)")
        if self.reading:
            parts.append("reading older events ...")
        elif not self.complete and not self.following and self._at == 0:
            parts.append(f"{find('events', 'older').mention} loads older events")
        return FACTS_GAP.join(parts), "dim"

    # -- moving

    def _go(self, index: int) -> None:
        """Move the cursor. Beyond the first event older ones are read; on the last one following begins."""
        if self.sorting is None and (index < 0 or (index == 0 and self._at == 0)):
            self._want_older()
        self._at = max(0, min(index, len(self._shown) - 1))
        self._top = min(self._top, self._at)
        self.following = self.sorting is None and self._at >= len(self._shown) - 1
        self.update()

    def _want_older(self, everything: bool = False) -> None:
        """Request older events; all of them if a filter or a level hides some."""
        if not self.complete and not self.reading:
            self.reading = True
            self._older(everything or bool(self.prompt.text) or self.least != "debug")

    def action_move(self, by: int) -> None:
        """Move the cursor by ``by`` events."""
        self._go(self._at + by)

    def select(self, key: str) -> None:
        """Move the cursor to the event with a number, if it is listed."""
        self._go(next((i for i, e in enumerate(self._shown) if _key(e) == key), self._at))

    def action_page(self, by: int) -> None:
        """Move the cursor by the number of visible events less one; on the first event, request older ones."""
        visible = len(set(self._rows_of)) or 1
        self._go(max(0, self._at + by * max(1, visible - 1)) if self._at else self._at + by)

    def action_first(self) -> None:
        """Go to the first loaded event; if the cursor is there already, request older ones."""
        self._go(0)

    def action_last(self) -> None:
        """Go to the newest event and follow."""
        self._go(len(self._shown) - 1)

    def row_at(self, x: int, y: int) -> int | None:
        """See ``CursorList.row_at``."""
        return self._rows_of[y - 1] if 1 <= y <= len(self._rows_of) else None

    def open_row(self) -> None:
        """Show or hide the data of the event."""
        self.action_data()

    # -- what keys do

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: an event is listed."""
        return "no event is listed" if action == "data" and not self._shown else ""

    def action_follow(self) -> None:
        """Follow the newest event, which is last in the list's own order, or stop following."""
        if self.sorting is not None:
            self.sort_by(self.own_orders[0])
            return
        self.following = not self.following
        self.update()

    def action_level(self) -> None:
        """Raise the lowest level that is shown by one; after errors, show all levels."""
        self.least = LEVELS[(LEVELS.index(self.least) + 1) % len(LEVELS)]
        self.rearrange()

    def action_data(self) -> None:
        """Show or hide the data of the event under the cursor."""
        if self._shown:
            self._open ^= {self._shown[self._at].seq}
            self.update()

    def action_older(self) -> None:
        """Load all older events."""
        self._want_older(everything=True)
        self.update()

    @property
    def _narrow(self) -> bool:
        """Whether a filter or a level hides events that are shown by default."""
        return bool(self.prompt.text) or self.least in _NARROW

    # -- copying

    def copy_row(self, key: str) -> str:
        """An event as one line."""
        return event_line(self.item(key))

    def copy_all(self) -> str:
        """All loaded events that pass the filter, also those that are not visible, one line each."""
        return "\n".join(event_line(e) for e in self._shown)


def _key(event: Event) -> str:
    """The name of the row of an event."""
    return str(event.seq)


def _day(event: Event) -> tuple[int, int]:
    when = time.localtime(event.at)
    return when.tm_year, when.tm_yday
