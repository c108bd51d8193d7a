"""Several log files read as one: the generations of a service in sequence, or several services merged by
time."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from liverl.logs.picking import EVERY_LINE, Picker
from liverl.logs.segment import Segment
from liverl.logs.spoken import SpokenTimes

MARK = -1  # pseudo offset of the separator above a segment's first line
CHUNK = 16  # lines read from one file at a time while merging


class Place(NamedTuple):
    """Position of a line: its file and the byte offset of its start."""

    segment: Segment
    offset: int

    @property
    def separates(self) -> bool:
        """Whether it is the separator above the first line of a file."""
        return self.offset == MARK


class Places(NamedTuple):
    """Positions of lines, in document order. ``complete``: if there are fewer than requested, no further ones
    exist."""

    places: list[Place]
    complete: bool = True


class Document(ABC):
    """Several files in one order."""

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        self.segments = list(segments)

    @abstractmethod
    def key(self, place: Place) -> tuple[float, ...]:
        """Return the sort key of a position."""

    @abstractmethod
    def forward(self, place: Place | None, count: int, picker: Picker = EVERY_LINE) -> Places:
        """Return the first ``count`` picked lines at or after ``place`` (None: from the start)."""

    @abstractmethod
    def back(self, place: Place | None, count: int, picker: Picker = EVERY_LINE) -> Places:
        """Return the last ``count`` picked lines before ``place`` (None: before the end), oldest first."""

    @abstractmethod
    def offset_in(self, segment: Segment, place: Place) -> int:
        """Return how many bytes of ``segment`` come before ``place``."""

    @abstractmethod
    def at_time(self, at: float) -> Place | None:
        """Return the first line written at Unix time ``at`` or later; None if there is none."""

    def time_of(self, place: Place) -> float:
        """Return the Unix time at which the line was written."""
        return place.segment.times.time_at(max(0, place.offset))

    def shown_time_of(self, place: Place) -> float | None:
        """Return the Unix time to show beside a line that says none; None if nothing tells it."""
        return self.time_of(place) if place.segment.times.tells(max(0, place.offset)) else None

    @property
    def end(self) -> float:
        """Return the Unix time at which the newest line was written; 0 if there is none."""
        return max((segment.times.end for segment in self.segments if segment.size), default=0.0)


class Chain(Document):
    """Files in sequence, with a separator between two files."""

    def key(self, place: Place) -> tuple[float, ...]:
        """Order by file, then by offset."""
        return self.segments.index(place.segment), place.offset

    def _marked(self, index: int, picker: Picker) -> bool:
        segment = self.segments[index]
        return picker.marks and (segment.epoch > 0 or any(before.size for before in self.segments[:index]))

    def forward(self, place: Place | None, count: int, picker: Picker = EVERY_LINE) -> Places:
        """See ``Document.forward``; separators are included if the picker shows them."""
        first, offset = (0, MARK) if place is None else (self.segments.index(place.segment), place.offset)
        places: list[Place] = []
        for index in range(first, len(self.segments)):
            segment = self.segments[index]
            if offset == MARK and self._marked(index, picker):
                places.append(Place(segment, MARK))
            offsets, edge = picker.after(segment, max(0, offset), count - len(places))
            places += [Place(segment, at) for at in offsets]
            if len(places) >= count or edge is not None:
                return Places(places[:count], len(places) >= count)
            offset = MARK
        return Places(places)

    def back(self, place: Place | None, count: int, picker: Picker = EVERY_LINE) -> Places:
        """See ``Document.back``; separators are included if the picker shows them."""
        last = len(self.segments) - 1 if place is None else self.segments.index(place.segment)
        limit = None if place is None else place.offset
        places: list[Place] = []
        for index in range(last, -1, -1):
            segment = self.segments[index]
            if limit is None or limit > MARK:
                until = segment.size if limit is None else limit
                offsets, edge = picker.before(segment, until, count - len(places))
                places += [Place(segment, at) for at in offsets]
                if len(places) >= count or edge is not None:
                    return Places(places[::-1], len(places) >= count)
                if self._marked(index, picker):
                    places.append(Place(segment, MARK))
                    if len(places) >= count:
                        break
            limit = None
        return Places(places[::-1])

    def offset_in(self, segment: Segment, place: Place) -> int:
        """See ``Document.offset_in``."""
        if segment is place.segment:
            return max(0, place.offset)
        before = self.segments.index(segment) < self.segments.index(place.segment)
        return segment.size if before else 0

    def at_time(self, at: float) -> Place | None:
        """See ``Document.at_time``."""
        for segment in self.segments:
            offset = segment.times.first_at(at)
            if offset is not None:
                starts = EVERY_LINE.after(segment, offset, 1).offsets
                if starts:
                    return Place(segment, starts[0])
        return None


class Merged(Document):
    """Lines of several files merged by the moment that each speaks of, see ``SpokenTimes``."""

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        super().__init__(segments)
        self._rank = {segment: rank for rank, segment in enumerate(self.segments)}
        self._spoken = {segment: SpokenTimes(segment) for segment in self.segments}

    def time_of(self, place: Place) -> float:
        """See ``Document.time_of``."""
        return self._spoken[place.segment].at(max(0, place.offset))

    def shown_time_of(self, place: Place) -> float | None:
        """See ``Document.shown_time_of``: not before the stamp of the line above."""
        return self._spoken[place.segment].shown_at(max(0, place.offset))

    def key(self, place: Place) -> tuple[float, ...]:
        """Order by time, then by file, then by offset."""
        return self.time_of(place), self._rank[place.segment], place.offset

    def forward(self, place: Place | None, count: int, picker: Picker = EVERY_LINE) -> Places:
        """See ``Document.forward``."""
        streams: list[_Stream] = []
        for rank, segment in enumerate(self.segments):
            offset = 0 if place is None else self.offset_in(segment, place)
            if offset < segment.size:
                streams.append(_Forward(segment, rank, offset, picker, self._spoken[segment]))
        return _merge(streams, count)

    def back(self, place: Place | None, count: int, picker: Picker = EVERY_LINE) -> Places:
        """See ``Document.back``."""
        streams: list[_Stream] = []
        for rank, segment in enumerate(self.segments):
            limit = segment.size if place is None else self.offset_in(segment, place)
            if limit:
                streams.append(_Back(segment, rank, limit, picker, self._spoken[segment]))
        places, complete = _merge(streams, count)
        return Places(places[::-1], complete)

    def offset_in(self, segment: Segment, place: Place) -> int:
        """See ``Document.offset_in``; with equal times the order of the files decides."""
        if segment is place.segment:
            return max(0, place.offset)
        # If so, lines with the same time come before the place
        tie = self._rank[segment] < self._rank[place.segment]
        offset = self._spoken[segment].first_at(self.time_of(place), after=tie)
        return segment.size if offset is None else min(offset, segment.size)

    def at_time(self, at: float) -> Place | None:
        """See ``Document.at_time``."""
        first: list[Place] = []
        for segment in self.segments:
            offset = self._spoken[segment].first_at(at)
            if offset is not None and offset < segment.size:
                first += [Place(segment, start) for start in EVERY_LINE.after(segment, offset, 1).offsets]
        return min(first, key=self.key, default=None)


# Kinds of a stream's head: lower bound of unread lines; a line; not searched yet.
_BOUND, _LINE, _EDGE = range(3)
_Head = tuple[float, int, int, int]  # time, rank, offset (all negated when reading backwards), kind


class _Stream:
    """One file of a merge, read on demand."""

    def __init__(self, segment: Segment, rank: int, offset: int, picker: Picker, spoken: SpokenTimes) -> None:
        self.segment, self.spoken = segment, spoken
        self.rank = rank
        self.offset = offset
        self.picker = picker
        self._queue: list[int] = []
        self._more = True
        self._edge: int | None = None

    def next(self) -> _Head | None:
        """Return the next line, or the limit of what was searched; None at the end."""
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
        """Return the lines after ``offset``, and the limit of the search."""
        raise NotImplementedError

    def head(self, offset: int, kind: int) -> _Head:
        """Return the sort key of an offset within the merge."""
        raise NotImplementedError


class _Forward(_Stream):
    _taken = False

    def ask(self) -> tuple[list[int], int | None]:
        begin, self._taken = self.offset + self._taken, True
        return self.picker.after(self.segment, begin, CHUNK)

    def head(self, offset: int, kind: int) -> _Head:
        return self.spoken.at(offset), self.rank, offset, kind


class _Back(_Stream):
    def ask(self) -> tuple[list[int], int | None]:
        return self.picker.before(self.segment, self.offset, CHUNK)

    def head(self, offset: int, kind: int) -> _Head:
        at = offset if kind == _LINE else offset - 1  # the other kinds are end offsets
        return -self.spoken.at(at), -self.rank, -offset, kind


def _merge(streams: list[_Stream], count: int) -> Places:
    """Return the first ``count`` lines of all streams. A stream is read only when its next line may be due."""
    heap = [(stream.head(stream.offset, _BOUND), stream) for stream in streams]
    heapq.heapify(heap)
    places: list[Place] = []
    while heap and len(places) < count:
        (_, _, offset, kind), stream = heapq.heappop(heap)
        if kind == _EDGE:
            return Places(places, complete=False)
        if kind == _LINE:
            places.append(Place(stream.segment, abs(offset)))
        following = stream.next()
        if following is not None:
            heapq.heappush(heap, (following, stream))
    return Places(places)
