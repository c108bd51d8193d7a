"""Blocks of text that fold, below each other, at one width. Knows nothing of screens.

A position is (block, row of the block), not a line number: only blocks on the screen are cut into rows, so that a
trajectory of megabytes opens and scrolls at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from liverl_tui.text.wrapping import wrap_line
from liverl_tui.widgets.base.cells import Row, Span
from liverl_tui.widgets.trajectory.document import Block, Body, head_row
from liverl_tui.widgets.trajectory.text import find_places, mark, slice_spans

GUTTER: Span = ("│ ", "rule")


class Place(NamedTuple):
    """A row: number of the block, and of the row in the block, both from 0."""

    block: int
    row: int


class Hit(NamedTuple):
    """A line of text that a search has found: number of the block, and of the line in its text."""

    block: int
    line: int  # of its text; -1: the label's row


START = Place(0, 0)


class _Layout:
    """The rows of an open block at one width: (line, start, end)."""

    __slots__ = ("body", "rows", "source", "width")  # source: the text that was laid out

    def __init__(self, block: Block, width: int) -> None:
        self.source, self.width = block.text, width
        self.body = Body(block)
        self.rows = [
            (number, start, end)
            for number, line in enumerate(self.body.lines)
            for start, end in wrap_line(line, max(1, width))
        ]


class Flow:
    """The blocks of one trajectory and which of them are open. ``needle``: a text that is marked wherever it occurs;
    ``width`` in columns."""

    def __init__(self) -> None:
        self.blocks: Sequence[Block] = ()
        self.width = 80  # columns
        self.needle = ""
        self._opened: dict[str, bool] = {}  # key -> state set by hand
        self._all = False  # everything but files is open
        self._layouts: dict[str, _Layout] = {}

    def forget(self) -> None:
        """Drop the blocks and what was opened, for another trajectory."""
        self.blocks, self._opened, self._layouts, self._all = (), {}, {}, False

    def replace(self, blocks: Sequence[Block], *places: Place) -> list[Place]:
        """Show other blocks of the same trajectory. Returns the ``places`` in them; for a block that no longer
        exists, the first row of the block before it."""
        before, self.blocks = self.blocks, blocks
        index = {block.key: number for number, block in enumerate(blocks)}
        moved = []
        for place in places:
            new_place = START
            for number in range(min(place.block, len(before) - 1), -1, -1):
                if (now := index.get(before[number].key)) is not None:
                    new_place = Place(now, place.row if number == place.block else 0)
                    break
            moved.append(new_place)
        return moved

    # -- open and closed

    def is_open(self, block: Block) -> bool:
        """Whether the text of the block is shown: as set by hand, else as it begins."""
        if block.fixed or not block.folds:
            return block.fixed
        by_hand = self._opened.get(block.key)
        if by_hand is not None:
            return by_hand
        return block.opened or (self._all and block.file is None)

    def toggle(self, number: int) -> list[Block]:
        """Open or close a block; of a rule, all blocks up to the next rule but files. Returns the blocks that were
        opened."""
        block = self.blocks[number]
        parts = self._below(number) if block.rule else [block] if block.folds else []
        opened = not all(self.is_open(part) for part in parts)
        self._opened.update((part.key, opened) for part in parts)
        return parts if opened else []

    def toggle_all(self) -> None:
        """Open everything but files; the second time restore the state at the beginning."""
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
        layout = self._layouts.get(block.key)
        if layout is None or layout.width != width or layout.source is not block.text:
            layout = self._layouts[block.key] = _Layout(block, width)
        return layout

    def _has_head(self, block: Block) -> bool:
        return not (block.headless and self.is_open(block))

    def rows_of(self, number: int) -> int:
        """How many rows a block has now, at least one."""
        block = self.blocks[number]
        body = len(self._layout(block).rows) if block.text is not None and self.is_open(block) else 0
        return max(1, body + self._has_head(block))

    def row(self, place: Place) -> Row:
        """One row with the needle marked. The place must exist, see ``inside``."""
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
        """The next row; None behind the last one."""
        if place.row + 1 < self.rows_of(place.block):
            return Place(place.block, place.row + 1)
        return Place(place.block + 1, 0) if place.block + 1 < len(self.blocks) else None

    def previous(self, place: Place) -> Place | None:
        """The row before; None before the first one."""
        if place.row > 0:
            return Place(place.block, place.row - 1)
        return Place(place.block - 1, self.rows_of(place.block - 1) - 1) if place.block > 0 else None

    def walk(self, place: Place, by: int) -> Place:
        """The row that is ``by`` rows further (back if negative), at most the last or first one."""
        step = self.next if by > 0 else self.previous
        for _ in range(abs(by)):
            neighbor = step(place)
            if neighbor is None:
                break
            place = neighbor
        return place

    def end(self) -> Place:
        """The last row. There must be blocks."""
        last = len(self.blocks) - 1
        return Place(last, self.rows_of(last) - 1)

    def inside(self, place: Place) -> Place:
        """The place itself if it exists, else the nearest one."""
        block = max(0, min(place.block, len(self.blocks) - 1))
        return Place(block, max(0, min(place.row, self.rows_of(block) - 1)))

    def top_for(self, top: Place, at: Place, room: int) -> Place:
        """The first row of a window of ``room`` rows that contains ``at`` and has no empty rows below the end;
        ``top`` where possible."""
        top = max(min(self.inside(top), at), self.walk(at, 1 - room))
        last = self.walk(top, room - 1)
        return min(top, self.walk(last, 1 - room)) if last == self.end() else top

    def rule(self, at: Place, by: int) -> Place | None:
        """The next rule (``by`` 1) or the one before (-1), seen from ``at``; None if there is none."""
        before, after = range(at.block - (at.row == 0), -1, -1), range(at.block + 1, len(self.blocks))
        numbers = after if by > 0 else before
        return next((Place(n, 0) for n in numbers if self.blocks[n].rule and not self.blocks[n].passed), None)

    def turn_at(self, place: Place) -> int:
        """The turn that a place belongs to; 1 for what is above the first turn."""
        return next((b.turn for b in reversed(self.blocks[: place.block + 1]) if b.turn), 1)

    # -- searching

    def hits(self) -> list[Hit]:
        """All lines that contain the needle, in order, also in closed blocks."""
        return [
            Hit(number, line)
            for number, block in enumerate(self.blocks)
            if block.text is not None and self.needle
            for line, text in enumerate(self._layout(block).body.lines)
            if find_places(text, self.needle)
        ]

    def position(self, place: Place) -> Hit:
        """The line of text that a place shows; line -1 if it shows a label."""
        place = self.inside(place)
        block = self.blocks[place.block]
        if block.text is None or not self.is_open(block):
            return Hit(place.block, -1)
        row = place.row - self._has_head(block)
        rows = self._layout(block).rows
        return Hit(place.block, rows[row][0] if 0 <= row < len(rows) else -1)

    def reveal(self, hit: Hit) -> Place:
        """Open the block of a hit; return the row of the first match."""
        block = self.blocks[hit.block]
        if not self.is_open(block):
            self._opened[block.key] = True
        layout = self._layout(block)
        first = next(iter(find_places(layout.body.lines[hit.line], self.needle)), (0, 0))[0]
        row = max(n for n, (line, start, _) in enumerate(layout.rows) if line == hit.line and start <= first)
        return Place(hit.block, row + self._has_head(block))
