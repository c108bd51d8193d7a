"""The reports of the processes of the service as one: what one process with all sessions would say."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from liverl.model import TokenRoute
from liverl.sessions.counters import Counters, together
from liverl.sessions.store import SILENT

Facts = Mapping[str, Any]
_SUMS = ("open", "finished", "waiting", "queued")
_OF_CLIENTS = ("connections", "without_key", "dropped", "turned_away")
_ROUTES = ("replicas", "checking", "sessions")  # the worst first


def merged_facts(every: Sequence[Facts]) -> dict[str, Any]:
    """What ``GET /sessions`` says: numbers of sessions, counters, and the replicas. ``last``: see ``LastOnes``."""
    facts: dict[str, Any] = {name: sum(each.get(name, 0) for each in every) for name in _SUMS}
    return {
        **facts,
        "silent": _silent(every),
        "counters": msgspec.to_builtins(_counters(every)),
        "last": {name: trial for each in every for name, trial in each.get("last", {}).items()},
        "replicas": max((each.get("replicas", 0) for each in every), default=0),
        "placed": dict(_added(each.get("placed", {}) for each in every)),
        "tokenizers": msgspec.to_builtins(_routes(every)),
    }


def merged_report(every: Sequence[Facts], before: Facts) -> dict[str, Any]:
    """The report of the whole service, without what the front says of itself. ``before``: the last one: a list of
    replicas counts as loaded once all processes have it."""
    digests = {each.get("config_sha", "") for each in every}
    error = next((each["error"] for each in every if each.get("error")), None)
    clients = [each["clients"] for each in every if each.get("clients")]
    return {
        "error": error,
        "config_sha": digests.pop() if len(digests) == 1 else before.get("config_sha", ""),
        "in_flight": sum(each.get("in_flight", 0) for each in every),
        "backends": list(dict.fromkeys(url for each in every for url in each.get("backends", ()))),
        **merged_facts(every),
        **({"clients": _clients(clients)} if clients else {}),
    }


def differences(every: Iterable[Facts]) -> dict[str, str]:
    """Model -> where our tokens of it were first seen to differ from the engine's."""
    found: dict[str, str] = {}
    for each in every:
        for route in each.get("tokenizers", ()):
            if route.get("differs"):
                found.setdefault(route["model"], route["differs"])
    return found


class LastOnes:
    """Which trial had each kind of trouble last: that of the process whose counter grew last."""

    def __init__(self) -> None:
        self._counted: dict[tuple[int, str], int] = {}
        self._last: dict[str, str] = {}

    def take(self, number: int, facts: Facts) -> dict[str, str]:
        """Take a report of process ``number``; return what is known now."""
        counters = facts.get("counters", {})
        for name, trial in facts.get("last", {}).items():
            count, known = counters.get(name, 0), self._counted.get((number, name), 0)
            if count > known or name not in self._last:
                self._last[name] = trial
            self._counted[number, name] = max(count, known)
        return dict(self._last)


class Totals:
    """What is counted, without a step back where a process dies: its successor finds in the journals most, but not all,
    of what it had counted. Kept in the front, so for one generation of the service."""

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}
        self._last: dict[int, _Counts] = {}  # what was said last, with what was lost
        self._lost: dict[int, _Counts] = {}

    def take(self, number: int, start: int, facts: Facts) -> dict[str, Any]:
        """Take what process ``number`` has said, which was started for the ``start``th time; return that with what its
        predecessors had counted beyond it."""
        counts = _counts(facts)
        if self._starts.get(number) != start:
            self._starts[number] = start
            before = self._last.get(number, {})
            self._lost[number] = {name: count - counts.get(name, 0) for name, count in before.items()}
        lost = {name: count for name, count in self._lost[number].items() if count > 0}
        self._last[number] = {name: counts.get(name, 0) + lost.get(name, 0) for name in {**counts, **lost}}
        return _with_counts(facts, self._last[number])


_Counts = dict[tuple[str, ...], float]  # by its place in a report
_ROUTE_COUNTS = ("prompts", "compared", "doubted", "ended")
_CLIENT_COUNTS = ("dropped", "turned_away")
_NOT_ADDED = ("min_global_steps", "max_global_steps")


def _counts(facts: Facts) -> _Counts:
    """All that only grows."""
    found: _Counts = {}
    for name, value in facts.get("counters", {}).items():
        if isinstance(value, Mapping):
            found |= {("counters", name, key): each for key, each in value.items()}
        elif name not in _NOT_ADDED:
            found["counters", name] = value
    for route in facts.get("tokenizers", ()):
        found |= {("tokenizers", route["model"], name): route.get(name, 0) for name in _ROUTE_COUNTS}
    clients = facts.get("clients") or {}
    return found | {("clients", name): clients[name] for name in _CLIENT_COUNTS if name in clients}


def _with_counts(facts: Facts, counts: _Counts) -> dict[str, Any]:
    """The same with other counts. Those of a model that it does not name yet are left out: it has no route."""
    counters = dict(facts.get("counters", {}))
    routes = {route["model"]: dict(route) for route in facts.get("tokenizers", ())}
    clients = dict(facts.get("clients") or {})
    for (kind, name, *key), count in counts.items():
        if kind == "counters" and key:
            counters[name] = {**counters.get(name, {}), key[0]: count}
        elif kind == "counters":
            counters[name] = count
        elif kind == "clients" and clients:
            clients[name] = count
        elif name in routes:
            routes[name][key[0]] = count
    changed = {"counters": counters, "tokenizers": list(routes.values()), "clients": clients}
    return {**facts, **{name: value for name, value in changed.items() if name in facts}}


def _counters(every: Sequence[Facts]) -> Counters:
    return together(msgspec.convert(each.get("counters", {}), Counters) for each in every)


def _added(several: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in several:
        total.update(each)
    return total


def _silent(every: Sequence[Facts]) -> list[dict[str, Any]]:
    """See ``Store.facts``: those that never had a request last."""
    silent = [one for each in every for one in each.get("silent", ())]
    return heapq.nsmallest(SILENT, silent, key=lambda one: (not one["begun"], one["since"], one["id"]))


def _routes(every: Sequence[Facts]) -> list[TokenRoute]:
    """Who makes the tokens of each model. A difference that not all processes know yet is not shown: the turns that it
    makes doubtful are not all counted."""
    models: dict[str, list[TokenRoute]] = {}
    for each in every:
        for route in msgspec.convert(each.get("tokenizers", ()), list[TokenRoute]):
            models.setdefault(route.model, []).append(route)
    return [_route(model, routes, len(every)) for model, routes in models.items()]


def _route(model: str, routes: Sequence[TokenRoute], processes: int) -> TokenRoute:
    worst = min(routes, key=lambda each: (_ROUTES.index(each.route), not each.differs))
    all_know = len(routes) == processes and all(each.differs for each in routes)
    total: Callable[[str], int] = lambda name: sum(getattr(each, name) for each in routes)  # noqa: E731
    return TokenRoute(
        model,
        worst.route,
        worst.why,
        worst.differs if all_know else "",
        prompts=total("prompts"),
        compared=total("compared"),
        doubted=total("doubted"),
        ended=total("ended"),
    )


def _clients(every: Sequence[Facts]) -> dict[str, Any]:
    """Connections of all processes; descriptors of the one that has the fewest left."""
    of_peer = _added({each["peer"]: each["of_peer"]} for each in every if each["peer"])
    dropped = _added(
        {each["dropped_peer"]: each["dropped_of_peer"]} for each in every if each["dropped_peer"]
    )
    peer, most = next(iter(of_peer.most_common(1)), ("", 0))
    blamed, closed = next(iter(dropped.most_common(1)), ("", 0))
    fullest = min(every, key=_left)
    return {
        **{name: sum(each[name] for each in every) for name in _OF_CLIENTS},
        "peer": peer,
        "of_peer": most,
        "dropped_peer": blamed,
        "dropped_of_peer": closed,
        "descriptors": fullest["descriptors"],
        "descriptor_limit": fullest["descriptor_limit"],
    }


def _left(clients: Facts) -> int:
    used, limit = clients.get("descriptors"), clients.get("descriptor_limit")
    return limit - used if used is not None and limit is not None else 1 << 62
