"""One step in rows of seconds and one share each, for the screen and for text alike. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from liverl.diagnose.where.parts import GENERATE
from liverl.diagnose.where.rollouts import KINDS, QUEUE

OF_STEP, OF_TRIALS = "of the step", "of the time in which trials ran"
SPLIT = "generate, by what its trials waited for as they ran"


class SplitRow(NamedTuple):
    """``share``: 0..1, of what ``Split.of`` says; ``inside``: it is what trials waited for, a piece of generate."""

    what: str
    seconds: float | None
    share: float | None
    inside: bool


class Split(NamedTuple):
    """``of``: what all shares of ``rows`` are of; ``queue``: of all of the trials' time what they waited before they
    ran, 0..1, which is no piece of the step; None: not known."""

    of: str
    rows: tuple[SplitRow, ...]
    queue: float | None

    @property
    def queue_words(self) -> str:
        """``29 % of the trials' time, before they ran``; "" if it is not known."""
        return "" if self.queue is None else f"{100 * self.queue:.0f} % of the trials' time, before they ran"


def split(parts: Mapping[str, float], seconds: float | None, waits: Mapping[str, float]) -> Split:
    """The parts of a step, and generate once more by what its trials waited for as they ran. Those waits are sums over
    trials that ran side by side: of generate they have the share that they have of these sums. Of a step whose parts
    are not known these shares stand alone."""
    whole = seconds or sum(parts.values())
    every = sum(waits.values())
    queue = waits[QUEUE] / every if QUEUE in waits and every > 0.0 else None
    return Split(OF_STEP if parts else OF_TRIALS, tuple(_rows(parts, whole, waits)), queue)


def _rows(parts: Mapping[str, float], whole: float, waits: Mapping[str, float]) -> Iterator[SplitRow]:
    ran = {what: waits[what] for what in (*KINDS, *waits) if what != QUEUE and waits.get(what, 0.0) > 0.0}
    for part, seconds in parts.items():
        yield SplitRow(part, seconds, seconds / whole if whole else None, False)
        if part == GENERATE:
            for what, one in ran.items():
                took = seconds * one / sum(ran.values())
                yield SplitRow(what, took, took / whole if whole else None, True)
    if not parts:
        for what, one in ran.items():
            yield SplitRow(what, None, one / sum(ran.values()), True)
