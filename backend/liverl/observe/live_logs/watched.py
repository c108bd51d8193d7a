"""Which rows of the catalogue of causes are looked for in the logs of services that run. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import TypeVar

from liverl.causes.match import Matcher
from liverl.causes.signature import Outline, Signature

# Alerts that count what a row says of a single trial or request, with its message.
COUNTED = frozenset(("trials_failed", "responses_*"))
MOST_DULL = 1 << 18  # bytes of lines that are known to hold nothing

_DIGITS = b"0123456789"
_Row = TypeVar("_Row", Outline, Signature)


class Watched:
    """The rows of a catalogue that are looked for."""

    def __init__(self, catalogue: Matcher) -> None:
        self._catalogue = catalogue
        self.dull = DullLines()

    @cached_property
    def matcher(self) -> Matcher:
        """Which of them a record matches. It unpacks the catalogue: only records that may match one are asked for."""
        return _matcher(self._catalogue)

    @cached_property
    def needles(self) -> tuple[tuple[bytes, bytes], ...]:
        """What they look for, each without its digits and as it is."""
        needles = sorted({row.needle.encode() for row in watched(self._catalogue.outlines())})
        return tuple((needle.translate(None, _DIGITS), needle) for needle in needles)


@lru_cache(maxsize=2)  # a process has one catalogue, or another one with the rules of a site
def _matcher(catalogue: Matcher) -> Matcher:
    """Its index takes as long to make as a thousand records to match."""
    return Matcher(watched(catalogue.rows))


class DullLines:
    """Lines without their digits in which nothing was found that is looked for: logs repeat few lines, and those that
    flood one repeat a single line. They need not be searched again."""

    def __init__(self) -> None:
        self._lines: set[bytes] = set()
        self.size = 0  # in bytes, about

    def others(self, lines: set[bytes]) -> set[bytes]:
        """Those of these lines that are not known."""
        return lines - self._lines

    def add(self, lines: set[bytes]) -> None:
        """Remember lines that are not known, and forget all others when they are too many."""
        size = sum(map(len, lines)) + 64 * len(lines)
        if self.size + size > MOST_DULL:
            self._lines, self.size = set(), 0
        if size <= MOST_DULL:
            self._lines |= lines
            self.size += size


def watched(rows: Iterable[_Row]) -> tuple[_Row, ...]:
    """Rows of processes that go on, and those with limits of their own. What tools of scripts and sandboxes complain of
    tells nothing of a service that prints it and goes on."""
    return tuple(
        one
        for one in rows
        if one.live or (one.alive and one.fails != "command" and one.told_by not in COUNTED)
    )
