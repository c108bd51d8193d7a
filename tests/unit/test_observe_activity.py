"""What a replica inside verl does: judged from scrapes, the log's events and the trainer's word."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.model import EngineFacts
from liverl.observe.boot.replica_stages import EngineEvent, ReplicaStages
from liverl.observe.engine.activity import FRESH, Activity, ActivitySigns, ActivityState, Cycle, judge
from liverl.verl.activity import cycle_words

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
AWAKE = EngineFacts(running=0.0, waiting=0.0, sleep_state="awake")
BUSY = EngineFacts(running=3.0, waiting=1.0, sleep_state="awake")
ASLEEP = EngineFacts(running=0.0, waiting=0.0, sleep_state="discard_all")


def event(at: float, kind: str, seconds: float | None = None, *tags: str) -> EngineEvent:
    return EngineEvent(1, kind, at, seconds, tags)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("signs", "facts", "cycle", "what"),
    [
        (ActivitySigns(0.0, up=False), None, None, "booting"),
        (ActivitySigns(0.0, up=True), None, None, "unknown"),
        (ActivitySigns(0.0, up=True), ASLEEP, None, "asleep"),
        (
            ActivitySigns(0.0, up=True),
            EngineFacts(sleep_state="weights_offloaded", sleeps_in_flight=1.0),
            None,
            "waking",
        ),
        (ActivitySigns(0.0, up=True), None, Cycle(1.0), "asleep"),
        (ActivitySigns(0.0, up=True), EngineFacts(running=0.0), Cycle(1.0), "asleep"),
        # the log is delivered late: what /metrics says of now wins
        (ActivitySigns(0.0, up=True), AWAKE, Cycle(1.0), "idle"),
        (ActivitySigns(0.0, up=True), AWAKE, Cycle(1.0, woke_at=2.0), "updating"),
        (ActivitySigns(0.0, up=True), EngineFacts(running=1.0, updates_in_flight=1.0), None, "updating"),
        (ActivitySigns(0.0, up=True, trainer_phase="sync"), AWAKE, None, "updating"),
        (
            ActivitySigns(0.0, up=True, policy_version=4),
            EngineFacts(running=0.0, policy_version=3),
            None,
            "updating",
        ),
        (
            ActivitySigns(0.0, up=True, policy_version=3),
            EngineFacts(running=0.0, policy_version=4),
            None,
            "idle",
        ),
        (ActivitySigns(0.0, up=True, trainer_phase="sync"), BUSY, None, "serving"),
        (ActivitySigns(0.0, up=True), BUSY, None, "serving"),
        (ActivitySigns(0.0, up=True), EngineFacts(running=0.0, waiting=2.0), None, "serving"),
        (ActivitySigns(0.0, up=True), AWAKE, None, "idle"),
    ],
)
def test_what_it_does(
    signs: ActivitySigns, facts: EngineFacts | None, cycle: Cycle | None, what: str
) -> None:
    assert judge(signs, facts, cycle, updated=True)[0] == what


def test_a_hybrid_replica_serves_after_its_first_update() -> None:
    activity = Activity()
    assert activity.look(ActivitySigns(10.0, up=False)).what == "booting"
    dummy = activity.look(ActivitySigns(20.0, up=True, facts=AWAKE))
    assert (dummy.what, dummy.since, dummy.ready) == ("booting", 10.0, False), "its weights are dummies"
    activity.hear([event(21.0, "drained"), event(21.0, "slept", 0.5)])
    asleep = activity.look(ActivitySigns(23.0, up=True, facts=ASLEEP))
    assert (asleep.what, asleep.since, asleep.ready) == ("asleep", 21.0, False)
    activity.hear([event(25.0, "woke", 0.25, "weights")])
    assert activity.look(ActivitySigns(26.0, up=True, facts=AWAKE)).what == "updating"
    activity.hear([event(27.0, "updated", 0.125)])
    activity.hear([event(28.0, "woke", 0.5, "kv_cache")])
    idle = activity.look(ActivitySigns(29.0, up=True, facts=AWAKE))
    assert (idle.what, idle.ready, activity.updated) == ("idle", True, True)
    assert activity.look(ActivitySigns(30.0, up=True, facts=BUSY)).what == "serving"
    assert activity.look(ActivitySigns(35.0, up=True, facts=BUSY)).since == 30.0
    (cycle,) = activity.cycles
    assert cycle.update_seconds == 0.125
    assert (cycle.asleep_for, cycle.update_for, cycle.sleep_seconds, cycle.wake_seconds) == (
        4.0,
        3.0,
        0.5,
        0.75,
    )


def test_a_standalone_replica_is_ready_as_it_is() -> None:
    assert Activity().look(ActivitySigns(1.0, up=True, facts=AWAKE, hybrid=False)) == ActivityState(
        "idle", 1.0, "no requests", True
    )


def test_an_old_answer_is_no_answer() -> None:
    activity = Activity()
    activity.look(ActivitySigns(1.0, up=True, facts=BUSY))
    assert activity.look(ActivitySigns(1.0 + FRESH, up=True)).what == "serving"
    assert activity.look(ActivitySigns(2.0 + FRESH, up=True)).what == "unknown"


def test_sleeps_seen_in_the_metrics_alone() -> None:
    activity = Activity()
    for at, facts in ((0.0, AWAKE), (2.0, ASLEEP), (4.0, ASLEEP), (9.0, AWAKE)):
        activity.look(ActivitySigns(at, up=True, facts=facts))
    (cycle,) = activity.cycles
    assert (cycle.asleep_for, cycle.update_for) == (7.0, None) and activity.updated
    told = Activity()
    told.hear([event(1.0, "slept", 0.1), event(5.0, "woke", 0.1)])
    for at, facts in ((2.0, ASLEEP), (6.0, AWAKE)):
        told.look(ActivitySigns(at, up=True, facts=facts))
    assert len(told.cycles) == 1, "the log told of the same one"


def test_cycles_of_a_real_run() -> None:
    replicas = ReplicaStages()
    replicas.feed(
        (RECORDINGS / "h200/verl.log").read_bytes().decode(),
        time.mktime((2026, 11, 21, 0, 22, 0, 0, 0, -1)),
    )
    activity = Activity()
    activity.hear(found for found in replicas.take_events() if found.pid == 4547)
    first = activity.cycles[0]
    assert (first.asleep_for, first.update_for, first.freed_gib) == (1.0, 1.0, 27.7)
    assert first.sleep_seconds == 0.025097
    assert first.wake_seconds == pytest.approx(0.010702 + 0.051222)


_EVENTS = st.builds(
    EngineEvent,
    st.just(1),
    st.sampled_from(["drained", "slept", "woke", "cache_reset"]),
    st.floats(0, 1e9),
    st.none() | st.floats(0, 100),
    st.sampled_from([(), ("weights",), ("kv_cache",), ("kv_cache", "weights")]),
)
_FACTS = st.none() | st.builds(
    EngineFacts,
    running=st.none() | st.floats(0, 9),
    waiting=st.none() | st.floats(0, 9),
    policy_version=st.none() | st.integers(0, 3),
    sleep_state=st.sampled_from([None, "awake", "asleep", "discard_all"]),
)


@given(
    st.lists(st.tuples(st.lists(_EVENTS, max_size=3), st.floats(0, 1e9), st.booleans(), _FACTS), max_size=8)
)
def test_any_history_is_survived(
    looks: list[tuple[list[EngineEvent], float, bool, EngineFacts | None]],
) -> None:
    activity = Activity()
    for events, at, up, facts in looks:
        activity.hear(events)
        doing = activity.look(ActivitySigns(at, up=up, facts=facts))
        assert doing.why and (up or doing.what == "booting")
        assert not doing.ready or doing.what in ("serving", "idle")


def test_what_took_less_than_half_a_second_is_not_said_to_have_taken_none() -> None:
    words = cycle_words([Cycle(0.0, woke_at=4.2, serving_at=4.4)])
    assert words == "1 replica slept for 4 s, received new weights in under a second"
    assert (
        cycle_words([Cycle(0.0, woke_at=0.2, serving_at=1.6)])
        == "1 replica slept for less than a second, received new weights within 1 s"
    )
