"""The state machine by properties: whatever happens in whatever order, these hold."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from liverl.model import Exit
from liverl.plan.spec import DEFAULT_STOP, Dependency, RestartPolicy
from liverl.supervise.recovery.replay import read_history
from liverl.supervise.services import state_machine as m
from liverl.supervise.services.dependencies import unmet
from liverl.supervise.services.event_log import words
from liverl.supervise.services.state_machine import MachineState, RestartRules, backoff, step

RULES = RestartRules(
    RestartPolicy(base=1.0, cap=8.0, window=100.0, max_failures=3, stable=50.0), DEFAULT_STOP, 30.0
)


WITH_DEADLINE = ("starting", "stopping", "backing_off")  # what a passed deadline leads on from


class World:
    """A machine and what is really there: at most one process tree, as the driver would have it."""

    def __init__(self, rules: RestartRules) -> None:
        self.rules = rules
        self.machine = MachineState()
        self.now = 1000.0
        self.leader = False
        self.tree = False
        self.spawning: int | None = None
        self.started: list[int] = []
        self.asked_down = False
        self.succeeded = False  # the newest process has exited 0, and we had not begun to end it

    def feed(self, event: m.Input) -> None:
        before = self.machine
        self.machine, actions = step(before, event, self.now, self.rules)
        for action in actions:
            if isinstance(action, m.Prepare):
                assert not self.leader and not self.tree, "a start beside an old tree"
                assert self.spawning is None
                self.spawning = action.generation
        assert self.machine.generation >= before.generation
        assert self.machine.deadline is None or self.machine.state in WITH_DEADLINE
        if self.machine.state in ("starting", "ready", "degraded"):
            assert not self.machine.leader_gone

    def happen(self, choice: str) -> None:
        machine, generation = self.machine, self.machine.generation
        if choice == "dependencies" and self.spawning is None:
            self.feed(m.DependenciesMet())
        elif choice == "prepared" and self.spawning is not None:
            self.feed(m.Prepared(self.spawning))
        elif choice == "prepare_failed" and self.spawning is not None:
            failed, self.spawning = self.spawning, None
            self.feed(m.PrepareFailed(failed, "port held"))
        elif choice == "spawned" and self.spawning is not None:
            started, self.spawning = self.spawning, None
            self.started.append(started)
            self.leader = self.tree = True
            self.feed(m.Spawned(started))
        elif choice == "up":
            self.feed(m.ProbeReady(generation))
        elif choice == "down":
            self.feed(m.ProbeUnready(generation, "slow"))
        elif choice == "dead":
            self.feed(m.LivenessFailed(generation, "silent"))
        elif choice in ("exit0", "exit1") and self.leader:
            self.leader = False
            self.succeeded = choice == "exit0" and machine.state in m.LIVE
            self.feed(m.LeaderExited(generation, Exit(code=int(choice[-1]))))
        elif choice == "empty" and not self.leader and self.tree and machine.state == "stopping":
            self.tree = False
            self.feed(m.TreeEmpty(generation))
        elif choice == "stop":
            self.asked_down = True
            self.feed(m.Stop())
        elif choice == "stop_now":
            self.asked_down = True
            self.feed(m.Stop(now=True))
        elif choice == "start":
            self.asked_down = False
            self.feed(m.Start())
        elif choice == "restart":
            self.asked_down = False
            self.feed(m.Restart())
        elif choice == "yield":
            self.feed(m.AwaitSuccessor())
        elif choice == "no_restart":
            self.feed(m.NoRestart())
        elif choice == "time" and machine.deadline is not None:
            self.now = machine.deadline
            self.feed(m.DeadlinePassed())
        elif choice == "old_news":
            self.feed(m.LeaderExited(generation - 1, Exit(code=0)))
            self.feed(m.ProbeReady(generation - 1))
        self.now += 0.5


CHOICES = [
    *(
        "dependencies",
        "prepared",
        "prepare_failed",
        "spawned",
        "up",
        "down",
        "dead",
        "exit0",
        "exit1",
        "empty",
    ),
    *("stop", "stop_now", "start", "restart", "time", "yield", "no_restart", "old_news"),
]
MODES = st.sampled_from(["never", "on_failure", "always"])
TASK = with_fields(RULES, completes=True)
ASKED = ("stop", "stop_now", "yield", "no_restart")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(CHOICES), max_size=80), MODES)
def test_any_history_keeps_the_promises(history: list[str], mode: str) -> None:
    policy = replace_policy(mode)
    world = World(RestartRules(policy, DEFAULT_STOP, 30.0))
    for choice in history:
        world.happen(choice)
        if world.asked_down:
            assert world.machine.state not in ("ready", "degraded", "backing_off", "waiting", "gave_up") or (
                world.machine.state == "gave_up"
            )
    assert world.started == sorted(set(world.started)), "each generation is started once, in order"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(CHOICES), max_size=60), st.lists(st.sampled_from(CHOICES), max_size=20), MODES
)
def test_only_a_start_a_stop_and_a_pause_have_a_deadline(
    before: list[str], after: list[str], mode: str
) -> None:
    """``World`` asserts it at each step; here also of what is adopted in any state and goes on."""
    world = World(RestartRules(replace_policy(mode), DEFAULT_STOP, 30.0))
    for choice in before:
        world.happen(choice)
    journalled = replace(world.machine, deadline=None)
    world.machine, _ = m.adopted(journalled, world.now, world.rules)
    assert world.machine.deadline is None or world.machine.state in WITH_DEADLINE
    world.spawning = None  # what the earlier backend was preparing is prepared anew
    for choice in after:
        world.happen(choice)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([c for c in CHOICES if c not in ASKED]), max_size=80), MODES)
def test_a_server_that_nobody_stops_never_comes_to_rest_as_stopped(history: list[str], mode: str) -> None:
    world = World(RestartRules(replace_policy(mode), DEFAULT_STOP, 30.0))
    for choice in history:
        world.happen(choice)
        assert world.machine.state != "stopped", world.machine.why


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([c for c in CHOICES if c not in ASKED]), max_size=80), MODES)
def test_a_task_that_nobody_stops_is_stopped_only_if_it_completed(history: list[str], mode: str) -> None:
    world = World(RestartRules(replace_policy(mode), DEFAULT_STOP, 30.0, completes=True))
    for choice in history:
        world.happen(choice)
        stopped = world.machine.state == "stopped"
        assert not stopped or (world.succeeded and mode != "always"), world.machine.why
        assert stopped == world.machine.completed


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(CHOICES), max_size=60), MODES)
def test_after_a_stop_it_always_comes_to_rest(history: list[str], mode: str) -> None:
    world = World(RestartRules(replace_policy(mode), DEFAULT_STOP, 30.0))
    for choice in history:
        world.happen(choice)
    world.happen("stop")
    for choice in ["spawned", "exit1", "empty"] * 3:
        world.happen(choice)
    assert world.machine.state in m.ENDED
    assert not world.leader and not world.tree
    quiet = len(world.started)
    for choice in CHOICES:
        if choice not in ("start", "restart"):
            world.happen(choice)
    assert len(world.started) == quiet


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(CHOICES), max_size=60), st.lists(st.sampled_from(CHOICES), max_size=60), MODES
)
def test_in_a_run_that_is_stopping_nothing_is_started(before: list[str], after: list[str], mode: str) -> None:
    world = World(RestartRules(replace_policy(mode), DEFAULT_STOP, 30.0))
    for choice in before:
        world.happen(choice)
    ran, state = world.leader, world.machine.state
    world.happen("no_restart")
    assert world.leader == ran
    assert world.machine.state == (state if state in (*m.LIVE, "stopping", *m.ENDED) else "stopped")
    if world.spawning is not None:
        world.happen("prepare_failed")  # one that was under way may still appear; here it does not
    begun = world.machine.generation
    for choice in after:
        if choice not in ("start", "restart"):
            world.happen(choice)
    assert world.machine.generation == begun and world.machine.state not in (
        "waiting",
        "preparing",
        "backing_off",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], []),  # ready, and it fails
        ([], ["dead"]),
        (["down"], []),  # degraded
        (["exit1"], []),  # on its way to a restart
        (["restart"], []),  # which somebody has asked for
        (["exit1", "yield"], []),
    ],
)
def test_what_ends_in_a_run_that_is_stopping_stays_down(before: list[str], after: list[str]) -> None:
    world = World(RestartRules(replace_policy("always"), DEFAULT_STOP, 30.0))
    for choice in ["dependencies", "prepared", "spawned", "up", *before]:
        world.happen(choice)
    live = world.machine.state in m.LIVE
    world.happen("no_restart")
    assert (world.machine.state in m.LIVE) == live, "it goes on until its own stop"
    for choice in [*after, "exit1", "empty"]:
        world.happen(choice)
    assert (world.machine.state, world.machine.why) == ("stopped", "stopped")
    assert world.started == [1]


def replace_policy(mode: str) -> RestartPolicy:
    from msgspec.structs import replace as replaced

    return replaced(RULES.restart, mode=mode)


def run_to_ready(rules: RestartRules = RULES) -> World:
    world = World(rules)
    for choice in ("dependencies", "prepared", "spawned", "up"):
        world.happen(choice)
    assert world.machine.state == "ready"
    return world


def test_the_first_restart_is_immediate_then_it_backs_off_then_gives_up() -> None:
    world = run_to_ready()
    states = []
    for _ in range(5):
        world.happen("exit1")
        world.happen("empty")
        states.append(world.machine.state)
        if world.machine.state == "backing_off":
            world.happen("time")
        for choice in ("prepared", "spawned", "up"):
            world.happen(choice)
    assert states == ["preparing", "backing_off", "backing_off", "gave_up", "gave_up"]
    assert "failed 4 times within 100 s; last failure: exit 1" in world.machine.why


def test_a_stable_generation_forgives() -> None:
    world = run_to_ready()
    for _ in range(8):
        world.now += 200.0
        world.happen("exit1")
        world.happen("empty")
        assert world.machine.state == "preparing"
        for choice in ("prepared", "spawned", "up"):
            world.happen(choice)


def test_a_stop_escalates_stage_by_stage_and_says_when_nothing_helps() -> None:
    world = run_to_ready()
    world.happen("stop")
    stages = [world.machine.stage]
    for _ in range(3):
        world.happen("time")
        stages.append(world.machine.stage)
    assert stages == [0, 1, 2, 2]
    assert world.machine.stuck


def test_a_process_that_appears_after_the_stop_is_ended() -> None:
    world = World(RULES)
    world.happen("dependencies")
    world.happen("stop")
    assert world.machine.state == "stopped"
    world.happen("spawned")
    assert world.machine.state == "stopping"
    world.happen("exit1")
    world.happen("empty")
    assert world.machine.state == "stopped"


WAYS_UP = [("dependencies", "prepared", "spawned"), ("up",), ("down",)]  # to starting, ready, degraded
ENDS = [("exit0",), ("dead", "exit0"), ("dead", "time", "exit0")]


def live(state: str, rules: RestartRules) -> World:
    world = World(rules)
    for way in WAYS_UP[: ["starting", "ready", "degraded"].index(state) + 1]:
        for choice in way:
            world.happen(choice)
    assert world.machine.state == state
    return world


@pytest.mark.parametrize("state", ["starting", "ready", "degraded"])
@pytest.mark.parametrize("end", [*ENDS, ("time", "exit0")], ids="-".join)
def test_a_server_that_exits_0_is_started_again(state: str, end: tuple[str, ...]) -> None:
    if end[0] == "time" and state != "starting":
        end = ("exit0",)  # no deadline is running
    whys = {"exit0": m.UNASKED_EXIT, "dead": "silent", "time": "not ready after 30 s"}
    for mode, expected in (("on_failure", "preparing"), ("always", "preparing"), ("never", "failed")):
        world = live(state, with_fields(RULES, restart=replace_policy(mode)))
        for choice in (*end, "empty"):
            world.happen(choice)
        machine = world.machine
        assert (machine.state, machine.last_failure) == (expected, whys[end[0]])
        assert machine.generation == (1 if mode == "never" else 2)
        assert whys[end[0]] in machine.why


def test_a_server_that_exits_0_again_and_again_is_given_up() -> None:
    world = run_to_ready()
    for _ in range(4):
        for choice in ("exit0", "empty", "time", "prepared", "spawned", "up"):
            world.happen(choice)
    assert world.machine.state == "gave_up"
    assert world.machine.why == f"failed 4 times within 100 s; last failure: {m.UNASKED_EXIT}"


@pytest.mark.parametrize("mode", ["never", "on_failure"])
@pytest.mark.parametrize("state", ["starting", "ready", "degraded"])
def test_a_task_that_exits_0_by_itself_has_completed(state: str, mode: str) -> None:
    world = live(state, with_fields(TASK, restart=replace_policy(mode)))
    for choice in ("exit0", "empty"):
        world.happen(choice)
    assert (world.machine.state, world.machine.why) == ("stopped", "completed (exit 0)")
    assert world.machine.completed and not world.machine.shut_down


@pytest.mark.parametrize(
    ("by_us", "code", "said"),
    [(True, 1, "stopped (exit 1, after it was told to stop)"), (True, 0, "stopped (exit 0)"),
     (False, 1, "stopped (exit 1)")],
)  # fmt: skip
def test_an_exit_status_after_a_stop_does_not_read_as_a_failure(by_us: bool, code: int, said: str) -> None:
    after = MachineState("stopped", 1, why="stopped", exit=Exit(code=code), ended_by_us=by_us)
    assert words(MachineState("stopping", 1), after, 0.0, completes=False) == (said, "info")


def test_a_task_that_is_always_restarted_is_so_after_exit_0_too() -> None:
    world = run_to_ready(with_fields(TASK, restart=replace_policy("always")))
    for choice in ("exit0", "empty"):
        world.happen(choice)
    assert (world.machine.state, world.machine.why) == ("preparing", "restarting after: exit 0")


@pytest.mark.parametrize("state", ["starting", "ready", "degraded"])
def test_a_task_that_we_ended_has_not_completed_although_it_exits_0(state: str) -> None:
    ways = {"dead": "silent", "time": "not ready after 30 s"} if state == "starting" else {"dead": "silent"}
    for way, why in ways.items():
        world = live(state, with_fields(TASK, restart=replace_policy("never")))
        for choice in (way, "exit0", "empty"):
            world.happen(choice)
        assert (world.machine.state, world.machine.why) == ("failed", why)
        assert world.machine.shut_down and not world.machine.completed
        again = live(state, TASK)
        for choice in (way, "exit0", "empty"):
            world = again
            world.happen(choice)
        assert (again.machine.state, again.machine.generation) == ("preparing", 2)
        # What was held against the first process is not held against the second one.
        for choice in ("prepared", "spawned", "exit0", "empty"):
            again.happen(choice)
        assert again.machine.completed


def test_a_task_that_somebody_stopped_has_not_completed_although_it_exits_0() -> None:
    world = run_to_ready(TASK)
    for choice in ("stop", "exit0", "empty"):
        world.happen(choice)
    assert (world.machine.state, world.machine.why) == ("stopped", "stopped")
    assert not world.machine.completed


@pytest.mark.parametrize("rules", [RULES, TASK])
def test_what_was_asked_of_it_is_done_whatever_code_it_exits_with(rules: RestartRules) -> None:
    for ask, state in (("stop", "stopped"), ("restart", "preparing")):
        for end in ((ask, "exit0"), ("dead", ask, "exit0"), ("exit0", ask)):
            world = run_to_ready(rules)
            for choice in (*end, "empty"):
                world.happen(choice)
            assert (world.machine.state, world.machine.failures) == (state, ()), end


def test_a_server_that_exits_0_and_yields_says_why() -> None:
    world = run_to_ready()
    for choice in ("exit0", "yield", "empty"):
        world.happen(choice)
    assert world.machine.why == f"waiting for its replacement; last failure: {m.UNASKED_EXIT}"


def left_as_completed(**changes: object) -> MachineState:
    """What older versions journalled of a service that had exited 0."""
    machine = MachineState("stopped", 3, why="completed (exit 0)", exit=Exit(code=0), last_failure="exit 0")
    return replace(machine, **changes)  # type: ignore[arg-type]


def test_a_server_that_an_older_version_took_for_completed_is_started_again() -> None:
    machine, actions = m.adopted(left_as_completed(), 5.0, RULES)
    assert (machine.state, machine.why, machine.since, actions) == ("waiting", m.UNASKED_EXIT, 5.0, ())
    never = with_fields(RULES, restart=replace_policy("never"))
    machine, actions = m.adopted(left_as_completed(), 5.0, never)
    assert (machine.state, machine.last_failure, actions) == ("failed", m.UNASKED_EXIT, ())
    for rules, left in (
        (TASK, left_as_completed()),
        (RULES, left_as_completed(wanted=False)),  # somebody stopped it
        (RULES, left_as_completed(ended_by_us=True)),
        (RULES, left_as_completed(after="hold")),  # its successor is being started
        (RULES, left_as_completed(exit=None)),
    ):
        assert m.adopted(left, 5.0, rules) == (left, ())


@pytest.mark.parametrize("state", ["stopping", "stopped"])
def test_who_began_an_end_is_read_from_older_journals_too(state: str) -> None:
    def read(exit_: Exit | None, last_failure: str, **fields: object) -> MachineState:
        machine = {"state": state, "generation": 1, "last_failure": last_failure, **fields}
        record = {"k": "state", "svc": "s", "gen": 1, "role": "current"}
        told = {**record, "unit": machine | {"exit": msgspec.to_builtins(exit_)}}
        past = read_history([{"k": "attempt", "n": 1, "era": "e", "at": 1.0}, told]).current("s")
        assert past is not None and past.machine is not None
        return past.machine

    assert not read(Exit(code=0, at=2.0), "exit 0").ended_by_us
    assert not read(Exit(), "unknown exit").ended_by_us
    assert read(Exit(code=0), "not ready after 30 s").ended_by_us
    assert read(None, "stop requested").ended_by_us
    assert not read(Exit(code=0), "not ready after 30 s", ended_by_us=False).ended_by_us, "it is told"
    assert not read(None, "", state="ready").ended_by_us


def waits_for(machine: MachineState) -> str | None:
    """What a service that needs one in this state to complete waits for."""
    slot = SimpleNamespace(name="t", state=machine.state, current=SimpleNamespace(machine=machine))
    supervisor: Any = SimpleNamespace(slots={"t": slot})
    return unmet(supervisor, Dependency("exited_0", "t"))


def test_what_needs_a_task_to_complete_waits_for_more_than_its_exit_0() -> None:
    ways = {("exit0", "empty"): True, ("stop", "exit0", "empty"): False, ("dead", "exit0", "empty"): False}
    ways |= {("exit0",): False, ("exit1", "empty"): False}
    for way, completes in ways.items():
        world = run_to_ready(with_fields(TASK, restart=replace_policy("never")))
        for choice in way:
            world.happen(choice)
        assert waits_for(world.machine) == (None if completes else "t to complete"), way


def test_completed_and_failed_without_restart() -> None:
    rules = RestartRules(replace_policy("never"), DEFAULT_STOP, 30.0, completes=True)
    for choice, state in (("exit0", "stopped"), ("exit1", "failed")):
        world = run_to_ready(rules)
        world.happen(choice)
        world.happen("empty")
        assert world.machine.state == state
        assert world.machine.exit == Exit(code=int(choice[-1]))


def test_an_unknown_exit_is_not_a_success() -> None:
    world = run_to_ready(RestartRules(replace_policy("never"), DEFAULT_STOP, 30.0))
    world.leader = False
    world.feed(m.LeaderExited(world.machine.generation, Exit()))
    world.happen("empty")
    assert world.machine.state == "failed" and world.machine.why == "unknown exit"


def test_not_ready_in_time_counts_as_a_failure() -> None:
    world = World(RULES)
    for choice in ("dependencies", "prepared", "spawned", "time"):
        world.happen(choice)
    assert world.machine.state == "stopping" and world.machine.why == "not ready after 30 s"


@pytest.mark.parametrize(("streak", "seconds"), [(0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (9, 8.0)])
def test_backoff_doubles_up_to_the_cap(streak: int, seconds: float) -> None:
    assert backoff(RULES.restart, streak, 0.0) == seconds
    assert backoff(RULES.restart, streak, 1.0) == pytest.approx(seconds * 1.2)


def test_a_dying_service_yields_to_its_successor_and_comes_back_if_that_fails() -> None:
    world = run_to_ready()
    for choice in ("exit1", "yield", "empty"):
        world.happen(choice)
    assert world.machine.state == "stopped" and world.machine.wanted
    for choice in ("start", "dependencies", "prepared", "spawned"):
        world.happen(choice)
    assert world.machine.state == "starting"


def test_numbers_used_elsewhere_are_skipped() -> None:
    world = World(RULES)
    world.machine = replace(world.machine, floor=4)
    world.happen("dependencies")
    assert world.machine.generation == 5
