"""Services, their processes, and how these end."""

from typing import Literal

import msgspec

from liverl.model.times import UnixTime

Owner = Literal["ours", "adopted", "foreign"]
ServiceKind = Literal["environment", "ray", "replica", "proxy", "sessions", "trainer", "task"]
ServiceState = Literal[
    "waiting",  # its dependencies are not met yet
    "preparing",  # its environment, ports and files are being prepared
    "starting",  # the process exists; its startup probe has not succeeded yet
    "ready",
    "degraded",  # alive, but its ready or live probe fails
    "stopping",  # being stopped, or its leader has exited and the rest of its tree is being ended
    "stopped",  # stopped on request, a task that completed with exit code 0, or an environment after its run's end
    "failed",  # exited by itself and is not restarted
    "backing_off",  # will be started again after a delay
    "gave_up",  # failed too often within the window; not restarted
]
SLOW_DISK_S = 10.0  # a process that waits for its disk for less is not called slow
STATE_WORDS: tuple[ServiceState, ...] = (
    "waiting",
    "preparing",
    "starting",
    "ready",
    "degraded",
    "stopping",
    "stopped",
    "failed",
    "backing_off",
    "gave_up",
)


class TreeStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resource use of a service's process tree. ``cpu_percent``: 100 = one core, over the last sampling interval."""

    processes: int = 0
    cpu_percent: float | None = None
    rss_bytes: int = 0


class StalledProcess(msgspec.Struct, frozen=True):
    """A process that does not run. ``state``, as in ``ps``: ``T`` stopped by a signal, ``t`` stopped by a debugger,
    ``D`` in an uninterruptible wait without any progress. ``since``: Unix time at which it was first seen so."""

    pid: int
    state: str
    since: UnixTime

    def explains_waiting(self, now: float) -> bool:
        """Whether others may wait for this process; a short wait for a disk is no fault. ``now``: Unix time."""
        return self.state != "D" or now - self.since >= SLOW_DISK_S


class Exit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a service's leader ended. ``code`` and ``signal`` are both None when its exit status is not known."""

    code: int | None = None
    signal: int | None = None
    at: UnixTime | None = None

    @property
    def known(self) -> bool:
        """Whether the exit code or the signal is known."""
        return self.code is not None or self.signal is not None

    @property
    def ok(self) -> bool:
        """Whether the process exited with code 0; False if its exit status is not known."""
        return self.code == 0

    def words(self) -> str:
        """``exit 1``, ``killed by SIGKILL`` or ``unknown exit``. An exit that is not known never reads as 0."""
        if self.code is not None:
            return f"exit {self.code}"
        if self.signal is not None:
            import signal

            try:
                return f"killed by {signal.Signals(self.signal).name}"
            except ValueError:
                return f"killed by signal {self.signal}"
        return "unknown exit"


class ServiceStatus(msgspec.Struct, frozen=True):
    """One supervised service at the time of the snapshot."""

    name: str
    kind: ServiceKind
    owner: Owner
    state: ServiceState
    why: str  # a sentence for the user: why it is in this state
    since: UnixTime  # when it entered this state
    pid: int | None
    generation: int  # counts the starts of this service in the run, from 1; 0 = never started
    restarts: int
    log: str | None  # path of the current generation's log, relative to the run directory
    address: str | None = None  # http://host:port
    ports: dict[str, int] = {}
    gpus: tuple[str, ...] = ()  # NVML UUIDs
    depends_on: tuple[str, ...] = ()
    started_at: UnixTime | None = None
    ready_at: UnixTime | None = None
    exit: Exit | None = None
    stage: str | None = None  # boot stage for the user, if its log shows one
    progress: float | None = None  # 0..1
    incoming_pid: int | None = None  # a new generation that is to replace this one (proxy swap)
    retiring_pids: tuple[int, ...] = ()  # replaced generations that still drain
    deadline: float | None = None  # when the current stop stage escalates, or the backoff ends
    members: tuple[int, ...] = ()  # pids of the tree, leader included
    tree: TreeStats = TreeStats()
    stalled: tuple[
        StalledProcess, ...
    ] = ()  # those of ``members`` that are stopped, or wait without progress
    # Since when a service that was ready no longer serves although it should; None while it serves or is not wanted.
    down_since: float | None = None
    failed_at: UnixTime | None = None  # when it failed last and was started again by itself, not by a command
    failure: str = ""  # why it went down or failed last; empty unless one of the two times above is set
