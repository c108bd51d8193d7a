"""Log lines as rows of the screen: colors kept, tabs expanded, hits marked, cut or wrapped to the width. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from rich.cells import cell_len, get_character_cell_size
from rich.color import Color
from rich.style import Style

from liverl.logs.ansi import PLAIN, Colour, TextStyle, runs
from liverl.model import Level
from liverl_tui.widgets.base.cells import Span

TAB = 8  # columns between two tab stops
HITS = 100  # marked in one line at most
LEVEL_STYLE: dict[Level | None, str] = {
    None: "text",
    "debug": "dim",
    "info": "text",
    "warning": "warn",
    "error": "bad",
}


def spans(text: str, level: Level | None, hits: re.Pattern[str] | None = None) -> list[Span]:
    """One line in full length, split by style. ``level`` styles what has no color of its own; ``hits``: a pattern
    whose first ``HITS`` matches are marked."""
    parts = runs(text)
    if hits is not None:
        parts = _cut_at(parts, _hits(hits, "".join(part for part, _ in parts)))
    base = LEVEL_STYLE[level]
    line: list[Span] = []
    column = 0
    for part, style in parts:
        if "\t" in part:
            part = _expand(part, column)
        column += len(part)
        line.append((part, base if style is PLAIN else "match" if style is _HIT else _style(style)))
    return line


_HIT = TextStyle(reverse=True, bold=True, underline=True)  # marks a hit; compared by identity, never drawn


def _hits(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    hits: list[tuple[int, int]] = []
    for match in pattern.finditer(text):
        if match.end() > match.start():
            hits.append(match.span())
            if len(hits) == HITS:
                break
    return hits


def _cut_at(parts: list[tuple[str, TextStyle]], hits: list[tuple[int, int]]) -> list[tuple[str, TextStyle]]:
    """The runs, split so that every hit is a run of its own. ``hits``: (start, end) in characters, ascending."""
    if not hits:
        return parts
    runs_of_line: list[tuple[str, TextStyle]] = []
    begin = 0
    for part, style in parts:
        end = begin + len(part)
        here = begin
        for first, last in hits:
            if last <= here or first >= end:
                continue
            if first > here:
                runs_of_line.append((part[here - begin : first - begin], style))
            here = max(here, first)
            runs_of_line.append((part[here - begin : min(last, end) - begin], _HIT))
            here = min(last, end)
        if here < end:
            runs_of_line.append((part[here - begin :], style))
        begin = end
    return runs_of_line


def _expand(text: str, column: int) -> str:
    pieces = text.split("\t")
    expanded = []
    for piece in pieces[:-1]:
        column += len(piece)
        blank = TAB - column % TAB
        expanded.append(piece + " " * blank)
        column += blank
    return "".join(expanded) + pieces[-1]


@lru_cache(maxsize=512)
def _style(style: TextStyle) -> Style:
    return Style(
        color=_colour(style.fg),
        bgcolor=_colour(style.bg),
        bold=style.bold or None,
        dim=style.dim or None,
        italic=style.italic or None,
        underline=style.underline or None,
        reverse=style.reverse or None,
    )


def _colour(colour: Colour) -> Color | None:
    if colour is None:
        return None
    return Color.from_ansi(colour) if isinstance(colour, int) else Color.from_rgb(*colour)


def width_of(text: str) -> int:
    """Columns of one line with color sequences, tabs expanded."""
    return sum(map(_columns, (part for part, _ in spans(text, None))))


def _columns(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def crop(line: Sequence[Span], begin: int, width: int) -> list[Span]:
    """The columns from ``begin`` on: ``width`` of them and one more if the line is longer, which tells the caller
    that something is missing. ASCII text is cut exactly, a wide character at the border is omitted."""
    cropped: list[Span] = []
    skip, room = begin, width + 1
    for text, style in line:
        columns = _columns(text)
        if skip >= columns:
            skip -= columns
            continue
        if skip:
            text, columns = _drop(text, skip), columns - skip
            skip = 0
        if text.isascii():
            text = text[:room]
        elif columns > room:
            text = _take(text, room)[0]
        cropped.append((text, style))
        room -= columns
        if room <= 0:
            break
    return cropped


def _drop(text: str, columns: int) -> str:
    """The text without its first columns; half a wide character becomes a blank."""
    if text.isascii():
        return text[columns:]
    for place, character in enumerate(text):
        if columns <= 0:
            return " " * -columns + text[place:]
        columns -= get_character_cell_size(character)
    return " " * -columns


def _take(text: str, columns: int) -> tuple[str, str]:
    """(the characters that fit into ``columns``, the rest)."""
    if text.isascii():
        return text[:columns], text[columns:]
    used = 0
    for place, character in enumerate(text):
        used += get_character_cell_size(character)
        if used > columns:
            return text[:place], text[place:]
    return text, ""


def wrapped(line: Iterable[Span], width: int) -> list[list[Span]]:
    """The line in rows of at most ``width`` columns, never less than 2; an empty line is one empty row."""
    rows: list[list[Span]] = [[]]
    room = max(2, width)
    for text, style in line:
        while text:
            fits, rest = _take(text, room)
            if fits:
                rows[-1].append((fits, style))
                room -= _columns(fits)
            if rest:
                rows.append([])
                room = max(2, width)
            text = rest
    return rows


def rows_of(text: str, width: int) -> int:
    """How many rows a line with color sequences takes when it is wrapped to ``width`` columns."""
    if len(text) <= width and text.isascii() and text.isprintable():
        return 1
    return len(wrapped(spans(text, None), width))
