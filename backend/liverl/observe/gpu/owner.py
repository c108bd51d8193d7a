"""Who uses a GPU: the run's services, other users' processes, or nobody that can be named."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Collection, Mapping

from liverl.observe.gpu.ledger import UNKNOWN_NAMESPACE

# An idle H200 shows 0 to 4 MiB (driver 580), or 615 MiB with older drivers that include their reserve.
# A CUDA context takes about 500 MiB more, a loaded engine gigabytes.
FREE_BELOW = 1 << 30  # bytes
_INIT_PID_NAMESPACE = 4026531836  # PROC_PID_INIT_INO of the kernel: inode of the first pid namespace


def owner_of(
    pids: Collection[int],
    ledger: Mapping[str, str],
    members: Mapping[str, Collection[int]],
    in_pid_namespace: bool,
    *,
    uuid: str = "",
    memory: int | None = None,
    user_of: Callable[[int], str | None] | None = None,
) -> str:
    """Return the owner of a GPU: a service (several joined by `` + ``), ``free``, ``foreign pid N (user)`` or
    ``unknown (pid namespace)``.

    Outside a pid namespace pids take precedence over the ledger. Inside one NVML may report the host's pids,
    which can equal ours by chance: the ledger takes precedence and no process is called foreign. ``memory``
    (bytes in use) of FREE_BELOW or more without any pid means not free. ``user_of`` returns the user of a
    pid, None if /proc does not show it.
    """
    user_of = user_of or pid_user
    booked = ledger.get(uuid)
    ours = [service for service, tree in members.items() if any(pid in tree for pid in pids)]
    if in_pid_namespace:
        if booked is not None:
            return booked
        if ours:
            return " + ".join(ours)
    elif pids:
        trees = {pid for service in ours for pid in members[service]}
        others = [pid for pid in pids if pid not in trees]
        users = {pid: user_of(pid) for pid in others}
        foreign = [f"foreign pid {pid} ({user})" for pid, user in users.items() if user is not None]
        named = ours + foreign
        if named:
            return " + ".join(named)
        return booked if booked is not None else UNKNOWN_NAMESPACE
    if booked is not None:
        return booked
    if pids or (memory is not None and memory >= FREE_BELOW):
        return UNKNOWN_NAMESPACE
    return "free"


def in_pid_namespace() -> bool:
    """Whether this process is in a pid namespace of its own (a container), where NVML's pids may be the
    host's."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino != _INIT_PID_NAMESPACE
    except OSError:  # without /proc no pid can be resolved either
        return True


def pid_user(pid: int) -> str | None:
    """Return the user of a process; None if /proc does not show the pid."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
