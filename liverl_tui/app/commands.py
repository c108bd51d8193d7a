"""The keys that change the run: each sends one command to the backend in the background, and a toast shows the
result. Commands that can do harm are confirmed first, in a dialog that states the consequence."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from liverl.model import IN_WORKERS, ServiceStatus
from liverl.util.plural import quantity
from liverl_tui.data.verbs import (
    COMMANDS,
    FITS,
    LAST_REPLICA,
    OF_VERL,
    Verb,
    asks_first,
    consequence,
    judged,
    none_words,
)
from liverl_tui.data.view import actors, processes
from liverl_tui.keys.bindings import find
from liverl_tui.keys.of_run import ADDS_REPLICA, REMOVES_REPLICA, unusable

if TYPE_CHECKING:
    from liverl_tui.app.host import ScreensHost
    from liverl_tui.app.notifications import Notifications

Method = TypeVar("Method", bound=Callable[..., Any])


def answer_words(what: str, answer: dict[str, Any]) -> str:
    """Return the toast for a successful command. ``what``: the command in words. ``answer``: the backend's result."""
    if answer.get("text"):
        return f"{what}: {answer['text']}"
    if "replicas" in answer:
        changed = [f"+{name}" for name in answer.get("added", ())]
        changed += [f"-{name}" for name in answer.get("removed", ())]
        total = f"{quantity(answer['replicas'], 'replica')} now"
        return f"{what}: done, {total} ({', '.join(changed) or 'nothing changed'})"
    if answer.get("generation") is not None:
        pid = f", pid {answer['pid']}" if answer.get("pid") else ""
        return f"{what}: done, generation {answer['generation']}{pid}"
    return f"{what}: {answer.get('state', 'done')}"


def asks(method: Method) -> Method:
    """Decorate a method of ``Commands`` that needs the backend: if no command can be sent, show a toast with the
    reason instead of calling it."""

    @functools.wraps(method)
    def guarded(self: Commands, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, **kwargs) if self.may_ask() else None

    return guarded  # type: ignore[return-value]


class Commands:
    """Sends commands to the backend of the run that ``host`` shows."""

    def __init__(self, host: ScreensHost, notifications: Notifications) -> None:
        self._host = host
        self.toast = notifications.toast
        self._under_way: set[str] = set()

    # -- sending

    def refused(self) -> str | None:
        """Return why no command can be sent to the backend now; None if one can."""
        if self._host.readonly:
            return f"{self._host.why_readonly}: actions are disabled"
        view = self._host.view
        return {
            "live": None,
            "connecting": view.why or "not connected to the backend yet",
            "lost": f"no backend is running; {find('app', 'revive').press} to restart it",
            "ended": "this run has ended; it can no longer be changed",
            "demo": None,  # the source says what a command would do
        }[view.link]

    def may_ask(self) -> bool:
        """Whether a command can be sent to the backend now; if not, show a toast with the reason."""
        why = self.refused()
        if why is not None:
            self.toast(why, "warning")
        return why is None

    @asks
    def ask(self, what: str, name: str, **args: Any) -> None:
        """Send command ``name`` with ``args`` in the background, and toast its result.

        ``what``: the command in words; while it is in progress, the same one is refused with a toast."""
        if what in self._under_way:
            self.toast(f"{what} is already in progress", "warning", about=what)
            return
        self._under_way.add(what)
        self.toast(f"{what} ...", about=what)
        self._host.run_worker(self._ask(what, name, args), name=what, group="commands")

    async def _ask(self, what: str, name: str, args: dict[str, Any]) -> None:
        from liverl.control.messages import ControlError

        try:
            answer = await self._host.source.command(name, **args)
        except ControlError as error:
            suggestion = getattr(error, "did_you_mean", None)
            hint = f" (did you mean {suggestion}?)" if suggestion else ""
            self.toast(f"{what}: {error}{hint}", "error", about=what)
        except Exception as error:  # noqa: BLE001 - shown as a toast; a failed command must not end the interface
            self.toast(f"{what}: {type(error).__name__}: {error}", "error", about=what)
        else:
            self.toast(answer_words(what, answer), about=what)
        finally:
            self._under_way.discard(what)

    def confirm(self, question: str, why: str, yes: str, then: Callable[[], None]) -> None:
        """Ask ``question`` in a dialog, and call ``then`` if the user chooses ``yes``.

        ``why``: the consequence, in whole sentences. ``yes``: label of the confirming choice."""
        from liverl_tui.screens.dialogs import Confirm

        self._host.push_screen(
            Confirm(question, why, yes), lambda answer: then() if answer == "yes" else None
        )

    # -- choosing a service

    def service(self, name: str | None) -> ServiceStatus | None:
        """Return the service of this name in the current view; None if there is none."""
        snapshot = self._host.view.snapshot
        return snapshot.service(name) if snapshot is not None and name is not None else None

    def selected_service(self) -> str | None:
        """Return the name of the service that the screen shows, or whose row is under the cursor; None if neither."""
        return self._selected(lambda name: self.service(name) is not None)

    def selected_actor(self) -> str | None:
        """Like ``selected_service``, for replicas that verl manages as Ray actors."""
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

    def _choose(self, verb: Verb, then: Callable[[ServiceStatus], None]) -> None:
        """Act on all marked services; without marks, call ``then`` with the selected service if ``verb`` fits its
        state, else with one chosen from a list."""
        from liverl_tui.screens.dialogs import Choose

        states = FITS[verb]
        if self._act_on_marks(verb):
            return
        chosen, actor = self.service(self.selected_service()), self.selected_actor()
        if (
            chosen is None
            and actor is not None
            and actor == getattr(self._host.screen, "selected_service", None)
        ):
            if verb == "start":  # in an adopted launch, the backend lists it in the proxy's configuration
                self._send("start", actor)
            else:
                self.toast(f"{verb}: {actor} is {OF_VERL}", "warning")
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

        what = "replica" if all(s.kind == "replica" for s in items) else "service"
        self._host.push_screen(Choose(f"{verb.capitalize()} which {what}?", words), picked)

    # -- several services

    def _act_on_marks(self, verb: Verb) -> bool:
        """Act on all marked services, and remove the marks. Return False if none is marked."""
        screen = self._host.run_screen
        if screen is None:
            return False
        nodes = [*(screen.focused.ancestors_with_self if screen.focused is not None else ()), screen]
        holder = next((node for node in nodes if getattr(node, "marked_services", None) is not None), None)
        if holder is None:
            return False
        names = holder.marked_services
        if names:
            self._act_on(verb, names, holder.clear_marks)
        else:
            self.toast(f"{verb}: the marked rows are no services of this run", "warning")
        return True

    @asks
    def act_on(self, verb: Verb, names: Sequence[str]) -> None:
        """Restart, start, stop or remove the services ``names``, after one confirmation if any of them needs one."""
        self._act_on(verb, names)

    def _act_on(self, verb: Verb, names: Sequence[str], sent: Callable[[], None] = lambda: None) -> None:
        """Send ``verb`` for all services that it is allowed for, then call ``sent``; name those that are refused."""
        verdict = judged(verb, names, self._host.view.snapshot)

        def then() -> None:
            self._host.run_worker(self._send_each(verb, verdict.names), name=verb, group="commands")
            sent()

        if not verdict.names:
            self.toast(verdict.refused_words(verb), "warning")
        elif verdict.asks(verb):
            self.confirm(verdict.question(verb), verdict.consequences(verb), verdict.what(verb), then)
        else:
            then()
            if verdict.refused:
                self.toast(verdict.refused_words(verb), "warning")

    async def _send_each(self, verb: Verb, names: Sequence[str]) -> None:
        """Send the command for each service; restarts one after another, so that not all are down at once."""
        for name in names:
            what = f"{verb} {name}"
            if verb != "restart":
                self._send(verb, name)
            elif what not in self._under_way:
                self._under_way.add(what)
                self.toast(f"{what} ...", about=what)
                await self._ask(what, "restart", {"service": name})

    def _send(self, verb: Verb, name: str) -> None:
        """Send the command of ``verb`` for the service ``name``."""
        command, argument = COMMANDS[verb]
        self.ask(f"{verb} {name}", command, **{argument: name})

    # -- the keys

    @asks
    def action_restart_carrier(self) -> None:
        """Restart what carries the trials, the proxy or the sessions; see ``restart_one``."""
        snapshot = self._host.view.snapshot
        carrier = snapshot.carrier_service if snapshot is not None else None
        if carrier is None:
            name = "proxy" if snapshot is None or snapshot.carrier == "proxy" else "sessions"
            why = f": {IN_WORKERS}" if snapshot is not None and snapshot.carrier == "workers" else ""
            self.toast(f"this run has no {name} service to restart{why}", "warning")
            return
        self.restart_one(carrier)

    @asks
    def action_add_replica(self) -> None:
        """Start one more replica, without confirmation."""
        if not self._refused(ADDS_REPLICA, "no replica can be added"):
            self.ask("add replica", "scale", delta=1)

    def _refused(self, key: str, what: str) -> bool:
        """Say why the key ``key`` can do nothing in this run; False if it can do something. ``what``: that it cannot
        do."""
        why = unusable(self._host.view.snapshot).get(key)
        if why is not None:
            self.toast(f"{what}: {why}", "warning")
        return why is not None

    @asks
    def scale(self, to: int | None = None, delta: int | None = None) -> None:
        """Set the number of replicas to ``to``, or change it by ``delta``; after confirmation if it gets smaller."""
        now = sum(s.kind == "replica" for s in processes(self._host.view.snapshot))
        wanted = to if to is not None else now + (delta or 0)
        what = f"scale to {wanted}"

        def then() -> None:
            if to is not None:
                self.ask(what, "scale", to=to)
            else:
                self.ask(what, "scale", delta=delta)

        if wanted >= now:
            then()
            return
        self.confirm(
            f"Scale from {now} to {wanted} {'replica' if wanted == 1 else 'replicas'}?",
            f"{now - wanted} of them get no new trials, and are stopped when their running trials have ended. "
            "No request is cut off.",
            what,
            then,
        )

    @asks
    def action_remove_replica(self) -> None:
        """Remove the selected replica, or one chosen from a list, after confirmation; never the last one."""
        if self._refused(REMOVES_REPLICA, "no replica can be removed"):
            return
        if sum(s.kind == "replica" for s in processes(self._host.view.snapshot)) == 1:
            self.toast(LAST_REPLICA, "warning")
            return
        self._choose("remove", self.remove_one)

    @asks
    def remove_one(self, service: ServiceStatus) -> None:
        """Drain and stop a replica, after confirmation."""
        self.confirm(
            f"Remove {service.name}?",
            consequence("remove", service),
            f"remove {service.name}",
            lambda: self._send("remove", service.name),
        )

    @asks
    def action_restart_service(self) -> None:
        """Restart the selected service, or one chosen from a list; see ``restart_one``."""
        self._choose("restart", self.restart_one)

    @asks
    def restart_one(self, service: ServiceStatus) -> None:
        """Restart a service; after confirmation, unless it is the run's own proxy or not running."""

        def then() -> None:
            self._send("restart", service.name)

        if asks_first("restart", service):
            self.confirm(
                f"Restart {service.name}?", consequence("restart", service), f"restart {service.name}", then
            )
        else:
            then()

    @asks
    def action_stop_service(self) -> None:
        """Stop the selected service, or one chosen from a list, after confirmation."""
        self._choose("stop", self.stop_one)

    @asks
    def stop_one(self, service: ServiceStatus) -> None:
        """Stop a service, after confirmation."""
        self.confirm(
            f"Stop {service.name}?",
            consequence("stop", service),
            f"stop {service.name}",
            lambda: self._send("stop", service.name),
        )

    @asks
    def action_start_service(self) -> None:
        """Start the selected service, or one chosen from a list of those that are not running."""
        self._choose("start", self.start_one)

    @asks
    def start_one(self, service: ServiceStatus) -> None:
        """Start a service that is not running, without confirmation."""
        self._send("start", service.name)
