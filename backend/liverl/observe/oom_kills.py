"""Whether the kernel's OOM killer has ended a process lately: the usual reason of a SIGKILL that nobody sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

RECENT_S = 30.0  # seconds after which an OOM kill no longer explains a SIGKILL
_KEY = "oom_kill "


def counter_files(cgroup: str) -> list[Path]:
    """The files that may count OOM kills, the narrowest first: of this process's control group, then of the host.
    ``cgroup``: the content of ``/proc/self/cgroup``."""
    files = []
    for line in cgroup.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            files.append(Path(f"/sys/fs/cgroup{path}/memory.events"))
        elif "memory" in controllers.split(","):
            files.append(Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control"))
    return [*files, Path("/proc/vmstat")]


class OomKills:
    """Counts OOM kills since it was made. ``files``: where the kernel counts them; the first that does is used."""

    def __init__(
        self, files: Iterable[Path] | None = None, read: Callable[[Path], str] = Path.read_text
    ) -> None:
        self._read = read
        if files is None:
            files = counter_files(self._text(Path("/proc/self/cgroup")))
        self._file = next((file for file in files if _count(self._text(file)) is not None), None)
        self._count = self._look()
        self._at: float | None = None  # when the counter was seen to have grown

    def evidence(self, now: float) -> str:
        """What shows that the OOM killer ended a process within the last ``RECENT_S`` seconds; empty if nothing does.
        ``now``: Unix time. Call it every few seconds: an older kill than the call before is not told apart."""
        count = self._look()
        if count > self._count:
            self._count, self._at = count, now
        if self._at is None or now - self._at > RECENT_S:
            return ""
        return f"oom_kill in {self._file} has risen to {self._count}"

    def _look(self) -> int:
        return (_count(self._text(self._file)) or 0) if self._file is not None else 0

    def _text(self, file: Path) -> str:
        try:
            return self._read(file)
        except OSError:
            return ""


def _count(text: str) -> int | None:
    line = next((line for line in text.splitlines() if line.startswith(_KEY)), None)
    return int(line.removeprefix(_KEY)) if line is not None else None
