"""Text of models and sandboxes for a terminal: control characters made visible, wrapped, JSON in colors. Pure."""

from __future__ import annotations

import re

from liverl.logs.text import plain
from liverl.util.decode import decode_loose_json
from liverl_tui.widgets.base.cells import Span

TAB = 4  # columns between two tab stops
_BLANK = re.compile(r"[^\S ]")  # spaces of other widths
_COLOURED = 4000  # characters: a longer line is shown without colors
_TOKEN = re.compile(
    r'("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b|[{}\[\],]'
)
_STRING_LINE = re.compile(r'(\s*)("(?:[^"\\]|\\.)*": )?"((?:[^"\\]|\\.)*)"(,?)')


def clean_lines(text: str) -> list[str]:
    """The lines of ``text`` without colors, other control characters made visible. A newline at the end begins no
    line."""
    lines = text.split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return [line if line.isprintable() else _clean_line(line) for line in lines]


def _clean_line(line: str) -> str:
    before, returned, last = line.rstrip("\r").rpartition("\r")  # of a progress bar, its last state
    overwritten = "…\\r" if returned and before else ""  # the raw record (key `v`) has it
    return _BLANK.sub(" ", overwritten + plain(last.expandtabs(TAB)))


def json_spans(line: str) -> list[Span]:
    """One line of JSON with a style for each token. A line of more than ``_COLOURED`` characters has one style."""
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
    """(lines, literal): indented JSON in which strings of several lines are written out below their key, and the
    numbers of those lines."""
    lines: list[str] = []
    literal: set[int] = set()
    for line in text.split("\n"):
        match = _STRING_LINE.fullmatch(line)
        if match is None or "\\n" not in match[3]:
            lines += clean_lines(line)
            continue
        try:
            value = decode_loose_json(f'"{match[3]}"')
        except ValueError:
            lines += clean_lines(line)
            continue
        lines.append(f"{match[1]}{match[2] or ''}↵")
        for part in clean_lines(value):
            literal.add(len(lines))
            lines.append(f"{match[1]}  {part}")
    return lines, frozenset(literal)


def slice_spans(spans: list[Span], start: int, end: int) -> list[Span]:
    """The characters ``start`` to ``end`` of a line in spans."""
    part_spans: list[Span] = []
    at = 0
    for text, style in spans:
        piece = text[max(0, start - at) : max(0, end - at)]
        if piece:
            part_spans.append((piece, style))
        at += len(text)
        if at >= end:
            break
    return part_spans


def mark(spans: list[Span], places: list[tuple[int, int]]) -> list[Span]:
    """The line with the style ``match`` at ``places``, which are (start, end) in characters, ascending."""
    line_end = sum(len(text) for text, _ in spans)
    marked: list[Span] = []
    at = 0
    for start, end in places:
        marked += slice_spans(spans, at, start)
        marked += [(text, "match") for text, _ in slice_spans(spans, start, end)]
        at = max(at, end)
    return [*marked, *slice_spans(spans, at, line_end)]


def find_places(line: str, needle: str) -> list[tuple[int, int]]:
    """(start, end) of each occurrence of ``needle`` in ``line``. Case matters only if the needle has a capital
    letter."""
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
