"""Reads what the kernel tells in /proc, /sys and cgroups: no user can put a link or a FIFO there."""

from __future__ import annotations

import os

_FROM = ("/proc/", "/sys/")


def read_kernel(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file below ``/proc`` or ``/sys``.

    Raises:
        ValueError: the path is elsewhere.
        OSError: it cannot be read; the process that it is about may have ended.
    """
    name = os.fspath(path)
    if not os.path.normpath(name).startswith(_FROM):
        raise ValueError(f"{name} is not below {' or '.join(_FROM)}")
    with open(name, "rb") as file:
        return file.read()


def kernel_text(path: str | os.PathLike[str]) -> str:
    """``read_kernel`` as text; bytes that are no UTF-8, as a process may have in its name, are replaced."""
    return read_kernel(path).decode("utf-8", "replace")
