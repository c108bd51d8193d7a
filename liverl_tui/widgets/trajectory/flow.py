"""Blocks of text that open and close, below each other, at one width.

A place in them is (block, row of the block), never a line number: what is not looked at is never cut into rows,
so that a trajectory of megabytes opens and scrolls at once. Knows nothing of screens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from liverl_tui.widgets.base.cells import Row, Span
from liverl_tui.widgets.trajectory.document import Block, Body, head_row
from liverl_tui.widgets.trajectory.text import find_places, mark, slice_spans, wrap_line

GUTTER: Span = ("│ ", "rule")


class Place(NamedTuple):
    block: int
    row: int


class Hit(NamedTuple):
    block: int
    line: int  # of its text; -1 = its first row


START = Place(0, 0)


class _Layout:
    """The rows of an open block at one width: (line, start, end)."""

    __slots__ = ("body", "rows", "source", "width")

    def __init__(self, block: Block, width: int) -> None:
        self.source, self.width = block.text, width
        self.body = Body(block)
        self.rows = [
            (number, start, end)
            for number, line in enumerate(self.body.lines)
            for start, end in wrap_line(line, max(1, width))
        ]


class Flow:
    """``needle``: a text that is marked where it stands."""

    def __init__(self) -> None:
        self.blocks: Sequence[Block] = ()
        self.width = 80  # columns
        self.needle = ""
        self._opened: dict[str, bool] = {}  # what was opened and closed by hand
        self._all = False
        self._layouts: dict[str, _Layout] = {}

    def forget(self) -> None:
        """Begin with another trajectory."""
        self.blocks, self._opened, self._layouts, self._all = (), {}, {}, False

    def replace(self, blocks: Sequence[Block], *places: Place) -> list[Place]:
        """Show other blocks of the same trajectory. Returns where the ``places`` have gone; one in a block that
        has vanished, to the block before it."""
        before, self.blocks = self.blocks, blocks
        index = {block.key: number for number, block in enumerate(blocks)}
        moved = []
        for place in places:
            found = START
            for number in range(min(place.block, len(before) - 1), -1, -1):
                if (now := index.get(before[number].key)) is not None:
                    found = Place(now, place.row if number == place.block else 0)
                    break
            moved.append(found)
        return moved

    # -- open and closed

    def is_open(self, block: Block) -> bool:
        if block.fixed or not block.folds:
            return block.fixed
        by_hand = self._opened.get(block.key)
        if by_hand is not None:
            return by_hand
        return block.opened or (self._all and block.file is None)

    def toggle(self, number: int) -> list[Block]:
        """Open or close a block; of a rule, everything up to the next. Returns those that are now open."""
        block = self.blocks[number]
        parts = self._below(number) if block.rule else [block] if block.folds else []
        opened = not all(self.is_open(part) for part in parts)
        self._opened.update((part.key, opened) for part in parts)
        return parts if opened else []

    def toggle_all(self) -> None:
        """Open everything but files, or all as it was at the beginning."""
        self._all = not self._all
        self._opened = {}

    def _below(self, rule: int) -> list[Block]:
        parts = []
        for block in self.blocks[rule + 1 :]:
            if block.rule:
                break
            if block.folds and block.file is None:
                parts.append(block)
        return parts

    # -- rows

    def _layout(self, block: Block) -> _Layout:
        width = self.width - (0 if block.fixed else len(GUTTER[0]))
        known = self._layouts.get(block.key)
        if known is None or known.width != width or known.source is not block.text:
            known = self._layouts[block.key] = _Layout(block, width)
        return known

    def _has_head(self, block: Block) -> bool:
        return not (block.headless and self.is_open(block))

    def rows_of(self, number: int) -> int:
        """How many rows a block has now; at least one."""
        block = self.blocks[number]
        body = len(self._layout(block).rows) if block.text is not None and self.is_open(block) else 0
        return max(1, body + self._has_head(block))

    def row(self, place: Place) -> Row:
        block = self.blocks[place.block]
        head = self._has_head(block)
        if head and place.row == 0:
            return head_row(block, self.width, self.is_open(block))
        layout = self._layout(block)
        if place.row - head >= len(layout.rows):
            return Row()
        number, start, end = layout.rows[place.row - head]
        spans = layout.body.spans(number)
        if self.needle and (places := find_places(layout.body.lines[number], self.needle)):
            spans = mark(spans, places)
        return Row(*([] if block.fixed else [GUTTER]), *slice_spans(spans, start, end))

    # -- places

    def next(self, place: Place) -> Place | None:
        if place.row + 1 < self.rows_of(place.block):
            return Place(place.block, place.row + 1)
        return Place(place.block + 1, 0) if place.block + 1 < len(self.blocks) else None

    def previous(self, place: Place) -> Place | None:
        if place.row > 0:
            return Place(place.block, place.row - 1)
        return Place(place.block - 1, self.rows_of(place.block - 1) - 1) if place.block > 0 else None

    def walk(self, place: Place, by: int) -> Place:
        """``by`` rows on, as far as there are any."""
        step = self.next if by > 0 else self.previous
        for _ in range(abs(by)):
            found = step(place)
            if found is None:
                break
            place = found
        return place

    def end(self) -> Place:
        last = len(self.blocks) - 1
        return Place(last, self.rows_of(last) - 1)

    def inside(self, place: Place) -> Place:
        """The place itself, or the nearest that there is."""
        block = max(0, min(place.block, len(self.blocks) - 1))
        return Place(block, max(0, min(place.row, self.rows_of(block) - 1)))

    def top_for(self, top: Place, at: Place, room: int) -> Place:
        """Where a window of ``room`` rows begins so that it shows ``at``, and no empty row below the end; ``top``
        if it can."""
        top = max(min(self.inside(top), at), self.walk(at, 1 - room))
        last = self.walk(top, room - 1)
        return min(top, self.walk(last, 1 - room)) if last == self.end() else top

    def rule(self, at: Place, by: int) -> Place | None:
        """The next or previous rule."""
        before, after = range(at.block - (at.row == 0), -1, -1), range(at.block + 1, len(self.blocks))
        numbers = after if by > 0 else before
        return next((Place(n, 0) for n in numbers if self.blocks[n].rule), None)

    def turn_at(self, place: Place) -> int:
        """The turn that a place belongs to; what stands before the first belongs to the first."""
        return next((b.turn for b in reversed(self.blocks[: place.block + 1]) if b.turn), 1)

    # -- searching

    def hits(self) -> list[Hit]:
        """The lines in which the needle stands, in order; also those of closed blocks."""
        return [
            Hit(number, line)
            for number, block in enumerate(self.blocks)
            if block.text is not None and self.needle
            for line, text in enumerate(self._layout(block).body.lines)
            if find_places(text, self.needle)
        ]

    def position(self, place: Place) -> Hit:
        """The line that a place shows."""
        place = self.inside(place)
        block = self.blocks[place.block]
        if block.text is None or not self.is_open(block):
            return Hit(place.block, -1)
        row = place.row - self._has_head(block)
        rows = self._layout(block).rows
        return Hit(place.block, rows[row][0] if 0 <= row < len(rows) else -1)

    def reveal(self, hit: Hit) -> Place:
        """Where the first match of a hit stands; its block is opened."""
        block = self.blocks[hit.block]
        if not self.is_open(block):
            self._opened[block.key] = True
        layout = self._layout(block)
        first = next(iter(find_places(layout.body.lines[hit.line], self.needle)), (0, 0))[0]
        row = max(n for n, (line, start, _) in enumerate(layout.rows) if line == hit.line and start <= first)
        return Place(hit.block, row + self._has_head(block))
