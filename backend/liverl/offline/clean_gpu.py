"""Ends a process that holds GPU memory and belongs to no run, only if the user names it by its pid."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable

import msgspec

from liverl.observe.gpu.owner import in_pid_namespace
from liverl.observe.gpu.processes import whose
from liverl.observe.gpu.sampler import GpuSampler
from liverl.procs import procfs
from liverl.procs.tree import send
from liverl.util import redact

VARIABLE = "RL_CLEAN_FORCE_GPU_KILL"  # of LiveRL's clean.sh; its value has to be 1
GRACE_S = 10.0  # seconds between SIGTERM and SIGKILL
KILL_S = 10.0  # seconds for the end after SIGKILL; a process that waits for a driver can take longer
FREED_S = 10.0  # seconds for the driver to free the memory of a process that has ended
_PAUSE_S = 0.1  # seconds between two looks
_COMMAND = 200  # characters of a command line that are shown

# pid -> bytes of GPU memory on all GPUs (None: NVML does not say), and why nothing could be looked at, else empty
Ask = Callable[[], tuple[dict[int, int | None], str]]


class NotEnded(Exception):
    """The process is not ended; the text says which and why."""


class GpuHolder(msgspec.Struct, frozen=True):
    """A process that may be ended. ``tick``: its start (``procfs.Proc``); ``memory``: bytes; None: not known, and
    ``note`` says why; ``sent``: the last signal, empty before; ``ended``: whether it has ended; ``memory_after``: bytes
    that NVML lists of it afterwards; None: not known."""

    pid: int
    tick: int
    user: str
    command: str
    memory: int | None
    note: str = ""
    sent: str = ""
    ended: bool = False
    memory_after: int | None = None


def ask_nvml() -> tuple[dict[int, int | None], str]:
    """See ``Ask``."""
    sampler = GpuSampler()
    try:
        gpus, note = sampler.sample()
        per_gpu = list(sampler.pid_memory.values())
    finally:
        sampler.close()
    if not gpus or note:
        return {}, note or "NVML lists no GPU"
    memory: dict[int, int | None] = {}
    for listed in per_gpu:
        for pid, size in listed.items():
            known = memory.get(pid, 0)
            memory[pid] = None if size is None or known is None else known + size
    return memory, ""


def holder(pid: int, ask: Ask = ask_nvml) -> GpuHolder:
    """The process, if it may be ended.

    Raises:
        NotEnded: there is none, it belongs to a run or started this command, or nothing shows that it uses a GPU.
    """
    proc = procfs.read_proc(pid)
    if proc is None or proc.zombie:
        raise NotEnded(f"no process has pid {pid}")
    if pid in _ancestors():
        raise NotEnded(f"pid {pid} is this command, or one of the processes that started it")
    if run_dir := procfs.environment_tag(pid, b"LIVERL_RUN_DIR"):
        raise NotEnded(
            f"pid {pid} belongs to a run; to end that: liverl-tui stop --run {shlex.quote(run_dir)}"
        )
    memory, why = ask()
    if not why and pid not in memory:
        raise NotEnded(f"NVML lists no GPU memory of pid {pid}")
    # Without NVML only an open device shows that it uses a GPU.
    if whose(pid, {}, own_namespace=bool(why) or in_pid_namespace())[0] == "hidden":
        raise NotEnded(
            f"nothing shows that pid {pid} uses a GPU: it has no NVIDIA device open that can be seen"
        )
    if why:
        note = f"GPU memory was not looked at: {why}"
    else:
        note = "" if memory[pid] is not None else "NVML does not say how much GPU memory it holds"
    command = " ".join(redact.command(procfs.command_line(pid).split()))[:_COMMAND]
    return GpuHolder(pid, proc.tick, procfs.user_of(pid), command, memory.get(pid), note)


def end(process: GpuHolder, ask: Ask = ask_nvml, *, grace: float = GRACE_S) -> GpuHolder:
    """End exactly this process, and look at the GPU memory again. ``grace``: seconds between SIGTERM and SIGKILL."""
    member = process.pid, process.tick
    sent = ""
    try:
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, KILL_S)):
            if not send(member, number):
                break
            sent = number.name
            if _until(lambda: not procfs.alive(*member), seconds):
                break
    except PermissionError:
        return msgspec.structs.replace(process, sent=sent, note="this user may not end it")
    if procfs.alive(*member):
        return msgspec.structs.replace(process, sent=sent, note="it lives on after SIGKILL")
    ended = msgspec.structs.replace(process, sent=sent, ended=True)
    last: tuple[dict[int, int | None], str] = ({}, "")

    def freed() -> bool:
        nonlocal last
        last = ask()
        return bool(last[1]) or process.pid not in last[0]

    done = _until(freed, FREED_S)
    memory, why = last
    if why:
        return msgspec.structs.replace(ended, note=f"GPU memory was not looked at: {why}")
    if not done:
        note = "it has ended, and NVML still lists GPU memory of it"
        return msgspec.structs.replace(ended, note=note, memory_after=memory[process.pid])
    return msgspec.structs.replace(ended, note="", memory_after=0)


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True


def _ancestors() -> set[int]:
    """The pids of this process and of those that have started it, up to init."""
    found, pid = {1}, os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        proc = procfs.read_proc(pid)
        pid = proc.ppid if proc is not None else 1
    return found
