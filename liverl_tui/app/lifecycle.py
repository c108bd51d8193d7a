"""The ways out: detach, stop the run, and the way back from a dead backend. Only a typed name ends a run."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from liverl.exit_codes import of_signal
from liverl_tui.term.terminal import can_suspend, restore_modes

if TYPE_CHECKING:
    from pathlib import Path

    from liverl_tui.app.commands import Commands
    from liverl_tui.app.host import LifecycleHost
    from liverl_tui.app.notifications import Notifications

PATIENCE_S = 3.0  # for an orderly end after a signal


class NotOurs(Exception):
    """The backend cannot be started from here; ``str()`` says why."""


def may_revive(run_dir: Path) -> None:
    """Whether this host is the one on which the run's backend has died.

    Raises:
        NotOurs: it is another one, whose processes cannot be adopted from here; or the backend lives.
    """
    from liverl.rundir.layout import DeadBackend, LiveBackend, backend_alive, hostname

    found = backend_alive(run_dir)
    if isinstance(found, LiveBackend):
        raise NotOurs(f"the backend lives (pid {found.record.pid})")
    host = found.host if not isinstance(found, DeadBackend) else found.record.host if found.record else None
    if host is not None and host != hostname():
        raise NotOurs(
            f"its services may run on {host}: start the backend there (liverl-tui up --run {run_dir})"
        )


class Lifecycle:
    """Leaving, stopping, reviving."""

    def __init__(self, host: LifecycleHost, commands: Commands, notifications: Notifications) -> None:
        self._host = host
        self._commands = commands
        self.toast = notifications.toast
        self._reviving = False
        self._handlers: dict[signal.Signals, Any] = {}  # those of before

    # -- leaving

    def action_leave(self) -> None:
        """Ask what becomes of the run; where nothing can become of it, just leave."""
        if self._host.view.link != "live" or self._host.readonly:
            self._host.exit()
            return
        from liverl_tui.screens.dialogs import Quit

        snapshot = self._host.view.snapshot
        phase = snapshot.phase if snapshot is not None else ""

        def said(answer: str | None) -> None:
            if answer == "detach":
                self._host.exit()
            elif answer == "stop":
                self.action_stop_run()

        self._host.push_screen(Quit(self._host.source.run.name, phase), said)

    def action_detach(self) -> None:
        self._host.exit()

    def listen(self) -> None:
        """Leave on SIGTERM and SIGHUP: the end of the terminal, or of us, is not the end of the run.

        By Python's own handlers: those of the event loop wait for it, and it stands still where the terminal takes
        no more bytes.
        """
        loop = asyncio.get_running_loop()

        def leave(number: int, _frame: object) -> None:
            watchdog = threading.Timer(PATIENCE_S, self._leave_at_once, (of_signal(number),))
            watchdog.daemon = True
            watchdog.start()
            loop.call_soon_threadsafe(partial(self._host.exit, return_code=of_signal(number)))

        self._handlers = {n: signal.signal(n, leave) for n in (signal.SIGTERM, signal.SIGHUP)}

    def listen_no_more(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def _leave_at_once(self, code: int) -> None:
        """Where an orderly end does not come, as the terminal does not take our last bytes: nothing is lost."""
        restore_modes(self._host.driver)
        os._exit(code)

    def action_suspend_process(self) -> None:
        if can_suspend():
            self._host.action_suspend_process()
        else:
            self.toast("no shell waits that could bring the interface back", "warning")

    # -- stopping

    def action_stop_run(self) -> None:
        if not self._commands.may_ask():
            return
        from liverl_tui.screens.dialogs import Confirm, TypeName

        snapshot = self._host.view.snapshot
        run = self._host.source.run.name
        if snapshot is not None and snapshot.state == "stopping":
            self._host.push_screen(
                Confirm(
                    f"{run} is stopping",
                    "Kill what is left at once, without grace? A checkpoint that is being written is lost.",
                    "kill the rest",
                    safe=True,
                ),
                lambda said: self._commands.ask("stop now", "stop", now=True) if said == "yes" else None,
            )
            return
        self._host.push_screen(
            TypeName(
                f"Stop {run}?",
                "Every service is ended in order, dependents first.",
                self._host.source.run.path.name,
            ),
            lambda typed: self._commands.ask("stop run", "stop", now=False) if typed else None,
        )

    # -- a dead backend

    def action_revive(self) -> None:
        if self._host.readonly:
            self.toast("this interface is read-only (--readonly): nothing is started", "warning")
        elif self._host.view.link == "lost":
            self._commands.confirm(
                "Restart the backend and adopt?",
                "It takes over the services that still run; none is restarted, and none is lost.",
                "restart and adopt",
                self._revive_once,
            )
        elif self._host.view.link == "ended":
            self.toast("the run has ended; its next attempt: liverl-tui up --resume", "warning")
        else:
            self.toast("the backend lives; there is nothing to revive")

    def _revive_once(self) -> None:
        if self._reviving:
            self.toast("the backend is being started already", "warning")
            return
        self._reviving = True
        self.toast("starting the backend ...")
        self._host.run_worker(self._revive(), name="revive", group="commands")

    async def _revive(self) -> None:
        from liverl.daemon.launch import LaunchError

        try:
            await asyncio.to_thread(may_revive, self._host.source.run.path)
            await self._host.source.revive()
        except (NotOurs, LaunchError, OSError) as error:
            self.toast(f"the backend was not started: {error}", "error")
        else:
            self.toast("the backend is up; it adopts what still runs")
        finally:
            self._reviving = False
