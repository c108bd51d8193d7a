"""All trials of a run in columns: filter and sort over 100,000 of them without a struct for each. No I/O.

A row is a number from 0 on. Numbers of trials stand in arrays, texts that many trials share in tables with an array of
places, what each trial has for itself (its name, prompt, last words) in one text, in which a separator ends each of
them. The parts of a reward stand behind each other; the names of those of a row are one of the shared texts. That is
about 0.4 kB a trial.

Texts of agents and numbers of anybody's files come in by ``put``, which makes them fit: lone halves of UTF-16 pairs are
replaced, and a number without end is as one that is not known. A file of columns may be from anywhere: ``restored``
takes only what ``put`` could have made.
"""

from __future__ import annotations

import math
import operator
import re
import sys
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from liverl.model import TrialHead
from liverl.observe.trials.cut_off import age_of
from liverl.observe.trials.dumps import DUMPS
from liverl.observe.trials.earlier import Earlier, counted
from liverl.observe.trials.ending_words import TRUNCATED
from liverl.observe.trials.phases import PHASES
from liverl.observe.trials.query import (
    EARLIER,
    FIELDS,
    NONE,
    PART,
    SEPARATOR,
    STATE_WORDS,
    NumberField,
    NumberTerm,
    Query,
    Term,
    TextField,
    TextTerm,
    contains,
    earlier_texts,
)

UNKNOWN = float("nan")  # in an array of numbers
VERSION = 6
_VALIDATED = "validated "  # a mark of a trial, before the step after which it validated
_CHUNK = 1 << 20  # bytes of text that are searched at a time
_ROWS = 4096  # rows whose texts are taken apart at a time
_SEPARATOR_BYTES = SEPARATOR.encode()
_OWN = ("name", "group", "preview", "failure")
_PARTS = "parts"  # the names of the parts of a reward
_FINITE = (-sys.float_info.max, sys.float_info.max)
_TIME, _COUNT = (
    (-1e11, 1e11),
    (0.0, 2.0**53),
)  # Unix seconds as ``model.UnixTime``; what a float counts exactly
_BOUNDS = {
    "started": _TIME, "ended": _TIME, "updated": _TIME, "at": _TIME,
    "step": (0.0, 999_999_999.0), "turns": _COUNT, "calls": _COUNT, "tokens": _COUNT,
}  # fmt: skip
_FOLDER = re.compile(rf"trials(\.\d{{1,6}})?(/step_\d{{1,9}})?|{DUMPS}/\d{{1,9}}\.jsonl")
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # of a UTF-16 pair; the others are bytes of a file's name
# Fields of a head that many trials share, with what a filter reads beside them.
_SHARED: dict[str, Callable[[TrialHead], tuple[str, ...]]] = {
    "folder": lambda head: (_split(head)[0],),
    "ended_by": lambda head: () if head.ended_by is None else (head.ended_by,),
    "finish_reason": lambda head: () if head.finish_reason is None else (head.finish_reason,),
    "waits_for": lambda head: (head.waits_for,),
    "spent_on": lambda head: (head.spent_on,),
    "marks": lambda head: (
        (("earlier",) if head.earlier else ())
        + (("repeated",) if head.repeated else ())
        + (("dumped",) if head.dumped else ())
        + ((f"{_VALIDATED}{head.validated}",) if head.validated is not None else ())
    ),
    _PARTS: lambda head: tuple(head.rewards),
    **{
        field.name: field.read
        for field in FIELDS
        if isinstance(field, TextField) and not field.many and field.name != EARLIER
    },
}
_NUMBERS: dict[str, Callable[[TrialHead], float | None]] = {
    "started": lambda head: head.started_at,
    "ended": lambda head: head.ended_at,
    "updated": lambda head: head.updated_at,
    "at": age_of,
    **{field.name: field.read for field in FIELDS if isinstance(field, NumberField)},
}
_FAST: dict[str, Callable[[array[float], float, Iterable[int]], list[int]]] = {
    "<": lambda column, value, rows: [row for row in rows if column[row] < value],
    "<=": lambda column, value, rows: [row for row in rows if column[row] <= value],
    ">": lambda column, value, rows: [row for row in rows if column[row] > value],
    ">=": lambda column, value, rows: [row for row in rows if column[row] >= value],
    "=": lambda column, value, rows: [row for row in rows if column[row] == value],
}


class Stored(msgspec.Struct, frozen=True):
    """The columns as a file has them. ``folders``: see ``TrialIndex.folders``; arrays are in this byte order.
    ``part_ends``: of each row the end of its parts in ``part_values``."""

    version: int
    byteorder: str
    rows: int
    numbers: dict[str, bytes]
    places: dict[str, bytes]
    tables: dict[str, list[tuple[bytes, ...]]]
    part_ends: bytes
    part_values: bytes
    ends: bytes
    texts: bytes
    folders: list[tuple[bytes, int, bool]]


class TrialIndex:
    """Trials by row. ``put`` adds one, or takes the place of the trial with its path.

    ``folders``: folder of trials or verl's dump of a step, relative to the run -> (its modification time in ns when it
    was read, -1: it was not read to its end; whether all of its trials had ended then): what is newer is to be read
    again. Each trial is in one of them.
    """

    def __init__(self) -> None:
        self.folders: dict[str, tuple[int, bool]] = {}
        self._numbers: dict[str, array[float]] = {name: array("d") for name in _NUMBERS}
        self._places: dict[str, array[int]] = {name: array("I") for name in _SHARED}
        self._tables: dict[str, list[tuple[str, ...]]] = {name: [] for name in _SHARED}
        self._known: dict[str, dict[tuple[str, ...], int]] = {name: {} for name in _SHARED}
        self._part_ends, self._part_values = array("Q"), array("d")
        self._ends = array("Q")
        self._texts = bytearray()
        self._in_folder: dict[int, int] = {}  # place of a folder -> number of its trials
        self._dead: set[int] = set()  # rows whose trial has another row now, or is gone
        self._by_path: dict[int, int] | None = None  # hash of a path -> row; made when it is needed

    def __len__(self) -> int:
        """The number of trials."""
        return len(self._ends) - len(self._dead)

    @property
    def rows(self) -> Sequence[int]:
        """All rows, in the order in which they were put."""
        every = range(len(self._ends))
        return [row for row in every if row not in self._dead] if self._dead else every

    @property
    def size(self) -> int:
        """The number of rows, also of those that another one has taken the place of."""
        return len(self._ends)

    def ended(self, row: int) -> bool:
        """Whether the trial had ended by itself when it was put: one that was cut off may still end, if its services
        live on and a backend takes them over."""
        return self._shared("state", row)[0] == "finished"

    def running(self, rows: Iterable[int]) -> list[int]:
        """Those of ``rows`` whose trial runs."""
        places, good = self._places["state"], self._good("state", lambda texts: texts[0] == "running")
        return [row for row in rows if places[row] in good]

    def count(self, folder: str) -> int:
        """The number of trials in a folder."""
        return self._in_folder.get(self._known["folder"].get((folder,), -1), 0)

    def rows_of(self, *folders: str) -> list[int]:
        """The rows of the trials in these folders, in their order."""
        known = self._known["folder"]
        wanted = {known[folder,] for folder in folders if (folder,) in known}
        places = self._places["folder"]
        return [row for row in self.rows if places[row] in wanted] if wanted else []

    # -- changing

    def put(self, head: TrialHead) -> int:
        """Add a trial, or take the place of the one with its path; return its row."""
        by_path = self._paths()
        key, row = hash(as_kept(head.path)), len(self._ends)
        own = (_split(head)[1], head.group, head.preview, head.failure)
        texts = _bytes("".join(f"{text.replace(SEPARATOR, ' ')}{SEPARATOR}" for text in own))
        shared = {name: tuple(map(_clean, of(head))) for name, of in _SHARED.items()}
        numbers = {name: _bounded(of(head), *_BOUNDS.get(name, _FINITE)) for name, of in _NUMBERS.items()}
        for name, value in numbers.items():
            self._numbers[name].append(value)
        for name, words in shared.items():
            self._places[name].append(self._place(name, words))
        self._part_values.extend(_bounded(value, *_FINITE) for value in head.rewards.values())
        self._part_ends.append(len(self._part_values))
        self._texts += texts
        self._ends.append(len(self._texts))
        place = self._places["folder"][row]
        self._in_folder[place] = self._in_folder.get(place, 0) + 1
        self.folders.setdefault(self._shared("folder", row)[0], (-1, False))
        if (before := by_path.get(key)) is not None:
            self._drop(before)
        by_path[key] = row
        return row

    def remove(self, path: str) -> None:
        """Forget the trial with this path."""
        row = self._paths().pop(hash(as_kept(path)), None)
        if row is not None:
            self._drop(row)

    def remove_rows(self, rows: Iterable[int]) -> None:
        """Forget these trials."""
        for row in list(rows):
            self.remove(self.path(row))

    def mark_earlier(self, rows: Iterable[int]) -> None:
        """Mark trials whose step was begun again after them."""
        places, tables = self._places["marks"], self._tables["marks"]
        for row in rows:
            if "earlier" not in (marks := tables[places[row]]):
                places[row] = self._place("marks", ("earlier", *marks))

    def row_of(self, path: str) -> int | None:
        """The row of a trial; None if there is none with this path."""
        return self._paths().get(hash(as_kept(path)))

    def _place(self, name: str, texts: tuple[str, ...]) -> int:
        """The place of texts in a table, which gets them if they are new."""
        place = self._known[name].setdefault(texts, len(self._tables[name]))
        if place == len(self._tables[name]):
            self._tables[name].append(texts)
        return place

    def _drop(self, row: int) -> None:
        self._dead.add(row)
        self._in_folder[self._places["folder"][row]] -= 1

    def _paths(self) -> dict[int, int]:
        if self._by_path is None:
            self._by_path = {hash(self.path(row)): row for row in self.rows}
        return self._by_path

    # -- reading

    def path(self, row: int) -> str:
        """The trial's directory, relative to the run's."""
        folder = self._shared("folder", row)[0]
        name = self._own(row)[0]
        return f"{folder}/{name}" if folder else name

    def head(self, row: int) -> TrialHead:
        """The trial as lists show it: what they do not show is as if it were not known."""
        number, shared = self._number, self._shared
        name, group, preview, failure = self._own(row)
        marks, step = shared("marks", row), number("step", row)
        parts = self._part_values[self._part_ends[row - 1] if row else 0 : self._part_ends[row]]
        rewards = {
            part: value for part, value in zip(shared(_PARTS, row), parts, strict=True) if value == value
        }
        return TrialHead(
            name=name,
            step=None if step is None else int(step),
            task=(shared("task", row) or ("",))[0],
            state=shared("state", row)[0],  # type: ignore[arg-type]
            turns=int(number("turns", row) or 0),
            tool_calls=int(number("calls", row) or 0),
            reward=number("reward", row),
            finish_reason=next(iter(shared("finish_reason", row)), None),
            completion_tokens=int(number("tokens", row) or 0),
            replica=next(iter(shared("replica", row)), None),
            started_at=number("started", row),
            updated_at=number("updated", row) or 0.0,
            flags=shared("flag", row),
            path=self.path(row),
            ended_at=number("ended", row),
            ended_by=next(iter(shared("ended_by", row)), None),
            group=group,
            preview=preview,
            failure=failure,
            earlier="earlier" in marks,
            repeated="repeated" in marks,
            dumped="dumped" in marks,
            validated=next(
                (int(mark.removeprefix(_VALIDATED)) for mark in marks if mark.startswith(_VALIDATED)), None
            ),
            error="".join(shared("error", row)),
            kind="".join(shared("kind", row)),
            cause="".join(shared("cause", row)),
            outcome="".join(shared("outcome", row)),
            waits_for=shared("waits_for", row)[0],
            spent_on=shared("spent_on", row)[0],
            rewards=rewards,
            phases={name: seconds for name in PHASES if (seconds := number(name, row)) is not None},
        )

    def _number(self, name: str, row: int) -> float | None:
        value = self._numbers[name][row]
        return None if value != value else value

    def _shared(self, name: str, row: int) -> tuple[str, ...]:
        return self._tables[name][self._places[name][row]]

    def _own(self, row: int) -> list[str]:
        """The own texts of a trial, in the order of ``_OWN``."""
        begin = self._ends[row - 1] if row else 0
        return self._texts[begin : self._ends[row] - 1].decode("utf-8", "surrogateescape").split(SEPARATOR)

    def _own_of_all(self, place: int) -> list[str]:
        """One of the own texts of each row."""
        found: list[str] = []
        begin = 0
        for first in range(0, len(self._ends), _ROWS):
            end = self._ends[min(first + _ROWS, len(self._ends)) - 1]
            texts = self._texts[begin:end].decode("utf-8", "surrogateescape").split(SEPARATOR)
            found += texts[place : -1 : len(_OWN)]
            begin = end
        return found

    def column(self, name: str) -> Sequence[float]:
        """A number of each row, not a number (NaN) where it is not known: ``at``, or a field of filters."""
        return self._numbers[name]

    # -- filter, sort, count

    def select(self, query: Query, rows: Iterable[int] | None = None) -> list[int]:
        """The rows for which a filter holds, in their order. ``rows``: among which; None: all."""
        found: Iterable[int] = self.rows if rows is None else rows
        if not query.earlier_too:
            found = self._of_attempts(found, lambda texts: "no" in texts)
        for term in query.terms:
            found = self._where(term, found)
        for word in query.words:
            found = self._with_word(word, found)
        return list(found)

    def _where(self, term: Term, rows: Iterable[int]) -> list[int]:
        if isinstance(term, NumberTerm):
            column = self._numbers.get(term.field.name)
            if column is None:
                return self._where_part(term, rows)
            low = -math.inf if term.low is None else term.low
            high = math.inf if term.high is None else term.high
            if term.range and term.operator == "=":
                return [row for row in rows if low <= column[row] <= high]
            fast = None if term.range or term.unknown else _FAST.get(term.operator)
            if fast is not None:
                return fast(column, term.value, rows)
            return [row for row in rows if term.holds(column[row])]
        if term.field.many:
            return self._where_own(term, rows)
        if term.field.name == EARLIER:
            return self._of_attempts(rows, term.holds)
        places, good = self._places[term.field.name], self._good(term.field.name, term.holds)
        return [row for row in rows if places[row] in good]

    def _of_attempts(self, rows: Iterable[int], holds: Callable[[tuple[str, ...]], bool]) -> list[int]:
        """Those of ``rows`` for which the texts of the field ``earlier`` hold."""
        places = self._places["marks"]
        good = self._good("marks", lambda marks: holds(earlier_texts("earlier" in marks)))
        return [row for row in rows if places[row] in good]

    @property
    def earlier(self) -> Earlier:
        """How many trials are of an earlier attempt at their step, or were run again themselves."""
        gone = self._of_attempts(self.rows, lambda texts: "yes" in texts)
        places, tries = self._places["marks"], self._good("marks", lambda marks: "repeated" in marks)
        return counted(len(gone), sum(places[row] in tries for row in gone))

    def _where_part(self, term: NumberTerm, rows: Iterable[int]) -> list[int]:
        part, places = _clean(term.field.name.removeprefix(PART)), self._places[_PARTS]
        at = {place: names.index(part) for place, names in enumerate(self._tables[_PARTS]) if part in names}

        def value(row: int) -> float | None:
            if (number := at.get(places[row])) is None:
                return None
            return self._part_values[(self._part_ends[row - 1] if row else 0) + number]

        return [row for row in rows if term.holds(value(row))]

    def _where_own(self, term: TextTerm, rows: Iterable[int]) -> list[int]:
        place = _OWN.index({"last": "preview"}.get(term.field.name, term.field.name))

        def texts(row: int) -> tuple[str, ...]:
            text = self._own(row)[place]
            return (text,) if text else ()

        if term.value == NONE:
            return [row for row in rows if term.holds(texts(row))]
        found = self._own_with(term.value.lower(), place)
        if not term.operator.endswith("~"):
            found = {row for row in found if term.positive.holds(texts(row))}
        return [row for row in rows if (row in found) is not term.operator.startswith("!")]

    def _good(self, name: str, holds: Callable[[tuple[str, ...]], bool]) -> frozenset[int]:
        return frozenset(place for place, texts in enumerate(self._tables[name]) if holds(texts))

    def _with_word(self, word: str, rows: Iterable[int]) -> list[int]:
        own = self._own_with(word)
        shared = []
        for field in FIELDS:
            if isinstance(field, TextField) and field.searched and not field.many:
                good = self._good(field.name, lambda texts: contains((word,), SEPARATOR.join(texts)))
                if good:
                    shared.append((self._places[field.name], good))
        return [row for row in rows if row in own or any(places[row] in good for places, good in shared)]

    def _own_with(self, word: str, part: int | None = None) -> set[int]:
        """The rows whose own texts have a word. ``part``: the place in ``_OWN`` of the text that has it; None: any."""
        needle, lower = _bytes(word), word == word.lower()
        found: set[int] = set()
        row, rows = 0, len(self._ends)
        while row < rows and needle:
            first, begin = row, self._ends[row - 1] if row else 0
            row = max(row + 1, bisect_right(self._ends, begin + _CHUNK))
            text = bytes(self._texts[begin : self._ends[row - 1]])
            text = _lower(text) if lower else text
            at = text.find(needle)
            while at >= 0:
                hit = bisect_right(self._ends, begin + at, first, row)
                start = self._ends[hit - 1] - begin if hit else 0
                if part is None or text.count(_SEPARATOR_BYTES, start, at) == part:
                    found.add(hit)
                    at = text.find(needle, self._ends[hit] - begin)
                else:
                    at = text.find(needle, at + 1)
        return found

    def named(self, text: str) -> list[int]:
        """The trial at this path; else those with this name; else those whose name has it, whatever its case."""
        if (row := self.row_of(text)) is not None:
            return [row]
        found = [row for row in sorted(self._own_with(text.lower(), 0)) if row not in self._dead]
        exact = [row for row in found if self._own(row)[0] == text]
        return exact or found

    def order(self, rows: Iterable[int], name: str, descending: bool) -> list[int]:
        """``rows`` by a field (see ``FIELDS``) or by ``at`` (when they began); those without a value are last in either
        direction."""
        every = list(rows)
        column, name = self._numbers.get(name), "marks" if name == EARLIER else name
        if column is not None:
            known = [row for row in every if column[row] == column[row]]
            known.sort(key=column.__getitem__, reverse=descending)
            if len(known) == len(every):
                return known
            return known + [row for row in every if column[row] != column[row]]
        if name in self._tables:
            words = [" ".join(texts).casefold() for texts in self._tables[name]]
            ranks = {
                place: rank for rank, place in enumerate(sorted(range(len(words)), key=words.__getitem__))
            }
            places = self._places[name]
            known = [row for row in every if words[places[row]]]
            known.sort(key=lambda row: ranks[places[row]], reverse=descending)
            return known + [row for row in every if not words[places[row]]]
        place = _OWN.index({"last": "preview"}.get(name, name))
        texts = self._own_of_all(place)
        own = {row: texts[row].casefold() for row in every}
        known = sorted((row for row in every if own[row]), key=own.__getitem__, reverse=descending)
        return known + [row for row in every if not own[row]]

    def flagged(self) -> list[int]:
        """The rows of trials with a flag, truncated ones, and those that ended without a turn; not those whose step was
        begun again."""
        flags, ends, marks = self._places["flag"], self._places["finish_reason"], self._places["marks"]
        has_flags, states = self._good("flag", bool), self._places["state"]
        cut = self._good("finish_reason", lambda texts: any(text in TRUNCATED for text in texts))
        earlier = self._good("marks", lambda texts: "earlier" in texts)
        silent = self._good("marks", lambda texts: "dumped" not in texts)
        finished, turns = self._good("state", lambda texts: texts[0] == "finished"), self._numbers["turns"]
        return [
            row
            for row in self.rows
            if marks[row] not in earlier
            and (
                flags[row] in has_flags
                or ends[row] in cut
                or (turns[row] == 0 and states[row] in finished and marks[row] in silent)
            )
        ]

    def rewards(self, rows: Iterable[int]) -> Iterator[float]:
        """The rewards of ``rows`` that have one."""
        column = self._numbers["reward"]
        return (column[row] for row in rows if column[row] == column[row])

    # -- as a file has it

    def stored(self) -> Stored:
        """The columns, without the rows of trials that have another one."""
        rows, whole = self.rows, not self._dead

        def chosen(values: array[Any], ends: array[int] | None = None) -> bytes:
            """The values of ``rows``. ``ends``: where those of each row end; None: it has one."""
            if whole:
                return values.tobytes()
            if ends is None:
                return array(values.typecode, (values[row] for row in rows)).tobytes()
            return b"".join(values[ends[row - 1] if row else 0 : ends[row]].tobytes() for row in rows)

        def closed(ends: array[int]) -> bytes:
            sizes = (ends[row] - (ends[row - 1] if row else 0) for row in rows)
            return ends.tobytes() if whole else array("Q", accumulate(sizes)).tobytes()

        texts = bytes(self._texts)
        return Stored(
            VERSION,
            sys.byteorder,
            len(rows),
            {name: chosen(column) for name, column in self._numbers.items()},
            {name: chosen(places) for name, places in self._places.items()},
            {name: [tuple(map(_bytes, row)) for row in table] for name, table in self._tables.items()},
            closed(self._part_ends),
            chosen(self._part_values, self._part_ends),
            closed(self._ends),
            texts
            if whole
            else b"".join(texts[self._ends[row - 1] if row else 0 : self._ends[row]] for row in rows),
            [(_bytes(folder), *seen) for folder, seen in self.folders.items()],
        )


def _split(head: TrialHead) -> tuple[str, str]:
    """The folder of a trial and its name in it, which may have slashes in a dump."""
    folder = head.path.removesuffix(head.name)
    if head.dumped and folder.endswith("/") and folder != head.path:
        return folder[:-1], head.name
    folder, _, name = head.path.rpartition("/")
    return folder, name


def _bytes(text: str) -> bytes:
    """Text as UTF-8. Bytes of a file's name that are no UTF-8 are as they were; other halves of UTF-16 pairs, for which
    there is no form, become U+FFFD."""
    return _HALF.sub("\ufffd", text).encode("utf-8", "surrogateescape")


def _clean(text: str) -> str:
    """Text as it will be read again."""
    return text if text.isascii() else _bytes(text).decode("utf-8", "surrogateescape")


def as_kept(path: str) -> str:
    """A trial's path as an index has it."""
    return _clean(path).replace(SEPARATOR, " ")


def _bounded(value: float | None, low: float, high: float) -> float:
    """A number as the columns have it; one that is out of its bounds is as one that is not known."""
    try:
        return float(value) if value is not None and low <= value <= high else UNKNOWN
    except OverflowError:
        return UNKNOWN


def _lower(text: bytes) -> bytes:
    """UTF-8 in small letters, as long as before: a letter whose small form has another length stays."""
    if text.isascii():
        return text.lower()
    letters = text.decode("utf-8", "surrogateescape")
    small = (
        a if len(a.encode("utf-8", "surrogateescape")) == len(b.encode("utf-8", "surrogateescape")) else b
        for b in letters
        for a in (b.lower(),)
    )
    return "".join(small).encode("utf-8", "surrogateescape")


def restored(stored: Stored) -> TrialIndex:
    """The index of a file, which may be from anywhere.

    Raises:
        ValueError: it is of another version or byte order, its columns do not fit each other, or ``put`` could not have
            made it.
    """
    if (stored.version, stored.byteorder) != (VERSION, sys.byteorder):
        raise ValueError("it is of another version or machine")
    index = TrialIndex()
    fields = ((stored.numbers, _NUMBERS), (stored.places, _SHARED), (stored.tables, _SHARED))
    if any(set(found) != set(expected) for found, expected in fields):
        raise ValueError("its columns are not those of trials")
    for name, data in stored.numbers.items():
        index._numbers[name] = array("d", data)
    for name, data in stored.places.items():
        index._places[name] = array("I", data)
    for name, table in stored.tables.items():
        index._tables[name] = [
            tuple(text.decode("utf-8", "surrogateescape") for text in row) for row in table
        ]
        index._known[name] = {texts: n for n, texts in enumerate(index._tables[name])}
    index._part_ends, index._part_values = array("Q", stored.part_ends), array("d", stored.part_values)
    index._ends, index._texts = array("Q", stored.ends), bytearray(stored.texts)
    index.folders = {
        folder.decode("utf-8", "surrogateescape"): (mtime, ended) for folder, mtime, ended in stored.folders
    }
    index._in_folder = Counter(index._places["folder"])
    _check_columns(index, stored.rows)
    _check_numbers(index)
    _check_tables(index)
    _check_texts(index)
    return index


def _check_columns(index: TrialIndex, rows: int) -> None:
    """Whether all columns have ``rows`` rows, and point to what is there.

    Raises:
        ValueError: they do not.
    """
    columns: list[Sequence[object]] = [index._ends, index._part_ends]
    columns += [*index._numbers.values(), *index._places.values()]
    lengths = [len(names) for names in index._tables[_PARTS]]
    good = (
        all(len(column) == rows for column in columns)
        and all(max(places, default=-1) < len(index._tables[name]) for name, places in index._places.items())
        and _ends_at(index._ends, len(index._texts))
        and _ends_at(index._part_ends, len(index._part_values))
        and all(
            after - before == lengths[place]
            for before, after, place in zip(
                (0, *index._part_ends), index._part_ends, index._places[_PARTS], strict=False
            )
        )
    )
    if not good:
        raise ValueError("its columns do not fit each other")


def _ends_at(ends: array[int], last: int) -> bool:
    """Whether ``ends`` ascend to ``last``."""
    return (ends[-1] if ends else 0) == last and all(map(operator.le, ends, ends[1:]))


def _check_numbers(index: TrialIndex) -> None:
    """Whether the numbers are such as trials have.

    Raises:
        ValueError: they are not.
    """
    columns = [(column, *_BOUNDS.get(name, _FINITE)) for name, column in index._numbers.items()]
    for column, low, high in (*columns, (index._part_values, *_FINITE)):
        known = [value for value in column if value == value]
        if known and not (low <= min(known) and max(known) <= high):
            raise ValueError("its numbers are not those of trials")


def _check_tables(index: TrialIndex) -> None:
    """Whether the shared texts are such as trials have, and each folder is one that a run may have: a trial's path must
    not lead out of it.

    Raises:
        ValueError: they are not.
    """
    tables = index._tables
    single = all(len(texts) == 1 for name in ("folder", "waits_for", "spent_on") for texts in tables[name])
    states = all(texts and texts[0] in STATE_WORDS for texts in tables["state"])
    parts = all(len(set(names)) == len(names) for names in tables[_PARTS])
    used = {tables["folder"][place][0] for place in set(index._places["folder"])} if single else set()
    folders = index.folders.keys() >= used and all(map(_FOLDER.fullmatch, index.folders))
    if not (single and states and parts and folders):
        raise ValueError("its texts are not those of trials")


def _check_texts(index: TrialIndex) -> None:
    """Whether each row has its own texts, and a trial's name is that of an entry of its folder.

    Raises:
        ValueError: it is not.
    """
    dumped = {n for n, (folder,) in enumerate(index._tables["folder"]) if folder.startswith(f"{DUMPS}/")}
    begin, places = 0, index._places["folder"]
    for first in range(0, len(index._ends), _ROWS):
        ends = index._ends[first : first + _ROWS].tolist()
        texts = bytes(index._texts[begin : ends[-1]]).split(_SEPARATOR_BYTES)
        found = [begin + size for size in accumulate(len(text) + 1 for text in texts[:-1])]
        names = zip(texts[:: len(_OWN)], places[first : first + _ROWS], strict=False)
        if (
            texts[-1]
            or len(texts) != len(_OWN) * len(ends) + 1
            or found[len(_OWN) - 1 :: len(_OWN)] != ends
            or any(
                (b"/" in name or name in (b"", b".", b"..")) and place not in dumped for name, place in names
            )
        ):
            raise ValueError("its texts are not those of trials")
        begin = ends[-1]
