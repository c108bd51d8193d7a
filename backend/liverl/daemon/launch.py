"""From outside the backend: making a run directory, starting the daemon."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from liverl.exit_codes import ExitCode
from liverl.plan.spec import Plan
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive
from liverl.util.atomic_file import write_atomic

if TYPE_CHECKING:
    from liverl.config import LoadedConfig

ROOM_BYTES = 64 << 10  # the first records of a backend that takes over
# Codes of the daemon that are those of the command which started it; any other is FAILED.
REFUSALS = (ExitCode.USAGE, ExitCode.PREFLIGHT, ExitCode.NO_RUN)


class LaunchError(Exception):
    """A run cannot be made or its backend cannot be started; ``exit_code`` is the command's."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class RunHeld(LaunchError):
    """Another backend has the run, or is just taking it."""


@dataclass(frozen=True)
class StopRequest:
    """What a backend that adopts only to stop is told. ``now``: kill without grace; ``who``: who asks, for events
    and result."""

    now: bool
    who: str


def create_run(loaded: LoadedConfig, plan: Plan, run_dir: Path) -> None:
    """Make the directory of a new run, with its configuration and plan.

    Raises:
        LaunchError: it exists already, or cannot be written; nothing is left behind.
    """
    from liverl.config import dump_yaml
    from liverl.observe import config_edits
    from liverl.proxy.keys import InvalidKey, ensure_keys

    try:
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        run_dir.mkdir()
    except FileExistsError:
        raise LaunchError(f"{run_dir} already exists", ExitCode.USAGE) from None
    except OSError as error:
        raise LaunchError(
            f"cannot create {run_dir}: {os.strerror(error.errno or 0)}", ExitCode.PREFLIGHT
        ) from None
    try:
        write_atomic(run_dir / "config.yaml", dump_yaml(loaded.config, loaded.kept).encode())
        write_atomic(run_dir / "plan.json", msgspec.json.format(msgspec.json.encode(plan)))
        given = Path(loaded.file) if loaded.file else None
        config_edits.record(
            run_dir, [run_dir / "config.yaml", *([given] if given and given.is_file() else [])]
        )
        ensure_keys(run_dir, loaded.secrets.anthropic_api_key or _placeholder(loaded))
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
    run_dir: Path, *, resume: bool = False, stop: StopRequest | None = None, timeout: float = 20.0
) -> int:
    """Start the daemon in a session of its own and wait until it accepts commands, ``timeout`` seconds at most.
    Returns its pid. With ``stop`` it only stops what an earlier one left, and starts no service.

    Raises:
        RunHeld: another backend has the run.
        LaunchError: it ended or did not answer in time; its last lines are quoted.
    """
    run_dir = run_dir.resolve()
    _require_room(run_dir)
    argv = [sys.executable, "-m", "liverl.daemon.main", "--run-dir", str(run_dir)]
    if resume:
        argv.append("--resume")
    if stop is not None:
        argv += ["--stop", stop.who, *(["--now"] if stop.now else [])]
    env = {**os.environ, "LIVERL_RUN": f"{run_dir.parent.name}/{run_dir.name}/backend/0"}
    env["LIVERL_RUN_DIR"] = str(run_dir)
    log_path = RunDir(run_dir).backend_log
    try:
        log = open(log_path, "ab")  # noqa: SIM115 - closed below, after the child has it
    except OSError as error:
        raise LaunchError(
            f"cannot write {log_path}: {os.strerror(error.errno or 0)}", ExitCode.PREFLIGHT
        ) from None
    start = log.tell()
    with log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=env,
            cwd="/",
            start_new_session=True,
        )
    give_up = time.monotonic() + timeout
    while time.monotonic() < give_up:
        alive = backend_alive(run_dir)
        if isinstance(alive, LiveBackend) and alive.record.pid == process.pid and _answers(run_dir):
            return process.pid
        code = process.poll()
        if code is not None:
            if code == ExitCode.OK or RunDir(run_dir).read_result() is not None:
                return process.pid  # it found everything ended, and concluded
            if code == ExitCode.HELD:
                raise RunHeld(_last_words(log_path, start, code), ExitCode.NO_RUN)
            raise LaunchError(
                _last_words(log_path, start, code), code if code in REFUSALS else ExitCode.FAILED
            )
        time.sleep(0.02)
    raise LaunchError(
        f"timed out after {timeout:g} s waiting for the backend (pid {process.pid}) to respond; see {log_path}",
        ExitCode.FAILED,
    )


def _require_room(run_dir: Path) -> None:
    """On a full disk a backend dies without a word, as its log lies there too.

    Raises:
        LaunchError: not even its records would fit.
    """
    probe = run_dir / f".room.{os.getpid()}"
    try:
        try:
            probe.write_bytes(bytes(ROOM_BYTES))
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
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return "\n".join(lines[-5:]) if lines else f"the backend exited with code {code} and wrote no message"
