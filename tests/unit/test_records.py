"""Logs as records: prefixes, time, level, tracebacks and messages of several lines."""

from __future__ import annotations

import csv
import time
from calendar import timegm
from pathlib import Path

import pytest

from liverl.logs.record import Record
from liverl.logs.records import RecordReader

DATA = Path(__file__).parents[1] / "data"
CASES = DATA / "cases"
MODIFIED = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, -1))
TRACEBACK = 'Traceback (most recent call last):\n  File "/opt/a.py", line 3, in f\n    g()\n    ^^^\n'


def local(*parts: int) -> float:
    return time.mktime((*parts, 0, 0, -1))


def read(text: str | bytes, modified: float | None = MODIFIED) -> list[Record]:
    reader = RecordReader(modified)
    return reader.feed(text if isinstance(text, bytes) else text.encode()) + reader.end()


def only(text: str) -> Record:
    (record,) = read(text)
    return record


def cases() -> list[tuple[str, str, str]]:
    with (CASES / "index.tsv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [(row[0], row[4], row[5]) for row in rows[1:]]


WARNINGS = {"07-vllm-nccl-dev-shm-full.log", "13-vllm05-glibc-warning-then-missing-op.log"}


@pytest.mark.parametrize(("name", "cause", "also"), cases())
def test_the_cause_of_each_case_stands_in_a_record_that_an_errors_only_filter_shows(name, cause, also):
    found = [record for record in read((CASES / name).read_bytes()) if cause in record.whole]
    assert ("warning" if name in WARNINGS else "error") in {record.level for record in found}
    kind, _, message = cause.partition(": ")
    if kind.endswith("Error") and " " not in kind and message:
        assert any(
            raised.type.endswith(kind) and raised.message.startswith(message)
            for record in found
            for raised in record.raised
        )


# --- prefixes

WRAPPERS = {
    "vllm-1  | ": "vllm-1",
    "2025-07-03T14:20:51.565Z ": "",
    "0: ": "0",
    "(WorkerDict pid=8702, ip=10.0.0.4) ": "WorkerDict pid=8702 ip=10.0.0.4",
    "\x1b[36m(pid=4547)\x1b[0m ": "pid=4547",
    "(raylet) ": "raylet",
    "(autoscaler +34s) ": "autoscaler",
    "(autoscaler +1m2s) ": "autoscaler",
    "[rank3]: ": "",
    "[rank3]:": "",
    "vllm-1  | 2025-07-03T14:20:51.565Z ": "vllm-1",
    "2025-07-03T14:20:51.565Z vllm-1  | ": "vllm-1",
    "0: (TaskRunner pid=1) (EngineCore pid=2) [rank3]: ": "0 TaskRunner pid=1 EngineCore pid=2",
    "2025-07-03T14:20:51.565Z stderr F (EngineCore pid=2) ": "EngineCore pid=2",
}


@pytest.mark.parametrize("prefix", WRAPPERS)
def test_a_traceback_is_read_behind_any_prefix(prefix):
    text = "".join(prefix + line + "\n" for line in (TRACEBACK + "ValueError: no\n").splitlines())
    record = only(text)
    assert (record.kind, record.level, record.writer) == ("traceback", "error", WRAPPERS[prefix])
    assert record.text == "Traceback (most recent call last):"
    assert [(r.type, r.message, r.frame, r.source) for r in record.raised] == [
        ("ValueError", "no", "a.py:3 in f", "g()")
    ]
    assert (record.rank == 3) == ("rank3" in prefix)
    assert record.at == (timegm((2025, 7, 3, 14, 20, 51)) + 0.565 if "2025" in prefix else None)


def test_two_writers_that_take_turns_have_a_record_each():
    lines = [(TRACEBACK + f"ValueError: {n}\n").splitlines() for n in (1, 2)]
    text = "".join(f"(A pid=1) {a}\n(B pid=2) {b}\n" for a, b in zip(*lines, strict=True))
    first, second = read(text)
    assert [(r.writer, r.raised[0].message) for r in (first, second)] == [("A pid=1", "1"), ("B pid=2", "2")]
    assert first.offset < second.offset < first.end
