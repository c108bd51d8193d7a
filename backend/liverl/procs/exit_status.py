"""Exit status of processes that are not our children, where the kernel reports it."""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from liverl.model import Exit

# linux/pidfd.h: PIDFD_GET_INFO = _IOWR(0xFF, 11, struct pidfd_info), 64 bytes in its first version. The exit
# code is its last field, available since Linux 6.15 once the process has been reaped.
_GET_INFO = 0xC040FF0B
_INFO_EXIT = 1 << 3
_INFO_SIZE = 64


def of_status(status: int) -> Exit:
    """Convert a wait status (as from ``os.waitpid``) to an ``Exit``."""
    if os.WIFSIGNALED(status):
        return Exit(signal=os.WTERMSIG(status))
    return Exit(code=os.WEXITSTATUS(status))


def kernel_exit(pidfd: int) -> Exit | None:
    """Return the exit status of a reaped process from its pidfd; None if the kernel does not report one
    (yet).

    Raises:
        OSError: ``pidfd`` is not valid.
    """
    buffer = bytearray(struct.pack("<Q", _INFO_EXIT) + bytes(_INFO_SIZE - 8))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, buffer)
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EINVAL, errno.ESRCH, errno.EOPNOTSUPP):
            return None
        raise
    (mask,) = struct.unpack_from("<Q", buffer, 0)
    if not mask & _INFO_EXIT:
        return None
    (status,) = struct.unpack_from("<i", buffer, 60)
    return of_status(status)
