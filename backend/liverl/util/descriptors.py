"""The file descriptors of this process, and what has arrived on a connection. Standard library only: see
``http_limits``."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import struct
import termios
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
