"""Inference engines, one folder each: how a replica is started, and how its log and its metrics are read.

A folder holds only data and pure functions of configuration keys, so ``config``, ``plan``, ``observe`` and ``serving``
can all import it. To add an engine, add a folder with an ``ENGINE``, and its name in the import and in ``ENGINES``
below; no other module names an engine.
"""

from __future__ import annotations

from typing import NamedTuple

from liverl.engines import embedded, sglang, vllm
from liverl.engines.adapter.boot import BootLog
from liverl.engines.adapter.engine import Engine
from liverl.engines.adapter.metrics import MetricNames

__all__ = ["ENGINES", "WATCHED", "Engine", "Watched", "boot_log", "engine_names"]

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (embedded.ENGINE, vllm.ENGINE)}


class Watched(NamedTuple):
    """A server that somebody else started. ``title``: in sentences; ``health``: the path that tells whether it is well,
    and makes it generate nothing."""

    title: str
    metrics: MetricNames
    health: str


# SGLang's /health may generate a token, which a server that its trainer has put to sleep must not.
WATCHED = {
    "vllm": Watched("vLLM", vllm.ENGINE.metrics, "/health"),
    "sglang": Watched("SGLang", sglang.METRICS, "/v1/models"),
}


def engine_names() -> tuple[str, ...]:
    """The values of ``run.engine``, in the order of ``ENGINES``."""
    return tuple(ENGINES)


def boot_log(name: str) -> BootLog | None:
    """The boot log with this name (``ServiceSpec.stage_parser``); None if no engine has it."""
    return next((engine.boot for engine in ENGINES.values() if engine.boot.name == name), None)
