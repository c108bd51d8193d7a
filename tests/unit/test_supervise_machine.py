"""The state machine by properties: whatever happens in whatever order, these hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverl.model import Exit
from liverl.plan.spec import DEFAULT_STOP, RestartPolicy
from liverl.supervise import machine as m
from liverl.supervise.machine import Rules, Unit, backoff, step

RULES = Rules(RestartPolicy(base=1.0, cap=8.0, window=100.0, max_failures=3, stable=50.0), DEFAULT_STOP, 30.0)


class World:
    """A machine and what is really there: at most one process tree, as the driver would have it."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.unit = Unit()
        self.now = 1000.0
        self.leader = False
        self.tree = False
        self.spawning: int | None = None
        self.started: list[int] = []
        self.asked_down = False

    def feed(self, event: m.Happening) -> None:
        before = self.unit
        self.unit, actions = step(before, event, self.now, self.rules)
        for action in actions:
            if isinstance(action, m.Prepare):
                assert not self.leader and not self.tree, "a start beside an old tree"
                assert self.spawning is None
                self.spawning = action.generation
            if isinstance(action, m.CancelPrepare):
                pass  # the process may appear all the same
        assert self.unit.generation >= before.generation
        if self.unit.state in ("starting", "ready", "degraded"):
            assert not self.unit.leader_gone

    def happen(self, choice: str) -> None:
        unit, generation = self.unit, self.unit.generation
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
            self.feed(m.Up(generation))
        elif choice == "down":
            self.feed(m.Down(generation, "slow"))
        elif choice == "dead":
            self.feed(m.Dead(generation, "silent"))
        elif choice in ("exit0", "exit1") and self.leader:
            self.leader = False
            self.feed(m.LeaderExited(generation, Exit(code=int(choice[-1]))))
        elif choice == "empty" and not self.leader and self.tree and unit.state == "stopping":
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
            self.feed(m.Yield())
        elif choice == "time" and unit.deadline is not None:
            self.now = unit.deadline
            self.feed(m.Due())
        elif choice == "old_news":
            self.feed(m.LeaderExited(generation - 1, Exit(code=0)))
            self.feed(m.Up(generation - 1))
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
    *("stop", "stop_now", "start", "restart", "time", "yield", "old_news"),
]
MODES = st.sampled_from(["never", "on_failure", "always"])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(CHOICES), max_size=80), MODES)
def test_any_history_keeps_the_promises(history: list[str], mode: str) -> None:
    policy = replace_policy(mode)
    world = World(Rules(policy, DEFAULT_STOP, 30.0))
    for choice in history:
        world.happen(choice)
        if world.asked_down:
            assert world.unit.state not in ("ready", "degraded", "backing_off", "waiting", "gave_up") or (
                world.unit.state == "gave_up"
            )
    assert world.started == sorted(set(world.started)), "each generation is started once, in order"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(CHOICES), max_size=60), MODES)
def test_after_a_stop_it_always_comes_to_rest(history: list[str], mode: str) -> None:
    world = World(Rules(replace_policy(mode), DEFAULT_STOP, 30.0))
    for choice in history:
        world.happen(choice)
    world.happen("stop")
    for choice in ["spawned", "exit1", "empty"] * 3:
        world.happen(choice)
    assert world.unit.state in m.ENDED
    assert not world.leader and not world.tree
    quiet = len(world.started)
    for choice in CHOICES:
        if choice not in ("start", "restart"):
            world.happen(choice)
    assert len(world.started) == quiet


def replace_policy(mode: str) -> RestartPolicy:
    from msgspec.structs import replace as replaced

    return replaced(RULES.restart, mode=mode)


def run_to_ready(rules: Rules = RULES) -> World:
    world = World(rules)
    for choice in ("dependencies", "prepared", "spawned", "up"):
        world.happen(choice)
    assert world.unit.state == "ready"
    return world


def test_the_first_restart_is_immediate_then_it_backs_off_then_gives_up() -> None:
    world = run_to_ready()
    states = []
    for _ in range(5):
        world.happen("exit1")
        world.happen("empty")
        states.append(world.unit.state)
        if world.unit.state == "backing_off":
            world.happen("time")
        for choice in ("prepared", "spawned", "up"):
            world.happen(choice)
    assert states == ["preparing", "backing_off", "backing_off", "gave_up", "gave_up"]
    assert "4 failures in 100 s, the last: exit 1" in world.unit.why


def test_a_stable_generation_forgives() -> None:
    world = run_to_ready()
    for _ in range(8):
        world.now += 200.0
        world.happen("exit1")
        world.happen("empty")
        assert world.unit.state == "preparing"
        for choice in ("prepared", "spawned", "up"):
            world.happen(choice)


def test_a_stop_escalates_stage_by_stage_and_says_when_nothing_helps() -> None:
    world = run_to_ready()
    world.happen("stop")
    stages = [world.unit.stage]
    for _ in range(3):
        world.happen("time")
        stages.append(world.unit.stage)
    assert stages == [0, 1, 2, 2]
    assert world.unit.stuck


def test_a_process_that_appears_after_the_stop_is_ended() -> None:
    world = World(RULES)
    world.happen("dependencies")
    world.happen("stop")
    assert world.unit.state == "stopped"
    world.happen("spawned")
    assert world.unit.state == "stopping"
    world.happen("exit1")
    world.happen("empty")
    assert world.unit.state == "stopped"


def test_completed_and_failed_without_restart() -> None:
    rules = Rules(replace_policy("never"), DEFAULT_STOP, 30.0)
    for choice, state in (("exit0", "stopped"), ("exit1", "failed")):
        world = run_to_ready(rules)
        world.happen(choice)
        world.happen("empty")
        assert world.unit.state == state
        assert world.unit.exit == Exit(code=int(choice[-1]))


def test_an_unknown_exit_is_not_a_success() -> None:
    world = run_to_ready(Rules(replace_policy("never"), DEFAULT_STOP, 30.0))
    world.leader = False
    world.feed(m.LeaderExited(world.unit.generation, Exit()))
    world.happen("empty")
    assert world.unit.state == "failed" and world.unit.why == "unknown exit"


def test_not_ready_in_time_counts_as_a_failure() -> None:
    world = World(RULES)
    for choice in ("dependencies", "prepared", "spawned", "time"):
        world.happen(choice)
    assert world.unit.state == "stopping" and world.unit.why == "not ready after 30 s"


@pytest.mark.parametrize(("streak", "seconds"), [(0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (9, 8.0)])
def test_backoff_doubles_up_to_the_cap(streak: int, seconds: float) -> None:
    assert backoff(RULES.restart, streak, 0.0) == seconds
    assert backoff(RULES.restart, streak, 1.0) == pytest.approx(seconds * 1.2)


def test_a_dying_service_yields_to_its_successor_and_comes_back_if_that_fails() -> None:
    world = run_to_ready()
    for choice in ("exit1", "yield", "empty"):
        world.happen(choice)
    assert world.unit.state == "stopped" and world.unit.wanted
    for choice in ("start", "dependencies", "prepared", "spawned"):
        world.happen(choice)
    assert world.unit.state == "starting"


def test_numbers_used_elsewhere_are_skipped() -> None:
    world = World(RULES)
    world.unit = replace(world.unit, floor=4)
    world.happen("dependencies")
    assert world.unit.generation == 5
