"""Trials that lists and counts leave out, as another one stands in their place, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from liverl.model import TrialHead
from liverl.util.plural import quantity


class Earlier(NamedTuple):
    """How many are left out. ``trials``: of an earlier attempt of the run at their step, which was begun again after
    them; ``tries``: that were run again themselves, as another trial of the same step."""

    trials: int = 0
    tries: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.trials + self.tries

    @property
    def parts(self) -> tuple[str, ...]:
        """``464 earlier tries of these trials`` and ``16 trials of an earlier attempt``, those that there are."""
        tries = f"{quantity(self.tries, 'earlier try', 'earlier tries')} of these trials"
        trials = f"{quantity(self.trials, 'trial')} of an earlier attempt"
        return (*((tries,) if self.tries else ()), *((trials,) if self.trials else ()))

    @property
    def words(self) -> str:
        """``parts`` in one text; "" where nothing is left out."""
        return " and ".join(self.parts)

    @property
    def short(self) -> str:
        """``464 earlier tries, 16 of an earlier attempt``, where it is clear that trials are meant; "" for none."""
        tries = quantity(self.tries, "earlier try", "earlier tries")
        parts = (
            *((tries,) if self.tries else ()),
            *((f"{self.trials:,} of an earlier attempt",) if self.trials else ()),
        )
        return ", ".join(parts)


def counted(total: int, tries: int) -> Earlier:
    """Out of the number of all that are left out, and of those of them that were run again themselves."""
    return Earlier(max(0, total - tries), min(tries, total))


def earlier_of(heads: Iterable[TrialHead]) -> Earlier:
    """Those among ``heads``."""
    gone = [head.repeated for head in heads if head.earlier]
    return counted(len(gone), sum(gone))
