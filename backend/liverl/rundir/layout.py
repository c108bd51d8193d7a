"""One run directory: where everything of a run lies, and whether its backend lives.

A run lives when its backend does. ``backend.json`` names that process by pid, start tick, boot id and host;
its modification time is a heartbeat, which decides where the pid cannot be asked (another host).
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from liverl.procs import procfs
from liverl.util import atomic_file

if TYPE_CHECKING:
    from liverl.model import Result, Snapshot

HEARTBEAT_S = 30.0  # the backend touches backend.json this often
HEARTBEAT_DEAD_S = 180.0  # six missed beats; network file systems show a time up to 60 s late

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ATTEMPT = re.compile(r"attempt_(\d{3,})")


def valid_name(name: str) -> bool:
    """Whether ``name`` can be a project or a run: one path component of letters, digits, ``.``, ``_`` and
    ``-``, at most 128 long, that begins with a letter or a digit."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class RunDir:
    """The layout of one run directory. Nothing here creates a file."""

    path: Path

    @property
    def name(self) -> str:
        """``project/name``, from the path."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def members(self) -> Path:
        """The process trees as they were seen last."""
        return self.path / "members.json"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def snapshot(self) -> Path:
        """The last known state, written by the backend every few seconds and at the end."""
        return self.path / "snapshot.json"

    @property
    def backend(self) -> Path:
        return self.path / "backend.json"

    @property
    def backend_log(self) -> Path:
        return self.path / "backend.log"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def keeper(self) -> Path:
        return self.path / "keeper.json"

    @property
    def socket(self) -> Path:
        """The usual place of the control socket; the true one is told in ``backend.json``."""
        return self.path / "control.sock"

    @property
    def secrets(self) -> Path:
        return self.path / "secrets"

    @property
    def proxy(self) -> Path:
        return self.path / "proxy"

    @property
    def replicas(self) -> Path:
        return self.path / "replicas.json"

    @property
    def trainer(self) -> Path:
        return self.path / "trainer.json"

    @property
    def trials(self) -> Path:
        return self.path / "trials"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def attempt(self, number: int) -> Path:
        return self.path / f"attempt_{number:03d}"

    def logs(self, attempt: int) -> Path:
        return self.attempt(attempt) / "logs"

    def attempts(self) -> list[int]:
        """The numbers of the attempts that have a directory, oldest first."""
        try:
            names = os.listdir(self.path)
        except OSError:
            return []
        return sorted(int(m[1]) for n in names if (m := _ATTEMPT.fullmatch(n)))

    def is_run(self) -> bool:
        """Whether this looks like a run directory at all."""
        return any(p.exists() for p in (self.plan, self.backend, self.events, self.result))

    def read_result(self) -> Result | None:
        """``result.json``, or None when there is none or it cannot be read."""
        import msgspec

        from liverl.model import Result

        try:
            return msgspec.json.decode(self.result.read_bytes(), type=Result)
        except (OSError, msgspec.DecodeError):
            return None

    def read_snapshot(self) -> Snapshot | None:
        """``snapshot.json``, or None when there is none or it cannot be read (another version wrote it)."""
        import msgspec

        from liverl.snapshot_json import decode_snapshot

        try:
            return decode_snapshot(self.snapshot.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None


# --- the backend's record and its liveness --------------------------------------------------------------


@dataclass(frozen=True)
class BackendRecord:
    """``backend.json``. ``tick`` is field 22 of /proc/PID/stat, ``started_at`` Unix seconds."""

    pid: int
    tick: int
    host: str
    boot_id: str
    socket: str
    started_at: float
    version: str


@dataclass(frozen=True)
class LiveBackend:
    record: BackendRecord


@dataclass(frozen=True)
class DeadBackend:
    record: BackendRecord | None  # None: there never was a backend, or its record cannot be read


@dataclass(frozen=True)
class RemoteBackend:
    host: str
    record: BackendRecord


def hostname() -> str:
    return os.uname().nodename


def write_atomic(path: Path, data: dict[str, Any]) -> None:
    """Replace a small JSON file in one step: a reader sees the old or the new one, never a half.

    Raises:
        OSError: the directory is not writable or full.
    """
    atomic_file.write_atomic(path, json.dumps(data).encode(), sync=False)


def own_record(socket: Path, version: str) -> BackendRecord:
    """The record of the calling process."""
    pid = os.getpid()
    tick = procfs.start_tick(pid)
    return BackendRecord(
        pid, tick or 0, hostname(), procfs.boot_id(), str(socket), started_at=time.time(), version=version
    )


def write_backend(run_dir: Path, record: BackendRecord) -> None:
    """Write ``backend.json``.

    Raises:
        OSError: as for any file.
    """
    write_atomic(RunDir(run_dir).backend, record.__dict__)


def touch_backend(run_dir: Path) -> None:
    """The heartbeat: to be called every ``HEARTBEAT_S``.

    Raises:
        OSError: the record has gone or cannot be written.
    """
    os.utime(RunDir(run_dir).backend)


def read_backend(run_dir: Path) -> BackendRecord | None:
    try:
        data = json.loads(RunDir(run_dir).backend.read_bytes())
        return BackendRecord(
            pid=int(data["pid"]),
            tick=int(data["tick"]),
            host=str(data["host"]),
            boot_id=str(data["boot_id"]),
            socket=str(data["socket"]),
            started_at=float(data["started_at"]),
            version=str(data["version"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def backend_alive(run_dir: Path, *, now: float | None = None) -> LiveBackend | DeadBackend | RemoteBackend:
    """Whether the run's backend lives, and where.

    Here its pid and start tick are asked. On another host only the heartbeat can tell; a clock that is more
    than ``HEARTBEAT_DEAD_S`` off makes that answer wrong in one direction or the other.
    """
    record = read_backend(run_dir)
    if record is None:
        return DeadBackend(None)
    if record.host != hostname():
        try:
            age = (time.time() if now is None else now) - os.stat(RunDir(run_dir).backend).st_mtime
        except OSError:
            return DeadBackend(record)
        return RemoteBackend(record.host, record) if age <= HEARTBEAT_DEAD_S else DeadBackend(record)
    if record.boot_id == procfs.boot_id() and procfs.alive(record.pid, record.tick):
        return LiveBackend(record)
    return DeadBackend(record)
