"""Create a run directory and start its backend; called from the command line and the library."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from liverl.daemon.plan_change import PlanChange
from liverl.daemon.trusted_run import UntrustedRun, require_trusted
from liverl.daemon.waiting import Tell, Waiting
from liverl.exit_codes import ExitCode
from liverl.model import Check, Result
from liverl.plan.moved import read_plan
from liverl.plan.spec import Plan
from liverl.procs.locks import lock_holder
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive
from liverl.util import clocks
from liverl.util.atomic_file import set_aside, write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.modes import make_directory, new_directory
from liverl.util.process_limit import too_few
from liverl.util.regular_file import open_append, open_binary, read_regular
from liverl.util.remove_tree import remove_tree

if TYPE_CHECKING:
    from liverl.config import LoadedConfig

ROOM_BYTES = 64 << 10  # free space that a backend needs for its first records
# Seconds between two attempts to start a backend while another one holds the run: it may be ending
JOIN_S = 2.0
UNSEEN_S = 20.0  # seconds after which it is an error that no process of this host can be seen to hold it
# Exit codes of the daemon that the command which started it returns as they are; any other becomes FAILED.
REFUSALS = (ExitCode.USAGE, ExitCode.PREFLIGHT, ExitCode.NO_RUN)


class LaunchError(Exception):
    """A run cannot be created or its backend cannot be started. ``exit_code``: of the command."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class RunHeld(LaunchError):
    """Another backend holds the run's lock."""


class RunExists(LaunchError):
    """The directory of a new run exists already."""


@dataclass(frozen=True)
class StopRequest:
    """Request to a backend that adopts services only to stop them. ``now``: kill without grace; ``who``: who requested
    it, for events and the result; ``killed``: the earlier backend was killed, as it did not respond."""

    now: bool
    who: str
    killed: bool = False

    def options(self) -> list[str]:
        """The options of ``liverl.daemon.main`` that say so. A name may begin with a dash."""
        flags = {"--now": self.now, "--killed": self.killed}
        return ["--stop=" + self.who, *(flag for flag, given in flags.items() if given)]


def create_run(
    loaded: LoadedConfig, plan: Plan, run_dir: Path, checks: Sequence[Check] | None = None
) -> None:
    """Create the directory of a new run with its configuration, plan and keys: whole, in one step, so that nobody finds
    it without its plan. ``checks``: what preflight has found; None: nothing was checked.

    Raises:
        RunExists: it exists already.
        LaunchError: it cannot be written, or the configured key is invalid. Apart from parent
            directories, nothing is left on the disk.
    """
    from liverl.config import dump_yaml
    from liverl.observe import config_edits
    from liverl.preflight.record import record
    from liverl.proxy.keys import InvalidKey, ensure_keys

    new = RunDir(run_dir).unfinished(os.getpid(), threading.get_native_id())
    try:
        require_trusted(run_dir)
        make_directory(run_dir.parent)
        if os.path.lexists(run_dir):
            raise RunExists(f"{run_dir} already exists", ExitCode.USAGE)
        new_directory(new)
    except UntrustedRun as error:
        raise LaunchError(str(error), error.exit_code) from None
    except OSError as error:
        raise LaunchError(
            f"cannot create {run_dir}: {os.strerror(error.errno or 0)}", ExitCode.PREFLIGHT
        ) from None
    try:
        own = dump_yaml(loaded.config, loaded.kept).encode()
        write_atomic(new / "config.yaml", own)
        config_edits.expect(new, run_dir / "config.yaml", own)
        source = Path(loaded.file) if loaded.file else None
        config_edits.record(new, [source] if source and source.is_file() else [])
        ensure_keys(new, loaded.secrets.anthropic_api_key or _placeholder(loaded))
        write_atomic(new / "plan.json", msgspec.json.format(msgspec.json.encode(plan)))
        if checks is not None:
            write_atomic(RunDir(new).preflight, record(checks))
        os.rename(new, run_dir)
    except InvalidKey as error:
        raise LaunchError(f"infrastructure.anthropic_api_key: {error}", ExitCode.USAGE) from None
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise RunExists(f"{run_dir} already exists", ExitCode.USAGE) from None
        raise LaunchError(
            f"cannot write to {run_dir}: {os.strerror(error.errno or 0)}", ExitCode.PREFLIGHT
        ) from None
    finally:
        remove_tree(new)


def _placeholder(loaded: LoadedConfig) -> str | None:
    key = loaded.config.infrastructure.anthropic_api_key
    return key if key and not key.startswith("file:") else None


def plan_of(run_dir: Path) -> Plan | None:
    """The plan of a run; None where it cannot be read."""
    try:
        return read_plan(read_regular(RunDir(run_dir).plan))
    except (OSError, *BAD_JSON):
        return None


def validates_first(plan: Plan) -> bool:
    """Whether verl validates before its first step: then an attempt has something to do without a step to train."""
    words = (word.lower() for spec in plan.services for word in spec.argv)
    return any("val_before_train=true" in word for word in words)


def no_next_attempt(run_dir: Path) -> str:
    """Why a run that has ended gets no other attempt, in words; "" if it may."""
    plan = plan_of(run_dir)
    if plan is None or not plan.smoke:  # of a plan that cannot be read the backend says what is wrong with it
        return ""
    return (
        f"{plan.run} is a smoke run: small batches, two steps, its checkpoint removed; it is not resumed. The real run "
        "is another one: give `liverl-tui up` the same options without --smoke"
    )


def start_backend(
    run_dir: Path,
    *,
    resume: bool = False,
    stop: StopRequest | None = None,
    change: PlanChange | None = None,
    tell: Tell = lambda _: None,
    stops: Callable[[], int] = lambda: 0,
) -> int:
    """Start the daemon in a session of its own and wait until it accepts commands, as long as its process lives.
    Returns its pid. ``resume``: begin another attempt if the last one has ended. With ``stop`` it only stops the
    services of an earlier backend. ``change``: of the configuration, for the attempt that begins. ``tell``: is told
    what the wait is for, after some seconds; ``stops``: how often the user has asked meanwhile to end it: the process
    gets SIGTERM, then SIGKILL, as it does on KeyboardInterrupt.

    Raises:
        RunHeld: another backend holds the run.
        LaunchError: another user could have changed the run, or the daemon exited; the message then quotes the last
            lines of its output.
    """
    run_dir = run_dir.resolve()
    try:
        require_trusted(run_dir)
    except UntrustedRun as error:
        raise LaunchError(str(error), error.exit_code) from None
    refusal = no_next_attempt(run_dir) if resume else ""
    if refusal:
        raise LaunchError(refusal, ExitCode.USAGE)
    _require_room(run_dir)
    earlier = RunDir(run_dir).read_result()
    argv = [sys.executable, "-m", "liverl.daemon.main", "--run-dir", str(run_dir)]
    if resume:
        argv.append("--resume")
    if stop is not None:
        argv += stop.options()
    if change is not None:
        argv.append("--change")
    env = {**os.environ, "LIVERL_RUN": f"{run_dir.parent.name}/{run_dir.name}/backend/0"}
    env["LIVERL_RUN_DIR"] = str(run_dir)
    log_path = RunDir(run_dir).backend_log
    with _open_log(log_path) as log, _input(change) as stdin:
        start = log.tell()
        try:
            process = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=log,
                stderr=log,
                env=env,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            why = too_few(error) or error.strerror
            raise LaunchError(f"cannot start the backend: {why}", ExitCode.PREFLIGHT) from None
    waiting, asked = Waiting(tell), 0
    try:
        while True:
            alive = backend_alive(run_dir)
            if isinstance(alive, LiveBackend) and alive.record.pid == process.pid and _answers(run_dir):
                return process.pid
            code = process.poll()
            if code is not None:
                return _ended_early(run_dir, process, start, asked, earlier)
            if (number := stops()) > asked:
                asked = number
                _end(process, asked, tell)
            waiting.look("the backend", process.pid, f"it is still starting; its log: {log_path}")
            time.sleep(0.02)
    except KeyboardInterrupt:
        _end(process, 1, tell)
        raise


def _end(process: subprocess.Popen[bytes], asked: int, tell: Tell) -> None:
    """End a backend that is still starting, because its caller was asked to stop ``asked`` times."""
    number = signal.SIGTERM if asked == 1 else signal.SIGKILL
    tell(f"stopping: sent {number.name} to the backend (pid {process.pid}), which is still starting")
    process.send_signal(number)


def _ended_early(
    run_dir: Path, process: subprocess.Popen[bytes], start: int, asked: int, earlier: Result | None
) -> int:
    """The pid of a backend that has exited before it answered, where all is well. ``earlier``: the result that was
    there before it.

    Raises:
        RunHeld, LaunchError: see ``start_backend``.
    """
    code, log_path = process.returncode, RunDir(run_dir).backend_log
    if code == ExitCode.HELD:
        raise RunHeld(_last_words(log_path, start, code), ExitCode.NO_RUN)
    if code == ExitCode.OK or RunDir(run_dir).read_result() not in (None, earlier):
        return process.pid  # everything had ended; it wrote the result and exited
    if asked and code < 0:
        raise LaunchError(
            f"the start was cancelled: {signal.Signals(-code).name} has ended the backend (pid {process.pid}) before "
            f"it accepted commands. If it had started services: liverl-tui stop --run {shlex.quote(str(run_dir))}",
            ExitCode.STOPPED,
        )
    raise LaunchError(_last_words(log_path, start, code), code if code in REFUSALS else ExitCode.FAILED)


def _input(change: PlanChange | None) -> AbstractContextManager[BinaryIO | int]:
    """A file in memory with ``change``, for the stdin of a backend: nobody else can change it on the way."""
    if change is None:
        return nullcontext(subprocess.DEVNULL)
    file = os.fdopen(os.memfd_create("plan-change"), "w+b")
    file.write(msgspec.json.encode(change))
    file.seek(0)
    return file


def _open_log(path: Path) -> BinaryIO:
    """Open a backend's log for appending. What is no regular file there is renamed, since nobody could stop a run that
    no backend can be started for.

    Raises:
        LaunchError: it cannot be written.
    """
    try:
        replaced = set_aside(path)
        log = os.fdopen(open_append(path), "ab")
        if replaced is not None:
            what, aside = replaced
            log.write(f"{path} was {what}; it was renamed to {aside}, and a new file was begun\n".encode())
            log.flush()
    except OSError as error:
        raise LaunchError(
            f"cannot write {path}: {os.strerror(error.errno or 0)}", ExitCode.PREFLIGHT
        ) from None
    return log


def start_or_join(
    run_dir: Path,
    *,
    resume: bool = False,
    change: PlanChange | None = None,
    tell: Tell = lambda _: None,
    stops: Callable[[], int] = lambda: 0,
) -> bool:
    """Start a backend, or wait for the one that another command starts at the same time, as long as its process lives.
    Returns whether this call has started it; if not, the run lives, or has ended meanwhile. The arguments are those of
    ``start_backend``; a stop that is asked for while the backend is another command's ends only this call.

    Raises:
        RunHeld: another backend holds the run, and it is no process that can be seen on this host, for ``UNSEEN_S``
            seconds; or a stop was asked for.
        LaunchError: it exited; the message quotes the last lines of its output. Or another command has started it, so
            that ``change`` was not applied.
    """
    waiting, seen, before = Waiting(tell), clocks.ran(), RunDir(run_dir).read_result()
    while True:
        try:
            start_backend(run_dir, resume=resume, change=change, tell=tell, stops=stops)
            return True
        except RunHeld:
            if clocks.ran() - seen > UNSEEN_S or stops():
                raise
        except LaunchError:
            if change is None and RunDir(run_dir).read_result() not in (None, before):
                return False
            raise
        again = clocks.ran() + JOIN_S
        while True:
            if isinstance(backend_alive(run_dir), LiveBackend) and _answers(run_dir):
                if change is not None:
                    raise LaunchError(
                        "another command has started this run at the same time; the configuration was not changed",
                        ExitCode.USAGE,
                    )
                return False
            holder = lock_holder(RunDir(run_dir).lock)
            if holder is not None:
                seen = clocks.ran()
                waiting.look("another backend of this run", holder, "it is starting or ending")
            if stops() or (holder is None and clocks.ran() > again):
                break
            time.sleep(0.05)


def _require_room(run_dir: Path) -> None:
    """Check that ``ROOM_BYTES`` can be written: on a full disk a backend would exit without a message, since its log
    is there too.

    Raises:
        LaunchError: they cannot be written.
    """
    probe = run_dir / f".room.{os.getpid()}"
    try:
        try:
            write_atomic(probe, bytes(ROOM_BYTES), 0o600, sync=False)
        finally:
            if probe.exists():
                probe.unlink()
    except OSError as error:
        raise LaunchError(
            f"cannot write to {run_dir}: {os.strerror(error.errno or 0)}", ExitCode.PREFLIGHT
        ) from None


def _answers(run_dir: Path) -> bool:
    from liverl.control.messages import ControlError
    from liverl.control.paths import connect_control

    try:
        connect_control(run_dir, 2.0).close()
    except (OSError, ControlError):
        return False
    return True


def _last_words(log: Path, start: int, code: int) -> str:
    with open_binary(log) as file:
        file.seek(start)
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return "\n".join(lines[-5:]) if lines else f"the backend exited with code {code} and wrote no message"
