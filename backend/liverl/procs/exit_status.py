"""The exit status of a process that is not our child, as far as the kernel tells it."""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from liverl.model import Exit

# linux/pidfd.h: PIDFD_GET_INFO = _IOWR(0xFF, 11, struct pidfd_info), first version of 64 bytes; the exit
# code is its last field and is there since Linux 6.15, once the process has been reaped.
_GET_INFO = 0xC040FF0B
_INFO_EXIT = 1 << 3
_INFO_SIZE = 64


def of_status(status: int) -> Exit:
    """A wait status (``os.waitpid``'s) as an exit."""
    if os.WIFSIGNALED(status):
        return Exit(signal=os.WTERMSIG(status))
    return Exit(code=os.WEXITSTATUS(status))


def kernel_exit(pidfd: int) -> Exit | None:
    """What the kernel tells of a reaped process; None as long as (or where) it tells nothing."""
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
