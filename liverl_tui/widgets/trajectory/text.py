"""Text of models and sandboxes as lines that a terminal can show: tamed, wrapped, JSON in colours. Pure."""

from __future__ import annotations

import json
import re
import unicodedata

from rich.cells import get_character_cell_size

from liverl.logs.text import plain
from liverl_tui.widgets.base.cells import Span

TAB = 4
_COLOURED = 4000  # characters: a longer line is shown without colours
_TOKEN = re.compile(
    r'("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b|[{}\[\],]'
)
_STRING_LINE = re.compile(r'(\s*)("(?:[^"\\]|\\.)*": )?"((?:[^"\\]|\\.)*)"(,?)')


def clean_lines(text: str) -> list[str]:
    """``text`` cut into lines without control characters and escape sequences; a last newline begins no line."""
    lines = text.split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return [line if line.isprintable() else _tame(line) for line in lines]


def _tame(line: str) -> str:
    line = line.rstrip("\r").rpartition("\r")[2]  # a progress bar: its last state
    line = plain(line.expandtabs(TAB))
    if line.isprintable():
        return line
    return "".join(
        c if c.isprintable() else " " if unicodedata.category(c).startswith("Z") else "" for c in line
    )


def wrap_line(line: str, width: int) -> list[tuple[int, int]]:
    """(start, end) of the rows of one line, broken behind spaces where that does not leave them half empty."""
    if line.isascii():
        if len(line) <= width:
            return [(0, len(line))]
        rows, start = [], 0
        while len(line) - start > width:
            space = line.rfind(" ", start + width // 2, start + width)
            end = space + 1 if space >= 0 else start + width
            rows.append((start, end))
            start = end
        return [*rows, (start, len(line))]
    rows, start, used, space = [], 0, 0, -1
    for index, character in enumerate(line):
        columns = get_character_cell_size(character)
        if used + columns > width and index > start:
            end = space + 1 if space >= start + width // 2 else index
            rows.append((start, end))
            start, used = end, sum(map(get_character_cell_size, line[end:index]))
        if character == " ":
            space = index
        used += columns
    return [*rows, (start, len(line))]


def json_spans(line: str) -> list[Span]:
    """One line of JSON, by token: keys, strings, numbers, words."""
    if len(line) > _COLOURED:
        return [(line, "text")]
    spans: list[Span] = []
    at = 0
    for match in _TOKEN.finditer(line):
        if match.start() > at:
            spans.append((line[at : match.start()], "text"))
        string, colon, number, word = match.groups()
        if string is not None:
            spans.append((string, "accent" if colon else "ok"))
            if colon:
                spans.append((colon, "dim"))
        else:
            spans.append((match[0], "chart4" if number or word else "dim"))
        at = match.end()
    if at < len(line):
        spans.append((line[at:], "text"))
    return spans


def argument_lines(text: str) -> tuple[list[str], frozenset[int]]:
    """(lines of indented JSON in which texts of several lines are written out below their key, the numbers of
    the lines that are such text)."""
    lines: list[str] = []
    literal: set[int] = set()
    for line in text.split("\n"):
        match = _STRING_LINE.fullmatch(line)
        if match is None or "\\n" not in match[3]:
            lines += clean_lines(line)
            continue
        try:
            value = json.loads(f'"{match[3]}"')
        except ValueError:
            lines += clean_lines(line)
            continue
        lines.append(f"{match[1]}{match[2] or ''}↵")
        for part in clean_lines(value):
            literal.add(len(lines))
            lines.append(f"{match[1]}  {part}")
    return lines, frozenset(literal)


def slice_spans(spans: list[Span], start: int, end: int) -> list[Span]:
    """Characters ``start`` to ``end`` of a line that is given in spans."""
    found: list[Span] = []
    at = 0
    for text, style in spans:
        piece = text[max(0, start - at) : max(0, end - at)]
        if piece:
            found.append((piece, style))
        at += len(text)
        if at >= end:
            break
    return found


def mark(spans: list[Span], places: list[tuple[int, int]]) -> list[Span]:
    """The same line with the style ``match`` at (start, end) ``places``, which are in order."""
    line_end = sum(len(text) for text, _ in spans)
    marked: list[Span] = []
    at = 0
    for start, end in places:
        marked += slice_spans(spans, at, start)
        marked += [(text, "match") for text, _ in slice_spans(spans, start, end)]
        at = max(at, end)
    return [*marked, *slice_spans(spans, at, line_end)]


def find_places(line: str, needle: str) -> list[tuple[int, int]]:
    """Where ``needle`` stands in ``line``. Capitals count only if the needle has one."""
    if not needle:
        return []
    if needle == needle.lower():
        lowered = line.lower()
        line = lowered if len(lowered) == len(line) else line
    places, at = [], line.find(needle)
    while at >= 0:
        places.append((at, at + len(needle)))
        at = line.find(needle, at + len(needle))
    return places
