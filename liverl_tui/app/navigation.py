"""The keys that do not change the run: other screens, help, palette, copies, screenshots, themes, the mouse."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from liverl.util.late_pattern import late_pattern
from liverl_tui.app.settings import LEAST_INTERVAL_S, PREFIX
from liverl_tui.data.view import processes
from liverl_tui.keys.bindings import find
from liverl_tui.term.private import mouse_is_on, set_mouse
from liverl_tui.term.terminal import inside_tmux
from liverl_tui.text import themes

if TYPE_CHECKING:
    from liverl.diagnose.evidence import LogPlace
    from liverl.model import TrialHead
    from liverl_tui.app.commands import Commands
    from liverl_tui.app.host import NavigationHost
    from liverl_tui.app.notifications import Notifications
    from liverl_tui.screens.base import RunScreen
    from liverl_tui.screens.dashboard import Dashboard
    from liverl_tui.widgets.base.rows import RowsPane
    from liverl_tui.widgets.dashboard.trials import TrialsPane
    from liverl_tui.widgets.log.pane import LogsPane

# Fonts that screenshots would fetch from the web; without them the viewer's monospace font is used.
_FONTS = late_pattern(r"@font-face \{.*?\}\s*", re.DOTALL)


class Navigation:
    """Handles the keys that do not change the run."""

    def __init__(self, host: NavigationHost, commands: Commands, notifications: Notifications) -> None:
        self._host = host
        self._commands = commands
        self._notifications = notifications
        self.toast = notifications.toast
        self._typed: list[str] = []  # history of the command line, the newest last

    # -- screens

    def _open(self, screen: RunScreen) -> None:
        """Show a full screen; if one of the same class is open, go back to that one."""
        stack = self._host.screen_stack
        for depth, open_ in enumerate(stack):
            if type(open_) is type(screen):
                for _ in stack[depth + 1 :]:
                    self._host.pop_screen()
                return
        self._host.push_screen(screen)

    def open_service(self, name: str) -> None:
        """Show the screen of service or replica ``name``, in place of that of another one."""
        from liverl_tui.screens.service import ServiceScreen

        if isinstance(self._host.screen, ServiceScreen):
            self._host.pop_screen()
        self._host.push_screen(ServiceScreen(name))

    def open_gpu(self, uuid: str | None = None) -> None:
        """Show the screen of the GPU ``uuid``, in place of that of another one; without a UUID, of the first GPU."""
        from liverl_tui.screens.gpu import GpuScreen

        if isinstance(self._host.screen, GpuScreen):
            self._host.pop_screen()
        self._host.push_screen(GpuScreen(uuid))

    def open_trial(
        self,
        path: str,
        *,
        trials: Callable[[], Sequence[TrialHead]] | None = None,
        among: Callable[[], str] | None = None,
        moved: Callable[[str], None] | None = None,
    ) -> None:
        """Show one trial turn by turn. ``path``: its directory, relative to the run's. See ``TrajectoryScreen``."""
        from liverl_tui.screens.trajectory import TrajectoryScreen

        self._host.push_screen(TrajectoryScreen(path, trials=trials, among=among, moved=moved))

    def open_pair(self, left: str, right: str) -> None:
        """Show two trials side by side. ``left``, ``right``: their directories, relative to the run's. See
        ``PairScreen``."""
        from liverl_tui.screens.pair import PairScreen

        self._host.push_screen(PairScreen(left, right))

    def open_tokens(self, path: str, turn: int = 0) -> None:
        """Show the tokens of a trial. ``path``: its directory, relative to the run's. See ``TokensScreen``."""
        from liverl_tui.screens.tokens import TokensScreen

        self._host.push_screen(TokensScreen(path, turn))

    def open_log(self, name: str) -> None:
        """Show the log of ``name`` in the dashboard; for a replica managed by verl, its lines in the trainer's log."""
        pane = self._log_pane()
        if pane is not None:
            pane.show_log_of(name)

    def open_log_place(self, place: LogPlace) -> None:
        """Show a line of a log in the dashboard."""
        pane = self._log_pane()
        if pane is not None:
            pane.show_place(place)

    def open_log_time(self, text: str) -> None:
        """Show the log of the dashboard at a time, as ``liverl.logs.times.parse_moment`` reads it."""
        pane = self._log_pane()
        if pane is not None:
            try:
                pane.go_to_time(text)
            except ValueError as error:
                self.toast(str(error), "error")

    def open_log_line(self, number: int) -> None:
        """Show line ``number`` (from 1) of the file that the logs pane of the dashboard shows."""
        pane = self._log_pane()
        if pane is not None:
            pane.go_to_line(number)

    def open_step(self, step: int) -> None:
        """Show all trials of a step in the dashboard."""
        if (pane := self._trials_pane()) is not None:
            pane.show_step(step)

    def find_trial(self, text: str) -> None:
        """Open the trial of the run that has this name, or list those whose names have it."""
        if (pane := self._trials_pane()) is not None:
            pane.find_trial(text)

    def open_trial_row(self, number: int) -> None:
        """Go to a row of the list of trials, counted from 1."""
        if (pane := self._trials_pane()) is not None:
            pane.go_to_row(number)

    def _trials_pane(self) -> TrialsPane | None:
        """Go to the list of trials and return it; None without a dashboard."""
        from liverl_tui.widgets.dashboard.trials import TrialsPane as Pane

        dashboard = self._dashboard()
        if dashboard is None:
            return None
        dashboard.action_jump("trials")
        return dashboard.query_one(Pane)

    def _log_pane(self) -> LogsPane | None:
        """Go to the logs pane and return it; None without a dashboard."""
        from liverl_tui.widgets.log.pane import LogsPane

        dashboard = self._dashboard()
        if dashboard is None:
            return None
        dashboard.action_jump("logs")
        return dashboard.query_one(LogsPane)

    def _dashboard(self) -> Dashboard | None:
        """Close the screens above the dashboard and return it; None without one."""
        from liverl_tui.screens.dashboard import Dashboard

        dashboard = next(
            (screen for screen in self._host.screen_stack if isinstance(screen, Dashboard)), None
        )
        if dashboard is None:
            return None
        while self._host.screen is not dashboard:
            self._host.pop_screen()
        return dashboard

    def action_back(self) -> None:
        """Close the topmost screen; on the dashboard, restore a maximised pane, else show the whole log where a
        selected row has narrowed it."""
        from liverl_tui.screens.dashboard import Dashboard

        screen = self._host.screen
        if len(self._host.screen_stack) > 1:
            self._host.pop_screen()
        elif isinstance(screen, Dashboard) and screen.maximised is not None:
            screen.action_maximise()
        elif isinstance(screen, Dashboard):
            screen.unselect()

    def action_services(self) -> None:
        """Show the screen of the selected service or replica, else that of the first service."""
        names = [s.name for s in processes(self._host.view.snapshot)]
        if not names:
            over = self._host.view.link == "ended"
            self.toast("this run has no services" if over else "no services yet", "warning")
            return
        self.open_service(self._commands.selected_service() or self._commands.selected_actor() or names[0])

    def action_metrics(self) -> None:
        """Show the charts of the training metrics."""
        from liverl_tui.screens.metrics import MetricsScreen

        self._open(MetricsScreen())

    def action_disk(self) -> None:
        """Show what the run holds on disk."""
        from liverl_tui.screens.disk import DiskScreen

        self._open(DiskScreen())

    def action_timeline(self) -> None:
        """Show where the time of a step goes."""
        from liverl_tui.screens.timeline import TimelineScreen

        self._open(TimelineScreen())

    def action_events(self) -> None:
        """Show the events of the run."""
        from liverl_tui.screens.events import EventsScreen

        self._open(EventsScreen())

    def action_alerts(self) -> None:
        """Show the alerts with evidence, cause and fix."""
        from liverl_tui.screens.alerts import AlertsScreen

        self._open(AlertsScreen())

    def action_sandboxes(self) -> None:
        """Show what the trials have in Docker or Kubernetes."""
        from liverl_tui.screens.sandboxes import SandboxesScreen

        self._open(SandboxesScreen())

    def action_runs(self) -> None:
        """Show all runs of this host and of the run root of the shown run: a folder of somebody else's run, and
        that of a demo, is in none."""
        from liverl_tui.screens.runs import RunsScreen

        run = self._host.source.run
        one_of_many = run.is_run() and not self._host.view.demo
        self._open(RunsScreen(run.path.parents[1] if one_of_many else None, run.path))

    def action_help(self) -> None:
        """Show the keys of the current screen and of the focused pane."""
        from liverl_tui.screens.help import HelpScreen

        screen = self._host.run_screen
        scopes = tuple(scope for scope, _ in screen.scoped_nodes()) if screen is not None else ()
        self._open(HelpScreen(scopes))

    def action_palette(self) -> None:
        """Show the command line, and carry out the chosen entry or the typed command."""
        from liverl_tui.screens.entries import entries, here_of
        from liverl_tui.screens.palette import Palette
        from liverl_tui.screens.shell_entries import shell_entries

        self._host.push_screen(
            Palette([*entries(self._host), *shell_entries(self._host)], here_of(self._host), self._typed),
            lambda entry: entry.do() if entry is not None else None,
        )

    # -- how lists are arranged

    def choose_order(self, pane: RowsPane) -> None:
        """Show the orders and columns by which ``pane`` can be sorted, and sort it by the chosen one."""
        from liverl_tui.screens.arrange import SortBy

        self._host.push_screen(SortBy(pane), lambda name: pane.sort_by(name) if name is not None else None)

    def choose_rewards(
        self, narrow: Callable[[str], None], rewards: Sequence[float], unknown: int, what: str
    ) -> None:
        """Show the histogram of ``rewards`` (and ``unknown`` trials without one), and call ``narrow`` with the filter
        of the chosen bar. ``what``: whose rewards these are."""
        from liverl_tui.screens.rewards import RewardBars

        self._host.push_screen(
            RewardBars(rewards, unknown, what), lambda term: narrow(term) if term is not None else None
        )

    def choose_columns(self, pane: RowsPane) -> None:
        """Show the columns of ``pane``, to show and hide each."""
        from liverl_tui.screens.arrange import ColumnSwitches

        self._host.push_screen(ColumnSwitches(pane))

    # -- copies and screenshots

    def _near(self) -> list[Any]:
        """Return the focused widget, its ancestors and the screen, innermost first."""
        screen = self._host.run_screen
        if screen is None:
            return []
        return [*(screen.focused.ancestors_with_self if screen.focused is not None else ()), screen]

    def _copied(self, method: str) -> str:
        """Return what the innermost node with ``method`` gives; "" without one."""
        for node in self._near():
            if hasattr(node, method):
                return str(getattr(node, method)())
        return ""

    def action_copy(self) -> None:
        """Copy the selected line of the focused pane."""
        self.copy_text(self._copied("copy_line"))

    def action_copy_all(self) -> None:
        """Copy the whole text of the focused pane."""
        self.copy_text(self._copied("copy_all"))

    def copy_text(self, text: str) -> None:
        """Copy ``text`` to the clipboard or a file; a toast says which, or that there is nothing to copy."""
        if not text.strip():
            self.toast("nothing to copy here", "warning")
            return
        self._host.run_worker(self._copy(text), group="copy", exclusive=True)

    @property
    def _in_run(self) -> bool:
        """Whether copied text and screenshots go to the run directory; a demo's is removed at its end."""
        return not (self._host.readonly or self._host.view.demo)

    async def _copy(self, text: str) -> None:
        from liverl_tui.term.clipboard import copy

        run_dir, in_run = self._host.source.run.path, self._in_run
        outcome = await asyncio.to_thread(copy, text, self._host.write_to_terminal, run_dir, in_run=in_run)
        self.toast(outcome.words, "information" if outcome.ok else "error")

    def action_picture(self) -> None:
        """Save a screenshot as SVG, without secrets, in the background; a toast names the file."""
        from liverl_tui.text.masked_svg import masked, with_own_fonts

        screen = self._host.run_screen
        name = _stamped(screen.scope if screen is not None else "screen", "svg", _stamp())
        title = f"liverl-tui {self._host.source.run.name}"
        picture = masked(with_own_fonts(_FONTS.sub("", self._host.export_screenshot(title=title))))
        self._host.run_worker(
            self._save_as({f"screenshots/{name}": picture}, "screenshot"), group="screenshot"
        )

    def action_export(self) -> None:
        """Save what the focused pane or the screen shows, in its usual form."""
        self.export(None)

    def export(self, form: str | None) -> None:
        """Save what is shown to a file, without secrets; a toast names it. ``form``: csv, json, svg or txt; None: the
        usual one, or all where ``exports_all`` is set. What ``export_more`` returns is said behind the files' names."""
        from liverl.util import redact

        node = next((node for node in self._near() if hasattr(node, "exporters")), None)
        forms: dict[str, Callable[[], str]] = dict(node.exporters()) if node is not None else {}
        if node is None and (text := self._copied("copy_all")).strip():
            forms = {"txt": lambda: f"{text}\n"}
        if not forms:
            self.toast("there is nothing to export here yet", "warning")
            return
        if form is not None and form not in forms:
            self.toast(f"what is shown here can be saved as {' or '.join(forms)}, not as {form}", "warning")
            return
        usual = list(forms) if getattr(node, "exports_all", False) else list(forms)[:1]
        screen, pane = self._host.run_screen, getattr(self._near()[0], "id", None)
        shown = pane if screen is not None and screen.scope == "dashboard" else None
        what = shown or (screen.scope if screen is not None else "screen")
        stamp = _stamp()  # one for all forms of one export
        files = {
            f"saved/{_stamped(what, chosen, stamp)}": redact.value(forms[chosen]())
            for chosen in (usual if form is None else [form])
        }
        more = getattr(node, "export_more", str)()
        self._host.run_worker(self._save_as(files, more=more), group="export")

    async def _save_as(self, files: Mapping[str, str], what: str = "file", more: str = "") -> None:
        from liverl_tui.data.own_files import write_own

        run_dir, in_run = self._host.source.run.path, self._in_run
        saved: list[str] = []
        for name, text in files.items():
            try:
                path = await asyncio.to_thread(write_own, run_dir, name, text, in_run=in_run)
            except OSError as error:
                self.toast(f"cannot save the {what}: {error.strerror}", "error")
                return
            saved.append(path.name if saved else str(path))
        self.toast(f"saved {' and '.join(saved)}{more}")

    # -- theme and mouse

    def use_theme(self, name: str) -> None:
        """Switch to theme ``name``; refused with a toast under NO_COLOR.

        Raises:
            KeyError: there is no such theme.
        """
        if self._host.no_color:
            self.toast("NO_COLOR is set; themes are disabled", "warning")
            return
        self._host.theme = themes.resolve(name)
        self.toast(f"theme {self._host.theme.removeprefix('liverl-')}")

    def use_setting(self, key: str, value: str) -> None:
        """Use a value of the section ``ui`` of the configuration in this interface; ``key`` is without ``ui.``. A key
        that is read at the start only is refused with a toast that says so."""
        on = value.lower() in ("true", "yes", "on")
        if key == "mouse":
            if mouse_is_on(self._host.driver) != on:
                self.action_mouse()
                return
        elif key == "bell":
            self._notifications.wants_bell = on
        elif key == "desktop":
            self._notifications.desktop = value
        elif key == "refresh_interval":
            self._host.source.interval = max(LEAST_INTERVAL_S, float(value))
        else:
            variable = f"{PREFIX}{key.upper()}"
            self.toast(
                f"ui.{key} is read when the interface starts: {variable}={value} liverl-tui attach", "warning"
            )
            return
        self.toast(f"ui.{key}={value} in this interface")

    def action_theme(self) -> None:
        """Switch to the next theme."""
        self.use_theme(themes.following(self._host.theme))

    def action_mouse(self) -> None:
        """Switch mouse reporting on or off; while on, the terminal selects text only with Shift."""
        driver = self._host.driver
        on = not mouse_is_on(driver)
        if not set_mouse(driver, on):
            self.toast("this terminal cannot switch the mouse on or off", "warning")
        elif on:
            where = "selection by tmux and the terminal" if inside_tmux() else "selection by the terminal"
            self.toast(f"mouse on; {where} needs Shift until you {find('app', 'mouse').press}")
        else:
            self.toast("mouse off; the terminal selects text again")


def _stamp() -> str:
    """Now, for names of files: ``20261120-143005``."""
    return time.strftime("%Y%m%d-%H%M%S")


def _stamped(what: str, form: str, stamp: str) -> str:
    """The name of a file: ``20261120-143005-metrics.svg``. ``stamp``: see ``_stamp``."""
    return f"{stamp}-{what}.{form}"
