"""Processes in ``/proc``."""

import errno
import os
import signal

from .faults import complain


def stat_of(pid: int) -> list[bytes]:
    """The fields of ``/proc/PID/stat`` from the third (state) on; empty if there is no such process, or if it
    is hidden from this user.

    Raises:
        OSError: the file cannot be read for another reason.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM):
            return []
        raise


def start_tick(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if there is no such process. With the pid it
    identifies a process, since pids are reused."""
    fields = stat_of(pid)
    return int(fields[19]) if fields else None


def descendants(root: int) -> dict[int, int]:
    """Every process below ``root`` that has not ended: pid -> start tick."""
    table = {
        int(name): fields for name in os.listdir("/proc") if name.isdigit() and (fields := stat_of(int(name)))
    }
    children: dict[int, list[int]] = {}
    for pid, fields in table.items():
        children.setdefault(int(fields[1]), []).append(pid)
    below: dict[int, int] = {}
    pending = list(children.get(root, ()))
    while pending:
        pid = pending.pop()
        pending += children.get(pid, ())
        if table[pid][0] not in (b"Z", b"X"):
            below[pid] = int(table[pid][19])
    return below


def send(processes: dict[int, int], number: signal.Signals) -> None:
    """Send a signal to exactly these processes (pid -> start tick), never to another process with a reused pid."""
    for pid, tick in processes.items():
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            continue  # it has ended
        try:
            if start_tick(pid) == tick:
                signal.pidfd_send_signal(fd, number)
        except OSError as error:
            complain(f"cannot send {number.name} to pid {pid}: {error}")
        finally:
            os.close(fd)
