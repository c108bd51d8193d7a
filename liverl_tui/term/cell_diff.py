"""Send only the cells that changed.

Textual's partial update sends each changed region from the left edge of its widget on, and every piece of text with
its whole style before it and a reset after it. One new digit at the end of a line of 120 columns then costs the whole
line. Here only the changed region is sent, and only the part of a style that differs from the text before. Measured
on the dashboard at 200x50 with new numbers in every row twice a second: a fifth of the bytes.

Textual also renders all lines of every widget on the screen, also of covered ones. Here only lines with a changed
cell are rendered, and only of the widgets that are visible there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip

from liverl_tui.term.private import CompositorUpdate, LayoutUpdate, SpanCompositor
from liverl_tui.text.columns import columns_of, is_narrow


class _Codes(NamedTuple):
    """The SGR codes of one style: ``39`` and ``49`` are the terminal's default colours."""

    attributes: tuple[str, ...]
    foreground: str
    background: str


@lru_cache(maxsize=1024)
def _parse(codes: str) -> _Codes:
    """Split SGR codes such as ``1;38;2;255;0;0;49`` into attributes, foreground and background."""
    attributes, foreground, background = [], "39", "49"
    rest = codes.split(";") if codes else []
    while rest:
        code = rest.pop(0)
        if code in ("38", "48"):
            size = 4 if rest and rest[0] == "2" else 2
            colour = ";".join((code, *rest[:size]))
            rest = rest[size:]
            if code == "38":
                foreground = colour
            else:
                background = colour
        elif len(code) > 1 and code[:-1] in ("3", "9"):
            foreground = code
        elif len(code) > 1 and code[:-1] in ("4", "10"):
            background = code
        else:
            attributes.append(code)
    return _Codes(tuple(attributes), foreground, background)


@lru_cache(maxsize=4096)
def transition(before: str, after: str) -> str:
    """The shortest escape sequence that changes the style ``before`` to ``after``; '' if they are equal. Both are SGR
    codes, without ``ESC[`` and ``m``."""
    if before == after:
        return ""
    if not after:
        return "\x1b[0m"
    old, new = _parse(before), _parse(after)
    if old.attributes != new.attributes:
        return f"\x1b[0;{after}m"
    codes = [n for o, n in ((old.foreground, new.foreground), (old.background, new.background)) if o != n]
    return f"\x1b[{';'.join(codes)}m" if codes else ""


class Piece(NamedTuple):
    """The cells of screen line ``y`` from column ``left`` up to, not including, ``right``. ``strip`` begins at column
    ``origin``."""

    y: int
    left: int
    right: int
    origin: int
    strip: Strip


def _cut(text: str, start: int, end: int) -> str:
    """The columns of ``text`` from ``start`` to before ``end``; half of a wide character becomes a blank."""
    if is_narrow(text):
        return text[max(0, start) : end]
    segment = Segment(text)
    if end < cell_len(text):
        segment = segment.split_cells(end)[0]
    return segment.split_cells(start)[1].text if start > 0 else segment.text


class ExactUpdate(CompositorUpdate):
    """An update that draws ``pieces``, which are sorted from top to bottom and from left to right."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces

    def render_segments(self, console: Console) -> str:
        """The text to write to the terminal: cursor moves, style changes and the cells; at the end styles are off."""
        colours = COLOR_SYSTEMS.get(console.color_system or "", ColorSystem.TRUECOLOR)
        parts: list[str] = []
        style_now = ""
        cursor = (-1, -1)
        for y, left, right, origin, strip in self.pieces:
            if (y, left) != cursor:
                parts.append(f"\x1b[{y + 1};{left + 1}H")
            cursor = (y, right)
            end = origin
            for text, style, _ in strip:
                start, end = end, end + (len(text) if text.isascii() else columns_of(text))
                if end <= left:
                    continue
                if start >= right:
                    break
                if start < left or end > right:
                    text = _cut(text, left - start, right - start)
                if style is not None and style.link:
                    parts += [transition(style_now, ""), style.render(text, color_system=colours)]
                    style_now = ""
                    continue
                codes = "" if style is None else Strip.render_ansi(style, colours)
                parts += [transition(style_now, codes), text]
                style_now = codes
        parts.append(transition(style_now, ""))
        return "".join(parts)


class WholeUpdate(LayoutUpdate):
    """An update that draws everything, with no more of each style than differs from the one before it: of the dashboard
    half of the bytes."""

    def render_segments(self, console: Console) -> str:
        """The text to write to the terminal, as that of ``ExactUpdate``."""
        pieces: list[Piece] = []
        for y, line in enumerate(self.strips, self.region.y):
            x = self.region.x
            for strip in line:
                pieces.append(Piece(y, x, x + strip.cell_length, x, strip))
                x += strip.cell_length
        return ExactUpdate(pieces).render_segments(console)


def _runs(lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as (first, how many) of each run without a gap."""
    first = 0
    for index in range(1, len(lines) + 1):
        if index == len(lines) or lines[index] != lines[index - 1] + 1:
            yield lines[first], index - first
            first = index


class ExactCompositor(SpanCompositor):
    """Replaces a screen's own compositor (``WithCompositor.use_compositor``)."""

    def render_full_update(self, simplify: bool = False) -> WholeUpdate:
        """All cells of the screen. ``simplify``: join texts of one style, and leave out what only Textual reads."""
        self.take_dirty()
        strips = self.lines(range(self.size.height))
        if simplify:
            strips = [strip.simplify().discard_meta() for strip in strips]
        return WholeUpdate([[strip] for strip in strips], self.size.region)

    def render_partial_update(self) -> ExactUpdate | None:  # type: ignore[override]  # Textual only renders it
        """The cells that changed since the last call; None if there are none."""
        dirty = self.take_dirty()
        return ExactUpdate(self._pieces(dirty)) if dirty else None

    def lines(self, rows: Iterable[int]) -> list[Strip]:
        """What is visible in each of these lines, over the whole width of the screen."""
        rows = list(rows)
        width = self.size.width
        parts: dict[int, list[Strip]] = {y: [] for y in rows}
        for y, left, right, origin, strip in self._pieces({Region(0, y, width, 1) for y in rows}):
            parts[y].append(strip.crop(left - origin, right - origin))
        return [Strip.join(parts[y]).adjust_cell_length(width) for y in rows]

    def _pieces(self, dirty: set[Region]) -> list[Piece]:
        """What is visible in these regions: at each cell the frontmost widget."""
        width, height = self.size
        uncovered: dict[int, list[tuple[int, int]]] = {}  # line -> column ranges without a widget so far
        for y, start, end in self.spans(dirty):
            start, end = max(0, start), min(width, end)
            if 0 <= y < height and start < end:
                uncovered.setdefault(y, []).append((start, end))
        pieces: list[Piece] = []
        for widget, (region, clip) in self.visible_widgets.items():  # the frontmost first
            x, top, columns, rows = region.intersection(clip)
            lines = [
                y
                for y in range(top, top + rows)
                if y in uncovered and any(start < x + columns and end > x for start, end in uncovered[y])
            ]
            if not lines:
                continue
            strips: list[Strip] = []
            for first, count in _runs(lines):
                strips += widget.render_lines(Region(x - region.x, first - region.y, columns, count))
            for y, strip in zip(lines, strips, strict=True):
                stop = x + min(columns, strip.cell_length)
                remaining: list[tuple[int, int]] = []
                for start, end in uncovered.pop(y):
                    left, right = max(start, x), min(end, stop)
                    if left >= right:
                        remaining.append((start, end))
                        continue
                    pieces.append(Piece(y, left, right, x, strip))
                    if start < left:
                        remaining.append((start, left))
                    if right < end:
                        remaining.append((right, end))
                if remaining:
                    uncovered[y] = remaining
            if not uncovered:
                break
        return sorted(pieces, key=lambda piece: piece[:2])
