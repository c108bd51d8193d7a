"""Panes: a base with a title row, and one with column heads and a list in which one row is selected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events

from liverl_tui.keys.bindings import Scope, moves
from liverl_tui.widgets.base.cells import CellPanel, Row, fit

if TYPE_CHECKING:
    from textual.binding import BindingType

MOVES: list[BindingType] = moves("move(-1)", "move(1)", "page(-1)", "page(1)", "first", "last")

WHEEL = 3  # rows per step of the mouse wheel


class Pane(CellPanel, can_focus=True):
    """A focusable panel whose first row is its title. The title is highlighted while the pane has the focus, which
    costs fewer bytes than a border."""

    scope: ClassVar[Scope]
    title: ClassVar[str]
    number: ClassVar[str] = ""  # the key that jumps here

    def title_row(self, width: int, facts: str = "", style: str = "dim") -> Row:
        """The first row, in ``width`` columns: ``1 GPUs  facts ─────``. ``style``: that of ``facts``."""
        name = f" {self.number} {self.title} " if self.number else f" {self.title} "
        row = Row((name, "title_focus" if self.has_focus else "title"))
        used = len(name)
        if facts:
            text = fit(facts, min(len(facts), max(0, width - used - 2)))
            row.add(" ").add(text, style).add(" ")
            used += len(text) + 2
        return row.add("─" * max(0, width - used), "rule")

    def watch_has_focus(self, has_focus: bool) -> None:
        """Highlight the title and the cursor, or stop."""
        # Not in on_focus and on_blur: they run before Textual sets has_focus.
        super().watch_has_focus(has_focus)
        self.update()

    def wheel(self, by: int) -> None:
        """Called for each step of the mouse wheel: ``by`` is 1 downwards, -1 upwards. Does nothing here."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Call ``wheel(1)``; no parent scrolls."""
        event.stop()
        self.wheel(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Call ``wheel(-1)``; no parent scrolls."""
        event.stop()
        self.wheel(-1)

    def copy_line(self) -> str:
        """The text that the key `copy` copies; empty if there is none."""
        return ""

    def copy_all(self) -> str:
        """The text that the key `copy all` copies: what the pane shows, unless a subclass gives more."""
        return self.text


class RowsPane(Pane):
    """A pane with a list. Subclasses implement ``keys()`` (stable names of the rows, in order), ``row(key, width)``
    and ``head(width)``. The cursor stays on its row when rows are added or removed."""

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
        facts, style = self.facts()
        self._settle(keys)
        head = self.head(width) if height > 3 else None
        room = height - 1 - (head is not None)
        window = None
        if room < len(keys):
            window = self._scroll(len(keys), room)
        else:
            self._top = 0
        rows = [self.title_row(width, self.title_words(width, facts, window, len(keys)), style)]
        if not keys:
            return [*rows, *self.empty(width)]
        if head is not None:
            rows.append(head)
        for key in keys[self._top : self._top + max(0, room)]:
            row = self.row(key, width)
            row.cursor = key == self._cursor and self.has_focus
            rows.append(row)
        return rows

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
        head = 1 + (self.content_size.height > 3 and self.head(self.content_size.width) is not None)
        if event.y >= head:
            self._go(self._top + event.y - head)
            if event.chain == 2:
                self.call_next(self.run_action, "select")

    def copy_line(self) -> str:
        """The selected row as it is shown, without blanks at its ends."""
        key = self.cursor
        return self.row(key, self.content_size.width).text.strip() if key is not None else ""
