"""File systems of a process's own, which end with it. All of this needs root."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 1 << 5, 1 << 12, 1 << 14, 1 << 18
CLONE_NEWNS, MNT_DETACH = 1 << 17, 2


def _libc(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def own_mounts() -> None:
    """Move this process to a mount namespace of its own, from which no mount gets out.

    Raises:
        OSError: it is not allowed to.
    """
    _libc("unshare", CLONE_NEWNS)
    keep_mounts_in()


def keep_mounts_in() -> None:
    """Let no mount out of the mount namespace that this process is in."""
    mount("none", "/", "none", MS_REC | MS_PRIVATE)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2)."""
    _libc("mount", source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode())


def unmount(target: Path) -> None:
    """umount2(2), also while the file system is in use."""
    _libc("umount2", os.fsencode(target), MNT_DETACH)


def fill(folder: Path) -> Path:
    """Leave not one free block in the file system of ``folder``; returns the file that has them all."""
    path = folder / "filler"
    with open(path, "ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    assert os.statvfs(folder).f_bavail == 0
    return path
