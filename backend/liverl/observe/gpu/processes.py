"""Every process on a GPU: what NVML says of it, and what /proc adds: whose it is, its user and its command."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from liverl.control.gpu_detail import GpuProcess
from liverl.observe.gpu.nvml import Questions
from liverl.observe.gpu.owner import pid_user
from liverl.procs.listing import ProcessTree

_LISTS = (  # of NVML, and their letters in nvidia-smi
    ("C", "nvmlDeviceGetComputeRunningProcesses"),
    ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("M", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
SM_SECONDS = 5.0  # of samples of a process's SM utilization; the newest one counts
Members = Mapping[str, Collection[int]]  # service -> pids of its tree


class RunningProcess(msgspec.Struct):
    """One process as NVML lists it."""

    pid: int
    kinds: list[str]
    memory: int | None


def running(questions: Questions, handle: Any) -> tuple[list[RunningProcess], str]:
    """Return (the processes on a GPU or MIG part, ""), or ([], why NVML does not list them)."""
    found: dict[int, RunningProcess] = {}
    reasons = []
    for letter, question in _LISTS:
        listed, reason = questions.ask(question, handle)
        reasons.append(reason)
        for process in listed or ():
            known = found.setdefault(int(process.pid), RunningProcess(int(process.pid), [], None))
            known.kinds.append(letter)
            if process.usedGpuMemory is not None:
                known.memory = max(known.memory or 0, int(process.usedGpuMemory))
    # Graphics and MPS are lists that a GPU for computing may lack.
    return list(found.values()), "" if found else reasons[0]


def sm_utilization(questions: Questions, handle: Any) -> tuple[dict[int, float], str]:
    """Return (pid -> 0..1 of the GPU's multiprocessors, ""), or ({}, why NVML does not say)."""
    since = int((time.time() - SM_SECONDS) * 1e6)
    samples, reason = questions.ask("nvmlDeviceGetProcessUtilization", handle, since)
    if reason == "not found":
        return {}, f"no process has used the GPU's multiprocessors in the last {SM_SECONDS:g} s"
    newest: dict[int, tuple[int, float]] = {}
    for sample in samples or ():
        # Some drivers return entries that were never filled in.
        if sample.smUtil <= 100:
            stamp, _ = newest.get(int(sample.pid), (0, 0.0))
            if sample.timeStamp > stamp:
                newest[int(sample.pid)] = (int(sample.timeStamp), sample.smUtil / 100)
    return {pid: share for pid, (_, share) in newest.items()}, reason


def described(
    listed: Collection[RunningProcess],
    sm: Mapping[int, float],
    members: Members,
    tree: ProcessTree,
    *,
    own_namespace: bool,
) -> tuple[GpuProcess, ...]:
    """The processes with what /proc says of them, most GPU memory first. ``own_namespace``: this process is in a pid
    namespace of its own, so that NVML's pids may be those of others."""
    seen = {p.pid: whose(p.pid, members, own_namespace=own_namespace) for p in listed}
    shown = tree.look(pid for pid, (kind, _) in seen.items() if kind != "hidden")
    facts = {process.pid: process for process in shown}
    processes = []
    for process in listed:
        kind, service = seen[process.pid]
        known = facts.get(process.pid)
        processes.append(
            GpuProcess(
                pid=process.pid,
                kind="+".join(process.kinds),
                whose=kind,  # type: ignore[arg-type]
                service=service,
                user=pid_user(process.pid) if known is not None else None,
                memory=process.memory,
                sm=sm.get(process.pid),
                cpu_percent=known.cpu_percent if known is not None else None,
                rss_bytes=known.rss_bytes if known is not None else None,
                started_at=known.started_at if known is not None else None,
                command=known.command if known is not None else "",
            )
        )
    return tuple(sorted(processes, key=lambda p: (-(p.memory or 0), p.pid)))


def whose(pid: int, members: Members, *, own_namespace: bool, proc: str = "/proc") -> tuple[str, str | None]:
    """Return (``run``, service), (``stranger``, None) or (``hidden``, None).

    In a pid namespace of its own, this process may see a different process with the pid that NVML reports. A process
    that has no NVIDIA device open cannot be the one that NVML reports.
    """
    service = next((name for name, pids in members.items() if pid in pids), None)
    if not os.path.exists(f"{proc}/{pid}"):
        return "hidden", None
    if own_namespace:
        opened = _has_gpu_open(pid, proc)
        if opened is False or (opened is None and service is None):
            return "hidden", None
    return ("run", service) if service is not None else ("stranger", None)


def _has_gpu_open(pid: int, proc: str) -> bool | None:
    """Whether a process has an NVIDIA device open; None if it may not be looked at."""
    try:
        files = os.listdir(f"{proc}/{pid}/fd")
    except OSError:
        return None
    for name in files:
        try:
            if os.readlink(f"{proc}/{pid}/fd/{name}").startswith("/dev/nvidia"):
                return True
        except OSError:  # closed meanwhile
            continue
    return False
