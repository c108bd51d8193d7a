"""Log search: patterns that must or must not occur in a line, a minimum level, routine lines left out. Pure."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

from liverl.logs.access_lines import is_access_line, may_have
from liverl.logs.bars import is_training_bar, may_have_training_bar
from liverl.logs.levels import RANK, Levels
from liverl.model import Level

_SPECIAL = frozenset(".^$*+?{}[]\\|()")
# Patterns that also work on lower-case text: letter escapes and flags may require a capital letter.
_FOLDABLE = re.compile(r"(?:[^\\(]|\\(?:[dDsSwWbB]|[^A-Za-z0-9])|\((?!\?)|\(\?[:=!])*")
LONGEST = 32 << 10  # characters of a line searched for a pattern; literal text is found anywhere


class Needle(msgspec.Struct, frozen=True):
    """A regular expression; case-insensitive unless it contains a capital letter.

    ``folded`` is an equivalent pattern for lower-case text, if there is one: matching with IGNORECASE takes
    seven times as long.
    """

    text: str
    pattern: re.Pattern[str]
    folded: re.Pattern[str] | None = None

    @property
    def literal(self) -> str | None:
        """The literal text, if the pattern is nothing else."""
        return self.text if _SPECIAL.isdisjoint(self.text) and self.text.isascii() else None

    def rules_out(self, data: bytes) -> bool:
        """Whether the pattern certainly does not occur in these bytes."""
        literal = self.literal
        if literal is None or b"\x1b" in data or b"\r" in data:  # it may match after these are removed
            return False
        return literal.encode() not in (data.lower() if self.folded is not None else data)

    def among(
        self, lines: Lines, places: Sequence[int] | None = None, *, containing: bool = True
    ) -> list[int]:
        """Return the indexes of lines that contain the pattern, or with ``containing=False`` of those that do not.

        ``places``: indexes of the lines to check; default: all."""
        texts = lines.exact if self.folded is None else lines.lower
        chosen = range(len(texts)) if places is None else places
        literal = self.literal
        if literal is not None:
            return [place for place in chosen if (literal in texts[place]) == containing]
        search = (self.folded or self.pattern).search
        return [place for place in chosen if (search(texts[place], 0, LONGEST) is not None) == containing]


class Lines:
    """The bare lines of a block."""

    def __init__(self, text: str) -> None:
        self.exact = text.split("\n")
        self._text = text

    @cached_property
    def lower(self) -> list[str]:
        """The lines in lower case."""
        return self._text.lower().split("\n")


def needle(text: str) -> Needle:
    """Compile a pattern typed by the user.

    Raises:
        ValueError: it is not a regular expression; the message says where the error is.
    """
    any_case = not any(character.isupper() for character in re.sub(r"\\.", "", text))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pattern = re.compile(text, re.IGNORECASE if any_case else 0)
            folded = any_case and text.isascii() and _FOLDABLE.fullmatch(text) is not None
            return Needle(text, pattern, re.compile(text) if folded else None)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"not a regular expression: {error}") from error


class Picked(NamedTuple):
    """``places``: indexes of the chosen lines; ``left_out``: of the routine lines that would have been chosen."""

    places: list[int]
    left_out: Sequence[int] = ()


class Query(msgspec.Struct, frozen=True):
    """Matches lines that contain all of ``include`` and none of ``exclude``, at ``level`` or above; lines that contain
    any of ``kept`` count as of any level.

    ``without_routine``: access lines of successful polls and model calls (``is_access_line``) and the trainer's
    progress bar (``is_training_bar``) do not match, except those that contain ``spared``.
    """

    include: tuple[Needle, ...] = ()
    exclude: tuple[Needle, ...] = ()
    level: Level | None = None
    without_routine: bool = False
    spared: Needle | None = None
    kept: tuple[str, ...] = ()

    def rules_out(self, data: bytes) -> bool:
        """Whether certainly no line in these bytes matches."""
        return any(needle.rules_out(data) for needle in self.include)

    def pick(self, text: str, before: str) -> Picked:
        """Return the indexes of matching lines of ``text`` (bare, whole lines).

        ``before``: the text above, from which the first lines may inherit their level.
        """
        lines = Lines(text)
        chosen: list[int] | None = None
        for needle in self.include:
            chosen = needle.among(lines, chosen)
        for needle in self.exclude:
            chosen = needle.among(lines, chosen, containing=False)
        if self.level is not None and (chosen is None or chosen):
            reached = _reached(self.level, lines.exact, before, self.kept)
            chosen = reached if chosen is None else sorted(set(chosen).intersection(reached))
        places = list(range(len(lines.exact))) if chosen is None else chosen
        if not self.without_routine or not (may_have(text) or may_have_training_bar(text)):
            return Picked(places)
        left_out = [place for place in places if is_routine(lines.exact[place])]
        if self.spared is not None and left_out:
            left_out = self.spared.among(lines, left_out, containing=False)
        if not left_out:
            return Picked(places)
        missing = set(left_out)
        return Picked([place for place in places if place not in missing], left_out)


def is_routine(line: str) -> bool:
    """Whether a plain line says nothing that is not said elsewhere, or that nobody reads."""
    return is_access_line(line) or is_training_bar(line)


def _reached(level: Level, lines: Sequence[str], before: str, kept: Sequence[str]) -> list[int]:
    """Return the indexes of the lines at ``level`` or above, or with any of ``kept``."""
    levels = Levels(before.split("\n")[:-1])
    least, unnamed = RANK[level], RANK["info"]  # a line without a level counts as info
    return [
        place
        for place, line in enumerate(lines)
        if (unnamed if (own := levels.of(line)) is None else RANK[own]) >= least
        or any(text in line for text in kept)
    ]
