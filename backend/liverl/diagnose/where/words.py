"""Where the time of a step goes, in lines of plain text. Pure."""

from __future__ import annotations

from liverl.diagnose.where.parts import OTHER
from liverl.model import StepTime
from liverl.util.ages import step_length

_WORDS = {
    "generate": "rollouts",
    "model": "the model",
    "tool": "tools",
    "sandbox": "sandboxes",
    "verifier": "verifiers",
    "agent": "agents",
    "reward": "reward function",
    "log_probs": "log-probabilities",
    "update": "update",
    "weights": "weights",
    "checkpoint": "checkpoint",
    "validation": "validation",
}
SEEN = 0.01  # of a step: smaller parts are not named


def lines(time: StepTime) -> list[str]:
    """The shares of a step, which add up to all of it; the sentence of its bottleneck, if there is one; and what takes
    longer than before."""
    named = {
        _WORDS.get(part, part): round(100 * share)
        for part, share in time.shares.items()
        if share >= SEEN and part != OTHER
    }
    rest = 100 - sum(named.values())  # what has no name, what is small, and what medians do not add up to
    if rest > 0:
        named["the rest"] = rest
    shares = ", ".join(f"{name} {percent} %" for name, percent in named.items())
    of = "the newest step" if time.steps == 1 else f"the median of the newest {time.steps} steps"
    told = [f"a step takes {step_length(time.seconds)} ({of}): {shares}"]
    if time.bottleneck is not None:
        told.append(f"bottleneck: {time.bottleneck.sentence}")
    if time.slower:
        told.append(f"slower: {time.slower}")
    return told
