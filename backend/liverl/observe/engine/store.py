"""What the engines of a run's replicas said last: the only place where it is kept."""

from __future__ import annotations

from liverl.engines import Engine
from liverl.model import EngineFacts
from liverl.observe.engine.metrics import EngineMeter, parse_engine_metrics

NOTHING = EngineFacts()


class EngineStore:
    """By the replica's name. ``engine``: which one serves, and so how its metrics are called."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._facts: dict[str, EngineFacts] = {}
        self._meters: dict[str, EngineMeter] = {}

    def scraped(self, name: str, at: float, text: str) -> EngineFacts:
        """Take in what ``/metrics`` of a replica answered at ``at`` (seconds of a clock that only grows)."""
        facts = parse_engine_metrics(text, self._engine.metrics)
        self._facts[name] = self._meters.setdefault(name, EngineMeter()).update(at, facts)
        return self._facts[name]

    def get(self, name: str) -> EngineFacts | None:
        """None: it has not answered since it serves."""
        return self._facts.get(name)

    def known(self, name: str) -> EngineFacts:
        """As ``get``, where nothing known will do."""
        return self._facts.get(name, NOTHING)

    def all(self) -> dict[str, EngineFacts]:
        """Of every replica that has answered, as it is now."""
        return dict(self._facts)

    def forget(self, name: str) -> None:
        """It does not serve any more: what serves next under this name has weights and counters of its own."""
        self._facts.pop(name, None)
        self._meters.pop(name, None)
