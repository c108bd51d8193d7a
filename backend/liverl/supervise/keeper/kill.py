"""Kills all processes of a run at once, without its backend."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from pathlib import Path

from liverl.procs import procfs
from liverl.rundir.layout import LiveBackend
from liverl.util.checked_path import open_folder
from liverl.util.decode import decode_json

ANSWER_S = 1.0  # seconds for the keeper's answer, which needs a look at /proc only


def kill_backend(alive: LiveBackend) -> bool:
    """Kill the process of a backend, and no other; whether it was there."""
    pid, tick = alive.record.pid, alive.record.tick
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not procfs.alive(pid, tick):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def kill_services(run_dir: Path) -> int | None:
    """Have the keeper of the run send SIGKILL to every process of its services; return their number. None if it does
    not answer, is another user's, or is of a version that does not know the request: a backend must do it then."""
    directory = open_folder(run_dir)
    try:
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as sock:
            sock.settimeout(ANSWER_S)
            sock.connect(f"/proc/self/fd/{directory}/keeper.sock")
            size = struct.calcsize("3i")
            _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
            if uid not in (os.geteuid(), 0):
                return None
            sock.sendall(b'{"id": 1, "do": "kill"}\n')
            with sock.makefile("rb") as answers:
                for line in answers:
                    answer = decode_json(line)
                    if answer.get("id") == 1:  # exits of services may come before it
                        killed = answer.get("killed")
                        return killed if isinstance(killed, int) else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(directory)
    return None
