"""What a case of the fault table is, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a fault did to a run.

    ``lost``: processes that nobody supervises any more; ``doubled``: services that ran twice at the same time;
    ``leaked``: processes, keys or bytes that were left behind or went where they must not;
    ``unstoppable``: runs that ``stop`` could not end; ``named_s``: seconds until the run named the fault, in
    an event, an alert or its answer to whoever caused it; None if there was nothing to name.
    """

    lost: int = 0
    doubled: int = 0
    unstoppable: int = 0
    leaked: int = 0
    named_s: float | None = None
    note: str = ""

    @property
    def survived(self) -> bool:
        """Whether nothing was lost, doubled, leaked or unstoppable."""
        return not (self.lost or self.doubled or self.unstoppable or self.leaked)


@dataclass(frozen=True)
class Part:
    """One of the faults that share a run. ``problem``: why it could not be tried, or harm that ``Outcome`` has no
    number for."""

    name: str
    outcome: Outcome = Outcome()
    problem: str = ""


@dataclass(frozen=True)
class Case:
    """One fault. ``run`` gets a fresh directory; it raises if the fault could not be tried, or did harm that
    ``Outcome`` has no number for."""

    name: str
    run: Callable[[Path], Outcome]


@dataclass(frozen=True)
class Shared:
    """Many faults on one run, so that they are cheap. ``run`` gets a fresh directory and returns what came of each; it
    raises if none could be tried. ``count``: how many there are at least; fewer is a failure."""

    name: str
    run: Callable[[Path], list[Part]]
    count: int
