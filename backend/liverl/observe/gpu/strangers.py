"""Processes of others on the GPUs of a run, in words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from liverl.model import GpuStatus
from liverl.observe.gpu.owner import in_pid_namespace, pid_user
from liverl.procs import procfs
from liverl.util import redact

SHOWN = 3  # processes; those with most memory
_COMMAND = 80  # characters of a command
_GIB = 1 << 30


def strangers(
    gpus: Sequence[GpuStatus],
    memory: Mapping[str, Mapping[int, int | None]],
    members: Mapping[str, Collection[int]],
    *,
    hidden: Callable[[], bool] = in_pid_namespace,
    user_of: Callable[[int], str | None] = pid_user,
    command_of: Callable[[int], str] = procfs.command_line,
) -> str:
    """A sentence about who holds memory of the GPUs and is no process of the run; empty if nobody does, or if NVML's
    pids may be those of another namespace. ``memory``: UUID -> pid -> bytes; ``members``: service -> pids."""
    if hidden():
        return ""
    ours = {pid for pids in members.values() for pid in pids}
    found = [
        (size or 0, gpu.index, pid, user)
        for gpu in gpus
        for pid, size in memory.get(gpu.uuid, {}).items()
        if pid not in ours and (user := user_of(pid)) is not None
    ]
    found.sort(key=lambda one: (-one[0], one[1:3]))
    said = []
    for size, gpu, pid, user in found[:SHOWN]:
        command = " ".join(redact.command(command_of(pid).split()))
        shown = f"{command[:_COMMAND]} ..." if len(command) > _COMMAND else command
        amount = f"{size / _GIB:.1f} GiB" if size else "memory"
        said.append(f"pid {pid} of {user} ({shown}) holds {amount} of GPU {gpu}")
    if len(found) > SHOWN:
        said.append(f"{len(found) - SHOWN} more hold the rest")
    return f"Not of this run: {', '.join(said)}." if said else ""
