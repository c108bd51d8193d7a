"""The phases of a trial, and what it waits for, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from liverl.observe.trials.phases import PHASES, REWARD, TOOL, beside_model
from liverl_tui.text.words import duration

WAITED = {
    "queue": "a place in the queue",
    "sandbox": "its sandbox",
    "model": "the model",
    "tool": "a tool",
    "reward": "its reward",
    "agent": "its agent (model and tools)",
    "verifier": "its verifier",
}
_REST = {TOOL: "tools", REWARD: "reward"}  # of an agent's time, what is not the model's


def short_time(seconds: float | None) -> str:
    """``0.4s`` below ten seconds, else as ``duration``; ``-`` for None."""
    return f"{seconds:.1f}s" if seconds is not None and 0 <= seconds < 9.95 else duration(seconds)


def phase_words(seconds: Mapping[str, float], model_seconds: float | None, kind: str) -> str:
    """``setup 8.1s, agent 30s (model 20s, tools 10s), verifier 3.0s``; "" if nothing is known.
    ``kind``: of its agent."""
    words = []
    for phase in PHASES:
        if phase not in seconds:
            continue
        word = f"{phase} {short_time(seconds[phase])}"
        if phase == "agent" and model_seconds is not None:
            model = min(model_seconds, seconds[phase])
            word += f" (model {short_time(model)}, {_REST[beside_model(kind)]} {short_time(seconds[phase] - model)})"
        words.append(word)
    return ", ".join(words)
