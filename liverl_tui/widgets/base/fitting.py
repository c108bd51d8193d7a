"""Fit a line into a width by shortening its parts, and a table by leaving out columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct
from rich.cells import cell_len

from liverl_tui.text.columns import columns_of
from liverl_tui.widgets.base.cells import Row, Span

Form = Sequence[Span]  # one wording of a part


class Part(Struct, frozen=True):
    """A part of a line, in forms from the longest to the shortest. An empty form leaves the part out; a part without
    an empty form is always shown. Parts with the highest ``rank`` are shortened first, among them the longest, of
    several that are as long the last. ``kept``: the rank of all forms but the first, which then gives way earlier than
    they do; None: that of the first."""

    rank: float
    forms: tuple[Form, ...]
    kept: float | None = None

    def rank_of(self, form: int) -> float:
        """How early this form gives way to the next one."""
        return self.kept if form and self.kept is not None else self.rank


def columns(form: Form) -> int:
    """The width of a form in terminal columns."""
    return sum(len(text) if text.isascii() else cell_len(text) for text, _ in form)


def pack(parts: Sequence[Part], width: int, gap: str = "  ") -> Row:
    """The parts side by side in ``width`` columns, separated by ``gap``. The least important are shortened, then left
    out; the row is wider if even the shortest forms do not fit."""
    sizes = [[columns(form) for form in part.forms] for part in parts]
    chosen = [0] * len(parts)

    def fits() -> bool:
        shown = [sizes[i][c] for i, c in enumerate(chosen) if sizes[i][c]]
        return sum(shown) + len(gap) * max(0, len(shown) - 1) <= width

    while not fits():
        shortenable = [i for i, c in enumerate(chosen) if c < len(parts[i].forms) - 1]
        if not shortenable:
            break
        chosen[max(shortenable, key=lambda i: (parts[i].rank_of(chosen[i]), sizes[i][chosen[i]], i))] += 1
    # Use the room that is left over, for what gave way last first.
    for index in sorted(range(len(parts)), key=lambda i: parts[i].rank_of(max(0, chosen[i] - 1))):
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


Value = str | float | None  # what a column sorts by; None: unknown


class Column(Struct, frozen=True):
    """One column of a table. Where not all fit, columns with a lower ``rank`` are kept; ``width``: in terminal
    columns; ``grows``: how many columns of the remaining width it may take.

    ``value``: reads what sorts from an item of the list; without it the column does not sort. ``largest_first``: the
    direction that is tried first. ``cell``: the text and style that an item has in the column. ``label``: the name in
    lists of columns, where ``head`` says too little. ``shown``: whether the list has the column before the user has
    chosen any.
    """

    name: str
    head: str
    width: int
    rank: int
    align: str = "<"
    grows: int = 0
    value: Callable[[Any], Value] | None = None
    largest_first: bool = False
    label: str = ""
    shown: bool = True
    cell: Callable[[Any], Span] | None = None

    @property
    def title(self) -> str:
        """The name of the column in lists and titles."""
        return self.label or self.head or self.name


Chosen = tuple[tuple[Column, int], ...]  # columns, each with its width


@lru_cache(maxsize=64)
def choose(columns: tuple[Column, ...], width: int, gap: int = 1) -> Chosen:
    """The columns that fit into ``width``, in their given order, each with its width. ``gap``: blanks between two."""
    room = width + gap
    kept: list[Column] = []
    for column in sorted(columns, key=lambda c: c.rank):
        if column.width + gap > room:
            break  # a less important column is not shown in its place
        kept.append(column)
        room -= column.width + gap
    chosen = []
    for column in columns:
        if column in kept:
            more = min(column.grows, room)
            room -= more
            chosen.append((column, column.width + more))
    return tuple(chosen)


STEPS = (8, 12, 16, 20, 26)  # widths of columns whose words differ from moment to moment


def stepped(longest: int) -> int:
    """The width of a column for words of at most ``longest`` characters: one of ``STEPS``, so that a number that gets
    a digit more does not move the columns beside it."""
    return next((step for step in STEPS if step >= longest), STEPS[-1])


def heads(chosen: Chosen, gap: int = 1, sorted_by: str = "", sign: str = "") -> Row:
    """The row of column heads for the result of ``choose``. ``sorted_by`` stands out, with ``sign`` behind its head; of
    one that fills its column, in the gap before it, or in that behind it where it is on the left or the first."""
    row = Row()
    for index, (column, width) in enumerate(chosen):
        head, style, behind = column.head, "head", " " * gap
        if column.name == sorted_by and width:
            style = "strong"
            if columns_of(head) < width:
                head += sign
            elif gap and index and (column.align == ">" or index == len(chosen) - 1):
                before, _ = row.spans.pop()
                row.add(before[: -len(sign)], "head").add(sign, style)
            elif gap:
                head, width, behind = head + sign, width + len(sign), behind[len(sign) :]
        row.add(head, style, width, column.align).add(behind, "head")
    return row


def column_at(chosen: Chosen, x: int, gap: int = 1) -> Column | None:
    """The column of ``chosen`` at ``x``, in terminal columns from the left; the gap behind a column belongs to it."""
    for column, width in chosen:
        if 0 <= x < width + gap:
            return column
        x -= width + gap
    return None
