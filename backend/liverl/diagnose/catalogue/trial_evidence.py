"""Trials as evidence: one of each kind of end, with how many ended like it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from liverl.diagnose.tracker import SHOWN
from liverl.model import Evidence, TrialHead
from liverl.util.plural import quantity

_WORDS = 100  # characters of a reason that are told


def by_reason(heads: Iterable[TrialHead]) -> tuple[Evidence, ...]:
    """``trials/step_0003/sums-7-1f: AgentFailedError: the agent exited with 3 (8 trials)``: the most frequent end
    first, each by its newest trial. What a program printed last is not part of it: it differs from trial to trial."""
    found: dict[str, list[TrialHead]] = {}
    for head in heads:
        found.setdefault(_reason(head), []).append(head)
    order = sorted(found.items(), key=lambda item: -len(item[1]))[:SHOWN]
    return tuple(Evidence(_words(reason, alike), value=len(alike)) for reason, alike in order)


def _reason(head: TrialHead) -> str:
    """The kind of its exception and the first of its words; else what its agent ended by."""
    kind, colon, words = head.failure.partition(": ")
    first = words.partition(": ")[0]
    return f"{kind}{colon}{first}" if head.failure else head.ended_by or ""


def _words(reason: str, alike: list[TrialHead]) -> str:
    told = reason if len(reason) <= _WORDS else f"{reason[:_WORDS]}…"
    many = f" ({quantity(len(alike), 'trial')})" if len(alike) > 1 else ""
    return f"{alike[0].path}{f': {told}' if told else ''}{many}"
