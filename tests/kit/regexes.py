"""Facts about a regular expression that only tests ask for: ``liverl.causes.patterns`` has the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from liverl.causes.patterns import LONG


def without_lookarounds(pattern: str) -> Iterator[str]:
    """The pattern once without each of its lookarounds."""
    for match in re.finditer(r"(?<!\\)\(\?<?[!=]", pattern):
        yield pattern[: match.start()] + pattern[_group_end(pattern, match.start()) :]


def _group_end(pattern: str, place: int) -> int:
    depth, in_class = 0, False
    while place < len(pattern):
        character = pattern[place]
        if character == "\\":
            place += 1
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character in "()":
            depth += 1 if character == "(" else -1
            if not depth:
                return place + 1
        place += 1
    raise ValueError(f"no end of the group: {pattern}")


def unbounded(pattern: str) -> list[str]:
    """Why a search may take more than linear time: an unbounded repetition in a pattern that can begin anywhere, or
    one inside another repetition. A pattern that begins with \\A is tried once, so it may read on to the end."""
    parsed = list(parser.parse(pattern))
    anchored = bool(parsed) and parsed[0] == (codes.AT, codes.AT_BEGINNING_STRING)
    return list(_unbounded(parsed, anchored, False))


def _unbounded(items: Any, anchored: bool, inside: bool) -> Iterator[str]:
    for code, argument in items:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            _, most, repeated = argument
            if most > LONG and (inside or not anchored):
                how = "without an end" if most == codes.MAXREPEAT else f"up to {most} times"
                yield f"repeats {how}: write how many there may be, at most {LONG}, such as {{1,200}}"
            yield from _unbounded(repeated, anchored, inside or most > 8)
        elif code is codes.SUBPATTERN:
            yield from _unbounded(argument[3], anchored, inside)
        elif code is codes.BRANCH:
            for branch in argument[1]:
                yield from _unbounded(branch, anchored, inside)
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _unbounded(argument[1], anchored, inside)


def begins_without_end(pattern: str | bytes, flags: int = 0) -> bool:
    """Whether a search may take more than linear time, since it begins with an unbounded repetition behind which it can
    fail: a long run of such characters is then read again from each of its characters. A word boundary keeps it from
    beginning within a word, a lookbehind from beginning anywhere."""
    return _begins(list(parser.parse(pattern, flags)), word_begins=False)


def _begins(items: list[Any], *, word_begins: bool) -> bool:
    for place, (code, argument) in enumerate(items):
        rest = items[place + 1 :]
        if code is codes.AT:
            if argument is not codes.AT_BOUNDARY:
                return False
            word_begins = True
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            if argument[0] < 0:
                return False
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            least, most, repeated = argument
            if most > LONG:
                return _can_fail(rest) and not (word_begins and _within_words(list(repeated)))
            if _begins(list(repeated), word_begins=word_begins):
                return True
            if least:
                return False
        elif code is codes.SUBPATTERN:
            return _begins([*argument[3], *rest], word_begins=word_begins)
        elif code is codes.BRANCH:
            return any(_begins([*branch, *rest], word_begins=word_begins) for branch in argument[1])
        else:
            return False
    return False


def _can_fail(items: list[Any]) -> bool:
    for code, argument in items:
        if code is codes.SUBPATTERN:
            if _can_fail(list(argument[3])):
                return True
        elif code not in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT) or argument[0]:
            return True
    return False


def _within_words(repeated: list[Any]) -> bool:
    """Whether all characters of a repeated class are parts of words."""
    if len(repeated) != 1 or repeated[0][0] is not codes.IN:
        return False
    return all(
        (code is codes.CATEGORY and argument in (codes.CATEGORY_WORD, codes.CATEGORY_DIGIT))
        or (code is codes.RANGE and re.fullmatch(r"\w\w", "".join(map(chr, argument))) is not None)
        or (code is codes.LITERAL and re.fullmatch(r"\w", chr(argument)) is not None)
        for code, argument in repeated[0][1]
    )
