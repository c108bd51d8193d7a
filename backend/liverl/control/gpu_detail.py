"""Details of one GPU, as the backend sends them while a client asks: its processes, clocks, errors and links."""

from __future__ import annotations

from typing import Literal

import msgspec


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """One value as the driver gives it. ``value`` is None if it gives none; ``why`` then says why, in words."""

    value: float | None = None
    why: str = ""


class GpuProcess(msgspec.Struct, frozen=True):
    """One process on the GPU.

    ``whose``: a process of this run, which then has a ``service``; a stranger's; or hidden: /proc does not show it, or
    shows another process under that number, because it is in another pid namespace. Of a hidden one only the pid, the
    memory and the SM utilization are known.
    """

    pid: int
    kind: str  # C compute, G graphics, M compute through MPS; joined by "+"
    whose: Literal["run", "stranger", "hidden"]
    service: str | None = None
    user: str | None = None
    memory: int | None = None  # bytes of GPU memory
    sm: float | None = None  # 0..1 of the GPU's multiprocessors, over the last seconds
    cpu_percent: float | None = None  # 100 = one core, since the reading before
    rss_bytes: int | None = None
    started_at: float | None = None  # Unix time
    command: str = ""  # redacted


class Xid(msgspec.Struct, frozen=True):
    """The newest XID error that the driver has reported for a GPU. ``watched_since``: Unix time from which on they are
    counted; None if they cannot be, and ``why`` says why. ``code`` is None if there was none."""

    watched_since: float | None = None
    why: str = ""
    code: int | None = None
    at: float | None = None
    count: int = 0


class GpuDetail(msgspec.Struct, frozen=True):
    """Details of one GPU at Unix time ``at``.

    ``readings``: by name, see ``observe/gpu/detail.py``. For a MIG part, processes are those of the part and readings
    those of the whole board. ``reserved_for``: the service for which the run has reserved this GPU.
    """

    uuid: str
    at: float
    processes: tuple[GpuProcess, ...] = ()  # most GPU memory first
    processes_why: str = ""  # why processes are not known; empty if they are
    sm_why: str = ""  # why the SM utilization of processes is not known
    own_namespace: bool = False  # the backend is in a pid namespace of its own (a container)
    reserved_for: str | None = None
    clock_events: tuple[
        str, ...
    ] = ()  # what lowers the clocks now, as names of ``observe/gpu/clock_events.py``
    clock_events_why: str = ""
    driver: str = ""
    bus_id: str = ""
    mig: bool = False
    xid: Xid = Xid()
    readings: dict[str, Reading] = {}

    def reading(self, name: str) -> Reading:
        """The reading ``name``; one without a value if this version of the backend does not read it."""
        return self.readings.get(name, Reading(why="not read"))
