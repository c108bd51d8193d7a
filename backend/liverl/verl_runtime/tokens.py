"""Rows of training tokens, and how the replies of a trial through LiteLLM become one.

A row is ``prompt | reply | observation | reply | ...`` and may only contain what the engine actually received
and sampled: the prompt of each turn must begin with everything before it, id by id. If a chat template or
re-tokenization changed that prefix, later turns were sampled from a different text than the row would show.
The row then ends with the last matching turn: all of it was sampled from exactly the preceding tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """``mask`` is 1 for a sampled token, 0 for an observation; ``logprobs`` is 0.0 there, as in verl.

    ``response``, ``mask`` and ``logprobs`` have the same length, and the last token is a sampled one. ``kind``: of
    which conversation it is (``liverl.sessions.segments.Kind``); ``versions``: the lowest and the highest version of
    the weights that sampled it, None if the engine does not say.
    """

    prompt: list[int]
    response: list[int]
    mask: list[int]
    logprobs: list[float]
    kind: str = "main"
    versions: tuple[int, int] | None = None

    @property
    def turns(self) -> int:
        """Sampled replies: runs of sampled tokens, as something is always given between two replies."""
        before = [0, *self.mask]
        return sum(bit and not last for bit, last in zip(self.mask, before))  # noqa: B905 (3.10: before is longer)


@dataclass(frozen=True)
class Divergence:
    """A turn (counted from 0) whose prompt does not continue the previous ones."""

    turn: int
    position: int  # index of the first id that differs
    expected: int  # number of ids that should have been the same


@dataclass
class Assembly:
    """Builds the row of a trial turn by turn."""

    divergences: list[Divergence] = field(default_factory=list)
    turns: int = 0
    turns_kept: int = 0  # number of turns in the row
    sampled: int = 0  # tokens of all replies
    _prompt: list[int] = field(default_factory=list)
    _response: list[int] = field(default_factory=list)
    _mask: list[int] = field(default_factory=list)
    _logprobs: list[float] = field(default_factory=list)
    _last: list[int] = field(default_factory=list)  # prompt and reply of the latest turn

    @property
    def prompt_length(self) -> int:
        """Tokens of the first prompt."""
        return len(self._prompt)

    @property
    def response_length(self) -> int:
        """Tokens of the row after its prompt, before any limit is applied."""
        return len(self._response)

    def add(self, prompt: Sequence[int], reply: Sequence[int], logprobs: Sequence[float]) -> None:
        """Add one turn: prompt ids, sampled ids, and their log-probabilities.

        Raises:
            ValueError: the prompt or reply is empty, or the number of log-probabilities differs from
                that of sampled ids.
        """
        if not prompt or not reply or len(reply) != len(logprobs):
            raise ValueError(f"{len(prompt)} prompt ids, {len(reply)} ids, {len(logprobs)} log-probabilities")
        turn, self.turns = self.turns, self.turns + 1
        self.sampled += len(reply)
        if turn == 0:
            self._prompt = list(prompt)
        else:
            shared = _shared(self._last, prompt)
            if shared < len(self._last):
                self.divergences.append(Divergence(turn, shared, len(self._last)))
            elif not self.divergences:
                self._extend(prompt[shared:], 0, [0.0] * (len(prompt) - shared))
        if not self.divergences:
            self._extend(reply, 1, logprobs)
            self.turns_kept += 1
        self._last = [*prompt, *reply]

    @property
    def kept(self) -> int:
        """Sampled tokens that continue those before them, before any limit is applied."""
        return sum(self._mask)

    def row(self, limit: int) -> Row | None:
        """Return the row with at most ``limit`` tokens after the prompt; None if none of them was sampled."""
        mask = self._mask[:limit]
        end = max((position for position, bit in enumerate(mask) if bit), default=-1) + 1
        if not end:
            return None
        return Row(list(self._prompt), self._response[:end], mask[:end], self._logprobs[:end])

    def _extend(self, ids: Sequence[int], bit: int, logprobs: Sequence[float]) -> None:
        self._response.extend(ids)
        self._mask.extend([bit] * len(ids))
        self._logprobs.extend(logprobs)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix."""
    if list(other[: len(one)]) == list(one):  # the usual case, and fast
        return len(one)
    pairs = enumerate(zip(one, other))  # noqa: B905 (one may be longer)
    return next((position for position, (a, b) in pairs if a != b), min(len(one), len(other)))
