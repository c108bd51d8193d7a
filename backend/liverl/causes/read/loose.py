"""Shapes of lines that are alike but for ids: lines without their digits and the letters a to f, and without the blocks
of which bars are drawn. Pure.

An id in hexadecimal, an address or a UUID leaves nothing behind, and bytes are removed by the megabyte. Two lines of
one loose shape may differ in a word, though: "dead" leaves nothing either. So with each loose shape that is known go
the words that decide about lines and that may be in another line of it: they must not stand in the block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from liverl.causes.needles import Needles

MOST = 1 << 11  # loose shapes that are remembered
LONGEST = 1 << 12  # bytes of one
FEW = 16  # lines that may be unknown before the loose shapes of all are asked for, and
SHARE = 32  # as which part of all
DOUBTFUL = (
    b"\n"  # stands for the loose shape of a line which may be of another kind than the others of its shape
)
_LETTERS = b"0123456789abcdef"
_REMOVED = _LETTERS + bytes({*"\u2588\u2589\u258a\u258b\u258c\u258d\u258e\u258f".encode()})
_REMOVED_TEXT = dict.fromkeys(_LETTERS)


class Words:
    """Words that decide about lines, by what is left of them."""

    def __init__(self, words: Iterable[str]) -> None:
        self._of: dict[str, list[bytes]] = {}
        for word in words:
            self._of.setdefault(word.translate(_REMOVED_TEXT), []).append(word.encode())
        self._always = self._of.pop("", [])
        self._index = Needles(self._of)

    def possible(self, shape: bytes) -> list[bytes]:
        """The words that may stand in a line of a loose shape."""
        found = self._index.of(shape.decode("utf-8", "replace"))
        return [*self._always, *(word for left in found for word in self._of[left])]


class Loose:
    """What is known of lines by their loose shapes. ``ends``: what divides lines, each one byte of it, as a table for
    ``bytes.translate``; None: newlines alone."""

    def __init__(self, words: Words, ends: bytes | None = None) -> None:
        self._words = words
        self._ends = ends
        self._known: dict[bytes, int] = {}
        self._same: dict[bytes, bytes] = {}  # those that are known
        self._without: dict[bytes, tuple[bytes, ...]] = {}  # the words that a line of a shape must not have
        self.get = self._known.get  # what is known of a loose shape

    @staticmethod
    def asks(unknown: int, lines: int) -> bool:
        """Whether so many unknown ones among some lines are worth it to ask for the loose shapes of all of them."""
        return unknown > max(FEW, lines // SHARE)

    def near(self, line: bytes) -> bytes:
        """The loose shape of one line; DOUBTFUL if the line may be of another kind than others of it."""
        shape = line.translate(None, _REMOVED)
        return DOUBTFUL if any(word in line for word in self._without.get(shape, ())) else shape

    def keys(self, loose: Iterable[bytes], shapes: Iterable[bytes]) -> Iterator[bytes]:
        """By what lines are counted: by their loose shapes if these are known, else by their shapes."""
        return map(self._same.get, loose, shapes)

    def change(self, loose: bytes, code: int) -> None:
        """Remember another code for a loose shape, if it is known."""
        if loose in self._known:
            self._known[loose] = code

    def shapes(self, data: bytes) -> list[bytes]:
        """The loose shapes of the lines of a block."""
        return data.translate(self._ends, _REMOVED).split(b"\n")

    def learn(self, shape: bytes, line: bytes, code: int, allowed: Collection[bytes] | None = None) -> bool:
        """Remember what a line of a loose shape is; whether it is remembered. ``allowed``: only if no other words stand
        in it."""
        if shape == DOUBTFUL or len(shape) > LONGEST:
            return False
        if len(self._known) >= MOST:
            self._known.clear()
            self._same.clear()
            self._without.clear()
        words = self._words.possible(shape)
        missing = tuple(word for word in words if word not in line)
        if allowed is not None and any(word in line and word not in allowed for word in words):
            return False
        self._known[shape] = code
        self._same[shape] = shape
        if missing:
            self._without[shape] = missing
        return True

    def doubtful(self, data: bytes, shapes: Sequence[bytes]) -> list[int]:
        """Where in a block a word stands that some line of these shapes must not have."""
        if not self._without:
            return []
        asked = {word for shape in self._without.keys() & set(shapes) for word in self._without[shape]}
        places = []
        for word in asked:
            place = data.find(word)
            while place >= 0:
                places.append(place)
                place = data.find(word, place + 1)
        return places
