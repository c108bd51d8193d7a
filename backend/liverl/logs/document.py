"""Several log files read as one: the generations of a service end to end, or many services merged by time."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from liverl.logs.picking import EVERY_LINE, Picker
from liverl.logs.segment import Segment

MARK = -1  # the offset of the border above a segment's first line
CHUNK = 16  # lines asked of one file at a time while merging


class Place(NamedTuple):
    """A line, by the file that it is in and the offset at which it begins."""

    segment: Segment
    offset: int


class Places(NamedTuple):
    """Lines in their order. ``complete``: where they are fewer than asked for, there are no others."""

    places: list[Place]
    complete: bool = True


class Document(ABC):
    """Files in one order."""

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        self.segments = list(segments)

    @abstractmethod
    def key(self, place: Place) -> tuple[float, ...]:
        """What places are ordered by."""

    @abstractmethod
    def forward(self, place: Place | None, count: int, picker: Picker = EVERY_LINE) -> Places:
        """The first ``count`` lines from ``place`` on (None: from the beginning)."""

    @abstractmethod
    def back(self, place: Place | None, count: int, picker: Picker = EVERY_LINE) -> Places:
        """The last ``count`` lines before ``place`` (None: before the end), oldest first."""

    @abstractmethod
    def offset_in(self, segment: Segment, place: Place) -> int:
        """How many bytes of one of the files come before ``place``."""

    @abstractmethod
    def at_time(self, at: float) -> Place | None:
        """The first line that was written at Unix time ``at`` or later; None where there is none."""

    def time_of(self, place: Place) -> float:
        return place.segment.times.time_at(max(0, place.offset))

    @property
    def end(self) -> float:
        """When the newest line was written; 0 where there is none."""
        return max((segment.times.end for segment in self.segments if segment.size), default=0.0)


class Chain(Document):
    """Files end to end, with a mark on the border between two."""

    def key(self, place: Place) -> tuple[float, ...]:
        return self.segments.index(place.segment), place.offset

    def _marked(self, index: int, picker: Picker) -> bool:
        segment = self.segments[index]
        return picker.marks and (segment.epoch > 0 or any(before.size for before in self.segments[:index]))

    def forward(self, place: Place | None, count: int, picker: Picker = EVERY_LINE) -> Places:
        first, offset = (0, MARK) if place is None else (self.segments.index(place.segment), place.offset)
        found: list[Place] = []
        for index in range(first, len(self.segments)):
            segment = self.segments[index]
            if offset == MARK and self._marked(index, picker):
                found.append(Place(segment, MARK))
            offsets, edge = picker.after(segment, max(0, offset), count - len(found))
            found += [Place(segment, at) for at in offsets]
            if len(found) >= count or edge is not None:
                return Places(found[:count], len(found) >= count)
            offset = MARK
        return Places(found)

    def back(self, place: Place | None, count: int, picker: Picker = EVERY_LINE) -> Places:
        last = len(self.segments) - 1 if place is None else self.segments.index(place.segment)
        limit = None if place is None else place.offset
        found: list[Place] = []
        for index in range(last, -1, -1):
            segment = self.segments[index]
            if limit is None or limit > MARK:
                until = segment.size if limit is None else limit
                offsets, edge = picker.before(segment, until, count - len(found))
                found += [Place(segment, at) for at in offsets]
                if len(found) >= count or edge is not None:
                    return Places(found[::-1], len(found) >= count)
                if self._marked(index, picker):
                    found.append(Place(segment, MARK))
                    if len(found) >= count:
                        break
            limit = None
        return Places(found[::-1])

    def offset_in(self, segment: Segment, place: Place) -> int:
        if segment is place.segment:
            return max(0, place.offset)
        before = self.segments.index(segment) < self.segments.index(place.segment)
        return segment.size if before else 0

    def at_time(self, at: float) -> Place | None:
        for segment in self.segments:
            offset = segment.times.first_at(at)
            if offset is not None:
                found = EVERY_LINE.after(segment, offset, 1).offsets
                if found:
                    return Place(segment, found[0])
        return None


class Merged(Document):
    """Lines of many files by the time at which they were written, as well as the time indexes tell; lines of
    one second and one file stay together."""

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        super().__init__(segments)
        self._rank = {segment: rank for rank, segment in enumerate(self.segments)}

    def key(self, place: Place) -> tuple[float, ...]:
        return place.segment.times.time_at(place.offset), self._rank[place.segment], place.offset

    def forward(self, place: Place | None, count: int, picker: Picker = EVERY_LINE) -> Places:
        streams: list[_Stream] = []
        for rank, segment in enumerate(self.segments):
            offset = 0 if place is None else self.offset_in(segment, place)
            if offset < segment.size:
                streams.append(_Forward(segment, rank, offset, picker))
        return _merge(streams, count)

    def back(self, place: Place | None, count: int, picker: Picker = EVERY_LINE) -> Places:
        streams: list[_Stream] = []
        for rank, segment in enumerate(self.segments):
            limit = segment.size if place is None else self.offset_in(segment, place)
            if limit:
                streams.append(_Back(segment, rank, limit, picker))
        places, complete = _merge(streams, count)
        return Places(places[::-1], complete)

    def offset_in(self, segment: Segment, place: Place) -> int:
        if segment is place.segment:
            return max(0, place.offset)
        tie = (
            self._rank[segment] < self._rank[place.segment]
        )  # then what was written at the same time is before
        offset = segment.times.first_at(self.time_of(place), after=tie)
        return segment.size if offset is None else min(offset, segment.size)

    def at_time(self, at: float) -> Place | None:
        first: list[Place] = []
        for segment in self.segments:
            offset = segment.times.first_at(at)
            if offset is not None and offset < segment.size:
                first += [Place(segment, found) for found in EVERY_LINE.after(segment, offset, 1).offsets]
        return min(first, key=self.key, default=None)


_BOUND, _LINE, _EDGE = range(
    3
)  # what stands at a stream's head: no line is before this; a line; not searched
_Head = tuple[float, int, int, int]  # time, rank, offset (all negated when going back), which of the three


class _Stream:
    """One file of a merge, read as far as it is wanted."""

    def __init__(self, segment: Segment, rank: int, offset: int, picker: Picker) -> None:
        self.segment = segment
        self.rank = rank
        self.offset = offset
        self.picker = picker
        self._queue: list[int] = []
        self._more = True
        self._edge: int | None = None

    def next(self) -> _Head | None:
        """The next line, or the edge of what has been searched; None at the end."""
        if not self._queue and self._more:
            offsets, self._edge = self.ask()
            self._queue = offsets[::-1]
            self._more = len(offsets) == CHUNK
        if self._queue:
            self.offset = self._queue.pop()
            return self.head(self.offset, _LINE)
        if self._edge is not None:
            edge, self._edge = self._edge, None
            return self.head(edge, _EDGE)
        return None

    def ask(self) -> tuple[list[int], int | None]:
        """Lines beyond ``offset``, and the edge."""
        raise NotImplementedError

    def head(self, offset: int, kind: int) -> _Head:
        """Where an offset stands in the order of the merge."""
        raise NotImplementedError


class _Forward(_Stream):
    _taken = False

    def ask(self) -> tuple[list[int], int | None]:
        begin, self._taken = self.offset + self._taken, True
        return self.picker.after(self.segment, begin, CHUNK)

    def head(self, offset: int, kind: int) -> _Head:
        return self.segment.times.time_at(offset), self.rank, offset, kind


class _Back(_Stream):
    def ask(self) -> tuple[list[int], int | None]:
        return self.picker.before(self.segment, self.offset, CHUNK)

    def head(self, offset: int, kind: int) -> _Head:
        at = offset if kind == _LINE else offset - 1  # the others are ends of bytes
        return -self.segment.times.time_at(at), -self.rank, -offset, kind


def _merge(streams: list[_Stream], count: int) -> Places:
    """The first ``count`` lines of all streams. No stream is read before its turn may have come."""
    heap = [(stream.head(stream.offset, _BOUND), stream) for stream in streams]
    heapq.heapify(heap)
    found: list[Place] = []
    while heap and len(found) < count:
        (_, _, offset, kind), stream = heapq.heappop(heap)
        if kind == _EDGE:
            return Places(found, complete=False)
        if kind == _LINE:
            found.append(Place(stream.segment, abs(offset)))
        following = stream.next()
        if following is not None:
            heapq.heappush(heap, (following, stream))
    return Places(found)
