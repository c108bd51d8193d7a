"""The application while no run is shown: the list of all runs, to open one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from liverl.control.messages import CommandError
from liverl.rundir.layout import RunDir
from liverl.rundir.state_home import interface_root
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.first_start import first_start
from liverl_tui.data.view import View
from liverl_tui.screens.runs import RunsScreen

if TYPE_CHECKING:
    from liverl.daemon.plan_change import PlanChange
    from liverl.model import Result
    from liverl_tui.app.settings import UiSettings

NO_RUN = "no run is open"


class NoSource:
    """A source without a run: it has no views, and refuses commands."""

    def __init__(self, interval: float) -> None:
        self.run = RunDir(interface_root() / "runs")
        self.interval = interval

    async def views(self) -> AsyncIterator[View]:
        """See ``Source.views``: there are none."""
        await asyncio.Event().wait()
        yield View()

    async def command(self, name: str, **args: Any) -> dict[str, Any]:
        """See ``Source.command``."""
        raise CommandError("refused", NO_RUN)

    async def revive(self) -> None:
        """See ``Source.revive``; there is no backend."""

    async def kill(self, tell: Callable[[str], None]) -> Result:
        """See ``Source.kill``."""
        raise CommandError("refused", NO_RUN)

    async def ended(self, attempt: int) -> Result:
        """See ``Source.ended``."""
        raise CommandError("refused", NO_RUN)

    async def resume(self, change: PlanChange) -> None:
        """See ``Source.resume``."""
        raise CommandError("refused", NO_RUN)


class _WithoutRun:
    """Answers the keys that show something of a run."""

    def __init__(self, app: LiverlApp) -> None:
        self._app = app

    def action_metrics(self) -> None:
        """Say that there is no run."""
        self._app.notifications.toast(f"{NO_RUN}: choose one, and press Enter", "warning")

    action_services = action_events = action_alerts = action_sandboxes = action_disk = action_timeline = (
        action_revive
    ) = action_metrics


class RunsApp(LiverlApp):
    """Shows all runs. ``run_root``: a further directory of runs. ``next_run``: the one that was chosen. ``told``: said
    in a toast as the list opens."""

    CSS_PATH = "../styles/app.tcss"

    def __init__(
        self,
        run_root: Path | None,
        settings: UiSettings,
        painted: Callable[[], object] = lambda: None,
        told: str = "",
    ) -> None:
        super().__init__(
            NoSource(settings.interval),
            readonly=True,
            why_readonly=NO_RUN,
            theme=settings.theme,
            problems=settings.problems,
            bell=settings.bell,
            hints=first_start(),
            opens_others=True,
            painted=painted,
        )
        self.view = View("ended")
        self._run_root = run_root
        self._told = told
        self._without_run = _WithoutRun(self)

    def on_mount(self) -> None:
        """Say why the list is shown. Textual calls that of ``LiverlApp``, too."""
        if self._told:
            self.notifications.toast(self._told)

    def get_default_screen(self) -> RunsScreen:
        """Open the list."""
        return RunsScreen(self._run_root)

    def action_target(self, name: str) -> object:
        """As in the interface of a run, but what only a run has is refused in words."""
        return (
            self._without_run if hasattr(self._without_run, f"action_{name}") else super().action_target(name)
        )
