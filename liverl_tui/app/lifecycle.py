"""Leaving the interface, stopping the run, and restarting a dead backend. Only a typed name stops a run."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from liverl.exit_codes import of_signal
from liverl.rundir.commands import resume_command
from liverl_tui.term.terminal import can_suspend, restore_modes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from liverl_tui.app.commands import Commands
    from liverl_tui.app.host import LifecycleHost
    from liverl_tui.app.next_attempt import NextAttempt
    from liverl_tui.app.notifications import Notifications

PATIENCE_S = 3.0  # seconds for an orderly exit after a signal; then the process exits at once


class NotOurs(Exception):
    """The backend cannot be started from here; ``str()`` says why."""


def may_revive(run_dir: Path) -> None:
    """Check that the run's backend has died and was on this host, as processes of another host cannot be adopted, and
    that it has left something to take over.

    Raises:
        NotOurs: it was on another host, it is still running, or nothing is left.
    """
    from liverl.rundir.layout import DeadBackend, LiveBackend, backend_alive, hostname

    backend = backend_alive(run_dir)
    if isinstance(backend, LiveBackend):
        raise NotOurs(f"the backend is running (pid {backend.record.pid})")
    if not isinstance(backend, DeadBackend):
        host: str | None = backend.host
    elif backend.record is not None:
        host = backend.record.host
    else:
        host = None
    if host is not None and host != hostname():
        raise NotOurs(
            f"the run's services may be running on {host}; start the backend there "
            f"(liverl-tui up --run {shlex.quote(str(run_dir))})"
        )
    if isinstance(backend, DeadBackend):
        from liverl.offline.left import standing

        found = standing(run_dir)
        if found.left in ("nothing", "never"):
            raise NotOurs(found.sentence)


class Lifecycle:
    """The keys that leave the interface, stop the run or restart its backend; also handles SIGTERM and SIGHUP."""

    def __init__(
        self,
        host: LifecycleHost,
        commands: Commands,
        next_attempt: NextAttempt,
        notifications: Notifications,
    ) -> None:
        self._host = host
        self._commands = commands
        self._next_attempt = next_attempt
        self.toast = notifications.toast
        self.at_once: Callable[[], object] = lambda: None  # called before an exit without cleanup
        self._reviving = False
        self._killing = False
        self._handlers: dict[signal.Signals, Any] = {}  # the previous ones, restored at the end

    # -- leaving

    def action_leave(self) -> None:
        """Ask whether to detach from the run or stop it; without a live backend or read-only, just exit. While the next
        attempt is being begun, ask first, since that would end."""
        if self._next_attempt.command:
            self._ask_to_leave()
            return
        if self._host.view.link != "live" or self._host.readonly:
            self._host.exit()
            return
        from liverl_tui.screens.dialogs import Quit

        snapshot = self._host.view.snapshot
        phase = snapshot.phase if snapshot is not None else ""

        def act_on(answer: str | None) -> None:
            if answer == "detach":
                self._host.exit()
            elif answer == "stop":
                self.action_stop_run()

        self._host.push_screen(Quit(self._host.source.run.name, phase), act_on)

    def action_detach(self) -> None:
        """Exit; the run keeps running. While the next attempt is being begun, ask first."""
        if self._next_attempt.command:
            self._ask_to_leave()
        else:
            self._host.exit()

    def _ask_to_leave(self) -> None:
        from liverl_tui.screens.dialogs import Confirm

        self._host.push_screen(
            Confirm(
                "Quit before the run is resumed?",
                "The run stays stopped, unless its next attempt has begun already; nothing is lost. "
                f"To resume it: {self._next_attempt.command}",
                "quit",
            ),
            lambda answer: self._host.exit() if answer == "yes" else None,
        )

    def listen(self) -> None:
        """Exit on SIGTERM and SIGHUP; the run keeps running.

        Python's own handlers are used, as those of the event loop do not run while it is blocked by a terminal that
        accepts no more bytes. If an orderly exit takes longer than ``PATIENCE_S``, the process exits at once.
        """
        loop = asyncio.get_running_loop()

        def leave(number: int, _frame: object) -> None:
            watchdog = threading.Timer(PATIENCE_S, self._leave_at_once, (of_signal(number),))
            watchdog.daemon = True
            watchdog.start()
            loop.call_soon_threadsafe(partial(self._host.exit, return_code=of_signal(number)))

        self._handlers = {n: signal.signal(n, leave) for n in (signal.SIGTERM, signal.SIGHUP)}

    def listen_no_more(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _leave_at_once(self, code: int) -> None:
        """Exit without Textual's cleanup, for a terminal that accepts no more bytes. Nothing of the run is lost."""
        restore_modes(self._host.driver)
        self.at_once()
        os._exit(code)

    def action_suspend_process(self) -> None:
        """Suspend the interface like Ctrl-Z; refused with a toast if no shell could continue it."""
        if can_suspend():
            self._host.action_suspend_process()
        else:
            self.toast(
                "cannot suspend: the interface was not started from a shell with job control", "warning"
            )

    # -- stopping

    def action_stop_run(self) -> None:
        """Stop the run once its name is typed; while it is stopping, offer to kill what remains; where the backend does
        not answer, offer to kill the run without it."""
        if self._host.view.silent and not self._host.readonly:
            self._offer_kill()
            return
        if not self._commands.may_ask():
            return
        from liverl_tui.screens.dialogs import Confirm, TypeName

        snapshot = self._host.view.snapshot
        run = self._host.source.run.name
        if snapshot is not None and snapshot.state == "stopping":
            self._host.push_screen(
                Confirm(
                    f"{run} is stopping",
                    "Kill all remaining processes now, without a grace period? "
                    "A checkpoint that is being written is lost.",
                    "kill now",
                ),
                lambda answer: self._commands.ask("stop now", "stop", now=True) if answer == "yes" else None,
            )
            return
        self._host.push_screen(
            TypeName(
                f"Stop {run}?",
                "All services are stopped in dependency order, dependents first.",
                self._host.source.run.path.name,
            ),
            lambda typed: self._commands.ask("stop run", "stop", now=False) if typed else None,
        )

    def _offer_kill(self) -> None:
        from liverl_tui.screens.dialogs import Confirm

        if self._killing:
            self.toast("the run is already being killed", "warning")
            return
        run, why = self._host.source.run.name, self._host.view.why.removesuffix("; trying again")
        self._host.push_screen(
            Confirm(
                f"Kill {run} without its backend?",
                f"{why[:1].upper()}{why[1:]}. All processes of the run are killed at once, without a grace period; a "
                "checkpoint that is being written is lost. Another backend writes the result.",
                "kill the run",
            ),
            lambda answer: self._kill_once() if answer == "yes" else None,
        )

    def _kill_once(self) -> None:
        if not self._killing:
            self._killing = True
            self.toast("kill the run ...", about="kill")
            self._host.run_worker(self._kill(), name="kill", group="commands")

    async def _kill(self) -> None:
        from liverl.control.messages import ControlError
        from liverl.daemon.launch import LaunchError

        def tell(text: str) -> None:
            self.toast(text, "warning", about="kill")

        try:
            result = await self._host.source.kill(tell)
        except (ControlError, LaunchError, OSError) as error:
            self.toast(f"could not kill the run: {error}", "error", about="kill")
        else:
            self.toast(f"the run has ended: {result.summary}", about="kill")
        finally:
            self._killing = False

    # -- a dead backend

    def action_revive(self) -> None:
        """Restart a dead backend, without confirmation, as it changes no service; in any other state a toast says why
        it is not restarted."""
        if self._host.readonly:
            self.toast(f"{self._host.why_readonly}: the backend is not started", "warning")
        elif self._host.view.link == "lost":
            self._revive_once()
        elif self._host.view.link == "ended":
            run = self._host.source.run
            self.toast(f"run {run.name} has ended; to resume it: {resume_command(run.path)}", "warning")
        elif self._host.view.demo:
            self.toast("this is a recorded run; in a live run this would restart a backend that has died")
        else:
            self.toast("the backend is running; it needs no restart")

    def _revive_once(self) -> None:
        if self._reviving:
            self.toast("the backend is already being started", "warning")
            return
        self._reviving = True
        self.toast("starting the backend; it restarts no service ...")
        self._host.run_worker(self._revive(), name="revive", group="commands")

    async def _revive(self) -> None:
        from liverl.daemon.launch import LaunchError

        try:
            await asyncio.to_thread(may_revive, self._host.source.run.path)
            await self._host.source.revive()
        except (NotOurs, LaunchError, OSError) as error:
            self.toast(f"could not start the backend: {error}", "error")
        finally:
            self._reviving = False
