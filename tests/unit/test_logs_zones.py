"""The zone of stamps that state none, and logs of one run on one clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from liverl.logs.zones import aligned, own_zone, stamps

HOUR = 3600
DAY = "2026-08-24"


@pytest.fixture(autouse=True)
def _host_in_california(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/Los_Angeles")  # PDT, seven hours behind UTC
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(text: str, day: str = DAY) -> float:
    return datetime.fromisoformat(f"{day}T{text}").replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("lines", "zone"),
    [
        (["Sun Aug 23 18:00:58 PDT 2026 job 7", "2026-08-23 18:05:00,000 INFO a.py:1 -- x"], -7 * HOUR),
        (["Sun Aug 23 06:00:58 PM PDT 2026", "2026-08-23 18:05:00,000 INFO a.py:1 -- x"], -7 * HOUR),
        (["Mon 24 Aug 2026 03:00:58 AM CEST", "2026-08-24 03:05:00,000 INFO a.py:1 -- x"], 2 * HOUR),
        (["Mon Aug 24 01:00:58 UTC 2026", "2026-08-24 01:05:00,000 INFO a.py:1 -- x"], 0),
        (["2026-08-24T06:30:58+05:30 INFO a", "2026-08-24 06:35:00,000 INFO a.py:1 -- x"], int(5.5 * HOUR)),
        # the date of the host, and behind it the clock of a container
        (["Sun Aug 23 18:00:58 PDT 2026", "2026-08-24 01:02:11,310 INFO a.py:1 -- x"], 0),
        (["Mon Aug 24 10:00:58 JST 2026", "2026-08-24 01:02:11,310 INFO a.py:1 -- x"], 0),
        (["2026-08-24 01:02:11,310 INFO a.py:1 -- x"], None),
        (
            ["2026-08-24T01:00:58Z INFO a", "2026-08-23 18:05:00,000 INFO a.py:1 -- x"],
            None,
        ),  # programs print UTC anywhere
        (["Sun Aug 23 18:00:58 XYZ 2026", "2026-08-23 18:05:00,000 INFO a.py:1 -- x"], None),
    ],
)
def test_a_log_may_state_its_zone(lines: list[str], zone: int | None) -> None:
    assert own_zone(stamps(["\n".join(lines)], None)) == zone


def log(begin: str, end: str, *before: str, modified: float | None = None) -> tuple[object, float | None]:
    lines = [*before, f"{begin},000 INFO a.py:1 -- x", f"{end},000 INFO a.py:1 -- y"]
    return stamps(["\n".join(lines)], modified), modified


TRAINER = (f"{DAY} 01:02:00", f"{DAY} 02:50:00")  # UTC
ENGINE = (f"{DAY} 01:05:00", f"{DAY} 03:01:00")  # UTC
HOST = ("2026-08-23 18:01:00", "2026-08-23 20:05:00")  # PDT
INDIA = (f"{DAY} 06:35:00", f"{DAY} 08:31:00")


@pytest.mark.parametrize(
    ("logs", "zones"),
    [
        ([log(*ENGINE), log(*TRAINER)], [None, None]),  # nothing tells, and they lie together
        ([log(*HOST, "Sun Aug 23 18:00:58 PDT 2026"), log(*TRAINER), log(*ENGINE)], [-7 * HOUR, 0, 0]),
        ([log(*HOST, "Sun Aug 23 18:00:58 PDT 2026"), log(*INDIA)], [-7 * HOUR, int(5.5 * HOUR)]),
        # the times of files: the host's own log is of its zone, the container's is seven hours ahead
        (
            [
                log(*HOST, modified=utc("03:05:00")),
                log(*ENGINE, modified=utc("03:01:01")),
            ],
            [-7 * HOUR, 0],
        ),
        # copies: no file has a time that is that of its last stamp in the zone of this host
        ([log(*ENGINE, modified=utc("03:01:00")), log(*TRAINER, modified=utc("02:50:00"))], [None, None]),
        ([log(*ENGINE, modified=utc("17:33:21")), log(*TRAINER, modified=utc("17:33:21"))], [None, None]),
        # a short log beside the others may be of any zone
        (
            [log(*HOST, "Sun Aug 23 18:00:58 PDT 2026"), log(f"{DAY} 09:00:00", f"{DAY} 09:00:05")],
            [-7 * HOUR, None],
        ),
    ],
)
def test_logs_of_one_run_are_brought_to_one_clock(
    logs: list[tuple[object, float | None]], zones: list[int | None]
) -> None:
    assert aligned(logs) == zones  # type: ignore[arg-type]
