"""Wrap text to a width in terminal columns. Pure."""

from __future__ import annotations

import re

from liverl_tui.text.columns import head
from liverl_tui.text.words import one_line

LEAST = 8  # columns: narrower lines cannot be read
_NUMBER = re.compile(r"\W*\d[\d.,:/]*")
_UNIT = re.compile(
    r"([kKMGT]i?B?|B|bytes|m?s|µs|ns|min|h|d|seconds?|minutes?|hours?|days?|%|k?W|°C|[\w.]+/s|(?:M|G)Hz)[^\w%°]*"
)


def wrap(text: str, width: int, begin: int = 0) -> list[str]:
    """``text``, made safe for a terminal, in lines of at most ``width`` columns (at least ``LEAST``). Lines break
    between words where possible, but not between a number and its unit. ``begin``: columns of the first line that are
    in use already. An empty text gives one empty line."""
    width = max(LEAST, width)
    room = max(LEAST, width - begin)
    lines, line = [], ""
    for word in _words(one_line(text), room):
        joined = f"{line} {word}" if line else word
        if columns(joined) <= room:
            line = joined
            continue
        if line:
            lines.append(line)
            room = width
        while columns(word) > room:
            part = head(word, room)
            lines.append(part)
            word, room = word[len(part) :], width
        line = word
    return [*lines, line] if line or not lines else lines


def _words(text: str, most: int) -> list[str]:
    """The words of a text. A number and its unit are one word (``1.2 GiB``, ``10 s``) if both fit ``most`` columns."""
    words: list[str] = []
    for word in text.split(" "):
        if words and _UNIT.fullmatch(word) and _NUMBER.fullmatch(words[-1]):
            pair = f"{words[-1]} {word}"
            if columns(pair) <= most:
                words[-1] = pair
                continue
        words.append(word)
    return words


def columns(text: str) -> int:
    """Columns of a text in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # not for commands whose texts are ASCII

    return cell_len(text)


def wrap_line(line: str, width: int) -> list[tuple[int, int]]:
    """(start, end) in characters of each row of a line. Rows break after a space, unless that would leave a row less
    than half full."""
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
    from rich.cells import get_character_cell_size

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
