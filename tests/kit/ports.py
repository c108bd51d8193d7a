"""Ports for what a test starts. One that the kernel gave for port 0 goes, once it is let go of, to whoever asks next:
another test's server, or any connection of this machine. The kernel gives nobody those below its own range."""

from __future__ import annotations

import itertools
import os
import socket

FIRST, LAST = 21_000, 32_000  # below ``ip_local_port_range``, and beside the ports of Ray's workers
# Processes of tests begin far from each other.
_next = itertools.count(os.getpid() * 97)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that this process has not handed out before.

    Raises:
        OSError: none is free.
    """
    for _ in range(LAST - FIRST):
        port = FIRST + next(_next) % (LAST - FIRST)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {FIRST} to {LAST} is free")


def free_ports(number: int) -> list[int]:
    """So many of them."""
    return [free_port() for _ in range(number)]
