"""A process that stands still and cannot be continued by a signal, as one that waits for a disk."""

from __future__ import annotations

import contextlib
import ctypes
import os

import pytest

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17  # ptrace(2)
_WALL = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


class Frozen:
    """Stops a process by ptrace until ``let_go``, or until the thread that made this has ended. Skips the test where
    ptrace is not permitted."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        if _libc.ptrace(_SEIZE, pid, None, None) != 0:
            pytest.skip(f"ptrace of pid {pid} is not permitted: {os.strerror(ctypes.get_errno())}")
        assert _libc.ptrace(_INTERRUPT, pid, None, None) == 0, os.strerror(ctypes.get_errno())
        os.waitpid(pid, _WALL)

    def let_go(self) -> None:
        """Let the process go on."""
        assert _libc.ptrace(_DETACH, self.pid, None, None) == 0, os.strerror(ctypes.get_errno())

    def bury(self) -> None:
        """Take note of the process's end, which its parent is told only then."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, _WALL)
