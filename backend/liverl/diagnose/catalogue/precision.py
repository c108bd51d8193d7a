"""Cascade attention as a cause of wrong probabilities: the three conditions of verl's FAQ, weighed. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from liverl.diagnose.catalogue.course import latest
from liverl.diagnose.tracker import Window

# verl's FAQ: Hopper is not affected; A100, L20 and B200 are.
_HOPPER = re.compile(r"\bG?H(20|100|200|800)\b")
# vLLM with issue 22103. The FAQ says that v0.10.2, the newest version then, has no fix yet.
AFFECTED = (0, 10, 2)
# Tokens of prompt and response that count as long. The FAQ gives no number; cascade attention is used for prompts that
# many requests share, as those of agents with tools are.
LONG = 4096.0
_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
CHANGE = "verl.disable_cascade_attn: true"


class Weighed(NamedTuple):
    """``against``: the conditions that do not hold, as clauses; ``known``: those that hold; the rest is not known."""

    against: tuple[str, ...]
    known: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def fix(self) -> str:
        """What to do about cascade attention, ending in ``; ``; empty where it cannot be the cause."""
        if self.against:
            return ""
        if not self.unknown:
            return f"set {CHANGE} ({', '.join(self.known)}); otherwise "
        return f"set {CHANGE} if {' and '.join(self.unknown)}; otherwise "


def weigh(window: Window) -> Weighed:
    """The three conditions of the FAQ: the architecture of the GPUs, the version of vLLM, the length of the texts. All
    must hold."""
    against, known, unknown = [], [], []
    names = sorted({gpu.name for gpu in window.now.gpus})
    if not names:
        unknown.append("the GPUs are not Hopper")
    elif all(_HOPPER.search(name) for name in names):
        against.append(f"the GPUs are Hopper ({', '.join(names)})")
    else:
        known.append(f"the GPUs are {', '.join(names)}")
    versions = [(text, numbers) for text in window.beside.engine_versions if (numbers := _numbers(text))]
    if not versions:
        unknown.append("vLLM is 0.10.2 or older")
    elif all(numbers > AFFECTED for _, numbers in versions):
        against.append(f"vLLM is {_listed(versions)}")
    else:
        known.append(f"vLLM is {_listed(versions)}")
    length = _length(window)
    if length is None:
        unknown.append("the texts are long")
    elif length < LONG:
        against.append(f"texts have {length:.0f} tokens")
    else:
        known.append(f"texts have {length:.0f} tokens")
    return Weighed(tuple(against), tuple(known), tuple(unknown))


def _numbers(version: str) -> tuple[int, ...]:
    match = _NUMBERS.match(version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def _listed(versions: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    return " and ".join(sorted({text for text, _ in versions}))


def _length(window: Window) -> float | None:
    """Mean tokens of prompt and response in the newest step; None if it does not report both."""
    recent = window.beside.recent
    prompt, response = latest(recent, "prompt_length/mean"), latest(recent, "response_length/mean")
    return None if prompt is None or response is None else prompt + response
