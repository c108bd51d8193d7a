"""Commands on services and replicas: ``restart``, ``start``, ``stop``, ``remove``, ``scale``, ``log``, ``service``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from liverl.model import ServiceStatus
from liverl.util.plural import plural, quantity
from liverl_tui.data.verbs import FITS, Verb
from liverl_tui.data.view import actors, processes
from liverl_tui.text.words import state_word
from liverl_tui.typed.command import (
    Act,
    Command,
    Completion,
    Here,
    TypedError,
    listed,
    missing,
    one_of,
    starting,
    wrong,
)

_NUMBER = re.compile(r"([+-]?)(\d{1,6})")
_UNFIT = {"start": "it is {state}", "stop": "it is {state}", "remove": "it is not a replica"}


def _now(service: ServiceStatus) -> str:
    return f"{service.kind}, {state_word(service.state)}"


def _changing(verb: Verb, help: str) -> Command:
    """The command that does ``verb`` to each service that it names."""

    def complete(text: str, here: Here) -> Iterator[Completion]:
        before = text[: text.rfind(" ") + 1]
        named = set(before.split())
        fitting = (s for s in processes(here.snapshot) if FITS[verb](s) and s.name not in named)
        yield from starting(text, [Completion(f"{before}{s.name}", _now(s)) for s in fitting])

    def parse(text: str, here: Here) -> Act:
        names = [_name(verb, word, here) for word in dict.fromkeys(text.split())]
        if not names:
            fitting = [s.name for s in processes(here.snapshot) if FITS[verb](s)]
            raise missing(
                verb, f"the name of a service: {listed(fitting)}" if fitting else "the name of a service"
            )
        return lambda host: host.commands.act_on(verb, names)

    return Command(verb, "NAME...", help, parse, complete, changes=True)


def _name(verb: Verb, word: str, here: Here) -> str:
    services = {service.name: service for service in processes(here.snapshot)}
    replicas = [replica.name for replica in actors(here.snapshot)]
    if word in replicas and verb != "start":
        raise TypedError(f"{verb}: {word} is managed by verl; restart the trainer to restart it")
    name = one_of(verb, word, "the name of a service", [*services, *(replicas if verb == "start" else ())])
    service = services.get(name)
    if service is not None and not FITS[verb](service):
        why = _UNFIT[verb].format(state=state_word(service.state))
        raise TypedError(f"{verb}: cannot {verb} {name}: {why}")
    return name


# -- scale


def _replicas(here: Here) -> int:
    return sum(service.kind == "replica" for service in processes(here.snapshot))


def _parse_scale(text: str, here: Here) -> Act:
    expected = "a number of replicas (4) or a difference (+1, -1)"
    if not text:
        raise missing("scale", expected)
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise wrong("scale", text, expected)
    sign, number = match[1], int(match[2])
    now = _replicas(here)
    wanted = now + int(f"{sign}{number}") if sign else number
    if wanted < 1:
        raise TypedError(
            f"scale: found {text}, which leaves {wanted} replicas of {now}; expected at least 1 to stay"
        )
    if wanted == now:
        raise TypedError(
            f"scale: there {plural(now, 'is', 'are')} {quantity(now, 'replica')} already; nothing to do"
        )
    if sign:
        return lambda host: host.commands.scale(delta=wanted - now)
    return lambda host: host.commands.scale(to=wanted)


def _complete_scale(text: str, here: Here) -> Iterable[Completion]:
    now = _replicas(here)
    offered = [Completion("+1", f"add one: {now + 1} replicas" if now else "add one")]
    if now > 1:
        offered.append(Completion("-1", f"drain and remove one: {quantity(now - 1, 'replica')}"))
    offered += [
        Completion(str(number), f"{number} replicas, {now} now") for number in (now + 1, now + 2) if now
    ]
    return starting(text, offered)


# -- what is shown of them


def _shown(here: Here) -> dict[str, str]:
    """Name -> explanation of all services and replicas."""
    names = {service.name: _now(service) for service in processes(here.snapshot)}
    replicas = actors(here.snapshot)
    return names | {r.name: f"verl replica, {state_word(r.state)}" for r in replicas}


def _logged(here: Here) -> dict[str, str]:
    services = here.snapshot.services if here.snapshot is not None else ()
    with_log = [service.name for service in services if service.log is not None]
    replicas = [replica.name for replica in actors(here.snapshot)]
    about = _shown(here)
    return {name: about.get(name, "environment") for name in (*with_log, *replicas)}


def _showing(
    name: str, help: str, names: Callable[[Here], dict[str, str]], act: Callable[[str], Act]
) -> Command:
    def complete(text: str, here: Here) -> Iterable[Completion]:
        return starting(text, [Completion(name, about) for name, about in names(here).items()])

    def parse(text: str, here: Here) -> Act:
        return act(one_of(name, text, "the name of a service", list(names(here))))

    return Command(name, "NAME", help, parse, complete)


SERVICES: tuple[Command, ...] = (
    _changing("restart", "Restart services; the run's own proxy without dropping a request"),
    _changing("start", "Start services that are not running"),
    _changing("stop", "Stop services (asks)"),
    _changing("remove", "Drain and remove replicas (asks)"),
    Command(
        "scale",
        "N",
        "Set the number of replicas, or add (+1) and remove (-1) some",
        _parse_scale,
        _complete_scale,
        changes=True,
    ),
    _showing(
        "log", "Show the log of a service", _logged, lambda name: lambda host: host.navigation.open_log(name)
    ),
    _showing(
        "service",
        "Show the details of a service",
        _shown,
        lambda name: lambda host: host.navigation.open_service(name),
    ),
)
