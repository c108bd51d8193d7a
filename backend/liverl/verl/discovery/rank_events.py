"""What is new about a rank, as sentences of the run's story. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.model import Level
from liverl.verl.discovery.assess import Rank

_ORDER = ("missing", "pending", "alive", "addressed", "healthy")


def changes(old: Rank, new: Rank, age: float) -> Iterator[tuple[str, Level]]:
    """Every step from ``old`` to ``new``, also those that lie between two looks; ``age``: seconds since the
    replica is waited for."""
    who = f"replica {new.rank}"
    replaced = old.incarnation != new.incarnation
    if replaced and new.generation > 1:
        # One that was waited for is good news, one in the place of a living one is not.
        awaited = old.stage in ("missing", "lost", "dead")
        yield f"{who}: new actor, generation {new.generation}", "info" if awaited else "warning"
    if new.stage in ("dead", "lost"):
        if replaced or old.stage != new.stage:
            yield f"{who}: {new.why}", "error" if new.stage == "dead" else "warning"
        return
    reached = _ORDER.index(new.stage)
    begun = -1 if replaced or old.stage not in _ORDER else _ORDER.index(old.stage)
    if new.stage == "pending" and (begun != reached or old.actor_state != new.actor_state):
        yield f"{who}: actor {new.why}", "info"
    if reached >= 2 > begun:
        yield f"{who}: actor ALIVE, pid {new.pid or 'unknown'}", "info"
    if reached >= 3 > begun:
        yield f"{who}: address {new.address}", "info"
    if reached == 4 > begun:
        yield f"{who}: healthy after {age:.0f} s", "info"
    elif begun == 4 > reached:
        yield f"{who}: no longer healthy: {new.why}", "warning"
