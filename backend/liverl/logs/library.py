"""The log files of one run as documents; handles growth, replacement and new generations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.logs.document import Chain, Merged
from liverl.logs.files import LogFile, history
from liverl.logs.segment import Segment

if TYPE_CHECKING:
    from liverl.rundir.layout import RunDir

# Newest generations of a service that may still grow: a replaced proxy drains while its successor runs
KEPT_OPEN = 2
ROTATED = 4  # renamed or removed files that are kept readable, per service


class Library:
    """Chains of log files by service. ``refresh`` finds new files, ``look`` updates their sizes."""

    def __init__(self) -> None:
        self._chains: dict[str, Chain] = {}
        self._merged = Merged()

    def chain(self, service: str) -> Chain:
        """Return the logs of a service; empty if it has none yet."""
        return self._chains.setdefault(service, Chain())

    @property
    def services(self) -> list[str]:
        """Return the services that have logged something."""
        return [name for name, chain in self._chains.items() if any(s.size for s in chain.segments)]

    def merged(self, services: Iterable[str]) -> Merged:
        """Return the logs of several services merged by time. The same object as long as the files are the
        same."""
        segments = [segment for name in services for segment in self.chain(name).segments]
        if segments != self._merged.segments:
            self._merged = Merged(segments)
        return self._merged

    def refresh(self, run: RunDir, current: Mapping[str, Path], now: float) -> None:
        """Find new files: those in the run directory, and the ``current`` one of each service. ``now`` is
        Unix time."""
        files = history(run)
        for service, path in current.items():
            log_list = files.setdefault(service, [])
            if all(file.path != path for file in log_list):
                log_list.append(LogFile(service, 0, path))
        for service, log_list in files.items():
            self.add(service, log_list, now)
            self.look(self.chain(service), now)

    def add(self, service: str, files: Iterable[LogFile], now: float) -> None:
        """Add files to the chain of a service, oldest first. ``now`` is Unix time."""
        chain = self.chain(service)
        paths = {segment.path for segment in chain.segments}
        fresh = [Segment(f.path, service, f.generation) for f in files if f.path not in paths]
        if not fresh:
            return
        chain.segments += fresh
        for segment in chain.segments[:-KEPT_OPEN]:
            segment.live = False
            if not segment.moved:
                segment.close()
        for segment in fresh:
            segment.look(now)

    def look(self, chain: Chain, now: float) -> None:
        """Update the sizes of a chain's files; a file that replaced another one is appended. ``now`` is Unix
        time."""
        for segment in [s for s in chain.segments if s.live or s.moved]:
            if segment.look(now) == "replaced":
                segment.moved = True
                segment.look(now)
                fresh = Segment(segment.path, segment.service, segment.generation)
                fresh.times.reset()  # the index describes the old file
                chain.segments.insert(chain.segments.index(segment) + 1, fresh)
                fresh.look(now)
        rotated = [segment for segment in chain.segments if segment.moved]
        for segment in rotated[:-ROTATED]:
            chain.segments.remove(segment)
            segment.close()

    def close(self) -> None:
        """Close all files."""
        for chain in self._chains.values():
            for segment in chain.segments:
                segment.close()
