"""``up`` and the program without a command: start a run, continue one, or show the live one."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl.procs import procfs
from liverl.rundir.commands import run_words
from liverl.rundir.index import RunInfo, RunLookupError, candidates, describe, elsewhere_message, find_run
from liverl.rundir.layout import DeadBackend, LiveBackend, RemoteBackend, RunDir, backend_alive
from liverl_tui.cli.before_start import confirm, looked_again, opens, preflight
from liverl_tui.cli.check_alerts import check_muted
from liverl_tui.cli.check_interface import check_interface
from liverl_tui.cli.mode import Mode, all_runs, interface, mode, show
from liverl_tui.cli.options import NEWEST, UpOptions, up_options
from liverl_tui.cli.output import echo, echo_exact
from liverl_tui.text.errors import CliError
from liverl_tui.text.words import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from liverl.daemon.plan_change import PlanChange
    from liverl.offline.left import Left, Standing
    from liverl.plan.spec import Plan
    from liverl_tui.cli.plain import StopSignals


@click.command("up")
@up_options
def up_command(**values: Any) -> int:
    """Start a run, or continue one, and show it.

    A live run is shown. If the backend of the run has died, a new backend is started, which adopts the services that
    are still running. A run that has ended, or of which no process is left, needs --resume.
    With --resume, --set, --config and --profile change the keys that they set for the next attempt; the others stay.
    A key that an existing run cannot change is refused: see `liverl-tui config --changes`.
    With --resume-or-start, the run that --name names is started if it does not exist, and resumed if it was stopped or
    has failed; if it is done, nothing is started and the exit code is 0. If its last attempt ended without an error
    and made no step, nothing is started and the exit code is 1. While a Ray job that its script submitted is PENDING
    or RUNNING, nothing is started and that job is followed.
    With --detach and without --run, --name, --resume and --config: if exactly one run has a dead backend and services
    that are still running, that run is adopted; otherwise a new run starts. To start a new run in any case, give
    --name.

    With --like RUN, a new run starts with the configuration of an earlier one; --set changes it, and the
    differences are printed. Names, keys and passwords are not copied. Example:
    liverl-tui up --like liverl/base --name lr2 --set algorithm.learning_rate=1e-6

    You can detach from the interface at any time; the run keeps running. With --no-ui or --plain, or without a
    terminal, this command owns the run: the first SIGTERM or Ctrl-C stops it in dependency order, the second kills
    it immediately. Further SIGTERMs within two seconds of the first request count as the same request. Closing the
    terminal does not stop the run.
    """
    return up(UpOptions.of(values))


def up_or_attach(options: UpOptions) -> int:
    """The program without a command: show the live run, all runs if several are live, take over an orphaned one, list
    the runs of a directory that was named, or start one; the exit code.

    Raises:
        CliError: several runs are live and there is no terminal for their list, or several are orphaned, and the
            options name none.
    """
    # With --readonly nothing is started.
    shows = options.readonly and not options.describes_one and not options.resumes
    if shows or _only_shows(options):
        run = find_run(options.run, options.run_root)
        if not options.readonly:
            _require_trusted(run, options)
        return show(run, _mode(options), readonly=options.readonly)
    if not options.names_a_run and not options.smoke:
        infos = candidates(options.run_root)
        live = [i for i in infos if i.state == "live"]
        if len(live) > 1 and _mode(options) == "interface" and not options.detach:
            return all_runs(options.run_root, readonly=options.readonly)
        if len(live) > 1:
            raise CliError(_several("live here", live, options, "attach"), ExitCode.USAGE)
        if live:
            _require_trusted(RunDir(live[0].run_dir), options)
            return _show(RunDir(live[0].run_dir), options, f"run {live[0].run} is live")
        orphan = _only_orphan(infos, options)
        if orphan is not None:
            return _continue(orphan, options)
        if infos and _only_looks(options):
            return all_runs(options.run_root, told=_nothing_started(options))
    return up(options)


def _only_looks(options: UpOptions) -> bool:
    """Whether ``liverl-tui --run-root DIR`` is to look at the runs of a directory that has some, none of them live: who
    names it may not want a new run among them. A script and whoever says how to start get the start."""
    others = options._replace(run_root=None, trust=())
    return options.run_root is not None and others == UpOptions() and _mode(options) == "interface"


def _nothing_started(options: UpOptions) -> str:
    live = f"no run in {options.run_root} is live on this host"
    return f"{live}, and none was started; to start one: {options.command_line()}"


def _only_shows(options: UpOptions) -> bool:
    """Whether ``liverl-tui --run RUN`` can mean one thing only: to look at a run that has ended, in the interface. As
    text, where a script may wait for the exit code of a start, it is refused, and the message names ``attach``."""
    if options.run is None or options.describes_one or options.resumes or options.detach:
        return False
    if _mode(options) != "interface":
        return False
    return describe(find_run(options.run, options.run_root).path).state in ("done", "failed", "stopped")


def _only_orphan(infos: list[RunInfo], options: UpOptions) -> RunDir | None:
    """The one run whose backend has died, and of which there is something to take over; None if there is none. A run of
    which nothing is left is named: it needs its next attempt.

    Raises:
        CliError: there are several; the message gives the command for each.
    """
    from liverl.offline.left import standing

    orphaned = []
    for info in (i for i in infos if i.state == "orphaned"):
        found = standing(info.run_dir)
        if found.left in ("services", "complete"):
            orphaned.append(info)
        else:
            echo(f"run {info.run} has lost its backend: {found.sentence}", err=True)
    if len(orphaned) > 1:
        raise CliError(_several("without a backend", orphaned, options), ExitCode.USAGE)
    return RunDir(orphaned[0].run_dir) if orphaned else None


def _mode(options: UpOptions) -> Mode:
    return mode(no_ui=options.no_ui, plain=options.plain)


def _several(what: str, infos: list[RunInfo], options: UpOptions, command: str = "up") -> str:
    """``infos`` with the command for each: ``up`` with what was given, or ``attach``."""
    lines = [f"{len(infos)} runs are {what}; choose one:"]
    for info in infos:
        shown = options if command == "up" else UpOptions(readonly=options.readonly, plain=options.plain)
        lines.append(f"  {shown._replace(run=info.run_dir, run_root=None).command_line(command=command)}")
    if command == "up" and options.detach:
        lines.append(f"  {options.command_line('--name', 'NAME')}  (starts a new run)")
    return "\n".join(lines) + (options.to_fill_in if command == "up" else "")


def _hear_early() -> None:
    """Outlive a SIGUSR1 that comes before this command owns a run: a batch system may send it at any time, and what it
    asks for is a checkpoint. By a function, since what is ignored would be so in the processes that are started."""

    def heard(_number: int, _frame: FrameType | None) -> None:
        echo("SIGUSR1: there is no checkpoint to save: this command has started no trainer yet", err=True)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, heard)


def up(options: UpOptions) -> int:
    """Start, continue or show a run; the exit code.

    Raises:
        CliError: the options cannot be combined, or preflight failed.
        RunLookupError: there is no such run, or it is live on another host.
    """
    if _mode(options) != "interface":
        _hear_early()
    if options.resume_or_start:
        from liverl_tui.cli.requeue import check_options

        check_options(options)
    if options.detach and os.environ.get("SLURM_JOB_ID"):
        raise CliError(
            "--detach is refused in a Slurm job: Slurm kills all processes of a job when its script returns. "
            "Without --detach the job lasts as long as the run; to see the run, use srun --overlap or ssh, then: "
            "liverl-tui attach",
            ExitCode.USAGE,
        )
    if options.smoke and (options.resumes or options.run is not None):
        raise CliError(
            "--smoke starts a run of its own; it cannot be combined with --resume, --resume-or-start or --run",
            ExitCode.USAGE,
        )
    if options.like is not None and (
        options.resumes or any(one is not None for one in (options.config, options.profile, options.run))
    ):
        raise CliError(
            "--like starts a new run with the configuration of another one; it cannot be combined with --config, "
            "--profile, --run, --resume or --resume-or-start; to change keys give --set; to continue that run: "
            "liverl-tui up --resume RUN",
            ExitCode.USAGE,
        )
    if options.wait and not options.detach:
        raise CliError("--wait requires --detach", ExitCode.USAGE)
    if options.readonly and _mode(options) != "interface":
        raise CliError(
            "--readonly needs the interface; to print a run as text without controlling it, use: liverl-tui attach",
            ExitCode.USAGE,
        )
    if options.resume_or_start:
        return _from_config(options)
    if options.run is not None:
        return _continue(find_run(options.run, options.run_root), options)
    if options.resume:
        return _continue(find_run(Path(options.resume), options.run_root), options)
    if options.resume == NEWEST:
        from liverl_tui.cli.resume import names_no_run

        if not options.describes_one or names_no_run(options):
            return _continue(_newest(options), options)
    if options.detach and not options.names_a_run and not options.smoke:
        orphan = _only_orphan(candidates(options.run_root), options)
        if orphan is not None:
            return _continue(orphan, options)
    return _from_config(options)


def _require_trusted(run: RunDir, options: UpOptions) -> None:
    from liverl_tui.cli.target import require_trusted

    require_trusted(run, options.trust, options)


def _newest(options: UpOptions) -> RunDir:
    infos = candidates(options.run_root)
    if not infos:
        raise RunLookupError(
            f"no run to resume; start one with: {options._replace(resume=None).command_line()}{options.to_fill_in}"
        )
    return RunDir(infos[0].run_dir)


def _from_config(options: UpOptions, by_key: Mapping[str, str] | None = None) -> int:
    """``by_key``: what was set in the list of the checks; ``options`` have it, too."""
    from liverl_tui.cli.target import load_target

    target = load_target(options)
    run = RunDir(target.run_dir)
    if run.is_run():
        if options.like is not None:
            raise CliError(f"there is a run {run.name} already; give another --name", ExitCode.USAGE)
        return _continue(run, options)
    for line in target.like:
        echo(line, err=True)
    for warning in target.loaded.warnings:
        echo(f"warning: {warning}", err=True)
    if options.smoke:
        from liverl.model import SMOKE

        echo(f"{SMOKE}. Changed for it: {'; '.join(target.smoke) or 'nothing: it is as small'}", err=True)
    _require_trusted(run, options)
    from liverl.daemon.launch import LaunchError, create_run

    plan = target.plan()
    try:
        # Before the question: it may fail.
        checks, values = preflight(plan, target.loaded, options, by_key or {})
        if not values and not opens(checks, options, by_key) and confirm(plan, target.loaded.config, options):
            checks = looked_again(plan, target.loaded.config, checks)
        if not values:
            create_run(target.loaded, plan, target.run_dir, checks)
    except (CliError, LaunchError):
        # Another command may have created the same run since, and its services may hold the ports.
        if not run.is_run():
            raise
        return _continue(run, options)
    if values:
        return _from_config(_with(options, values), {**(by_key or {}), **values})
    return _start(run, options, f"starting run {run.name} in {run.path}")


def _continue(run: RunDir, options: UpOptions) -> int:
    """Show a live run, start a new backend for an orphaned one, or resume one that has ended.

    Raises:
        UntrustedRun: another user could have changed the run.
        BackendSilent: with --detach, the backend's process has been stopped by a signal.
    """
    if not options.readonly:
        _require_trusted(run, options)
    given = bool(options.config or options.sets or options.profile)
    resume = options.resumes
    if given and not resume:
        echo(
            f"--config, --set and --profile are ignored: run {run.name} keeps the configuration it was created "
            f"with: {run.config}",
            err=True,
        )
    from liverl_tui.cli import unfinished

    alive = _backend(run, options)
    result = run.read_result()
    ended = result if options.resume_or_start and isinstance(alive, DeadBackend) else None
    if ended is not None and unfinished.is_done(run, ended):
        return _left(run, options, ExitCode.OK)
    changed = _changed(run, options, alive) if given and resume else None
    if ended is not None:
        code = unfinished.settled(run, ended, changed=changed is not None, follow=not options.detach)
        if code is not None:
            return _left(run, options, code)
    if isinstance(alive, LiveBackend):
        if options.detach and procfs.is_stopped(alive.record.pid):
            from liverl.control.paths import unreachable

            raise unreachable(run.path, alive)
        how = "already live"
        if _stops(run):
            if options.detach:
                raise CliError(_not_yet(run, options), ExitCode.USAGE)
            how = "stopping"
        return _show(
            run, options, f"run {run.name} is {how} (backend pid {alive.record.pid}); attached to it"
        )
    if result is None:
        from liverl.offline.left import standing

        found = standing(run.path)
        left = found.left
        if left == "nothing" and run.read_result() is not None:
            return _continue(run, options)  # it has ended since the result was asked for
        if left in ("never", "held"):
            text = f"starting run {run.name} in {run.path}"
            return _start(run, options, text, resume=resume and left == "held", changed=changed)
        if resume and left in ("nothing", "elsewhere"):  # --resume begins the next attempt
            if left == "elsewhere":
                echo(f"warning: {one_line(found.sentence)}", err=True)
            here = " on this host" if left == "elsewhere" else ""
            text = f"no process of run {run.name} is left{here}; resuming it with its next attempt"
            return _start(
                run, options, text + _from_where(run, _plan(run, changed)), resume=True, changed=changed
            )
        if left in ("nothing", "elsewhere"):  # a new backend would take over an attempt whose trainer is gone
            raise CliError(_not_taken_over(run, options, found), ExitCode.USAGE)
        text = f"the backend of {run.name} has died; starting a new one, which {_DOES[left]}"
        adopted = _adopted(run, left) if options.detach else ""
        return _start(run, options, text, adopted=adopted, changed=changed)
    from liverl.daemon.launch import no_next_attempt

    if why := no_next_attempt(run.path):
        raise CliError(why, ExitCode.USAGE)
    if not resume:
        again = options._replace(run=None, name=None, run_root=None, resume=str(run.path))
        raise CliError(
            f"run {run.name} has ended ({result.state}, exit code {result.exit_code}). "
            f"To look at it: liverl-tui attach {shlex.quote(str(run.path))}. "
            f"To start another run, give --name NAME. To resume it: {again.command_line()}{again.to_fill_in}",
            ExitCode.USAGE,
        )
    plan = _plan(run, changed)
    if options.resume is not None and (why := _nothing_to_train(run, plan)):
        raise CliError(why, ExitCode.USAGE)
    text = f"resuming run {run.name} as attempt {result.attempt + 1}{_from_where(run, plan)}"
    return _start(run, options, text, resume=True, changed=changed)


def _stops(run: RunDir) -> bool:
    """Whether a live run is being stopped; also if it has just ended. False where its backend does not say."""
    from liverl.control import blocking
    from liverl.control.messages import BackendDead, ControlError

    try:
        return blocking.snapshot(run.path).state not in ("starting", "running")
    except BackendDead:
        return run.read_result() is not None
    except ControlError:
        return False


def _not_yet(run: RunDir, options: UpOptions) -> str:
    """Why nothing is begun in a run that is being stopped: who starts it in the background would find it gone."""
    again = options._replace(run=None, name=None, run_root=None, resume=str(run.path))
    return (
        f"run {run.name} is stopping; nothing was started. To wait for its end: liverl-tui wait --for done "
        f"{run_words(run.path)}. To resume it then: {again.command_line()}{again.to_fill_in}"
    )


def _not_taken_over(run: RunDir, options: UpOptions, found: Standing) -> str:
    """Why no backend is started for a run that has lost its own, and what does go on with it."""
    died = f"the backend of run {run.name} has died without a result"
    if found.left == "elsewhere":
        return f"{died}, and {found.sentence}"
    from liverl.daemon.launch import no_next_attempt

    again = options._replace(run=None, name=None, run_root=None, resume=str(run.path))
    resume = f"To continue it with its next attempt: {again.command_line()}{again.to_fill_in}. "
    return (
        f"{died}, and {found.words}; nothing was started. {'' if no_next_attempt(run.path) else resume}"
        f"To write its result only: liverl-tui stop --run {shlex.quote(str(run.path))}"
    )


def _plan(run: RunDir, changed: PlanChange | None) -> Plan | None:
    """The plan of the run's next attempt; None where it cannot be read."""
    from liverl.daemon.launch import plan_of

    return plan_of(run.path) if changed is None else changed.plan


def _from_where(run: RunDir, plan: Plan | None) -> str:
    """``: no checkpoint: training starts at step 1``; "" where nobody but the trainer knows."""
    from liverl.observe.checkpoints import first_step_words

    begins = _begins_at(run, plan)
    return f": {first_step_words(*begins)}" if begins is not None else ""


def _nothing_to_train(run: RunDir, plan: Plan | None) -> str:
    """Why a next attempt would start everything and then train nothing, and what to do; "" if it would train or
    validate, or if nobody but the trainer knows."""
    from liverl.daemon.launch import validates_first
    from liverl.observe.checkpoints import first_step_words, nothing_left

    begins = _begins_at(run, plan)
    if plan is None or begins is None or not nothing_left(*begins) or validates_first(plan):
        return ""
    more = 2 * max(begins[0] or 0, begins[1] or 0)
    return (
        f"{first_step_words(*begins)}, so nothing was started. To train on, ask for more steps: "
        f"--set training.total_steps={more}. To train again from an earlier step: liverl-tui checkpoints back "
        f"{shlex.quote(str(run.path))}"
    )


def _begins_at(run: RunDir, plan: Plan | None) -> tuple[int | None, int | None] | None:
    """The step of the newest checkpoint and how many are wanted, each None if there is none; None where nobody but the
    trainer knows from where it goes on. ``plan``: of the next attempt, None if it cannot be read."""
    from liverl.observe.checkpoints import newest_checkpoint

    if plan is None or not plan.resumes_from:
        return None
    return newest_checkpoint(run.path / plan.resumes_from), plan.total_steps


def _backend(run: RunDir, options: UpOptions) -> LiveBackend | DeadBackend:
    """The run's backend.

    Raises:
        RunLookupError: it is alive on another host.
    """
    if options.resume_or_start:
        from liverl_tui.cli.requeue import state_of_backend

        return state_of_backend(run)
    alive = backend_alive(run.path)
    if isinstance(alive, RemoteBackend):
        raise RunLookupError(elsewhere_message(describe(run.path)))
    return alive


def _left(run: RunDir, options: UpOptions, code: int) -> int:
    """With --detach, print the directory of a run for which nothing was started."""
    if options.detach:
        echo_exact(run.path)
    return code


def _with(options: UpOptions, values: Mapping[str, str]) -> UpOptions:
    return options._replace(sets=(*options.sets, *(f"{key}={value}" for key, value in values.items())))


def _changed(
    run: RunDir,
    options: UpOptions,
    alive: LiveBackend | DeadBackend,
    by_key: Mapping[str, str] | None = None,
) -> PlanChange | None:
    """What the options change in the configuration of an existing run, checked; None if it is nothing. ``by_key``: as
    for ``_from_config``.

    Raises:
        ConfigError, CliError: it cannot be changed so, the present attempt goes on, or a preflight check failed.
    """
    from liverl.offline.left import left_of
    from liverl.preflight import record
    from liverl_tui.cli.resume import changed_run
    from liverl_tui.data.config_change import batch_words

    found = changed_run(run, options)
    if found is None:
        return None
    loaded, change = found
    orphaned = run.read_result() is None and alive.record is not None
    if isinstance(alive, LiveBackend) or (orphaned and left_of(run.path) in ("services", "complete")):
        keys = "; ".join(one_line(one.words) for one in change.changes)
        raise CliError(
            f"run {run.name} is running, and an attempt keeps its configuration; nothing was changed ({keys}). "
            "To change it, stop the run, then give the same command again: "
            f"liverl-tui stop --run {shlex.quote(str(run.path))}",
            ExitCode.USAGE,
        )
    for warning in loaded.warnings:
        echo(f"warning: {warning}", err=True)
    check_interface(loaded)
    check_muted(loaded)
    checks, values = preflight(change.plan, loaded, options, by_key or {})
    if values:
        return _changed(run, _with(options, values), alive, {**(by_key or {}), **values})
    record.write(run, checks)
    if batch := batch_words(change.changes, change.plan.settings, run.read_snapshot(), live=False):
        echo(batch, err=True)
    return change


# What a new backend does with what is left of a run.
_DOES: dict[Left, str] = {
    "services": "adopts the services that are still running",
    "complete": "closes it: its training is complete",
}


def _adopted(run: RunDir, left: Left) -> str:
    """The message for the time when a new backend has adopted the run. ``left``: as it was before that started."""
    if left == "complete":
        return f"adopted run {run.name}, whose backend had died; its training is complete, and it is being closed"
    return f"adopted run {run.name}, whose backend had died; its services are still running"


def _start(
    run: RunDir,
    options: UpOptions,
    text: str,
    *,
    resume: bool = False,
    adopted: str = "",
    changed: PlanChange | None = None,
) -> int:
    """Start a backend and show its run, or return with --detach. ``text`` is printed before the start; ``adopted``,
    with --detach, once the backend is up. If another command starts a backend at the same time, its run is shown."""
    from liverl.daemon.launch import start_or_join

    if changed is not None:
        text = f"{text}, changed: {'; '.join(one_line(one.words) for one in changed.changes)}"
    joined = f"another command has started run {run.name} at the same time; attached to it"
    if options.detach:
        echo(text, err=True)
        if not start_or_join(run.path, resume=resume, change=changed, tell=_tell):
            echo(joined, err=True)
        elif adopted:
            new = options.command_line("--name", "NAME")
            other = "" if options.names_a_run else f" (to start a new run: {new}){options.to_fill_in}"
            echo(adopted + other, err=True)
        return _detached(run, options)
    if _mode(options) == "interface":
        return interface(
            run,
            readonly=options.readonly,
            start=partial(start_or_join, run.path, resume=resume, change=changed),
        )
    from liverl_tui.cli.plain import StopSignals

    from_seq = _last_seq(run)
    with StopSignals() as signals:  # before the backend starts: a signal from here on stops the run too
        stops = partial(getattr, signals, "count")
        if start_or_join(run.path, resume=resume, change=changed, tell=_tell, stops=stops):
            return _follow(run, options, text, from_seq, signals)
    return _show(run, options, joined)


def _tell(text: str) -> None:
    echo(text, err=True)


def _last_seq(run: RunDir) -> int:
    """The number of the run's newest event; 0 without one."""
    from liverl.control.history import last_events

    return next((e.seq for e in last_events(run.path, 1)), 0)


def _follow(run: RunDir, options: UpOptions, text: str, from_seq: int, signals: StopSignals) -> int:
    from liverl_tui.cli.plain import EventLines, Follower

    lines = EventLines(sys.stdout, keep_going=True)
    lines.note(text)
    facts = _mode(options) == "plain"
    return Follower(run, lines, from_seq=from_seq, signals=signals, facts=facts).follow()


def _detached(run: RunDir, options: UpOptions) -> int:
    """Print the run's directory to stdout, for scripts, and wait if ``--wait`` is given."""
    echo_exact(run.path)
    if options.wait is None:
        return ExitCode.OK
    sys.stdout.flush()
    from liverl_tui.cli.wait import wait_for

    return wait_for(run, options.wait, None)


def _show(run: RunDir, options: UpOptions, text: str) -> int:
    """Show a live run.

    Raises:
        BackendOfOther: it is another user's, and --readonly is not given.
    """
    if not options.readonly:
        from liverl.control.paths import of_other, owned_by_other

        alive = backend_alive(run.path)
        if isinstance(alive, LiveBackend) and owned_by_other(alive):
            raise of_other(run.path, alive)
    if options.detach:
        echo(text, err=True)
        return _detached(run, options)
    return show(run, _mode(options), readonly=options.readonly, text=text)
