"""Rules: rows that a site or a user keeps beside ours, checked when they are read. Pure.

A file of rules has the form of a file of ours (``row_files``), and four things more. ``text``: a plain text in place of
``needle`` and ``pattern``. ``needle`` may be left out: it is then the longest text that every match contains.
``replaces``: the id of a row of ours, of which this one changes the fields that it has. ``silence``, at the top of a
file: ids of rows of ours that are not to be used.

A rule names a cause. It carries no command that is run (its ``command`` is shown, to be copied) and no ``patch``, and
its pattern must be linear by structure: what somebody else wrote must neither run nor stall anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

from liverl.causes.match import Matcher
from liverl.causes.patterns import certain_groups, literals, not_linear
from liverl.causes.row_files import (
    OF_THE_FILE,
    Fault,
    RawRow,
    ReadRow,
    RowsError,
    content_of,
    joint,
    line_of,
    raw_rows,
    read_row,
)
from liverl.causes.signature import Signature
from liverl.causes.verdict.unexplained import OTHER_ERROR, REQUESTS_FAILED, UNEXPLAINED
from liverl.causes.verdict.words import filled
from liverl.logs.record import Record
from liverl.logs.records import RecordReader
from liverl.util.nearest import did_you_mean

TITLE = 80  # characters of a title at most
NEEDLE = 4  # letters and other signs, without digits and blanks, that what is looked for has at least
LONGEST = 100_000  # characters of ``fires`` and ``spares``
_TOP = ("row", "silence")
_MORE = ("text", "replaces")
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
# Verdicts without a row
_TAKEN = UNEXPLAINED | {OTHER_ERROR, REQUESTS_FAILED, "not-all-read", "run-not-asked", "run-failed"}
_GROUP = re.compile(r"\{(\w+)\}")
_TEXTS = ("title", "cause", "fix", "command", "ended_process")


class Rule(NamedTuple):
    """A row of a file of rules. ``file``: as it was given; ``line``: from 1, None if unknown; ``replaces``: the id of
    a row of ours that it re-words, empty for one of its own."""

    file: str
    line: int | None
    row: Signature
    replaces: str = ""


class Rules(NamedTuple):
    """A catalogue with the rules of a site. ``rows``: all that are used; ``own``: those of the site; ``silenced``: ids
    of rows that are not used."""

    rows: tuple[Signature, ...]
    own: tuple[Rule, ...] = ()
    silenced: tuple[str, ...] = ()


class _Checked(NamedTuple):
    """``raw``: the row with all that it inherits; ``of_the_file``: the values of ``OF_THE_FILE``."""

    raw: RawRow
    of_the_file: Mapping[str, Any]
    replaces: str


def with_rules(ours: Sequence[Signature], files: Mapping[str, bytes], faults: Sequence[Fault] = ()) -> Rules:
    """``ours`` with the rules of ``files`` (path as it was given -> content). ``faults``: what is wrong already.

    Raises:
        RowsError: with ``faults``, and everything that is wrong with a file or a row.
    """
    found = list(faults)
    known = {row.id: row for row in ours}
    silenced: dict[str, str] = {}
    replaced: dict[str, RawRow] = {}
    rules: list[tuple[ReadRow, str]] = []
    for file, data in files.items():
        content = content_of(file, data, found, _TOP)
        silenced |= dict.fromkeys(_silenced(file, data, content, known, found), file)
        for raw in raw_rows(file, data, content, found, _MORE):
            if isinstance(raw.keys.get("replaces"), str):
                raw = raw._replace(name=raw.keys["replaces"])
            checked = _with_inherited(raw, known, found)
            if checked is None:
                continue
            if checked.replaces:
                if (other := replaced.get(checked.replaces)) is not None:
                    found.append(raw.fault("replaces", f"{other.file} replaces this row, too"))
                replaced[checked.replaces] = raw
            found += _of_a_rule(raw, checked)
            wrong = list(_of_pattern(raw, checked.raw))
            found += wrong
            for one in read_row(checked.raw, checked.of_the_file, found):
                rules.append((one, checked.replaces))
                found += _of_words(raw, one.row, compiles=not any(fault.key == "pattern" for fault in wrong))
                if not wrong:
                    found += _of_examples(raw, one.row)
    found += [
        replaced[name].fault("replaces", f"{silenced[name]} silences this row: leave one of both out")
        for name in replaced
        if name in silenced
    ]
    beside = {name: row for name, row in known.items() if name not in replaced}
    printers = {row.printer for row in ours} | {PurePath(file).stem for file in files}
    beside_others = joint([one for one, _ in rules], printers, {fault.row for fault in found}, beside)
    found += (fault for fault in beside_others if fault.key != "needle")  # it need not be written
    if found:
        raise RowsError(_each_once(found))
    own = tuple(Rule(one.raw.file, one.raw.line, one.row, replaces) for one, replaces in rules)
    kept = (row for name, row in beside.items() if name not in silenced)
    return Rules((*kept, *(rule.row for rule in own)), own, tuple(silenced))


def _each_once(faults: Sequence[Fault]) -> list[Fault]:
    return list(dict.fromkeys(faults))


def _silenced(
    file: str, data: bytes, content: Mapping[str, Any], known: Mapping[str, Signature], faults: list[Fault]
) -> Iterator[str]:
    line = line_of(data, "silence")
    names = content.get("silence", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        faults.append(Fault(file, line, "", "silence", 'expected a list of ids, such as ["git-lock"]'))
        return
    for name in names:
        if name in known:
            yield name
        else:
            hint = did_you_mean(name, known)
            faults.append(Fault(file, line, "", "silence", _no_row(name, hint)))


def _no_row(name: str, hint: str) -> str:
    return f"there is no row {name} of ours{hint and f'; {hint}'} (liverl-tui rules ls lists them)"


def _with_inherited(raw: RawRow, known: Mapping[str, Signature], faults: list[Fault]) -> _Checked | None:
    """The row with what it has of the one that it replaces, and with what ``text`` stands for."""
    keys = dict(raw.keys)
    replaces, text = keys.pop("replaces", None), keys.pop("text", None)
    before = len(faults)
    base: dict[str, Any] = {}
    if replaces is not None:
        row = known.get(replaces) if isinstance(replaces, str) else None
        if row is None:
            hint = did_you_mean(str(replaces), known)
            faults.append(raw.fault("replaces", _no_row(str(replaces), hint)))
        elif "id" in keys:
            faults.append(raw.fault("id", "leave it out: a row that replaces another one keeps its id"))
        elif not keys and text is None:
            faults.append(raw.fault("replaces", "it changes nothing: write the fields that are to differ"))
        else:
            base = msgspec.to_builtins(row)
    elif isinstance(keys.get("id"), str) and keys["id"] in known:
        faults.append(
            raw.fault(
                "id",
                f"liverl has a row {keys['id']}: choose another id, or write replaces = "
                f'"{keys["id"]}" in place of id to re-word it',
            )
        )
    if text is not None:
        problem = ""
        if not isinstance(text, str) or "\n" in text or not text.strip():
            problem = f"found {text!r:.60}, expected a text of one line"
        elif "pattern" in keys or "needle" in keys:
            problem = "it stands for needle and pattern: leave those out"
        if problem:
            faults.append(raw.fault("text", problem))
        else:
            keys |= {"needle": text, "pattern": re.escape(text)}
    if len(faults) > before:
        return None
    if "pattern" in keys and "needle" not in keys:
        keys["needle"] = _longest_literal(keys["pattern"])
    of_the_file = {key: base.pop(key) for key in OF_THE_FILE if key in base} or {
        "printer": PurePath(raw.file).stem,
        "last": False,
    }
    lines = dict(raw.lines)
    if "text" in lines:
        lines |= {"needle": lines["text"], "pattern": lines["text"]}
    name = replaces if isinstance(replaces, str) else raw.name
    return _Checked(RawRow(raw.file, raw.line, name, {**base, **keys}, lines), of_the_file, replaces or "")


def _longest_literal(pattern: Any) -> str:
    """The longest text on one line that every match contains; empty without one."""
    try:
        runs = literals(pattern)
    except (re.error, TypeError, RecursionError):
        return ""  # which is told
    return max((part for run in runs for part in run.split("\n")), key=len, default="")


def _of_a_rule(raw: RawRow, checked: _Checked) -> Iterator[Fault]:
    """What a rule may not have, though a row of ours may."""
    name = raw.keys.get("id")
    if isinstance(name, str) and not _ID.fullmatch(name):
        yield raw.fault(
            "id", f"found {name!r:.60}, expected small letters, digits and hyphens, such as disk-gone"
        )
    elif name in _TAKEN:
        yield raw.fault("id", f"{name} is the id of a verdict without a row: choose another one")
    if "patch" in raw.keys:
        yield raw.fault("patch", "a rule changes no configuration: say in fix which key to set")
    if "pattern" not in raw.keys and "text" not in raw.keys and not checked.replaces:
        yield raw.fault(
            "pattern", "it is missing: write text (a plain text) or pattern (a regular expression)"
        )


def _of_pattern(raw: RawRow, full: RawRow) -> Iterator[Fault]:
    """What is wrong with what is looked for."""
    pattern, needle = full.keys.get("pattern"), full.keys.get("needle")
    if ("pattern" not in raw.keys and "text" not in raw.keys) or not isinstance(pattern, str):
        return
    try:
        problem = not_linear(pattern)
        runs = literals(pattern)
        re.compile(pattern)
    except re.error as error:
        at = "" if error.pos is None else f" at character {error.pos + 1}"
        yield full.fault("pattern", f"no regular expression: {error.msg}{at}")
        return
    except (RecursionError, OverflowError):
        yield full.fault("pattern", "it is nested too deeply")
        return
    if problem:
        yield full.fault("pattern", problem)
    if not isinstance(needle, str):
        return
    key = "needle" if "needle" in raw.keys else "text" if "text" in raw.keys else "pattern"
    if "needle" in raw.keys and not any(needle in run for run in runs):
        yield full.fault(
            "needle", f"{needle!r:.60} does not stand in every match of the pattern: leave it out"
        )
    elif len(re.sub(r"[\d\s]", "", needle)) < NEEDLE:
        yield full.fault(
            key,
            f"every match must contain one text with at least {NEEDLE} letters or signs, digits not counted; "
            f"found {needle!r:.60}",
        )


def _of_words(raw: RawRow, row: Signature, *, compiles: bool) -> Iterator[Fault]:
    """What is wrong with the words of a row. ``compiles``: its pattern is one, so that its groups are known."""
    groups = certain_groups(row.pattern) if compiles else set()
    known = groups | ({"meant"} if "key" in groups else set())
    for key in _TEXTS:
        for name in dict.fromkeys(_GROUP.findall(getattr(row, key))):
            if compiles and name not in known:
                hint = did_you_mean(name, groups)
                yield raw.fault(
                    key, f"{{{name}}} is no group that every match captures{hint and f'; {hint}'}"
                )
    if not row.title or "\n" in row.title or len(row.title) > TITLE:
        yield raw.fault("title", f"expected one line of at most {TITLE} characters, found {len(row.title)}")
    if row.role != "noise" and not row.fix:
        yield raw.fault("fix", "it is missing: a sentence that says what to do")
    if row.explains and not row.cause:
        yield raw.fault("cause", f"it is missing: a row of role {row.role} says why this happens")
    if row.role == "consequence" and row.cause:
        yield raw.fault("cause", "a consequence only reports a failure: leave it out, or set role to cause")


def _of_examples(raw: RawRow, row: Signature) -> Iterator[Fault]:
    """What is wrong with what a row fires on and spares, which of an inherited row is known to be right."""
    if not {"pattern", "text", "fires", "spares", "where"} & raw.keys.keys():
        return
    for key in ("fires", "spares"):
        text = getattr(row, key)
        if len(text) > LONGEST:
            yield raw.fault(key, f"longer than {LONGEST} characters")
        elif bool(matches(row, text)) != (key == "fires"):
            yield raw.fault(key, _not_as_said(row, key, text))


def _not_as_said(row: Signature, key: str, text: str) -> str:
    if key == "spares":
        return f"the row matches {text!r:.60}, which it must spare: write a near miss, or make the pattern narrower"
    if re.search(row.pattern, text) and row.where == "exception":
        return (
            f"{text!r:.60} holds what is looked for, but no exception: write it as NameError: ..., "
            'or leave where = "exception" out'
        )
    return f"the row does not match {text!r:.60}, which it must: write a line as the program prints it"


def records_of(text: str) -> list[Record]:
    """The records of a text, as a log has them."""
    reader = RecordReader()
    return [*reader.feed(text.encode("utf-8", "replace") + b"\n"), *reader.end()]


def matches(row: Signature, text: str) -> list[str]:
    """The lines of ``text`` that a row matches, in a log that holds nothing else."""
    matcher = Matcher([row])
    return [match.text for record in records_of(text) for match in matcher.of(record)]


def in_words(row: Signature) -> str:
    """The title of a row as its own example fills it."""
    found = re.search(row.pattern, row.fires)
    return filled(row.title, {} if found is None else {k: v for k, v in found.groupdict().items() if v})
