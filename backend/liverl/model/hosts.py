"""The hosts of a run, their GPUs included."""

from typing import Literal

import msgspec

from liverl.model.times import UnixTime


class GpuStatus(msgspec.Struct, frozen=True):
    """One GPU, and who uses it. Memory is in bytes, power in watts, temperature in degrees Celsius. ``owner``: the name
    of a service or replica, ``free``, ``foreign pid 123 (user)`` or ``unknown (pid namespace)``; of a GPU of another
    host only ``trainer``, ``free`` or ``unknown (other host)``: what it shows of its processes is their pids."""

    index: int
    uuid: str
    name: str
    utilization: float | None  # 0..1
    memory_used: int | None
    memory_total: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: float | None
    owner: str
    pids: tuple[int, ...] = ()  # on its host
    sm_clock_mhz: float | None = None  # clock of its multiprocessors
    node: str = ""  # its host, as in ``NodeStatus.name``; "" in a run on one host


class HostStats(msgspec.Struct, frozen=True):
    """CPU and memory of the host; memory is in bytes."""

    cpu_percent: float | None = None  # 0..100 of the whole machine
    cpu_count: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None


class DiskStatus(msgspec.Struct, frozen=True):
    """The file system of the run's trials, in bytes. ``step_bytes``: what the trials of the newest finished step take,
    None: not known; ``seconds_left``: until it is full, None: not known, or it does not fill."""

    total: int
    free: int
    step_bytes: int | None = None
    seconds_left: float | None = None


OLD_S = 20.0  # seconds: Ray's copy of a node's figures is up to 15 s old (agents send every 5 s, Ray 2.60)


class NodeStatus(msgspec.Struct, frozen=True):
    """A host of a run on several hosts. Its figures are those that Ray's agent there measured at ``measured_at``, by
    the clock of the backend's host; sizes in bytes."""

    name: str  # its host name; "" of one that has not joined
    ip: str  # for the other hosts; "" of one that has not joined
    id: str  # Ray's id of the node; "" while it is none
    state: Literal["missing", "joining", "ready", "lost"]
    why: str  # a sentence for the user; "" if there is nothing to say
    since: UnixTime  # when it entered this state
    command: str = ""  # what to run on that host; "" if there is nothing to do
    cpu_percent: float | None = None  # 0..100 of the whole machine
    memory_used: int | None = None
    memory_total: int | None = None
    shm_used: int | None = None  # of all shared memory
    disk_free: int | None = None  # of Ray's directory there
    disk_total: int | None = None
    measured_at: UnixTime | None = None

    def old(self, now: float) -> bool:
        """Whether its figures are too old to be those of now. ``now``: Unix seconds."""
        return self.measured_at is not None and now - self.measured_at > OLD_S
