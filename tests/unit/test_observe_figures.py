"""Figures of engines, steps and resources: scrapes, activity, idle replicas, series, pace and history."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.engines.adapter.metrics import ByLabel, MetricNames
from liverl.model import EngineFacts, GpuStatus, HostStats, StepMetrics, StepTrials, TreeStats, TrialsStatus
from liverl.observe import history
from liverl.observe.boot.replica_stages import EngineEvent
from liverl.observe.engine.activity import KEPT, Activity, ActivitySigns, Cycle, judge
from liverl.observe.engine.idle import IdleDetector, Load, LoadSample
from liverl.observe.engine.metrics import EngineMeter, RateWindow, parse_engine_metrics
from liverl.observe.history import HistoryWriter, Sample, read_history, sample_of
from liverl.observe.metrics.pace import StepPace
from liverl.observe.metrics.series import CHARTS, CHUNK, Batch, Series, SeriesReader, SeriesSet, chart_name
from liverl.observe.metrics.step_lines import (
    decode_record,
    decode_step_line,
    number_of,
    parse_metrics_record,
    parse_step_line,
    training_step,
    validation_only,
)
from liverl.observe.metrics.steps import ConsoleReader, MetricsReader
from liverl.observe.metrics.verl_phase import verl_trainer_facts

# -- one scrape

NAMES = MetricNames(
    values={"running": ("e:new", "e:old"), "policy_version": ("e:version",), "kv_cache_usage": ("e:usage",)},
    by_label={"aborted_total": ByLabel(("e:done",), "why", "abort")},
    means=frozenset({"kv_cache_usage"}),
    least=frozenset({"policy_version", "max_concurrency"}),
    sleep_state="e:sleep",
    cache_info="e:cache",
    cache_labels={"kv_blocks": "blocks", "max_concurrency": "most"},
)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", {}),
        ("# HELP e:new x\n# TYPE e:new gauge\nother 3\ne:new", {}),
        ("e:new 3", {"running": 3.0}),
        ("e:new 3 1795220165000", {"running": 3.0}),
        ("e:new\t3", {"running": 3.0}),
        ("e:old 4\ne:new 3", {"running": 3.0}),
        ("e:old 4", {"running": 4.0}),
        ('e:new{engine="0"} 3\ne:new{engine="1"} 4 # {trace="a}"} 1', {"running": 7.0}),
        ('e:new{a="x} y",b="q\\"z"} 3', {"running": 3.0}),
        ("e:new NaN\ne:new +Inf\ne:new x\ne:new \ne:new{} 2", {"running": 2.0}),
        ("e:newer 3", {}),
        ('e:version 7\ne:version{engine="1"} 6.0', {"policy_version": 6}),
        ("e:usage 0.25\ne:usage 0.75\ne:usage 0.5", {"kv_cache_usage": 0.5}),
        ('e:done{why="abort"} 3\ne:done{why="abort",a="b"} 4\ne:done{why="stop"} 9', {"aborted_total": 7.0}),
        ('e:done{why="stop"} 9', {"aborted_total": 0.0}),
        ('e:done{because="abort"} 9', {}),
        (
            'e:cache{blocks="10",most="4.5"} 1\ne:cache{blocks="7",most="3.5"} 1',
            {"kv_blocks": 17, "max_concurrency": 3.5},
        ),
        ('e:cache{blocks="None"} 1\ne:cache{blocks="7"} 1', {"kv_blocks": 7}),
        ('e:sleep{sleep_state="awake"} 1', {"sleep_state": "awake"}),
        ('e:sleep{sleep_state="awake"} 1\ne:sleep{sleep_state="off"} 0', {"sleep_state": "awake"}),
        ('e:sleep{sleep_state="awake"} 0\ne:sleep{sleep_state="off"} 1', {"sleep_state": "off"}),
        ('e:sleep{sleep_state="awake"} 0\ne:sleep{sleep_state="off"} 0', {"sleep_state": "asleep"}),
        (
            'e:sleep{e="0",sleep_state="awake"} 1\ne:sleep{e="1",sleep_state="awake"} 1',
            {"sleep_state": "awake"},
        ),
        (
            'e:sleep{e="0",sleep_state="awake"} 1\ne:sleep{e="1",sleep_state="awake"} 0',
            {"sleep_state": "asleep"},
        ),
        ('e:sleep{sleep_state="off"} 1', {"sleep_state": "off"}),
        ('e:sleep{sleep_state="off"} 0', {"sleep_state": "asleep"}),
        ('e:sleep{state="awake"} 1', {}),
    ],
)
def test_facts_of_a_scrape(text: str, facts: dict[str, Any]) -> None:
    found = parse_engine_metrics(text, NAMES)
    assert found == EngineFacts(**facts)
    assert {name: type(getattr(found, name)) for name in facts} == {
        name: type(value) for name, value in facts.items()
    }


@given(
    st.lists(st.tuples(st.sampled_from([0.5, 1.0, 2.5]), st.integers(0, 9)), max_size=30),
    st.sampled_from([2.0, 5.0]),
)
def test_growth_is_what_was_counted_since_the_edge_of_the_window(
    points: list[tuple[float, int]], seconds: float
) -> None:
    """A value below the one before means that the counter began anew from 0."""
    window, at, total = RateWindow(seconds), 0.0, 0
    known: list[tuple[float, int]] = []
    last = 0
    for pause, value in points:
        at += pause
        total += (value - last if value >= last else value) if known else 0
        last = value
        known.append((at, total))
        window.add(at, value)
        window.add(at, value + 5)  # at the same time: ignored
    if len(known) < 2:
        assert window.growth is None and window.rate is None
    else:
        old = [point for point in known if point[0] <= at - seconds]
        base = old[-1] if old else known[0]
        base = known[-2] if base == known[-1] else base
        assert window.growth == total - base[1]
        assert window.rate == (total - base[1]) / (at - base[0])
    window.clear()
    assert window.growth is None
    window.add(at + 1, 100)
    assert window.growth is None


def test_windows_are_ten_seconds_long() -> None:
    window, meter = RateWindow(), EngineMeter()
    for at, tokens in ((0.0, 0.0), (9.5, 950.0), (10.5, 960.0), (19.75, 960.0)):
        window.add(at, tokens)
        facts = meter.update(at, EngineFacts(generation_tokens_total=tokens))
    assert window.rate == facts.tokens_per_s == 10.0 / 10.25, (
        "from 9.5, the newest point that is ten seconds old"
    )


def test_rates_of_a_replica() -> None:
    meter = EngineMeter(5.0)

    def update(at: float, *counters: float | None) -> tuple[float | None, float | None]:
        names = ("generation_tokens_total", "prefix_cache_queries_total", "prefix_cache_hits_total")
        told = EngineFacts(running=2.0, **dict(zip(names, counters, strict=True)))  # type: ignore[arg-type]
        facts = meter.update(at, told)
        assert facts.running == 2.0
        return facts.tokens_per_s, facts.prefix_cache_hit_rate

    assert update(0.0, 100.0, 10.0, 5.0) == (None, None)
    assert update(2.0, 120.0, 10.0, 5.0) == (10.0, None), "nothing was looked up"
    assert update(4.0, 120.0, 20.0, 8.0) == (5.0, 0.3)
    assert update(5.0, None, 20.0, 40.0) == (5.0, 1.0), "never more than all"
    assert update(6.0, 150.0, None, None) == (50 / 6, 1.0)


# -- what a replica does

UP = ActivitySigns(0.0, up=True)


def signs(**other: Any) -> ActivitySigns:
    return ActivitySigns(0.0, **{"up": True, **other})


@pytest.mark.parametrize(
    ("seen", "facts", "cycle", "updated", "what", "why"),
    [
        (signs(up=False), EngineFacts(running=1.0), None, True, "booting", "it is not serving yet"),
        (UP, None, None, True, "unknown", "it has not reported its load"),
        (UP, None, Cycle(1.0), True, "asleep", "the trainer is using its GPUs"),
        (
            UP,
            None,
            Cycle(1.0, woke_at=2.0),
            True,
            "updating",
            "its weights are loaded, but its KV cache is not",
        ),
        (
            UP,
            EngineFacts(sleep_state="off", updates_in_flight=1.0),
            None,
            True,
            "updating",
            "a weight update is in progress",
        ),
        (UP, EngineFacts(sleep_state="off", sleeps_in_flight=1.0), None, True, "waking", "it is waking up"),
        (
            UP,
            EngineFacts(sleep_state="off", sleeps_in_flight=0.0),
            None,
            True,
            "asleep",
            "the trainer is using its GPUs",
        ),
        (
            UP,
            EngineFacts(sleep_state="off", waiting=3.0),
            None,
            True,
            "asleep",
            "3 requests are waiting for it",
        ),
        (
            UP,
            EngineFacts(sleep_state="off", waiting=0.0),
            None,
            True,
            "asleep",
            "the trainer is using its GPUs",
        ),
        (
            UP,
            EngineFacts(sleep_state="off"),
            Cycle(1.0, woke_at=2.0),
            True,
            "asleep",
            "the trainer is using its GPUs",
        ),
        (UP, EngineFacts(waiting=2.0), Cycle(1.0), True, "asleep", "2 requests are waiting for it"),
        (UP, EngineFacts(sleep_state="awake", sleeps_in_flight=1.0), None, True, "idle", "no requests"),
        (UP, EngineFacts(running=2.0, waiting=1.0), None, True, "serving", "2 requests are running"),
        (
            signs(trainer_phase="sync"),
            EngineFacts(running=2.0),
            None,
            True,
            "serving",
            "2 requests are running",
        ),
        (
            signs(trainer_phase="sync"),
            EngineFacts(waiting=2.0),
            None,
            True,
            "updating",
            "the trainer is sending weights",
        ),
        (signs(trainer_phase="rollout"), EngineFacts(), None, True, "idle", "no requests"),
        (
            signs(policy_version=4),
            EngineFacts(policy_version=3, waiting=1.0),
            None,
            True,
            "updating",
            "it has policy version 3, the trainer has 4",
        ),
        (signs(policy_version=4), EngineFacts(policy_version=4), None, True, "idle", "no requests"),
        (signs(policy_version=4), EngineFacts(), None, True, "idle", "no requests"),
        (UP, EngineFacts(policy_version=4), None, True, "idle", "no requests"),
        (UP, EngineFacts(waiting=2.0), None, False, "serving", "2 requests are waiting, none is running"),
        (UP, EngineFacts(), None, False, "booting", "it has not received weights from the trainer yet"),
        (signs(hybrid=False), EngineFacts(), None, False, "idle", "no requests"),
        (signs(hybrid=False), EngineFacts(), None, True, "idle", "no requests"),
    ],
)
def test_what_a_replica_does_and_why(
    seen: ActivitySigns, facts: EngineFacts | None, cycle: Cycle | None, updated: bool, what: str, why: str
) -> None:
    assert judge(seen, facts, cycle, updated) == (what, why)


def test_without_a_fresh_answer_only_the_log_tells() -> None:
    assert judge(UP, None, Cycle(1.0, woke_at=2.0), False)[0] == "updating"
    activity = Activity()
    state = activity.look(signs(facts=EngineFacts(running=1.0)))
    assert (state.what, state.since, state.ready) == ("serving", 0.0, True)
    for at, what in ((10.0, "serving"), (15.0, "serving"), (15.5, "unknown")):
        state = activity.look(ActivitySigns(at, up=True))
        assert state.what == what
    assert (state.since, state.ready) == (15.5, False)


def event(at: float, kind: Any, seconds: float | None = None, *tags: str) -> EngineEvent:
    return EngineEvent(1, kind, at, seconds, tags)


def test_sleeps_that_the_log_tells() -> None:
    activity = Activity()
    activity.hear(
        [event(1.0, "updated", 9.0), event(1.5, "woke", 9.0, "weights"), event(2.0, "woke", 9.0, "kv_cache")]
    )
    assert (activity.cycle, list(activity.cycles), activity.updated) == (None, [], False), (
        "its sleep was not told"
    )
    activity.hear([event(10.0, "slept", 0.5)])
    assert activity.cycle == Cycle(10.0, 0.5)
    assert (activity.cycle.asleep_for, activity.cycle.update_for) == (None, None)
    activity.hear(
        [
            event(20.0, "woke", 1.0, "weights"),
            event(21.0, "updated", 4.0),
            event(22.0, "woke", 2.0, "weights"),
        ]
    )
    assert activity.cycle == Cycle(10.0, 0.5, woke_at=20.0, wake_seconds=3.0, update_seconds=4.0)
    assert (activity.cycle.asleep_for, activity.cycle.update_for, activity.updated) == (10.0, None, False)
    activity.hear([event(25.0, "woke", 1.0, "kv_cache")])
    done = Cycle(10.0, 0.5, woke_at=20.0, serving_at=25.0, wake_seconds=4.0, update_seconds=4.0)
    assert (activity.cycle, list(activity.cycles), activity.updated) == (None, [done], True)
    assert (done.asleep_for, done.update_for) == (10.0, 5.0)
    # Woken up as a whole, and a sleep whose end was not told.
    activity.hear(
        [event(30.0, "slept"), event(40.0, "slept"), event(50.0, "drained"), event(51.0, "woke", 1.0)]
    )
    assert list(activity.cycles)[1:] == [
        Cycle(30.0),
        Cycle(40.0, woke_at=51.0, serving_at=51.0, wake_seconds=1.0),
    ]
    activity.hear(event(float(at), "slept") for at in range(100, 100 + KEPT + 2))
    assert len(activity.cycles) == KEPT == 256 and activity.cycles[0].slept_at == 101.0
    freed = EngineEvent(1, "slept", 999.0, 1.0, freed_gib=27.5)
    activity.hear([freed])
    assert activity.cycle == Cycle(999.0, 1.0, 27.5)


def test_since_when_a_replica_sleeps() -> None:
    awake, asleep = EngineFacts(sleep_state="awake", running=1.0), EngineFacts(sleep_state="off")

    def since(slept: float) -> float:
        activity = Activity()
        activity.look(ActivitySigns(10.0, up=True, facts=awake))
        activity.hear([event(slept, "slept")])
        return activity.look(ActivitySigns(20.0, up=True, facts=asleep)).since

    assert [since(at) for at in (5.0, 10.0, 15.0, 20.0, 25.0)] == [10.0, 10.0, 15.0, 20.0, 20.0]
    activity = Activity()
    activity.hear([event(5.0, "slept")])
    assert activity.look(ActivitySigns(20.0, up=True, facts=asleep)).since == 20.0, "the first look"
    assert activity.look(ActivitySigns(30.0, up=True, facts=asleep)).since == 20.0
    activity = Activity()
    activity.look(ActivitySigns(10.0, up=True, facts=awake))
    assert activity.look(ActivitySigns(20.0, up=True, facts=asleep)).since == 20.0, "the log told nothing"


def test_a_sleep_that_log_and_metrics_tell_is_one() -> None:
    awake, asleep = EngineFacts(sleep_state="awake"), EngineFacts(sleep_state="off")

    def cycles(heard_at: float | None, *, under_way: bool = False) -> list[Cycle]:
        activity = Activity()
        if heard_at is not None:
            activity.hear([event(heard_at, "slept" if under_way else "cache_reset")])
        for at, facts in (
            (100.0, asleep),
            (103.0, EngineFacts()),
            (104.0, asleep),
            (110.0, awake),
            (113.0, awake),
        ):
            activity.look(ActivitySigns(at, up=True, facts=facts))
        assert activity.updated
        return list(activity.cycles)

    seen = [Cycle(100.0, woke_at=110.0)]
    assert cycles(None) == cycles(84.0) == seen
    assert cycles(85.0) == cycles(99.0) == [], "the log told within 15 seconds before"
    assert cycles(84.0, under_way=True) == []


def test_only_a_replica_that_has_weights_is_ready() -> None:
    def ready(**told: Any) -> bool:
        return Activity().look(signs(**told)).ready

    assert ready(facts=EngineFacts(running=1.0)) and ready(facts=EngineFacts(), hybrid=False)
    assert not ready(facts=EngineFacts())
    assert not ready(facts=EngineFacts(), hybrid=False, trainer_phase="sync")
    assert not ready(up=False, hybrid=False)


# -- idle replicas

IDLE, BUSY, QUEUED, AWAY = Load(True, False), Load(True, True), Load(True, False, True), Load(False, False)


def watched(*looks: tuple[float, dict[str, Load]], rollout: int = 1, **more: bool) -> IdleDetector:
    known = IdleDetector()
    for at, loads in looks:
        known = known.seen(LoadSample(at, rollout, loads, **more))
    return known


def test_what_counts_as_work() -> None:
    for other, since in ((BUSY, 0.0), (QUEUED, 0.0), (IDLE, None), (AWAY, None), (Load(False, True), 0.0)):
        looks = [(10.0 * n, {"a": IDLE, "b": other}) for n in range(7)]
        assert watched(*looks).since("a") == since
    assert watched(*((10.0 * n, {"a": QUEUED}) for n in range(7))).since("a") == 0.0
    assert watched(*((10.0 * n, {"a": Load(True, True, True)}) for n in range(7))).since("a") is None
    assert watched(*((10.0 * n, {"a": IDLE}) for n in range(7)), held=True).since("none") is None


def test_the_time_of_the_last_work_is_remembered() -> None:
    work, none = {"a": IDLE, "b": BUSY}, {"a": IDLE, "b": IDLE}
    looks = [(0.0, work), (8.0, work), (18.0, none), (20.0, work)]
    assert watched(*looks, *((20.0 + 10 * n, work) for n in range(1, 5))).since("a") == 0.0
    looks = [(0.0, work), (8.0, work), (13.0, none), (18.5, none), (20.0, work)]
    assert watched(*looks, *((20.0 + 10 * n, work) for n in range(1, 5))).since("a") is None
    assert watched(*looks, *((20.0 + 10 * n, work) for n in range(1, 7))).since("a") == 20.0
    assert watched(*((10.0 * n, none) for n in range(20))).since("a") is None


def test_a_pause_between_two_looks() -> None:
    work = {"a": IDLE, "b": BUSY}
    assert (
        watched(
            (0.0, work), (10.0, work), (20.0, work), (30.0, work), (40.0, work), (50.0, work), (60.0, work)
        ).since("a")
        == 0.0
    )
    assert watched((0.0, work), (10.5, work), *((20.0 + n * 10, work) for n in range(5))).since("a") is None
    known = watched((0.0, work), (10.5, work), *((20.0 + n * 10, work) for n in range(7)))
    assert known.since("a") == 10.5


def test_who_did_its_share_is_not_idle_when_all_is_handed_out() -> None:
    known = IdleDetector()
    for at in range(0, 20, 10):
        known = known.seen(LoadSample(float(at), 1, {"a": BUSY, "b": BUSY}))
    for at in range(20, 100, 10):
        known = known.seen(LoadSample(float(at), 1, {"a": IDLE, "b": BUSY}, handed_out=at >= 70))
    assert known.since("a") is None, "it was not yet a verdict when the last trial was handed out"
    assert known.worked == {"a", "b"}
    known = known.seen(LoadSample(100.0, 2, {"a": IDLE, "b": BUSY}))
    assert known.worked == {"b"}, "of this step alone"
    assert known.seen(LoadSample(101.0, None, {"b": BUSY})) == IdleDetector(101.0)


# -- steps


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("step:3 - a:1 - b/c:2.5", (3, {"a": 1.0, "b/c": 2.5})),
        ("(TaskRunner pid=1) step:0 - a:-1e-3", (0, {"a": -0.001})),
        ("(TaskRunner pid=1)step:0 - a:1", (0, {"a": 1.0})),
        ("Progress: 50%| 1/2\rstep:7 - a:1\r", (7, {"a": 1.0})),
        ("\x1b[36mstep:7\x1b[0m - a:1", (7, {"a": 1.0})),
        ("step:7 - a:np.float64(0.5) - b:tensor(2.0, device='cuda:0') - c:x(y)", (7, {"a": 0.5, "b": 2.0})),
        ("step:7 - val:core:1 - d:1:x", (7, {"val:core": 1.0})),
        ("step:7 - a : 1 - :2 - 3 - b:", (7, {"a": 1.0})),
        ("step:7 - a:tensor(1, device='cuda:0')", (7, {"a": 1.0})),
        ("step:7 - a:x", None),
        ("step:7 -", None),
        ("step:x - a:1", None),
        ("global_step:7 - a:1", None),
        ("xstep:7 - a:1", None),
        ("nothing", None),
        ("", None),
        ("step:" + "9" * 18 + " - a:1", (int("9" * 18), {"a": 1.0})),
        ("step:" + "9" * 19 + " - a:1", None),
    ],
)
def test_a_step_line(line: str, step: tuple[int, dict[str, float]] | None) -> None:
    assert decode_step_line(line) == step
    assert parse_step_line(line) == (None if step is None else StepMetrics(step[0], step[1]))


def test_what_is_not_finite_is_kept_for_charts_and_dropped_for_steps() -> None:
    line = "step:1 - a:nan - b:inf - c:2"
    decoded = decode_step_line(line)
    assert decoded is not None and math.isnan(decoded[1]["a"]) and decoded[1]["b"] == math.inf
    assert parse_step_line(line) == StepMetrics(1, {"c": 2.0}) and parse_step_line("step:1 - a:nan") is None
    record = b'{"step": 1, "data": {"a": NaN, "b": 1, "c": "x", "d": true, "e": null}}'
    assert parse_metrics_record(record) == StepMetrics(1, {"b": 1.0})
    assert parse_metrics_record(b'{"step": 1, "data": {"a": NaN}}') == StepMetrics(1, {})
    assert parse_metrics_record(b'{"step": 1}') is None
    assert decode_record(b'{"step": -2, "data": {"a": [1]}}') == (-2, {"a": [1]})
    assert (
        decode_record(b'{"step": NaN, "data": {}}')
        is decode_record(b'{"step": Infinity, "data": {}}')
        is None
    )
    assert decode_record(b'{"step": 1e3, "data": {}, "x": "\xff"}') is None
    assert [number_of(value) for value in (1, 2.5, -3)] == [1.0, 2.5, -3.0]
    assert all(math.isnan(number_of(value)) for value in (None, True, False, "1", [], {}))


def test_which_step_a_record_belongs_to() -> None:
    assert training_step(StepMetrics(3, {"training/global_step": 7.0})) == 7
    assert training_step(StepMetrics(3, {"training/global_step": 0.0})) == 0
    assert training_step(StepMetrics(3, {"a": 1.0})) is None
    assert validation_only(["val-core/a", "val-aux/b"]) and not validation_only(["val-core/a", "b"])
    assert not validation_only([]) and not validation_only({})


def test_records_of_a_file_become_steps(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reader = MetricsReader(path)
    assert reader.poll() == [] and (reader.bad_lines, reader.resets) == (0, 0)

    def write(*records: tuple[int, dict[str, float]], mode: str = "a") -> None:
        with path.open(mode) as file:
            file.writelines(json.dumps({"step": step, "data": data}) + "\n" for step, data in records)

    write(
        (1, {"a": 1.0, "b": math.nan}), (2, {"val-core/x": 1.0}), (3, {}), (4, {"val-core/x": 1.0, "a": 2.0})
    )
    with path.open("a") as file:
        file.write("garbage\n")
    assert reader.poll() == [
        StepMetrics(1, {"a": 1.0}),
        StepMetrics(3, {}),
        StepMetrics(4, {"val-core/x": 1.0, "a": 2.0}),
    ]
    assert (reader.bad_lines, reader.resets, reader.poll()) == (1, 0, [])
    with path.open("a") as file:
        file.write("garbage\n")
    assert reader.poll() == [] and reader.bad_lines == 2
    write((9, {"a": 1.0}), mode="w")
    assert [metrics.step for metrics in reader.poll()] == [9] and reader.resets == 1


def test_four_mib_of_steps_are_read_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    record = json.dumps({"step": 1, "data": {"a": 1.0}, "x": ""})
    line = record[:-2] + "y" * (CHUNK // 4 - len(record) - 1) + record[-2:] + "\n"
    assert len(line) == CHUNK // 4
    path.write_text(line * 20)
    reader = MetricsReader(path)
    assert [len(reader.poll()) for _ in range(3)] == [16, 4, 0]
    assert CHUNK == 1 << 20


def test_a_later_attempt_takes_back_the_steps_that_it_repeats(tmp_path: Path) -> None:
    first, second = tmp_path / "attempt_001", tmp_path / "attempt_002"
    for folder, steps in ((first, (1, 2, 3)), (second, (2, 3))):
        folder.mkdir()
        text = "".join(json.dumps({"step": step, "data": {folder.name: 1.0}}) + "\n" for step in steps)
        (folder / "metrics.verl.jsonl").write_text(text)
    reader = MetricsReader.of_run(tmp_path)
    found = [metrics for _ in range(4) for metrics in reader.poll()]
    assert [(metrics.step, *metrics.values) for metrics in found][-2:] == [
        (2, "attempt_002"),
        (3, "attempt_002"),
    ]
    assert [metrics.step for metrics in found if "attempt_001" in metrics.values][:1] == [1]


def test_step_lines_of_a_console(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = ConsoleReader(path)
    assert reader.poll() == []
    path.write_bytes(
        b"hello\nstep:1 - a:1\n\xffstep: no\n\xff step:2 - a:nan\n\xff step:3 - a:3\nstep:4 - a:"
    )
    assert reader.poll() == [StepMetrics(1, {"a": 1.0}), StepMetrics(3, {"a": 3.0})]
    with path.open("a") as file:
        file.write("4\n")
    assert reader.poll() == [StepMetrics(4, {"a": 4.0})] and reader.resets == 0


def test_the_pace_of_steps() -> None:
    def step(number: int, **values: float) -> StepMetrics:
        return StepMetrics(number, {key.replace("__", "/"): value for key, value in values.items()})

    pace = StepPace()
    pace.add([], 1.0)
    pace.add([step(1)], 2.0)
    assert pace.seconds is None, "one line is no duration"
    pace.add([], 50.0)
    pace.add([step(3)], 10.0)
    assert pace.seconds == 4.0, "8 seconds for two steps"
    pace.add([step(3)], 20.0)
    assert pace.seconds == 4.0
    pace.add([step(4, timing_s__step=0.0, perf__time_per_step=7.0)], 21.0)
    assert pace.seconds == statistics.median([4.0, 7.0])
    pace.add([step(5, timing_s__step=9.0, perf__time_per_step=1.0)], 22.0)
    assert pace.seconds == 7.0
    pace.add([step(6, timing_s__step=-1.0)], 25.0)
    assert pace.seconds == statistics.median([4.0, 7.0, 9.0, 3.0])
    pace.add([step(7)], 30.0, fresh=False)
    pace.add([step(8)], 40.0)
    assert pace.seconds == statistics.median([4.0, 7.0, 9.0, 3.0]), "when step 7 was written is not known"
    pace.clear()
    assert pace.seconds is None
    pace.add([step(9)], 50.0)
    assert pace.seconds is None, "nothing of before is known"
    for seconds in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        pace.add([step(10, timing_s__step=seconds)], 60.0)
    assert pace.seconds == 4.0, "of the newest five"


# -- phases of verl's trainer


@pytest.mark.parametrize(
    ("step", "trials", "per_step", "facts"),
    [
        (None, [], None, {"step": 0, "policy_version": 0, "phase": "init"}),
        (0, [], None, {"step": 0, "policy_version": 0, "phase": "init"}),
        (3, [], None, {"step": 3, "policy_version": 3, "phase": "sync"}),
        (None, [(1, 4, 3)], None, {"step": 0, "phase": "rollout", "trials_done": 3, "trials_total": 4}),
        (None, [(1, 4, 4)], None, {"step": 0, "phase": "update", "trials_done": 4, "trials_total": 4}),
        (None, [(1, 4, 4)], 5, {"step": 0, "phase": "rollout", "trials_done": 4, "trials_total": 5}),
        (None, [(1, 6, 6)], 5, {"step": 0, "phase": "update", "trials_done": 6, "trials_total": 6}),
        (None, [(8, 4, 1), (7, 4, 4)], None, {"step": 7, "phase": "rollout", "trials_done": 1}),
        (
            2,
            [(4, 4, 1), (3, 4, 4)],
            4,
            {"step": 3, "policy_version": 3, "phase": "rollout", "trials_done": 1},
        ),
        (2, [(5, 4, 1), (3, 4, 4)], 4, {"step": 2, "policy_version": 2, "phase": "update", "trials_done": 4}),
        (2, [(2, 4, 4), (1, 4, 4)], 4, {"step": 2, "policy_version": 2, "phase": "sync"}),
        (2, [(1, 4, 4)], 4, {"step": 2, "policy_version": 2, "phase": "sync"}),
    ],
)
def test_the_phase_of_a_trainer(
    step: int | None, trials: list[tuple[int, int, int]], per_step: int | None, facts: dict[str, Any]
) -> None:
    metrics = None if step is None else StepMetrics(step, {})
    status = TrialsStatus(
        steps=tuple(StepTrials(number, total, done, 0, None) for number, total, done in trials)
    )
    found = verl_trainer_facts(metrics, status, per_step)
    assert {**found, **facts} == found
    assert ("trials_total" in found) == (found["phase"] in ("rollout", "update"))


# -- series

NUMBERS = st.sampled_from([0.0, 1.5, math.nan, math.inf])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), NUMBERS), max_size=30), st.integers(-1, 10))
def test_a_series_with_cuts_is_what_a_dictionary_would_be(
    actions: list[tuple[bool, int, float]], step: int
) -> None:
    series, model = Series(), dict[int, float]()
    version = rewrites = 0
    for is_cut, at, value in actions:
        if is_cut:
            gone = [known for known in model if known >= at]
            for known in gone:
                del model[known]
            version += bool(gone)
            rewrites += bool(gone)
            series.cut(at)
        else:
            rewrites += bool(model) and at <= max(model)
            version += 1
            model[at] = value
            series.add(at, value)
        assert (series.version, series.rewrites) == (version, rewrites)
        assert series.gaps == sum(not math.isfinite(known) for known in model.values())
        assert list(series.steps) == sorted(model) and len(series) == len(model)
        assert [repr(value) for value in series.values] == [repr(model[known]) for known in sorted(model)]
    before = [known for known in sorted(model) if known <= step]
    point = series.at(step)
    assert (point is None) == (not before)
    if point is not None:
        assert point[0] == before[-1] and repr(point[1]) == repr(model[before[-1]])
    if not model:
        assert series.nearest(step, 0) is None
        return
    steps = sorted(model)
    near = min(steps, key=lambda known: (abs(known - step), -known))
    assert series.nearest(step, 0) == near
    for by in (-20, -2, -1, 1, 2, 20):
        assert series.nearest(step, by) == steps[max(0, min(len(steps) - 1, steps.index(near) + by))]


def test_a_set_of_series_follows_its_batches() -> None:
    found = SeriesSet()
    assert (found.first, found.last, found.bad_lines, found.version, found.series) == (None, None, 0, 0, {})
    found.add(Batch(bad_lines=2))
    assert (found.version, found.bad_lines) == (0, 2)
    found.add(Batch(records=((5, {"a": 1.0}), (3, {"a": 2.0, "b": 1.0}), (4, {})), bad_lines=1))
    assert (found.first, found.last, found.bad_lines, found.version) == (3, 5, 3, 3)
    found.add(Batch(cut=4, records=((6, {"b": 2.0}),)))
    assert (found.first, found.last, found.version) == (3, 6, 5)
    assert {key: list(series.steps) for key, series in found.series.items()} == {"a": [3], "b": [3, 6]}
    found.add(Batch(cut=3))
    assert (found.first, found.last, found.series, found.version) == (None, None, {}, 6)
    found.add(Batch(records=((1, {"a": 1.0}),), bad_lines=4))
    found.add(Batch(fresh=True, bad_lines=1, records=((9, {"c": 1.0}),)))
    assert (found.first, found.last, found.bad_lines, found.version, list(found.series)) == (
        9,
        9,
        1,
        9,
        ["c"],
    )


def charts(*keys: str) -> tuple[str, ...]:
    found = SeriesSet()
    found.add(Batch(records=((1, dict.fromkeys(keys, 1.0)),)))
    return found.default_charts()


def test_which_charts_are_shown() -> None:
    assert charts() == ()
    assert charts(*(f"k{n}" for n in range(9, -1, -1))) == tuple(f"k{n}" for n in range(8))
    assert charts("x", "actor/entropy") == ("actor/entropy",)
    assert charts("critic/rewards/mean", "critic/score/mean") == ("critic/score/mean",)
    shown = charts("val-core/b", "val-core/a", "actor/entropy", "critic/rewards/mean")
    assert shown == ("critic/rewards/mean", "val-core/a", "actor/entropy")
    assert charts("val-core/a", "x") == ("val-core/a", "x")
    assert charts(*(keys[0] for _, keys in CHARTS)) == tuple(keys[0] for _, keys in CHARTS)
    for name, keys in CHARTS:
        assert [chart_name(key) for key in keys] == [name] * len(keys)
    assert (chart_name("val-core/a"), chart_name("val-aux/a"), chart_name("")) == ("validation", "", "")


def test_a_reader_of_series_knows_how_far_it_is(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    line = json.dumps({"step": 1, "data": {"a": 1.0}}) + "\n"
    path.write_text(line * 3)
    reader = SeriesReader(path)
    assert reader.offset == 0
    batch = reader.poll(len(line))
    assert (len(batch.records), batch.more, reader.offset) == (1, True, len(line))
    assert len(reader.poll().records) == 2 and reader.offset == 3 * len(line)
    of_run = SeriesReader.of_run(tmp_path)
    assert len(of_run.poll().records) == 3


# -- history


def test_what_a_chart_can_show_is_stored() -> None:
    gpu = GpuStatus(0, "GPU-1", "H200", 0.996, 5, 9, 611.5, 700.0, 60.0, "a")
    dark = GpuStatus(1, "GPU-2", "H200", None, None, 9, None, 700.0, 60.0, "a")
    trees = {"a": TreeStats(1, 99.96, 7), "b": TreeStats(2, None, 8), "gone": TreeStats(0, 1.0, 9)}
    sample = sample_of(1000.06, HostStats(12.36, 4, 5, 6), (gpu, dark), trees)
    assert sample == Sample(
        1000.1,
        (12.4, 5),  # type: ignore[arg-type]
        {"GPU-1": (1.0, 5, 612.0), "GPU-2": (None, None, None)},  # type: ignore[dict-item]
        {"a": (100.0, 7), "b": (None, 8)},  # type: ignore[dict-item]
    )
    assert sample_of(1.0, HostStats(), (), {}).host == (None, HostStats().memory_used)


def stored(folder: Path) -> bytes:
    return (folder / "history.jsonl").read_bytes()


def test_each_sample_is_one_line(tmp_path: Path) -> None:
    for at in (1.0, 2.0):
        writer = HistoryWriter(tmp_path)
        writer.append(Sample(at))
        writer.append(Sample(at + 0.5))
    lines = stored(tmp_path).split(b"\n")
    assert [json.loads(line)["at"] for line in lines[:-1]] == [1.0, 1.5, 2.0, 2.5] and lines[-1] == b""
    assert (tmp_path / "history.jsonl").stat().st_mode & 0o777 & ~0o022 == 0o644
    with (tmp_path / "history.jsonl").open("ab") as file:
        file.write(b"{")
    writer.append(Sample(3.0))  # it wrote the last line itself, and does not look again
    assert stored(tmp_path).split(b"\n")[4].startswith(b"{{")
    with (tmp_path / "history.jsonl").open("ab") as file:
        file.write(b"{")
    HistoryWriter(tmp_path).append(Sample(4.0))
    assert stored(tmp_path).split(b"\n")[5] == b"{"
    assert [sample.at for sample in read_history(tmp_path)] == [1.0, 1.5, 2.0, 2.5, 4.0]
    assert [sample.at for sample in read_history(tmp_path, 1.5)] == [2.0, 2.5, 4.0]
    assert read_history(tmp_path, 4.0) == ()


def test_a_full_file_becomes_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HistoryWriter(tmp_path).append(Sample(1.0))
    size = len(stored(tmp_path))
    monkeypatch.setattr(history, "LIMIT", 2 * size)
    writer = HistoryWriter(tmp_path)
    writer.append(Sample(2.0))
    assert not (tmp_path / "history.jsonl").exists(), "as large as the limit"
    assert (tmp_path / "history.old.jsonl").stat().st_size == 2 * size
    writer.append(Sample(3.0))
    assert len(stored(tmp_path)) == size
    assert [sample.at for sample in read_history(tmp_path)] == [1.0, 2.0, 3.0]
    monkeypatch.setattr(history, "LIMIT", 3 * size + 1)
    writer.append(Sample(4.0))
    writer.append(Sample(5.0))
    assert len(stored(tmp_path)) == 3 * size
    writer.append(Sample(6.0))
    assert [sample.at for sample in read_history(tmp_path)] == [3.0, 4.0, 5.0, 6.0], "the oldest is gone"
