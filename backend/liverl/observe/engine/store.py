"""Holds the last engine facts of all replicas of a run; no other place keeps them."""

from __future__ import annotations

from msgspec.structs import replace

from liverl.engines.adapter.metrics import MetricNames
from liverl.model import EngineFacts
from liverl.observe.engine.metrics import EngineMeter, MetricsParser

NOTHING = EngineFacts()
STALE_S = 10.0  # seconds without an answer from which on figures are no more those of now; engines are busy for some
_LOOKS = 3  # in a row that fail, where these are further apart


class EngineStore:
    """Engine facts by the name of the replica. ``metrics``: their names."""

    def __init__(self, metrics: MetricNames) -> None:
        self._metrics = metrics
        self._facts: dict[str, EngineFacts] = {}
        self._readers: dict[str, tuple[MetricsParser, EngineMeter]] = {}
        self._at: dict[str, float] = {}  # when each answered last, seconds, monotonic

    def scraped(self, name: str, at: float, text: str) -> EngineFacts:
        """Store and return the facts in ``text``, the replica's ``/metrics`` at time ``at`` (seconds, monotonic)."""
        if name not in self._readers:
            self._readers[name] = (MetricsParser(self._metrics), EngineMeter())
        parser, meter = self._readers[name]
        self._at[name] = at
        facts = self._facts[name] = meter.update(at, parser.parse(text))
        return facts

    def get(self, name: str) -> EngineFacts | None:
        """Return the last facts of a replica; None if it has not answered since it serves."""
        return self._facts.get(name)

    def known(self, name: str) -> EngineFacts:
        """Like ``get``, but facts that are all None instead of None."""
        return self._facts.get(name, NOTHING)

    def current(self, name: str, now: float, interval: float) -> EngineFacts:
        """Like ``known``, without figures of a moment that is past: of a replica that no longer answers, as its process
        is stopped or hangs. ``now``: seconds, monotonic; ``interval``: between two looks. Its weights are those that it
        had: it cannot have got others."""
        facts = self.known(name)
        if now - self._at.get(name, now) <= max(STALE_S, _LOOKS * interval):
            return facts
        return replace(facts.lasting(), policy_version=facts.policy_version)

    def all(self) -> dict[str, EngineFacts]:
        """Return a copy of the facts of all replicas that have answered."""
        return dict(self._facts)

    def forget(self, name: str) -> None:
        """Drop a replica that no longer serves: the next process of this name has other weights and counters."""
        self._facts.pop(name, None)
        self._readers.pop(name, None)
        self._at.pop(name, None)
