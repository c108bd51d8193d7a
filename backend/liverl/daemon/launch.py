"""Create a run directory and start its backend; called from the command line and the library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from liverl.daemon.plan_change import PlanChange
from liverl.daemon.trusted_run import UntrustedRun, require_trusted
from liverl.exit_codes import ExitCode
from liverl.plan.spec import Plan
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive
from liverl.util.atomic_file import set_aside, write_atomic
from liverl.util.modes import make_directory, new_directory
from liverl.util.process_limit import too_few
from liverl.util.regular_file import open_append, open_binary

if TYPE_CHECKING:
    from liverl.config import LoadedConfig

ROOM_BYTES = 64 << 10  # free space that a backend needs for its first records
JOIN_S = 2.0  # seconds to wait for a backend that holds the run, before another is started: it may be ending
CREATING_S = 10.0  # seconds in which another command completes the directory of a new run
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
    it, for events and the result."""

    now: bool
    who: str


def create_run(loaded: LoadedConfig, plan: Plan, run_dir: Path) -> None:
    """Create the directory of a new run with its configuration, plan and keys.

    Raises:
        RunExists: it exists already.
        LaunchError: it cannot be written, or the configured key is invalid. Apart from parent
            directories, nothing is left on the disk.
    """
    from liverl.config import dump_yaml
    from liverl.observe import config_edits
    from liverl.proxy.keys import InvalidKey, ensure_keys

    try:
        require_trusted(run_dir)
        make_directory(run_dir.parent)
        new_directory(run_dir)
    except UntrustedRun as error:
        raise LaunchError(str(error), error.exit_code) from None
    except FileExistsError:
        raise RunExists(f"{run_dir} already exists", ExitCode.USAGE) from None
    except OSError as error:
        raise LaunchError(
            f"cannot create {run_dir}: {os.strerror(error.errno or 0)}", ExitCode.PREFLIGHT
        ) from None
    try:
        write_atomic(run_dir / "config.yaml", dump_yaml(loaded.config, loaded.kept).encode())
        source = Path(loaded.file) if loaded.file else None
        config_edits.record(
            run_dir, [run_dir / "config.yaml", *([source] if source and source.is_file() else [])]
        )
        ensure_keys(run_dir, loaded.secrets.anthropic_api_key or _placeholder(loaded))
        # The last file: with its plan the run can be started, also by another command.
        write_atomic(run_dir / "plan.json", msgspec.json.format(msgspec.json.encode(plan)))
    except InvalidKey as error:
        shutil.rmtree(run_dir, ignore_errors=True)
        raise LaunchError(f"infrastructure.anthropic_api_key: {error}", ExitCode.USAGE) from None
    except OSError as error:
        shutil.rmtree(run_dir, ignore_errors=True)
        raise LaunchError(
            f"cannot write to {run_dir}: {os.strerror(error.errno or 0)}", ExitCode.PREFLIGHT
        ) from None


def _placeholder(loaded: LoadedConfig) -> str | None:
    key = loaded.config.infrastructure.anthropic_api_key
    return key if key and not key.startswith("file:") else None


def start_backend(
    run_dir: Path,
    *,
    resume: bool = False,
    stop: StopRequest | None = None,
    change: PlanChange | None = None,
    timeout: float = 20.0,
) -> int:
    """Start the daemon in a session of its own and wait until it accepts commands, ``timeout`` seconds at most.
    Returns its pid. ``resume``: begin another attempt if the last one has ended. With ``stop`` it only stops the
    services of an earlier backend. ``change``: of the configuration, for the attempt that begins.

    Raises:
        RunHeld: another backend holds the run.
        LaunchError: another user could have changed the run, or the daemon exited or did not answer in time; the
            message then quotes the last lines of its output.
    """
    run_dir = run_dir.resolve()
    try:
        require_trusted(run_dir)
    except UntrustedRun as error:
        raise LaunchError(str(error), error.exit_code) from None
    _require_room(run_dir)
    earlier = RunDir(run_dir).read_result()
    argv = [sys.executable, "-m", "liverl.daemon.main", "--run-dir", str(run_dir)]
    if resume:
        argv.append("--resume")
    if stop is not None:
        argv += ["--stop", stop.who, *(["--now"] if stop.now else [])]
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
    give_up = time.monotonic() + timeout
    while time.monotonic() < give_up:
        alive = backend_alive(run_dir)
        if isinstance(alive, LiveBackend) and alive.record.pid == process.pid and _answers(run_dir):
            return process.pid
        code = process.poll()
        if code is not None:
            if code == ExitCode.HELD:
                raise RunHeld(_last_words(log_path, start, code), ExitCode.NO_RUN)
            if code == ExitCode.OK or RunDir(run_dir).read_result() not in (None, earlier):
                return process.pid  # everything had ended; it wrote the result and exited
            raise LaunchError(
                _last_words(log_path, start, code), code if code in REFUSALS else ExitCode.FAILED
            )
        time.sleep(0.02)
    raise LaunchError(
        f"timed out after {timeout:g} s waiting for the backend (pid {process.pid}) to respond; see {log_path}",
        ExitCode.FAILED,
    )


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
    run_dir: Path, *, resume: bool = False, change: PlanChange | None = None, timeout: float = 20.0
) -> bool:
    """Start a backend, or wait for the one that another command starts at the same time. Returns whether this call
    has started it. ``resume``, ``change`` and ``timeout`` as for ``start_backend``.

    Raises:
        RunHeld: another backend holds the run, and has not accepted commands within ``timeout`` seconds.
        LaunchError: it exited or did not answer in time; the message quotes the last lines of its output. Or another
            command has started it, so that ``change`` was not applied.
    """
    give_up = time.monotonic() + timeout
    while True:
        try:
            start_backend(run_dir, resume=resume, change=change, timeout=timeout)
            return True
        except RunHeld:
            if time.monotonic() > give_up:
                raise
        again = time.monotonic() + JOIN_S
        while time.monotonic() < again:
            if isinstance(backend_alive(run_dir), LiveBackend) and _answers(run_dir):
                if change is not None:
                    raise LaunchError(
                        "another command has started this run at the same time; the configuration was not changed",
                        ExitCode.USAGE,
                    )
                return False
            time.sleep(0.05)


def created_meanwhile(run_dir: Path) -> bool:
    """Whether another command has created this run, or completes it within ``CREATING_S`` seconds."""
    while not RunDir(run_dir).is_run():
        try:
            age = time.time() - run_dir.stat().st_ctime
        except FileNotFoundError:
            return False
        if not 0 <= age <= CREATING_S:
            return False
        time.sleep(0.05)
    return True


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
