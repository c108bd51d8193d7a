"""Changes of a rank as texts of the run's events. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.model import Level
from liverl.observe.trials.replica_names import reported
from liverl.verl.discovery.assess import Rank

_ORDER = ("missing", "pending", "alive", "addressed", "healthy")


def changes(old: Rank, new: Rank, age: float) -> Iterator[tuple[str, Level]]:
    """(text, level) of every stage from ``old`` to ``new``, also of those that were passed between two looks. ``age``:
    seconds for which the replica has been waited for."""
    who = f"replica {new.rank}"
    replaced = old.incarnation != new.incarnation
    if replaced and new.generation > 1:
        # A replacement for a lost actor is expected, one for a living actor is not.
        awaited = old.stage in ("missing", "lost", "dead")
        yield f"{who} has a new actor (generation {new.generation})", "info" if awaited else "warning"
    if new.stage in ("dead", "lost"):
        if replaced or old.stage != new.stage:
            state = "is" if new.stage == "dead" else "is lost:"
            yield f"{who} {state} {new.why}", "error" if new.stage == "dead" else "warning"
        return
    reached = _ORDER.index(new.stage)
    begun = -1 if replaced or old.stage not in _ORDER else _ORDER.index(old.stage)
    if new.stage == "pending" and (begun != reached or old.actor_state != new.actor_state):
        yield f"{who} is {new.why}", "info"
    if reached >= 2 > begun:
        yield f"{who} is ALIVE (pid {new.pid or 'unknown'})", "info"
    if reached >= 3 > begun:
        yield reported(who, str(new.address)), "info"
    if reached == 4 > begun:
        yield f"{who} is healthy after {age:.0f} s", "info"
    elif begun == 4 > reached:
        yield f"{who} is no longer healthy: {new.why}", "warning"
