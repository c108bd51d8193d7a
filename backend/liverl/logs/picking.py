"""Which lines of a segment there are to see: all of them, or those that match, found step by step."""

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

REMEMBERED = 1 << 20  # places of matches; those of other blocks are found anew when they are wanted

BEYOND = 4096  # bytes behind a block in which its last line mostly ends


class Found(NamedTuple):
    """Offsets of lines. ``edge``: where they are fewer than asked for, the offset up to which it was searched."""

    offsets: list[int]
    edge: int | None = None


class Picker(Protocol):
    """A choice of lines."""

    marks: bool  # whether the borders between files are shown

    def after(self, segment: Segment, offset: int, count: int) -> Found:
        """The first ``count`` lines that begin at ``offset`` or behind it."""

    def before(self, segment: Segment, offset: int, count: int) -> Found:
        """The last ``count`` lines that begin before ``offset``, the nearest first. What has been appended since
        the last search is taken for not there yet."""


class EveryLine:
    """All lines."""

    marks = True

    def after(self, segment: Segment, offset: int, count: int) -> Found:
        found: list[int] = []
        for block in range(offset // BLOCK, segment.blocks):
            starts = segment.starts(block)
            first = bisect_left(starts, offset)
            found += starts[first : first + count - len(found)]
            if len(found) >= count:
                break
        return Found(found)

    def before(self, segment: Segment, offset: int, count: int) -> Found:
        found: list[int] = []
        for block in range(min(segment.blocks - 1, offset // BLOCK), -1, -1):
            starts = segment.starts(block)
            last = bisect_left(starts, offset)
            found += reversed(starts[max(0, last - count + len(found)) : last])
            if len(found) >= count:
                break
        return Found(found)


EVERY_LINE = EveryLine()


class _Searched(msgspec.Struct):
    """What is known of one segment: the blocks from ``low`` up to ``high`` have been searched, of the newest of
    them the bytes up to ``upto``."""

    epoch: int
    low: int
    high: int
    upto: int
    unended: int | None = None  # where a line begins that had no end yet when it was searched
    counts: array[int] = msgspec.field(default_factory=lambda: array("I"))  # of matches, by block
    some: bytearray = msgspec.field(default_factory=bytearray)  # 1 where there are any: quick to look for


class Matches:
    """The lines that a query picks. Nothing is searched before it is asked for by ``step``."""

    marks = False

    def __init__(self, query: Query) -> None:
        self.query = query
        self._searched: dict[Segment, _Searched] = {}
        self._offsets: OrderedDict[tuple[Segment, int], array[int]] = OrderedDict()
        self._held = 0

    # -- searching

    def begin(self, segment: Segment, offset: int) -> None:
        """Have the search of a segment begin at ``offset``: what is newer and what is older can be searched then."""
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
        """The end of the bytes before what has been searched; None when there are none."""
        low = self._state(segment).low
        return min(low * BLOCK, segment.size) if low and segment.size else None

    def newer(self, segment: Segment) -> int | None:
        """The end of what has been searched; None when there is nothing behind it."""
        upto = self._state(segment).upto
        return upto if upto < segment.size else None

    def step_older(self, segment: Segment) -> None:
        """Search the next block before what has been searched."""
        state = self._state(segment)
        if state.low:
            self._search(segment, state, state.low - 1)
            state.low -= 1
            if state.high == state.low + 1:
                state.upto = min(segment.size, state.high * BLOCK)

    def step_newer(self, segment: Segment) -> None:
        """Search the next block behind what has been searched; the newest one anew when it has grown."""
        state = self._state(segment)
        if state.upto < segment.size:
            block = (state.upto if state.unended is None else state.unended) // BLOCK
            state.unended = None
            upto = min(segment.size, (block + 1) * BLOCK)
            self._search(segment, state, block)
            state.low = min(state.low, block)
            state.high, state.upto = max(state.high, block + 1), upto

    def _search(self, segment: Segment, state: _Searched, block: int) -> None:
        short = block + 1 - len(state.counts)
        if short > 0:
            state.counts.extend([0] * short)
            state.some.extend(bytes(short))
        found, unended = self._find(segment, block)
        if unended is not None:
            state.unended = unended
        state.counts[block], state.some[block] = len(found), bool(found)
        self._remember(segment, block, found)

    def _find(self, segment: Segment, block: int) -> tuple[array[int], int | None]:
        """Which lines of a block match; and where its last line begins, if that has not ended."""
        if self._ruled_out(segment, block):
            return array("Q"), None
        starts, data, ended = segment.text_of(block)
        if not starts:
            return array("Q"), None
        above = bare(segment.above(starts[0])) if self.query.level is not None else ""
        text = bare(data)
        unended = None if ended else starts[-1]
        if text.count("\n") + 1 != len(starts):  # the file has been cut short meanwhile
            return array("Q"), unended
        return array("Q", [starts[place] for place in self.query.pick(text, above)]), unended

    def _ruled_out(self, segment: Segment, block: int) -> bool:
        """A quick look at a block: whether surely none of its lines matches."""
        data = segment.read(block * BLOCK, BLOCK + BEYOND)
        if not self.query.rules_out(data):
            return False
        return b"\n" in data[BLOCK:]  # or else its last line may go on

    def _remember(self, segment: Segment, block: int, found: array[int]) -> None:
        old = self._offsets.pop((segment, block), None)
        self._held += len(found) - (len(old) if old is not None else 0)
        self._offsets[segment, block] = found
        while self._held > REMEMBERED and len(self._offsets) > 1:
            self._held -= len(self._offsets.popitem(last=False)[1])

    def _of(self, segment: Segment, block: int) -> array[int]:
        found = self._offsets.get((segment, block))
        if found is None:
            found = self._find(segment, block)[0]
            self._remember(segment, block, found)
        else:
            self._offsets.move_to_end((segment, block))
        return found

    # -- what has been found

    def after(self, segment: Segment, offset: int, count: int) -> Found:
        state = self._state(segment)
        found: list[int] = []
        block = offset // BLOCK
        if block < state.low:
            return Found(found, offset)
        while len(found) < count:
            block = state.some.find(1, block, state.high)
            if block < 0:
                return Found(found, state.upto if state.upto < segment.size else None)
            places = self._of(segment, block)
            first = bisect_left(places, offset)
            found += places[first : first + count - len(found)]
            block += 1
        return Found(found)

    def before(self, segment: Segment, offset: int, count: int) -> Found:
        state = self._state(segment)
        found: list[int] = []
        end = min(offset // BLOCK + 1, state.high)
        while len(found) < count:
            block = state.some.rfind(1, state.low, end)
            if block < 0:
                return Found(found, min(offset, state.low * BLOCK) or None)
            places = self._of(segment, block)
            last = bisect_left(places, offset)
            found += reversed(places[max(0, last - count + len(found)) : last])
            end = block
        return Found(found)

    def number(self, segment: Segment, offset: int) -> int | None:
        """How many lines have been found before ``offset``; None while not all before it is searched."""
        state = self._state(segment)
        block = offset // BLOCK
        if state.low:
            return None
        if block >= state.high:
            return sum(state.counts) if state.upto >= min(offset, segment.size) else None
        return sum(state.counts[:block]) + bisect_left(self._of(segment, block), offset)

    def since(self, segment: Segment, offset: int) -> int:
        """How many lines have been found at ``offset`` or behind it."""
        state = self._state(segment)
        block = offset // BLOCK
        if block >= state.high:
            return 0
        if block < state.low:  # not searched there yet, maybe nowhere
            return sum(state.counts[state.low :])
        places = self._of(segment, block) if state.some[block] else ()
        return len(places) - bisect_left(places, offset) + sum(state.counts[block + 1 :])

    def total(self, segments: Iterable[Segment]) -> int:
        """How many lines have been found so far."""
        return sum(sum(self._state(segment).counts) for segment in segments)

    def progress(self, segments: Iterable[Segment]) -> float:
        """The share of the bytes that has been searched, 0..1."""
        size = done = 0
        for segment in segments:
            state = self._state(segment)
            size += segment.size
            done += max(0, min(state.upto, segment.size) - state.low * BLOCK)
        return done / size if size else 1.0
