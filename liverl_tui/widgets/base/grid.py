"""A pane with a list that shows several items side by side where there are too few lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding

from liverl_tui.keys.bindings import moves
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.rows import RowsPane

if TYPE_CHECKING:
    from textual.binding import BindingType

_MOVES: list[BindingType] = [
    *moves("move_line(-1)", "move_line(1)", "page(-1)", "page(1)", "first", "last"),
    Binding("left", "move(-1)", show=False),
    Binding("right", "move(1)", show=False),
]


class GridPane(RowsPane, inherit_bindings=True):
    """A list that shows one item per line while the lines suffice; otherwise several cells per line, as few as
    possible. Column heads stand above where there is a line for them. Items that still do not fit are scrolled."""

    BINDINGS = _MOVES
    narrowest: ClassVar[int] = 20  # columns: the least width of a cell

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._per_line = 1
        self._first_line = 1  # the pane's first line with items
        self._head_of_table = False  # whether the heads of a table are shown

    # -- for subclasses

    def lead(self, width: int, table: bool) -> Sequence[Row]:
        """Rows above the items. ``table``: they stand below the column heads, as lines of the table; else above the
        heads of cells. Both forms have the same number of rows."""
        return ()

    def tail(self, width: int) -> Sequence[Row]:
        """Rows below the items."""
        return ()

    def cell(self, key: str, width: int) -> Row:
        """One item as a cell, in exactly ``width`` columns."""
        raise NotImplementedError

    def cell_head(self, width: int) -> Row:
        """The heads above a cell, in at most ``width`` columns."""
        raise NotImplementedError

    # -- drawing

    def compose_rows(self, width: int, height: int) -> Sequence[Row]:
        """Title, column heads, lead, items and tail. The title gives the visible range if the items are scrolled."""
        keys = self.keys()
        self._settle(keys)
        tail = list(self.tail(width))
        room = max(1, height - 1 - len(self.lead(width, True)) - len(tail))
        self._per_line = per_line = self._fewest(len(keys), room, width)
        lines = -(-len(keys) // per_line)
        head = None
        if keys and lines < room:
            head = self.head_line(width) if per_line == 1 else self._cell_heads(per_line, width)
            room -= head is not None
        lead = list(self.lead(width, per_line == 1))
        facts, style = self.title_facts()
        top = 0
        if lines > room:
            at = self._at // per_line
            top = max(min(self._top, at, lines - room), at - room + 1, 0)
            last = min(len(keys), (top + room) * per_line)
            facts = f"{facts}  {top * per_line + 1}-{last} of {len(keys)}".strip()
        self._top = top
        self._head_of_table = head is not None and per_line == 1
        heads = [head] if head is not None else []
        rows = [self.title_row(width, facts, style), *(heads + lead if per_line == 1 else lead + heads)]
        if not keys and (self.prompt.text or not lead):
            rows += self.empty_rows(width)
        self._first_line = len(rows)
        for line in range(top, min(lines, top + room)):
            shown = keys[line * per_line : (line + 1) * per_line]
            rows.append(
                self._line(shown, width // per_line) if per_line > 1 else self._whole(shown[0], width)
            )
        return [*rows, *tail]

    def _fewest(self, count: int, room: int, width: int) -> int:
        """How many of ``count`` items stand on a line if ``room`` lines are to hold all: as few as possible. Several
        cells leave a line for their heads, if all items fit below it."""
        if count <= room:
            return 1
        most = max(1, width // self.narrowest)
        below_heads = -(-count // max(1, room - 1))
        return below_heads if below_heads <= most and room > 1 else min(-(-count // room), most)

    def _cell_heads(self, per_line: int, width: int) -> Row:
        columns = width // per_line - 1 - self.gutter_width
        row = Row()
        for _ in range(per_line):
            row.add(" " * self.gutter_width, "head")
            row.add(self.cell_head(columns).text.rstrip(), "head", columns).add(" ", "head")
        return row

    def _whole(self, key: str, width: int) -> Row:
        row = self.drawn_line(key, width)
        row.cursor = key == self._cursor and self.has_focus
        return row

    def _line(self, keys: Sequence[str], width: int) -> Row:
        line = Row()
        for key in keys:
            spans = self.cell(key, width - 1 - self.gutter_width).spans
            if self.gutter_width:
                spans = [self.sign_of(key), *spans]
            if key == self._cursor and self.has_focus:
                palette = self.palette
                spans = [(t, palette.under_cursor(palette[s] if isinstance(s, str) else s)) for t, s in spans]
            line.spans += spans
            line.add(" ")
        return line

    # -- the cursor

    def action_move_line(self, by: int) -> None:
        """Move the cursor by ``by`` lines, within its column of cells."""
        self.action_move(by * self._per_line)

    def action_page(self, by: int) -> None:
        """Move the cursor by ``by`` pages of lines."""
        self.action_move_line(by * max(1, self.content_size.height - 3))

    @property
    def head_rows(self) -> int:
        """See ``CursorList.head_rows``: heads of cells are no heads of columns."""
        return 1 + self._head_of_table

    def row_at(self, x: int, y: int) -> int | None:
        """See ``CursorList.row_at``."""
        line = y - self._first_line
        if line < 0:
            return None
        across = min(self._per_line - 1, x * self._per_line // max(1, self.content_size.width))
        return (self._top + line) * self._per_line + across
