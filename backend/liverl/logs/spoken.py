"""The moment that each line of a log speaks of: its own stamp, within what is known of when it was written.

A time index says of a whole piece of a log, the output of a second or two, by when it had been written. Where several
logs are merged, lines of such a piece would stand in one block, above lines of others with earlier stamps. Within a
piece the stamps of its lines say more; a line without one is as old as the line above it. A stamp that does not lie in
the time of its piece (another time zone, a quoted line) says nothing.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from typing import NamedTuple

from liverl.logs.segment import Segment
from liverl.logs.stamps import own_stamp
from liverl.logs.text import plain

# Bytes of a piece whose lines are looked at; of a larger one all lines count as of its end.
LARGEST = 256 << 10
KEPT = 64  # pieces of a log that are kept
_FIRST_S = 60.0  # seconds that the first piece of a log may have taken
_SLACK_S = 1.0  # a stamp has whole seconds, and an index is made every second
_LINE = 240  # bytes of a line in which its stamp is
_DAY = 86_400.0


class _Piece(NamedTuple):
    """``before`` and ``at``: Unix time within which its bytes were written; ``starts`` of its lines and their
    ``moments``, which never go back; none if nothing in it has a stamp, so that all of it counts as of ``at``.
    ``said``: for each line the stamp of the newest line above it, or its own, as it stands there: by up to
    ``_SLACK_S`` later than ``at``; 0 without one."""

    before: float
    at: float
    end: int
    starts: array[int]
    moments: array[float]
    said: array[float]


class SpokenTimes:
    """The moments of one log. Never go back from line to line, so that logs can be merged by them."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._pieces: OrderedDict[tuple[int, int, float], _Piece] = OrderedDict()

    def at(self, offset: int) -> float:
        """The Unix time of the line that has the byte at ``offset``."""
        piece = self._piece(offset)
        if not piece.starts:
            return piece.at
        place = bisect_right(piece.starts, offset) - 1
        return piece.moments[place] if place >= 0 else piece.before

    def shown_at(self, offset: int) -> float | None:
        """The Unix time to show beside a line without a stamp: its moment, but not before the stamp of the line above,
        which may be a second later than the index. None where nothing tells it: what stood in a log before it was first
        looked at may have been copied."""
        piece = self._piece(offset)
        place = bisect_right(piece.starts, offset) - 1
        above = piece.said[place] if place >= 0 else 0.0
        return max(self.at(offset), above) if above or self._segment.times.tells(offset) else None

    def first_at(self, at: float, *, after: bool = False) -> int | None:
        """The first byte of a line whose moment is ``at`` or later (``after``: later); None if there is none."""
        begin = self._segment.times.first_at(at, after=after)
        if begin is None:
            return None
        piece = self._piece(begin)
        if not piece.starts:
            return begin
        place = (bisect_right if after else bisect_left)(piece.moments, at)
        return piece.starts[place] if place < len(piece.starts) else piece.end

    def _piece(self, offset: int) -> _Piece:
        begin, before, end, at = self._segment.times.around(offset)
        end = self._segment.size if end is None else min(end, self._segment.size)
        key = (begin, end, at)
        found = self._pieces.get(key)
        if found is None:
            found = self._pieces[key] = self._read(begin, before, end, at)
            if len(self._pieces) > KEPT:
                self._pieces.popitem(last=False)
        return found

    def _read(self, begin: int, before: float | None, end: int, at: float) -> _Piece:
        low = before or at - _FIRST_S
        none = _Piece(low, at, end, array("q"), array("d"), array("d"))
        if not self._segment.times.known or not 0 < end - begin <= LARGEST or low >= at:
            return none
        data = self._segment.read(max(0, begin - 1), end - max(0, begin - 1))
        starts, moments, said_above = array("q"), array("d"), array("d")
        place = 0 if begin == 0 else data.find(b"\n") + 1
        base = max(0, begin - 1)
        now, newest, stamped = low, 0.0, False
        while 0 <= place < len(data) and (place > 0 or begin == 0):
            stop = data.find(b"\n", place)
            line = data[place : min(place + _LINE, len(data) if stop < 0 else stop)]
            said = _moment(plain(line.decode("utf-8", "replace")), at)
            if said is not None and low - _SLACK_S <= said <= at + _SLACK_S:
                now, newest, stamped = max(now, min(max(said, low), at)), said, True
            starts.append(base + place)
            moments.append(now)
            said_above.append(newest)
            if stop < 0:
                break
            place = stop + 1
        return none._replace(starts=starts, moments=moments, said=said_above) if stamped else none


def _moment(line: str, near: float) -> float | None:
    """The Unix time of a line's own stamp, on the day that brings it nearest to ``near``; None without one."""
    stamp = own_stamp(line)
    if stamp is None:
        return None
    hours, minutes, seconds = map(int, stamp.split(":"))
    day = time.localtime(near)
    said = time.mktime((*day[:3], hours, minutes, seconds, 0, 0, -1))
    return min((said - _DAY, said, said + _DAY), key=lambda one: abs(one - near))
