"""What the readers of logs and metrics make of the odd cases: each expectation is worked out by hand."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from liverl.engines.vllm.boot import BOOT
from liverl.logs.last_lines import TailIndex, last_lines, read_tail
from liverl.model import EngineFacts, StepMetrics
from liverl.observe.boot.facts import BootFacts, TrainerFacts, engine_facts, trainer_facts
from liverl.observe.boot.replica_stages import EngineEvent, ReplicaStages
from liverl.observe.engine.activity import Activity, ActivitySigns, Cycle
from liverl.observe.engine.idle import IDLE_S, PAUSE_S, IdleDetector, Load, LoadSample
from liverl.observe.engine.metrics import RateWindow
from liverl.observe.metrics.pace import StepPace
from liverl.observe.metrics.series import Batch, Series, SeriesSet
from liverl.observe.metrics.step_lines import decode_record, number_of
from liverl.observe.metrics.steps import ConsoleReader
from liverl.procs.shares import shares

# -- start lines


def test_the_newest_bar_of_a_line_counts() -> None:
    bars = "Capturing CUDA graphs (mixed):  4%|4 | 2/51 [00:01]\rCapturing CUDA graphs (mixed):  6%|5 | 3/51 [00:02]"
    assert engine_facts(BootFacts(), [bars], BOOT).graphs == (3, 51)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def stamped(stamp: str, now: datetime) -> datetime:
    """When ``ReplicaStages`` takes a line of vLLM with this stamp to have been written, read at ``now``."""
    stages = ReplicaStages()
    text = f"(vLLMHttpServer pid=7) INFO {stamp} [block_pool.py:1] Successfully reset prefix cache\n"
    stages.feed(text, now.timestamp())
    (event,) = stages.take_events()
    return datetime.fromtimestamp(event.at, UTC)


@pytest.mark.parametrize(
    ("stamp", "now", "meant"),
    [
        # Berlin is 2 hours ahead of UTC in July, 1 hour in winter.
        ("07-20 12:00:01", "2026-07-20T10:00:05", "2026-07-20T10:00:01"),
        ("01-20 12:00:01", "2026-01-20T11:00:05", "2026-01-20T11:00:01"),
        # Around New Year the year is the nearer one, on both sides.
        ("12-31 23:59:58", "2027-01-01T00:00:10", "2026-12-31T22:59:58"),
        ("01-01 00:00:02", "2026-12-31T22:59:59", "2026-12-31T23:00:02"),
        # The 29th of February is in one of the three years only.
        ("02-29 08:00:00", "2027-12-30T00:00:00", "2028-02-29T07:00:00"),
        # No calendar has it: the time at which it was read.
        ("13-45 08:00:00", "2026-07-20T10:00:05", "2026-07-20T10:00:05"),
    ],
)
def test_a_stamp_without_a_year_is_the_nearest_local_time(
    berlin: None, stamp: str, now: str, meant: str
) -> None:
    def utc(text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    assert stamped(stamp, utc(now)) == utc(meant)


# -- counters, series, step lines


def test_a_rate_is_measured_from_the_point_at_the_windows_edge() -> None:
    window = RateWindow(10.0)
    for at, value in ((0.0, 0.0), (5.0, 100.0), (10.0, 100.0), (15.0, 120.0)):
        window.add(at, value)
    # 15 - 10 = 5: the point at 5 is the base.
    assert (window.growth, window.rate) == (20.0, 2.0)


def test_a_counter_that_falls_was_restarted() -> None:
    window = RateWindow(10.0)
    assert window.growth is None and window.rate is None
    window.add(1.0, 50.0)
    assert window.growth is None
    window.add(2.0, 60.0)
    window.add(4.0, 6.0)  # from 0 again
    window.add(4.0, 1000.0)  # no time has passed
    window.add(5.0, 9.0)
    assert (window.growth, window.rate) == (10.0 + 6.0 + 3.0, 19.0 / 4)


def test_a_series_is_cut_where_a_later_trainer_goes_on() -> None:
    series = Series()
    for step, value in ((1, 0.5), (2, math.nan), (3, 1.5), (4, math.inf)):
        series.add(step, value)
    assert (len(series), series.gaps, series.rewrites) == (4, 2, 0)
    before = series.version
    series.cut(3)
    assert list(series.steps) == [1, 2]
    assert (series.gaps, series.rewrites) == (1, 1) and series.version > before
    before = series.version
    series.cut(3)
    assert (series.version, series.rewrites) == (before, 1), "nothing was there to cut"
    series.add(2, 7.0)
    assert list(series.values) == [0.5, 7.0] and (series.gaps, series.rewrites) == (0, 2)
    series.add(1, math.nan)
    assert series.gaps == 1


def test_the_point_at_and_around_a_step() -> None:
    series = Series()
    assert series.at(5) is None and series.nearest(5, 0) is None
    for step in (2, 4, 8, 10):
        series.add(step, step / 10)
    assert [series.at(step) for step in (1, 2, 3, 4, 99)] == [None, (2, 0.2), (2, 0.2), (4, 0.4), (10, 1.0)]
    # 6 is as near to 4 as to 8: the later one.
    assert [series.nearest(step, 0) for step in (0, 3, 5, 6, 7, 9, 99)] == [2, 4, 4, 8, 8, 10, 10]
    assert [series.nearest(4, by) for by in (-9, -1, 0, 1, 2, 9)] == [2, 2, 4, 8, 10, 10]


def test_a_set_knows_its_first_and_last_step() -> None:
    found = SeriesSet()
    assert (found.first, found.last, found.bad_lines) == (None, None, 0)
    versions = [found.version]
    for batch in (
        Batch(records=((3, {"a": 1.0}), (5, {"a": 2.0, "b": 1.0})), bad_lines=2),
        Batch(records=((2, {"a": 0.0}),), bad_lines=1),
        Batch(cut=5),
    ):
        found.add(batch)
        versions.append(found.version)
    assert versions == sorted(set(versions)), "it grows with each change"
    assert (found.first, found.last, found.bad_lines) == (2, 3, 3)
    assert sorted(found.series) == ["a"]
    found.add(Batch(cut=0))
    assert (found.first, found.last, found.series) == (None, None, {})
    found.add(Batch(fresh=True, records=((9, {"c": 1.0}),)))
    assert (found.first, found.last, found.bad_lines) == (9, 9, 0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"step": 3, "data": {"a": 1}}', (3, {"a": 1})),
        (b'{"step": 3.0, "data": {}}', (3, {})),
        (b'{"step": 3.5, "data": {}}', None),
        (b'{"step": true, "data": {}}', None),
        (b'{"step": "3", "data": {}}', None),
        (b'{"step": null, "data": {}}', None),
        (b'{"step": 3, "data": []}', None),
        (b'{"step": 3}', None),
        (b'[3, {"a": 1}]', None),
        (b"", None),
        (b"[" * 100_000, None),
    ],
)
def test_what_is_a_record(text: bytes, found: object) -> None:
    assert decode_record(text) == found


def test_a_number_that_no_float_holds_is_infinite() -> None:
    assert number_of(10**400) == math.inf and number_of(-(10**400)) == -math.inf
    assert math.isnan(number_of(True)) and math.isnan(number_of("1")) and number_of(2) == 2.0


# -- processes


def test_a_process_belongs_to_its_nearest_actor() -> None:
    parents = {10: 1, 11: 10, 12: 11, 20: 1, 30: 31, 31: 30, 40: 99}
    assert shares([1, 10, 11, 12, 20, 30, 40], parents, {10: "a", 12: "b", 20: "a"}) == {
        "a": {10, 11, 20},
        "b": {12},
    }


# -- idle


def test_the_clock_goes_on_over_a_pause_of_ten_seconds_and_starts_anew_after_a_longer_one() -> None:
    loads = {"idle": Load(True, False), "busy": Load(True, True)}
    known = IdleDetector().seen(LoadSample(0.0, 1, loads))
    for at in range(10, 61, 10):
        assert known.since("idle") is None
        known = known.seen(LoadSample(float(at), 1, loads))
    assert known.since("idle") == 0.0 and known.since("busy") is None
    assert IDLE_S == 60.0 and PAUSE_S == 10.0
    known = known.seen(LoadSample(70.5, 1, loads))
    assert known.since("idle") is None, "nobody looked for more than ten seconds"


def test_a_pause_without_work_keeps_the_clock_for_ten_seconds() -> None:
    idle, at_work = {"a": Load(True, False)}, True
    known = IdleDetector().seen(LoadSample(0.0, 1, idle, held=at_work))
    for at in (5.0, 10.0):  # no work: the last was at 0
        known = known.seen(LoadSample(at, 1, idle))
    for at in (20.0, 30.0, 40.0, 50.0, 60.0):
        known = known.seen(LoadSample(at, 1, idle, held=True))
    assert known.since("a") == 0.0
    known = IdleDetector().seen(LoadSample(0.0, 1, idle, held=True))
    for at in (5.0, 10.5):
        known = known.seen(LoadSample(at, 1, idle))
    for at in (20.0, 30.0, 40.0, 50.0, 60.0):
        known = known.seen(LoadSample(at, 1, idle, held=True))
    assert known.since("a") is None


# -- logs


def test_an_index_is_readable_by_all_and_has_one_entry_per_interval(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    index = TailIndex(log, interval=1.0)
    assert not index.tick(100.0), "no log yet"
    log.write_text("one\n")
    before = os.umask(0o022)
    try:
        assert index.tick(100.0)
    finally:
        os.umask(before)
    assert index.path.stat().st_mode & 0o777 == 0o644
    log.write_text("one\ntwo\n")
    assert not index.tick(100.5)
    assert index.tick(101.0)
    assert not index.tick(103.0), "it has not grown"
    assert index.path.read_text() == "4 100.000\n8 101.000\n"


def test_last_lines_reach_back_256_kib(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    long = "x" * (200 << 10)
    log.write_text(f"first\n{long}\n\nlast\n")
    assert last_lines(log, 2) == [long, "last"]
    assert last_lines(log, 9) == ["first", long, "last"]
    log.write_text(f"first\n{long}{long}\nlast\n")
    assert last_lines(log, 9) == ["last"]
    whole = "x" * ((256 << 10) - 1)  # with its newline exactly what is read
    log.write_text(f"first\n{whole}\n")
    assert last_lines(log, 9) == [whole]


def test_an_index_goes_on_where_it_ended(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\n")
    TailIndex(log).tick(100.0)
    with open(f"{log}.idx", "a") as file:
        file.write("9 1")  # torn by a crash
    log.write_text("one\ntwo\n")
    again = TailIndex(log)
    assert not again.tick(100.5), "the last entry is half a second old"
    assert again.tick(101.0)


def test_a_tail_begins_at_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    assert read_tail(path, 10) == (b"", 0)
    path.write_bytes(b"aaa\nbbb\n")
    assert [read_tail(path, most) for most in (8, 7, 5, 4, 3, 1)] == [
        (b"aaa\nbbb\n", 0),
        (b"bbb\n", 4),
        (b"bbb\n", 4),
        (b"bbb\n", 4),
        (b"", 8),
        (b"", 8),
    ]
    assert [read_tail(path, 99, start) for start in (0, 1, 4, 8, 99)] == [
        (b"aaa\nbbb\n", 0),
        (b"aa\nbbb\n", 1),
        (b"bbb\n", 4),
        (b"", 8),
        (b"", 8),
    ]


# -- a trainer's log


def test_what_the_trainer_says() -> None:
    lines = [
        "Total training steps: 12",
        "Training from scratch",
        "pending: 1, running: 2, finished: 3, failure: 4",
        "Saving checkpoint to /ckpt/global_step_5 ",
    ]
    known = TrainerFacts()
    for line, told in zip(
        lines,
        (
            TrainerFacts(total_steps=12),
            TrainerFacts(total_steps=12, from_step=0),
            TrainerFacts(total_steps=12, from_step=0, rollouts=(1, 2, 3, 4)),
            TrainerFacts(12, (), 0, (1, 2, 3, 4), "/ckpt/global_step_5"),
        ),
        strict=True,
    ):
        known = trainer_facts(known, [line])
        assert known == told


def test_a_replica_starts_as_a_process_and_its_lines_are_dated_by_their_reading() -> None:
    stages = ReplicaStages()
    (boot,) = stages.feed("(vLLMHttpServer pid=7) hello\n", 50.0).values()
    assert (boot.stage, boot.progress, boot.rank, boot.up) == ("process", None, 0, False)
    stages.feed("(vLLMHttpServer pid=7) Successfully reset prefix cache\n", 123.0)
    before = time.time()
    stages.feed("(vLLMHttpServer pid=7) Successfully reset prefix cache\n")
    first, second = stages.take_events()
    assert first.at == 123.0
    assert before <= second.at <= time.time()


def test_a_wake_up_without_a_duration_takes_none() -> None:
    activity = Activity()
    activity.hear([EngineEvent(1, "slept", 10.0, 2.0), EngineEvent(1, "woke", 20.0, None, ("weights",))])
    assert activity.cycle == Cycle(10.0, 2.0, woke_at=20.0, wake_seconds=0.0)
    activity.hear([EngineEvent(1, "woke", 21.0, 0.5, ("kv_cache",))])
    assert activity.cycle is None
    assert list(activity.cycles) == [Cycle(10.0, 2.0, woke_at=20.0, serving_at=21.0, wake_seconds=0.5)]


def test_each_sleep_that_metrics_show_is_one_cycle() -> None:
    activity = Activity()
    for at, state in ((100.0, "awake"), (103.0, "off"), (106.0, "off"), (109.0, "awake"), (112.0, "awake")):
        activity.look(ActivitySigns(at, up=True, facts=EngineFacts(running=0.0, sleep_state=state)))
    activity.look(ActivitySigns(115.0, up=True, facts=EngineFacts(running=0.0, sleep_state="off")))
    activity.look(ActivitySigns(118.0, up=True, facts=EngineFacts(running=0.0, sleep_state="awake")))
    assert list(activity.cycles) == [Cycle(103.0, woke_at=109.0), Cycle(115.0, woke_at=118.0)]


def test_a_step_that_comes_again_says_nothing_of_the_pace() -> None:
    pace = StepPace()
    for step, now in ((3, 0.0), (3, 5.0)):
        pace.add([StepMetrics(step=step, values={})], now)
    assert pace.seconds is None
    pace.add([StepMetrics(step=4, values={}), StepMetrics(step=5, values={})], 9.0)
    assert pace.seconds == 2.0
    for told in (10.0, 11.0, 12.0, 13.0, 14.0) * 2:
        pace.add([StepMetrics(step=6, values={"timing_s/step": told})], 99.0)
    assert pace.seconds == 12.0, "the median of the newest ten"
    pace.clear()
    assert pace.seconds is None


def test_a_run_without_known_keys_charts_the_first_eight() -> None:
    found = SeriesSet()
    found.add(Batch(records=((1, {f"key{i}": 1.0 for i in range(10)}),)))
    assert found.default_charts() == tuple(f"key{i}" for i in range(8))


def test_a_console_that_is_written_anew_is_reset(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("step:1 - a:1.0\nstep:2 - a:2.0\n")
    reader = ConsoleReader(log)
    assert ([found.step for found in reader.poll()], reader.resets) == ([1, 2], 0)
    log.write_text("step:7 - a:1.0\n")
    assert ([found.step for found in reader.poll()], reader.resets) == ([7], 1)
