"""A list in which one row is selected: drawing, scrolling, the keys that move the cursor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from textual import events

from liverl_tui.keys.bindings import moves
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.pane import WHEEL, Pane

if TYPE_CHECKING:
    from textual.binding import BindingType

MOVES: list[BindingType] = moves("move(-1)", "move(1)", "page(-1)", "page(1)", "first", "last")


class CursorList(Pane):
    """A list in which one row is selected, without keys that arrange it. Subclasses implement ``keys()`` (stable names
    of the rows, in order), ``row(key, width)`` and ``head(width)``. The cursor stays on its row when rows are added or
    removed."""

    BINDINGS = MOVES

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._cursor: str | None = None
        self._at = 0  # index of the selected row
        self._top = 0  # index of the first visible row

    # -- for subclasses

    def keys(self) -> Sequence[str]:
        """The names of the rows, in order. A name must stay the same while its row exists."""
        raise NotImplementedError

    def facts(self) -> tuple[str, str]:
        """The text beside the title and the name of its style."""
        return "", "dim"

    def head(self, width: int) -> Row | None:
        """The row of column heads; None for a list without them."""
        return None

    def row(self, key: str, width: int) -> Row:
        """The row of the item ``key``, in ``width`` columns."""
        raise NotImplementedError

    def empty(self, width: int) -> Iterable[Row]:
        """The rows to show when the list is empty."""
        return ()

    # -- drawing

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """Title, column heads (in more than 3 lines), and as many rows as fit, with the selected one among them."""
        keys = self.keys()
        facts, style = self.title_facts()
        self._settle(keys)
        head = self.head_line(width) if height > 3 else None
        room = height - 1 - (head is not None)
        window = None
        if room < len(keys):
            window = self._scroll(len(keys), room)
        else:
            self._top = 0
        rows = [self.title_row(width, self.title_words(width, facts, window, len(keys)), style)]
        if not keys:
            return [*rows, *self.empty_rows(width)]
        if head is not None:
            rows.append(head)
        for key in keys[self._top : self._top + max(0, room)]:
            row = self.drawn_line(key, width)
            row.cursor = key == self._cursor and self.has_focus
            rows.append(row)
        return rows

    def title_facts(self) -> tuple[str, str]:
        """``facts`` and what else the title says."""
        return self.facts()

    def empty_rows(self, width: int) -> Iterable[Row]:
        """``empty``, or why no row is listed."""
        return self.empty(width)

    def head_line(self, width: int) -> Row | None:
        """``head`` as it is drawn."""
        return self.head(width)

    def line(self, key: str, width: int) -> Row:
        """``row`` as it is drawn."""
        return self.row(key, width)

    def drawn_line(self, key: str, width: int) -> Row:
        """``line``, to which a cursor may be added."""
        return self.line(key, width)

    def title_words(self, width: int, facts: str, window: tuple[int, int] | None, total: int) -> str:
        """``facts`` and, if not all rows are visible, which ones: ``3-12 of 40``. ``window``: (number of rows above,
        number of the last visible row)."""
        return facts if window is None else f"{facts}  {window[0] + 1}-{window[1]} of {total}".strip()

    def _settle(self, keys: Sequence[str]) -> None:
        """Keep the cursor on its row or, if that row was removed, at its index."""
        if not keys:
            self._cursor, self._at = None, 0
            return
        try:
            self._at = keys.index(self._cursor) if self._cursor is not None else 0
        except ValueError:
            self._at = min(self._at, len(keys) - 1)
        self._cursor = keys[self._at]

    def _scroll(self, total: int, room: int) -> tuple[int, int]:
        """Scroll to the cursor; the ``window`` of ``title_words``."""
        room = max(1, room)
        self._top = max(min(self._top, self._at, total - room), self._at - room + 1, 0)
        return self._top, min(total, self._top + room)

    # -- the cursor

    def moved(self) -> None:
        """Called when the user has moved the cursor, also if it stays on its row. Does nothing here."""

    @property
    def cursor(self) -> str | None:
        """The name of the selected row; None in an empty list."""
        self._settle(self.keys())
        return self._cursor

    def select(self, key: str) -> None:
        """Move the cursor to the row ``key``."""
        self._cursor = key
        self.update()
        self.moved()

    def _go(self, index: int) -> None:
        keys = self.keys()
        if keys:
            self._at = max(0, min(len(keys) - 1, index))
            self._cursor = keys[self._at]
            self.update()
            self.moved()

    def action_move(self, by: int) -> None:
        """Move the cursor by ``by`` rows, not beyond the ends of the list."""
        self._settle(self.keys())
        self._go(self._at + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by ``by`` pages."""
        self.action_move(by * max(1, self.content_size.height - 3))

    def action_first(self) -> None:
        """Move the cursor to the first row."""
        self._go(0)

    def action_last(self) -> None:
        """Move the cursor to the last row."""
        self._go(len(self.keys()) - 1)

    def wheel(self, by: int) -> None:
        """Move the cursor by ``WHEEL`` rows."""
        self.action_move(WHEEL * by)

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked row; a double click opens it (``action_select``)."""
        index = self.row_at(event.x, event.y)
        if index is not None:
            self._go(index)
            if event.chain == 2:
                self.open_row()

    def row_at(self, x: int, y: int) -> int | None:
        """The index of the row at a position in the pane, beyond the last one if none is there; None above the first
        one."""
        head = self.head_rows
        return self._top + y - head if y >= head else None

    @property
    def head_rows(self) -> int:
        """Lines above the first row of the list: the title, and the column heads if they are shown."""
        return 1 + (self.content_size.height > 3 and self.head(self.content_size.width) is not None)

    def open_row(self) -> None:
        """Called by a double click on a row: do what Enter does."""
        self.call_next(self.run_action, "select")

    def copy_line(self) -> str:
        """The selected row as it is shown, without blanks at its ends."""
        key = self.cursor
        return self.row(key, self.content_size.width).text.strip() if key is not None else ""
