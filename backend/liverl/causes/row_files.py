"""Files of rows, in TOML, to the rows of the catalogue; with everything that is wrong with them at once. Pure.

A file is named after the program that prints its lines. ``[[row]]`` holds the fields of ``Signature``. Rows that say
the same of several texts are one: it holds what they share, and ``[[row.text]]`` the fields in ``OF_A_TEXT`` of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import PurePosixPath
from typing import Any, NamedTuple, get_args

import msgspec

from liverl.causes.signature import Signature
from liverl.util.decode import Undecodable, decode_toml
from liverl.util.nearest import did_you_mean

GENERAL = "general/"  # the folder of tools that any host has
OF_THE_FILE = ("printer", "last")  # its name and its folder say them
OF_A_TEXT = ("id", "needle", "pattern", "before", "source", "recorded", "fires", "spares")
_KEYS = tuple(name for name in Signature.__struct_fields__ if name not in OF_THE_FILE)
_SHARED = tuple(
    name for name in _KEYS if name not in ("id", "needle", "pattern", "before", "fires", "spares")
)
_TYPES = {field.name: field.type for field in msgspec.structs.fields(Signature)}
_REQUIRED = tuple(field.name for field in msgspec.structs.fields(Signature) if field.required)
_WHERE_A_ROW_BEGINS = re.compile(r"^\[\[ *row *(?:\. *text *)?\]\]", re.M)
_TOML_PLACE = re.compile(r" \(at line (\d+), column \d+\)$")
_SHOWN = 60  # characters of a wrong value


class Fault(NamedTuple):
    """What is wrong with a row. ``file``: its name below the folder of rows; ``line``: from 1, None if unknown;
    ``row``: its id, or its number in the file; ``key``: empty if it is the whole row; ``problem``: what was found,
    and what was expected."""

    file: str
    line: int | None
    row: str
    key: str
    problem: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.row, self.key, self.problem) if part)


class RowsError(ValueError):
    """Rows that cannot be used; ``str()`` says everything that is wrong with them, a line for each fault."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


class RawRow(NamedTuple):
    """The keys of a row as they stand in its file, unchecked. ``lines``: key -> line."""

    file: str
    line: int | None
    name: str
    keys: Mapping[str, Any]
    lines: Mapping[str, int]

    def fault(self, key: str, problem: str) -> Fault:
        """What is wrong with a key of it."""
        return Fault(self.file, self.lines.get(key, self.line), self.name, key, problem)


class ReadRow(NamedTuple):
    """A row and where it stands."""

    raw: RawRow
    row: Signature

    def fault(self, key: str, problem: str) -> Fault:
        """What is wrong with a key of it."""
        return self.raw.fault(key, problem)


def read_rows(files: Mapping[str, bytes]) -> tuple[Signature, ...]:
    """The rows of ``files`` (name below the folder of rows -> content), in no order that means something.

    Raises:
        RowsError: a file is no TOML, or a row is not as ``Signature`` says.
    """
    faults: list[Fault] = []
    read: list[ReadRow] = []
    for file in sorted(files):
        content = content_of(file, files[file], faults)
        of_the_file = {"printer": PurePosixPath(file).stem, "last": file.startswith(GENERAL)}
        for raw in raw_rows(file, files[file], content, faults):
            read += read_row(raw, of_the_file, faults)
    faults += joint(read, {PurePosixPath(file).stem for file in files}, {fault.row for fault in faults})
    if faults:
        raise RowsError(faults)
    return tuple(one.row for one in read)


def content_of(file: str, data: bytes, faults: list[Fault], keys: Sequence[str] = ("row",)) -> dict[str, Any]:
    """What stands in a file; nothing if it is no TOML. ``keys``: those that it may have at its top."""
    try:
        content: dict[str, Any] = decode_toml(data)
    except Undecodable as error:
        at = _TOML_PLACE.search(error.problem)
        problem = _TOML_PLACE.sub("", error.problem)
        faults.append(Fault(file, error.line or (int(at[1]) if at else None), "", "", f"no TOML: {problem}"))
        return {}
    for key in content:
        if key not in keys:
            faults.append(Fault(file, line_of(data, key), "", key, _unknown(key, keys)))
    return content


def line_of(data: bytes, key: str) -> int | None:
    """The line of a key at the top of a file, from 1; None if it cannot be told."""
    text = data.decode("utf-8", "replace")
    found = re.search(rf"^[ \t]*\[*[ \t]*{re.escape(key)}\b", text, re.M)
    return None if found is None else text.count("\n", 0, found.start()) + 1


def raw_rows(
    file: str,
    data: bytes,
    content: Mapping[str, Any],
    faults: list[Fault],
    more: Sequence[str] = (),
) -> Iterator[RawRow]:
    """The rows of a file, one for each text. ``more``: keys that a text may have, besides those of ``OF_A_TEXT``."""
    of_a_text = (*OF_A_TEXT, *more)
    if "row" not in content:
        return
    rows = content["row"]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        faults.append(Fault(file, None, "", "row", "expected tables that begin with [[row]]"))
        return
    places = iter(list(_places(data.decode(), rows)))  # before the texts are taken out
    for number, row in enumerate(rows, 1):
        texts = row.pop("text", None)
        line, lines = next(places)
        name = str(row.get("id") or f"row {number}")
        if texts is None:
            yield RawRow(file, line, name, row, lines)
            continue
        if isinstance(texts, str) and "text" in more:
            yield RawRow(file, line, name, {**row, "text": texts}, lines)
            continue
        if not isinstance(texts, list) or not texts or not all(isinstance(text, dict) for text in texts):
            faults.append(Fault(file, line, name, "text", "expected tables that begin with [[row.text]]"))
            continue
        for key in row:
            if key not in _SHARED:
                problem = (
                    "it belongs into each [[row.text]]"
                    if key in of_a_text
                    else _unknown(key, (*_SHARED, "text"))
                )
                faults.append(Fault(file, lines.get(key, line), name, key, problem))
        shared = {key: value for key, value in row.items() if key in _SHARED}
        for place, text in enumerate(texts, 1):
            own_line, own = next(places)
            whose = str(text.get("id") or f"{name}, text {place}")
            for key in text:
                if key not in of_a_text:
                    problem = f"it belongs into [[row]]: {_unknown(key, of_a_text)}"
                    faults.append(Fault(file, own.get(key, own_line), whose, key, problem))
            merged = shared | {key: value for key, value in text.items() if key in of_a_text}
            yield RawRow(file, own_line, whose, merged, {**lines, **own})


def read_row(raw: RawRow, of_the_file: Mapping[str, Any], faults: list[Fault]) -> Iterator[ReadRow]:
    """The row, if nothing is wrong with its keys. ``of_the_file``: the values of ``OF_THE_FILE``."""
    found: list[Fault] = []
    for key in raw.keys:
        if key not in _KEYS:
            found.append(raw.fault(key, _unknown(key, _KEYS)))
    meant = "".join(fault.problem for fault in found)
    for key in _REQUIRED:
        if key not in OF_THE_FILE and key not in raw.keys and f"did you mean {key}?" not in meant:
            found.append(Fault(raw.file, raw.line, raw.name, key, "it is missing"))
    known = {key: value for key, value in raw.keys.items() if key in _KEYS}
    try:
        if not found:
            yield ReadRow(raw, msgspec.convert({**known, **of_the_file}, Signature))
            return
        whole = ""
    except msgspec.ValidationError as error:
        whole = str(error)
    wrong = [raw.fault(key, problem) for key, value in known.items() if (problem := _wrong(key, value))]
    if whole and not wrong:
        wrong.append(Fault(raw.file, raw.line, raw.name, "", whole))
    found += wrong
    faults += found


def _wrong(key: str, value: Any) -> str:
    """What is wrong with the value of a key; empty if nothing is."""
    kind = _TYPES[key]
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        shown = repr(value) if len(repr(value)) <= _SHOWN else f"{repr(value)[:_SHOWN]}..."
        choices = [choice for choice in get_args(kind) if isinstance(choice, str) and choice]
        if isinstance(value, str) and choices:
            hint = did_you_mean(value, choices)
            return f"found {shown}, expected one of {', '.join(choices)}{hint and f'; {hint}'}"
        return f"found {shown}: {error}"
    return ""


def _unknown(key: str, keys: Iterable[str]) -> str:
    hint = did_you_mean(key, keys)
    return f"there is no such key; {hint}" if hint else "there is no such key"


def _places(text: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int | None, Mapping[str, int]]]:
    """Of each ``[[row]]`` and ``[[row.text]]``, in their order: its line, and those of its keys. Without lines if they
    cannot be told apart from a text that looks like one."""
    begins = [found.start() for found in _WHERE_A_ROW_BEGINS.finditer(text)]
    wanted = sum(1 + (len(row["text"]) if isinstance(row.get("text"), list) else 0) for row in rows)
    if len(begins) != wanted:
        yield from [(None, {})] * wanted
        return
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=False):
        line = text.count("\n", 0, begin) + 1
        keys: dict[str, int] = {}
        for number, content in enumerate(text[begin:end].split("\n")):
            key, equals, _ = content.partition("=")
            if equals and key.strip().isidentifier():
                keys.setdefault(key.strip(), line + number)
        yield line, keys


def joint(
    read: Sequence[ReadRow],
    printers: Set[str],
    others: Set[str],
    known: Mapping[str, Signature] | None = None,
) -> Iterator[Fault]:
    """What is wrong with rows beside each other, and with fields beside each other. ``others``: ids of rows that
    could not be read, which is told already; ``known``: rows that are right, beside which these are used."""
    known = known or {}
    ids: dict[str, ReadRow] = {}
    for one in read:
        if (other := ids.get(one.row.id)) is not None:
            yield one.fault("id", f"{other.raw.file} has a row of this id, too")
        ids.setdefault(one.row.id, one)
    for one in read:
        row = one.row
        for key in ("of", "before", "supposes"):
            for name in getattr(row, key):
                if name not in ids and name not in others and name not in known:
                    hint = did_you_mean(name, [*ids, *known])
                    yield one.fault(key, f"there is no row {name}{hint and f'; {hint}'}")
        for name in row.supposes:
            other_row = ids[name].row if name in ids else known.get(name)
            if other_row is not None and other_row.supposes:
                yield one.fault(
                    "supposes", f"{name} supposes something itself; expected rows that are certain"
                )
        for name in row.gives_way_to:
            if name not in printers:
                hint = did_you_mean(name, printers)
                yield one.fault("gives_way_to", f"there is no file {name}.toml{hint and f'; {hint}'}")
        yield from _inside(one)
    yield from _circles(ids, known)


def _inside(one: ReadRow) -> Iterator[Fault]:
    row = one.row
    if row.of and row.role != "consequence":
        yield one.fault("of", f"only a consequence comes of other rows, and this is a row of role {row.role}")
    if bool(row.gives_way_to) != (row.effect and row.role != "general"):
        yield one.fault(
            "gives_way_to", "rows with effect = true have it, unless their role is general, and only those"
        )
    if row.slips and not row.alive:
        yield one.fault("slips", "only rows whose process goes on have it (fails: part, command or request)")
    if row.fails == "batch" and row.role != "consequence":
        yield one.fault("fails", f"only a consequence sums up a batch, and this is a row of role {row.role}")
    if row.live is not None and row.live.least <= row.slips:
        yield one.fault("live", f"least is {row.live.least}, and slips says that {row.slips} are no symptom")
    if not row.needle and row.role != "noise":
        yield one.fault("needle", "it is missing: a text that every match contains")


def _circles(ids: Mapping[str, ReadRow], known: Mapping[str, Signature]) -> Iterator[Fault]:
    """Rows that are before each other: in each such circle is one of ``ids``."""
    before = {name: row.before for name, row in known.items()}
    before |= {name: one.row.before for name, one in ids.items()}
    done: set[str] = set()
    for start in ids:
        path: list[str] = []
        waiting = [(start, 0)]
        while waiting:
            name, depth = waiting.pop()
            del path[depth:]
            if name in path:
                circle = [*path[path.index(name) :], name]
                culprit = next(ids[other] for other in circle if other in ids)
                yield culprit.fault("before", f"a circle: {' before '.join(circle)}")
                done.update(circle)
                break
            if name in done or name not in before:
                continue
            path.append(name)
            waiting += [(other, depth + 1) for other in before[name]]
        done.add(start)
