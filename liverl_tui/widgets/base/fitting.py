"""What to leave out where a line is too narrow: of a sentence, and of a table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len

from liverl_tui.widgets.base.cells import Row, Span

Form = Sequence[Span]  # one way to say it


@dataclass(frozen=True)
class Part:
    """A part of a sentence, in forms from the longest to the shortest. An empty form leaves it out; a part
    without one is always there. Parts of a higher ``rank`` are shortened first, of one rank the longest."""

    rank: int
    forms: tuple[Form, ...]


def columns(form: Form) -> int:
    return sum(len(text) if text.isascii() else cell_len(text) for text, _ in form)


def pack(parts: Sequence[Part], width: int, gap: str = "  ") -> Row:
    """The parts beside each other in ``width`` columns: the least important are shortened, then left out."""
    sizes = [[columns(form) for form in part.forms] for part in parts]
    chosen = [0] * len(parts)

    def fits() -> bool:
        shown = [sizes[i][c] for i, c in enumerate(chosen) if sizes[i][c]]
        return sum(shown) + len(gap) * max(0, len(shown) - 1) <= width

    while not fits():
        able = [i for i, c in enumerate(chosen) if c < len(parts[i].forms) - 1]
        if not able:
            break
        chosen[max(able, key=lambda i: (parts[i].rank, sizes[i][chosen[i]]))] += 1
    for index in sorted(range(len(parts)), key=lambda i: parts[i].rank):  # what was cut too far
        while chosen[index]:
            chosen[index] -= 1
            if not fits():
                chosen[index] += 1
                break
    row = Row()
    for part, choice in zip(parts, chosen, strict=True):
        form = part.forms[choice]
        if not form:
            continue
        if row.spans:
            row.add(gap, "dim")
        for text, style in form:
            row.add(text, style)
    return row


@dataclass(frozen=True)
class Column:
    """One column of a table. Those of a lower ``rank`` come first where the width does not suffice for all;
    ``grows``: it may take up to so many columns of what is left over."""

    name: str
    head: str
    width: int
    rank: int
    align: str = "<"
    grows: int = 0


Chosen = tuple[tuple[Column, int], ...]  # columns, each with its width


@lru_cache(maxsize=64)
def choose(columns: tuple[Column, ...], width: int, gap: int = 1) -> Chosen:
    """The columns that fit, in their order, each with its width."""
    left = width + gap
    kept: list[Column] = []
    for column in sorted(columns, key=lambda c: c.rank):
        if column.width + gap > left:
            break  # what is less important does not jump the queue
        kept.append(column)
        left -= column.width + gap
    chosen = []
    for column in columns:
        if column in kept:
            more = min(column.grows, left)
            left -= more
            chosen.append((column, column.width + more))
    return tuple(chosen)


def heads(chosen: Chosen, gap: int = 1) -> Row:
    row = Row()
    for column, width in chosen:
        row.add(column.head, "head", width, column.align).add(" " * gap, "head")
    return row
