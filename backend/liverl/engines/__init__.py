"""Inference engines, one folder each: how a replica is started, and how its log and its metrics are read.

A folder holds data and pure functions of configuration keys, no more, so this room stands below ``config``, ``plan``,
``observe`` and ``serving``, which all ask it. A new engine is a folder with an ``ENGINE`` and its name in the two lines
below; nothing else names an engine.
"""

from __future__ import annotations

from liverl.engines import embedded, vllm
from liverl.engines.adapter.boot import BootLog
from liverl.engines.adapter.engine import Engine

__all__ = ["ENGINES", "Engine", "boot_log", "engine_names"]

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (embedded.ENGINE, vllm.ENGINE)}


def engine_names() -> tuple[str, ...]:
    """The values that run.engine takes."""
    return tuple(ENGINES)


def boot_log(name: str) -> BootLog | None:
    """The boot log of that name; None if no engine prints it."""
    return next((engine.boot for engine in ENGINES.values() if engine.boot.name == name), None)
