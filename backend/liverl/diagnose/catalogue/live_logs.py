"""Rules for the logs of services that run: requests that fail again and again, and what the catalogue of causes knows
of processes that go on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from liverl.causes.catalogue import by_id
from liverl.causes.finding import Explanation
from liverl.causes.match import Match
from liverl.causes.signature import Live, Signature
from liverl.causes.verdict.ray_shortage import ID as RAY_SHORTAGE
from liverl.causes.verdict.words import explained
from liverl.diagnose.catalogue.agents import calls_are_read, trials_failed, zero_tool_calls
from liverl.diagnose.catalogue.broken_policy import policy_broken
from liverl.diagnose.catalogue.course import tells
from liverl.diagnose.catalogue.metrics import updates_skipped
from liverl.diagnose.catalogue.ray_waits import actor_waits, group_waits
from liverl.diagnose.tracker import GOING, SHOWN, Resolved, Window
from liverl.engines.tool_formats import PARSER_KEY
from liverl.model import Evidence, ServiceStatus, Snapshot, Symptom
from liverl.observe.live_logs.facts import WINDOW_S, Complaint, FailedRequests, LiveLog, Sighting
from liverl.observe.live_logs.responses import nameless
from liverl.rundir.commands import run_option
from liverl.sessions.sampling import OVERFLOW, at_limit

ALIVE = ("starting", "ready", "degraded")
SERVING = ("ready", "degraded")
MANY = 5  # failed requests within ``FAILED_S``; fewer are slips of single agents
FAILED_S = 120.0  # seconds
SHARE = 0.05  # of all requests; a long conversation that no longer fits its context is usual below it
ENDED_S = 4.0  # seconds in which a process that fails has ended: it is no symptom of one that runs
SETTLED_S = 30.0  # seconds after the last start of a service in which others may not have reached it yet
PASSED_OVER = 1_000_000  # bytes within ``WINDOW_S`` that were not read; one burst leaves out less
RESTARTED_S = 120.0  # seconds in which a failure explains that others could not reach a service
# From when on a complaint is a symptom, where its row does not say it.
USUAL = {
    "critical": Live(3, 120.0),
    "warning": Live(5, 300.0, SHARE),
    "info": Live(20, 300.0),
}


class _Heard(NamedTuple):
    """A complaint that is a symptom. ``number``: how often it was seen within ``limits.within``."""

    service: ServiceStatus
    complaint: Complaint
    signature: Signature
    limits: Live
    number: int


def logged(window: Window) -> Iterator[Symptom | Resolved]:
    """The log of a service that runs has a line that the catalogue of causes explains, as often as its entry asks for.
    There is one alert for each entry and kind of service."""
    together: dict[tuple[str, str], list[_Heard]] = {}
    for heard in _heard(window):
        together.setdefault((heard.signature.id, heard.service.kind), []).append(heard)
    carried = {name for name, kind in together if kind == window.now.carrier}
    for (name, kind), all_of in together.items():
        if kind == "replica" and name in carried:
            continue  # the same requests, which the proxy reports of all replicas
        better = _FROM_BETTER_FACTS.get(all_of[0].signature.told_by)
        if better is not None and better(window):
            continue
        yield _logged(window, all_of)


def _tool_calls(window: Window) -> bool:
    calls_read = calls_are_read(window.now.trials.newest, window.now.started_at)
    return calls_read or _finds(zero_tool_calls, window) or tells(policy_broken, window)


def _finds(rule: Callable[[Window], Iterator[Symptom | Resolved]], window: Window) -> bool:
    return any(True for _ in rule(window))


# ``told_by`` of rows -> whether that alert, or what it looks at, tells it now
_FROM_BETTER_FACTS: dict[str, Callable[[Window], bool]] = {
    "zero_tool_calls": _tool_calls,
    RAY_SHORTAGE: lambda window: _finds(group_waits, window) or _finds(actor_waits, window),
    "metrics_not_finite": updates_skipped,
    "trials_failed": lambda window: _finds(trials_failed, window),
}


def _logged(window: Window, all_of: Sequence[_Heard]) -> Symptom:
    first = all_of[0]
    found = _explanation(first)
    others = f" and {len(all_of) - 1} more" if len(all_of) > 1 else ""
    command = f" Look with: {found.command}" if found.command else ""
    evidence = [
        *(_line(one.complaint.last) for one in all_of[:SHOWN]),
        *(_often(one.service.name, one.number, one.limits.within) for one in all_of),
    ]
    return Symptom(
        id=f"log:{first.signature.id}:{first.service.name}",
        severity=found.severity,
        title=f"{first.service.name}{others}: {found.title}",
        cause=found.cause or f"{first.service.name} wrote: {first.complaint.last.text}",
        fix=f"{found.fix}{command}",
        evidence=tuple(evidence[:SHOWN]),
        since=min(one.complaint.counted.times[0][0] for one in all_of),
        patch={key: value for key, value in found.patch.items() if not _set_already(window, key, value)},
    )


def _set_already(window: Window, key: str, value: str) -> bool:
    return key == PARSER_KEY and value == window.beside.tool_parser


def _explanation(heard: _Heard) -> Explanation:
    return explained(Match(heard.signature, heard.complaint.last.text, heard.complaint.groups), ())


def _line(sighting: Sighting) -> Evidence:
    return Evidence(sighting.text, sighting.log, sighting.offset)


def _often(service: str, number: int, within: float) -> Evidence:
    times = "once" if number == 1 else f"{number} times"
    return Evidence(f"{service}: {times} in the last {within / 60:.1g} minutes", value=number)


def _heard(window: Window) -> list[_Heard]:
    """All complaints that are symptoms, of services that run; without those that another one explains."""
    now = window.now
    if now.state not in GOING:
        return []
    found: dict[tuple[str, str], _Heard] = {}
    for log in window.beside.live_logs:
        service = now.service(log.service)
        if service is None or service.state not in ALIVE:
            continue
        for complaint in log.complaints:
            heard = _judged(window, log, service, complaint)
            key = service.name, complaint.signature
            if heard is not None and (key not in found or found[key].number < heard.number):
                found[key] = heard  # a script may write the same lines into two logs
    return [one for one in found.values() if not any(_explains(other, one) for other in found.values())]


def _explains(cause: _Heard, other: _Heard) -> bool:
    """Whether a complaint of the same log is the cause of another one, which says only that something failed."""
    return (
        cause.service is other.service
        and cause.signature.role == "cause"
        and other.signature.role == "consequence"
        and 2 * cause.number >= other.number
    )


def _judged(window: Window, log: LiveLog, service: ServiceStatus, complaint: Complaint) -> _Heard | None:
    now, signature = window.now, complaint.row or by_id().get(complaint.signature)
    if signature is None:
        return None
    if signature.told_by == "model_unknown" and _own_proxy(service) and now.proxy.unknown:
        return None  # our own proxy counts them, and knows the names
    limits = signature.live or USUAL[signature.severity]
    if limits.waits and complaint.healthy_since:
        return None
    begin = now.at - limits.within
    if limits.connects:
        settled = _settled_at(now)
        if settled is None or (
            complaint.healthy_since and _answers(now, complaint.groups.get("address", ""))
        ):
            return None
        begin = max(begin, settled)
    number, answered = complaint.counted.since(begin), _answered(window, log, service, begin)
    if number < limits.least or number < limits.share * (number + answered):
        return None
    if service.kind == "sessions" and OVERFLOW in complaint.last.text and answered > 0:
        return None  # a trial whose context is full has ended: ``trials_at_limit``
    if not signature.alive and now.at - complaint.last.at < ENDED_S and number < 3:
        return None
    return _Heard(service, complaint, signature, limits, number)


def _answers(now: Snapshot, address: str) -> bool:
    """Whether a replica at ``address`` (HOST:PORT) answers now."""
    return any(one.state == "ready" and one.address == f"http://{address}" for one in now.replicas.items)


def _settled_at(now: Snapshot) -> float | None:
    """Unix time from which on no service should find another one closed; None while one starts, or has just failed.
    Requests in flight find a service closed that was stopped, too."""
    services = [s for s in now.services if s.kind not in ("environment", "task")]
    if any(s.state not in SERVING for s in services if s.state != "stopped"):
        return None
    failed = [s.failed_at for s in services if s.failed_at is not None]
    if any(now.at - at < RESTARTED_S for at in failed):
        return None
    settled = (s.since if s.state == "stopped" else s.ready_at or s.since for s in services)
    return max(settled, default=0.0) + SETTLED_S


def _answered(window: Window, log: LiveLog, service: ServiceStatus, begin: float) -> int:
    """Requests that succeeded meanwhile; for what stands in front of the replicas and logs none, what those did; and
    where the replicas are no services, as in verl, what the sessions or the proxy did."""
    own = log.answered.since(begin)
    if service.kind == "replica":
        return max(0, own)
    names = {s.name for s in window.now.services if s.kind == "replica"}
    names = names or {s.name for s in window.now.services if s.kind in ("sessions", "proxy")}
    theirs = sum(one.answered.since(begin) for one in window.beside.live_logs if one.service in names)
    return max(0, own, theirs)


def _own_proxy(service: ServiceStatus) -> bool:
    return service.kind == "proxy" and service.owner == "ours"


# --- requests that fail ---------------------------------------------------------------------------------


class _Advice(NamedTuple):
    cause: str
    fix: str


_ADVICE = {
    400: _Advice(
        "the server refuses them as invalid",
        "usual are a conversation that is longer than vllm.max_model_length, tools without a tool parser "
        "(model.tool_parser), and a field that this version does not know: the message says which",
    ),
    401: _Advice(
        "they carry no valid key", "give the agents the key in secrets/run_key, or <that key>.<trial>"
    ),
    403: _Advice("their key does not permit the request", "give the agents the key in secrets/run_key"),
    404: _Advice(
        "they ask for a model or a path that is not served",
        "set the agents' model name and base URL: GET /v1/models at the same address lists what is served",
    ),
    408: _Advice(
        "they took longer than a time-out",
        "raise the time-out (proxy.request_timeout), add replicas, or start fewer trials at once",
    ),
    413: _Advice("their bodies are too large", "shorten what the agents send, or raise proxy.max_body_bytes"),
    422: _Advice(
        "their bodies do not have the form that the server expects",
        "read the message, which names the field, and correct it in the agent: GET /openapi.json lists the fields",
    ),
    429: _Advice(
        "the server refuses more requests than it can take",
        "start fewer trials at once, or add replicas; LiteLLM also answers 429 while all replicas of a model are in "
        "cooldown: then the error before it says why they failed",
    ),
    500: _Advice("the server fails at them", "read the error before them in its log: it says why"),
    502: _Advice("what is behind the server does not answer", "check that the replicas behind it run"),
    503: _Advice("the server has nobody who could answer them", "check that its replicas run and are listed"),
    504: _Advice("what is behind the server answers too late", "add replicas, or start fewer trials at once"),
}
_SAID = 160  # characters of a message in a title
_OF_REQUESTS = (400, 401, 404, 413, 422)
_OTHER = _Advice("the server refuses them", "read the message, and the server's log around it: they say why")


class _Failing(NamedTuple):
    service: ServiceStatus
    failed: FailedRequests
    number: int
    answered: int


def requests_fail(window: Window) -> Iterator[Symptom | Resolved]:
    """A service answers many requests with the same status and for the same reason, and no other alert says why. There
    is one alert for each status and service; it shows the most frequent request and message."""
    found, named = _failing(window, refused=False)
    failing = {key: all_of for key, all_of in found.items() if _many(all_of)}
    carried = {status for status, name in (*failing, *named) if name == window.now.carrier}
    for (status, _), all_of in failing.items():
        if all_of[0].service.kind == "replica" and status in carried:
            continue  # the same requests
        yield _requests_fail(status, all_of)


def requests_refused(window: Window) -> Iterator[Symptom | Resolved]:
    """The sessions refuse many requests of agents for what they ask, such as a forced call in a trial that is trained:
    their trials end without a reply, or go on without what they wanted. The most frequent reason is shown; the log of
    the sessions has that of each request, and the page of a trial the newest one of its own."""
    for all_of in filter(_many, _together(_failing(window, refused=True)[0])):
        most = all_of[0]
        number, name, said = (
            sum(one.number for one in all_of),
            most.service.name,
            nameless(most.failed.message)[:_SAID],
        )
        yield Symptom(
            id=f"requests_refused:{name}",
            severity=_severity(number, most.answered),
            title=f"{name} refuse {number / (FAILED_S / 60):.0f} requests a minute: {said}",
            cause=f"{number} requests within {FAILED_S / 60:.0f} minutes were refused for what they ask, "
            f"{most.answered} succeeded meanwhile; most often: {said}",
            fix="change it in the agent, as the reason says: docs/sessions-api.md lists what a request may ask, and "
            "why",
            evidence=_shown(most, all_of),
            since=most.failed.counted.times[0][0],
        )


def _together(failing: Mapping[tuple[int, str], Sequence[_Failing]]) -> Iterator[list[_Failing]]:
    """Those of each service, the most frequent first."""
    by_service: dict[str, list[_Failing]] = {}
    for (_, name), all_of in failing.items():
        by_service.setdefault(name, []).extend(all_of)
    for each in by_service.values():
        yield sorted(each, key=lambda one: -one.number)


_Found = dict[tuple[int, str], tuple[_Failing, ...]]


def _failing(window: Window, *, refused: bool) -> tuple[_Found, set[tuple[int, str]]]:
    """By status and service: the requests that fail, and those that a complaint explains. ``refused``: those that the
    sessions refuse for what they ask, else the others."""
    now = window.now
    failing: list[_Failing] = []
    for log in window.beside.live_logs if now.state in GOING else ():
        service = now.service(log.service) if log.failed else None
        if service is None or service.state not in SERVING:
            continue  # while it starts, it answers 404 or 503
        begin = max(now.at - FAILED_S, service.ready_at or 0.0)
        answered = _answered(window, log, service, begin)
        for failed in log.failed:
            one = _Failing(service, failed, failed.counted.since(begin), answered)
            if (
                one.number > 0
                and not _ends_a_trial(one)
                and _asks_wrong(one) is refused
                and not _counted_elsewhere(now, service, failed)
            ):
                failing.append(one)
    heard = _heard(window) if failing else []
    found: dict[tuple[int, str], dict[tuple[str, str], _Failing]] = {}
    named: set[tuple[int, str]] = set()
    for one in failing:
        place = one.failed.status, one.service.name
        if _named(heard, one):
            named.add(place)
            continue
        alike = found.setdefault(place, {})
        key = one.failed.request, one.failed.message
        if key not in alike or alike[key].number < one.number:
            alike[key] = one  # a script may write the same lines into two logs
    return {key: tuple(all_of.values()) for key, all_of in found.items()}, named


def _ends_a_trial(one: _Failing) -> bool:
    """Whether the sessions refused it because its trial has used up a limit of its own: that is a normal end, and
    ``trials_at_limit`` tells how many of a step end so. Where nothing succeeds, no trial has even begun."""
    return one.service.kind == "sessions" and one.answered > 0 and at_limit(one.failed.message)


def _asks_wrong(one: _Failing) -> bool:
    """Whether the sessions refused it for what it asks: they say why, which other servers' lines do not."""
    message = one.failed.message
    asks = one.failed.status in _OF_REQUESTS and bool(message) and OVERFLOW not in message
    return one.service.kind == "sessions" and asks


def requests_undated(window: Window) -> Iterator[Symptom | Resolved]:
    """Requests have failed at a service that somebody else started, before its log was first read here. The log does
    not say when."""
    now = window.now
    for log in window.beside.live_logs if now.state in GOING else ():
        service = now.service(log.service)
        if service is None or service.state not in SERVING or log.undated < MANY:
            continue
        where = (Evidence("", log=service.log),) if service.log is not None else ()
        yield Symptom(
            id=f"requests_undated:{service.name}",
            severity="info",
            title=f"{service.name}: requests have failed, at unknown times",
            cause=f"{log.undated} failed requests stand in its log from before this watch began, without times",
            fix="watch it for some minutes to see whether requests still fail; the end of the log shows the last ones "
            "that did",
            evidence=where,
            since=now.at,
        )


def log_flood(window: Window) -> Iterator[Symptom | Resolved]:
    """The log of a running service grows faster than it is read. Its beginning and its newest lines are read; an error
    in the part between raises no alert. Once the service has ended, its last 128 MiB are read.

    - the same line again and again -> let the service print less, such as by ``infrastructure.vllm_logging_level``
    - errors among the lines -> ``liverl-tui logs SERVICE --grep 'Error'`` shows them, and ``liverl-tui doctor``
      explains them
    """
    now = window.now
    left_out: dict[str, int] = {}
    for log in window.beside.live_logs if now.state in GOING else ():
        left_out[log.service] = left_out.get(log.service, 0) + log.left_out
    for name, size in left_out.items():
        service = now.service(name)
        if service is None or service.state not in ALIVE or size < PASSED_OVER:
            continue
        yield Symptom(
            id=f"log_flood:{service.name}",
            severity="info",
            title=f"{service.name}: its log grows faster than it is read",
            cause=f"{size / 1e6:,.0f} MB of it were not looked at in the last {WINDOW_S / 60:.0f} minutes; an error in "
            "them raises no alert",
            fix=f"search it for errors: liverl-tui logs {service.name}{run_option(now.run_dir)} --grep "
            "'Error|Exception'; let it print less",
            evidence=(Evidence("", log=service.log),) if service.log is not None else (),
            since=now.at,
        )


def _many(all_of: Sequence[_Failing]) -> bool:
    number = sum(one.number for one in all_of)
    return number >= MANY and number >= SHARE * (number + all_of[0].answered)


def _named(heard: Sequence[_Heard], one: _Failing) -> bool:
    """Whether a complaint of the same log says why these requests fail."""
    return any(
        other.service is one.service and 2 * other.complaint.counted.since(0.0) >= one.number
        and other.signature.needle in one.failed.message
        for other in heard
    )  # fmt: skip


def _counted_elsewhere(now: Snapshot, service: ServiceStatus, failed: FailedRequests) -> bool:
    """Whether our own proxy counts these requests itself, which has rules of its own (``agents``)."""
    if not _own_proxy(service):
        return False
    proxy = now.proxy
    if failed.status in (400, 404):
        return bool(proxy.unknown) and any(name in failed.message for name in proxy.unknown_models)
    return bool({401: proxy.refused, 403: proxy.refused, 413: proxy.too_large}.get(failed.status))


def _requests_fail(status: int, all_of: Sequence[_Failing]) -> Symptom:
    most = max(all_of, key=lambda one: one.number)
    number, name = sum(one.number for one in all_of), most.service.name
    advice = _ADVICE.get(status, _OTHER)
    said = f": {nameless(most.failed.message)[:_SAID]}" if most.failed.message else ""
    who = f"a server answers {status} to {name}" if most.failed.ours else f"{name} answers {status}"
    rate = f"{number / (FAILED_S / 60):.0f} times a minute"
    return Symptom(
        id=f"responses_{status}:{name}",
        severity=_severity(number, most.answered),
        title=f"{who} {rate}{said}",
        cause=f"{number} requests within {FAILED_S / 60:.0f} minutes were answered with {status}, "
        f"{most.answered} succeeded meanwhile: {advice.cause}{said}",
        fix=advice.fix,
        evidence=_shown(most, all_of),
        since=most.failed.counted.times[0][0],
    )


def _severity(number: int, answered: int) -> Literal["critical", "warning"]:
    return "critical" if not answered and number >= 2 * MANY else "warning"


def _shown(most: _Failing, all_of: Sequence[_Failing]) -> tuple[Evidence, ...]:
    return (_line(most.failed.last), *map(_requests, all_of[: SHOWN - 1]))


def _requests(one: _Failing) -> Evidence:
    request = f" to {one.failed.request}" if one.failed.request else ""
    why = f": {one.failed.message}" if one.failed.message else ""
    return Evidence(f"{one.number} times {one.failed.status}{request}{why}", value=one.number)
