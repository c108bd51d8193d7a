"""Holds the last engine facts of all replicas of a run; no other place keeps them."""

from __future__ import annotations

from liverl.engines.adapter.metrics import MetricNames
from liverl.model import EngineFacts
from liverl.observe.engine.metrics import EngineMeter, parse_engine_metrics

NOTHING = EngineFacts()


class EngineStore:
    """Engine facts by the name of the replica. ``metrics``: their names."""

    def __init__(self, metrics: MetricNames) -> None:
        self._metrics = metrics
        self._facts: dict[str, EngineFacts] = {}
        self._meters: dict[str, EngineMeter] = {}

    def scraped(self, name: str, at: float, text: str) -> EngineFacts:
        """Store and return the facts in ``text``, the replica's ``/metrics`` at time ``at`` (seconds, monotonic)."""
        facts = parse_engine_metrics(text, self._metrics)
        self._facts[name] = self._meters.setdefault(name, EngineMeter()).update(at, facts)
        return self._facts[name]

    def get(self, name: str) -> EngineFacts | None:
        """Return the last facts of a replica; None if it has not answered since it serves."""
        return self._facts.get(name)

    def known(self, name: str) -> EngineFacts:
        """Like ``get``, but facts that are all None instead of None."""
        return self._facts.get(name, NOTHING)

    def all(self) -> dict[str, EngineFacts]:
        """Return a copy of the facts of all replicas that have answered."""
        return dict(self._facts)

    def forget(self, name: str) -> None:
        """Drop a replica that no longer serves: the next process of this name has other weights and counters."""
        self._facts.pop(name, None)
        self._meters.pop(name, None)
