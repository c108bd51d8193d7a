"""The base of every pane: rows of styled text of which only the changed cells are sent.

Textual sends a dirty region whole. A pane therefore keeps the rows that it has drawn, compares the new ones with them
cell by cell, and refreshes only the regions that differ (``refresh(*regions)``). Measured on a dashboard at 200x50
and 2 Hz, this costs a thirtieth of the bytes of a ``DataTable`` with ``Sparkline`` widgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from liverl.util.visible import visible
from liverl_tui.text.columns import columns_of, is_narrow
from liverl_tui.text.themes import DARK, Palette

if TYPE_CHECKING:
    from liverl_tui.data.view import View

Span = tuple[str, str | Style]  # text, and the name of a style (or a style)
GAP = 12  # columns: a shorter run of unchanged cells costs fewer bytes to send again than to skip


class Row:
    """One line of a pane. ``cursor``: draw it as the row under the cursor."""

    __slots__ = ("cursor", "spans")

    def __init__(self, *spans: Span, cursor: bool = False) -> None:
        self.spans = list(spans)
        self.cursor = cursor

    def add(self, text: str, style: str | Style = "text", width: int | None = None, align: str = "<") -> Row:
        """Append text and return this row; with ``width`` (columns) it is cut or padded to exactly that. ``align``: see
        ``fit``."""
        self.spans.append((text if width is None else fit(text, width, align), style))
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and self.cursor == other.cursor and self.spans == other.spans

    __hash__ = None  # type: ignore[assignment]

    @property
    def text(self) -> str:
        """The row without styles, as it is shown."""
        return visible("".join(text for text, _ in self.spans))


def fit(text: str, width: int, align: str = "<") -> str:
    """``text`` in exactly ``width`` columns: cut with ``…``, or padded; control characters are made visible. ``align``:
    ``<`` left, ``>`` right, ``^`` centre."""
    if width <= 0:
        return ""
    text = visible(text)
    columns = columns_of(text)
    if columns > width and is_narrow(text):
        return text[: width - 1] + "…"
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


def with_below(rows: Iterable[Row], below: Sequence[Row], height: int) -> list[Row]:
    """``rows``, and ``below`` at the lower edge of ``height`` rows, if there is room between them."""
    above = list(rows)
    return [*above, *(Row() for _ in range(height - len(above) - len(below))), *below]


def draw(row: Row, width: int, palette: Palette) -> Strip:
    """A row as a strip of exactly ``width`` columns. Neighbouring texts in the same style become one segment. Control
    characters are made visible, wherever the text came from."""
    texts: list[str] = []
    styles: list[Style] = []
    used = 0
    for text, style in row.spans:
        if not text.isprintable():
            text = visible(text)
        columns = len(text) if text.isascii() else columns_of(text)
        if used + columns > width:
            text = fit(text, width - used)
            columns = width - used
        if columns > 0:
            resolved = palette[style] if isinstance(style, str) else palette["text"] + style
            if styles and styles[-1] is resolved:
                texts[-1] += text
            else:
                texts.append(text)
                styles.append(resolved)
            used += columns
        if used >= width:
            break
    if used < width:
        texts.append(" " * (width - used))
        styles.append(palette["text"])
    if row.cursor:
        styles = [palette.under_cursor(style) for style in styles]
    return Strip(map(Segment, texts, styles), width)


def _narrow(strip: Strip) -> bool:
    """Whether every character is one column wide, so that its index in the text is its column."""
    return is_narrow("".join([text for text, _, _ in strip]))


def _cells(strip: Strip) -> list[tuple[str, Style | None]]:
    """One entry per column; the second column of a wide character is empty."""
    cells: list[tuple[str, Style | None]] = []
    for text, style, _ in strip:
        for character in text:
            columns = get_character_cell_size(character)
            if columns == 0 and cells:  # a combining character: it shares the cell before it
                cells[-1] = (cells[-1][0] + character, cells[-1][1])
            elif columns:
                cells.append((character, style))
                cells += [("", style)] * (columns - 1)
    return cells


def changes(before: Strip, after: Strip) -> list[tuple[int, int]]:
    """Where two lines differ, as (first column, number of columns); runs less than ``GAP`` apart are joined. Lines of
    different widths differ everywhere."""
    if before.cell_length != after.cell_length:
        return [(0, max(before.cell_length, after.cell_length))]
    runs: list[tuple[int, int]] = []
    if _narrow(before) and _narrow(after):
        for start, end in _differences(before, after):
            _join(runs, start, end)
        return [(start, end - start) for start, end in runs]
    old, new = _cells(before), _cells(after)
    if len(old) != len(new):
        return [(0, max(len(old), len(new)))]
    for column, (a, b) in enumerate(zip(old, new, strict=True)):
        if a != b:
            _join(runs, column, column + 1)
    wide = []
    for start, end in runs:
        while start and new[start][0] == "":  # do not begin or end inside a wide character
            start -= 1
        while end < len(new) and (new[end][0] == "" or old[end][0] == ""):
            end += 1
        wide.append((start, end - start))
    return wide


def _join(runs: list[tuple[int, int]], start: int, end: int) -> None:
    if runs and start - runs[-1][1] <= GAP:
        runs[-1] = (runs[-1][0], end)
    else:
        runs.append((start, end))


def _differences(before: Strip, after: Strip) -> Iterator[tuple[int, int]]:
    """(first column, column after the last) of each difference. Every character must be one column wide."""
    old_parts, new_parts = (filter(itemgetter(0), strip) for strip in (before, after))  # without empty texts
    old = new = ""
    old_style = new_style = None
    column = 0
    while True:
        if not old:
            old, old_style, _ = next(old_parts, _NOTHING)
        if not new:
            new, new_style, _ = next(new_parts, _NOTHING)
        size = min(len(old), len(new))
        if not size:
            return
        if old_style is not new_style and old_style != new_style:
            yield column, column + size
        elif old[:size] != new[:size]:
            for index in range(size):
                if old[index] != new[index]:
                    yield column + index, column + index + 1
        old, new = old[size:], new[size:]
        column += size


_NOTHING = Segment("")


class CellPanel(Widget):
    """A widget of rows. Subclasses implement ``compose_rows`` and call ``update`` when their contents have changed."""

    DEFAULT_CSS = "CellPanel { background: transparent; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._strips: list[Strip] = []
        self._rows: list[Row] = []
        self._drawn: tuple[Size, str] | None = None
        self.changes_drawn = 0  # how often ``update`` has changed a cell
        self.is_behind = False  # ``update`` was called while nothing of the screen was to be seen

    @property
    def palette(self) -> Palette:
        """The styles of the app's theme; the dark theme in an app without one."""
        return getattr(self.app, "palette", DARK)

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The rows for a content area of ``width`` x ``height`` cells; more than ``height`` are cut off."""
        raise NotImplementedError

    def show(self, view: View) -> None:
        """Show a new view of the run. Called with each new view; does nothing here."""

    def update(self) -> None:
        """Compose the rows again and refresh the cells that changed; all cells after a change of size or theme. Does
        nothing while the widget is not mounted, has no size, or the app holds back painting, and while another screen
        covers its own, which draws it when it comes on top again."""
        size = self.content_size
        if not size.width or not size.height or not self.is_attached:
            return
        if getattr(self.app, "held", False):
            return  # ``update`` is called again before the first paint
        self.is_behind = not getattr(self.screen, "is_seen", True)
        if self.is_behind:
            return
        if (drawn := getattr(self.screen, "has_drawn", None)) is not None:
            drawn(self)
        palette = self.palette
        rows = list(self.compose_rows(size.width, size.height))[: size.height]
        rows += [Row()] * (size.height - len(rows))
        if self._drawn != (size, palette.name):
            self._drawn = (size, palette.name)
            self._rows = rows
            self._strips = [draw(row, size.width, palette) for row in rows]
            self.changes_drawn += 1
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
            self.changes_drawn += 1
            self.refresh(*dirty)

    @property
    def rows(self) -> Sequence[Row]:
        """The rows that were drawn last."""
        return self._rows

    @property
    def text(self) -> str:
        """The rows that were drawn last, as text without trailing blanks."""
        return "\n".join(row.text.rstrip() for row in self._rows)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The drawn lines within ``crop``, without the work that Textual does for borders, padding, tint and opacity,
        which is most of the time of a paint. A widget that has them is left to Textual."""
        if self.styles.gutter or self.opacity != 1.0:
            return super().render_lines(crop)
        width, blank = self.size.width, self.palette["text"]
        strips = [self.render_line(y).adjust_cell_length(width, blank) for y in crop.line_range]
        if filters := self.get_line_filters():
            _, background = self.background_colors
            for each in filters:
                strips = [strip.apply_filter(each, background) for strip in strips]
        left, right = crop.column_span
        return [strip.crop(left, right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """Line ``y`` as drawn last; blank below the rows."""
        if y < len(self._strips):
            return self._strips[y]
        return draw(Row(), self.content_size.width, self.palette)

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Take the full width of the container."""
        return container.width

    def on_resize(self, _event: events.Resize) -> None:
        """Draw again for the new size."""
        self.update()

    def on_show(self) -> None:
        """Draw when the widget becomes visible."""
        self.update()
