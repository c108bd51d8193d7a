"""Decides when a run ends and why, and builds its result."""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from liverl.causes.inputs.shown import words_of
from liverl.causes.quiet.end import NO_STEP
from liverl.causes.quiet.reasons import JOB_FAILED, QUIET, UNJUDGED
from liverl.daemon.ending import Verdict, summary_of
from liverl.daemon.exit_zero import judged
from liverl.daemon.run_supervisor import RunSupervisor
from liverl.diagnose.advice import fitted_cause, means
from liverl.diagnose.catalogue.agents import with_trials
from liverl.exit_codes import ExitCode, of_signal
from liverl.model import Cause, Result, Rewards, RunState, SandboxesEnd, Symptom
from liverl.rundir.commands import resume_command
from liverl.sandboxes.sweep import command, left_words
from liverl.serving.registry import ReplicaRegistry
from liverl.serving.replica_source import ReplicaSource
from liverl.serving.scaling import Scaling
from liverl.supervise.services.instance import Instance
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.state_machine import RUN_ENDS, STOP_REQUESTED
from liverl.util.signals import StopRequests

if TYPE_CHECKING:
    from liverl.hosts.nodes import Nodes

FULL_BYTES = 64 << 10  # a disk with less free space counts as full: a step's records need more


class RunOutcome:
    """Decides when the run ends. ``source``: of the replicas that verl manages; None if there are none.
    ``started_at``: Unix time at which the attempt began. ``progress``: counts the finished steps anew, and returns
    their number. ``verdict`` is None while the run goes on, ``result`` until ``conclude``."""

    def __init__(
        self,
        supervisor: RunSupervisor,
        replicas: ReplicaRegistry,
        scaling: Scaling,
        source: ReplicaSource | None,
        started_at: float,
        *,
        progress: Callable[[], Awaitable[int]],
    ) -> None:
        self.verdict: Verdict | None = None
        self.result: Result | None = None
        self.stop_requests = StopRequests()
        self._supervisor = supervisor
        self._replicas = replicas
        self._scaling = scaling
        self._source = source
        self._started_at = started_at
        self._progress = progress
        supervisor.end_causes.further = self._further
        self._explaining: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._success: Verdict | None = None
        self._over = asyncio.Event()
        self._stuck_since: float | None = None
        self._was_ready = False
        self.nodes: Nodes | None = None  # of a run on several hosts
        self._ordered: Verdict | None = None  # by a kill past the main loop

    @property
    def state(self) -> RunState:
        """The run's state as clients see it."""
        if self.result is not None:
            return self.result.state
        if self._supervisor.stopping:
            return "stopping"
        return "running" if self._was_ready else "starting"

    @property
    def failure(self) -> Cause | None:
        """Why the run fails; None while it does not, or while logs are read for the cause."""
        verdict = self.verdict
        return verdict.cause if verdict is not None and _failed(verdict) and verdict.unread is None else None

    # --- deciding ---

    def update(self) -> None:
        """Called after every change of a service: give a verdict if one is due, and note when all services are ready
        or have ended."""
        if self.verdict is None and self._ordered is not None:
            self.end(self._ordered, now=True)  # what ends now was killed by that order, and did not fail
        verdict = self._assess() if self.verdict is None else None
        if verdict is not None:
            self.end(verdict)
        if self._supervisor.stopping and self._supervisor.all_ended:
            self._over.set()
        if not self._was_ready and not self._supervisor.stopping and self._ready:
            self._was_ready = True
            self._supervisor.say("run_ready", self._ready_words)

    @property
    def _ready(self) -> bool:
        """Whether every service that the run needs is ready."""
        slots = self._supervisor.slots.values()
        return (
            bool(slots)
            and self._replicas.complete
            and all(_serves(slot) for slot in slots if slot.spec.fatal or slot.spec.ends_run)
        )

    @property
    def _ready_words(self) -> str:
        others = [s for s in self._supervisor.slots.values() if not _serves(s)]
        if not others:
            return "all services are ready"
        late = [s.name for s in others if self._starts(s)]
        absent = [s.name for s in others if s.name not in late]
        words = "all services that the run needs are ready"
        if late:
            verb = "is" if len(late) == 1 else "are"
            words += f"; it does not wait for {', '.join(late)}, which {verb} still starting"
        return words + (f"; it goes on without {', '.join(absent)}" if absent else "")

    def _starts(self, slot: Slot) -> bool:
        """Whether a service that does not serve yet will, as far as is known."""
        environment = slot.spec.environment in self._supervisor.environments.failed
        return slot.state in ("waiting", "preparing", "starting") and not environment

    def _assess(self) -> Verdict | None:
        """Why the run must end now; None if it goes on."""
        supervisor = self._supervisor
        for socket, why in supervisor.unheld.items():
            return Verdict("failed", ExitCode.FAILED, Cause(socket.partition(".")[0], why, supervisor.now()))
        if self._source is not None and (seen := self._source.cause) is not None:
            unread = seen.service if seen.service in supervisor.slots else None
            return Verdict("failed", ExitCode.FAILED, seen, unread, outside=True)
        if self.nodes is not None and (gone := self.nodes.cause) is not None:
            return Verdict("failed", ExitCode.FAILED, gone, outside=True)
        return next(filter(None, map(self._assess_service, supervisor.slots.values())), None)

    def _assess_service(self, slot: Slot) -> Verdict | None:
        machine, name = slot.current.machine, slot.spec.environment
        failed = self._supervisor.environments.failed
        fatal = slot.spec.ends_run or slot.spec.fatal
        if fatal and name in failed and machine.state == "waiting" and machine.wanted:
            # Only a service that waits for its environment fails; one that runs does not need it any more.
            refused = name in self._supervisor.environments.refused
            cause = Cause(f"env:{name}", failed[name], self._supervisor.now())
            return Verdict("failed", ExitCode.PREFLIGHT if refused else ExitCode.FAILED, cause)
        if slot.spec.ends_run and machine.state == "stopped" and machine.wanted:
            return self._of_success(slot.current)
        if not fatal or machine.state not in ("failed", "gave_up") or slot.incoming is not None:
            return None
        if slot.spec.kind == "replica" and slot.name not in self._wanted_replicas():
            return None  # the failure of a replica of `scale +1` is reported by that command
        refusal = self._supervisor.refusals.get(slot.name)
        if refusal is not None:
            return Verdict("failed", ExitCode.PREFLIGHT, refusal)
        if self.nodes is not None and slot.spec.ends_run and self.nodes.may_be_behind(slot.name):
            return None
        number = machine.exit.signal if machine.exit is not None and not machine.refused else None
        cause = self._supervisor.end_causes.stated(slot.current)
        return Verdict("failed", of_signal(number) if number else ExitCode.FAILED, cause, slot.name)

    def _wanted_replicas(self) -> set[str]:
        plan = self._supervisor.plan
        if plan.replica_template is None:
            return {s.name for s in self._replicas.slots()}
        return {self._scaling.name_of(i) for i in range(plan.expected_replicas)}

    def end(self, verdict: Verdict, *, now: bool = False) -> None:
        """Set the verdict, unless there is one, and stop all services, dependents first. ``now``: kill them at
        once."""
        if self.verdict is None:
            self.verdict = verdict
            if verdict.unread is not None:
                self._explain(now)
            elif verdict.state == "failed":
                self._say_failed()
            else:
                self._say_ended(verdict)
        self._journal(now)
        self._supervisor.begin_stop(now=now, why=_why_stopped(self.verdict))

    def _journal(self, now: bool) -> None:
        record = {"k": "stop", "now": now, "verdict": msgspec.to_builtins(self.verdict)}
        self._supervisor.records.journal_soon(record)

    def _say_failed(self) -> None:
        cause = self.verdict.cause if self.verdict is not None else None
        if cause is not None:
            self._supervisor.say("run_failed", f"the run failed: {words_of(cause)}", "error", cause.service)

    def _say_ended(self, verdict: Verdict) -> None:
        """Tell an end with exit code 0."""
        cause = verdict.cause
        if verdict.state == "done":
            ended = "the trainer has ended" if verdict.words == NO_STEP else "training has completed"
            self._supervisor.say("run_done", f"{ended}; stopping the rest")
        elif cause is not None and cause.id in QUIET | {JOB_FAILED}:
            who = "" if cause.text.startswith(("its ", "the ")) else "the trainer "
            not_done = "" if cause.id == UNJUDGED else "training has not completed: "
            text = f"{not_done}{who}{cause.text}. {cause.why.rstrip('.')}"
            fix = self._with_fitting_advice(cause).fix
            self._supervisor.say("run_unfinished", text, "warning", cause.service, fix=fix)

    def _with_fitting_advice(self, cause: Cause) -> Cause:
        plan = self._supervisor.plan
        return fitted_cause(cause, means(plan.inert, cpus=plan.cpus))

    def _explain(self, now: bool) -> None:
        """Read the logs for the cause while the services are being stopped."""

        async def explain() -> None:
            verdict = self.verdict
            assert verdict is not None and verdict.unread is not None
            slot, cause = self._supervisor.slots.get(verdict.unread), verdict.cause
            if slot is not None and verdict.outside and cause is not None:
                cause = await ends.behind(cause, slot.current)
            elif slot is not None:
                cause = await ends.of(slot.current)
            self.verdict = msgspec.structs.replace(verdict, cause=cause, unread=None)
            self._journal(now or self._supervisor.stop_now)
            self._say_failed()

        ends = self._supervisor.end_causes
        self._explaining = self._supervisor.spawn_task(explain())

    def _of_success(self, trainer: Instance) -> Verdict | None:
        """The verdict where the trainer exited with 0; None while its log is read."""
        if self._checking is None:
            self._checking = self._supervisor.spawn_task(self._check(trainer))
        return self._success

    async def _check(self, trainer: Instance) -> None:
        # The run must end in any case; what could not be judged is not called done.
        verdict = Verdict("stopped", ExitCode.STOPPED, _unjudged(trainer, self._supervisor))
        with self._supervisor.records.guarded():
            verdict = await judged(self._supervisor, trainer, self._progress)
        self._success = verdict
        self.update()

    def _further(self, instance: Instance) -> str:
        """What is known of the end of a process besides logs and exits: a full disk, because of which its log may be
        incomplete, and a replica of verl that died some seconds before its trainer."""
        supervisor, found = self._supervisor, []
        if _disk_is_full(supervisor.run_dir):
            found.append(f"{os.strerror(errno.ENOSPC)} in {supervisor.run_dir}")
        if instance.spec.kind == "trainer" and self._source is not None and (dead := self._source.dead()):
            found.append(dead)
        return "; ".join(found)

    def resume_ready(self) -> None:
        """An earlier backend has seen the attempt ready: what is down since then, as a replica that a user stopped,
        makes it no run that starts."""
        self._was_ready = True

    def resume_stop(self, record: Mapping[str, Any]) -> None:
        """Continue the stop that an earlier backend had begun; ``record`` is from the journal."""
        self.stop_requests.requested()
        try:
            self.verdict = msgspec.convert(record.get("verdict"), Verdict)
        except msgspec.ValidationError:
            self.request_stop(now=bool(record.get("now")), who="an earlier backend, whose record is damaged")
            return
        if self.verdict.unread is not None:
            self._explain(bool(record.get("now")))
        self._supervisor.begin_stop(now=bool(record.get("now")), why=_why_stopped(self.verdict))

    def request_stop(self, *, now: bool, who: str, why: str | None = None) -> None:
        """Stop the run on behalf of ``who``. A later request with ``now`` kills what is still being stopped. ``why``:
        cause in the result instead of "stopped by WHO"."""
        self.stop_requests.requested()
        how = "killing all services" if now else "stopping services in dependency order"
        self._supervisor.say("stop", f"stop requested by {who}; {how}")
        self.end(self._stopped(why or f"stopped by {who}"), now=now)

    def _stopped(self, why: str) -> Verdict:
        has_end = any(s.spec.ends_run for s in list(self._supervisor.slots.values()))
        cause = Cause(None, why, self._supervisor.now())
        return Verdict("stopped", ExitCode.STOPPED if has_end else ExitCode.OK, cause)

    def order_stop(self, *, now: bool, who: str) -> str:
        """Journal a stop that the main loop does not take, for the next backend. Called in another thread. With ``now``
        the caller kills the services next. Returns why it could not be written, or ""."""
        why = f"killed by {who}, as the backend did not respond" if now else f"stopped by {who}"
        verdict = self.verdict or self._stopped(why)
        if now:
            self._ordered = verdict
        record = {"k": "stop", "now": now, "verdict": msgspec.to_builtins(verdict)}
        return self._supervisor.records.journal_now(record)

    async def until_over(self) -> list[str]:
        """Wait until every service has ended, or until no more can be ended for ``stuck_after`` seconds. Returns the
        processes that could not be killed, in words."""
        while True:
            try:
                # Only while stopping can processes be stuck, which is checked after each timeout.
                pause = 1.0 if self._supervisor.stopping else self._supervisor.pace.until_next(5.0)
                async with asyncio.timeout(pause):
                    await self._over.wait()
                await self._supervisor.environments.closed()
                if self._explaining is not None:
                    await asyncio.wait([self._explaining])
                strays = await self._supervisor.process_scan.sweep_strays()
                return [f"pid {pid}" for pid in strays]
            except TimeoutError:
                pass
            if self._supervisor.stopping:
                self._supervisor.keeper_manager.continue_stopped()
            stuck = self._supervisor.process_scan.stuck()
            now = self._supervisor.now()
            slots = self._supervisor.slots.values()
            if not self._supervisor.stopping or not stuck or not all(map(self._supervisor.hopeless, slots)):
                self._stuck_since = None  # other services are still being stopped
                self._supervisor.kick()  # time alone can make a dependent hopeless, so that others can be stopped
            elif self._stuck_since is None:
                self._stuck_since = now
            elif now - self._stuck_since > self._supervisor.plan.settings.stuck_after:
                await self._supervisor.process_scan.sweep_strays()
                return stuck

    def conclude(
        self,
        unkilled: list[str],
        steps: int,
        diagnosis: Symptom | None,
        rewards: Rewards,
        total: int | None = None,
        sandboxes: SandboxesEnd | None = None,
    ) -> Result:
        """Build the attempt's result, after ``until_over``. ``unkilled``: processes that could not be killed.
        ``steps``: number of finished training steps. ``diagnosis``: the root problem, if there is one.
        ``rewards``: of the whole run; ``total``: the steps that the training owes, None if nobody says;
        ``sandboxes``: what trials had in Docker, None if nothing."""
        verdict = self.verdict or Verdict("stopped", ExitCode.STOPPED)
        if verdict.cause is not None:
            cause = self._with_fitting_advice(with_trials(verdict.cause, diagnosis))
            verdict = msgspec.structs.replace(verdict, cause=cause)
        steps = max(steps, verdict.step or 0)
        code, summary = verdict.exit_code, summary_of(verdict, diagnosis, rewards, steps, self._was_ready)
        if unkilled:
            code = ExitCode.LEFT_OVER
            summary = f"{verdict.state}, but some processes could not be killed: {', '.join(unkilled)}"
        if stays := _sandboxes_left(sandboxes, self._supervisor.run_dir):
            code, summary = ExitCode.LEFT_OVER, f"{summary.rstrip('.')}; {stays}"
        state = verdict.state if verdict.state in ("done", "failed", "stopped") else "failed"
        self.result = Result(
            state=state,  # type: ignore[arg-type]
            exit_code=code,
            cause=verdict.cause,
            steps=steps,
            started_at=self._started_at,
            ended_at=self._ended_at(),
            attempt=self._supervisor.attempt,
            summary=summary,
            resume=None if verdict.state == "done" else resume_command(self._supervisor.run_dir),
            total_steps=verdict.total_steps or total,
            steps_by=verdict.steps_by,
            made=verdict.made,
            job=verdict.job,
            sandboxes=sandboxes,
        )
        return self.result

    def _ended_at(self) -> float:
        """Unix time of the end by the clock that told the start; after a reboot it may be another one."""
        return max(self._started_at, self._supervisor.now())


def _sandboxes_left(end: SandboxesEnd | None, run_dir: Path) -> str:
    """What a stop has not ended of the trials' sandboxes, and what to do; "" if nothing is left. What nobody could ask
    about is not called gone."""
    if end is None or not (end.left or end.unknown):
        return ""
    unknown = f"it is not known what trials have left: {end.unknown[0]}" if end.unknown else ""
    said = "; ".join(filter(None, (left_words(end), unknown)))
    return f"{said}; to remove it: {command(run_dir)}"


def _failed(verdict: Verdict) -> bool:
    return verdict.state == "failed"


def _serves(slot: Slot) -> bool:
    """Whether a service is ready, or has completed."""
    return slot.state == "ready" or (slot.state == "stopped" and slot.spec.completes)


def _disk_is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < FULL_BYTES
    except OSError:
        return False


def _unjudged(trainer: Instance, supervisor: RunSupervisor) -> Cause:
    return Cause(
        trainer.spec.name,
        "exited with 0, but whether its training is complete could not be determined",
        supervisor.now(),
        why="An internal error occurred while its log was read; backend.log has the details.",
        fix="Compare the end of its log with the steps that you expect: "
        f"liverl-tui doctor {shlex.quote(str(supervisor.run_dir))}",
    )


def _why_stopped(verdict: Verdict) -> str:
    """Why its services are stopped: somebody has asked for it, or the run ends by itself."""
    return STOP_REQUESTED if verdict.state == "stopped" else RUN_ENDS
