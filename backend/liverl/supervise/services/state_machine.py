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

UNASKED_EXIT = "exited with code 0 although nobody stopped it; servers run until they are stopped"


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
    why: str = "restart asked"


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
    generation: int


@dataclass(frozen=True)
class CancelPrepare:
    generation: int


@dataclass(frozen=True)
class Spawn:
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


Action: TypeAlias = Prepare | CancelPrepare | Spawn | Watch | Escalate

LIVE: frozenset[ServiceState] = frozenset({"starting", "ready", "degraded"})
ENDED: frozenset[ServiceState] = frozenset({"stopped", "failed", "gave_up"})


def backoff(policy: RestartPolicy, streak: int, jitter: float) -> float:
    """Seconds before restart number ``streak`` (0 = the first, immediate). ``jitter`` is in -1..1."""
    if streak <= 0:
        return 0.0
    return min(policy.cap, policy.base * 2.0 ** min(streak - 1, 30)) * (1.0 + policy.jitter * jitter)


def step(
    unit: MachineState, event: Input, now: float, rules: RestartRules, jitter: float = 0.0
) -> tuple[MachineState, tuple[Action, ...]]:
    """The next state and what to do. Events that do not apply leave the state as it is."""
    generation = getattr(event, "generation", None)
    if generation is not None and generation != unit.generation:
        return unit, ()
    match event:
        case Stop(now=at_once):
            return _stop(unit, now, rules, at_once)
        case Start():
            return _start(unit, now)
        case Restart(why=why):
            return _restart(unit, now, rules, why)
        case AwaitSuccessor() if unit.state == "stopping" and unit.after == "decide":
            return replace(unit, after="hold"), ()
        case NoRestart():
            return _no_restart(unit, now, rules)
        case DependenciesMet() if unit.state == "waiting" and unit.wanted:
            return _prepare(unit, now, "its dependencies are met")
        case Prepared() if unit.state == "preparing":
            return _to(unit, "preparing", now, "starting the process"), (Spawn(unit.generation),)
        case PrepareFailed(why=why, final=final) if unit.state in ("preparing", "starting"):
            if final:
                return _to(unit, "failed", now, why, leader_gone=True, last_failure=why), ()
            return _after_failure(replace(unit, leader_gone=True), now, rules, jitter, why)
        case Spawned() if unit.state in ("preparing", "waiting"):
            started = _to(unit, "starting", now, "waiting until it is ready", leader_gone=False, exit=None)
            deadline = now + rules.startup_deadline
            return replace(started, deadline=deadline, ready_at=None), (Watch(unit.generation),)
        case Spawned() if unit.state == "stopped":
            # The stop came while it was being started: it exists after all, and must end.
            late, escalate = _begin_stop(
                replace(unit, leader_gone=False), now, rules, "down", "stop asked", 0
            )
            return late, (Watch(unit.generation), *escalate)
        case ProbeReady() if unit.state in ("starting", "degraded"):
            first = unit.ready_at is None
            ready = _to(unit, "ready", now, "ready" if first else "ready again")
            return (replace(ready, ready_at=now) if first else ready), ()
        case ProbeUnready(why=why) if unit.state == "ready":
            return _to(unit, "degraded", now, why), ()
        case LivenessFailed(why=why) if unit.state in LIVE:
            return _begin_stop(unit, now, rules, "decide", why, 0)
        case LeaderExited(exit=exit_):
            return _leader_exited(unit, now, rules, exit_)
        case TreeEmpty() if unit.state == "stopping" and unit.leader_gone:
            return _tree_empty(unit, now, rules, jitter)
        case DeadlinePassed() if unit.deadline is not None and now >= unit.deadline:
            return _due(unit, now, rules)
        case _:
            return unit, ()


def adopted(unit: MachineState, now: float, rules: RestartRules) -> tuple[MachineState, tuple[Action, ...]]:
    """A state read from the journal, made live again: its timers are set and its actions repeated."""
    if unit.state == "starting":
        return replace(unit, deadline=now + rules.startup_deadline), (Watch(unit.generation),)
    if unit.state in ("ready", "degraded"):
        return unit, (Watch(unit.generation),)
    if unit.state == "stopping":
        stage = rules.stop[min(unit.stage, len(rules.stop) - 1)]
        actions = (Watch(unit.generation), Escalate(unit.generation, stage))
        return replace(unit, deadline=now + stage.grace), actions
    if unit.state in ("preparing", "backing_off"):
        return replace(unit, state="waiting", deadline=None, since=now), ()
    if unit.completed and unit.wanted and unit.after == "decide" and not rules.completes:
        # Versions before this one took a server that exited 0 for a task that is done.
        if rules.restart.mode == "never":
            return _to(unit, "failed", now, UNASKED_EXIT, last_failure=UNASKED_EXIT), ()
        return _to(unit, "waiting", now, UNASKED_EXIT, last_failure=UNASKED_EXIT), ()
    return unit, ()


def _to(unit: MachineState, state: ServiceState, now: float, why: str, **changes: object) -> MachineState:
    since = now if state != unit.state else unit.since
    merged = {"deadline": None, **changes}
    return replace(unit, state=state, why=why, since=since, **merged)  # type: ignore[arg-type]


def _prepare(unit: MachineState, now: float, why: str) -> tuple[MachineState, tuple[Action, ...]]:
    generation = max(unit.generation, unit.floor) + 1
    nxt = _to(unit, "preparing", now, why, generation=generation, leader_gone=True, stuck=False, stage=0)
    return replace(nxt, after="decide"), (Prepare(generation),)


def _start(unit: MachineState, now: float) -> tuple[MachineState, tuple[Action, ...]]:
    if unit.state in ENDED or unit.state == "backing_off":
        fresh = _to(unit, "waiting", now, "start asked", wanted=True, failures=(), streak=0)
        return fresh, ()
    if unit.state == "stopping":
        return replace(unit, wanted=True, after="restart"), ()
    return replace(unit, wanted=True), ()


def _stop(
    unit: MachineState, now: float, rules: RestartRules, at_once: bool
) -> tuple[MachineState, tuple[Action, ...]]:
    unit = replace(unit, wanted=False)
    last = len(rules.stop) - 1
    if unit.state in LIVE:
        return _begin_stop(unit, now, rules, "down", "stop asked", last if at_once else 0)
    if unit.state == "stopping":
        unit = replace(unit, after="down")
        if at_once and unit.stage < last:
            return _enter_stage(unit, now, rules, last)
        return unit, ()
    if unit.state == "preparing":
        # The process may be in the making: the driver ends it if it appears after all.
        return _to(unit, "stopped", now, "stop asked"), (CancelPrepare(unit.generation),)
    if unit.state in ("waiting", "backing_off"):
        return _to(unit, "stopped", now, "stop asked"), ()
    return unit, ()


def _no_restart(
    unit: MachineState, now: float, rules: RestartRules
) -> tuple[MachineState, tuple[Action, ...]]:
    if unit.state in LIVE:
        return replace(unit, wanted=False), ()
    return _stop(unit, now, rules, False) if unit.state not in ENDED else (unit, ())


def _restart(
    unit: MachineState, now: float, rules: RestartRules, why: str
) -> tuple[MachineState, tuple[Action, ...]]:
    unit = replace(unit, wanted=True)
    if unit.state in LIVE:
        return _begin_stop(unit, now, rules, "restart", why, 0)
    if unit.state == "stopping":
        return replace(unit, after="restart"), ()
    return _start(unit, now)


def _begin_stop(
    unit: MachineState, now: float, rules: RestartRules, after: After, why: str, stage: int
) -> tuple[MachineState, tuple[Action, ...]]:
    stopping = _to(unit, "stopping", now, why, after=after, ended_by_us=True)
    return _enter_stage(replace(stopping, last_failure=why), now, rules, stage)


def _enter_stage(
    unit: MachineState, now: float, rules: RestartRules, stage: int
) -> tuple[MachineState, tuple[Action, ...]]:
    chosen = rules.stop[stage]
    nxt = replace(unit, stage=stage, deadline=now + chosen.grace)
    return nxt, (Escalate(unit.generation, chosen),)


def _leader_exited(
    unit: MachineState, now: float, rules: RestartRules, exit_: Exit
) -> tuple[MachineState, tuple[Action, ...]]:
    if unit.state in LIVE:
        # Its own tree first: a restart beside an old worker is what every peer gets wrong.
        gone = replace(unit, exit=exit_, leader_gone=True, ended_by_us=False)
        stopping = _to(gone, "stopping", now, f"its leader ended ({exit_.words()})", after="decide")
        return _enter_stage(replace(stopping, last_failure=exit_.words()), now, rules, _tree_stage(rules))
    if unit.state == "stopping" and not unit.leader_gone:
        gone = replace(unit, exit=exit_, leader_gone=True)
        stage = _tree_stage(rules)
        if gone.stage < stage:
            return _enter_stage(gone, now, rules, stage)
        return gone, ()
    return unit, ()


def _tree_stage(rules: RestartRules) -> int:
    return next((i for i, s in enumerate(rules.stop) if s.target == "tree"), len(rules.stop) - 1)


def _tree_empty(
    unit: MachineState, now: float, rules: RestartRules, jitter: float
) -> tuple[MachineState, tuple[Action, ...]]:
    unit = replace(unit, stuck=False)
    if unit.after == "down" or not unit.wanted:
        return _to(unit, "stopped", now, "stopped as asked"), ()
    if unit.after == "hold":
        return _to(unit, "stopped", now, f"waits for its successor, after: {_failure(unit, rules)}"), ()
    if unit.after == "restart":
        return _prepare(replace(unit, failures=(), streak=0), now, unit.why)
    done = unit.exit is not None and unit.exit.ok and not unit.ended_by_us
    if done and rules.completes and rules.restart.mode != "always":
        return _to(unit, "stopped", now, "completed (exit 0)"), ()
    return _after_failure(unit, now, rules, jitter, _failure(unit, rules))


def _failure(unit: MachineState, rules: RestartRules) -> str:
    """What ended it, in words. Whatever code it exits with, the reason for a stop of ours is the failure."""
    exit_ = unit.exit or Exit()
    if exit_.ok and not unit.ended_by_us and not rules.completes:
        return UNASKED_EXIT
    return unit.last_failure or exit_.words()


def _after_failure(
    unit: MachineState, now: float, rules: RestartRules, jitter: float, why: str
) -> tuple[MachineState, tuple[Action, ...]]:
    policy = rules.restart
    if not unit.wanted:
        return _to(unit, "stopped", now, "stopped as asked"), ()
    if policy.mode == "never":
        return _to(unit, "failed", now, why, last_failure=why), ()
    stable = unit.ready_at is not None and unit.state == "stopping" and now - unit.ready_at >= policy.stable
    streak = 0 if stable else unit.streak
    failures = tuple(t for t in (*unit.failures, now) if now - t <= policy.window)
    if len(failures) > policy.max_failures:
        verdict = f"{len(failures)} failures in {policy.window:.0f} s, the last: {why}"
        return _to(unit, "gave_up", now, verdict, failures=failures, last_failure=why), ()
    unit = replace(unit, failures=failures, streak=streak + 1, last_failure=why, ready_at=None)
    delay = backoff(policy, streak, jitter)
    if delay <= 0.0:
        return _prepare(unit, now, f"restarting after: {why}")
    waiting = _to(unit, "backing_off", now, why)
    return replace(waiting, deadline=now + delay), ()


def _due(unit: MachineState, now: float, rules: RestartRules) -> tuple[MachineState, tuple[Action, ...]]:
    if unit.state == "backing_off":
        return _prepare(unit, now, f"restarting after: {unit.last_failure}")
    if unit.state == "starting":
        why = f"not ready after {rules.startup_deadline:.0f} s"
        return _begin_stop(unit, now, rules, "decide", why, 0)
    if unit.state == "stopping":
        if unit.stage + 1 < len(rules.stop):
            return _enter_stage(unit, now, rules, unit.stage + 1)
        # Nothing is left but to try again and to say so.
        return _enter_stage(replace(unit, stuck=True), now, rules, len(rules.stop) - 1)
    return replace(unit, deadline=None), ()
