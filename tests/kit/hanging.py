"""Files of a storage that does not answer: whoever opens one waits in the kernel, as for a network file system."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_CLOEXEC, _NONBLOCK, _CLASS_CONTENT = 1, 2, 4  # fanotify_init(2)
_ADD, _OPEN_PERM, _AT_FDCWD = 1, 0x10000, -100  # fanotify_mark(2)
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def hanging(*paths: Path) -> Iterator[None]:
    """Inside the ``with`` block every process that opens one of these files waits for ever; afterwards it goes on.
    Skips the test where the kernel does not permit that (it needs root)."""
    fd = _libc.fanotify_init(_CLASS_CONTENT | _CLOEXEC | _NONBLOCK, os.O_RDONLY)
    if fd < 0:
        pytest.skip(f"fanotify is not permitted: {os.strerror(ctypes.get_errno())}")
    try:
        for path in paths:
            mask = ctypes.c_uint64(_OPEN_PERM)
            if _libc.fanotify_mark(fd, _ADD, mask, _AT_FDCWD, os.fsencode(path)) != 0:
                pytest.skip(f"fanotify does not hold up opens here: {os.strerror(ctypes.get_errno())}")
        yield
    finally:
        os.close(fd)


def waiting_openers(pid: int) -> list[int]:
    """The threads of a process that wait for such a file."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            if (task / "wchan").read_text() == "fanotify_handle_event":
                found.append(int(task.name))
        except OSError:
            continue  # it has ended
    return found
