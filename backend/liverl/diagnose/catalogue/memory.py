"""The rule for memory that fills up. Pure.

The reference documents give no limits; the hour is that of disks."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.diagnose.catalogue.disks import size
from liverl.diagnose.tracker import GOING, SHOWN, Resolved, Window
from liverl.model import Evidence, ServiceStatus, Snapshot, Symptom

SOON_S = 3600.0  # seconds until it is full: time enough to restart a service
NOW_S = 600.0  # seconds that hardly suffice
MOST_OF_IT = 0.5  # share of the growth from which one service is its cause
# Kind of a service -> what to do about its growth.
_WHAT_TO_DO = {
    "proxy": "restart the proxy (r in the interface): no request is lost; proxy.trials_through: sessions keeps the "
    "trials of verl out of it",
    "sessions": "restart the sessions between two steps; halve harbor_runtime.num_workers, so that fewer sessions are "
    "open at once",
    "replica": "restart the replica; halve vllm.max_num_seqs",
    "trainer": "stop the run before the kernel kills it, and resume it from its last checkpoint; if the GPUs have "
    "room, set training.actor_offload: false and training.ref_offload: false",
    "ray": "see which objects are kept: ray memory --stats-only; stop processes that do not belong to the run",
}
_UNKNOWN = (
    "see what grows: ps -eo rss,pid,args | sort -n | tail; stop processes that do not belong to the run"
)


def memory_fills(window: Window) -> Iterator[Symptom | Resolved]:
    """The memory of the host, or of the run's control group, is full within an hour at the rate at which its use has
    grown over ten minutes and ten steps at least.

    - the cause names the proxy -> ``liverl-tui restart proxy``: no request is lost
    - the cause names the sessions -> ``liverl-tui restart sessions`` between two steps, and half of
      ``harbor_runtime.num_workers``
    - the cause names a replica -> ``liverl-tui restart SERVICE``, and half of ``vllm.max_num_seqs``
    - the cause names the trainer -> ``liverl-tui stop``, then ``liverl-tui up --resume RUN``; if the GPUs have room,
      without offloading
    - the cause names Ray -> ``ray memory --stats-only`` shows which objects are kept
    - the cause says ``by no single service`` -> ``ps -eo rss,pid,args`` sorted by its first column: other processes
      of the host
    """
    now, growth = window.now, window.beside.memory
    if now.state not in GOING or growth is None or growth.seconds_left > SOON_S:
        return
    first = next(iter(growth.services), None)
    guilty = first if first is not None and first[2] >= MOST_OF_IT * growth.per_second else None
    service = now.service(guilty[0]) if guilty is not None else None
    yield Symptom(
        id="memory_fills",
        severity="critical" if growth.seconds_left <= NOW_S else "warning",
        title=f"memory will be full in about {_time(growth.seconds_left)}",
        cause=f"{size(growth.used)} of {size(growth.total)} are used, and {size(round(growth.per_second * 60))} more "
        f"each minute{_by(guilty)}; when none is left, the kernel kills the largest process",
        fix=_fix(service, now),
        evidence=tuple(
            Evidence(f"{name}: {size(used)}, {size(round(rate * 60))} more each minute", value=float(used))
            for name, used, rate in growth.services[:SHOWN]
        ),
    )


def _by(guilty: tuple[str, int, float] | None) -> str:
    return (
        f", most of it by {guilty[0]} ({size(guilty[1])})" if guilty is not None else ", by no single service"
    )


def _fix(service: ServiceStatus | None, now: Snapshot) -> str:
    if service is None:
        return _UNKNOWN
    return _WHAT_TO_DO.get(service.kind, _UNKNOWN)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"
