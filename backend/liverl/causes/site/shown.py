"""What is said of rules: what is wrong with them, which lines they match, and what a row says, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from liverl.causes.inputs.places import at_its_line
from liverl.causes.match import Matcher
from liverl.causes.row_files import Fault
from liverl.causes.signature import Role, Signature
from liverl.causes.site.rules import Rules, in_words
from liverl.causes.verdict.words import explained
from liverl.logs.records import RecordReader
from liverl.model import SCHEMA, Evidence
from liverl.util.regular_file import open_binary

BLOCK = 1 << 20  # bytes read at a time
SHOWN = 20  # lines that are named of one row in one log
ROLES: dict[Role, str] = {
    "cause": "it says why something failed, and beats everything that it can explain",
    "waits": "its process only waited for another one: it gives way to an error of that one",
    "general": "any program may say this: it gives way to a cause",
    "consequence": "it only reports that something failed: it counts if nothing else is found",
    "noise": "the line explains nothing",
}


class FaultShown(msgspec.Struct, frozen=True):
    """What is wrong. ``line``: from 1, null if unknown; ``row`` and ``key``: empty for a whole file or row."""

    file: str
    line: int | None
    row: str
    key: str
    problem: str


class RulesChecked(msgspec.Struct, frozen=True):
    """``rules check --json``. ``rules``: how many rows the files have, 0 if something is wrong; ``silenced``: ids of
    rows of ours that they silence."""

    ok: bool
    files: tuple[str, ...]
    rules: int = 0
    silenced: tuple[str, ...] = ()
    faults: tuple[FaultShown, ...] = ()
    schema: int = SCHEMA


class RowListed(msgspec.Struct, frozen=True):
    """A row of ``rules ls --json``. ``rules``: the file of rules that it stands in, empty for one of ours."""

    id: str
    program: str
    role: str
    title: str
    rules: str = ""


class Fired(msgspec.Struct, frozen=True):
    """A line that a rule matches. ``line``: from 1; ``says``: its title, filled; ``beside``: ids of rows that match the
    same record and come before it."""

    id: str
    line: int
    says: str
    text: str
    beside: tuple[str, ...] = ()


class Tried(msgspec.Struct, frozen=True):
    """``fired``: the first ``SHOWN`` lines of each rule; ``counts``: how many each has, by its id."""

    fired: tuple[Fired, ...]
    counts: dict[str, int]


def faults_shown(faults: Sequence[Fault]) -> tuple[FaultShown, ...]:
    """Faults as JSON has them."""
    return tuple(FaultShown(*fault) for fault in faults)


def listed(rules: Rules, words: Sequence[str] = ()) -> tuple[RowListed, ...]:
    """The rows that have all ``words`` in what they say, by their ids."""
    files = {rule.row.id: rule.file for rule in rules.own}
    wanted = [word.lower() for word in words]
    rows = sorted(rules.rows, key=lambda row: row.id)
    return tuple(
        RowListed(row.id, row.printer, row.role, in_words(row), files.get(row.id, ""))
        for row in rows
        if _has(row, wanted)
    )


def _has(row: Signature, words: Sequence[str]) -> bool:
    said = " ".join((row.id, row.printer, row.title, row.cause, row.fix, row.needle, row.fires)).lower()
    return all(word in said for word in words)


def tried(rules: Rules, log: Path, told: Callable[[int], None] = lambda _: None) -> Tried:
    """Which lines of a log the site's rules match. ``told``: gets the bytes that were read so far.

    Raises:
        OSError: the log cannot be read.
    """
    own = Matcher([rule.row for rule in rules.own])
    every = Matcher(rules.rows)
    counts: dict[str, int] = {rule.row.id: 0 for rule in rules.own}
    found: list[tuple[int, Fired]] = []
    with open_binary(log) as file:
        reader = RecordReader()
        at = 0
        while True:
            block = file.read(BLOCK)
            at += len(block)
            for record in reader.feed(block) if block else reader.end():
                for match in own.of(record):
                    row = match.signature
                    counts[row.id] += 1 + record.repeated
                    if counts[row.id] > SHOWN:
                        continue
                    order = [one.signature.id for one in every.of(record)]
                    says = explained(match, ()).title
                    beside = tuple(order[: order.index(row.id)])
                    quoted = at_its_line(
                        Evidence(match.text, str(log), record.offset), log, record.end - record.offset
                    )
                    found.append((quoted.offset or 0, Fired(row.id, 0, says, match.text, beside)))
            told(at)
            if not block:
                break
    found.sort(key=lambda one: one[0])
    return Tried(tuple(_numbered(log, found)), counts)


def _numbered(log: Path, found: Sequence[tuple[int, Fired]]) -> Iterator[Fired]:
    """With the number of the line that each quotes."""
    line, at = 1, 0
    with open_binary(log) as file:
        for offset, fired in found:
            while at < offset and (data := file.read(min(BLOCK, offset - at))):
                line, at = line + data.count(b"\n"), at + len(data)
            yield msgspec.structs.replace(fired, line=line)


def described(row: Signature, file: str = "") -> str:
    """A row in words: what is looked for, what it means, and what to do. ``file``: the rules that it stands in."""
    where = "in the text of an exception" if row.where == "exception" else "in a line, or a traceback"
    parts = [
        (f"of {row.printer}", f"{row.role}: {ROLES[row.role]}"),
        ("looked for", f"{where}: {row.pattern}"),
        ("for example", row.fires),
        ("but not", row.spares),
        ("it means", row.cause),
        ("what to do", row.fix),
        ("to copy", row.command and f"{row.command}   (it is shown; nothing runs it)"),
        ("to set", ", ".join(f"{key}={value}" for key, value in row.patch.items())),
        ("comes before", ", ".join(row.before)),
        ("gives way to", ", ".join((*row.gives_way_to, *row.supposes))),
        ("severity", row.severity),
        ("source", row.source),
        ("file", file),
    ]
    width = max(len(name) for name, text in parts if text)
    lines = [f"{row.id}: {row.title}"]
    for name, text in parts:
        if text:
            first, *more = text.split("\n")
            lines.append(f"  {name:<{width}}  {first}")
            lines += [f"  {'':<{width}}  {line}" for line in more]
    return "\n".join(lines)
