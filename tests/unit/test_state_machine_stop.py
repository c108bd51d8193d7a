"""How a service ends: its stop stages one after another, its deadlines, and what an adopted one goes on with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.state_machine import EXAMPLES, FAILED, GENERATION, LAST, NOW, RULES, STOP, TREE, Driver, rules
from kit.state_machine import machine as example
from msgspec.structs import replace as with_fields

from liverl.plan.spec import DEFAULT_STOP, StopStage
from liverl.supervise.services import state_machine as m

LIVE = ["starting", "ready", "degraded"]


def at(stage: int, **changes: Any) -> m.MachineState:
    return example("stopping", stage=stage, deadline=NOW + STOP[stage].grace, **changes)


# --- the order of the stages ------------------------------------------------------------------------------


@pytest.mark.parametrize("state", LIVE)
def test_a_stop_goes_through_all_stages_each_with_its_own_deadline(state: str) -> None:
    driver = Driver(example(state)).feed(m.Stop())
    deadlines = []
    for _ in STOP:
        assert driver.machine.deadline is not None
        deadlines.append(driver.machine.deadline - NOW)
        driver.due()
    assert deadlines == [7.0, 7.0 + 11.0, 7.0 + 11.0 + 5.0, 7.0 + 11.0 + 5.0 + 3.0]
    assert tuple(driver.stages[: len(STOP)]) == STOP


def test_the_last_stage_is_repeated_and_said_to_be_stuck() -> None:
    driver = Driver(at(LAST))
    assert not driver.machine.stuck
    for again in range(1, 4):
        driver.due()
        assert (driver.machine.stuck, driver.machine.stage) == (True, LAST)
        assert driver.stages == [STOP[LAST]] * again
        assert driver.machine.deadline == driver.now + STOP[LAST].grace


@pytest.mark.parametrize("stage", range(LAST))
def test_no_stage_before_the_last_is_stuck(stage: int) -> None:
    driver = Driver(at(stage)).due()
    assert (driver.machine.stage, driver.machine.stuck) == (stage + 1, False)


def test_what_was_stuck_and_ended_after_all_is_not_stuck() -> None:
    driver = Driver(at(LAST)).feed(m.Stop()).due().end()
    assert (driver.machine.state, driver.machine.stuck) == ("stopped", False)


@pytest.mark.parametrize("stage", range(len(STOP)))
def test_stop_now_skips_to_the_last_stage_and_enters_it_once(stage: int) -> None:
    driver = Driver(at(stage)).feed(m.Stop(now=True))
    assert (driver.machine.stage, driver.machine.after, driver.machine.wanted) == (LAST, "down", False)
    assert driver.stages == ([STOP[LAST]] if stage < LAST else [])
    assert driver.machine.deadline == NOW + STOP[LAST].grace


@pytest.mark.parametrize("state", LIVE)
def test_stop_now_of_a_live_service_begins_with_the_last_stage(state: str) -> None:
    driver = Driver(example(state)).feed(m.Stop(now=True))
    assert driver.stages == [STOP[LAST]]


def test_a_second_stop_does_not_begin_again() -> None:
    assert m.step(at(1, after="down", wanted=False), m.Stop(), NOW, RULES) == (
        at(1, after="down", wanted=False),
        (),
    )


# --- the leader ends, its tree does not ---------------------------------------------------------------------


@pytest.mark.parametrize("stage", range(len(STOP)))
def test_with_the_leader_gone_the_tree_is_ended_at_once(stage: int) -> None:
    """Waiting out a stage that speaks to the leader alone would leave the old workers beside a new start."""
    driver = Driver(at(stage), now=NOW + 1.0).feed(m.LeaderExited(GENERATION, FAILED))
    assert (driver.machine.leader_gone, driver.machine.exit) == (True, FAILED)
    assert driver.machine.stage == max(stage, TREE)
    assert driver.stages == ([STOP[TREE]] if stage < TREE else [])
    grace = NOW + 1.0 + STOP[TREE].grace if stage < TREE else NOW + STOP[stage].grace
    assert driver.machine.deadline == grace, "a stage that is under way keeps its deadline"


@pytest.mark.parametrize("state", LIVE)
def test_the_tree_of_a_leader_that_died_is_ended_before_anything_else(state: str) -> None:
    driver = Driver(example(state)).feed(m.LeaderExited(GENERATION, FAILED))
    assert driver.stages == [STOP[TREE]]
    driver.due().due()
    assert driver.stages == [STOP[TREE], STOP[LAST], STOP[LAST]]
    assert not [action for action in driver.actions if isinstance(action, m.Prepare)]


def test_the_tree_stage_is_the_first_that_speaks_to_the_tree() -> None:
    driver = Driver(example("ready"), with_fields(RULES, stop=DEFAULT_STOP))
    driver.feed(m.LeaderExited(GENERATION, FAILED))
    assert (driver.machine.stage, driver.stages) == (1, [DEFAULT_STOP[1]])


def test_without_a_tree_stage_it_is_the_last() -> None:
    leader_only = (StopStage("INT", "leader", 7.0), StopStage("KILL", "leader", 3.0))
    driver = Driver(example("ready"), with_fields(RULES, stop=leader_only))
    driver.feed(m.LeaderExited(GENERATION, FAILED))
    assert driver.stages == [leader_only[1]]


def test_an_empty_tree_counts_only_once_the_leader_is_gone() -> None:
    """The scan may see no process a moment before the kernel tells the exit status."""
    driver = Driver(at(0)).feed(m.TreeEmpty(GENERATION))
    assert driver.machine == at(0)
    assert (
        driver.feed(m.LeaderExited(GENERATION, FAILED), m.TreeEmpty(GENERATION)).machine.state == "preparing"
    )


def test_the_first_exit_counts() -> None:
    driver = Driver(example("stopping swept")).feed(m.LeaderExited(GENERATION, m.Exit(code=99)))
    assert driver.machine.exit == FAILED


# --- why it ends ------------------------------------------------------------------------------------------


def test_a_stop_that_was_asked_is_called_that() -> None:
    driver = Driver(example("ready")).feed(m.Stop())
    assert driver.machine.why == "stop requested"
    assert driver.end().machine.why == "stopped"


@pytest.mark.parametrize("request_", [m.Stop(why=m.RUN_ENDS), m.NoRestart(m.RUN_ENDS)])
def test_a_stop_that_nobody_asked_for_says_why(request_: m.Stop | m.NoRestart) -> None:
    waits = Driver(example("backing_off")).feed(request_)
    assert (waits.machine.state, waits.machine.why) == ("stopped", "the run ends")
    if isinstance(request_, m.Stop):
        assert Driver(example("ready")).feed(request_).machine.why == "the run ends"


@pytest.mark.parametrize("after", ["decide", "restart", "hold"])
def test_what_nobody_wants_comes_to_rest_whatever_was_to_follow(after: str) -> None:
    driver = Driver(example("stopping swept", wanted=False, after=after)).feed(m.TreeEmpty(GENERATION))
    assert (driver.machine.state, driver.machine.why, driver.machine.deadline) == (
        "stopped",
        "stopped",
        None,
    )


def test_a_stop_wins_over_what_is_wanted() -> None:
    driver = Driver(example("stopping swept", after="down")).feed(m.TreeEmpty(GENERATION))
    assert (driver.machine.state, driver.machine.why) == ("stopped", "stopped")


# --- yield ------------------------------------------------------------------------------------------------


def test_yield_holds_it_until_it_is_started_again() -> None:
    driver = Driver(example("ready")).feed(m.LeaderExited(GENERATION, FAILED), m.AwaitSuccessor())
    driver.feed(m.TreeEmpty(GENERATION))
    assert driver.machine.state == "stopped"
    assert driver.machine.why == "waiting for its replacement; last failure: exit 1"
    assert (driver.machine.wanted, driver.machine.failures) == (True, ())
    assert driver.feed(m.Start()).boot().machine.generation == GENERATION + 1


@pytest.mark.parametrize("after", ["down", "restart", "hold"])
def test_yield_takes_back_no_stop_and_no_restart(after: str) -> None:
    asked = at(0, after=after)
    assert m.step(asked, m.AwaitSuccessor(), NOW, RULES) == (asked, ())


def test_a_start_undoes_a_yield_that_has_not_ended_yet() -> None:
    driver = Driver(at(0)).feed(m.AwaitSuccessor(), m.Start())
    assert driver.machine.after == "restart"
    assert driver.end().machine.state == "preparing"


# --- due --------------------------------------------------------------------------------------------------

WITH_DEADLINE = {
    "starting": "stopping",
    "stopping": "stopping",
    "stopping swept": "stopping",
    "backing_off": "preparing",
}


@pytest.mark.parametrize("state", EXAMPLES)
def test_due_before_the_deadline_or_without_one_changes_nothing(state: str) -> None:
    before = example(state)
    early = NOW if before.deadline is None else before.deadline - 0.001
    assert m.step(before, m.DeadlinePassed(), early, RULES) == (before, ())
    assert (before.deadline is not None) == (state in WITH_DEADLINE)


@pytest.mark.parametrize("late", [0.0, 0.001, 3600.0])
@pytest.mark.parametrize("state", WITH_DEADLINE)
def test_due_at_the_deadline_or_after_it_acts(state: str, late: float) -> None:
    before = example(state)
    assert before.deadline is not None
    after, actions = m.step(before, m.DeadlinePassed(), before.deadline + late, RULES)
    assert after.state == WITH_DEADLINE[state]
    assert len(actions) == 1
    assert after.deadline != before.deadline


def test_a_start_that_takes_too_long_is_ended_and_decided_on() -> None:
    driver = Driver(example("starting")).due()
    assert (driver.machine.state, driver.machine.why) == ("stopping", "not ready after 30 s")
    assert (driver.machine.after, driver.machine.last_failure) == ("decide", "not ready after 30 s")
    assert driver.stages == [STOP[0]]
    assert driver.end().machine.why == "restarting after: not ready after 30 s"


def test_the_end_of_a_pause_starts_the_next_generation() -> None:
    driver = Driver(example("backing_off")).due()
    assert (driver.machine.state, driver.machine.generation) == ("preparing", GENERATION + 1)
    assert driver.machine.why == "restarting after: exit 1"
    assert driver.actions == [m.Prepare(GENERATION + 1)]
    assert (driver.machine.streak, driver.machine.failures) == (1, (980.0,)), (
        "what failed before still counts"
    )


# --- adopted ----------------------------------------------------------------------------------------------


def test_an_adopted_start_gets_a_whole_deadline_and_is_watched() -> None:
    for deadline in (None, 5.0):
        before = example("starting", deadline=deadline)
        after, actions = m.adopted(before, NOW, RULES)
        assert after == replace(before, deadline=NOW + RULES.startup_deadline)
        assert actions == (m.Watch(GENERATION),)
    ended = Driver(after).due()
    assert ended.machine.why == "not ready after 30 s"


@pytest.mark.parametrize("state", ["ready", "degraded"])
def test_an_adopted_service_that_serves_is_watched_and_no_more(state: str) -> None:
    assert m.adopted(example(state), NOW, RULES) == (example(state), (m.Watch(GENERATION),))


@pytest.mark.parametrize("stage", range(len(STOP)))
def test_an_adopted_stop_repeats_its_stage_with_a_whole_grace(stage: int) -> None:
    before = at(stage, since=5.0)
    after, actions = m.adopted(before, NOW + 500.0, RULES)
    assert after == replace(before, deadline=NOW + 500.0 + STOP[stage].grace)
    assert actions == (m.Watch(GENERATION), m.Escalate(GENERATION, STOP[stage]))


def test_an_adopted_stop_of_a_longer_sequence_takes_the_last_stage() -> None:
    """A drain has one stage more than a stop, and the backend before may have had other rules."""
    before = example("stopping", stage=len(STOP))
    after, actions = m.adopted(before, NOW, RULES)
    assert after.deadline == NOW + STOP[LAST].grace
    assert actions[1] == m.Escalate(GENERATION, STOP[LAST])


@pytest.mark.parametrize("state", ["preparing", "backing_off"])
def test_what_was_only_planned_waits_for_its_dependencies_again(state: str) -> None:
    before = example(state)
    after, actions = m.adopted(before, NOW, RULES)
    assert (after, actions) == (replace(before, state="waiting", since=NOW, deadline=None), ())
    started, _ = m.step(after, m.DependenciesMet(), NOW, RULES)
    assert (started.state, started.generation) == ("preparing", GENERATION + 1)


@pytest.mark.parametrize("state", ["waiting", "stopped", "failed", "gave_up"])
def test_what_rests_stays_as_it_was(state: str) -> None:
    assert m.adopted(example(state), NOW, RULES) == (example(state), ())


# --- defaults ---------------------------------------------------------------------------------------------


def test_a_service_that_was_never_started() -> None:
    machine = m.MachineState()
    assert (machine.state, machine.generation, machine.floor, machine.why) == (
        "waiting",
        0,
        0,
        "not started yet",
    )
    assert (machine.wanted, machine.leader_gone, machine.after, machine.stage, machine.stuck) == (
        True,
        True,
        "decide",
        0,
        False,
    )
    assert (machine.deadline, machine.exit, machine.failures, machine.streak, machine.ready_at) == (
        None,
        None,
        (),
        0,
        None,
    )
    assert (machine.since, machine.last_failure) == (0.0, "")
    first, actions = m.step(machine, m.DependenciesMet(), NOW, rules())
    assert (first.generation, actions) == (1, (m.Prepare(1),))


def test_the_defaults_of_events_and_rules() -> None:
    assert not m.Stop().now
    assert not m.PrepareFailed(1, "why").final
    assert m.Restart().why == "restart requested"
    assert m.RestartRules().startup_deadline == 2700.0


def test_a_service_that_dies_during_a_swap_stays_down_until_its_successor_serves() -> None:
    old = Driver(example("ready")).feed(m.LeaderExited(GENERATION, FAILED), m.AwaitSuccessor())
    old.now += 2
    old.feed(m.TreeEmpty(GENERATION))
    assert (old.machine.state, old.machine.down_since) == ("stopped", NOW)
    new = Driver(m.succeeded(old.machine, example("starting", generation=GENERATION + 1)))
    assert (new.machine.down_since, m.failure(new.machine)) == (NOW, "exit 1")
    new.feed(m.ProbeReady(GENERATION + 1))
    assert new.machine.down_since is None
    assert m.failed_at(new.machine) == NOW and m.failure(new.machine) == "exit 1"
    ready = example("ready", generation=GENERATION + 1)
    assert m.succeeded(old.machine, ready) == ready, "it serves"
    assert m.succeeded(example("stopping"), example("starting")) == example("starting"), "nobody died"
    waits = old.feed(m.Start()).machine
    assert (waits.state, waits.down_since) == ("waiting", NOW), "the successor failed"
