"""Rules for the load of replicas, and for groups of trials: what fires each, and what comes near and does not."""

from __future__ import annotations

from typing import Any

import pytest
from kit.screens import NOW, gpu, replica, service, snapshot, trial
from msgspec.structs import replace

from liverl.diagnose.catalogue import load
from liverl.diagnose.catalogue.learning import groups_equal, groups_mostly_equal
from liverl.diagnose.catalogue.rules import RULES
from liverl.diagnose.tracker import Diagnosis, RunContext, Window
from liverl.model import ReplicaSet, Snapshot, StalledProcess, StepTrials, Symptom, TrialHead, TrialsStatus
from liverl.observe.trials.groups import equal_groups, group_of


def state(*items: Any, turns: int = 4, **fields: Any) -> Snapshot:
    heads = tuple(trial(i, 8, turns=turns, state="running", reward=None) for i in range(4))
    trials = TrialsStatus(newest=heads, steps=(StepTrials(8, 4, 0, 0, None),))
    return snapshot(
        **{"replicas": ReplicaSet(len(items), len(items), len(items), items), "trials": trials, **fields}
    )


def look(now: Snapshot, before: Snapshot | None = None) -> dict[str, Symptom]:
    seen = Window(now, before, RunContext())
    own = [rule for rule in RULES if rule.look.__module__ == load.__name__]
    assert len(own) == 5 and all(rule.hold == load.HOLD_S for rule in own)
    return {s.id: s for rule in own for s in rule.look(seen) if isinstance(s, Symptom)}


def test_healthy_replicas() -> None:
    assert look(snapshot(), snapshot()) == look(state(replica(0), replica(1))) == {}


# --- caches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "rate", "turns", "fires"),
    [
        (0.85, 0.29, 4, True),  # of four turns three fifths are sent again; half of that is 0.3
        (0.84, 0.29, 4, False),
        (0.85, 0.3, 4, False),
        (0.99, 0.0, 2, False),  # short trials send little again
        (0.99, 0.24, 3, True),
        (None, 0.1, 4, False),
        (0.99, None, 4, False),
    ],
)
def test_a_prefix_cache_that_thrashes(
    usage: float | None, rate: float | None, turns: int, fires: bool
) -> None:
    found = look(state(replica(0, kv_cache_usage=usage, prefix_cache_hit_rate=rate), replica(1), turns=turns))
    assert (found.keys() == {"prefix_cache_thrashes:r0"}) is fires and bool(found) is fires


def test_what_is_said_of_a_cache_that_thrashes() -> None:
    symptom = look(state(replica(0, kv_cache_usage=0.93, prefix_cache_hit_rate=0.1, waiting=9.0), turns=9))
    found = symptom["prefix_cache_thrashes:r0"]
    assert symptom.keys() == {"prefix_cache_thrashes:r0"}, "the queue has the same cause"
    assert (
        "about 80% of their prompt tokens have been sent before" in found.cause and "93% full" in found.cause
    )
    assert found.evidence[1].text == "r0: KV cache 93% full, 3 running, 9 waiting"


@pytest.mark.parametrize(
    ("usage", "waiting", "fires"),
    [(0.95, 1.0, True), (0.949, 9.0, False), (1.0, 0.0, False), (None, 9.0, False)],
)
def test_a_cache_that_is_too_small_for_its_requests(usage: float | None, waiting: float, fires: bool) -> None:
    found = look(state(replica(0, kv_cache_usage=usage, waiting=waiting, max_concurrency=2.5)))
    assert (found.keys() == {"kv_cache_below_demand:r0"}) is fires and bool(found) is fires
    if fires:
        assert (
            "4 requests run or wait at r0; it holds 2.5 requests" in found["kv_cache_below_demand:r0"].cause
        )


def test_preempted_requests_need_a_larger_cache() -> None:
    def preempted(count: float | None, generation: int = 1) -> Snapshot:
        return state(replica(0, preemptions_total=count, generation=generation))

    found = look(preempted(3.0), preempted(2.0))
    assert found["kv_cache_below_demand:r0"].evidence[1].text == "r0: 3 preemptions since its start"
    assert look(preempted(3.0), preempted(3.0)) == look(preempted(3.0)) == {}
    assert look(preempted(3.0, 2), preempted(2.0)) == look(preempted(None), preempted(2.0)) == {}


# --- balance ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "running", "others", "fires"),
    [
        (4.0, 8.0, {"running": 3.9}, True),
        (3.0, 8.0, {"running": 3.9}, False),
        (4.0, 8.0, {"running": 4.0}, False),
        (4.0, 8.0, {"running": 1.0, "waiting": 1.0}, False),
        (4.0, 8.0, {"running": None}, False),
        (4.0, 8.0, {"running": 0.0, "listed": False}, False),
        (4.0, 8.0, {"running": 0.0, "leaving": True}, False),
        (4.0, 8.0, {"running": 0.0, "activity": "asleep"}, False),
        (4.0, 8.0, {"running": 0.0, "state": "degraded", "listed": True}, True),
    ],
)
def test_requests_that_wait_beside_a_free_replica(
    waiting: float, running: float, others: dict[str, Any], fires: bool
) -> None:
    found = look(state(replica(0, waiting=waiting, running=running), replica(1, **others)))
    found.pop("replica_sleeps:r1", None)
    assert (found.keys() == {"replicas_unbalanced:r0"}) is fires and bool(found) is fires


def test_a_slow_replica_is_no_matter_of_balance() -> None:
    times = {"answers": 30.0, "seconds_per_token": 0.01, "seconds_per_answer": 0.2, "since": NOW - 600}
    slow = {**times, "seconds_per_token": 0.1, "seconds_per_answer": 2.0}
    busy, free = replica(0, waiting=9.0, running=8.0, **slow), replica(1, running=1.0, **times)
    assert look(state(busy, free)) == {}
    assert look(state(replica(0, waiting=9.0, running=8.0, **times), free)).keys() == {
        "replicas_unbalanced:r0"
    }


# --- asleep, or only loaded -------------------------------------------------------------------------------


def test_a_replica_that_was_not_woken_up_is_told_from_a_dead_one() -> None:
    asleep, serving = replica(1, activity="asleep", running=0.0), replica(0, activity="serving")
    found = look(state(serving, asleep))["replica_sleeps:r1"]
    assert found.title == "r1 sleeps while others work" and "r0 runs its share" in found.cause
    for other in (
        replica(0, activity="asleep"),  # all of them: the trainer trains
        replica(0, activity="serving", running=0.0),
        replica(0, activity="updating"),
    ):
        assert look(state(other, asleep)) == {}
    assert look(state(serving, replica(1, "failed", activity="asleep"))) == {}, "dead: another rule tells"
    assert look(state(serving, replica(1, activity="waking", running=0.0))) == {}


def unmeasured(index: int, **fields: Any) -> Any:
    return replica(index, running=None, waiting=None, gpus=(f"GPU-{index:08}",), **fields)


IDLE = {"utilization": 0.04, "memory_used": 71 << 30}


def test_gpus_that_hold_a_model_and_compute_nothing() -> None:
    both = (unmeasured(0), unmeasured(1))
    one = look(state(*both, gpus=(gpu(0), gpu(1, **IDLE))))["gpus_loaded_but_idle:r1"]
    assert (
        one.title == "the GPUs of r1 are loaded but idle" and "the proxy sends no trials to it" in one.cause
    )
    assert [e.text for e in one.evidence] == ["GPU 1 of r1: 4% busy"]
    every = look(state(*both, gpus=(gpu(0, **IDLE), gpu(1, **IDLE))))["gpus_loaded_but_idle"]
    assert "sandboxes" in every.cause and len(every.evidence) == 2


@pytest.mark.parametrize(
    "now",
    [
        state(unmeasured(0), unmeasured(1), gpus=(gpu(0), gpu(1, **{**IDLE, "utilization": 0.05}))),
        state(unmeasured(0), unmeasured(1), gpus=(gpu(0), gpu(1, **{**IDLE, "memory_used": 70 << 30}))),
        state(unmeasured(0), unmeasured(1), gpus=(gpu(0), gpu(1, **{**IDLE, "utilization": None}))),
        state(unmeasured(0), unmeasured(1, activity="asleep"), gpus=(gpu(0), gpu(1, **IDLE))),
        state(unmeasured(0), unmeasured(1), gpus=(gpu(0), gpu(1, **IDLE)), trials=TrialsStatus()),
        state(unmeasured(0), replica(1, gpus=("GPU-00000001",)), gpus=(gpu(0), gpu(1, **IDLE))),
        state(unmeasured(0), unmeasured(1), gpus=(gpu(0), gpu(1, **IDLE)), state="stopping"),
        state(unmeasured(0), unmeasured(1)),
    ],
    ids=["busy", "no model", "unknown", "asleep", "no trials", "its load is known", "stopping", "no GPUs"],
)
def test_gpus_that_may_be_idle(now: Snapshot) -> None:
    assert look(now) == {}


def test_while_a_process_stands_still_all_of_them_are_silent() -> None:
    still = service("trainer", "trainer", stalled=(StalledProcess(5, "T", NOW - 60),))
    busy = state(replica(0, waiting=9.0, running=8.0, kv_cache_usage=1.0), replica(1, running=0.0))
    assert len(look(busy)) == 2
    assert look(replace(busy, services=(still,))) == look(replace(busy, state="stopping")) == {}


# --- groups -----------------------------------------------------------------------------------------------


def grouped(*rewards: tuple[str, float | None], total: int | None = None, zero: int = 0) -> list[Symptom]:
    heads = tuple(trial(i, 7, group=group, reward=reward) for i, (group, reward) in enumerate(rewards))
    count = len(heads) if total is None else total
    step = StepTrials(7, count, count, zero, 0.5, calling=count - zero)
    now = snapshot(trials=TrialsStatus(newest=heads, steps=(step,)))
    rules = (groups_equal, groups_mostly_equal)
    return [s for rule in rules for s in rule(Window(now, None, RunContext())) if isinstance(s, Symptom)]


def test_groups_in_each_of_which_all_rewards_are_the_same() -> None:
    (symptom,) = grouped(("a", 1.0), ("a", 1.0), ("b", 0.0), ("b", 0.0), ("c", 0.0), ("c", 0.0))
    assert symptom.severity == "info" and symptom.title == "no group of step 7 has different rewards"
    assert "1 of 3 tasks of step 7 was solved in all trials, the others in none" in symptom.cause
    assert symptom.evidence[0].text == "group a: 2 trials, reward 1"


@pytest.mark.parametrize(
    "rewards",
    [
        (("a", 1.0), ("a", 0.0), ("b", 0.0), ("b", 0.0)),  # one group teaches something
        (("a", 0.0), ("a", 0.0), ("b", 0.0), ("b", 0.0)),  # rewards_equal
        (("a", 1.0), ("a", 1.0), ("a", 1.0), ("a", 1.0)),
        (("a", 1.0), ("b", 0.0), ("c", 0.0), ("d", 1.0)),  # one trial each: no groups
        (("a", 1.0), ("a", None), ("b", 0.0), ("b", 0.0)),
        (("", 1.0), ("", 1.0), ("b", 0.0), ("b", 0.0)),
    ],
)
def test_groups_that_differ_or_are_not_known(rewards: tuple[tuple[str, float | None], ...]) -> None:
    assert grouped(*rewards) == []


def test_groups_are_judged_only_if_all_trials_of_the_step_are_listed() -> None:
    rewards = (("a", 1.0), ("a", 1.0), ("b", 0.0), ("b", 0.0))
    assert grouped(*rewards, total=5) == [] and grouped(*rewards, zero=2) == []
    assert len(grouped(*rewards, zero=1)) == 1


@pytest.mark.parametrize(
    ("equal", "groups", "told"),
    [(4, 8, True), (3, 8, False), (7, 8, True), (4, 7, False), (16, 32, True), (15, 32, False)],
)
def test_half_of_eight_groups_or_more_without_a_signal(equal: int, groups: int, told: bool) -> None:
    same = [(f"g{n:02}", float(n == 0)) for n in range(equal) for _ in range(2)]
    differ = [(f"h{n:02}", float(i)) for n in range(groups - equal) for i in range(2)]
    found = grouped(*same, *differ)
    assert [one.id for one in found] == ["groups_mostly_equal"] * told
    if told:
        assert found[0].title == f"{equal} of {groups} groups have no signal" and found[0].severity == "info"
        assert f"(above 0 in 1, not in {equal - 1})" in found[0].cause


def test_a_group_that_failed_is_no_task_that_is_never_solved() -> None:
    """Twelve tasks without a trained trial were told to be left out, as if no trial could solve them."""
    rewards = [(f"g{n:02}", 0.0) for n in range(12) for _ in range(4)]
    same, differ = [("h", 0.6)] * 4, [(f"i{n}", float(i)) for n in range(3) for i in range(4)]
    heads = [trial(i, 7, group=g, reward=r, outcome="masked") for i, (g, r) in enumerate(rewards)]
    heads += [trial(i, 7, group=g, reward=r) for i, (g, r) in enumerate([*same, *differ], start=len(heads))]
    step = StepTrials(7, 64, 64, 0, 0.5, calling=64)

    def of(*heads: TrialHead) -> list[Symptom]:
        now = snapshot(trials=TrialsStatus(newest=heads, steps=(replace(step, total=len(heads)),)))
        found = groups_mostly_equal(Window(now, None, RunContext()))
        return [one for one in found if isinstance(one, Symptom)]

    (found,) = of(*heads)
    assert found.title == "13 of 16 groups have no signal"
    assert found.cause == (
        "in step 7 12 of 16 tasks had no trial that was trained; all trained trials of 1 of 16 tasks had the same "
        "reward (above 0 in 1, not in 0): nothing is learned from these, and the update is as noisy as one of 3 tasks"
    )
    assert "no reason to leave out its task" in found.fix and "trials_not_trained" in found.fix
    assert found.evidence[0].text == "group g00: no trial was trained"
    # One trained trial of a group is no group whose rewards are the same.
    lone = [
        replace(head, outcome="trained") if n % 4 == 0 and n < 48 else head for n, head in enumerate(heads)
    ]
    assert of(*lone) == []
    heads = [replace(head, task=head.group) for head in heads]
    assert equal_groups(heads) == {group_of(heads[48])}, "the list marks the group with the same reward only"


def test_a_full_cache_that_thrashes_is_told_once_and_only_the_newest_trials_count() -> None:
    full = replica(0, kv_cache_usage=0.97, prefix_cache_hit_rate=0.1, waiting=9.0)
    assert look(state(full)).keys() == {"prefix_cache_thrashes:r0"}
    short = tuple(trial(i, 8, turns=1, state="running") for i in range(4))
    older = tuple(trial(i, 7, turns=9) for i in range(4, 12))
    again = tuple(trial(i, 8, turns=9, earlier=True) for i in range(12, 20))
    trials = TrialsStatus(newest=(*short, *older, *again), steps=(StepTrials(8, 4, 0, 0, None),))
    assert look(state(full, trials=trials)).keys() == {"kv_cache_below_demand:r0"}


def test_preemptions_are_compared_with_those_of_the_same_replica() -> None:
    now = state(replica(0, preemptions_total=3.0), replica(1, preemptions_total=9.0))
    before = state(replica(1, preemptions_total=9.0), replica(0, preemptions_total=3.0))
    assert look(now, before) == {}


def test_a_replica_that_was_not_woken_up_waits_for_a_process_that_stands_still() -> None:
    items = (replica(0, activity="serving"), replica(1, activity="asleep", running=0.0))
    still = service("trainer", "trainer", stalled=(StalledProcess(5, "T", NOW - 60),))
    assert look(state(*items, services=(still,))) == look(state(*items, state="stopping")) == {}
    idle = state(unmeasured(0), unmeasured(1), gpus=(gpu(0), gpu(1, **IDLE)), services=(still,))
    assert look(idle) == {}


def test_idle_gpus_of_one_replica_say_nothing_while_nothing_is_known_of_the_other() -> None:
    assert look(state(unmeasured(0), unmeasured(1), gpus=(gpu(1, **IDLE),))) == {}
    gone = replica(1, "failed", running=None, gpus=("GPU-00000001",))
    assert look(state(unmeasured(0), gone, gpus=(gpu(0), gpu(1, **IDLE)))) == {}


# --- bursts: agents that all run a tool send nothing for half a minute -------------------------------------


def burst(at: int, begin: int = 0) -> bool:
    """Whether requests run at a second: in six of every thirty."""
    return (at - begin) % 30 < 6


def sleeps(at: int) -> Snapshot:
    """r1 was not woken up for the rollout in which r0 works in bursts."""
    return state(
        replica(0, activity="serving", running=3.0 * burst(at)), replica(1, activity="asleep", running=0.0)
    )


def woken(at: int) -> Snapshot:
    """r1 is woken up 40 s after r0, and put to sleep once more after a while."""
    activity = "serving" if at % 60 >= 40 else "asleep"
    return state(
        replica(0, activity="serving", running=3.0 * burst(at)), replica(1, activity=activity, running=0.0)
    )


def gpus(*works: bool) -> Snapshot:
    """Replicas that do not report their load: whether their GPUs work."""
    shown = tuple(gpu(index, **({} if busy else IDLE)) for index, busy in enumerate(works))
    return state(*(unmeasured(index) for index in range(len(works))), gpus=shown)


TIMES: dict[str, tuple[Any, set[str]]] = {
    "asleep": (sleeps, {"replica_sleeps:r1"}),
    "woken late": (woken, set()),
    "one idle": (lambda at: gpus(burst(at), False), {"gpus_loaded_but_idle:r1"}),
    "in turns": (lambda at: gpus(burst(at), burst(at, 15)), set()),
    "together": (lambda at: gpus(burst(at), burst(at)), set()),
    "none": (lambda at: gpus(False, False), {"gpus_loaded_but_idle"}),
}


@pytest.mark.parametrize("case", TIMES)
def test_what_comes_in_bursts_is_judged_over_them(case: str) -> None:
    """A replica that was not woken was never told, as the others had to work at every look for a minute; and GPUs that
    work in turns were told as idle, as one of them was at every look."""
    at_second, told = TIMES[case]
    diagnosis = Diagnosis([rule for rule in RULES if rule.look.__module__ == load.__name__])
    news = []
    for second in range(0, 300, 2):
        now = replace(at_second(second), at=NOW + second)
        news += [(change.what, change.symptom.id) for change in diagnosis.update(now, RunContext())]
    assert news == [("new", name) for name in sorted(told)], "each is told once, and stands"
    items = [replica(i, activity="serving", gpus=(f"GPU-{i:08}",)) for i in (0, 1)]
    awake = state(*items, gpus=(gpu(0), gpu(1)))
    over = diagnosis.update(replace(awake, at=NOW + 300), RunContext())
    assert [(change.what, change.symptom.id) for change in over] == [
        ("cleared", name) for name in sorted(told)
    ]
