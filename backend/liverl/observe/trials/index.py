"""All trials of a run in columns: filter and sort over 100,000 of them without a struct for each. No I/O.

A row is a number from 0 on. Numbers of trials stand in arrays, texts that many trials share in tables with an array of
places, what each trial has for itself (its name, prompt, last words) in one text. That is about 0.4 kB a trial.
"""

from __future__ import annotations

import os
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import PurePosixPath

import msgspec

from liverl.model import TrialHead
from liverl.observe.trials.cut_off import age_of
from liverl.observe.trials.phases import PHASES
from liverl.observe.trials.query import (
    FIELDS,
    NONE,
    PART,
    NumberField,
    NumberTerm,
    Query,
    Term,
    TextField,
    TextTerm,
    contains,
)
from liverl.observe.trials.trial import TRUNCATED

UNKNOWN = float("nan")  # in an array of numbers
MOST_PARTS = 16  # parts of rewards with an array of their own; the other ones of a trial are left out
VERSION = 2
_CHUNK = 1 << 20  # bytes of text that are searched at a time
_SEPARATOR = "\x1f"  # between the own texts of a trial; it is replaced where a text has it
_SEPARATOR_BYTES = _SEPARATOR.encode()
_OWN = ("name", "group", "preview", "failure")
# Fields of a head that many trials share, with what a filter reads beside them.
_SHARED: dict[str, Callable[[TrialHead], tuple[str, ...]]] = {
    "folder": lambda head: (head.path.rpartition("/")[0],),
    "ended_by": lambda head: () if head.ended_by is None else (head.ended_by,),
    "finish_reason": lambda head: () if head.finish_reason is None else (head.finish_reason,),
    "waits_for": lambda head: (head.waits_for,),
    "spent_on": lambda head: (head.spent_on,),
    "marks": lambda head: (("earlier",) if head.earlier else ()) + (("dumped",) if head.dumped else ()),
    **{field.name: field.read for field in FIELDS if isinstance(field, TextField) and not field.many},
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
    """The columns as a file has them. ``folders``: see ``TrialIndex.folders``; arrays are in this byte order."""

    version: int
    byteorder: str
    rows: int
    numbers: dict[str, bytes]
    places: dict[str, bytes]
    tables: dict[str, list[tuple[bytes, ...]]]
    ends: bytes
    texts: bytes
    folders: list[tuple[bytes, int, bool]]


class TrialIndex:
    """Trials by row. ``put`` adds one, or takes the place of the trial with its path.

    ``folders``: folder of trials, relative to the run -> (its modification time in ns when it was listed, whether all
    of its trials had ended then): what is newer is to be read again.
    """

    def __init__(self) -> None:
        self.folders: dict[str, tuple[int, bool]] = {}
        self._numbers: dict[str, array[float]] = {name: array("d") for name in _NUMBERS}
        self._places: dict[str, array[int]] = {name: array("I") for name in _SHARED}
        self._tables: dict[str, list[tuple[str, ...]]] = {name: [] for name in _SHARED}
        self._known: dict[str, dict[tuple[str, ...], int]] = {name: {} for name in _SHARED}
        self._ends = array("Q")
        self._texts = bytearray()
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

    def rows_of(self, folder: str) -> list[int]:
        """The rows of the trials in a folder."""
        place = self._known["folder"].get((folder,))
        places = self._places["folder"]
        return [] if place is None else [row for row in self.rows if places[row] == place]

    # -- changing

    def put(self, head: TrialHead) -> None:
        """Add a trial, or take the place of the one with its path."""
        by_path = self._paths()
        key = hash(head.path)
        before = by_path.get(key)
        row = len(self._ends)
        numbers = {name: _float(read(head)) for name, read in _NUMBERS.items()}
        rewards = {part: _float(reward) for part, reward in head.rewards.items()}
        for name, value in numbers.items():
            self._numbers[name].append(value)
        for name, of in _SHARED.items():
            texts = of(head)
            place = self._known[name].setdefault(texts, len(self._tables[name]))
            if place == len(self._tables[name]):
                self._tables[name].append(texts)
            self._places[name].append(place)
        for part, reward in rewards.items():
            column = self._part(part, row)
            if column is not None:
                column.append(reward)
        for name, column in self._numbers.items():
            if name.startswith(PART) and len(column) == row:
                column.append(UNKNOWN)
        own = _SEPARATOR.join(str(getattr(head, name)).replace(_SEPARATOR, " ") for name in _OWN)
        self._texts += own.encode("utf-8", "surrogateescape")
        self._ends.append(len(self._texts))
        by_path[key] = row
        if before is not None:
            self._dead.add(before)

    def remove(self, path: str) -> None:
        """Forget the trial with this path."""
        row = self._paths().pop(hash(path), None)
        if row is not None:
            self._dead.add(row)

    def row_of(self, path: str) -> int | None:
        """The row of a trial; None if there is none with this path."""
        return self._paths().get(hash(path))

    def _part(self, name: str, row: int) -> array[float] | None:
        key = f"{PART}{name}"
        if key not in self._numbers:
            if sum(one.startswith(PART) for one in self._numbers) >= MOST_PARTS:
                return None
            self._numbers[key] = array("d", [UNKNOWN]) * row
        return self._numbers[key]

    def _paths(self) -> dict[int, int]:
        if self._by_path is None:
            self._by_path = {hash(self.path(row)): row for row in self.rows}
        return self._by_path

    # -- reading

    def path(self, row: int) -> str:
        """The trial's directory, relative to the run's."""
        folder = self._shared("folder", row)[0]
        name = self._own(row).partition(_SEPARATOR)[0]
        return f"{folder}/{name}" if folder else name

    def head(self, row: int) -> TrialHead:
        """The trial as lists show it: what they do not show is as if it were not known."""
        number, shared = self._number, self._shared
        name, group, preview, failure = self._own(row).split(_SEPARATOR)
        marks, step = shared("marks", row), number("step", row)
        rewards = {
            key[len(PART) :]: column[row]
            for key, column in list(self._numbers.items())
            if key.startswith(PART) and column[row] == column[row]
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
            dumped="dumped" in marks,
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

    def _own(self, row: int) -> str:
        begin = self._ends[row - 1] if row else 0
        return self._texts[begin : self._ends[row]].decode("utf-8", "surrogateescape")

    # -- filter, sort, count

    def select(self, query: Query, rows: Iterable[int] | None = None) -> list[int]:
        """The rows for which a filter holds, in their order. ``rows``: among which; None: all."""
        found: Iterable[int] = self.rows if rows is None else rows
        for term in query.terms:
            found = self._where(term, found)
        for word in query.words:
            found = self._with_word(word, found)
        return list(found)

    def _where(self, term: Term, rows: Iterable[int]) -> list[int]:
        if isinstance(term, NumberTerm):
            column = self._numbers.get(term.field.name)
            if column is None:  # a part of the reward that no trial has
                return list(rows) if term.holds(None) else []
            fast = None if term.range or term.unknown else _FAST.get(term.operator)
            if fast is not None:
                return fast(column, term.value, rows)
            return [row for row in rows if term.holds(column[row])]
        if term.field.many:
            return self._where_own(term, rows)
        places, good = self._places[term.field.name], self._good(term.field.name, term.holds)
        return [row for row in rows if places[row] in good]

    def _where_own(self, term: TextTerm, rows: Iterable[int]) -> list[int]:
        place = _OWN.index({"last": "preview"}.get(term.field.name, term.field.name))

        def texts(row: int) -> tuple[str, ...]:
            text = self._own(row).split(_SEPARATOR)[place]
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
            if isinstance(field, TextField) and not field.many:
                good = self._good(field.name, lambda texts: contains((word,), "\n".join(texts)))
                if good:
                    shared.append((self._places[field.name], good))
        return [row for row in rows if row in own or any(places[row] in good for places, good in shared)]

    def _own_with(self, word: str, part: int | None = None) -> set[int]:
        """The rows whose own texts have a word. ``part``: the place in ``_OWN`` of the text that has it; None: any."""
        needle, lower = word.encode("utf-8", "surrogateescape"), word == word.lower()
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

    def order(self, rows: Iterable[int], name: str, descending: bool) -> list[int]:
        """``rows`` by a field (see ``FIELDS``) or by ``at`` (when they began); those without a value are last in either
        direction."""
        every = list(rows)
        column = self._numbers.get(name)
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
        own = {row: self._own(row).split(_SEPARATOR)[place].casefold() for row in every}
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
        rows = self.rows
        sizes = [self._ends[row] - (self._ends[row - 1] if row else 0) for row in rows]
        whole = not self._dead
        texts = (
            bytes(self._texts)
            if whole
            else b"".join(
                bytes(self._texts[self._ends[row] - size : self._ends[row]])
                for row, size in zip(rows, sizes, strict=True)
            )
        )
        return Stored(
            VERSION,
            sys.byteorder,
            len(rows),
            {
                n: c.tobytes() if whole else array("d", (c[r] for r in rows)).tobytes()
                for n, c in self._numbers.items()
            },
            {
                n: p.tobytes() if whole else array("I", (p[r] for r in rows)).tobytes()
                for n, p in self._places.items()
            },
            {
                name: [tuple(map(os.fsencode, texts)) for texts in table]
                for name, table in self._tables.items()
            },
            array("Q", accumulate(sizes)).tobytes(),
            texts,
            [(os.fsencode(folder), *seen) for folder, seen in self.folders.items()],
        )


def _float(value: float | None) -> float:
    """A number as the columns have it; one that is too large for them is as one that is not known."""
    try:
        return UNKNOWN if value is None else float(value)
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
    """The index of a file.

    Raises:
        ValueError: it is of another version or byte order, or its columns do not fit each other.
    """
    if (stored.version, stored.byteorder) != (VERSION, sys.byteorder):
        raise ValueError("it is of another version or machine")
    index = TrialIndex()
    for name, data in stored.numbers.items():
        index._numbers[name] = array("d", data)
    for name, data in stored.places.items():
        index._places[name] = array("I", data)
    index._tables |= {
        name: [tuple(map(os.fsdecode, texts)) for texts in table] for name, table in stored.tables.items()
    }
    index._known = {
        name: {texts: n for n, texts in enumerate(table)} for name, table in index._tables.items()
    }
    index._ends = array("Q", stored.ends)
    index._texts = bytearray(stored.texts)
    index.folders = {os.fsdecode(folder): (mtime, ended) for folder, mtime, ended in stored.folders}
    columns: list[Sequence[object]] = [index._ends, *index._numbers.values(), *index._places.values()]
    whole = (
        all(len(column) == stored.rows for column in columns) and index._places.keys() == index._tables.keys()
    )
    inside = all(
        not places or max(places) < len(index._tables[name]) for name, places in index._places.items()
    )
    ascending = all(a <= b for a, b in zip(index._ends, index._ends[1:], strict=False))
    if not (whole and inside and ascending and (index._ends[-1] if stored.rows else 0) == len(index._texts)):
        raise ValueError("its columns do not fit each other")
    _check_texts(index)
    return index


def _check_texts(index: TrialIndex) -> None:
    """Whether the texts are such as ``put`` writes them: the file may stand in a directory that somebody else made, and
    a trial's path must not lead out of the run.

    Raises:
        ValueError: they are not.
    """
    tables = index._tables
    single = all(len(texts) == 1 for name in ("folder", "waits_for", "spent_on") for texts in tables[name])
    states = all(texts and texts[0] in ("running", "finished", "cut_off") for texts in tables["state"])
    folders = (PurePosixPath(*texts) for texts in tables["folder"])
    if not (single and states) or any(folder.is_absolute() or ".." in folder.parts for folder in folders):
        raise ValueError("its texts are not those of trials")
    for row in range(len(index._ends)):
        name, *others = index._own(row).split(_SEPARATOR)
        if len(others) != len(_OWN) - 1 or "/" in name or name in ("", ".", ".."):
            raise ValueError("its texts are not those of trials")
