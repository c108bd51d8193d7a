"""What a backend finds when it starts, plan and history of a run, and how it begins or takes over its services."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path

from liverl.control.history import was_ready
from liverl.daemon.run import Run
from liverl.daemon.run_supervisor import RunSupervisor
from liverl.daemon.script_event import variables_told
from liverl.exit_codes import ExitCode
from liverl.observe.checkpoints import first_step_words, newest_checkpoint
from liverl.plan import moved
from liverl.plan.spec import Plan, Settings
from liverl.procs import procfs
from liverl.rundir.journal import JournalContent
from liverl.rundir.layout import RunDir
from liverl.supervise.recovery import evidence
from liverl.supervise.recovery.adoption import adopt_listeners, adopt_service, journal_anew, unplanned
from liverl.supervise.recovery.evidence import anything_alive
from liverl.supervise.recovery.replay import RunHistory, Sighting
from liverl.supervise.services.state_machine import LIVE
from liverl.util.modes import make_directory
from liverl.util.regular_file import read_regular
from liverl.util.remove_tree import remove_tree

SWEEP_S = 30.0  # seconds for a sweep of a run without a plan; the default of sandboxes.stop_timeout


class StartProblem(Exception):
    """Why the backend cannot take over or begin the run. ``code``: exit code of the process."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def read_plan(path: Path) -> Plan:
    """Read ``plan.json``.

    Raises:
        StartProblem: it does not exist, or is of an incompatible version.
    """
    try:
        return moved.read_plan(read_regular(path))
    except FileNotFoundError:
        raise StartProblem(
            f"{path.parent} is not a run directory: plan.json not found", ExitCode.NO_RUN
        ) from None
    except (ValueError, RecursionError) as error:
        raise StartProblem(
            f"cannot read {path}: {error}; to end the run's processes, run: "
            f"liverl-tui stop --run {shlex.quote(str(path.parent))}",
            ExitCode.USAGE,
        ) from None


def plan_to_stop(run_dir: Path) -> tuple[Plan, str]:
    """The run's plan, for a backend that only stops the run: empty if ``plan.json`` cannot be read. Also returns why it
    cannot; ``""`` if it can."""
    path = run_dir / "plan.json"
    try:
        return read_plan(path), ""
    except StartProblem:
        why = f"{path} is missing or holds no plan"
    except OSError as error:
        why = f"cannot read {path}: {error.strerror}"
    # What trials had in Docker is found by the run's ledger alone.
    settings = Settings(sweep_sandboxes=SWEEP_S)
    return Plan(RunDir(run_dir).name, str(run_dir), "managed", (), (), None, 0, settings=settings), why


def read_run(run_dir: Path, run: str, stopping: bool) -> evidence.RunRecord:
    """What is known of the run. A stop needs no journal.

    Raises:
        OSError: the journal cannot be read, and the run is not only stopped.
    """
    try:
        return evidence.read_run(run_dir, run)
    except OSError as error:
        if not stopping:
            raise
        return evidence.RunRecord(RunHistory(attempt=1), JournalContent(problem=str(error)))


def _has_ended(run_dir: Path, plan: Plan, history: RunHistory) -> bool:
    """Whether the newest attempt has ended. ``result.json`` is written before the journal's end, and removed before an
    attempt begins: without it the end of a run that lives is of another attempt, and with it a run of which the journal
    knows no stop has ended all the same."""
    result = RunDir(run_dir).read_result()
    if history.ended:
        return result is not None or not anything_alive(run_dir, plan.run, history)
    return result is not None and history.stop is None


def opens_attempt(run_dir: Path, plan: Plan, history: RunHistory, resume: bool) -> bool:
    """Whether the backend begins a new attempt instead of taking over the newest one.

    Raises:
        StartProblem: the run has ended and ``resume`` is false, or processes of the previous attempt still run.
    """
    if history.attempt == 0:
        return True
    if _has_ended(run_dir, plan, history):
        if not resume:
            raise StartProblem(
                "this run has ended; to start another attempt, run: liverl-tui up --resume", ExitCode.USAGE
            )
        if anything_alive(run_dir, plan.run, history):
            raise StartProblem(
                "processes of the previous attempt are still running; stop them before you start another attempt",
                ExitCode.LEFT_OVER,
            )
        return True
    return resume and not anything_alive(run_dir, plan.run, history)


async def populate(run: Run, record: evidence.RunRecord, fresh: bool, then: Callable[[], None]) -> None:
    """Add a slot for each service: from the plan for a new attempt; for an adopted one from the journal and from what
    runs. ``then`` is called as soon as all slots exist, before any event can change them."""
    history = record.history
    supervisor, plan, replicas = run.supervisor, run.plan, run.replicas
    keeper_was_running, children = await supervisor.keeper_manager.connect()
    await run.sampler.look_at_gpus_now()
    used = history.highest
    supervisor.used_generations = dict(used)
    if fresh:
        supervisor.run_dir.joinpath("result.json").unlink(missing_ok=True)
        for stale in ("trainer.json", "replicas.json"):
            supervisor.run_dir.joinpath(stale).unlink(missing_ok=True)
        for why in remove_tree(supervisor.run_dir / "exits"):
            raise why  # what is left would be read as how services of this attempt ended
        # Network storage may carry out a request twice, so that its second answer is "it exists".
        make_directory(supervisor.run_dir / "exits")
        for child in children:
            await supervisor.keeper_manager.request("forget", token=child["token"])
        began = {"era": procfs.pid_era(), "monotonic": time.monotonic()}
        await supervisor.records.journal({"k": "attempt", "n": supervisor.attempt, **began})
        again = f" (attempt {supervisor.attempt})" if supervisor.attempt > 1 else ""
        supervisor.say(
            "run_started",
            f"run {plan.run}{again} started in {supervisor.run_dir}{variables_told(plan)}",
            attempt=supervisor.attempt,
        )
        if supervisor.attempt > 1 and plan.resumes_from:
            step = newest_checkpoint(supervisor.run_dir / plan.resumes_from)
            run.sampler.begins_after = step or 0
            supervisor.say(
                "resumes", first_step_words(step, plan.total_steps), step=step, attempt=supervisor.attempt
            )
        for change in plan.changes:
            if change.attempt == supervisor.attempt:
                supervisor.say("config_changed", f"configuration changed: {change.words} ({change.where})")
        for index in run.scaling.indices if plan.replica_template else ():
            run.scaling.ensure_slot(index)
        for spec in plan.services:
            supervisor.add_slot(spec, highest=used.get(spec.name, 0))
        then()
        return
    if not keeper_was_running:
        await supervisor.keeper_manager.forks_settled()
    supervisor.say("adopting", f"backend (pid {os.getpid()}) resumes control of attempt {supervisor.attempt}")
    unknown = evidence.rebuild(record, supervisor.run_dir, plan.run, children)
    damage = _tell_damage(supervisor, record, unknown)
    history.replicas = _replicas(plan, history, unknown)
    if history.replicas is not None:
        run.scaling.restore(history.replicas, history.leaving)
    specs = [*(run.scaling.specs() if plan.replica_template else ()), *plan.services]
    planned = {spec.name for spec in specs}
    specs += [unplanned(name) for name in sorted({s.service for s in unknown} - planned)]
    for spec in specs:
        slot = adopt_service(supervisor, spec, history)
        process = slot.current.process
        if process is not None and process.gpus and slot.state in (*LIVE, "stopping"):
            supervisor.ledger.restore({**_held(supervisor), spec.name: process.gpus})
    replicas.restore_listing()
    if damage:
        journal_anew(supervisor, history)
    if await asyncio.to_thread(was_ready, supervisor.run_dir):
        run.outcome.resume_ready()
    if history.stop is not None:
        run.outcome.resume_stop(history.stop)
    then()
    await adopt_listeners(supervisor, plan.services, keeper_was_running, history)


def _tell_damage(supervisor: RunSupervisor, record: evidence.RunRecord, unknown: list[Sighting]) -> bool:
    """Report damage of the journal, and the processes that it does not know. Returns whether there is any."""
    path = supervisor.run_dir / "journal.jsonl"
    damage = record.damage(path)
    if damage is None and not record.journal.records:
        damage = f"{path} is missing or empty"
    if damage is None and not record.history.rebuilt:
        return False
    found = ", ".join(f"{s.service}.{s.generation} (pid {s.pid})" for s in unknown)
    lost = (
        f"; processes that it does not know, adopted from the keeper or by their tags: {found}"
        if found
        else ""
    )
    supervisor.records.warn("journal", (damage or f"{path} lacks the newest attempt") + lost)
    return True


def _replicas(plan: Plan, history: RunHistory, unknown: list[Sighting]) -> tuple[int, ...] | None:
    """The wanted replicas: also those that live and that no record names, as they were added by a lost one."""
    if plan.replica_template is None:
        return history.replicas
    before, _, after = plan.replica_template.name.partition("{index}")
    names = {s.service for s in unknown}
    indices = {
        int(index)
        for name in names
        if name.startswith(before)
        and name.endswith(after)
        and (index := name[len(before) : len(name) - len(after)]).isdecimal()
    }
    wanted = history.replicas if history.replicas is not None else tuple(range(plan.expected_replicas))
    added = indices - {*wanted, *history.leaving}
    return tuple(sorted({*wanted, *added})) if added else history.replicas


def _held(supervisor: RunSupervisor) -> dict[str, tuple[str, ...]]:
    names = set(supervisor.ledger.holders.values())
    return {name: supervisor.ledger.held_by(name) for name in names}
