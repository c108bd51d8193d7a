"""Which of many records are kept: of each kind the first and the last, so that a flood displaces no other. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec.structs import replace

from liverl.logs.record import Record

# Numbers, addresses, ids: what differs between equal messages
_VARIABLE = re.compile(r"(?<![\w.-])(?=[\w.-]*\d)[\w.-]+")
PASSED = 8  # kinds of errors that ended nothing
_SHAPE = 160  # characters of a message that tell its kind

_Key = tuple[bool, str, str]
_Entry = tuple[int, Record, _Key | None]


class Kept:
    """A bounded choice of records. ``most``: how many; ``has_needle``: whether the catalogue looks for something in a
    record, which is kept before others."""

    def __init__(self, most: int, has_needle: Callable[[Record], bool]) -> None:
        self._most = most
        self._has_needle = has_needle
        self._entries: deque[_Entry] = deque()
        self.left_out = 0

    def add(self, alive: int, record: Record) -> None:
        """Keep a record, which was written after so many healthy signs."""
        self._entries.append((alive, record, None))
        if len(self._entries) > 2 * self._most:
            self._choose()

    def forget(self, before: int) -> list[Record]:
        """Remove and return what was written before so many healthy signs."""
        gone = []
        while self._entries and self._entries[0][0] < before:
            gone.append(self._entries.popleft()[1])
        if not self._entries:
            self.left_out = 0
        return gone

    def all(self) -> list[Record]:
        """Return what is kept, in the order in which it was added."""
        self._choose()
        return [record for _, record, _ in self._entries]

    def _choose(self) -> None:
        if len(self._entries) <= self._most:
            return
        entries = [(alive, record, key or self._key(record)) for alive, record, key in self._entries]
        places: dict[_Key, list[int]] = {}
        for place, (_, _, key) in enumerate(entries):
            places.setdefault(key, []).append(place)
        chosen = self._chosen(places)
        self.left_out += len(entries) - len(chosen)
        self._entries = deque(entries[place] for place in sorted(chosen))

    def _chosen(self, places: dict[_Key, list[int]]) -> list[int]:
        """Return the places of those that stay. ``places``: by kind."""
        share = _share([len(those) for those in places.values()], self._most)
        if share:
            return [place for those in places.values() for place in _ends(those, share)]
        # More kinds than there is room for
        looked_for = sorted(place for key, those in places.items() if key[0] for place in those)
        others = sorted(place for key, those in places.items() if not key[0] for place in those)
        first = _ends(looked_for, max(self._most - len(others), self._most * 3 // 4))
        return [*first, *_ends(others, self._most - len(first))]

    def _key(self, record: Record) -> _Key:
        return self._has_needle(record), record.kind, shape(record)


class Passed:
    """Errors that ended nothing: the first of each kind."""

    def __init__(self) -> None:
        self.more = False  # there were others, which are not counted
        self._kinds: dict[str, Record] = {}

    def add(self, record: Record) -> None:
        """Count a record, if it is an error."""
        if not is_error(record):
            return
        key = shape(record)
        known = self._kinds.get(key)
        if known is not None:
            self._kinds[key] = replace(known, repeated=known.repeated + 1)
        elif len(self._kinds) < PASSED:
            self._kinds[key] = record
        else:
            self.more = True

    def all(self) -> tuple[Record, ...]:
        """Return the first of each kind; ``repeated``: how many more there were."""
        return tuple(self._kinds.values())


def is_error(record: Record) -> bool:
    """Whether it says that something failed: an error by its level, or a traceback."""
    return record.level == "error" or record.kind == "traceback"


def shape(record: Record) -> str:
    """What tells the kind of a message: its beginning without numbers, addresses and ids."""
    text = record.raised[-1].text if record.raised else record.text
    return _without_numbers(text[:_SHAPE])


@lru_cache(maxsize=1024)
def _without_numbers(text: str) -> str:
    return _VARIABLE.sub("#", text)


def _share(sizes: Sequence[int], most: int) -> int:
    """Return how many of each kind may stay if all together may be ``most``; 0 if not even one of each may."""
    left, share = most, 0
    for number, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - number)
        if size > share:
            return share
        left -= size
    return share


def _ends(places: Sequence[int], most: int) -> list[int]:
    """Return the first and the last half of ``places``, at most ``most``."""
    if len(places) <= most:
        return list(places)
    half = most // 2
    return [*places[: most - half], *places[len(places) - half :]]
