"""The base of every pane: rows of styled text that send only the cells which changed.

Textual re-sends a dirty region whole. A pane therefore keeps what it has drawn, compares the new rows with it
cell by cell, and asks for the regions that differ (``refresh(*regions)``). Measured on a dashboard at 200x50
and 2 Hz, this costs a thirtieth of the bytes of a ``DataTable`` with ``Sparkline`` widgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from liverl_tui.themes import DARK, Palette

if TYPE_CHECKING:
    from liverl_tui.view import View

Span = tuple[str, str | Style]  # text without control characters, and the name of a style (or a style)
GAP = 12  # columns: a shorter run of unchanged cells costs less to send again than to jump over


class Row:
    """One line of a pane. ``cursor``: it is the selected one."""

    __slots__ = ("cursor", "spans")

    def __init__(self, *spans: Span, cursor: bool = False) -> None:
        self.spans = list(spans)
        self.cursor = cursor

    def add(self, text: str, style: str | Style = "text", width: int | None = None, align: str = "<") -> Row:
        """Append text; with ``width`` (columns) it is cut or padded to exactly that."""
        self.spans.append((text if width is None else fit(text, width, align), style))
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and self.cursor == other.cursor and self.spans == other.spans

    __hash__ = None  # type: ignore[assignment]

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.spans)


def fit(text: str, width: int, align: str = "<") -> str:
    """``text`` in exactly ``width`` columns: padded, or cut with ``…``."""
    if width <= 0:
        return ""
    columns = len(text) if text.isascii() else cell_len(text)
    if columns > width:
        kept, used = [], 0
        for character in text:
            used += get_character_cell_size(character)
            if used > width - 1:
                break
            kept.append(character)
        text = "".join(kept) + "…"
        columns = cell_len(text)
    blank = " " * (width - columns)
    if align == ">":
        return blank + text
    if align == "^":
        half = len(blank) // 2
        return blank[:half] + text + blank[half:]
    return text + blank


def draw(row: Row, width: int, palette: Palette) -> Strip:
    """A row as exactly ``width`` columns."""
    segments, used = [], 0
    for text, style in row.spans:
        columns = len(text) if text.isascii() else cell_len(text)
        if used + columns > width:
            text = fit(text, width - used)
            columns = width - used
        if columns > 0:
            resolved = palette[style] if isinstance(style, str) else palette.background + style
            segments.append(Segment(text, palette.under_cursor(resolved) if row.cursor else resolved))
            used += columns
        if used >= width:
            break
    if used < width:
        rest = palette["text"]
        segments.append(Segment(" " * (width - used), palette.under_cursor(rest) if row.cursor else rest))
    return Strip(segments, width)


def _cells(strip: Strip) -> list[tuple[str, Style | None]]:
    """One entry per column; the second column of a wide character is empty."""
    cells: list[tuple[str, Style | None]] = []
    for text, style, _ in strip:
        if text.isascii():
            cells += [(character, style) for character in text]
            continue
        for character in text:
            columns = get_character_cell_size(character)
            if columns == 0 and cells:  # it belongs to the character before it
                cells[-1] = (cells[-1][0] + character, cells[-1][1])
            elif columns:
                cells.append((character, style))
                cells += [("", style)] * (columns - 1)
    return cells


def changes(before: Strip, after: Strip) -> list[tuple[int, int]]:
    """Where two lines of the same width differ: (column, columns), runs that are close together joined."""
    old, new = _cells(before), _cells(after)
    if len(old) != len(new):
        return [(0, max(len(old), len(new)))]
    runs: list[tuple[int, int]] = []
    for column, (a, b) in enumerate(zip(old, new, strict=True)):
        if a != b:
            if runs and column - runs[-1][1] <= GAP:
                runs[-1] = (runs[-1][0], column + 1)
            else:
                runs.append((column, column + 1))
    wide = []
    for start, end in runs:
        while start and new[start][0] == "":  # never begin or end inside a wide character
            start -= 1
        while end < len(new) and (new[end][0] == "" or old[end][0] == ""):
            end += 1
        wide.append((start, end - start))
    return wide


class CellPanel(Widget):
    """A widget of rows. Subclasses implement ``compose_rows`` and call ``update`` when what they show changed."""

    DEFAULT_CSS = "CellPanel { background: transparent; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._strips: list[Strip] = []
        self._rows: list[Row] = []
        self._drawn: tuple[Size, str] | None = None

    @property
    def palette(self) -> Palette:
        return getattr(self.app, "palette", DARK)

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The rows for a content area of ``width`` x ``height`` cells; more than ``height`` are cut off."""
        raise NotImplementedError

    def show(self, view: View) -> None:
        """Take what is new. Panes that show facts of the run override this."""

    def update(self) -> None:
        """Draw again what differs from what is on the screen."""
        size = self.content_size
        if not size.width or not size.height or not self.is_attached:
            return
        palette = self.palette
        rows = list(self.compose_rows(size.width, size.height))[: size.height]
        rows += [Row()] * (size.height - len(rows))
        if self._drawn != (size, palette.name):
            self._drawn = (size, palette.name)
            self._rows = rows
            self._strips = [draw(row, size.width, palette) for row in rows]
            self.refresh()
            return
        dirty: list[Region] = []
        left, top = self.gutter.left, self.gutter.top
        for y, row in enumerate(rows):
            if row == self._rows[y]:
                continue
            strip = draw(row, size.width, palette)
            dirty += [Region(left + x, top + y, w, 1) for x, w in changes(self._strips[y], strip)]
            self._strips[y] = strip
        self._rows = rows
        if dirty:
            self.refresh(*dirty)

    @property
    def rows(self) -> Sequence[Row]:
        """What is on the screen."""
        return self._rows

    @property
    def text(self) -> str:
        """What is on the screen, as text."""
        return "\n".join(row.text.rstrip() for row in self._rows)

    def render_line(self, y: int) -> Strip:
        if y < len(self._strips):
            return self._strips[y]
        return draw(Row(), self.content_size.width, self.palette)

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def on_resize(self, _event: events.Resize) -> None:
        self.update()

    def on_show(self) -> None:
        self.update()
