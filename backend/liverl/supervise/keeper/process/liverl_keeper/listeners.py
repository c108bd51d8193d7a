"""Listening sockets that the keeper holds, so that a port stays bound while its service is replaced."""

import os
import socket
import stat

from .descriptors import Reserve
from .messages import MAX_NAME

BACKLOG = 2048  # connections that wait for a proxy to accept them; the kernel caps it at net.core.somaxconn


class Listeners:
    """Listening TCP sockets by name."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve
        self._sockets: dict[str, socket.socket] = {}

    def ports(self) -> dict[str, int]:
        """The port of each."""
        return {name: self._port(name) for name in self._sockets}

    def fd(self, name: str) -> int:
        """The descriptor of a socket, which stays the keeper's. Raises KeyError if there is none of this name."""
        return self._sockets[name].fileno()

    def duplicate(self, name: str) -> int:
        """Another descriptor of a socket. Raises KeyError if there is none of this name, OSError as ``dup``."""
        fd = self.fd(name)
        return self._reserve.use(lambda: os.dup(fd))

    def listen(self, name: str, host: str, port: object) -> int:
        """Listen on an address, unless there is a socket of this name. Returns its port.

        Raises:
            ValueError: the host is no numeric address, or the port is none.
            OSError: the address cannot be bound; it is named.
        """
        if name not in self._sockets:
            if not isinstance(port, int) or not 0 <= port <= 65535:
                raise ValueError(f"port: expected a number from 0 to 65535, found {str(port)[:MAX_NAME]}")
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            if not numeric(family, host):  # a name would be looked up, which can take minutes
                raise ValueError(f"host: expected an IP address such as 127.0.0.1, found {host[:MAX_NAME]!r}")
            sock = self._reserve.use(lambda: socket.socket(family, socket.SOCK_STREAM))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((host, port))
                sock.listen(BACKLOG)
            except OSError as error:
                sock.close()
                raise OSError(error.errno, f"{host}:{port}: {os.strerror(error.errno or 0)}") from None
            self._sockets[name] = sock
        return self._port(name)

    def adopt(self, name: str, fd: int) -> int:
        """Take over a descriptor, and return the port of the socket of this name. The descriptor is closed if there is
        one of this name already, or if it is no listening TCP socket; that raises ValueError."""
        if not listens(fd):
            os.close(fd)
            raise ValueError("the descriptor is not a listening TCP socket")
        sock = socket.socket(fileno=fd)
        if name in self._sockets:
            sock.close()
        else:
            self._sockets[name] = sock
        return self._port(name)

    def close(self, name: str) -> None:
        """Close a socket, if there is one of this name."""
        sock = self._sockets.pop(name, None)
        if sock is not None:
            sock.close()

    def _port(self, name: str) -> int:
        number: int = self._sockets[name].getsockname()[1]
        return number


def numeric(family: int, host: str) -> bool:
    """Whether ``host`` is an address of the family, not a name."""
    try:
        socket.inet_pton(family, host)
    except (OSError, ValueError):
        return False
    return True


def listens(fd: int) -> bool:
    """Whether a descriptor is a listening TCP socket."""
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return False
    with socket.socket(fileno=os.dup(fd)) as sock:
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
            return False
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
