"""Layout of a run directory, and whether its backend is alive.

A run is live while its backend is. ``backend.json`` names that process by pid, start tick, boot id and host;
its modification time is a heartbeat, used where the pid cannot be checked (on another host).
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from liverl.procs import procfs
from liverl.util import atomic_file
from liverl.util.checked_path import open_checked
from liverl.util.decode import decode_json
from liverl.util.late_pattern import late_pattern
from liverl.util.regular_file import read_regular

if TYPE_CHECKING:
    from liverl.model import Result, Snapshot

# Links to logs that a launch script writes elsewhere, among those of the services: its trainer's, the engines', and
# the beginning of the names of those that the user lists.
TRAIN_LOG, ENGINE_LOG, SCRIPT_LOG = "train-log", "vllm-log", "log-"
CLUSTER = "cluster.json"  # in the run directory: what the other hosts of a run need to join
HEARTBEAT_S = 30.0  # the backend touches backend.json this often
HEARTBEAT_DEAD_S = 180.0  # six missed heartbeats; modification times on NFS lag up to 60 s

_NAME = late_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ATTEMPT = late_pattern(r"attempt_(\d{3,})")
_NEW = ".new"
_UNFINISHED = late_pattern(rf"\.(.+)\.(\d{{1,10}})\.\d{{1,10}}{re.escape(_NEW)}")
_TRIALS = late_pattern(r"trials\.(\d{1,6})")


VALID_NAMES = "use at most 128 letters, digits, '.', '_' and '-', starting with a letter or a digit"


def valid_name(name: str) -> bool:
    """Whether ``name`` is valid for a project or run: ``VALID_NAMES`` says what is."""
    return _NAME.fullmatch(name) is not None


def maker_of(name: str) -> tuple[str, int] | None:
    """(name of the run, pid of its maker), if this is the name of a directory of ``RunDir.unfinished``."""
    match = _UNFINISHED.fullmatch(name)
    return (match[1], int(match[2])) if match is not None else None


class RunDir(Struct, frozen=True):
    """Paths of the files in one run directory. Creates nothing."""

    path: Path

    @property
    def name(self) -> str:
        """``project/name``, from the path."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def config(self) -> Path:
        """The configuration as resolved at the start."""
        return self.path / "config.yaml"

    @property
    def plan(self) -> Path:
        """The plan: services, commands, environments."""
        return self.path / "plan.json"

    @property
    def preflight(self) -> Path:
        """What the checks found before the start (``preflight.record``)."""
        return self.path / "preflight.json"

    @property
    def cleaned(self) -> Path:
        """What ``clean`` has removed of the run (``rundir.cleaned``); exists once it has."""
        return self.path / "cleaned.json"

    @property
    def exports(self) -> Path:
        """Models that ``checkpoints export`` has made of checkpoints: ``global_step_N/``."""
        return self.path / "exports"

    @property
    def exported(self) -> Path:
        """Which checkpoints were exported, and where to (``offline.checkpoints``); exists once one was."""
        return self.path / "exports.json"

    @property
    def journal(self) -> Path:
        """Durable log of the backend's actions on processes (see ``rundir.journal``)."""
        return self.path / "journal.jsonl"

    @property
    def members(self) -> Path:
        """The process trees as of the last scan."""
        return self.path / "members.json"

    @property
    def events(self) -> Path:
        """Log of events, one JSON object per line."""
        return self.path / "events.jsonl"

    @property
    def metrics(self) -> Path:
        """Training metrics, one JSON object per step."""
        return self.path / "metrics.jsonl"

    @property
    def result(self) -> Path:
        """Final state of the run; exists once it has ended."""
        return self.path / "result.json"

    @property
    def snapshot(self) -> Path:
        """Last known state, written by the backend every few seconds and at the end."""
        return self.path / "snapshot.json"

    @property
    def backend(self) -> Path:
        """``BackendRecord`` of the current or last backend; its modification time is the heartbeat."""
        return self.path / "backend.json"

    @property
    def backend_log(self) -> Path:
        """Output of the backend process."""
        return self.path / "backend.log"

    @property
    def lock(self) -> Path:
        """Lock file held by the backend: at most one per run directory."""
        return self.path / "lock"

    @property
    def keeper(self) -> Path:
        """Record of the keeper process."""
        return self.path / "keeper.json"

    @property
    def socket(self) -> Path:
        """Default path of the control socket; ``backend.json`` has the actual one."""
        return self.path / "control.sock"

    @property
    def secrets(self) -> Path:
        """Directory of the run's secrets."""
        return self.path / "secrets"

    @property
    def notify(self) -> Path:
        """Directory of the deliveries of notifications that are under way."""
        return self.path / "notify"

    @property
    def proxy(self) -> Path:
        """Directory of the proxy's configuration and state."""
        return self.path / "proxy"

    @property
    def replicas(self) -> Path:
        """Replicas as last listed for the proxy."""
        return self.path / "replicas.json"

    @property
    def trainer(self) -> Path:
        """State published by the trainer."""
        return self.path / "trainer.json"

    @property
    def trials(self) -> Path:
        """Directory of the trials."""
        return self.path / "trials"

    def more_trials(self) -> dict[int, Path]:
        """Links to further folders of trials, which a launch script writes elsewhere, by number: ``trials.2`` and so
        on."""
        try:
            names = os.listdir(self.path)
        except OSError:
            return {}
        return {int(m[1]): self.path / n for n in sorted(names) if (m := _TRIALS.fullmatch(n))}

    def trial_roots(self) -> list[Path]:
        """The directories that contain the run's trials: ``trials`` and the links beside it. They need not exist."""
        more = self.more_trials()
        return [self.trials, *(more[number] for number in sorted(more))]

    @property
    def checkpoints(self) -> Path:
        """Directory of the trainer's checkpoints."""
        return self.path / "checkpoints"

    def attempt(self, number: int) -> Path:
        """Directory of attempt ``number`` (1, 2, ...)."""
        return self.path / f"attempt_{number:03d}"

    def logs(self, attempt: int) -> Path:
        """Directory of the service logs of one attempt."""
        return self.attempt(attempt) / "logs"

    def stacks(self, attempt: int) -> Path:
        """Directory of the stacks of processes that hung in one attempt; exists once one did."""
        return self.attempt(attempt) / "stacks"

    def report(self, attempt: int) -> Path:
        """What this attempt came to, on one page; exists once it has ended."""
        return self.attempt(attempt) / "report.md"

    def reserve(self, attempt: int) -> Path:
        """Keeps room on the disk for what is written when an attempt ends; gone then."""
        return self.attempt(attempt) / "reserve"

    def attempts(self) -> list[int]:
        """Numbers of the attempts that have a directory, oldest first."""
        try:
            names = os.listdir(self.path)
        except OSError:
            return []
        return sorted(int(m[1]) for n in names if (m := _ATTEMPT.fullmatch(n)))

    def unfinished(self, pid: int, thread: int) -> Path:
        """The directory in which this thread of a process makes the run, until it is complete and gets its name."""
        return self.path.parent / f".{self.path.name}.{pid}.{thread}{_NEW}"

    def is_run(self) -> bool:
        """Whether this looks like a run directory: it has a plan, backend or keeper record, journal, event log or
        result."""
        files = (self.plan, self.backend, self.keeper, self.journal, self.events, self.result)
        return any(os.path.lexists(path) for path in files)

    def never_started(self) -> bool:
        """Whether no backend has ever left anything: there is only what ``up`` writes before it starts one."""
        left = (self.backend, self.keeper, self.journal, self.snapshot, self.events, self.result)
        return not any(os.path.lexists(path) for path in left) and not self.attempts()

    def read_result(self) -> Result | None:
        """Return ``result.json``, or None if it is missing or invalid. Of a run that has been copied its commands and
        paths name the copy."""
        from liverl.model import Result
        from liverl.rundir.commands import resume_command

        try:
            data = read_regular(self.result)
            result = decode_json(data, type=Result)
            if result.resume is None or result.resume == resume_command(self.path):
                return result
            return decode_json(self._here(data), type=Result)
        except (OSError, ValueError, RecursionError):
            return None

    def result_problem(self) -> str:
        """Why ``result.json``, which is there, cannot be read, in words; "" if it can, or if there is none."""
        if self.read_result() is not None or not os.path.lexists(self.result):
            return ""
        try:
            read_regular(self.result)
        except OSError as error:
            return error.strerror or str(error)
        return "it is damaged, or another version has written it"

    def _here(self, data: bytes) -> bytes:
        """The content of a file in JSON, with the paths of the directory in which it lies now."""
        from msgspec.json import encode

        from liverl.rundir.copied import all_here, made_in

        recorded = made_in(self.path)
        return data if recorded is None else encode(all_here(decode_json(data), self.path, recorded))

    def read_snapshot(self) -> Snapshot | None:
        """Return ``snapshot.json``, or None if it is missing or invalid (written by another version). Of a
        run that has been copied its commands and paths name the copy."""

        from liverl.snapshot_json import decode_snapshot

        try:
            data = read_regular(self.snapshot)
            snapshot = decode_snapshot(data)
            return snapshot if snapshot.run_dir == str(self.path) else decode_snapshot(self._here(data))
        except (OSError, ValueError, RecursionError):
            return None


class OpenDirectory:
    """A run directory by its descriptor, with which it is found after somebody has renamed it.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.opened_as = path
        self._fd = open_checked(path, os.O_PATH | os.O_DIRECTORY)
        self._same = _identity(os.fstat(self._fd))

    @property
    def removed(self) -> bool:
        """Whether the directory was removed. One that was renamed was not.

        Raises:
            OSError: the file system has a fault, which proves nothing.
        """
        found = os.fstat(self._fd)
        if _identity(found) != self._same:  # it was closed, and its number is another file's
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.opened_as))
        return found.st_nlink == 0

    @property
    def path(self) -> Path:
        """Where the directory is now; its old path if that cannot be told."""
        try:
            now = Path(os.readlink(f"/proc/self/fd/{self._fd}"))
            return now if _identity(now.stat()) == self._same else self.opened_as
        except OSError:
            return self.opened_as

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


# --- the backend's record and its liveness --------------------------------------------------------------


class BackendRecord(Struct, frozen=True):
    """Content of ``backend.json``. ``tick`` is field 22 of /proc/PID/stat (clock ticks since boot),
    ``started_at`` Unix seconds."""

    pid: int
    tick: int
    host: str
    boot_id: str
    socket: str
    started_at: float
    version: str


class LiveBackend(Struct, frozen=True):
    """The backend runs on this host."""

    record: BackendRecord


class DeadBackend(Struct, frozen=True):
    """No backend runs."""

    record: BackendRecord | None  # None: no backend was ever started, or its record is unreadable


class RemoteBackend(Struct, frozen=True):
    """The backend runs on another host, as its heartbeat is recent."""

    host: str
    record: BackendRecord


def hostname() -> str:
    """Return the name of this host."""
    return os.uname().nodename


def write_atomic(path: Path, data: dict[str, Any]) -> None:
    """Atomically replace a small JSON file.

    Raises:
        OSError: the directory is not writable or the disk is full.
    """
    atomic_file.write_atomic(path, json.dumps(data).encode(), sync=False)


def own_record(socket: Path, version: str) -> BackendRecord:
    """Return the record of the calling process."""
    pid = os.getpid()
    tick = procfs.start_tick(pid)
    return BackendRecord(
        pid, tick or 0, hostname(), procfs.boot_id(), str(socket), started_at=time.time(), version=version
    )


def write_backend(run_dir: Path, record: BackendRecord) -> None:
    """Write ``backend.json``.

    Raises:
        OSError: the directory is not writable or the disk is full.
    """
    write_atomic(RunDir(run_dir).backend, asdict(record))


def touch_backend(run_dir: Path) -> None:
    """Update the heartbeat; to be called every ``HEARTBEAT_S`` seconds.

    Raises:
        OSError: the record was removed or cannot be written.
    """
    os.utime(RunDir(run_dir).backend)


def read_backend(run_dir: Path) -> BackendRecord | None:
    """Return ``backend.json``, or None if it is missing or invalid."""
    try:
        record = decode_json(read_regular(RunDir(run_dir).backend), BackendRecord)
    except (OSError, ValueError):
        return None
    return record if abs(record.started_at) <= 1e11 else None  # no clock shows a later time


def backend_alive(run_dir: Path, *, now: float | None = None) -> LiveBackend | DeadBackend | RemoteBackend:
    """Return whether and where the run's backend is alive. ``now`` is Unix seconds.

    On this host its pid and start tick are checked. On another host only the heartbeat is known: clocks that
    differ by more than ``HEARTBEAT_DEAD_S`` make the answer wrong.
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
