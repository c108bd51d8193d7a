"""The keys that change the run: each asks the backend for one thing, in the background, and toasts tell how it
went. What could hurt is confirmed first, with its consequence in words."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from liverl.model import ServiceStatus
from liverl_tui.data.view import ENDED, STARTABLE, actors, processes
from liverl_tui.text.words import state_word

if TYPE_CHECKING:
    from liverl_tui.app.host import ScreensHost
    from liverl_tui.app.notifications import Notifications

Method = TypeVar("Method", bound=Callable[..., Any])

# (verb, kind of service) -> what follows from it
CONSEQUENCES: dict[tuple[str, str], str] = {
    ("restart", "trainer"): (
        "Training goes on from the newest checkpoint (without one, from the first step): what it did since then "
        "is done again. The rest of the run stays up."
    ),
    ("stop", "trainer"): (
        "Training stops and the rest of the run stays up, holding its GPUs. Started again (s), it goes on from "
        "the newest checkpoint."
    ),
    ("restart", "replica"): (
        "The turns that it is answering now fail, and their trials see that. It gets the trainer's weights "
        "before it is used again."
    ),
    ("stop", "replica"): (
        "The turns that it is answering now fail, and their trials see that. To take it away without harm, "
        "remove it instead (x): then it is drained first."
    ),
    ("restart", "proxy"): (
        "It was not started by this run: exactly the processes that listen on its port are ended, by number, and its "
        "own command line is started again. Requests that are under way get 10 seconds, then they fail."
    ),
    ("stop", "proxy"): (
        "The agents' requests wait until it is started again (s), and those that wait too long fail."
    ),
    ("restart", "ray"): "Everything that runs on this Ray cluster dies with it, the trainer too.",
    ("stop", "ray"): "Everything that runs on this Ray cluster dies with it, the trainer too.",
}


def consequence(verb: str, service: ServiceStatus) -> str:
    return CONSEQUENCES.get((verb, service.kind), "What depends on it has to do without it meanwhile.")


def answer_words(what: str, answer: dict[str, Any]) -> str:
    """How a command went, for people."""
    if answer.get("text"):
        return f"{what}: {answer['text']}"
    if "replicas" in answer:
        changed = [f"+{name}" for name in answer.get("added", ())]
        changed += [f"-{name}" for name in answer.get("removed", ())]
        count = answer["replicas"]
        left = f"{count} replica{'s' if count != 1 else ''} now"
        return f"{what}: done, {left} ({', '.join(changed) or 'nothing changed'})"
    if answer.get("generation") is not None:
        pid = f", pid {answer['pid']}" if answer.get("pid") else ""
        return f"{what}: done, generation {answer['generation']}{pid}"
    return f"{what}: {answer.get('state', 'done')}"


def none_words(verb: str, selected: ServiceStatus | None) -> str:
    """Why there is nothing to ``verb``: of the selected service, else of all."""
    if selected is None or (verb, selected.kind) == ("remove", "replica"):
        return f"{verb}: there is no service that this could be"
    if selected.kind == "environment":
        return f"{verb}: {selected.name} is an environment: it is built, not run"
    if verb == "remove":
        return f"remove: {selected.name} is no replica"
    if verb == "start" and selected.state in ("ready", "degraded"):
        return f"{selected.name} runs already"
    return f"{verb}: {selected.name} is {state_word(selected.state)}"


def asks(method: Method) -> Method:
    """A method of ``Commands`` that needs the backend: where nothing can be asked, a toast says why instead."""

    @functools.wraps(method)
    def guarded(self: Commands, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, **kwargs) if self.may_ask() else None

    return guarded  # type: ignore[return-value]


class Commands:
    """Asks the backend of the run that ``host`` shows."""

    def __init__(self, host: ScreensHost, notifications: Notifications) -> None:
        self._host = host
        self.toast = notifications.toast
        self._under_way: set[str] = set()

    # -- asking

    def refused(self) -> str | None:
        """Why nothing can be asked of the backend now; None where it can."""
        if self._host.readonly:
            return "this interface is read-only (--readonly): nothing is changed"
        view = self._host.view
        return {
            "live": None,
            "connecting": view.why or "not connected to the backend yet",
            "lost": "there is no backend to ask; U starts it again",
            "ended": "this run has ended: nothing in it can be changed any more",
        }[view.link]

    def may_ask(self) -> bool:
        """Whether the backend can be asked for something now; where it cannot, a toast says why."""
        why = self.refused()
        if why is not None:
            self.toast(why, "warning")
        return why is None

    @asks
    def ask(self, what: str, name: str, **args: Any) -> None:
        """Have the backend do ``what`` (in words). The same thing is not asked twice at a time."""
        if what in self._under_way:
            self.toast(f"{what}: is under way already", "warning", about=what)
            return
        self._under_way.add(what)
        self.toast(f"{what} ...", about=what)
        self._host.run_worker(self._ask(what, name, args), name=what, group="commands")

    async def _ask(self, what: str, name: str, args: dict[str, Any]) -> None:
        from liverl.control.messages import ControlError

        try:
            answer = await self._host.source.command(name, **args)
        except ControlError as error:
            meant = getattr(error, "did_you_mean", None)
            hint = f" (did you mean {meant}?)" if meant else ""
            self.toast(f"{what}: {error}{hint}", "error", about=what)
        except Exception as error:  # noqa: BLE001 - told; a failed command must not end the interface
            self.toast(f"{what}: {type(error).__name__}: {error}", "error", about=what)
        else:
            self.toast(answer_words(what, answer), about=what)
        finally:
            self._under_way.discard(what)

    def confirm(self, question: str, why: str, yes: str, then: Callable[[], None]) -> None:
        """Do ``then`` if it is wanted."""
        from liverl_tui.screens.dialogs import Confirm

        self._host.push_screen(Confirm(question, why, yes), lambda said: then() if said == "yes" else None)

    # -- which service is meant

    def service(self, name: str | None) -> ServiceStatus | None:
        snapshot = self._host.view.snapshot
        return snapshot.service(name) if snapshot is not None and name is not None else None

    def selected_service(self) -> str | None:
        """The service that the screen is about, or whose row is under the cursor."""
        return self._selected(lambda name: self.service(name) is not None)

    def selected_actor(self) -> str | None:
        """The same of a replica that is an actor of verl's."""
        names = {replica.name for replica in actors(self._host.view.snapshot)}
        return self._selected(lambda name: name in names)

    def _selected(self, is_one: Callable[[str], bool]) -> str | None:
        screen = self._host.run_screen
        if screen is None:
            return None
        candidates = [screen, *(screen.focused.ancestors_with_self if screen.focused is not None else ())]
        for node in candidates:
            for attribute in ("selected_service", "cursor"):
                name = getattr(node, attribute, None)
                if isinstance(name, str) and is_one(name):
                    return name
        return None

    def _choose(
        self, verb: str, states: Callable[[ServiceStatus], bool], then: Callable[[ServiceStatus], None]
    ) -> None:
        """Do ``then`` with the selected service if it is one that can be meant, else with one of a list."""
        from liverl_tui.screens.dialogs import Choose

        chosen, actor = self.service(self.selected_service()), self.selected_actor()
        if (
            chosen is None
            and actor is not None
            and actor == getattr(self._host.screen, "selected_service", None)
        ):
            if verb == "start":  # of a launch that was adopted, the backend lists it in the proxy's file
                self.ask(f"start {actor}", "start_service", service=actor)
            else:
                self.toast(f"{verb}: verl owns {actor}: it ends and comes back with its trainer", "warning")
            return
        if chosen is not None and chosen.kind != "environment" and states(chosen):
            then(chosen)
            return
        items = [s for s in processes(self._host.view.snapshot) if states(s)]
        if not items:
            self.toast(none_words(verb, chosen), "warning")
            return
        words = {s.name: f"{s.kind}, {s.state.replace('_', ' ')}" for s in items}

        def picked(name: str | None) -> None:
            service = self.service(name)
            if service is not None:
                then(service)

        self._host.push_screen(Choose(f"{verb.capitalize()} which service?", words), picked)

    # -- the keys

    @asks
    def action_restart_proxy(self) -> None:
        proxy = next((s for s in processes(self._host.view.snapshot) if s.kind == "proxy"), None)
        if proxy is None:
            self.toast("this run has no proxy of its own to restart", "warning")
            return
        self.restart_one(proxy)

    @asks
    def action_add_replica(self) -> None:
        self.ask("add replica", "scale", delta=1)

    @asks
    def action_remove_replica(self) -> None:
        if sum(s.kind == "replica" for s in processes(self._host.view.snapshot)) == 1:
            self.toast("the last replica cannot be removed", "warning")
            return
        self._choose("remove", lambda s: s.kind == "replica", self.remove_one)

    @asks
    def remove_one(self, service: ServiceStatus) -> None:
        self.confirm(
            f"Remove {service.name}?",
            "It gets no new trials; when those that live on it have ended, it is stopped. Nothing is cut.",
            f"remove {service.name}",
            lambda: self.ask(f"remove {service.name}", "scale", remove=service.name),
        )

    @asks
    def action_restart_service(self) -> None:
        self._choose("restart", lambda s: True, self.restart_one)

    @asks
    def restart_one(self, service: ServiceStatus) -> None:
        what = f"restart {service.name}"

        def then() -> None:
            self.ask(what, "restart", service=service.name)

        if (service.kind == "proxy" and service.owner == "ours") or service.state in ENDED:
            then()  # nobody is harmed: a proxy of ours is replaced without a gap
        else:
            self.confirm(f"Restart {service.name}?", consequence("restart", service), what, then)

    @asks
    def action_stop_service(self) -> None:
        self._choose("stop", lambda s: s.state not in ENDED, self.stop_one)

    @asks
    def stop_one(self, service: ServiceStatus) -> None:
        self.confirm(
            f"Stop {service.name}?",
            consequence("stop", service),
            f"stop {service.name}",
            lambda: self.ask(f"stop {service.name}", "stop_service", service=service.name),
        )

    @asks
    def action_start_service(self) -> None:
        self._choose("start", lambda s: s.state in STARTABLE, self.start_one)

    @asks
    def start_one(self, service: ServiceStatus) -> None:
        self.ask(f"start {service.name}", "start_service", service=service.name)
