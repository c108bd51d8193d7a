"""News of another generation changes nothing, and what asks for a new one gets it from every state."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.state_machine import EVENTS, EXAMPLES, FAILED, GENERATION, NOW, RULES, Driver
from kit.state_machine import machine as example
from msgspec.structs import replace as with_fields

from liverl.model import STATE_WORDS, Exit
from liverl.supervise.services import state_machine as m

REPORTS = {name: event for name, event in EVENTS.items() if hasattr(event, "generation")}
AFTERS: list[m.After] = ["decide", "down", "restart", "hold"]


def of_generation(event: m.Input, generation: int) -> m.Input:
    assert hasattr(event, "generation")
    return with_fields(event, generation=generation)


@st.composite
def units(draw: st.DrawFn) -> m.MachineState:
    """Any unit at all: also those that no history leads to, since a journal may hold them."""
    times = st.floats(0.0, 2000.0)
    return m.MachineState(
        state=draw(st.sampled_from(STATE_WORDS)),
        generation=draw(st.integers(0, 9)),
        floor=draw(st.integers(0, 9)),
        wanted=draw(st.booleans()),
        since=draw(times),
        deadline=draw(st.none() | times),
        exit=draw(st.none() | st.builds(Exit, code=st.none() | st.integers(0, 255))),
        leader_gone=draw(st.booleans()),
        after=draw(st.sampled_from(AFTERS)),
        stage=draw(st.integers(0, len(RULES.stop) - 1)),
        stuck=draw(st.booleans()),
        failures=tuple(draw(st.lists(times, max_size=4).map(sorted))),
        streak=draw(st.integers(0, 9)),
        ready_at=draw(st.none() | times),
    )


def test_every_report_about_a_process_says_which() -> None:
    assert REPORTS.keys() == {
        *("prepared", "prepare failed", "prepare failed for good", "spawned", "up", "down", "dead"),
        *("leader exited", "tree empty"),
    }


@pytest.mark.parametrize("generation", [0, 1, GENERATION - 1, GENERATION + 1])
@pytest.mark.parametrize(("state", "event"), list(itertools.product(EXAMPLES, REPORTS)))
def test_a_report_of_another_generation_changes_nothing(state: str, event: str, generation: int) -> None:
    before = example(state)
    news = of_generation(REPORTS[event], generation)
    assert m.step(before, news, NOW, RULES) == (before, ())


@given(
    machine=units(),
    event=st.sampled_from(sorted(REPORTS)),
    away=st.integers(-9, 9).filter(bool),
    now=st.floats(0.0, 3000.0),
)
def test_whatever_the_state_holds_a_stale_report_changes_nothing(
    machine: m.MachineState, event: str, away: int, now: float
) -> None:
    news = of_generation(REPORTS[event], machine.generation + away)
    assert m.step(machine, news, now, RULES) == (machine, ())


@given(machine=units(), event=st.sampled_from(sorted(EVENTS)), now=st.floats(0.0, 3000.0))
def test_no_event_ever_goes_back_to_an_older_generation(
    machine: m.MachineState, event: str, now: float
) -> None:
    happening = EVENTS[event]
    if hasattr(happening, "generation"):
        happening = of_generation(happening, machine.generation)
    after, actions = m.step(machine, happening, now, RULES)
    assert after.generation in (machine.generation, max(machine.generation, machine.floor) + 1)
    assert all(action.generation == after.generation for action in actions)


# --- restart and start ------------------------------------------------------------------------------------


def until_ready(driver: Driver) -> Driver:
    """Deliver what would come: the end of what ends, and then each report of the next start."""
    if driver.machine.state == "stopping":
        if not driver.machine.leader_gone:
            driver.feed(m.LeaderExited(driver.machine.generation, FAILED))
        driver.feed(m.TreeEmpty(driver.machine.generation))
    return driver.boot()


@pytest.mark.parametrize("state", [name for name in EXAMPLES if name != "preparing"])
def test_a_restart_leads_to_a_new_generation(state: str) -> None:
    driver = until_ready(Driver(example(state)).feed(m.Restart("asked by W")))
    assert (driver.machine.state, driver.machine.generation) == ("ready", GENERATION + 1)
    assert (driver.machine.wanted, driver.machine.failures, driver.machine.streak) == (True, (), 0)
    assert [a for a in driver.actions if isinstance(a, m.Prepare)] == [m.Prepare(GENERATION + 1)]


def test_a_restart_of_what_is_being_prepared_is_that_start() -> None:
    driver = until_ready(Driver(example("preparing")).feed(m.Restart()))
    assert (driver.machine.state, driver.machine.generation) == ("ready", GENERATION)


@pytest.mark.parametrize("state", ["starting", "ready", "degraded", "stopping", "stopping swept"])
@pytest.mark.parametrize("last_word", [m.Restart(), m.Start()])
def test_the_last_word_before_the_end_counts(state: str, last_word: m.Input) -> None:
    driver = Driver(example(state)).feed(m.Stop(), last_word)
    assert (driver.machine.state, driver.machine.wanted, driver.machine.after) == (
        "stopping",
        True,
        "restart",
    )
    assert until_ready(driver).machine.generation == GENERATION + 1
    stopped = Driver(example(state)).feed(m.Stop(), last_word, m.Stop()).end()
    assert (stopped.machine.state, stopped.machine.why) == ("stopped", "stopped")


def test_a_restart_says_why_until_the_next_start() -> None:
    driver = Driver(example("ready")).feed(m.Restart("its configuration has changed")).end()
    assert (driver.machine.state, driver.machine.why) == ("preparing", "its configuration has changed")


def test_a_restart_of_a_stopped_service_needs_no_new_event_of_the_old_one() -> None:
    driver = Driver(example("stopped")).feed(m.Restart())
    assert (driver.machine.state, driver.machine.wanted) == ("waiting", True)


@pytest.mark.parametrize("state", ["waiting", "preparing"])
def test_a_start_is_wanted_again_even_where_the_journal_says_it_is_not(state: str) -> None:
    for event in (m.Start(), m.Restart()):
        again, actions = m.step(example(state, wanted=False), event, NOW, RULES)
        assert (again, actions) == (example(state), ())


def test_what_nobody_wants_is_not_started_when_its_dependencies_are_met() -> None:
    unwanted = example("waiting", wanted=False)
    assert m.step(unwanted, m.DependenciesMet(), NOW, RULES) == (unwanted, ())


def test_a_start_skips_the_numbers_that_others_used() -> None:
    for floor, generation in ((GENERATION - 1, GENERATION + 1), (GENERATION, GENERATION + 1), (8, 9)):
        nxt, actions = m.step(example("waiting", floor=floor), m.DependenciesMet(), NOW, RULES)
        assert (nxt.generation, actions) == (generation, (m.Prepare(generation),))


def test_a_new_start_forgets_the_stop_before_it() -> None:
    left = example("waiting", leader_gone=False, stuck=True, stage=2, after="down")
    nxt, _ = m.step(left, m.DependenciesMet(), NOW, RULES)
    assert (nxt.leader_gone, nxt.stuck, nxt.stage, nxt.after) == (True, False, 0, "decide")


# --- a process that appears late ---------------------------------------------------------------------------


def test_a_process_that_appears_after_its_stop_goes_through_all_stop_stages() -> None:
    driver = Driver(example("preparing")).feed(m.Stop(), m.Spawned(GENERATION))
    assert driver.actions == [
        m.Watch(GENERATION),
        m.Escalate(GENERATION, RULES.stop[0]),
    ]
    assert not driver.machine.leader_gone
    for _ in RULES.stop[1:]:
        driver.due()
    assert tuple(driver.stages) == RULES.stop
    assert driver.end().machine.state == "stopped"


def test_a_process_that_appears_after_stop_and_start_is_the_one_that_was_wanted() -> None:
    driver = Driver(example("preparing")).feed(m.Stop(), m.Start(), m.Spawned(GENERATION))
    assert (driver.machine.state, driver.machine.generation) == ("starting", GENERATION)
    assert driver.machine.deadline == NOW + RULES.startup_deadline
    assert driver.feed(m.ProbeReady(GENERATION)).machine.state == "ready"


def test_a_late_process_forgets_the_exit_of_the_one_before() -> None:
    driver = Driver(example("preparing", exit=FAILED, ready_at=5.0)).feed(m.Spawned(GENERATION))
    assert (driver.machine.exit, driver.machine.ready_at) == (None, None)
