"""Earlier replies of the model that a changed history still has, and where they are in the ids of its prompt. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

import msgspec

from liverl.sessions.canonical import following
from liverl.sessions.messages import Message


class Span(msgspec.Struct, frozen=True, array_like=True):
    """The ids from ``begin`` up to ``end`` of a prompt."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        """The number of ids."""
        return self.end - self.begin


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a prompt has earlier replies, in their order, and how many more it has whose place was not found."""

    spans: tuple[Span, ...] = ()
    unplaced: int = 0


class Said(msgspec.Struct, frozen=True):
    """A reply that was sampled. ``digest``: of its message; ``last``: its last id."""

    digest: bytes
    last: int


class Candidate(msgspec.Struct, frozen=True):
    """Message ``index`` of a request is a reply that was sampled and that ended with the id ``last``."""

    index: int
    last: int


def reply_digest(message: Message) -> bytes:
    """Equal for a reply and for what a client makes of it in its history (see ``canonical``)."""
    return following(b"", message)


def candidates(messages: Sequence[Message], said: Iterable[Said]) -> list[Candidate]:
    """The messages that are replies in ``said``, of which each counts once: what an agent has written itself, or has
    repeated, was not sampled."""
    left: dict[bytes, deque[int]] = defaultdict(deque)
    for reply in said:
        left[reply.digest].append(reply.last)
    found = []
    for index, message in enumerate(messages):
        ends = left.get(reply_digest(message))
        if ends:
            found.append(Candidate(index, ends.popleft()))
    return found


def span_of(
    prompt: Sequence[int], before: Sequence[int], through: Sequence[int], stop: int, last: int
) -> Span | None:
    """Where a prompt has a reply; None if that cannot be said exactly.

    ``before``: ids of the messages before the reply, up to where it begins; ``through``: those of the messages with it,
    which end as the template ends a turn. Both must begin the prompt. ``stop``: the id that ends a reply in the
    template, which belongs to one that was sampled to its end: one whose ``last`` id it is.
    """
    begin, whole = len(before), list(through)
    if list(prompt[:begin]) != list(before) or list(prompt[: len(whole)]) != whole:
        return None
    ends = [position for position in range(begin, len(whole)) if whole[position] == stop]
    if not ends:
        return None
    end = ends[-1] + (last == stop)
    return Span(begin, end) if end > begin else None
