"""How many replicas a launch script has. Its configuration may not say it, or say it of another layout. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from liverl.verl.discovery.assess import Other, Rank
from liverl.verl.discovery.names import Engine, parse_name


def highest_found(ranks: Iterable[Rank], others: Iterable[Other], engine: Engine = "vllm") -> int:
    """Number of ranks up to the highest one that Ray has listed an actor for: verl numbers them from 0."""
    numbers = [rank.rank for rank in ranks if rank.incarnation]
    for other in others:
        name = parse_name(other.name)
        if name is not None and name.counted and name.engine == engine:
            numbers.append(name.rank)
    return max(numbers, default=-1) + 1


def replica_count(configured: int, found: int, printed: int, *, generated: bool) -> int:
    """The number of replicas to expect.

    ``configured``: what the keys that the user gave amount to, 0 = they do not say. ``found``: see ``highest_found``.
    ``printed``: addresses that verl has printed, which it does once all of its replicas serve. ``generated``: a step of
    the training has ended, so its replicas were complete.
    """
    if printed:
        return printed
    if generated and found:
        return found
    return max(configured, found)
