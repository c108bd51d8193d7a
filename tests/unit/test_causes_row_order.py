"""The order of rows means nothing but for ``before``: in any other order they say the same of the same logs."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from liverl.causes.catalogue import rows
from liverl.causes.finding import Exit, Explanation, LogRecords
from liverl.causes.match import Matcher, whole
from liverl.causes.read.reading import read_log
from liverl.causes.signature import Signature
from liverl.causes.verdict.judge import judge
from liverl.logs.record import Raised, Record

DATA = Path(__file__).parents[1] / "data"
LARGEST = 100_000  # bytes of a log that is judged here


def logs(folder: Path) -> list[LogRecords]:
    """Each text of a row that others match, too, as a line and as the end of a traceback; and each log of tests/data in
    which a record matches several rows."""
    paths = [path for path in sorted(DATA.rglob("*.log")) if path.stat().st_size <= LARGEST]
    read = [read_log(path, str(path)) for path in paths]
    frames = 'Traceback (most recent call last):\n  File "/srv/a.py", line 3, in step\n    go()\n'
    for row in rows():
        for kind, text in (("line", row.fires), ("traceback", frames + row.fires)):
            head, *more = text.split("\n")
            if len(whole().of(Record(0, 1, head, more=tuple(more)))) > 1:
                path = folder / f"{row.id}.{kind}.log"
                path.write_text(f"{text}\n")
                read.append(read_log(path, path.name))
    return [log for log in read if any(len(whole().of(record)) > 1 for record in log.records)]


def said(log: LogRecords, matcher: Matcher) -> list[object]:
    found: list[object] = []
    for exits in ((), (Exit("trainer", log.log, 1),)):
        verdict = judge([log], exits, matcher)
        cause: Explanation | None = verdict.cause
        found += [cause, [one.id for one in verdict.guesses], sorted(one.title for one in verdict.symptoms)]
    return found


def shuffled(seed: int) -> tuple[Signature, ...]:
    found = list(rows())
    random.Random(seed).shuffle(found)
    return tuple(found)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> list[LogRecords]:
    found = logs(tmp_path_factory.mktemp("logs"))
    assert len(found) > 100
    return found


@pytest.mark.parametrize("seed", [1, 2, "backwards"])
def test_rows_in_any_order_say_the_same(several: list[LogRecords], seed: int | str) -> None:
    other = rows()[::-1] if seed == "backwards" else shuffled(int(seed))
    assert other != rows() and {one.id for one in other} == {one.id for one in rows()}
    matcher = Matcher(other)
    assert [log.log for log in several if said(log, whole()) != said(log, matcher)] == []


def made(id: str, pattern: str, *before: str, last: bool = False) -> Signature:
    return Signature(id, "x", last, "cause", pattern, "", "", "", "", before=before)


@pytest.mark.parametrize(
    ("of", "found"),
    [
        ([made("b", "one"), made("a", "two")], "ba"),  # as their texts stand
        ([made("b", "one"), made("a", "two", "b")], "ab"),
        ([made("b", "one"), made("a", "one")], "ab"),
        ([made("a", "one", last=True), made("b", "two")], "ba"),
        ([made("a", "one", last=True), made("b", "two", last=True)], "ab"),
        ([made("a", "one", "b", last=True), made("b", "two")], "ab"),
        ([made("d", "one"), made("c", "two", "d"), made("b", "three", "c"), made("a", "one", "z")], "abcd"),
        ([made("a", "ValueError"), made("b", "KeyError")], "ba"),  # the chain, as it is printed
    ],
)
def test_rows_of_one_record_are_in_the_order_of_their_texts(of: list[Signature], found: str) -> None:
    raised = (Raised("KeyError", "1"), Raised("ValueError", "2"))
    record = Record(0, 1, "one two three", more=("ValueError: 2 KeyError: 1",), raised=raised)
    for signatures in (of, of[::-1]):
        assert "".join(match.signature.id for match in Matcher(signatures).of(record)) == found


def test_each_order_that_is_said_is_needed(several: list[LogRecords]) -> None:
    """Some record matches both rows of which one is before the other."""
    together = set()
    for log in several:
        for record in log.records:
            together |= set(itertools.permutations([match.signature.id for match in whole().of(record)], 2))
    assert [(row.id, one) for row in rows() for one in row.before if (row.id, one) not in together] == []
