"""``keeper.sock``: where clients connect, and who may."""

import contextlib
import os
import socket
import struct

from .connections import MAX_CLIENTS, Connections
from .descriptors import Reserve
from .faults import Faults, complain

PATH = "keeper.sock"  # in the run directory, the working directory
ACCEPTS = 64  # connections accepted before the clients are served again; less than MAX_CLIENTS


def bind() -> socket.socket:
    """Bind the socket in the working directory.

    Raises:
        SystemExit: another keeper serves this directory (code 3).
        OSError: the directory cannot be written.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if answered(PATH):
        complain("another keeper is already running for this run")
        raise SystemExit(3)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(PATH)
    old_umask = os.umask(0o177)
    sock.bind(PATH)
    os.umask(old_umask)
    sock.listen(MAX_CLIENTS)
    sock.setblocking(False)
    return sock


def unbind() -> None:
    """Remove the socket's file, if there is still one."""
    if os.path.exists(PATH):
        os.unlink(PATH)


def answered(path: str) -> bool:
    """Whether a process listens on the socket ``path``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True  # as many connections wait for it as its socket holds
        except OSError:
            return False
        return True


def accept(server: socket.socket, connections: Connections, reserve: Reserve, faults: Faults) -> None:
    """Accept some of the connections that wait: those of this user and of root."""
    for _ in range(ACCEPTS):
        try:
            sock, _ = reserve.use(server.accept)
        except BlockingIOError:
            return
        except OSError as error:
            faults.report(error)
            return
        pid, uid = peer(sock)
        if uid not in (0, os.geteuid()) or not connections.make_room(pid):
            sock.close()
            continue
        connections.add(sock, pid)
        reserve.fill()


def peer(sock: socket.socket) -> tuple[int, int]:
    """pid and uid of the process at the other end; the pid is 0 where it cannot be seen from this pid namespace."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return pid, uid
