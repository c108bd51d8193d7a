"""What the sessions report: numbers for the snapshot, and an event when something was lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from liverl.model import Level, TokenRoute
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.clocks import Moment, boot_id

AGAIN_S = 60.0  # seconds between two events about the same counter


class _Sentences:
    """About one request, and about several."""

    def __init__(self, level: Level, one: str, several: str) -> None:
        self.level, self._one, self._several = level, one, several

    def about(self, number: int, trial: str | None) -> str:
        """``trial``: that of the last of them, if it is known."""
        of = (
            ""
            if trial is None
            else f" (trial {trial})"
            if number == 1
            else f" (the last one in trial {trial})"
        )
        return (self._one if number == 1 else f"{number} {self._several}") + of


_SENTENCES = {
    "parse_failed": _Sentences(
        "warning",
        "the tool parser failed on two replicas; the reply's text was given to the agent as it is",
        "replies: the tool parser failed on two replicas; their text was given to the agents as it is",
    ),
    "poisoned": _Sentences(
        "error",
        "a request was refused with poison_request: replicas died while they sampled its reply; its trial fails",
        "requests were refused with poison_request: replicas died while they sampled their replies; their trials fail",
    ),
    "journal_cut": _Sentences(
        "warning",
        "the journal of a session was damaged; the session goes on without the turns from the damaged line on",
        "journals of sessions were damaged; the sessions go on without the turns from the damaged lines on",
    ),
    "journal_rewritten": _Sentences(
        "warning",
        "the journal of a session was removed or changed by somebody; it was written anew from memory",
        "times the journal of a session was removed or changed by somebody; it was written anew from memory",
    ),
    "journal_unreadable": _Sentences(
        "error",
        "the journal of a session cannot be read; its trial fails (the log of the sessions names the file)",
        "journals of sessions cannot be read; their trials fail (the log of the sessions names the files)",
    ),
    "replica_lost": _Sentences(
        "warning",
        "no replica answered a request within session_proxy.patience; it was refused",
        "requests: no replica answered within session_proxy.patience; they were refused",
    ),
}


def doubted_words(route: TokenRoute) -> str:
    """What became of the turns that were in question; "" if there were none."""
    parts = []
    if route.doubted:
        parts.append(f"{route.doubted} turns of open trials are not trained")
    if route.ended:
        parts.append(f"{route.ended} turns of trials that had ended may be trained")
    return f"; {', '.join(parts)}" if parts else ""


class SessionEvents:
    """Writes an event when one of these counters has grown."""

    def __init__(self, supervisor: Supervisor, service: str) -> None:
        """``service``: whose sessions they are."""
        self._supervisor, self._service = supervisor, service
        self._counted: dict[str, dict[str, int]] = {}  # who reports -> counter -> its largest value so far
        self._growth: dict[str, int] = {}  # counter -> what no event has told yet
        self._told_at: dict[str, float] = {}
        self._last: dict[str, str] = {}  # counter -> trial
        self._differ: set[tuple[str, str, str]] = set()  # who reports, model, first difference: what was told
        self._adopted = False

    def adopted(self) -> None:
        """An earlier backend of this attempt has told what the first reports say."""
        self._adopted = True

    def take(self, reports: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over the newest reports, by who reports: ``counters``, each of which may begin anew with another
        process; ``last``, which need not be there: counter -> trial in which it grew last."""
        for who, report in reports.items():
            counters, last = report.get("counters"), report.get("last")
            known = self._counted.setdefault(who, {})
            for name in _SENTENCES:
                value = counters.get(name, 0) if isinstance(counters, dict) else 0
                if not isinstance(value, int) or value <= (before := known.get(name, 0)):
                    continue
                known[name] = value
                if not self._adopted:
                    self._growth[name] = self._growth.get(name, 0) + value - before
                    if isinstance(last, dict) and isinstance(last.get(name), str):
                        self._last[name] = last[name]
            self._take_differences(who, report.get("tokenizers"))
        if any(reports.values()):
            self._adopted = False
        self._tell()

    def _take_differences(self, who: str, routes: Any) -> None:
        """An event when the tokens of a model were seen to differ. ``routes``: of ``TokenRoute``s; anything else is
        passed over."""
        try:
            given = msgspec.convert(routes or (), tuple[TokenRoute, ...])
        except msgspec.ValidationError:
            return
        for route in given:
            key = (who, route.model, route.differs)
            if not route.differs or key in self._differ:
                continue
            self._differ.add(key)
            if not self._adopted:
                text = f"{route.model}: the sessions' tokens of a prompt differ from the replica's, "
                text += "which makes them again: "
                level: Level = "warning" if route.doubted or route.ended else "info"
                self._supervisor.say(
                    "sessions",
                    f"{text}{route.differs}{doubted_words(route)}",
                    level,
                    self._service,
                    model=route.model,
                    doubted=route.doubted,
                    ended=route.ended,
                )

    def _tell(self) -> None:
        now = self._supervisor.now()
        for name in list(self._growth):
            if now - self._told_at.get(name, float("-inf")) >= AGAIN_S:
                number, self._told_at[name] = self._growth.pop(name), now
                sentence, trial = _SENTENCES[name], self._last.pop(name, None)
                text = sentence.about(number, trial)
                more = {"trial": trial} if trial is not None else {}
                say: Callable[..., Any] = self._supervisor.say
                say("sessions", text, sentence.level, self._service, counter=name, number=number, **more)


def with_numbers(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report with those of its counters that are numbers: others, such as counts by name, are of the trials."""
    counters = report.get("counters")
    if not isinstance(counters, dict):
        return dict(report)
    return {**report, "counters": {k: v for k, v in counters.items() if isinstance(v, int | float)}}


_WITH_MOMENTS = ("silent", "process_ends")


def with_moments(report: Mapping[str, Any], now: float) -> dict[str, Any]:
    """A report whose silent sessions are silent, and whose processes have ended, since times on the clock of ``now``
    (Unix seconds of the backend), as far as its process runs on this host: the system's clock may have been set
    since."""
    lists = {name: report[name] for name in _WITH_MOMENTS if isinstance(report.get(name), list)}
    return {**report, **{name: [_on_our_clock(each, now) for each in lists[name]] for name in lists}}


def _on_our_clock(told: Any, now: float) -> Any:
    try:
        at = msgspec.convert(told["at"], Moment)
    except (KeyError, TypeError, msgspec.ValidationError):
        return told
    return {**told, "since": now - at.passed()} if at.boot == boot_id() else told
