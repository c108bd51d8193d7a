"""Selects the lines of a segment to show: all, or those that match a query, searched block by block."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec

from liverl.logs.query import Query
from liverl.logs.segment import BLOCK, Segment
from liverl.logs.text import bare

REMEMBERED = 1 << 20  # offsets of matches kept in memory; other blocks are searched again on demand

BEYOND = 4096  # bytes after a block within which its last line usually ends


class Found(NamedTuple):
    """Offsets of lines. ``edge``: offset up to which was searched, if fewer lines were found than requested."""

    offsets: list[int]
    edge: int | None = None


class Picker(Protocol):
    """A selection of lines."""

    marks: bool  # whether separators between files are shown

    def after(self, segment: Segment, offset: int, count: int) -> Found:
        """Return the first ``count`` selected lines that start at ``offset`` or after it."""

    def before(self, segment: Segment, offset: int, count: int) -> Found:
        """Return the last ``count`` selected lines that start before ``offset``, nearest first.

        Bytes appended since the last search are ignored.
        """


class EveryLine:
    """Selects all lines."""

    marks = True

    def after(self, segment: Segment, offset: int, count: int) -> Found:
        """See ``Picker.after``."""
        offsets: list[int] = []
        for block in range(offset // BLOCK, segment.blocks):
            starts = segment.starts(block)
            first = bisect_left(starts, offset)
            offsets += starts[first : first + count - len(offsets)]
            if len(offsets) >= count:
                break
        return Found(offsets)

    def before(self, segment: Segment, offset: int, count: int) -> Found:
        """See ``Picker.before``."""
        offsets: list[int] = []
        for block in range(min(segment.blocks - 1, offset // BLOCK), -1, -1):
            starts = segment.starts(block)
            last = bisect_left(starts, offset)
            offsets += reversed(starts[max(0, last - count + len(offsets)) : last])
            if len(offsets) >= count:
                break
        return Found(offsets)


EVERY_LINE = EveryLine()


class _Searched(msgspec.Struct):
    """Search state of one segment: blocks ``low`` up to ``high`` were searched, the newest of them up to byte
    ``upto``."""

    epoch: int
    low: int
    high: int
    upto: int
    unended: int | None = None  # start of a last line that was unfinished when searched
    counts: array[int] = msgspec.field(default_factory=lambda: array("I"))  # number of matches per block
    some: bytearray = msgspec.field(default_factory=bytearray)  # 1 for blocks with matches: fast to scan
    # Access lines left out, per block.
    hidden: array[int] = msgspec.field(default_factory=lambda: array("I"))


class _Block(NamedTuple):
    """What was found in a block. ``hidden``: complete routine lines left out; ``unended``: start of its last line if
    that is unfinished."""

    offsets: array[int]
    hidden: int = 0
    unended: int | None = None


class Matches:
    """Selects the lines that match a query. Nothing is searched until ``step_older`` or ``step_newer`` is
    called."""

    def __init__(self, query: Query, *, marks: bool = False) -> None:
        """``marks``: whether separators between files are shown."""
        self.query = query
        self.marks = marks
        self._searched: dict[Segment, _Searched] = {}
        self._offsets: OrderedDict[tuple[Segment, int], array[int]] = OrderedDict()
        self._held = 0

    # -- searching

    def begin(self, segment: Segment, offset: int) -> None:
        """Start the search of a segment at ``offset``; it can then be extended in both directions."""
        self._state(segment, min(segment.blocks, offset // BLOCK))

    def _state(self, segment: Segment, start: int | None = None) -> _Searched:
        state = self._searched.get(segment)
        if state is None or state.epoch != segment.epoch:
            self._forget(segment)
            start = segment.blocks if start is None else start
            state = self._searched[segment] = _Searched(segment.epoch, start, start, start * BLOCK)
        return state

    def _forget(self, segment: Segment) -> None:
        for key in [key for key in self._offsets if key[0] is segment]:
            self._held -= len(self._offsets.pop(key))

    def older(self, segment: Segment) -> int | None:
        """Return the end of the unsearched bytes before the searched ones; None if there are none."""
        low = self._state(segment).low
        return min(low * BLOCK, segment.size) if low and segment.size else None

    def newer(self, segment: Segment) -> int | None:
        """Return the end of the searched bytes; None if there are no unsearched ones after it."""
        upto = self._state(segment).upto
        return upto if upto < segment.size else None

    def step_older(self, segment: Segment) -> None:
        """Search the next older block."""
        state = self._state(segment)
        if state.low:
            self._search(segment, state, state.low - 1)
            state.low -= 1
            if state.high == state.low + 1:
                state.upto = min(segment.size, state.high * BLOCK)

    def step_newer(self, segment: Segment) -> None:
        """Search the next newer block; of the newest one what it has grown by."""
        state = self._state(segment)
        if state.upto < segment.size:
            start = state.upto if state.unended is None else state.unended
            block = start // BLOCK
            state.unended = None
            upto = min(segment.size, (block + 1) * BLOCK)
            self._search(segment, state, block, start)
            state.low = min(state.low, block)
            state.high, state.upto = max(state.high, block + 1), upto

    def _search(self, segment: Segment, state: _Searched, block: int, start: int = 0) -> None:
        """Search a block, only from the line at ``start`` on if what was found before it is still known."""
        short = block + 1 - len(state.counts)
        if short > 0:
            state.counts.extend([0] * short)
            state.some.extend(bytes(short))
            state.hidden.extend([0] * short)
        known = self._offsets.get((segment, block)) if start > block * BLOCK else None
        hidden = state.hidden[block]
        if known is None:
            known, start, hidden = array("Q"), block * BLOCK, 0
        found = self._find(segment, block, start)
        if found.unended is not None:
            state.unended = found.unended
        offsets = known[: bisect_left(known, start)] + found.offsets
        state.counts[block], state.some[block] = len(offsets), bool(offsets)
        state.hidden[block] = hidden + found.hidden
        self._remember(segment, block, offsets)

    def _find(self, segment: Segment, block: int, start: int = 0) -> _Block:
        """Search the lines of a block that start at ``start`` or after it."""
        if self._ruled_out(segment, block, start):
            return _Block(array("Q"))
        starts, data, ended = segment.text_of(block, start)
        if not starts:
            return _Block(array("Q"))
        above = bare(segment.above(starts[0])) if self.query.level is not None else ""
        text = bare(data)
        unended = None if ended else starts[-1]
        if text.count("\n") + 1 != len(starts):  # the file was truncated in the meantime
            return _Block(array("Q"), unended=unended)
        places, left_out = self.query.pick(text, above)
        # An unfinished last line is searched again when it is complete, and counted then.
        hidden = len(left_out) - (not ended and left_out[-1:] == [len(starts) - 1])
        return _Block(array("Q", [starts[place] for place in places]), hidden, unended)

    def _ruled_out(self, segment: Segment, block: int, start: int) -> bool:
        """Quick check whether certainly no line of a block from ``start`` on matches."""
        begin, end = max(start, block * BLOCK), (block + 1) * BLOCK
        data = segment.read(begin, end - begin + BEYOND)
        if not self.query.rules_out(data):
            return False
        return b"\n" in data[end - begin :]  # otherwise its last line may continue

    def _remember(self, segment: Segment, block: int, offsets: array[int]) -> None:
        old = self._offsets.pop((segment, block), None)
        self._held += len(offsets) - (len(old) if old is not None else 0)
        self._offsets[segment, block] = offsets
        while self._held > REMEMBERED and len(self._offsets) > 1:
            self._held -= len(self._offsets.popitem(last=False)[1])

    def _of(self, segment: Segment, block: int) -> array[int]:
        offsets = self._offsets.get((segment, block))
        if offsets is None:
            offsets = self._find(segment, block).offsets
            self._remember(segment, block, offsets)
        else:
            self._offsets.move_to_end((segment, block))
        return offsets

    # -- results

    def after(self, segment: Segment, offset: int, count: int) -> Found:
        """See ``Picker.after``; limited to what has been searched."""
        state = self._state(segment)
        offsets: list[int] = []
        block = offset // BLOCK
        if block < state.low:
            return Found(offsets, offset)
        while len(offsets) < count:
            block = state.some.find(1, block, state.high)
            if block < 0:
                return Found(offsets, state.upto if state.upto < segment.size else None)
            places = self._of(segment, block)
            first = bisect_left(places, offset)
            offsets += places[first : first + count - len(offsets)]
            block += 1
        return Found(offsets)

    def before(self, segment: Segment, offset: int, count: int) -> Found:
        """See ``Picker.before``; limited to what has been searched."""
        state = self._state(segment)
        offsets: list[int] = []
        end = min(offset // BLOCK + 1, state.high)
        while len(offsets) < count:
            block = state.some.rfind(1, state.low, end)
            if block < 0:
                return Found(offsets, min(offset, state.low * BLOCK) or None)
            places = self._of(segment, block)
            last = bisect_left(places, offset)
            offsets += reversed(places[max(0, last - count + len(offsets)) : last])
            end = block
        return Found(offsets)

    def number(self, segment: Segment, offset: int) -> int | None:
        """Return the number of matches before ``offset``; None until all earlier bytes are searched."""
        state = self._state(segment)
        block = offset // BLOCK
        if state.low:
            return None
        if block >= state.high:
            return sum(state.counts) if state.upto >= min(offset, segment.size) else None
        return sum(state.counts[:block]) + bisect_left(self._of(segment, block), offset)

    def since(self, segment: Segment, offset: int) -> int:
        """Return the number of matches found so far at ``offset`` or after it."""
        state = self._state(segment)
        block = offset // BLOCK
        if block >= state.high:
            return 0
        if block < state.low:  # not searched there yet, perhaps not at all
            return sum(state.counts[state.low :])
        places = self._of(segment, block) if state.some[block] else ()
        return len(places) - bisect_left(places, offset) + sum(state.counts[block + 1 :])

    def total(self, segments: Iterable[Segment]) -> int:
        """Return the number of matches found so far."""
        return sum(sum(self._state(segment).counts) for segment in segments)

    def hidden(self, segments: Iterable[Segment]) -> int:
        """Return the number of routine lines left out so far."""
        return sum(sum(self._state(segment).hidden) for segment in segments)

    def covers(self, segment: Segment, offset: int) -> bool:
        """Return whether the line that starts at ``offset`` was searched; for the end of the file, whether all before
        it was."""
        state = self._state(segment)
        return state.low * BLOCK <= offset < state.upto or state.upto >= segment.size <= offset

    def progress(self, segments: Iterable[Segment]) -> float:
        """Return the searched share of all bytes, 0..1."""
        size = done = 0
        for segment in segments:
            state = self._state(segment)
            size += segment.size
            done += max(0, min(state.upto, segment.size) - state.low * BLOCK)
        return done / size if size else 1.0
