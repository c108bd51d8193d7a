"""Which exception of a chain tells the failure, and in which order records of several logs were written."""

from __future__ import annotations

import pytest

from liverl.causes.finding import LogRecords
from liverl.causes.match import Matcher
from liverl.causes.verdict.chain import telling
from liverl.causes.verdict.timeline import timeline
from liverl.logs.record import Raised, Record


@pytest.mark.parametrize(
    ("first", "second", "index"),
    [
        # on the way out: the first one is the failure
        (
            Raised("ValueError", "bad row"),
            Raised("BrokenPipeError", "[Errno 32] Broken pipe", how="context"),
            0,
        ),
        (
            Raised("ValueError", "bad row"),
            Raised("OSError", "x is gone", "io.py:3 in close", how="context"),
            0,
        ),
        (Raised("ValueError", "bad row"), Raised("RuntimeError", "Event loop is closed", how="context"), 0),
        # the second says less
        (Raised("ValueError", "bad row"), Raised("RuntimeError", "", how="context"), 0),
        (Raised("ValueError", "bad row"), Raised("RuntimeError", "job 3 failed", how="context"), 0),
        # a second try to import the same module, from outside of its package
        (
            Raised("ImportError", "cannot import name 'f' from 'm'", entry="from .server import ("),
            Raised("ModuleNotFoundError", "No module named 'server'", how="context"),
            0,
        ),
        (
            Raised("ModuleNotFoundError", "No module named 'a.server'", entry="import a.server as s"),
            Raised("ModuleNotFoundError", "No module named 'server'", how="context"),
            0,
        ),
        # another module is looked for instead
        (
            Raised("ImportError", "cannot import name 'Self' from 'typing'", entry="from typing import Self"),
            Raised("ModuleNotFoundError", "No module named 'typing_extensions'", how="context"),
            1,
        ),
        (
            Raised("ValueError", "bad row", entry="from .server import ("),
            Raised("ModuleNotFoundError", "No module named 'server'", how="context"),
            1,
        ),
        # the second says more
        (Raised("KeyError", "'x'"), Raised("ConfigError", "no key x in a.yaml", how="context"), 1),
        (Raised("KeyError", "'x'"), Raised("RuntimeError", "no key x in a.yaml", how="context"), 1),
        (
            Raised("OSError", "no such file"),
            Raised("foo.LoadError", "model a is not there", how="context"),
            1,
        ),
        # direct causes: the root, unless it is a failed lookup or has no words
        (
            Raised("ssl.SSLError", "certificate expired"),
            Raised("foo.HubError", "cannot load", how="cause"),
            0,
        ),
        (Raised("KeyError", "'qwen9'"), Raised("ValueError", "no model type qwen9", how="cause"), 1),
        (Raised("KeyError", "'qwen9'"), Raised("RuntimeError", "failed; see above", how="cause"), 0),
        (Raised("TimeoutError", ""), Raised("TimeoutError", "RPC call timed out", how="cause"), 1),
        # no pair at all
        (Raised("ValueError", "one"), Raised("ValueError", "another"), 1),
    ],
)
def test_the_exception_that_tells_most(first: Raised, second: Raised, index: int) -> None:
    assert telling((first, second)) == index


def test_a_chain_is_walked_to_its_root() -> None:
    chain = (
        Raised("OSError", "[Errno 28] No space left on device"),
        Raised("foo.WriteError", "cannot write", how="cause"),
        Raised("RuntimeError", "unexpected pos 1 vs 2", how="context"),
    )
    assert telling(chain) == 0
    assert telling(chain[:1]) == 0
    assert telling(()) == 0


def record(
    offset: int, text: str = "", at: float | None = None, writer: str = "", kind: str = "line"
) -> Record:
    return Record(offset, offset + 1, text or f"r{offset}", kind, writer, None, at, "error")  # type: ignore[arg-type]


def order(*logs: LogRecords) -> list[str]:
    return [moment.record.text for moment in timeline(logs, Matcher(()))]


def test_records_without_a_stamp_keep_their_place() -> None:
    log = LogRecords("a", (record(0, at=10.0), record(1), record(2, at=5.0), record(3)))
    assert order(log) == ["r2", "r3", "r0", "r1"]


def test_a_record_without_a_stamp_is_as_old_as_the_last_of_its_process() -> None:
    late = (
        record(0, at=100.0, writer="A"),
        record(1, at=50.0, writer="B"),
        record(2, writer="A"),
        record(3, writer="B"),
    )
    assert order(LogRecords("a", late)) == ["r1", "r3", "r0", "r2"]
    # A process that has stamped a line long ago did not write then what stands behind newer ones.
    old = (record(0, at=100.0, writer="A"), record(1, at=500.0, writer="B"), record(2, writer="A"))
    assert order(LogRecords("a", old)) == ["r0", "r1", "r2"]


def test_a_log_without_stamps_is_as_old_as_its_file() -> None:
    early, late = LogRecords("a", (record(0),), modified=5.0), LogRecords("b", (record(1, at=6.0),))
    assert order(late, early) == ["r0", "r1"]


def test_a_log_that_ends_well_outlived_its_errors() -> None:
    error, well = record(0), Record(1, 2, "up", "healthy", level="info")
    ignored = Record(2, 3, "x", "ignored", level="error")
    assert [m.outlived for m in timeline([LogRecords("a", (error, well, ignored))], Matcher(()))] == [
        True
    ] * 3
    assert [m.outlived for m in timeline([LogRecords("a", (well, error))], Matcher(()))] == [False] * 2


def test_healthy_records_that_were_not_kept_count_by_the_byte_up_to_which_they_do() -> None:
    records = (
        record(0, writer="A"),
        record(1, writer="B"),
        record(2, writer="A"),
        Record(9, 10, "up", "healthy", "A"),
    )
    moments = timeline([LogRecords("a", records, survived=2)], Matcher(()))
    assert [m.survived for m in moments[:3]] == [True, False, False]


def test_a_record_of_a_process_without_stamps_is_as_new_as_the_newest_before_it() -> None:
    log = LogRecords(
        "a", (record(0, at=100.0, writer="A"), record(1, at=50.0, writer="B"), record(2, writer="C"))
    )
    assert order(log) == ["r1", "r0", "r2"]
