"""The file descriptors of this process, and what has arrived on a connection. Standard library only: see
``http_limits``."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import resource
import select
import struct
import termios
from collections.abc import Sequence
from typing import Any

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def descriptor_limit() -> int:
    """Return how many files this process may open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def open_descriptors(limit: int) -> int:
    """Return how many files this process has open; ``limit`` where no further one can be opened to count them."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError as error:
        return limit if error.errno in OUT_OF_DESCRIPTORS else 0


def unread(transport: Any) -> int:
    """Return how many bytes have arrived on a connection and were not read yet."""
    handle = transport.get_extra_info("socket")
    if handle is None or handle.fileno() < 0:
        return 0
    return int(struct.unpack("i", fcntl.ioctl(handle.fileno(), termios.FIONREAD, b"\0" * 4))[0])


_LONGEST_MS = (1 << 31) - 1  # what poll(2) takes: 24 days


def _milliseconds(seconds: float) -> int:
    return math.ceil(min(max(0.0, seconds) * 1000, _LONGEST_MS))


def readable(fds: Sequence[int], seconds: float | None) -> set[int]:
    """Return those of ``fds`` that can be read or have ended, as soon as there is one; none after ``seconds`` (None:
    no limit).

    By poll(2): select(2) refuses descriptors of 1024 and above, which a process with many connections has.

    Raises:
        ValueError: one of them is closed (negative).
    """
    watched = select.poll()
    for fd in fds:
        watched.register(fd, select.POLLIN)
    return {fd for fd, _ in watched.poll(None if seconds is None else _milliseconds(seconds))}
