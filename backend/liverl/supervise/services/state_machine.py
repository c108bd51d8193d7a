"""The life of one service as a pure state machine: (state, event, time) -> (state, actions). No I/O.

The driver feeds what happened and carries out the actions. Every process event carries the generation it
speaks of, so that news of an older process never moves a newer one, and a stop always wins over a restart
in flight. ``deadline`` is the moment at which the driver must deliver :class:`DeadlinePassed`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from liverl.model import Exit, ServiceState
from liverl.plan.spec import RestartPolicy, StopStage

After = Literal["decide", "down", "restart", "hold"]

UNASKED_EXIT = "exited with code 0 without a stop request; a server must run until it is stopped"


@dataclass(frozen=True)
class MachineState:
    """One service's state. ``exit`` is that of the newest generation whose leader has ended."""

    state: ServiceState = "waiting"
    generation: int = 0
    floor: int = 0  # generation numbers up to here are used up by other instances of the service
    wanted: bool = True
    why: str = "not started yet"
    since: float = 0.0
    deadline: float | None = None
    exit: Exit | None = None
    leader_gone: bool = True
    after: After = "decide"
    stage: int = 0  # index into the stop stages
    stuck: bool = False  # the last stage passed and the tree is still there
    failures: tuple[float, ...] = ()
    streak: int = 0
    ready_at: float | None = None
    last_failure: str = ""
    ended_by_us: bool = False  # the newest end began with a stop of ours, not with the leader's own exit

    @property
    def completed(self) -> bool:
        """Whether a task has ended by itself with exit 0."""
        return self.state == "stopped" and self.exit is not None and self.exit.ok and not self.ended_by_us

    @property
    def shut_down(self) -> bool:
        """Whether we ended it and it exited 0: the last lines of its log are those of an orderly shutdown."""
        return self.ended_by_us and self.exit is not None and self.exit.ok


@dataclass(frozen=True)
class RestartRules:
    """What does not change while a service lives."""

    restart: RestartPolicy = field(default_factory=RestartPolicy)
    stop: tuple[StopStage, ...] = ()
    startup_deadline: float = 2700.0
    completes: bool = False  # exit 0 is a success; False: a server, which runs until it is stopped


# --- events -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """Somebody wants it up. Forgives earlier failures."""


@dataclass(frozen=True)
class Stop:
    """Somebody wants it down; ``now`` skips to the last stage. Wins over everything."""

    now: bool = False


@dataclass(frozen=True)
class Restart:
    why: str = "restart requested"


@dataclass(frozen=True)
class AwaitSuccessor:
    """It is dying while a successor starts: come to rest instead of starting a third. ``Start`` undoes it."""


@dataclass(frozen=True)
class NoRestart:
    """The run is stopping: nothing is started any more. What runs keeps running until its own ``Stop``."""


@dataclass(frozen=True)
class DependenciesMet:
    pass


@dataclass(frozen=True)
class Prepared:
    generation: int


@dataclass(frozen=True)
class PrepareFailed:
    generation: int
    why: str
    final: bool = False  # trying again cannot help


@dataclass(frozen=True)
class Spawned:
    generation: int


@dataclass(frozen=True)
class ProbeReady:
    """The start-up or ready probe holds."""

    generation: int


@dataclass(frozen=True)
class ProbeUnready:
    """The ready probe fails."""

    generation: int
    why: str


@dataclass(frozen=True)
class LivenessFailed:
    """The live probe failed too often: it must be ended and started again."""

    generation: int
    why: str


@dataclass(frozen=True)
class LeaderExited:
    generation: int
    exit: Exit


@dataclass(frozen=True)
class TreeEmpty:
    generation: int


@dataclass(frozen=True)
class DeadlinePassed:
    """The deadline has come."""


Input: TypeAlias = (
    Start
    | Stop
    | Restart
    | AwaitSuccessor
    | NoRestart
    | DependenciesMet
    | Prepared
    | PrepareFailed
    | Spawned
    | ProbeReady
    | ProbeUnready
    | LivenessFailed
    | LeaderExited
    | TreeEmpty
    | DeadlinePassed
)

# --- actions ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepare:
    """Prepare and spawn one generation. A stop in between does not interrupt it: :class:`Spawned` then finds the
    service stopped, and ends the process."""

    generation: int


@dataclass(frozen=True)
class Watch:
    """Begin probing, and the wait for the leader's end."""

    generation: int


@dataclass(frozen=True)
class Escalate:
    """Carry out one stop stage, and report the tree's emptiness from now on."""

    generation: int
    stage: StopStage


Action: TypeAlias = Prepare | Watch | Escalate

LIVE: frozenset[ServiceState] = frozenset({"starting", "ready", "degraded"})
SERVING: frozenset[ServiceState] = frozenset({"ready", "degraded"})
ENDED: frozenset[ServiceState] = frozenset({"stopped", "failed", "gave_up"})


def backoff(policy: RestartPolicy, streak: int, jitter: float) -> float:
    """Seconds before restart number ``streak`` (0 = the first, immediate). ``jitter`` is in -1..1."""
    if streak <= 0:
        return 0.0
    return min(policy.cap, policy.base * 2.0 ** min(streak - 1, 30)) * (1.0 + policy.jitter * jitter)


def step(
    machine: MachineState, event: Input, now: float, rules: RestartRules, jitter: float = 0.0
) -> tuple[MachineState, tuple[Action, ...]]:
    """The next state and what to do. Events that do not apply leave the state as it is."""
    generation = getattr(event, "generation", None)
    if generation is not None and generation != machine.generation:
        return machine, ()
    match event:
        case Stop(now=at_once):
            return _stop(machine, now, rules, at_once)
        case Start():
            return _start(machine, now)
        case Restart(why=why):
            return _restart(machine, now, rules, why)
        case AwaitSuccessor() if machine.state == "stopping" and machine.after == "decide":
            return replace(machine, after="hold"), ()
        case NoRestart():
            return _no_restart(machine, now, rules)
        case DependenciesMet() if machine.state == "waiting" and machine.wanted:
            return _prepare(machine, now, "its dependencies are met")
        case Prepared() if machine.state == "preparing":
            return _to(machine, "preparing", now, "starting the process"), ()
        case PrepareFailed(why=why, final=final) if machine.state in ("preparing", "starting"):
            if final:
                return _to(machine, "failed", now, why, leader_gone=True, last_failure=why), ()
            return _after_failure(replace(machine, leader_gone=True), now, rules, jitter, why)
        case Spawned() if machine.state in ("preparing", "waiting"):
            started = _to(machine, "starting", now, "waiting until it is ready", leader_gone=False, exit=None)
            deadline = now + rules.startup_deadline
            return replace(started, deadline=deadline, ready_at=None), (Watch(machine.generation),)
        case Spawned() if machine.state == "stopped":
            # The stop came while it was being started: it exists after all, and must end.
            late, escalate = _begin_stop(
                replace(machine, leader_gone=False), now, rules, "down", "stop requested", 0
            )
            return late, (Watch(machine.generation), *escalate)
        case ProbeReady() if machine.state in ("starting", "degraded"):
            first = machine.ready_at is None
            ready = _to(machine, "ready", now, "ready" if first else "ready again")
            return (replace(ready, ready_at=now) if first else ready), ()
        case ProbeUnready(why=why) if machine.state == "ready":
            return _to(machine, "degraded", now, why), ()
        case LivenessFailed(why=why) if machine.state in LIVE:
            return _begin_stop(machine, now, rules, "decide", why, 0)
        case LeaderExited(exit=exit_):
            return _leader_exited(machine, now, rules, exit_)
        case TreeEmpty() if machine.state == "stopping" and machine.leader_gone:
            return _tree_empty(machine, now, rules, jitter)
        case DeadlinePassed() if machine.deadline is not None and now >= machine.deadline:
            return _due(machine, now, rules)
        case _:
            return machine, ()


def adopted(
    machine: MachineState, now: float, rules: RestartRules
) -> tuple[MachineState, tuple[Action, ...]]:
    """A state read from the journal, made live again: its timers are set and its actions repeated."""
    if machine.state == "starting":
        return replace(machine, deadline=now + rules.startup_deadline), (Watch(machine.generation),)
    if machine.state in SERVING:
        return machine, (Watch(machine.generation),)
    if machine.state == "stopping":
        stage = rules.stop[min(machine.stage, len(rules.stop) - 1)]
        actions = (Watch(machine.generation), Escalate(machine.generation, stage))
        return replace(machine, deadline=now + stage.grace), actions
    if machine.state in ("preparing", "backing_off"):
        return replace(machine, state="waiting", deadline=None, since=now), ()
    if machine.completed and machine.wanted and machine.after == "decide" and not rules.completes:
        # Versions before this one took a server that exited 0 for a task that is done.
        if rules.restart.mode == "never":
            return _to(machine, "failed", now, UNASKED_EXIT, last_failure=UNASKED_EXIT), ()
        return _to(machine, "waiting", now, UNASKED_EXIT, last_failure=UNASKED_EXIT), ()
    return machine, ()


def _to(machine: MachineState, state: ServiceState, now: float, why: str, **changes: object) -> MachineState:
    since = now if state != machine.state else machine.since
    merged = {"deadline": None, **changes}
    return replace(machine, state=state, why=why, since=since, **merged)  # type: ignore[arg-type]


def _prepare(machine: MachineState, now: float, why: str) -> tuple[MachineState, tuple[Action, ...]]:
    generation = max(machine.generation, machine.floor) + 1
    nxt = _to(machine, "preparing", now, why, generation=generation, leader_gone=True, stuck=False, stage=0)
    return replace(nxt, after="decide"), (Prepare(generation),)


def _start(machine: MachineState, now: float) -> tuple[MachineState, tuple[Action, ...]]:
    if machine.state in ENDED or machine.state == "backing_off":
        fresh = _to(machine, "waiting", now, "start requested", wanted=True, failures=(), streak=0)
        return fresh, ()
    if machine.state == "stopping":
        return replace(machine, wanted=True, after="restart"), ()
    return replace(machine, wanted=True), ()


def _stop(
    machine: MachineState, now: float, rules: RestartRules, at_once: bool
) -> tuple[MachineState, tuple[Action, ...]]:
    machine = replace(machine, wanted=False)
    last = len(rules.stop) - 1
    if machine.state in LIVE:
        return _begin_stop(machine, now, rules, "down", "stop requested", last if at_once else 0)
    if machine.state == "stopping":
        machine = replace(machine, after="down")
        if at_once and machine.stage < last:
            return _enter_stage(machine, now, rules, last)
        return machine, ()
    if machine.state in ("waiting", "preparing", "backing_off"):
        # A process that is being prepared may still appear: ``Spawned`` then ends it.
        return _to(machine, "stopped", now, "stop requested"), ()
    return machine, ()


def _no_restart(
    machine: MachineState, now: float, rules: RestartRules
) -> tuple[MachineState, tuple[Action, ...]]:
    if machine.state in LIVE:
        return replace(machine, wanted=False), ()
    return _stop(machine, now, rules, False) if machine.state not in ENDED else (machine, ())


def _restart(
    machine: MachineState, now: float, rules: RestartRules, why: str
) -> tuple[MachineState, tuple[Action, ...]]:
    machine = replace(machine, wanted=True)
    if machine.state in LIVE:
        return _begin_stop(machine, now, rules, "restart", why, 0)
    if machine.state == "stopping":
        return replace(machine, after="restart"), ()
    return _start(machine, now)


def _begin_stop(
    machine: MachineState, now: float, rules: RestartRules, after: After, why: str, stage: int
) -> tuple[MachineState, tuple[Action, ...]]:
    stopping = _to(machine, "stopping", now, why, after=after, ended_by_us=True)
    return _enter_stage(replace(stopping, last_failure=why), now, rules, stage)


def _enter_stage(
    machine: MachineState, now: float, rules: RestartRules, stage: int
) -> tuple[MachineState, tuple[Action, ...]]:
    chosen = rules.stop[stage]
    nxt = replace(machine, stage=stage, deadline=now + chosen.grace)
    return nxt, (Escalate(machine.generation, chosen),)


def _leader_exited(
    machine: MachineState, now: float, rules: RestartRules, exit_: Exit
) -> tuple[MachineState, tuple[Action, ...]]:
    if machine.state in LIVE:
        # Its own tree first: a restart beside an old worker is what every peer gets wrong.
        gone = replace(machine, exit=exit_, leader_gone=True, ended_by_us=False)
        stopping = _to(gone, "stopping", now, f"its main process exited ({exit_.words()})", after="decide")
        return _enter_stage(replace(stopping, last_failure=exit_.words()), now, rules, _tree_stage(rules))
    if machine.state == "stopping" and not machine.leader_gone:
        gone = replace(machine, exit=exit_, leader_gone=True)
        stage = _tree_stage(rules)
        if gone.stage < stage:
            return _enter_stage(gone, now, rules, stage)
        return gone, ()
    return machine, ()


def _tree_stage(rules: RestartRules) -> int:
    return next((i for i, s in enumerate(rules.stop) if s.target == "tree"), len(rules.stop) - 1)


def _tree_empty(
    machine: MachineState, now: float, rules: RestartRules, jitter: float
) -> tuple[MachineState, tuple[Action, ...]]:
    machine = replace(machine, stuck=False)
    if machine.after == "down" or not machine.wanted:
        return _to(machine, "stopped", now, "stopped"), ()
    if machine.after == "hold":
        return _to(
            machine, "stopped", now, f"waiting for its replacement; last failure: {_failure(machine, rules)}"
        ), ()
    if machine.after == "restart":
        return _prepare(replace(machine, failures=(), streak=0), now, machine.why)
    done = machine.exit is not None and machine.exit.ok and not machine.ended_by_us
    if done and rules.completes and rules.restart.mode != "always":
        return _to(machine, "stopped", now, "completed (exit 0)"), ()
    return _after_failure(machine, now, rules, jitter, _failure(machine, rules))


def _failure(machine: MachineState, rules: RestartRules) -> str:
    """What ended it, in words. Whatever code it exits with, the reason for a stop of ours is the failure."""
    exit_ = machine.exit or Exit()
    if exit_.ok and not machine.ended_by_us and not rules.completes:
        return UNASKED_EXIT
    return machine.last_failure or exit_.words()


def _after_failure(
    machine: MachineState, now: float, rules: RestartRules, jitter: float, why: str
) -> tuple[MachineState, tuple[Action, ...]]:
    policy = rules.restart
    if not machine.wanted:
        return _to(machine, "stopped", now, "stopped"), ()
    if policy.mode == "never":
        return _to(machine, "failed", now, why, last_failure=why), ()
    stable = (
        machine.ready_at is not None
        and machine.state == "stopping"
        and now - machine.ready_at >= policy.stable
    )
    streak = 0 if stable else machine.streak
    failures = tuple(t for t in (*machine.failures, now) if now - t <= policy.window)
    if len(failures) > policy.max_failures:
        verdict = f"{len(failures)} failures in {policy.window:.0f} s; last failure: {why}"
        return _to(machine, "gave_up", now, verdict, failures=failures, last_failure=why), ()
    machine = replace(machine, failures=failures, streak=streak + 1, last_failure=why, ready_at=None)
    delay = backoff(policy, streak, jitter)
    if delay <= 0.0:
        return _prepare(machine, now, f"restarting after: {why}")
    waiting = _to(machine, "backing_off", now, why)
    return replace(waiting, deadline=now + delay), ()


def _due(machine: MachineState, now: float, rules: RestartRules) -> tuple[MachineState, tuple[Action, ...]]:
    if machine.state == "backing_off":
        return _prepare(machine, now, f"restarting after: {machine.last_failure}")
    if machine.state == "starting":
        why = f"not ready after {rules.startup_deadline:.0f} s"
        return _begin_stop(machine, now, rules, "decide", why, 0)
    # It is stopping: no other state has a deadline.
    if machine.stage + 1 < len(rules.stop):
        return _enter_stage(machine, now, rules, machine.stage + 1)
    # Nothing is left but to try again and to say so.
    return _enter_stage(replace(machine, stuck=True), now, rules, len(rules.stop) - 1)
