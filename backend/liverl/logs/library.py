"""The log files of one run, as documents: they grow, are replaced, and get new generations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.logs.document import Chain, Merged
from liverl.logs.files import LogFile, history
from liverl.logs.segment import Segment

if TYPE_CHECKING:
    from liverl.rundir.layout import RunDir

KEPT_OPEN = (
    2  # newest generations of a service that may still grow: a replaced proxy drains beside its successor
)
ROTATED = 4  # files that were moved away under us and stay readable, per service


class Library:
    """Chains of segments by service. ``refresh`` finds files, ``look`` sees how far they are."""

    def __init__(self) -> None:
        self._chains: dict[str, Chain] = {}
        self._merged = Merged()

    def chain(self, service: str) -> Chain:
        """A service's logs; empty where it has none yet."""
        return self._chains.setdefault(service, Chain())

    @property
    def services(self) -> list[str]:
        """Those that have written something."""
        return [name for name, chain in self._chains.items() if any(s.size for s in chain.segments)]

    def merged(self, services: Iterable[str]) -> Merged:
        """Some services' logs by time. The same object as long as the files are the same."""
        segments = [segment for name in services for segment in self.chain(name).segments]
        if segments != self._merged.segments:
            self._merged = Merged(segments)
        return self._merged

    def refresh(self, run: RunDir, current: Mapping[str, Path], now: float) -> None:
        """Look for new files: those in the run's directory, and the ``current`` one of each service."""
        files = history(run)
        for service, path in current.items():
            known = files.setdefault(service, [])
            if all(file.path != path for file in known):
                known.append(LogFile(service, 0, path))
        for service, known in files.items():
            self.add(service, known, now)
            self.look(self.chain(service), now)

    def add(self, service: str, files: Iterable[LogFile], now: float) -> None:
        """Have these files in a service's chain, oldest first."""
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
        """See how far the files of a chain are; a file in the place of another one comes behind it."""
        for segment in [s for s in chain.segments if s.live or s.moved]:
            if segment.look(now) == "replaced":
                segment.moved = True
                segment.look(now)
                fresh = Segment(segment.path, segment.service, segment.generation)
                fresh.times.reset()  # what the index says is about the old one
                chain.segments.insert(chain.segments.index(segment) + 1, fresh)
                fresh.look(now)
        rotated = [segment for segment in chain.segments if segment.moved]
        for segment in rotated[:-ROTATED]:
            chain.segments.remove(segment)
            segment.close()

    def close(self) -> None:
        for chain in self._chains.values():
            for segment in chain.segments:
                segment.close()
