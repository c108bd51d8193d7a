"""Whether and when a service that failed is started again: modes, pauses, storms and forgiveness."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.state_machine import FAILED, GENERATION, NOW, POLICY, RULES, Driver, rules
from kit.state_machine import machine as example
from msgspec.structs import replace as with_fields

from liverl.model import Exit
from liverl.plan.spec import RestartPolicy
from liverl.supervise.services import state_machine as m

ENDS = [
    FAILED,
    Exit(code=137),
    Exit(signal=9),
    Exit(),
]  # exit codes, a signal, and what the kernel did not tell


def failed(rules: m.RestartRules, exit_: Exit = FAILED, **changes: object) -> m.MachineState:
    """What a service is after its leader failed and its tree has ended."""
    swept = example("stopping swept", exit=exit_, last_failure=exit_.words(), **changes)
    return m.step(swept, m.TreeEmpty(GENERATION), NOW, rules)[0]


# --- modes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_", ENDS, ids=Exit.words)
@pytest.mark.parametrize("mode", ["on_failure", "always"])
def test_a_failure_is_started_again(mode: str, exit_: Exit) -> None:
    machine = failed(rules(mode=mode), exit_)
    assert (machine.state, machine.generation) == ("preparing", GENERATION + 1)
    assert machine.why == f"restarting after: {exit_.words()}"


@pytest.mark.parametrize("exit_", ENDS, ids=Exit.words)
def test_never_is_never(exit_: Exit) -> None:
    machine = failed(rules(mode="never"), exit_)
    assert (machine.state, machine.why, machine.last_failure) == ("failed", exit_.words(), exit_.words())
    assert (machine.generation, machine.deadline) == (GENERATION, None)


@pytest.mark.parametrize(
    ("was_ready", "passing", "state"),
    [
        (None, "the disk was busy", "preparing"),
        (None, "", "failed"),
        (990.0, "the disk was busy", "failed"),
        (990.0, "", "failed"),
    ],
)
def test_a_start_is_repeated_for_what_may_pass_until_it_was_ready(
    was_ready: float | None, passing: str, state: str
) -> None:
    swept = example("stopping swept", ready_at=was_ready, last_failure="exit 1")
    machine, _ = m.step(swept, m.TreeEmpty(GENERATION, passing), NOW, rules(mode="until_ready"))
    assert machine.state == state
    assert machine.why == ("restarting after: the disk was busy" if state == "preparing" else "exit 1")


def test_a_start_that_cannot_be_prepared_is_not_repeated_until_ready() -> None:
    machine, _ = m.step(
        example("preparing"), m.PrepareFailed(GENERATION, "port held"), NOW, rules(mode="until_ready")
    )
    assert (machine.state, machine.why) == ("failed", "port held")


def test_starts_that_may_pass_are_bounded() -> None:
    driver = Driver(example("waiting"), rules(mode="until_ready")).feed(m.DependenciesMet())
    for _ in range(POLICY.max_failures + 1):
        if driver.machine.state == "backing_off":
            driver.due()
        at = driver.machine.generation
        driver.feed(m.Prepared(at), m.Spawned(at), m.LeaderExited(at, FAILED), m.TreeEmpty(at, "busy"))
    assert driver.machine.state == "gave_up"
    assert driver.machine.why.endswith("; last failure: busy")


def test_always_starts_again_what_ended_well() -> None:
    machine = failed(rules(mode="always"), Exit(code=0))
    assert (machine.state, machine.generation) == ("preparing", GENERATION + 1)
    assert machine.failures == (NOW,), "ending well again and again is a storm too"


@pytest.mark.parametrize("mode", ["never", "on_failure", "always"])
def test_a_restart_that_was_asked_happens_in_every_mode(mode: str) -> None:
    for code in (0, 1):
        driver = Driver(example("ready"), rules(mode=mode)).feed(m.Restart()).end(code)
        assert (driver.machine.state, driver.machine.generation) == ("preparing", GENERATION + 1)
        assert (driver.machine.failures, driver.machine.streak) == ((), 0)


@pytest.mark.parametrize("mode", ["never", "on_failure", "always"])
def test_a_stop_that_was_asked_restarts_in_no_mode(mode: str) -> None:
    for code in (0, 1):
        driver = Driver(example("ready"), rules(mode=mode)).feed(m.Stop()).end(code)
        assert (driver.machine.state, driver.machine.why) == ("stopped", "stopped")


def test_a_preparation_that_fails_follows_the_mode() -> None:
    problem = m.PrepareFailed(GENERATION, "port held")
    machine, actions = m.step(example("preparing"), problem, NOW, rules(mode="never"))
    assert (machine.state, machine.why, actions) == ("failed", "port held", ())
    unwanted, _ = m.step(example("preparing", wanted=False), problem, NOW, RULES)
    assert (unwanted.state, unwanted.why) == ("stopped", "stopped")


def test_the_reason_is_why_it_was_ended_and_else_how() -> None:
    machine = failed(rules(mode="never"))
    assert machine.why == "exit 1"
    dead = Driver(example("ready"), rules(mode="never")).feed(m.LivenessFailed(GENERATION, "silent")).end(1)
    assert (dead.machine.state, dead.machine.why) == ("failed", "silent")
    untold = example("stopping swept", last_failure="", exit=None)
    assert m.step(untold, m.TreeEmpty(GENERATION), NOW, rules(mode="never"))[0].why == "unknown exit"


# --- pauses -----------------------------------------------------------------------------------------------

_PAUSES = [(-1, 0.0), (0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 8.0), (31, 8.0), (10_000, 8.0)]


@pytest.mark.parametrize(("streak", "seconds"), _PAUSES)
def test_the_pause_doubles_up_to_the_cap(streak: int, seconds: float) -> None:
    assert m.backoff(POLICY, streak, 0.0) == seconds
    assert m.backoff(POLICY, streak, 1.0) == seconds * 1.25
    assert m.backoff(POLICY, streak, -1.0) == seconds * 0.75


def test_the_pause_grows_from_its_base_and_a_huge_cap_does_not_overflow() -> None:
    policy = RestartPolicy(base=3.0, cap=1e30, jitter=0.0)
    assert [m.backoff(policy, n, 1.0) for n in (1, 2, 3, 11)] == [3.0, 6.0, 12.0, 3.0 * 2**10]
    assert m.backoff(policy, 31, 0.0) == m.backoff(policy, 99_999, 0.0) == 3.0 * 2**30


@given(st.integers(0, 100), st.floats(-1.0, 1.0), st.floats(0.0, 1.0))
def test_jitter_stays_within_its_share(streak: int, jitter: float, share: float) -> None:
    policy = with_fields(POLICY, jitter=share)
    middle = m.backoff(policy, streak, 0.0)
    assert middle * (1.0 - share) <= m.backoff(policy, streak, jitter) <= middle * (1.0 + share)


@pytest.mark.parametrize(("streak", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (9, 8.0)])
@pytest.mark.parametrize("jitter", [-1.0, 0.0, 1.0])
def test_a_failure_waits_for_its_pause(streak: int, seconds: float, jitter: float) -> None:
    swept = example("stopping swept", streak=streak)
    machine, actions = m.step(swept, m.TreeEmpty(GENERATION), NOW, RULES, jitter)
    assert (machine.state, machine.why, actions) == ("backing_off", "exit 1", ())
    assert machine.deadline == NOW + seconds * (1.0 + POLICY.jitter * jitter)
    assert (machine.streak, machine.generation, machine.since) == (streak + 1, GENERATION, NOW)


def test_the_first_restart_is_immediate_then_pauses_grow_until_it_is_given_up() -> None:
    driver = Driver(m.MachineState()).boot()
    pauses = []
    for _ in range(10):
        began = driver.now
        if driver.end().machine.state == "gave_up":
            break
        if driver.machine.state == "backing_off":
            driver.due()
        pauses.append(driver.now - began)
        driver.boot()
    assert pauses == [0.0, 1.0, 2.0]
    assert driver.machine.generation == 4


def test_a_preparation_that_fails_pauses_too() -> None:
    driver = Driver(example("preparing", streak=2)).feed(m.PrepareFailed(GENERATION, "port held"))
    assert (driver.machine.state, driver.machine.deadline, driver.machine.why) == (
        "backing_off",
        NOW + 2.0,
        "port held",
    )
    assert driver.machine.leader_gone


# --- storms -----------------------------------------------------------------------------------------------


def test_as_many_failures_as_allowed_are_no_storm_and_one_more_is() -> None:
    two = (NOW - 10.0, NOW - 5.0)
    assert failed(RULES, failures=two).failures == (*two, NOW)
    assert failed(RULES, failures=two).state == "preparing"
    over = failed(RULES, failures=(NOW - 20.0, *two))
    assert over.state == "gave_up"
    assert over.why == "failed 4 times within 100 s; last failure: exit 1"
    assert (over.failures, over.last_failure) == ((NOW - 20.0, *two, NOW), "exit 1")
    assert over.deadline is None


@pytest.mark.parametrize(("age", "state"), [(99.9, "gave_up"), (100.0, "gave_up"), (100.1, "preparing")])
def test_a_failure_counts_until_the_window_has_passed(age: float, state: str) -> None:
    machine = failed(RULES, failures=(NOW - age, NOW - 10.0, NOW - 5.0))
    assert machine.state == state
    assert (NOW - age in machine.failures) == (age <= POLICY.window)


def test_no_failure_allowed_gives_up_at_the_first() -> None:
    assert failed(rules(max_failures=0)).state == "gave_up"
    assert failed(rules(max_failures=1)).state == "preparing"


def test_what_was_given_up_starts_anew_when_asked() -> None:
    driver = Driver(failed(RULES, failures=(NOW, NOW, NOW))).feed(m.Start())
    assert (driver.machine.state, driver.machine.failures, driver.machine.streak) == ("waiting", (), 0)


# --- forgiveness ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "streak", "state"),
    [(49.9, 3, "backing_off"), (50.0, 1, "preparing"), (50.1, 1, "preparing")],
)
def test_ready_for_long_enough_forgives_the_pauses(seconds: float, streak: int, state: str) -> None:
    machine = failed(RULES, streak=2, ready_at=NOW - seconds)
    assert (machine.state, machine.streak, machine.ready_at) == (state, streak, None)


def test_it_does_not_forgive_the_storm() -> None:
    """A service that comes up for a minute and dies, again and again, is given up all the same."""
    machine = failed(RULES, streak=2, ready_at=NOW - 60.0, failures=(NOW - 99.0, NOW - 80.0, NOW - 70.0))
    assert machine.state == "gave_up"


def test_what_was_never_ready_was_never_stable() -> None:
    assert failed(RULES, streak=2, ready_at=None).state == "backing_off"


def test_the_time_between_two_generations_is_not_time_ready() -> None:
    """A preparation that fails says nothing of how long the generation before was ready."""
    waiting = example("preparing", streak=2, ready_at=NOW - 3600.0)
    machine, _ = m.step(waiting, m.PrepareFailed(GENERATION, "port held"), NOW, RULES)
    assert (machine.state, machine.deadline) == ("backing_off", NOW + 2.0)


def test_ready_counts_from_the_first_time_not_from_a_recovery() -> None:
    driver = Driver(example("starting", streak=2)).feed(
        m.ProbeReady(GENERATION), m.ProbeUnready(GENERATION, "slow")
    )
    driver.now += POLICY.stable
    driver.feed(m.ProbeReady(GENERATION))
    assert driver.machine.ready_at == NOW
    assert driver.end().machine.state == "preparing"
