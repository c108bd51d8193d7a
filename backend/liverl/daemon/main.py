"""The backend daemon: ``python -m liverl.daemon.main --run-dir DIR [--resume | --stop WHO [--now]]``.

It takes the run directory's lock, adopts the services of an earlier backend or begins a new attempt, serves the
control socket, and exits when the run has ended. With ``--stop`` it adopts the services only to stop them: nothing is
started or restarted. Its output goes to ``backend.log``; its exit code is that of the run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import gc
import os
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

if __name__ == "__main__":
    gc.disable()  # what is loaded here lives to the end; to look for garbage in it takes a tenth of the start

from liverl.causes.quiet.reasons import QUIET
from liverl.control.main_loop import LoopWatch
from liverl.control.messages import CommandError
from liverl.control.server import ControlServer
from liverl.daemon.launch import StopRequest
from liverl.daemon.next_attempt import present_values
from liverl.daemon.past_the_loop import PastTheLoop
from liverl.daemon.plan_change import PlanChange, apply
from liverl.daemon.reserve import give_room, keep_room
from liverl.daemon.run import Run
from liverl.daemon.smoke import end_of_smoke
from liverl.daemon.takeover import StartProblem, opens_attempt, plan_to_stop, populate, read_plan, read_run
from liverl.daemon.trusted_run import UntrustedRun, require_trusted, trusted_roots
from liverl.diagnose import first_step
from liverl.diagnose.advice import means
from liverl.diagnose.report import files, past_alerts, report, resumed_words
from liverl.diagnose.scaling import when_to_scale
from liverl.exit_codes import ExitCode
from liverl.model import SMOKE, Level, Result
from liverl.observe.hung_stacks import saved_in
from liverl.plan.slurm import within_batch_limits
from liverl.procs import procfs
from liverl.proxy.keys import ensure_keys, ensure_ray_token, ensure_replica_token, ensure_sessions_key
from liverl.rundir import index as runs
from liverl.rundir.journal import complain
from liverl.rundir.layout import HEARTBEAT_S, OpenDirectory, RunDir, own_record, touch_backend, write_backend
from liverl.rundir.ledger import Ledger, LedgerError, artifacts_of, row_of
from liverl.supervise.keeper.client import KeeperError, KeeperGone
from liverl.supervise.recovery.evidence import anything_alive
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.atomic_file import write_atomic
from liverl.util.decode import decode_json
from liverl.util.lock_file import open_lock
from liverl.util.modes import exclude_others, make_directory
from liverl.util.process_limit import too_few
from liverl.util.ticks import until_tick
from liverl.verl.ray_dir import remove_ray_directory
from liverl.version import __version__

DIRECTORY_S = 5.0  # seconds between two checks that the run directory still exists
# Allocations before a look for garbage among the newest objects, and such looks before one among the older ones: a
# backend makes few cycles, and each poll of its replicas thousands of objects.
COLLECT = (10_000, 20, 20)
# For calls that may hang: a start of each service, and the writers and readers of the run's files
THREADS = 32
# Seconds that the end of a run waits for the last scan of its files, for its last state, and any change of the index.
END_LIMIT = 5.0
RESULT_PATIENCE = 60.0  # seconds in which writing the result is retried, for example on a full disk


def take_lock(path: Path) -> int:
    """Take the run directory's lock; returns its descriptor. It is held until this process ends, and not inherited by
    child processes.

    Raises:
        StartProblem: another backend holds it, or the file cannot be opened.
    """
    try:
        fd = open_lock(path, only_locked=True)
    except OSError as error:
        raise StartProblem(
            f"cannot open {path}: {os.strerror(error.errno or 0)}", ExitCode.PREFLIGHT
        ) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StartProblem("another backend is already running for this run", ExitCode.HELD) from None
    return fd


class _UnjoinedThreads(ThreadPoolExecutor):
    """Threads that nobody waits for at the end: some may hang at a storage that does not answer."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=cancel_futures)


async def serve(
    run_dir: Path,
    resume: bool,
    stop: StopRequest | None = None,
    change: PlanChange | None = None,
    watch: LoopWatch | None = None,
) -> int:
    """Begin or adopt an attempt and serve until it has ended; returns the run's exit code. ``resume``: begin another
    attempt if the last one has ended. With ``stop`` nothing is started. ``change``: applied to the attempt that begins.
    ``watch``: of the loop that this runs on.

    Raises:
        StartProblem: the run has ended, or processes of it still run, or its plan cannot be read, or ``change`` is
            given and no attempt begins.
        KeeperError, KeeperGone: the keeper cannot be started.
        OSError: the run directory cannot be written.
    """
    plan, no_plan = plan_to_stop(run_dir) if stop is not None else (read_plan(run_dir / "plan.json"), "")
    record = read_run(run_dir, plan.run, stop is not None)
    history = record.history
    fresh = opens_attempt(run_dir, plan, history, resume)
    attempt = history.attempt + 1 if fresh else history.attempt
    if change is not None:
        if not fresh:
            raise StartProblem(
                "services of this run are still running; its configuration was not changed", ExitCode.USAGE
            )
        plan = apply(run_dir, plan, change, attempt)
    plan = within_batch_limits(plan, os.environ)
    was_running = anything_alive(run_dir, plan.run, history) if stop is not None else True
    make_directory(run_dir / f"attempt_{attempt:03d}" / "logs", inside=run_dir)
    asyncio.get_running_loop().set_default_executor(_UnjoinedThreads(THREADS))
    same_boot = not fresh and history.era == procfs.pid_era()
    began = history.attempt_monotonic if same_boot else None
    run = Run(plan, run_dir, attempt, None if fresh else history.attempt_started_at, began)
    supervisor = run.supervisor
    directory = OpenDirectory(run_dir)
    run.sandboxes.directory = lambda: directory.path
    urgent = PastTheLoop(run.outcome, lambda: directory.path)
    server = ControlServer(run_dir, run, on_clients=supervisor.pace.watched_by, watch=watch, urgent=urgent)
    started = False
    try:
        events = supervisor.records.events
        with supervisor.records.guarded():  # the run goes on without it
            await run.notifier.begin(record.journal, events.seq, events.subscribe)
        await populate(run, record, fresh, partial(_stop_at_once, run, stop, was_running, no_plan))
        await server.start()
        supervisor.records.events.subscribe(server.publish)
        write_backend(run_dir, own_record(server.socket_path or run_dir, __version__))
        await asyncio.to_thread(keep_room, run_dir, attempt)
        await _register(supervisor, run_dir)
        _signals(run)
        supervisor.spawn_task(_heartbeat(directory))
        supervisor.spawn_task(_watch_directory(run, directory))
        supervisor.spawn_task(_serve_clients(server, run, plan.settings.snapshot_interval))
        if fresh and attempt > 1:
            await run.sandboxes.before_attempt()
        if stop is None:
            await run.batch_end.look()  # before a trainer is told when it ends
        run.start()
        started = True
        unkilled = await run.outcome.until_over()
        return await _finish(run, server, unkilled, directory)
    except Exception:
        # Once services may run, the keeper stays: the next backend adopts them.
        if fresh and not started and supervisor.keeper_manager.pid:
            await supervisor.keeper_manager.dismiss()
        raise
    finally:
        for path in {run_dir, directory.path}:
            await _unregister(path)
        if run.source is not None:
            await run.source.close()
        await supervisor.http.close()
        await run.metrics.close()
        run.sampler.close()
        await server.close()
        supervisor.close()
        directory.close()  # last: what the supervisor has started looks at it


def _stop_at_once(run: Run, stop: StopRequest | None, was_running: bool, no_plan: str) -> None:
    if stop is not None:
        nothing_to_stop = "the backend had exited unexpectedly; no process was left to stop"
        stopped = f"stopped by {stop.who} after the backend had exited unexpectedly"
        why = stopped if was_running else nothing_to_stop
        if stop.killed:
            why = f"killed by {stop.who}, as the backend did not respond"
        if no_plan:
            why += f"; {no_plan}: all processes of the run were ended, in no order"
        run.outcome.request_stop(now=stop.now, who=stop.who, why=why)


async def _register(supervisor: Supervisor, run_dir: Path) -> None:
    try:
        await _index(runs.register, run_dir)
    except OSError as error:
        text = f"cannot write the index of live runs ({error}); pass --run to name this run"
        supervisor.say("index", text, "warning")


async def _unregister(run_dir: Path) -> None:
    try:
        await _index(runs.unregister, run_dir)
    except OSError as error:
        complain(f"cannot remove {run_dir} from the index of live runs: {error}")


async def _index(change: Callable[[Path], None], run_dir: Path) -> None:
    """Change the index, which may lie on another storage than the run.

    Raises:
        OSError: it cannot be written, or not within ``END_LIMIT`` seconds.
    """
    try:
        async with asyncio.timeout(END_LIMIT):
            await asyncio.to_thread(change, run_dir)
    except TimeoutError:
        raise TimeoutError(f"its storage did not answer within {END_LIMIT:g} s") from None


def _signals(run: Run) -> None:
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def stop(number: signal.Signals) -> None:
        requests = run.outcome.stop_requests
        if requests.received(number):
            run.outcome.request_stop(
                now=requests.count > 1, who=f"{number.name} to the backend (pid {os.getpid()})"
            )

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    who = f"SIGUSR1 to the backend (pid {os.getpid()})"
    loop.add_signal_handler(signal.SIGUSR1, lambda: run.supervisor.spawn_task(_save(run, who)))


async def _save(run: Run, who: str) -> None:
    with contextlib.suppress(CommandError):  # it is in the events
        await run.batch_end.save_now(who)


async def _heartbeat(directory: OpenDirectory) -> None:
    while True:
        await asyncio.sleep(until_tick(HEARTBEAT_S))  # with the looks of a quiet run: each wake-up costs
        try:
            await asyncio.to_thread(lambda: touch_backend(directory.path))
        except OSError as error:
            complain(f"cannot write the heartbeat: {error}")


async def _watch_directory(run: Run, directory: OpenDirectory) -> None:
    """Stop the run once its directory was removed, since nobody can find it any more. Report its new path when it was
    renamed: the services do not learn of that."""
    supervisor, path = run.supervisor, directory.opened_as
    while True:
        try:
            now = await asyncio.to_thread(lambda: None if directory.removed else directory.path)
            if now is None:
                run.outcome.request_stop(now=False, who="the removal of its run directory")
                return
        except OSError as error:  # a fault of a network file system proves nothing about the directory
            complain(f"cannot check whether the run directory exists: {error}")
            now = path
        if now != path:
            back = now == directory.opened_as
            advice = (
                ""
                if back
                else f"; its services still write to {directory.opened_as}: rename it back, or stop "
                f"the run: liverl-tui stop --run {shlex.quote(str(now))}"
            )
            text = f"the run directory was renamed from {path} to {now}{advice}"
            supervisor.say("directory", text, "info" if back else "error")
            run.state_writer.write_to(now)
            run.notifier.moved_to(now)
            await _unregister(path)
            await _register(supervisor, now)
            path = now
        await supervisor.pace.sleep(supervisor.pace.until_next(DIRECTORY_S))


async def _serve_clients(server: ControlServer, run: Run, interval: float) -> None:
    """Send snapshots to clients every ``interval`` seconds. Files are watched for changes only while there is one."""
    while True:
        await run.supervisor.pace.sleep(run.supervisor.pace.until_next(interval))
        server.publish_snapshot()
        run.sampler.watch_files(bool(server.clients))


async def _finish(run: Run, server: ControlServer, unkilled: list[str], directory: OpenDirectory) -> int:
    """Write the result, end the keeper, and return the exit code. ``unkilled``: processes that could not be killed."""
    supervisor = run.supervisor
    run.state_writer.write_to(directory.path)
    late = "the last steps and trials could not be read within {:g} s; the result may lack some"
    await _in_time(supervisor, run.sampler.look_at_files(last=True), END_LIMIT, late)
    late = "the last state could not be written within {:g} s"
    await _in_time(
        supervisor, run.state_writer.look(), END_LIMIT, late
    )  # report the last symptoms before the end
    result = run.conclude(unkilled, await run.sandboxes.end())
    await _clear_ray(run, result, unkilled)
    level: Level = "info" if result.exit_code in (ExitCode.OK, ExitCode.STOPPED) else "error"
    encoded = msgspec.json.format(msgspec.json.encode(result))
    await asyncio.to_thread(give_room, directory.path, supervisor.attempt)
    writing = _write_result(supervisor, directory, encoded, result.exit_code)
    await _in_time(
        supervisor, writing, RESULT_PATIENCE + END_LIMIT, "the result could not be written within {:g} s"
    )
    notes = await _closing_notes(run, result, directory)
    await _in_time(
        supervisor,
        _write_report(run, result, directory, notes),
        END_LIMIT,
        "report.md could not be written within {:g} s",
    )
    late = "the run could not be entered into the ledger within {:g} s"
    await _in_time(supervisor, _enter_in_ledger(run, result, directory), END_LIMIT, late)
    supervisor.say(
        "run_ended", result.summary, level, exit_code=result.exit_code, steps=result.steps, state=result.state
    )
    server.publish_snapshot()
    telling = run.notifier.finish(soon=supervisor.stop_now)
    slow = "notifications were not finished within {:g} s"
    await _in_time(supervisor, telling, run.notifier.patience + END_LIMIT, slow)
    await _in_time(supervisor, run.state_writer.close(), END_LIMIT, late)
    server.publish_snapshot()
    await supervisor.keeper_manager.dismiss()
    return result.exit_code


async def _in_time(
    supervisor: Supervisor, work: Coroutine[Any, Any, object], seconds: float, late: str
) -> None:
    """Wait for ``work`` at most ``seconds``: a storage that hangs must not keep the run from ending. ``late`` is told
    if it takes longer."""
    with supervisor.records.guarded():
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError:
            supervisor.say("storage", late.format(seconds), "warning")


async def _clear_ray(run: Run, result: Result, unkilled: list[str]) -> None:
    """Remove Ray's directory, unless the run failed, training ended too early or a process could not be killed: then
    name it, for its logs."""
    ray = run.plan.ray
    if ray is None or not ray.temp_dir:
        return
    unfinished = result.state == "stopped" and result.cause is not None and result.cause.id in QUIET
    if result.state == "failed" or unfinished or unkilled:
        if Path(ray.temp_dir).exists():
            run.supervisor.say(
                "ray", f"Ray's logs are kept in {ray.temp_dir}/session_latest/logs", service="ray"
            )
        return
    problem = await asyncio.to_thread(remove_ray_directory, Path(ray.temp_dir))
    if problem is not None:
        run.supervisor.say("ray", f"cannot remove Ray's directory: {problem}", "warning", "ray")


async def _write_result(
    supervisor: Supervisor, directory: OpenDirectory, data: bytes, exit_code: int
) -> None:
    """Write ``result.json`` and the journal's end; retry for ``RESULT_PATIENCE`` seconds, since without its result the
    run would look as if the backend had crashed."""
    give_up = supervisor.now() + RESULT_PATIENCE
    while True:
        try:
            await asyncio.to_thread(lambda: write_atomic(directory.path / "result.json", data))
            await supervisor.records.journal({"k": "end", "exit_code": exit_code})
            return
        except OSError as error:
            supervisor.records.write_failed(
                f"result.json: {error.strerror}; retrying for {RESULT_PATIENCE:g} s"
            )
            if supervisor.now() >= give_up or not directory.path.exists():
                return
        await asyncio.sleep(0.5)


async def _closing_notes(run: Run, result: Result, directory: OpenDirectory) -> list[str]:
    """What is said at the end of a run: of a smoke run what its checkpoint took; of each run of verl's whether it asks
    for more nodes."""
    supervisor, plan, snapshot = run.supervisor, run.plan, run.snapshot()
    metrics = snapshot.metrics.values if snapshot.metrics is not None else {}
    notes = []
    if plan.smoke:
        notes.append(SMOKE)
        try:
            async with asyncio.timeout(END_LIMIT):
                notes.append(await asyncio.to_thread(end_of_smoke, directory.path / "checkpoints", metrics))
        except (OSError, TimeoutError) as error:
            notes.append(f"its checkpoint was not removed: {error or 'the storage does not answer'}")
        supervisor.say("smoke", f"{SMOKE}; {notes[-1]}")
    if plan.topology != "managed" and (result.steps or result.cause is not None):
        totals = [gpu.memory_total for gpu in snapshot.gpus if gpu.memory_total]
        notes.append(
            when_to_scale(
                metrics,
                present_values(RunDir(directory.path)),
                gpu_memory=min(totals) if totals else None,
                out_of_memory=result.cause is not None
                and run.supervisor.end_causes.too_large_for_gpus(result.cause),
                run=means(plan.inert, cpus=plan.cpus),
            )
        )
        if plan.smoke:
            supervisor.say("smoke", notes[-1])
    return notes


async def _write_report(
    run: Run, result: Result, directory: OpenDirectory, notes: Sequence[str] = ()
) -> None:
    """Write the attempt's ``report.md``; a run that has ended is no failure for want of it."""
    snapshot, where = run.snapshot(), directory.path
    path = RunDir(where).report(result.attempt)

    def write() -> None:
        present = {name for name in files(result.attempt) if (where / name).exists()}
        events = run.events_since(0)
        alerts = past_alerts(events, result.started_at)
        hung = saved_in(RunDir(where).stacks(result.attempt))
        resumed = resumed_words(events, result.attempt)
        first = first_step.words(events, result.started_at)
        settings, serves = present_values(RunDir(where)), run.plan.serves
        text = report(
            *(snapshot, result, alerts, present, settings, hung, notes),
            serves=serves,
            resumed=resumed,
            first=first,
        )
        write_atomic(path, text.encode())

    try:
        await asyncio.to_thread(write)  # a storage that hangs must not hold up the end
    except OSError as error:
        run.supervisor.records.write_failed(f"{path.name}: {error.strerror}")


async def _enter_in_ledger(run: Run, result: Result, directory: OpenDirectory) -> None:
    """Add the attempt to the ledger of its run root; a run that has ended is no failure for want of it."""
    snapshot, where = run.snapshot(), directory.path
    if where.parent.name != snapshot.run.partition("/")[0]:
        return  # it lies in no run root: two folders above it may be anything
    ledger = Ledger(artifacts_of(where), trusted=trusted_roots(os.environ))
    row = row_of(snapshot.run, where, result, snapshot.rewards)
    try:
        await asyncio.to_thread(ledger.enter, row)
    except (LedgerError, OSError) as error:
        run.supervisor.say("ledger", f"not entered into the ledger {ledger.path}: {error}", "warning")


def main() -> None:
    """Parse the command line, serve the run, and exit with the run's code. A problem before that is one line on
    stderr."""
    gc.freeze()  # the modules
    gc.set_threshold(*COLLECT)
    gc.enable()
    # Until the run listens to it: there is no trainer yet that could save a checkpoint.
    signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
    parser = argparse.ArgumentParser(prog="liverl.daemon.main")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--stop", metavar="WHO", help="stop the run on behalf of WHO, then exit")
    parser.add_argument("--now", action="store_true", help="with --stop: kill immediately")
    parser.add_argument("--killed", action="store_true", help="with --stop: its backend was killed for it")
    parser.add_argument("--change", action="store_true", help="stdin has a PlanChange, as JSON")
    args = parser.parse_args()
    run_dir = args.run_dir.resolve()
    stop = StopRequest(args.now, args.stop, args.killed) if args.stop is not None else None
    exclude_others()
    try:
        require_trusted(run_dir)
        take_lock(RunDir(run_dir).lock)
        if stop is None:
            ensure_keys(run_dir)
            ensure_ray_token(run_dir)
            ensure_replica_token(run_dir)
            ensure_sessions_key(run_dir)
        change = decode_json(sys.stdin.buffer.read(), type=PlanChange) if args.change else None
        watch = LoopWatch()
        with asyncio.Runner(loop_factory=watch.loop) as runner:
            code = runner.run(serve(run_dir, args.resume, stop, change, watch))
    except StartProblem as problem:
        complain(f"cannot start: {problem}")
        code = problem.code
    except UntrustedRun as problem:
        complain(f"cannot start: {problem}")
        code = problem.exit_code
    except (KeeperError, KeeperGone) as problem:
        complain(f"cannot start: {str(problem) or 'the keeper exited immediately'}")
        code = ExitCode.FAILED
    except (OSError, ValueError) as error:
        complain(f"cannot start: {too_few(error) or error}")
        code = ExitCode.PREFLIGHT
    except RuntimeError as error:
        if (why := too_few(error)) is None:
            raise
        complain(f"cannot start: {why}")
        code = ExitCode.PREFLIGHT
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # sys.exit would wait for a thread that hangs in a read


if __name__ == "__main__":
    main()
