"""What a key stands for whose value leaves the choice to others: ``null``, its trainer's default, or ``auto``. Pure.

Two runs of which one names that value and the other leaves it out train alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from liverl.config.carrier import agent_loop, carrier
from liverl.config.learning_rate import learning_rate
from liverl.config.schema import RunConfig

# Key -> what it is in a run. Keys that only a file, the model or the host decides have no row.
RESOLVED: Mapping[str, Callable[[RunConfig], Any]] = {
    "algorithm.learning_rate": learning_rate,
    "proxy.trials_through": carrier,
    "verl.agent_loop": agent_loop,
}
# A value that leaves the choice -> what is said of it behind the choice
_WORDS: Mapping[Any, str] = {None: "default", "auto": "auto"}


def in_effect(config: RunConfig, key: str, value: Any) -> Any:
    """What ``value`` of ``key`` stands for in this run; ``value`` itself where it says that."""
    return RESOLVED[key](config) if key in RESOLVED and value in _WORDS else value


def effect_words(config: RunConfig, key: str, value: Any) -> str:
    """``0.3 (default)``, ``sessions (auto)``; empty where ``value`` says it itself, or is of no such key."""
    if key not in RESOLVED or value not in _WORDS:
        return ""
    return f"{RESOLVED[key](config)} ({_WORDS[value]})"
