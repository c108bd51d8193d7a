"""Which signatures a record matches, with what they captured. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import islice

import msgspec

from liverl.causes import patterns
from liverl.causes.catalogue import outlines, rows
from liverl.causes.needles import Needles
from liverl.causes.signature import Alert, Outline, Signature, outlines_of
from liverl.logs.record import Record

# Characters of a record that are searched: a pattern must not take long on a dump of megabytes
SEARCHED = 64 << 10
NAMES = 100  # names of exceptions in one line, its first ones, behind which it is searched:
EACH = 1024  # characters behind each of them, and all behind the first one
SHORT = 2048  # characters of a text that is searched from its begin to its end
_FORM = re.compile(
    r"(?:[A-Za-z_][\w.]*\.)?[A-Za-z_]\w*(?:\(\w+\))?(?::\s|$)"
)  # "torch.OutOfMemoryError: ..."


class Match(msgspec.Struct, frozen=True):
    """``text``: the line that matched, of an exception its first line with the matched one; ``raised``: the index in
    ``Record.raised`` of the exception that matched, None for a line; ``groups``: what was captured; ``start``: where
    the match begins in the text that was searched."""

    signature: Signature
    text: str
    groups: dict[str, str] = {}
    raised: int | None = None
    start: int = 0


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def find(signature: Signature, text: str) -> re.Match[str] | None:
    """The first match of a row in a text. Of a long text only what is near the row's needle is read: many patterns
    begin with a name of any length, and would try it from each character on."""
    pattern = _compiled(signature.pattern)
    reach = _reach(signature.pattern, signature.needle) if len(text) > SHORT else None
    if reach is None:
        return pattern.search(text)
    first = text.find(signature.needle)
    if first < 0:
        return None
    end = text.rfind(signature.needle) + len(signature.needle) + reach
    return pattern.search(text, max(0, first - reach), end)


def _digits_tell(pattern: str, text: str) -> bool:
    loose = _of_any_digits(pattern)
    if loose == pattern:
        return False
    # What is told by several lines is not asked of one
    return (
        "(?!" in pattern
        or "(?<!" in pattern
        or "\\n" in pattern
        or "\\s\\S" in pattern
        or "(?s" in pattern
        or _compiled(loose).search(text) is not None
    )


@cache
def _of_any_digits(pattern: str) -> str:
    return patterns.of_any_digits(pattern)


@cache
def _reach(pattern: str, needle: str) -> int | None:
    return patterns.reach(pattern, needle)


class Matcher:
    """A catalogue in use: its rows by their ids, and which of them a record matches. Whoever judges logs is given one:
    ours, or ours with the rules of a site (``causes.rules``).

    Records are matched against ``signatures``: only those are asked whose needle stands in a record. They are indexed,
    and got if a function gives them, when they are first needed: most backends never judge a log. ``outlines`` gives
    those of the rows without getting these."""

    def __init__(
        self,
        signatures: Sequence[Signature] | Callable[[], Sequence[Signature]],
        outlines: Callable[[], Sequence[Outline]] | None = None,
    ) -> None:
        self._signatures, self._outlines = signatures, outlines

    @cached_property
    def rows(self) -> Sequence[Signature]:
        """Its rows; their order means nothing."""
        return self._signatures() if callable(self._signatures) else self._signatures

    def outlines(self) -> Sequence[Outline]:
        """The outlines of its rows, made at each call."""
        return outlines_of(self.rows) if self._outlines is None else self._outlines()

    @cached_property
    def _index(self) -> Needles:
        return Needles(one.needle for one in self.rows)

    @cached_property
    def _of_needle(self) -> Mapping[str, list[Signature]]:
        found: dict[str, list[Signature]] = {}
        for one in self.rows:
            found.setdefault(one.needle, []).append(one)
        return found

    @cached_property
    def by_id(self) -> Mapping[str, Signature]:
        """Its rows by their id."""
        return {row.id: row for row in self.rows}

    @cached_property
    def needles(self) -> tuple[str, ...]:
        """What its rows look for first, without those that contain another one."""
        every = {row.needle for row in self.rows if row.needle}
        index = Needles(every)
        return tuple(sorted(one for one in every if set(index.of(one)) == {one}))

    def digits_tell(self, text: str) -> bool:
        """Whether digits in ``text``, a line, may decide which rows match it, or a record with it."""
        return any(
            _digits_tell(row.pattern, text)
            for needle in self._index.of(text)
            for row in self._of_needle[needle]
        )

    def told_by(self, cause: str) -> Alert:
        """The alert that tells the same as a row (its id), from better facts; empty if there is none, or no such
        row."""
        row = self.by_id.get(cause)
        return "" if row is None else row.told_by

    def of(self, record: Record) -> tuple[Match, ...]:
        """Every row that ``record`` matches, each once: by the first exception of the chain, or the first line, in
        which it is found. They stand as their texts do in the record, but each before those that its ``before``
        names."""
        whole = record.whole[:SEARCHED]
        # Of a long record only the ends are kept as lines, while its exceptions are all there.
        texts = (whole, *(one.text for one in record.raised))
        needles = {"", *(needle for text in texts for needle in self._index.of(text))}
        asked = (one for needle in needles for one in self._of_needle.get(needle, ()))
        found = (_match(record, whole, one) for one in asked)
        return _ordered([match for match in found if match is not None])


def _ordered(found: Sequence[Match]) -> tuple[Match, ...]:
    """As they stand in the record, those of general tools last; each before those that its row's ``before`` names."""
    if len(found) < 2:
        return tuple(found)
    earlier: dict[str, list[Match]] = {}
    for match in found:
        for name in match.signature.before:
            earlier.setdefault(name, []).append(match)
    placed: dict[str, Match] = {}

    def place(match: Match) -> None:
        if match.signature.id not in placed:
            for one in earlier.get(match.signature.id, ()):
                place(one)
            placed[match.signature.id] = match

    for match in sorted(found, key=_place):
        place(match)
    return tuple(placed.values())


def _place(match: Match) -> tuple[bool, int, int, str]:
    row = match.signature
    return (row.last, -1 if match.raised is None else match.raised, match.start, row.id)


# Where the name of an exception begins within a line
_NAMES = re.compile(r"(?<=[\s\"'(])(?=[\w.]*[A-Z]\w*(?:Error|Exception|Timeout)\b)")


@cache
def whole() -> Matcher:
    """The matcher of the whole catalogue."""
    return Matcher(rows, outlines)


def _match(record: Record, whole: str, signature: Signature) -> Match | None:
    if signature.where == "exception":
        for index, raised in enumerate(record.raised):
            text = raised.text[:SEARCHED]
            if found := find(signature, text):
                return Match(signature, _quoted(text, found), _groups(found), index, found.start())
        for start, line in _lines_of_exceptions(record, whole):
            if found := find(signature, line):
                return Match(signature, line.strip(), _groups(found), start=start + found.start())
        return None
    found = find(signature, whole)
    if found is None:
        return None
    for index, raised in enumerate(record.raised):
        if inner := find(signature, raised.text[:SEARCHED]):
            return Match(signature, _quoted(raised.text, inner), _groups(inner), index, inner.start())
    if signature.pattern.startswith(r"\A"):  # it reads the frames before its line, and ends in that line
        line = _line(whole, found.end() - 1)
        place = next((index for index, one in enumerate(record.raised) if line in one.text), None)
        return Match(signature, line, _groups(found), place, found.end())
    line = _line(whole, found.start())
    if (
        line.endswith(":") and "\n" in found.group().strip()
    ):  # "Last error:" says nothing without what follows
        line = f"{line} {_line(whole, found.end() - 1)}"
    return Match(signature, line, _groups(found), start=found.start())


def _line(text: str, at: int) -> str:
    at += text.startswith("\n", at)
    end = text.find("\n", at)
    return text[text.rfind("\n", 0, at) + 1 : end if end >= 0 else None].strip()


def _lines_of_exceptions(record: Record, whole: str) -> Iterator[tuple[int, str]]:
    """What follows the name of an exception within lines, and where it begins: some are logged without their
    traceback."""
    if record.raised:
        return
    at = 0
    for line in whole.split("\n"):
        stripped = line.strip()
        begin = at + len(line) - len(line.lstrip())
        at += len(line) + 1
        if _FORM.match(stripped):
            yield begin, stripped
        elif stripped:
            for number, place in enumerate(islice(_NAMES.finditer(stripped), NAMES)):
                start = place.start()
                yield begin + start, stripped[start : start + EACH if number else None]


def _quoted(text: str, found: re.Match[str]) -> str:
    """The first line of an exception, joined with that in which the match begins if it is another."""
    first, _, rest = text.partition("\n")
    at = found.start()
    if at <= len(first) or not rest:
        return first.strip()
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return f"{first.strip().rstrip(':')}: {text[start : end if end >= 0 else None].strip()}"


def _groups(found: re.Match[str]) -> dict[str, str]:
    return {name: " ".join(value.split()) for name, value in found.groupdict().items() if value is not None}
