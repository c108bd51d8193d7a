"""The hosts of a run as frozen structs, their GPUs included: the part of ``liverl.model`` that is about them, which has
their names too. Times are Unix seconds, sizes bytes; ``None`` means *not known*, never zero.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from liverl.model_trials import UnixTime


class GpuStatus(msgspec.Struct, frozen=True):
    """One GPU of this host, and who uses it. Memory is in bytes, power in watts, temperature in degrees Celsius."""

    index: int
    uuid: str
    name: str
    utilization: float | None  # 0..1
    memory_used: int | None
    memory_total: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: float | None
    owner: str  # a service's name, "free", "foreign pid 123 (user)" or "unknown (pid namespace)"
    pids: tuple[int, ...] = ()
    sm_clock_mhz: float | None = None  # clock of its multiprocessors


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


class NodeStatus(msgspec.Struct, frozen=True):
    """A host of a run on several hosts, whose Ray head the run has started."""

    name: str  # its host name; "" of one that has not joined
    ip: str  # for the other hosts; "" of one that has not joined
    id: str  # Ray's id of the node; "" while it is none
    state: Literal["missing", "joining", "ready", "lost"]
    why: str  # a sentence for the user; "" if there is nothing to say
    since: UnixTime  # when it entered this state
    command: str = ""  # what to run on that host; "" if there is nothing to do
