"""One request to the engine, and what was sampled for it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from liverl.agents.token_api import Span


@dataclass
class Request:
    """One generation. ``done`` is called once, in the engine's thread. With ``scored`` its whole prompt is computed,
    and ``scores`` are the log-probabilities of the prompt's ids behind the first one, at temperature 1 as in vLLM."""

    id: str
    prompt: list[int]
    max_tokens: int
    temperature: float
    done: Callable[[Request], None]
    seed: int | None = None
    scored: bool = False
    scores: list[float] | None = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[Span] = field(default_factory=list)  # of the weights that sampled ``tokens``
    finish: str = ""  # stop, length, abort; error with ``error`` set
    error: str = ""
    cached: int = 0  # prompt tokens reused from earlier requests
    arrived: float = field(default_factory=time.monotonic)
    admitted: float = 0.0
    first_token: float = 0.0
    rng: random.Random = field(default_factory=random.Random)

    def add(self, token: int, logprob: float, version: int | None) -> None:
        """Append a token that the weights with this version have sampled."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if self.versions and self.versions[-1].version == version:
            self.versions[-1].count += 1
        else:
            self.versions.append(Span(version, 1))
