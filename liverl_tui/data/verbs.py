"""What restart, stop, start and remove do to services: the commands, their consequences, and why one is refused.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from liverl.model import ServiceStatus, Snapshot
from liverl_tui.data.view import ENDED, STARTABLE, actors, processes
from liverl_tui.keys.bindings import find
from liverl_tui.text.words import state_word

Verb = Literal["restart", "stop", "start", "remove"]
COMMANDS: dict[
    Verb, tuple[str, str]
] = {  # verb -> command of the backend, and the argument that names the service
    "restart": ("restart", "service"),
    "stop": ("stop_service", "service"),
    "start": ("start_service", "service"),
    "remove": ("scale", "remove"),
}
FITS: dict[Verb, Callable[[ServiceStatus], bool]] = {  # verb -> the services that it makes sense for
    "restart": lambda service: True,
    "stop": lambda service: service.state not in ENDED,
    "start": lambda service: service.state in STARTABLE,
    "remove": lambda service: service.kind == "replica",
}
_DONE: dict[Verb, str] = {"restart": "restarted", "stop": "stopped", "start": "started", "remove": "removed"}
LAST_REPLICA = "the last replica cannot be removed"
OF_VERL = "managed by verl; restart the trainer to restart it"

# (verb, kind of service) -> consequence, as shown in the dialog; in braces, keys
CONSEQUENCES: dict[tuple[str, str], str] = {
    ("restart", "trainer"): (
        "Training resumes from the newest checkpoint (without one, from the first step); later steps are repeated. "
        "The other services keep running."
    ),
    ("stop", "trainer"): (
        "Training stops; the other services keep running and keep their GPUs. When started again ({start}), training "
        "resumes from the newest checkpoint."
    ),
    ("restart", "replica"): (
        "Requests in flight on this replica fail, and their trials get the error. The replica gets the trainer's "
        "weights before it is used again."
    ),
    ("stop", "replica"): (
        "Requests in flight on this replica fail, and their trials get the error. To drain the replica first, "
        "remove it instead ({remove})."
    ),
    ("restart", "proxy"): (
        "This run did not start the proxy. The processes that listen on its port are stopped, by pid, and its own "
        "command line is started again. Requests in flight get 10 seconds to finish, then they fail."
    ),
    ("stop", "proxy"): (
        "Requests of agents wait until the proxy is started again ({start}); requests that wait too long fail."
    ),
    ("restart", "sessions"): (
        "Replies that are being sampled get some seconds to be recorded. Requests wait until the new process serves; "
        "no trial is lost."
    ),
    ("stop", "sessions"): (
        "Requests of agents wait until the sessions are started again ({start}); requests that wait too long fail."
    ),
    ("restart", "ray"): "All processes on this Ray cluster are killed with it, including the trainer.",
    ("stop", "ray"): "All processes on this Ray cluster are killed with it, including the trainer.",
}


def consequence(verb: str, service: ServiceStatus) -> str:
    """Return the consequence of ``verb`` (restart, stop) for ``service``, in whole sentences."""
    if verb == "remove":
        return (
            "It gets no new trials. When its running trials have ended, it is stopped. No request is cut off."
        )
    text = CONSEQUENCES.get((verb, service.kind))
    if text is None:
        return f"Services that depend on {service.name} do not work until it is running again."
    return text.format(
        start=find("app", "start_service").mention, remove=find("app", "remove_replica").mention
    )


def none_words(verb: str, selected: ServiceStatus | None) -> str:
    """Return why no service can be ``verb``-ed now; why not ``selected``, if a service is selected."""
    if selected is None or (verb, selected.kind) == ("remove", "replica"):
        return f"there is no service that you can {verb}"
    if selected.kind == "environment":
        return f"cannot {verb} {selected.name}: it is an environment, not a process"
    if verb == "remove":
        return f"cannot remove {selected.name}: it is not a replica"
    if verb == "start" and selected.state in ("ready", "degraded"):
        return f"{selected.name} is already running"
    return f"cannot {verb} {selected.name}: it is {state_word(selected.state)}"


def asks_first(verb: Verb, service: ServiceStatus) -> bool:
    """Whether ``verb`` can do harm to what ``service`` does now, and is confirmed first."""
    if verb == "restart":
        # No request is lost: the run's own proxy is replaced without a gap.
        return not ((service.kind == "proxy" and service.owner == "ours") or service.state in ENDED)
    return verb != "start"


class Verdict(Struct, frozen=True):
    """What a command does with several services. ``names``: those that it is sent for; ``refused``: (name, why not)."""

    names: tuple[str, ...]
    services: tuple[ServiceStatus, ...]
    refused: tuple[tuple[str, str], ...]

    def asks(self, verb: Verb) -> bool:
        """Whether any of the services asks for a confirmation."""
        return any(asks_first(verb, service) for service in self.services)

    def what(self, verb: Verb) -> str:
        """The command in words: ``restart 3 services``."""
        return f"{verb} {self.names[0]}" if len(self.names) == 1 else f"{verb} {len(self.names)} services"

    def question(self, verb: Verb) -> str:
        """``Restart 3 services: replica-0, replica-1, trainer?``"""
        what = self.what(verb).capitalize() if len(self.names) > 1 else verb.capitalize()
        return f"{what}{':' * (len(self.names) > 1)} {', '.join(self.names)}?"

    def consequences(self, verb: Verb) -> str:
        """What happens, in whole sentences, each behind the services that it is about; and what is refused."""
        about: dict[str, list[str]] = {}
        for service in self.services:
            if asks_first(verb, service):
                about.setdefault(consequence(verb, service), []).append(service.name)
        texts = [f"{', '.join(names)}: {text}" for text, names in about.items()]
        return " ".join([*texts, *([f"{self.refused_words(verb)}."] if self.refused else ())])

    def refused_words(self, verb: Verb) -> str:
        """``not stopped: env:litellm (it is an environment, not a process)``; empty if none is refused."""
        if not self.refused:
            return ""
        return f"Not {_DONE[verb]}: " + ", ".join(f"{name} ({why})" for name, why in self.refused)


def judged(verb: Verb, names: Sequence[str], snapshot: Snapshot | None) -> Verdict:
    """For which of ``names`` the command is sent."""
    of_verl = {replica.name for replica in actors(snapshot)}
    accepted: list[str] = []
    services: list[ServiceStatus] = []
    refused: list[tuple[str, str]] = []
    for name in names:
        service = snapshot.service(name) if snapshot is not None else None
        if service is None and name in of_verl and verb == "start":
            accepted.append(name)  # in an adopted launch, the backend lists it in the proxy's configuration
        elif service is None:
            refused.append((name, OF_VERL if name in of_verl else "it is not a service of this run"))
        elif service.kind == "environment" or not FITS[verb](service):
            why = none_words(verb, service).removeprefix(f"cannot {verb} {name}: ")
            refused.append((name, why.replace(f"{name} is", "it is")))
        else:
            accepted.append(name)
            services.append(service)
    if (
        verb == "remove"
        and services
        and len(services) == sum(s.kind == "replica" for s in processes(snapshot))
    ):
        refused.append((accepted.pop(), LAST_REPLICA))
        services.pop()
    return Verdict(tuple(accepted), tuple(services), tuple(refused))
