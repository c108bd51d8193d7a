"""Facts about a regular expression, read from how Python parses it: what every match contains, which groups it always
captures, and how long a search can take. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

LONG = 1000  # characters: a longer repetition counts as one without end
# What a search may try from each place where a match can begin: with it, 64 KiB of the worst text take about a second.
MOST_STEPS = 1000
MOST_REACH = 8192  # characters: a search that may look farther reads all of a text
_ENDLESS = 10**9  # steps: more are not counted
_AT_ONCE = 16  # literal characters that count as one step
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}


def literals(pattern: str) -> list[str]:
    """The strings that every match contains, each as long as possible."""
    parsed = parser.parse(pattern)
    if parsed.state.flags & re.I:
        return []
    runs = [""]
    _literals(parsed, runs)
    return [run for run in runs if run]


def _literals(items: Any, runs: list[str]) -> None:
    for code, argument in items:
        if code is codes.LITERAL:
            runs[-1] += chr(argument)
        elif code is codes.SUBPATTERN and not argument[1] & re.I:
            _literals(argument[3], runs)
        elif code not in (codes.ASSERT, codes.ASSERT_NOT, codes.AT):
            runs.append("")


def reach(pattern: str, needle: str) -> int | None:
    """How far from the places of ``needle`` a search must look, in characters: each match begins at most so far before
    one, and reads at most so far behind one. None if it may be farther than ``MOST_REACH``, or the needle is not sure
    to stand within the match."""
    if not needle or not any(needle in run for run in literals(pattern)):
        return None
    parsed = parser.parse(pattern)
    width = int(parsed.getwidth()[1]) + sum(_ahead(parsed)) + 1
    return width if width <= MOST_REACH else None


def _ahead(items: Any) -> Iterator[int]:
    """The widths of the lookarounds, which a match does not contain."""
    for code, argument in items:
        if code in (codes.ASSERT, codes.ASSERT_NOT):
            yield int(argument[1].getwidth()[1])
            yield from _ahead(argument[1])
        elif code is codes.SUBPATTERN:
            yield from _ahead(argument[3])
        elif code is codes.ATOMIC_GROUP:
            yield from _ahead(argument)
        elif code in _REPEATS:
            yield from _ahead(argument[2])
        elif code is codes.BRANCH:
            for branch in argument[1]:
                yield from _ahead(branch)
        elif code is codes.GROUPREF_EXISTS:
            for branch in argument[1:]:
                yield from _ahead(branch or ())


# One item of a pattern as it is written; an escape, a repetition and a group's name may have digits that mean no digit
_ITEM = re.compile(
    r"\\(?:x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|.)|\{\d{0,9},?\d{0,9}\}|\(\?P[<=]\w{1,99}"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<digit>\d)|.",
    re.DOTALL,
)


def of_any_digits(pattern: str) -> str:
    """The pattern with any digit in place of each one that it names: what it does not match, no text matches that has
    other digits. The pattern itself if it names none."""
    return _ITEM.sub(_any_digit, pattern)


def _any_digit(item: re.Match[str]) -> str:
    if item["digit"]:
        return r"\d"
    those = item["set"]
    if not those or those.startswith("[^") or not any(map(str.isdigit, those)):
        return item[0]
    return f"{those[:-1]}\\d]"


def certain_groups(pattern: str) -> set[str]:
    """The named groups that take part in every match."""
    parsed = parser.parse(pattern)
    names = {number: name for name, number in parsed.state.groupdict.items()}
    return {names[number] for number in _certain(parsed) if number in names}


def _certain(items: Any) -> Iterator[int]:
    for code, argument in items:
        if code is codes.SUBPATTERN:
            if argument[0] is not None:
                yield argument[0]
            yield from _certain(argument[3])
        elif code in _REPEATS and argument[0] > 0:
            yield from _certain(argument[2])


def not_linear(pattern: str) -> str:
    """Why a search with a pattern may take more than ``MOST_STEPS`` steps for each character of a text, in words with
    what to write instead; empty if it cannot.

    Steps are counted by structure, for the worst text: a repetition multiplies what follows it by the number of its
    lengths, unless a character follows that it cannot match. So bounded repetitions that multiply each other are
    refused, too.

    Raises:
        re.error: it is no regular expression.
    """
    parsed = parser.parse(pattern)
    problem = next(_refused(parsed), "")
    if problem:
        return problem
    steps, _ = _steps(parsed, 0, "")
    if steps <= MOST_STEPS:
        return ""
    many = "more than a million" if steps > 10**6 else f"up to {steps:,}"
    return (
        f"it may try {many} ways to match from one character on, and {MOST_STEPS:,} are allowed: make its repetitions "
        r"shorter, or let each end at a character that it cannot match, as in (?P<disk>\w{1,60}) of"
    )


def _refused(items: Any) -> Iterator[str]:
    """What may stand nowhere in a pattern."""
    for code, argument in items:
        if code in _REPEATS:
            least, most, repeated = argument
            if most > LONG:
                yield (
                    "a repetition without end (*, + or {n,}) may take more than linear time: "
                    f"write how many there may be, at most {LONG}, such as {{{least},200}}"
                )
            if most > 1 and _varies(repeated):
                yield "a repetition inside another one may take more than linear time: write it out, or use {n}"
            yield from _refused(repeated)
        elif code in (codes.GROUPREF, codes.GROUPREF_EXISTS):
            yield "a reference to an earlier group may take more than linear time: repeat its pattern instead"
        elif code is codes.SUBPATTERN:
            yield from _refused(argument[3])
        elif code is codes.ATOMIC_GROUP:
            yield from _refused(argument)
        elif code is codes.BRANCH:
            for branch in argument[1]:
                yield from _refused(branch)
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _refused(argument[1])


def _varies(items: Any) -> bool:
    """Whether a part of a pattern can match one text in several ways, or texts of several lengths."""
    for code, argument in items:
        if code in _REPEATS:
            if argument[0] != argument[1] or _varies(argument[2]):
                return True
        elif code is codes.BRANCH:
            return True
        elif code in (codes.SUBPATTERN, codes.ASSERT, codes.ASSERT_NOT):
            if _varies(argument[3 if code is codes.SUBPATTERN else 1]):
                return True
        elif code is codes.ATOMIC_GROUP and _varies(argument):
            return True
    return False


def _steps(items: Any, after: int, follows: str) -> tuple[int, str]:
    """How many steps a match of ``items`` takes at most, with what follows, and the character that it begins with.

    ``after``: the steps of what follows; 0: nothing does that can fail. ``follows``: the character that this begins
    with, empty if it may be any.
    """
    run = 0  # literal characters in a row, which are compared at once
    for code, argument in reversed(list(items)):
        run = run + 1 if code is codes.LITERAL else 0
        if code in _REPEATS:
            least, most, repeated = argument
            after = _repeated(least, most, repeated, after, follows)
            follows = ""
        elif code is codes.SUBPATTERN:
            after, follows = _steps(argument[3], after, follows)
        elif code is codes.ATOMIC_GROUP:
            after, follows = _steps(argument, after, follows)
        elif code is codes.BRANCH:
            # Each branch may be followed by all that follows.
            after, follows = sum(_steps(branch, max(1, after), follows)[0] for branch in argument[1]), ""
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            after, follows = after + 1 + _steps(argument[1], 1, "")[0], ""
        elif code is codes.AT:
            after, follows = after + 1, ""
        else:
            after += run == 0 or run % _AT_ONCE == 1
            follows = chr(argument) if code is codes.LITERAL else ""
        after = min(after, _ENDLESS)
    return after, follows


def _repeated(least: int, most: int, repeated: Any, after: int, follows: str) -> int:
    """``_steps`` of a repetition, in which nothing varies if it may come more than once."""
    if most == 1:
        return after + _steps(repeated, after, follows)[0]
    each = max(1, _steps(repeated, 0, "")[0])
    if not after:
        return int(least * each)
    ends = bool(follows) and len(repeated) == 1 and not _holds(repeated[0], follows)
    return int(most * each + (after if least == most or ends else after * (most - least + 1)))


def _holds(item: Any, character: str) -> bool:
    """Whether an item that matches one character may match this one, in whatever case and mode."""
    code, argument = item
    cases = (character, character.lower(), character.upper())
    if code is codes.LITERAL:
        return chr(argument) in cases
    if code is codes.NOT_LITERAL:
        return cases != (chr(argument),) * 3
    if code is not codes.IN:
        return True
    members = list(argument)
    negated = members[0][0] is codes.NEGATE
    return any(negated != any(_is_member(member, one) for member in members[negated:]) for one in cases)


def _is_member(member: Any, character: str) -> bool:
    code, argument = member
    if code is codes.LITERAL:
        return chr(argument) == character
    if code is codes.RANGE:
        low, high = argument
        return bool(low <= ord(character) <= high)
    if code is codes.CATEGORY and argument in _CATEGORIES:
        return re.match(_CATEGORIES[argument], character) is not None
    return True
