"""One service as a pure state machine: (state, event, time) -> (state, actions). No I/O.

The driver passes events and carries out the actions. Every event about a process carries its generation: events of
older generations are ignored. A stop always overrides a restart in progress. ``deadline`` is the time at which the
driver must deliver :class:`DeadlinePassed`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import msgspec

from liverl.model import Exit, ServiceState
from liverl.plan.spec import RestartPolicy, StopStage

After = Literal["decide", "down", "restart", "hold", "fail"]

UNASKED_EXIT = "exited with code 0 without a stop request; a server must run until it is stopped"


@dataclass(frozen=True)
class MachineState:
    """State of one service. ``since``, ``deadline``, ``failures`` and ``ready_at`` are Unix seconds. ``exit`` is that
    of the newest generation whose leader has ended."""

    state: ServiceState = "waiting"
    generation: int = 0
    floor: int = 0  # generation numbers up to this one are used by other instances of the service
    wanted: bool = True  # should be up; False after a stop
    why: str = "not started yet"
    since: float = 0.0
    deadline: float | None = None
    exit: Exit | None = None
    leader_gone: bool = True
    after: After = "decide"  # what follows once the process tree is empty
    stage: int = 0  # index into the stop stages
    stuck: bool = False  # processes survived the last stop stage
    failures: tuple[float, ...] = ()  # times within the policy's window
    streak: int = 0  # automatic restarts in a row
    ready_at: float | None = None  # when this generation was ready for the first time
    last_failure: str = ""
    ended_by_us: bool = False  # the supervisor began the newest stop; False: the leader exited by itself
    down_since: float | None = None  # when it stopped serving although it is wanted; None while it serves

    @property
    def completed(self) -> bool:
        """Whether a task has ended by itself with exit 0."""
        return self.state == "stopped" and self.exit is not None and self.exit.ok and not self.ended_by_us

    @property
    def shut_down(self) -> bool:
        """Whether the supervisor stopped it and it exited 0: the end of its log shows an orderly shutdown, no
        cause."""
        return self.ended_by_us and self.exit is not None and self.exit.ok

    @property
    def refused(self) -> bool:
        """Whether it is down because its startup check failed for good."""
        return self.state == "failed" and self.after == "fail"


def awaits_successor(machine: MachineState) -> bool:
    """Whether it ended by itself during a swap, and the generation that is being started takes its place."""
    return machine.after == "hold" and machine.wanted


def succeeded(old: MachineState, new: MachineState) -> MachineState:
    """The state of the generation that takes the place of ``old``. If ``old`` ended by itself and ``new`` does not
    serve yet, the service stays down since then, for the same reason, and that counts as one of its failures."""
    if old.down_since is None or new.state in SERVING or not new.wanted:
        return new
    return replace(
        new,
        down_since=old.down_since,
        last_failure=old.last_failure,
        failures=(*old.failures, old.down_since),
        streak=old.streak,
    )


def failed_at(machine: MachineState) -> float | None:
    """When the service failed last, in Unix seconds; None if it did not, or was started by a command since."""
    return machine.failures[-1] if machine.failures else None


def failure(machine: MachineState) -> str:
    """Why the service is down or failed last; empty if neither is so."""
    return machine.last_failure if machine.down_since is not None or machine.failures else ""


class RestartRules(msgspec.Struct, frozen=True):
    """The fixed parameters of a service. ``startup_deadline``: seconds until it must be ready. ``stop``: its stop
    stages; the state machine needs at least one."""

    restart: RestartPolicy = msgspec.field(default_factory=RestartPolicy)
    stop: tuple[StopStage, ...] = ()
    startup_deadline: float = 2700.0
    completes: bool = False  # exit 0 is a success; False: a server, which runs until it is stopped


# --- events -------------------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True):
    """Start requested. Resets the failures and the backoff."""


STOP_REQUESTED = "stop requested"
RUN_ENDS = "the run ends"


class Stop(msgspec.Struct, frozen=True):
    """Stop it; ``now`` skips to the last stop stage, ``why`` is shown. Overrides every other request."""

    now: bool = False
    why: str = STOP_REQUESTED


class Restart(msgspec.Struct, frozen=True):
    """Restart requested: stop, then start a new generation; ``why`` is shown as the reason for both."""

    why: str = "restart requested"


class AwaitSuccessor(msgspec.Struct, frozen=True):
    """It is ending while the incoming generation starts: stay stopped afterwards. ``Start`` cancels this."""


class NoRestart(msgspec.Struct, frozen=True):
    """The run is stopping, ``why`` is shown: do not start or restart. A running service keeps running until its
    ``Stop``."""

    why: str = STOP_REQUESTED


class DependenciesMet(msgspec.Struct, frozen=True):
    """Every dependency is met: a waiting service may be prepared."""


class Prepared(msgspec.Struct, frozen=True):
    """Ports, files and journal record are done; the process is being started."""

    generation: int


class PrepareFailed(msgspec.Struct, frozen=True):
    """The process could not be started; ``why`` says the reason."""

    generation: int
    why: str
    final: bool = False  # trying again cannot help


class Spawned(msgspec.Struct, frozen=True):
    """The process exists."""

    generation: int


class ProbeReady(msgspec.Struct, frozen=True):
    """The startup or the ready probe succeeds."""

    generation: int


class ProbeUnready(msgspec.Struct, frozen=True):
    """The ready probe has failed as often as it may."""

    generation: int
    why: str


class LivenessFailed(msgspec.Struct, frozen=True):
    """The live probe has failed as often as it may: the process must be restarted."""

    generation: int
    why: str


class StartupRefused(msgspec.Struct, frozen=True):
    """The startup probe has failed for good: a new process would fail in the same way."""

    generation: int
    why: str


class LeaderExited(msgspec.Struct, frozen=True):
    """The leader of the process tree has ended; others of the tree may still run."""

    generation: int
    exit: Exit


class TreeEmpty(msgspec.Struct, frozen=True):
    """No process of the tree is left. ``passing``: why the start failed, if by its log that may pass
    (``RestartPolicy.passing``); "" = it does not say so."""

    generation: int
    passing: str = ""


class DeadlinePassed(msgspec.Struct, frozen=True):
    """The time ``MachineState.deadline`` has passed."""


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
    | StartupRefused
    | LeaderExited
    | TreeEmpty
    | DeadlinePassed
)

# --- actions ------------------------------------------------------------------------------------------


class Prepare(msgspec.Struct, frozen=True):
    """Prepare and spawn one generation. A stop in between does not interrupt it: when :class:`Spawned` arrives and the
    service is stopped, the process is ended."""

    generation: int


class Watch(msgspec.Struct, frozen=True):
    """Begin to probe the process and to wait for the exit of its leader."""

    generation: int


class Escalate(msgspec.Struct, frozen=True):
    """Carry out one stop stage, and deliver :class:`TreeEmpty` once the process tree is empty."""

    generation: int
    stage: StopStage


Action: TypeAlias = Prepare | Watch | Escalate

LIVE: frozenset[ServiceState] = frozenset({"starting", "ready", "degraded"})
SERVING: frozenset[ServiceState] = frozenset({"ready", "degraded"})
ENDED: frozenset[ServiceState] = frozenset({"stopped", "failed", "gave_up"})


def backoff(policy: RestartPolicy, streak: int, jitter: float) -> float:
    """Seconds before restart number ``streak``; 0 for the first, which is immediate. ``jitter``, in -1..1, is scaled
    by the policy's."""
    if streak <= 0:
        return 0.0
    return min(policy.cap, policy.base * 2.0 ** min(streak - 1, 30)) * (1.0 + policy.jitter * jitter)


def step(
    machine: MachineState, event: Input, now: float, rules: RestartRules, jitter: float = 0.0
) -> tuple[MachineState, tuple[Action, ...]]:
    """The next state, and the actions to carry out. ``now``: Unix seconds; ``jitter``: see :func:`backoff`. Events
    that do not apply, or are of another generation, leave the state as it is."""
    nxt, actions = _step(machine, event, now, rules, jitter)
    if nxt.state in SERVING or not nxt.wanted or (nxt.state in ENDED and not awaits_successor(nxt)):
        down_since = None
    else:
        down_since = now if machine.state in SERVING else machine.down_since
    return (nxt if down_since == nxt.down_since else replace(nxt, down_since=down_since)), actions


def _step(
    machine: MachineState, event: Input, now: float, rules: RestartRules, jitter: float
) -> tuple[MachineState, tuple[Action, ...]]:
    generation = getattr(event, "generation", None)
    if generation is not None and generation != machine.generation:
        return machine, ()
    match event:
        case Stop(now=at_once, why=why):
            return _stop(machine, now, rules, at_once, why)
        case Start():
            return _start(machine, now)
        case Restart(why=why):
            return _restart(machine, now, rules, why)
        case AwaitSuccessor() if machine.state == "stopping" and machine.after == "decide":
            return replace(machine, after="hold"), ()
        case NoRestart(why=why):
            return _no_restart(machine, now, rules, why)
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
            # The stop came while the process was being started: it exists now, and must be ended.
            late, escalate = _begin_stop(
                replace(machine, leader_gone=False), now, rules, "down", machine.why, 0
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
        case StartupRefused(why=why) if machine.state == "starting":
            return _begin_stop(machine, now, rules, "fail", why, 0)
        case LeaderExited(exit=exit_):
            return _leader_exited(machine, now, rules, exit_)
        case TreeEmpty(passing=passing) if machine.state == "stopping" and machine.leader_gone:
            return _tree_empty(machine, now, rules, jitter, passing if machine.ready_at is None else "")
        case DeadlinePassed() if machine.deadline is not None and now >= machine.deadline:
            return _due(machine, now, rules)
        case _:
            return machine, ()


def adopted(
    machine: MachineState, now: float, rules: RestartRules
) -> tuple[MachineState, tuple[Action, ...]]:
    """A state that was read from the journal, with its timers set and its actions repeated."""
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
        # Older versions treated a server that exited 0 as a completed task.
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
    machine: MachineState, now: float, rules: RestartRules, at_once: bool, why: str
) -> tuple[MachineState, tuple[Action, ...]]:
    machine = replace(machine, wanted=False)
    last = len(rules.stop) - 1
    if machine.state in LIVE:
        return _begin_stop(machine, now, rules, "down", why, last if at_once else 0)
    if machine.state == "stopping":
        machine = replace(machine, after="down")
        if at_once and machine.stage < last:
            return _enter_stage(machine, now, rules, last)
        return machine, ()
    if machine.state in ("waiting", "preparing", "backing_off"):
        # The process may still appear after this; ``Spawned`` then ends it.
        return _to(machine, "stopped", now, why), ()
    return machine, ()


def _no_restart(
    machine: MachineState, now: float, rules: RestartRules, why: str
) -> tuple[MachineState, tuple[Action, ...]]:
    if machine.state in LIVE:
        return replace(machine, wanted=False), ()
    return _stop(machine, now, rules, False, why) if machine.state not in ENDED else (machine, ())


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
        # End the rest of the tree first: the next generation must not start beside an old worker.
        leaderless = replace(machine, exit=exit_, leader_gone=True, ended_by_us=False)
        stopping = _to(
            leaderless, "stopping", now, f"its main process exited ({exit_.words()})", after="decide"
        )
        return _enter_stage(replace(stopping, last_failure=exit_.words()), now, rules, _tree_stage(rules))
    if machine.state == "stopping" and not machine.leader_gone:
        leaderless = replace(machine, exit=exit_, leader_gone=True)
        stage = _tree_stage(rules)
        if leaderless.stage < stage:
            return _enter_stage(leaderless, now, rules, stage)
        return leaderless, ()
    return machine, ()


def _tree_stage(rules: RestartRules) -> int:
    return next((i for i, s in enumerate(rules.stop) if s.target == "tree"), len(rules.stop) - 1)


def _tree_empty(
    machine: MachineState, now: float, rules: RestartRules, jitter: float, passing: str
) -> tuple[MachineState, tuple[Action, ...]]:
    machine = replace(machine, stuck=False)
    if machine.after == "down" or not machine.wanted:
        return _to(machine, "stopped", now, "stopped"), ()
    if machine.after == "hold":
        return _to(
            machine, "stopped", now, f"waiting for its replacement; last failure: {_failure(machine, rules)}"
        ), ()
    if machine.after == "fail":
        return _to(machine, "failed", now, machine.last_failure), ()
    if machine.after == "restart":
        return _prepare(replace(machine, failures=(), streak=0), now, machine.why)
    done = machine.exit is not None and machine.exit.ok and not machine.ended_by_us
    if done and rules.completes and rules.restart.mode != "always":
        return _to(machine, "stopped", now, "completed (exit 0)"), ()
    return _after_failure(machine, now, rules, jitter, passing or _failure(machine, rules), bool(passing))


def _failure(machine: MachineState, rules: RestartRules) -> str:
    """Why it ended, in words. If the supervisor stopped it, that reason counts, whatever its exit code."""
    exit_ = machine.exit or Exit()
    if exit_.ok and not machine.ended_by_us and not rules.completes:
        return UNASKED_EXIT
    return machine.last_failure or exit_.words()


def _after_failure(
    machine: MachineState, now: float, rules: RestartRules, jitter: float, why: str, passing: bool = False
) -> tuple[MachineState, tuple[Action, ...]]:
    policy = rules.restart
    if not machine.wanted:
        return _to(machine, "stopped", now, "stopped"), ()
    if policy.mode == "never" or (policy.mode == "until_ready" and not passing):
        return _to(machine, "failed", now, why, last_failure=why), ()
    stable = (
        machine.ready_at is not None
        and machine.state == "stopping"
        and now - machine.ready_at >= policy.stable
    )
    streak = 0 if stable else machine.streak
    failures = tuple(t for t in (*machine.failures, now) if now - t <= policy.window)
    if len(failures) > policy.max_failures:
        reason = f"failed {len(failures)} times within {policy.window:.0f} s; last failure: {why}"
        return _to(machine, "gave_up", now, reason, failures=failures, last_failure=why), ()
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
    # The state is stopping: no other state has a deadline.
    if machine.stage + 1 < len(rules.stop):
        return _enter_stage(machine, now, rules, machine.stage + 1)
    # Repeat the last stage, and mark the service as stuck.
    return _enter_stage(replace(machine, stuck=True), now, rules, len(rules.stop) - 1)
