"""Processes of others on the GPUs of a run, in words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from liverl.model import GpuStatus
from liverl.observe.gpu.owner import in_pid_namespace, pid_user
from liverl.procs import procfs
from liverl.util import redact

SHOWN = 3  # processes; those with most memory
_COMMAND = 80  # characters of a command
_GIB = 1 << 30


class Stranger(NamedTuple):
    """A process that holds memory of a GPU of the run, and is none of the run. ``size``: bytes, 0 if NVML does not tell
    them; ``gpu``: its index."""

    size: int
    gpu: int
    pid: int
    user: str
    command: str


def strangers(
    gpus: Sequence[GpuStatus],
    memory: Mapping[str, Mapping[int, int | None]],
    members: Mapping[str, Collection[int]],
    *,
    hidden: Callable[[], bool] = in_pid_namespace,
    user_of: Callable[[int], str | None] = pid_user,
    command_of: Callable[[int], str] = procfs.command_line,
) -> tuple[Stranger, ...]:
    """Who holds memory of the GPUs and is no process of the run, the most memory first; empty if nobody does, or if
    NVML's pids may be those of another namespace. ``memory``: UUID -> pid -> bytes; ``members``: service -> pids."""
    if hidden():
        return ()
    ours = {pid for pids in members.values() for pid in pids}
    found = [
        Stranger(size or 0, gpu.index, pid, user, command_of(pid))
        for gpu in gpus
        for pid, size in memory.get(gpu.uuid, {}).items()
        if pid not in ours and (user := user_of(pid)) is not None
    ]
    return tuple(sorted(found, key=lambda one: (-one.size, one.gpu, one.pid)))


def told(found: Sequence[Stranger]) -> str:
    """A sentence that names them, without the secrets of their commands; empty if there are none."""
    said = []
    for one in found[:SHOWN]:
        command = " ".join(redact.command(one.command.split()))
        shown = f"{command[:_COMMAND]} ..." if len(command) > _COMMAND else command
        amount = f"{one.size / _GIB:.1f} GiB" if one.size else "memory"
        said.append(f"pid {one.pid} of {one.user} ({shown}) holds {amount} of GPU {one.gpu}")
    if len(found) > SHOWN:
        said.append(f"{len(found) - SHOWN} more hold the rest")
    return f"Not of this run: {', '.join(said)}." if said else ""
