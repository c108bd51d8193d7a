"""Where the time of a step goes, in lines of plain text. Pure."""

from __future__ import annotations

from liverl.model import StepTime

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
    "other": "other",
}
SEEN = 0.01  # of a step: smaller parts are not named


def lines(time: StepTime) -> list[str]:
    """The shares of a step; the sentence of its bottleneck, if there is one; and what takes longer than before."""
    shares = ", ".join(
        f"{_WORDS.get(part, part)} {100 * share:.0f} %"
        for part, share in time.shares.items()
        if share >= SEEN
    )
    of = "the newest step" if time.steps == 1 else f"the median of the newest {time.steps} steps"
    told = [f"a step takes {time.seconds:.3g} s ({of}): {shares}"]
    if time.bottleneck is not None:
        told.append(f"bottleneck: {time.bottleneck.sentence}")
    if time.slower:
        told.append(f"slower: {time.slower}")
    return told
