"""Symptoms over time: what is new, what goes on, what is over. A condition that comes and goes within its rule's
``linger`` is one symptom; one that does not last for ``hold`` is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from liverl.model import Cause, Level, Snapshot, Symptom

GOING = ("starting", "running")  # states of a run in which its services should be up
FEWEST = 4  # trials from which a share means something
SHOWN = 8  # pieces of evidence
_RANK = {"info": 0, "warning": 1, "critical": 2}
LEVELS: dict[str, Level] = {"info": "info", "warning": "warning", "critical": "error"}


class Resolved(NamedTuple):
    """It is known that this symptom has ended: it must not linger."""

    id: str


class RunContext(msgspec.Struct, frozen=True):
    """What rules need and a snapshot does not hold. ``disk_free``: bytes where the run is written; ``causes``: the
    telling line of a failed service's log; ``aliases``: the models that agents may ask for; ``unwanted``: services
    that somebody stopped."""

    disk_free: int | None = None
    causes: Mapping[str, Cause] = {}
    aliases: tuple[str, ...] = ()
    unwanted: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Window:
    """What a rule looks at. ``before``: the snapshot of the look before this one."""

    now: Snapshot
    before: Snapshot | None
    beside: RunContext


Evaluate = Callable[[Window], Iterator[Symptom | Resolved]]


@dataclass(frozen=True)
class Rule:
    """``hold``: seconds for which it must hold before it is told; ``linger``: seconds for which it must not hold
    before it counts as over."""

    look: Evaluate
    hold: float = 0.0
    linger: float = 30.0


class SymptomChange(NamedTuple):
    """``worse``: told before, and more severe now."""

    what: Literal["new", "worse", "cleared"]
    symptom: Symptom


@dataclass
class _Case:
    symptom: Symptom
    rule: Rule
    first: float  # when it was found first ...
    last: float | None  # ... and last; None: an earlier backend found it
    told: int = -1  # rank of the severity that was told; -1: none was


_TAKEN_OVER = Rule(lambda _: iter(()), linger=60.0)  # until its own rule finds it again


class Diagnosis:
    """The symptoms of a run, look by look. ``known``: what an earlier backend had told already."""

    def __init__(self, rules: Sequence[Rule], known: Iterable[Symptom] = ()) -> None:
        self.symptoms: tuple[Symptom, ...] = ()  # the most severe first, then the oldest
        self._rules = rules
        self._cases: dict[str, _Case] = {
            s.id: _Case(s, _TAKEN_OVER, s.since or 0.0, None, _RANK[s.severity]) for s in known
        }
        self._before: Snapshot | None = None

    def update(self, now: Snapshot, beside: RunContext) -> list[SymptomChange]:
        """One look at the run; returns what is to be told."""
        seen, at = Window(now, self._before, beside), now.at
        self._before = now
        over: set[str] = set()
        for rule in self._rules:
            for found in rule.look(seen):
                if isinstance(found, Resolved):
                    over.add(found.id)
                else:
                    self._found(found, rule, at)
        news: list[SymptomChange] = []
        for name, case in list(self._cases.items()):
            case.last = at if case.last is None else case.last
            gone = at - case.last
            if name in over or gone > (case.rule.linger if case.told >= 0 else 0.0):
                del self._cases[name]
                if case.told >= 0:
                    news.append(SymptomChange("cleared", case.symptom))
            elif gone == 0.0 and at - case.first >= case.rule.hold:
                rank = _RANK[case.symptom.severity]
                if rank > case.told:
                    news.append(SymptomChange("new" if case.told < 0 else "worse", case.symptom))
                    case.told = rank
        shown = [case.symptom for case in self._cases.values() if case.told >= 0]
        self.symptoms = tuple(sorted(shown, key=lambda s: (-_RANK[s.severity], s.since or 0.0, s.id)))
        return news

    def _found(self, symptom: Symptom, rule: Rule, at: float) -> None:
        case = self._cases.get(symptom.id)
        if case is None:
            first = symptom.since if symptom.since is not None else at
            case = self._cases[symptom.id] = _Case(symptom, rule, first, at)
        case.rule = rule
        case.symptom = msgspec.structs.replace(symptom, since=case.first)
        case.last = at


def words(news: SymptomChange, now: float) -> tuple[str, Level]:
    """One line for the run's story."""
    symptom = news.symptom
    if news.what == "cleared":
        minutes, seconds = divmod(int(now - (symptom.since or now)), 60)
        return f"cleared after {minutes}m{seconds:02}s: {symptom.title}", "info"
    return f"{symptom.title}: {symptom.cause}", LEVELS[symptom.severity]
