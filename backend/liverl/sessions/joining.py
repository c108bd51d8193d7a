"""Which requests share a reply. Equal ones are different samples, unless one is sent again: an agent that asks several
times at once wants several replies, and a client that got none wants the one that was sampled for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from liverl.sessions.state import Unreceived
from liverl.sessions.wire import Answer


class Client:
    """A request that waits for a reply. ``closed``: whether its connection has closed."""

    def __init__(self, closed: Callable[[], bool]) -> None:
        self._closed = closed
        self.left = False  # it got an error, or waits no longer

    @property
    def gone(self) -> bool:
        """Whether the reply cannot reach it."""
        return self.left or self._closed()


class Sample:
    """A reply that is being sampled (``task``), or was recorded and has not been received (``kept``). ``clients``: the
    requests for it."""

    def __init__(self, kept: Unreceived | None = None) -> None:
        self.clients: list[Client] = []
        self.task: asyncio.Task[Answer] | None = None
        self.kept = kept

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for it."""
        return all(client.gone for client in self.clients)


class Samples:
    """The replies of one session that somebody may still wait for, by the digest of their request."""

    def __init__(self) -> None:
        self._samples: dict[bytes, list[Sample]] = {}

    def add(self, digest: bytes, sample: Sample) -> None:
        """A reply that begins to be sampled."""
        self._samples.setdefault(digest, []).append(sample)

    def join(self, digest: bytes, retry: bool, unreceived: Sequence[Unreceived]) -> Sample | None:
        """The reply to an equal request that nobody waits for any more; for a ``retry`` also one that somebody seems to
        wait for, as it may not be known yet that a connection has closed. None: the request is a new one.

        ``unreceived``: all that was recorded, some of it by the service before it was started again.
        """
        samples = [*self._samples.get(digest, ())]
        known = {id(sample.kept) for sample in samples}
        for kept in unreceived:
            if id(kept) not in known:
                samples.append(Sample(kept))
                self.add(digest, samples[-1])
        abandoned = next((sample for sample in samples if sample.abandoned), None)
        return abandoned if abandoned is not None or not retry else next(iter(samples), None)

    def forget(self, digest: bytes, sample: Sample) -> None:
        """A reply that failed."""
        samples = self._samples.get(digest, [])
        if sample in samples:
            samples.remove(sample)
        if not samples:
            self._samples.pop(digest, None)

    def received(self, digest: bytes, answer: str) -> None:
        """A client has received the reply with the id ``answer`` ("": any)."""
        for sample in self._samples.get(digest, ()):
            if sample.kept is not None and answer in ("", sample.kept.recorded.answer.id):
                self.forget(digest, sample)
                return
