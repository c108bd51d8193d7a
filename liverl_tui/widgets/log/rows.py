"""Log lines -> rows of the screen: colours kept, tabs expanded, hits marked, cut or wrapped to the width. Pure."""

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

TAB = 8
HITS = 100  # marked in one line
LEVEL_STYLE: dict[Level | None, str] = {
    None: "text",
    "debug": "dim",
    "info": "text",
    "warning": "warn",
    "error": "bad",
}


def spans(text: str, level: Level | None, hits: re.Pattern[str] | None = None) -> list[Span]:
    """One line with its colour sequences, in full length."""
    parts = runs(text)
    if hits is not None:
        parts = _cut_at(parts, _hits(hits, "".join(part for part, _ in parts)))
    base = LEVEL_STYLE[level]
    found: list[Span] = []
    column = 0
    for part, look in parts:
        if "\t" in part:
            part = _expand(part, column)
        column += len(part)
        found.append((part, base if look is PLAIN else "match" if look is _HIT else _style(look)))
    return found


_HIT = TextStyle(reverse=True, bold=True, underline=True)  # stands for a hit until it gets its style


def _hits(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for match in pattern.finditer(text):
        if match.end() > match.start():
            found.append(match.span())
            if len(found) == HITS:
                break
    return found


def _cut_at(parts: list[tuple[str, TextStyle]], hits: list[tuple[int, int]]) -> list[tuple[str, TextStyle]]:
    """The runs, with those of the hits on their own."""
    if not hits:
        return parts
    found: list[tuple[str, TextStyle]] = []
    begin = 0
    for part, look in parts:
        end = begin + len(part)
        here = begin
        for first, last in hits:
            if last <= here or first >= end:
                continue
            if first > here:
                found.append((part[here - begin : first - begin], look))
            here = max(here, first)
            found.append((part[here - begin : min(last, end) - begin], _HIT))
            here = min(last, end)
        if here < end:
            found.append((part[here - begin :], look))
        begin = end
    return found


def _expand(text: str, column: int) -> str:
    pieces = text.split("\t")
    done = []
    for piece in pieces[:-1]:
        column += len(piece)
        blank = TAB - column % TAB
        done.append(piece + " " * blank)
        column += blank
    return "".join(done) + pieces[-1]


@lru_cache(maxsize=512)
def _style(look: TextStyle) -> Style:
    return Style(
        color=_colour(look.fg),
        bgcolor=_colour(look.bg),
        bold=look.bold or None,
        dim=look.dim or None,
        italic=look.italic or None,
        underline=look.underline or None,
        reverse=look.reverse or None,
    )


def _colour(colour: Colour) -> Color | None:
    if colour is None:
        return None
    return Color.from_ansi(colour) if isinstance(colour, int) else Color.from_rgb(*colour)


def width_of(text: str) -> int:
    """Columns of one line."""
    return sum(map(_columns, (part for part, _ in spans(text, None))))


def _columns(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def crop(line: Sequence[Span], begin: int, width: int) -> list[Span]:
    """The columns from ``begin`` on, and at least ``width`` of them plus one, so that what is missing can be told."""
    found: list[Span] = []
    skip, left = begin, width + 1
    for text, style in line:
        columns = _columns(text)
        if skip >= columns:
            skip -= columns
            continue
        if skip:
            text, columns = _drop(text, skip), columns - skip
            skip = 0
        if text.isascii():
            text = text[:left]
        elif columns > left:
            text = _take(text, left)[0]
        found.append((text, style))
        left -= columns
        if left <= 0:
            break
    return found


def _drop(text: str, columns: int) -> str:
    """Without the first columns; half a wide character becomes a blank."""
    if text.isascii():
        return text[columns:]
    for place, character in enumerate(text):
        if columns <= 0:
            return " " * -columns + text[place:]
        columns -= get_character_cell_size(character)
    return " " * -columns


def _take(text: str, columns: int) -> tuple[str, str]:
    """The characters that fit into ``columns``, and the rest."""
    if text.isascii():
        return text[:columns], text[columns:]
    used = 0
    for place, character in enumerate(text):
        used += get_character_cell_size(character)
        if used > columns:
            return text[:place], text[place:]
    return text, ""


def wrapped(line: Iterable[Span], width: int) -> list[list[Span]]:
    """The line in rows of at most ``width`` columns; one row at least."""
    rows: list[list[Span]] = [[]]
    left = max(2, width)
    for text, style in line:
        while text:
            fits, rest = _take(text, left)
            if fits:
                rows[-1].append((fits, style))
                left -= _columns(fits)
            if rest:
                rows.append([])
                left = max(2, width)
            text = rest
    return rows


def rows_of(text: str, width: int) -> int:
    """How many rows a line takes when it is wrapped."""
    if len(text) <= width and text.isascii() and "\t" not in text:
        return 1
    return len(wrapped(spans(text, None), width))
