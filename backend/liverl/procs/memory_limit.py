"""How much memory this process and those beside it may use, and do: the limit of their control group, as containers,
Slurm and Kubernetes set it. Beyond it the kernel kills, however much memory the host has left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
_RECLAIMED = "inactive_file "  # bytes of files in memory, which the kernel drops before it kills


class MemoryUse(NamedTuple):
    """Bytes in use, and the bytes at which the kernel kills."""

    used: int
    total: int


class MemoryLimit:
    """Reads the limit of this process's control group (version 2). ``read``: reads a file of the kernel."""

    def __init__(self, root: Path = ROOT, read: Callable[[Path], str] = Path.read_text) -> None:
        self._read = read
        self._groups = tuple(self._above(root))

    def look(self) -> MemoryUse | None:
        """The use and the limit of that group, of the ones that this process is in, which has least left; None where no
        group has a limit, or it cannot be read."""
        found = [use for group in self._groups if (use := self._use(group)) is not None]
        return min(found, key=lambda use: use.total - use.used, default=None)

    def _above(self, root: Path) -> Iterator[Path]:
        """The group of this process and those around it, the narrowest first."""
        lines = self._text(Path("/proc/self/cgroup")).splitlines()
        path = next((line[3:] for line in lines if line.startswith("0::")), None)
        if path is None:
            return
        group = root / path.lstrip("/")
        while group != root and root in group.parents:
            yield group
            group = group.parent
        yield root  # in a container with a namespace of its own, the root is its group

    def _use(self, group: Path) -> MemoryUse | None:
        limit, used = self._text(group / "memory.max").strip(), self._text(group / "memory.current").strip()
        if not limit.isdecimal() or not used.isdecimal():
            return None
        stat = self._text(group / "memory.stat").splitlines()
        dropped = next((line.removeprefix(_RECLAIMED) for line in stat if line.startswith(_RECLAIMED)), "0")
        return MemoryUse(max(0, int(used) - int(dropped)), int(limit))

    def _text(self, file: Path) -> str:
        try:
            return self._read(file)
        except (OSError, ValueError):
            return ""
