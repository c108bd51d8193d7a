"""Which processes use a file or directory, as far as ``/proc`` shows it to this user."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from liverl.procs import procfs
from liverl.util.kernel_file import read_kernel


def users_of(paths: Iterable[Path]) -> dict[Path, str]:
    """Of ``paths``, those that a living process uses, with the process or socket in words: one that names the path in
    its command line or works in it, that has a file below it open, or a Unix socket bound there. Of processes of other
    users only command lines and sockets can be seen.

    Raises:
        OSError: ``/proc`` cannot be read.
    """
    wanted = {os.fsencode(path): path for path in paths}
    found: dict[Path, str] = {}
    if not wanted:
        return found
    own = {os.getpid()}
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) in own:
            continue
        for part, path in wanted.items():
            if path not in found and any(_is_below(text, part) for text in _texts(int(name))):
                proc = procfs.read_proc(int(name))
                if proc is not None and not proc.zombie:
                    found[path] = f"pid {name} ({proc.comm})"
    for bound in _sockets():
        for part, path in wanted.items():
            if path not in found and _is_below(bound, part):
                found[path] = f"a process that has the socket {os.fsdecode(bound)}"
    return found


def _is_below(text: bytes, path: bytes) -> bool:
    """Whether ``text`` has ``path``, or a path below it."""
    at = text.find(path)
    while at >= 0:
        after = text[at + len(path) : at + len(path) + 1]
        if not after or not (after.isalnum() or after in b"._-"):
            return True
        at = text.find(path, at + 1)
    return False


def _texts(pid: int) -> Iterator[bytes]:
    folder = f"/proc/{pid}"
    try:
        yield read_kernel(f"{folder}/cmdline")
    except OSError:  # it has ended
        return
    links = [f"{folder}/cwd"]
    try:
        links += [f"{folder}/fd/{number}" for number in os.listdir(f"{folder}/fd")]
    except OSError:  # of another user
        return
    for link in links:
        try:
            yield os.fsencode(os.readlink(link))
        except OSError:  # closed meanwhile
            continue


def _sockets() -> Iterator[bytes]:
    """The paths of the Unix sockets that this network namespace has."""
    try:
        lines = read_kernel("/proc/net/unix").splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split(b" ", 7)
        path = line.rpartition(b" ")[2]
        if len(fields) == 8 and path.startswith(b"/"):
            yield path
