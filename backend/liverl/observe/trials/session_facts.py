"""What is known of a trial's session: its rows by kind, and what was counted. Pure.

While the trial runs, from the ``session`` of each record that the sessions write; at its end from the rows and counters
in ``proxy_trajectory.json``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from liverl.observe.trials.moments import finite, whole
from liverl.observe.trials.rows import read_rows
from liverl.sessions.joined_turns import MOST_SHARED

MOSTLY = 0.5  # share of the sampled tokens: from here on sub-agents have written most of a trial


class TurnSession(msgspec.Struct, frozen=True):
    """What the record of a turn says of its session. ``kind``: of the row that it belongs to; ``opens``: it is the
    first turn of that row; ``counters``: after it; ``shared``: how many messages of the turn ``after``, with its reply,
    its request begins with, None where the record has the whole request; ``offered``: whether its request offers tools,
    None: the record itself has them if so; ``late``: written at the session's end, without its request;
    ``overridden``, ``ignored``, ``refused``, ``refusal``: see ``SessionFacts``."""

    kind: str
    opens: bool
    counters: dict[str, int | float]
    shared: int | None = None
    after: str = ""
    offered: bool | None = None
    late: bool = False
    overridden: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def rewrites(self) -> int:
        """How many times the conversation was continued with a changed history so far."""
        return int(self.counters.get("rewrites", 0))


class SessionFacts(msgspec.Struct, frozen=True):
    """A trial's session. ``rows``: kind -> rows; ``sampled``: kind -> sampled tokens; ``counters``: see
    ``liverl.sessions.counters``, one that is missing is 0; ``faults``: rules that its rows break; ``flags``: what to
    call those; ``ended``: the rows are those that its end has written; ``overridden``: sampling parameters of which its
    clients asked for another value than the trainer's; ``ignored``: fields of their requests that had no effect;
    ``refused``: those for which requests were refused, and ``refusal``: what the newest such request was answered."""

    rows: dict[str, int] = {}
    sampled: dict[str, int] = {}
    counters: dict[str, int | float] = {}
    faults: tuple[str, ...] = ()
    ended: bool = False
    overridden: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    refusal: str = ""
    flags: tuple[str, ...] = ()

    @property
    def mostly_sub(self) -> bool:
        """Whether sub-agents have written more than ``MOSTLY`` of the sampled tokens."""
        return self.sampled.get("sub", 0) > MOSTLY * sum(self.sampled.values())


class SessionTally:
    """Takes the records of a trial in their order."""

    def __init__(self) -> None:
        self._last: TurnSession | None = None
        self._rows: Counter[str] = Counter()
        self._sampled: Counter[str] = Counter()

    def healed_by(self, turn: TurnSession) -> bool:
        """Whether a turn that is not added yet was healed: it counts one more than the turns before it."""
        before = 0 if self._last is None else self._last.counters.get("healed", 0)
        return not turn.late and turn.counters.get("healed", 0) > before

    def add(self, turn: TurnSession | None, tokens: int) -> None:
        """Count a turn with ``tokens`` sampled tokens; None: it went through no session."""
        if turn is not None:
            self._last = turn if self._last is None or not turn.late else self._last
            self._rows[turn.kind] += turn.opens
            self._sampled[turn.kind] += tokens

    @property
    def facts(self) -> SessionFacts | None:
        """The session so far; None if no turn went through one."""
        if self._last is None:
            return None
        last = self._last
        return SessionFacts(
            dict(self._rows),
            dict(self._sampled),
            last.counters,
            overridden=last.overridden,
            ignored=last.ignored,
            refused=last.refused,
            refusal=last.refusal,
        )


def turn_session(value: object) -> TurnSession | None:
    """The ``session`` of a record; None if it is none."""
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return None
    shared, after = value.get("shared"), value.get("after")
    known = isinstance(shared, int) and not isinstance(shared, bool) and 0 <= shared <= MOST_SHARED
    return TurnSession(
        value["kind"],
        value.get("opens") is True,
        _numbers(value.get("counters")),
        shared=shared if known else None,
        after=after if isinstance(after, str) else "",
        offered=isinstance(value.get("tools"), str) if known else None,
        late=value.get("late") is True,
        overridden=_names(value.get("counters"), "overridden"),
        ignored=_names(value.get("counters"), "ignored"),
        refused=_names(value.get("counters"), "refused"),
        refusal=_text(value.get("counters"), "refusal"),
    )


def document_session(document: Mapping[str, Any]) -> SessionFacts | None:
    """The session in a ``proxy_trajectory.json``; None if it has neither rows nor counters."""
    rows, counters = read_rows(document), _numbers(document.get("counters"))
    if not rows.kinds and not rows.faults and not counters:
        return None
    return SessionFacts(
        rows.kinds,
        rows.sampled,
        counters,
        rows.faults,
        ended=True,
        overridden=_names(document.get("counters"), "overridden"),
        ignored=_names(document.get("counters"), "ignored"),
        refused=_names(document.get("counters"), "refused"),
        refusal=_text(document.get("counters"), "refusal"),
        flags=rows.flags,
    )


def joined(running: SessionFacts | None, ended: SessionFacts | None) -> SessionFacts | None:
    """The session of a trial by its records and by its document, of which either may be missing. Rows that the end has
    not written, of kind ``hidden``, are those of the records; so is what was sampled, as rows may be cut."""
    if running is None or ended is None:
        return ended or running
    return SessionFacts(
        rows=ended.rows | {kind: n for kind, n in running.rows.items() if kind == "hidden"},
        sampled=running.sampled,
        counters=ended.counters or running.counters,
        faults=ended.faults,
        ended=True,
        overridden=ended.overridden or running.overridden,
        ignored=ended.ignored or running.ignored,
        refused=ended.refused or running.refused,
        refusal=ended.refusal or running.refusal,
        flags=ended.flags,
    )


def _names(counters: object, name: str) -> tuple[str, ...]:
    found = counters.get(name) if isinstance(counters, dict) else None
    return tuple(sorted(str(each) for each in found)) if isinstance(found, dict) else ()


def _text(counters: object, name: str) -> str:
    found = counters.get(name) if isinstance(counters, dict) else None
    return found if isinstance(found, str) else ""


def _numbers(value: object) -> dict[str, int | float]:
    if not isinstance(value, dict):
        return {}
    return {
        str(name): number
        for name, number in value.items()
        if whole(number) is not None or (isinstance(number, float) and finite(number) is not None)
    }
