"""The recorded clock: stamps in files are shown as if the run were going on now."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from liverl.replay.clock import ReplayClock
from liverl.replay.growth import Growth
from liverl.replay.timeline import changes

BEGIN = 1_795_392_785.0  # 2026-11-23T00:13:05Z
HOUR = ReplayClock(BEGIN, BEGIN + 3600.0)


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        (b'{"at":1795392546.99}', b'{"at":1795396146.99}'),
        (b'{"at":1795392546}', b'{"at":1795396146}'),
        (b'"request_time":1795392127748', b'"request_time":1795395727748'),
        (b"2026-11-23T00:02:07.748+00:00", b"2026-11-23T01:02:07.748+00:00"),
        (b"2026-11-22T23:32:07Z", b"2026-11-23T00:32:07Z"),
        (b"2026-11-23T02:02:07+02:00", b"2026-11-23T03:02:07+02:00"),
        (b"2026-11-23 00:02:07,123 INFO", b"2026-11-23 01:02:07,123 INFO"),
        (b"INFO 11-23 23:59:07 [core.py:1]", b"INFO 11-24 00:59:07 [core.py:1]"),
        (b"[rank0]:W1123 23:39:07.728000 12069 torch", b"[rank0]:W1124 00:39:07.728000 12069 torch"),
        (b"a\n00:12:51 - LiteLLM Proxy:WARNING", b"a\n01:12:51 - LiteLLM Proxy:WARNING"),
        (b"23:59:07,123 a", b"00:59:07,123 a"),
        # No times of this recording:
        (b"04:12:51 - a duration", b"04:12:51 - a duration"),
        (b"it took 00:12:51 - all in all", b"it took 00:12:51 - all in all"),
        (b"00:12:51: no line of a log", b"00:12:51: no line of a log"),
        (b"2020-01-01 00:00:00", b"2020-01-01 00:00:00"),
        (b"11-31 00:00:00", b"11-31 00:00:00"),
        (b'"rss":17953925460', b'"rss":17953925460'),
        (b"id-x1795392546", b"id-x1795392546"),
        (b'"loss":0.1795392546', b'"loss":0.1795392546'),
        (b'"n":1495392546', b'"n":1495392546'),
        (b"ID1123 00:39:07", b"ID1123 00:39:07"),
    ],
)
def test_stamps_are_shifted_and_keep_their_length(recorded: bytes, shown: bytes) -> None:
    assert HOUR.shift(recorded) == shown


def test_a_stamp_without_a_zone_was_written_in_the_recorders_and_is_read_in_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ReplayClock(BEGIN, BEGIN, utc_offset=7200.0)
    assert clock.shift(b"2026-11-23 02:13:05") == b"2026-11-23 00:13:05"
    assert clock.shift(b"02:13:05 - a") == b"00:13:05 - a"
    monkeypatch.setenv("TZ", "UTC-5")
    time.tzset()
    assert clock.shift(b"2026-11-23 02:13:05") == b"2026-11-23 05:13:05"


def test_only_what_comes_after_the_beginning_passes_faster() -> None:
    clock = ReplayClock(BEGIN, 2000.0, speed=4.0)
    assert clock.shown(BEGIN - 60.0) == 1940.0
    assert clock.shown(BEGIN + 60.0) == 2015.0
    assert clock.recorded(2015.0) == BEGIN + 60.0
    assert clock.recorded(1940.0) == BEGIN - 60.0


def test_lines_between_two_looks_are_spread_and_documents_appear_whole() -> None:
    growth = [
        Growth(10.0, "a.log", 4),
        Growth(20.0, "a.log", 12),
        Growth(20.0, "trials/t/result.json", 2),
        Growth(11.0, "trainer.json", text="one"),
        Growth(19.5, "trainer.json", text="two"),
    ]
    files = {"a.log": b"one\ntwo\nsix\nlate\n", "trials/t/result.json": b"{}"}
    assert [(c.at, c.path, c.data, c.whole) for c in changes(growth, files, begin=10.0)] == [
        (10.0, "a.log", b"one\n", False),
        (11.0, "trainer.json", b"one", True),
        (19.0, "a.log", b"two\n", False),
        (19.5, "trainer.json", b"two", True),
        (20.0, "a.log", b"six\n", False),
        (20.0, "trials/t/result.json", b"{}", False),
    ]


def test_a_file_that_was_cut_does_not_shrink() -> None:
    growth = [Growth(1.0, "a.log", 8), Growth(2.0, "a.log", 3), Growth(3.0, "a.log", 99)]
    shown = changes(growth, {"a.log": b"one\ntwo\nsix\n"}, begin=0.0)
    assert b"".join(change.data for change in shown) == b"one\ntwo\nsix\n"


def test_a_line_appears_when_it_says_and_never_before_the_line_above_it() -> None:
    content = b'{"at":12.5,"k":1}\n{"k":2}\n{"at":12.0}\n{"at":14.01}\n{"at":13.0}\n'
    growth = [Growth(14.0, "events.jsonl", 51), Growth(15.0, "events.jsonl", 99)]
    shown = changes(growth, {"events.jsonl": content}, begin=10.0)
    assert [(c.at, c.data) for c in shown] == [
        (12.5, b'{"at":12.5,"k":1}\n'),
        (13.0, b'{"k":2}\n'),
        (13.0, b'{"at":12.0}\n'),
        (14.01, b'{"at":14.01}\n'),  # the file's time stamp was 0.01 s older
        (14.01, b'{"at":13.0}\n'),
    ]
