"""The ids of prompts as JSON, of which each turn adds the end: a prompt of 50,000 ids has 300 KB, and takes 1 ms to
write, while the end of it takes none."""

from __future__ import annotations

import weakref
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

# Bytes of the text of all segments, at about 6 for an id: what is beyond is written anew in its next turn.
MOST = 128 << 20


class Texts:
    """The text of growing lists of ids, each known by its owner: what was written of it before is not written again,
    nor copied: it is kept in parts."""

    def __init__(self, most: int = MOST) -> None:
        """``most``: bytes that are kept, of the owners that were asked for last."""
        self._most = most
        self._known: OrderedDict[weakref.ref[object], _Text] = OrderedDict()
        self._size = 0

    def of(self, owner: object, ids: array[int], count: int) -> Sequence[bytes]:
        """The first ``count`` ids in parts, with a comma behind each. ``owner``: has the same ids at each call, and
        perhaps further ones."""
        place = weakref.ref(owner, self._forget)
        known = self._known.get(place) or _Text()
        if known.written > count:
            return [_written(ids[:count])]
        if known.written < count:
            new = _written(ids[known.written : count])
            known = _Text(count, [*known.parts, new], known.size + len(new))
        self._forget(place)
        self._known[place] = known
        self._size += known.size
        while self._size > self._most:
            self._forget(next(iter(self._known)))
        return known.parts

    def _forget(self, place: weakref.ref[object]) -> None:
        known = self._known.pop(place, None)
        self._size -= 0 if known is None else known.size

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._size


class _Text(NamedTuple):
    """``written`` ids, and their text of ``size`` bytes."""

    written: int = 0
    parts: Sequence[bytes] = ()
    size: int = 0


def _written(ids: Sequence[int]) -> bytes:
    listed = ids.tolist() if isinstance(ids, array) else list(ids)
    return msgspec.json.encode(listed)[1:-1] + b"," if listed else b""


TEXTS = Texts()


class Prompt(array):  # type: ignore[type-arg]
    """The ids of a prompt, of which the first ones are an owner's: see ``Texts``. What is made of it, such as a sum, is
    a mere array."""

    owner: object
    before: int  # ids of the owner's

    @classmethod
    def behind(cls, owner: object, before: array[int], new: Sequence[int]) -> Prompt:
        """``before``, which are the first ids of ``owner``, and the new ones."""
        made = cls("i", before)
        made.extend(array("i", new))
        made.owner, made.before = owner, len(before)
        return made


def ids_parts(ids: Sequence[int]) -> list[bytes]:
    """The ids as a list in JSON, in parts of which many are the same objects for the next prompt."""
    parts = [b"["]
    if isinstance(ids, Prompt):
        parts += TEXTS.of(ids.owner, ids, ids.before)
        ids = ids[ids.before :]
    parts.append(_written(ids))
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    if len(parts) > 1:
        parts[-1] = parts[-1][:-1]  # no comma behind the last one
    return [*parts, b"]"]
