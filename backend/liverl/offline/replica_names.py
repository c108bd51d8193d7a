"""The names of a run's replicas, also of those of verl's that have ended or were started again: these have no address
any more, or another one than trials have recorded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from liverl.control.history import read_events
from liverl.model import Snapshot
from liverl.observe.trials.replica_names import addresses_told, replica_names


def names_of(state: Snapshot | None) -> Mapping[str, str]:
    """Root address -> name of each replica; empty without a state. Blocking, once for each end of a replica of
    verl's."""
    if state is None:
        return {}
    names = replica_names(state.services, state.replicas)
    gone = tuple(
        (one.name, one.generation)
        for one in state.replicas.items
        if one.kind == "verl" and (not one.address or one.generation > 1)
    )
    return {**_told(state.run_dir, gone), **names} if gone else names


@lru_cache(16)
def _told(run_dir: str, gone: tuple[tuple[str, int], ...]) -> Mapping[str, str]:
    """``gone``: what has ended so far; the events tell no other address of these any more."""
    return addresses_told(read_events(Path(run_dir)))
