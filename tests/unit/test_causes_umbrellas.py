"""What only reports a failure never hides its cause: each row of the catalogue with all umbrellas, in each order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from liverl.causes.catalogue import rows
from liverl.causes.finding import Exit, Explanation, LogRecords
from liverl.causes.read.reading import read_log
from liverl.causes.signature import Signature
from liverl.causes.verdict.judge import judge
from liverl.causes.verdict.unexplained import UNEXPLAINED
from liverl.logs.records import RecordReader

pytestmark = pytest.mark.drill

CAUSES = [one for one in rows() if one.explains and not one.alive]
UMBRELLAS = [one for one in rows() if one.role == "consequence" and not one.alive]
EXCEPTION = re.compile(r"[\w.]+(?:Error|Exception)\b")
FRAME = '  File "main.py", line 3, in main\n    main()\n'
NCCL = b"".join(b"node1:77:99 [0] NCCL INFO Channel %02d/24 : 0 1 2 3\n" % (n % 24) for n in range(30000))
BARE = b"".join(b"(WorkerDict pid=7) shard %d of 4 is loaded\n" % n for n in range(35000))


def lines(one: Signature, writer: str = "") -> list[str]:
    """The text of a row as a process with this prefix writes it: an exception of several lines in its traceback."""
    text = one.fires
    if text.startswith("    "):  # from the line of source of a traceback's last place on
        text = f"{FRAME.partition(chr(10))[0]}\n{text}"
    if "\n" in text and (text.startswith("  File") or EXCEPTION.match(text)):
        text = "Traceback (most recent call last):\n" + ("" if text.startswith("  File") else FRAME) + text
    prefix = f"({writer}) " if writer else ""
    return [f"{prefix}{line}\n" for line in text.split("\n")]


def umbrella(writer: str = "Umbrella pid=9") -> str:
    return "".join(line for one in UMBRELLAS for line in (*lines(one, writer), f"({writer}) and so on\n"))


def read(text: str, log: str = "x") -> LogRecords:
    reader = RecordReader()
    records = (*reader.feed(text.encode()), *reader.end())
    return LogRecords(log, records, records[-1])


def named(cause: Explanation | None) -> str:
    return "" if cause is None else cause.id


def wrong(
    make: Callable[[Signature], list[LogRecords]],
    exits: tuple[Exit, ...] = (),
    causes: Sequence[Signature] = tuple(CAUSES),
) -> dict[str, str]:
    """Of each cause, what was named instead of it."""
    found = {one.id: named(judge(make(one), exits).cause) for one in causes}
    return {row: other for row, other in found.items() if row != other}


def own(one: Signature) -> str:
    return "".join((*lines(one), "and so on\n"))


def interleaved(one: Signature) -> str:
    """Between any two umbrella lines one line of the cause."""
    cause = lines(one)
    ours = umbrella().splitlines(keepends=True)
    step = max(1, len(ours) // (len(cause) + 1))
    for number, line in enumerate(cause):
        ours.insert((number + 1) * step + number, line)
    return "".join(ours)


ORDERS: dict[str, Callable[[Signature], str]] = {
    "alone": own,
    "below": lambda one: umbrella() + own(one),
    "above": lambda one: own(one) + umbrella(),
    "between": interleaved,
}


@pytest.mark.parametrize(
    ("order", "causes"),
    [
        # each sixth row in one of the orders; all of them in all orders take minutes
        *(pytest.param(order, CAUSES[n::18], id=order) for n, order in enumerate(list(ORDERS)[1:])),
        *(pytest.param(order, CAUSES, id=f"{order}-all", marks=pytest.mark.slow) for order in ORDERS),
    ],
)
def test_the_cause_is_on_top_whatever_is_above_below_or_between(order: str, causes: list[Signature]) -> None:
    assert len(CAUSES) > 180 and len(UMBRELLAS) > 25
    assert wrong(lambda one: [read(ORDERS[order](one))], (), causes) == {}
    for exits in ((Exit("trainer", "x", 1),), (Exit("trainer", "x", None, 9),)):
        assert wrong(lambda one: [read(ORDERS[order](one))], exits, CAUSES[::36]) == {}


def test_the_cause_is_on_top_if_it_stands_in_another_log() -> None:
    above = read(umbrella(), "trainer.log")
    assert wrong(lambda one: [above, read(own(one), "replica-0.log")], (), CAUSES[::24]) == {}
    assert wrong(lambda one: [read(own(one), "replica-0.log"), above], (), CAUSES[1::24]) == {}


def test_umbrellas_alone_are_no_known_cause() -> None:
    found = {one.id: named(judge([read("".join(lines(one, "A pid=1")))]).cause) for one in UMBRELLAS}
    assert set(found.values()) <= {*UNEXPLAINED, ""}


UMBRELLA = umbrella().encode()


def from_file(path: Path, after: bytes, causes: Sequence[Signature]) -> dict[str, str]:
    last = UMBRELLA if len(after) > 1000 else b""

    def make(one: Signature) -> list[LogRecords]:
        path.write_bytes(own(one).encode() + after + last)
        return [read_log(path, "x")]

    return wrong(make, (), causes)


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_no_line_of_a_cause_is_passed_over_in_a_file(tmp_path: Path, every: int) -> None:
    assert from_file(tmp_path / "x", b"loading\n" * 20, CAUSES[::every]) == {}


@pytest.mark.parametrize("flood", [NCCL, BARE], ids=["info", "bare"])
def test_the_cause_is_on_top_after_a_flood(flood: bytes, tmp_path: Path) -> None:
    assert len(flood) > 1.2 * (1 << 20)
    assert from_file(tmp_path / "x", flood, CAUSES[::48]) == {}
