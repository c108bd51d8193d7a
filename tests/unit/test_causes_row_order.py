"""The order of rows means nothing but for ``before``: in any other order they say the same of the same logs."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from liverl.causes.catalogue import rows
from liverl.causes.finding import Exit, Explanation, LogRecords
from liverl.causes.judge import judge
from liverl.causes.match import Matcher, whole
from liverl.causes.reading import read_log
from liverl.causes.row_files import ordered
from liverl.causes.signature import Signature
from liverl.logs.record import Record

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
    return ordered(found)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> list[LogRecords]:
    found = logs(tmp_path_factory.mktemp("logs"))
    assert len(found) > 100
    return found


def backwards() -> tuple[Signature, ...]:
    return ordered(rows()[::-1])


@pytest.mark.parametrize("seed", [1, 2, "backwards"])
def test_rows_in_any_order_say_the_same(several: list[LogRecords], seed: int | str) -> None:
    other = backwards() if seed == "backwards" else shuffled(int(seed))
    assert other != rows() and {one.id for one in other} == {one.id for one in rows()}
    matcher = Matcher(other)
    assert [log.log for log in several if said(log, whole()) != said(log, matcher)] == []


def test_each_order_that_is_said_is_needed(several: list[LogRecords]) -> None:
    """Some record matches both rows of which one is before the other."""
    together = set()
    for log in several:
        for record in log.records:
            together |= set(itertools.permutations([match.signature.id for match in whole().of(record)], 2))
    assert [(row.id, one) for row in rows() for one in row.before if (row.id, one) not in together] == []
