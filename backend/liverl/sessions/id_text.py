"""The ids of prompts as JSON, of which each turn adds the end: a prompt of 50,000 ids has 300 KB, and takes 1 ms to
write, while the end of it takes none."""

from __future__ import annotations

import weakref
from array import array
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

# Bytes of the text of all segments, at about 6 for an id: what is beyond is written anew in its next turn.
MOST = 128 << 20


class Texts:
    """The text of growing lists of ids, each known by its owner: what was written of it before is not written again."""

    def __init__(self, most: int = MOST) -> None:
        """``most``: bytes that are kept, of the owners that were asked for last."""
        self._most = most
        self._known: OrderedDict[weakref.ref[object], tuple[int, bytes]] = OrderedDict()  # ids, their text
        self._size = 0

    def of(self, owner: object, ids: array[int]) -> bytes:
        """The ids, with a comma behind each. ``owner``: has the same ids at each call, and perhaps further ones."""
        place = weakref.ref(owner, self._forget)
        count, text = self._known.get(place, (0, b""))
        if count > len(ids):
            return _written(ids)
        if count < len(ids):
            text += _written(ids[count:])
        self._forget(place)
        self._known[place] = len(ids), text
        self._size += len(text)
        while self._size > self._most:
            self._forget(next(iter(self._known)))
        return text

    def _forget(self, place: weakref.ref[object]) -> None:
        _, text = self._known.pop(place, (0, b""))
        self._size -= len(text)

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._size


def _written(ids: Sequence[int]) -> bytes:
    listed = ids.tolist() if isinstance(ids, array) else list(ids)
    return msgspec.json.encode(listed)[1:-1] + b"," if listed else b""


TEXTS = Texts()


class Prompt(array):  # type: ignore[type-arg]
    """The ids of a prompt, of which the first ones are an owner's: see ``Texts``. What is made of it, such as a sum, is
    a mere array."""

    owner: object
    before: array[int]  # the owner's

    @classmethod
    def behind(cls, owner: object, before: array[int], new: Sequence[int]) -> Prompt:
        """``before``, which are the first ids of ``owner``, and the new ones."""
        made = cls("i", before)
        made.extend(array("i", new))
        made.owner, made.before = owner, before
        return made


def ids_json(ids: Sequence[int]) -> bytes:
    """The ids as a list in JSON."""
    if isinstance(ids, Prompt):
        text = TEXTS.of(ids.owner, ids.before) + _written(ids[len(ids.before) :])
    else:
        text = _written(ids)
    return b"[" + text[:-1] + b"]"
