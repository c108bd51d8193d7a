"""From a trial's replies to one row of training tokens.

A row is ``prompt | reply | observation | reply | ...``. It may only hold what the engine really saw and sampled:
each turn's prompt must begin with everything before it, id by id. Where a chat template or a re-tokenisation
changed that prefix, the turns from there on were sampled from another text than the row would show. The row
then ends with the last turn that fits: all of it was sampled from exactly the tokens that stand before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """``mask`` is 1 for a sampled token, 0 for an observation; ``logprobs`` is 0.0 there, as in verl.

    ``response``, ``mask`` and ``logprobs`` are of one length, and the last token is a sampled one.
    """

    prompt: list[int]
    response: list[int]
    mask: list[int]
    logprobs: list[float]


@dataclass(frozen=True)
class Divergence:
    """A turn (counted from 0) whose prompt does not continue what went before."""

    turn: int
    position: int  # of the first id that differs
    expected: int  # ids that should have been found again


@dataclass
class Assembly:
    """Grows by one turn at a time."""

    divergences: list[Divergence] = field(default_factory=list)
    turns: int = 0
    turns_kept: int = 0  # that are in the row
    _prompt: list[int] = field(default_factory=list)
    _response: list[int] = field(default_factory=list)
    _mask: list[int] = field(default_factory=list)
    _logprobs: list[float] = field(default_factory=list)
    _last: list[int] = field(default_factory=list)  # the latest turn's prompt and reply

    @property
    def prompt_length(self) -> int:
        return len(self._prompt)

    @property
    def response_length(self) -> int:
        """Tokens of the row after its prompt, before any limit is applied."""
        return len(self._response)

    def add(self, prompt: Sequence[int], reply: Sequence[int], logprobs: Sequence[float]) -> None:
        """One turn: the ids that it was sampled from, the ids that were sampled, their log-probabilities.

        Raises ValueError if there is no prompt, no reply, or not one log-probability per sampled id.
        """
        if not prompt or not reply or len(reply) != len(logprobs):
            raise ValueError(f"{len(prompt)} prompt ids, {len(reply)} ids, {len(logprobs)} log-probabilities")
        turn, self.turns = self.turns, self.turns + 1
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

    def row(self, limit: int) -> Row | None:
        """At most ``limit`` tokens after the prompt; None if none of them was sampled."""
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
    """Length of the common beginning."""
    if list(other[: len(one)]) == list(one):  # nearly always, and fast
        return len(one)
    pairs = enumerate(zip(one, other))  # noqa: B905 (one may be longer)
    return next((position for position, (a, b) in pairs if a != b), min(len(one), len(other)))
