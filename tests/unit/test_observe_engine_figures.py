"""Figures of engines: one scrape, rates, what a replica does, and whether it is idle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.engines.adapter.metrics import ByLabel, MetricNames
from liverl.model import EngineFacts
from liverl.observe.boot.replica_stages import EngineEvent
from liverl.observe.engine.activity import KEPT, Activity, ActivitySigns, Cycle, judge
from liverl.observe.engine.idle import IdleDetector, Load, LoadSample
from liverl.observe.engine.metrics import EngineMeter, MetricsParser, RateWindow, parse_engine_metrics

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


_LINES = st.sampled_from(
    (
        "e:new 3", "e:new 4", "e:old 5", 'e:new{engine="1"} 3', "e:new NaN", "e:version 7", "e:version 8",
        "e:usage 0.25", "e:usage 0.75", 'e:done{why="abort"} 3', 'e:done{why="stop"} 3', 'e:done{a="b"} 3',
        'e:cache{blocks="7"} 1', 'e:cache{most="3.5"} 1', 'e:sleep{sleep_state="awake"} 1',
        'e:sleep{sleep_state="off"} 1', 'e:info{digest="a"} 1', 'e:info{digest="b"} 1', 'e:asked{route="r"} 2',
        "other 1", "other 22", "# e:new 3", "e:newer 3", "e:new7 1", "e:new\t6", "e:new ", "e:new", "e:new{", "",
    )
)  # fmt: skip


@given(st.lists(st.lists(_LINES, max_size=8), max_size=8))
def test_the_scrapes_before_change_nothing_of_what_one_says(scrapes: list[list[str]]) -> None:
    names = replace(NAMES, policy_info="e:info", weight_requests="e:asked")
    parser = MetricsParser(names)
    for lines in scrapes:
        text = "\n".join(lines)
        assert parser.parse(text) == parse_engine_metrics(text, names)


@pytest.mark.parametrize("line", ["e:new7 1", "e:newer 3", 'e:new_bucket{le="1"} 4', "e:newé 5"])
def test_a_longer_name_in_the_place_of_a_metric_is_another_one(line: str) -> None:
    parser = MetricsParser(NAMES)
    assert parser.parse("other 1\ne:new 3\nother 2").running == 3
    assert parser.parse(f"other 1\n{line}\nother 2") == EngineFacts()
    assert parser.parse("other 1\ne:new 4\nother 2").running == 4


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
    begin = (-1.0, {"a": BUSY, "b": BUSY})  # of which both have worked
    looks = [begin, (0.0, work), (8.0, work), (18.0, none), (20.0, work)]
    assert watched(*looks, *((20.0 + 10 * n, work) for n in range(1, 5))).since("a") == 0.0
    looks = [begin, (0.0, work), (8.0, work), (13.0, none), (18.5, none), (20.0, work)]
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
