"""The phases of a trial, and what it waits for, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from liverl.observe.trials.phases import AGENT, PHASES, REWARD, TOOL, beside_model
from liverl_tui.text.words import duration

WAITED = {
    "queue": "a place in the queue",
    "sandbox": "its sandbox",
    "model": "the model",
    "tool": "a tool",
    "reward": "its reward",
    "agent": "its agent",
    "verifier": "its verifier",
}
_REST = {
    TOOL: "tools",
    REWARD: "reward",
    AGENT: "its own work",
}  # of an agent's time, what is not the model's


def short_time(seconds: float | None) -> str:
    """``0.4s`` below ten seconds, else as ``duration``; ``-`` for None."""
    return f"{seconds:.1f}s" if seconds is not None and 0 <= seconds < 9.95 else duration(seconds)


def rest_word(kind: str, *, acted: bool = True) -> str:
    """What an agent's time besides the model's went to. ``kind``: of the agent; ``acted``: see ``acts_in``."""
    beside = beside_model(kind)
    return _REST[AGENT if beside == TOOL and not acted else beside]


def phase_words(
    seconds: Mapping[str, float], model_seconds: float | None, kind: str, *, acted: bool = True
) -> str:
    """``setup 8.1s, agent 30s (model 20s, tools 10s), verifier 3.0s``; "" if nothing is known.
    ``kind``: of its agent; ``acted``: whether it called a tool, or had a second turn."""
    words = []
    for phase in PHASES:
        if phase not in seconds:
            continue
        word = f"{phase} {short_time(seconds[phase])}"
        if phase == "agent" and model_seconds is not None:
            model = min(model_seconds, seconds[phase])
            word += f" (model {short_time(model)}, {rest_word(kind, acted=acted)} {short_time(seconds[phase] - model)})"
        words.append(word)
    return ", ".join(words)
