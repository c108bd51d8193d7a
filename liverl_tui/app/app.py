"""The application: screens, theme, and the worker that passes views to the screens. No domain logic."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.notifications import Notify

from liverl.model import Snapshot
from liverl.rundir.index import line_there
from liverl_tui.app.actions import part_of_each
from liverl_tui.app.commands import Commands
from liverl_tui.app.lifecycle import Lifecycle
from liverl_tui.app.navigation import Navigation
from liverl_tui.app.next_attempt import NextAttempt
from liverl_tui.app.notifications import Notifications
from liverl_tui.app.playing import Playing
from liverl_tui.data.last_visit import Visit, since_then
from liverl_tui.data.list_memory import ListMemory
from liverl_tui.data.source import Source
from liverl_tui.data.view import Link, View
from liverl_tui.keys.bindings import bindings, elsewhere, keys_of
from liverl_tui.keys.idle import why_idle
from liverl_tui.screens.base import RunScreen
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.term.ordered_keys import KeysInOrder
from liverl_tui.term.private import driver_of
from liverl_tui.text import themes
from liverl_tui.widgets.base.cells import CellPanel
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.header.header import ROWS_FOR_NEWS

if TYPE_CHECKING:
    from liverl.offline.run_list import RunListed

FRESH_S = 0.6  # seconds after a view during which clocks on the screen are not redrawn
# Seconds between two redraws of the clocks while these change nothing: no duration with seconds is on the screen.
CALM_S = 5.0
HOLD_S = 0.5  # maximum seconds for which the first paint waits until the panes are filled
_BACK = "back"  # bound on all screens, and not listed in the help
_ACTIONS = (*(key.action for key in keys_of("app")), _BACK)


class LiverlApp(KeysInOrder, inherit_bindings=False):
    """Shows one run. Its parts handle its keys; ``action_target`` returns the part that handles an action.

    ``readonly``: refuse every key that would change the run, and say ``why_readonly``. ``theme``: None = the default
    one. ``problems``: settings that cannot be used, each told once. ``bell``: whether the terminal's bell may ring;
    ``desktop``: as ``ui.desktop``. ``first``: state of the run, if already known, over ``link``. ``hints``: show the
    most useful keys until one is pressed. ``last_visit``: say what has happened since then.
    ``opens_others``: whoever runs this application shows another run if one is chosen, see ``next_run``.
    ``painted``: called once, after the first paint."""

    TITLE = "liverl-tui"
    ENABLE_COMMAND_PALETTE = False  # Textual's; ours has a key in the key table
    CSS_PATH = "../styles/app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("app"), Binding("escape", _BACK, show=False)]

    def __init__(
        self,
        source: Source,
        *,
        readonly: bool = False,
        why_readonly: str = "this interface is read-only (--readonly, or web without --allow-changes)",
        theme: str | None = None,
        problems: Sequence[str] = (),
        bell: bool = True,
        desktop: str = "off",
        first: Snapshot | None = None,
        link: Link = "live",
        hints: bool = False,
        last_visit: Visit | None = None,
        opens_others: bool = False,
        painted: Callable[[], object] = lambda: None,
    ) -> None:
        if not os.environ.get("NO_COLOR"):
            # Empty means unset (https://no-color.org), but not to Textual.
            os.environ.pop("NO_COLOR", None)
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.source = source
        self.readonly = readonly
        self.why_readonly = why_readonly
        self.hints = hints
        self.last_visit = last_visit
        self.absence = ""
        self.next_run: Path | None = None  # the run to show after this one; None: none was chosen
        self._opens_others = opens_others
        self._problems = tuple(problems)
        self._summed_up = last_visit is None
        self.view = View() if first is None else View(link, snapshot=first)
        # With a first state, nothing is painted until the panes are laid out and filled: mounting, layout and filling
        # would cause five full paints (60 KB over ssh), of which only the last is needed.
        self.held = first is not None
        self._painted = painted
        self._shown_at = 0.0
        self._redraw_at = 0.0  # monotonic seconds before which no clock on the screen changes
        self.lists = ListMemory()
        self.notifications = Notifications(self, wants_bell=bell, desktop=desktop)
        self.commands = Commands(self, self.notifications)
        self.navigation = Navigation(self, self.commands, self.notifications)
        self.next_attempt = NextAttempt(self, self.commands, self.notifications)
        self.lifecycle = Lifecycle(self, self.commands, self.next_attempt, self.notifications)
        self.playing = Playing(self, self.notifications)
        parts = (self.commands, self.navigation, self.lifecycle, self.playing)
        self._part_of = part_of_each(_ACTIONS, parts)
        for entry in themes.textual_themes():
            self.register_theme(entry)
        self.theme = themes.ANSI.name if self.no_color else themes.resolve(theme, self.console.color_system)

    @property
    def palette(self) -> themes.Palette:
        """Colours of the current theme; without colours under NO_COLOR."""
        if self.no_color:
            return themes.MONOCHROME
        return themes.PALETTES.get(self.theme, themes.DARK)

    def get_default_screen(self) -> RunScreen:
        """Open the dashboard first."""
        return Dashboard()

    def refresh_css(self, animate: bool = True) -> None:
        """Apply a changed theme. Before there is a screen, the style sheet is still to be parsed: with the theme that
        is set in ``__init__`` it would be parsed twice."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())
            self.stylesheet.update(self, animate=animate)

    def on_mount(self) -> None:
        """Install signal handlers and the clock, and start to follow the run.

        With a first state, following starts with the first paint (``release``)."""
        self.theme_changed_signal.subscribe(self, lambda _theme: self._redraw())
        self.app_suspend_signal.subscribe(self, lambda _app: self.notifications.window_title.restore())
        self.app_resume_signal.subscribe(self, lambda _app: self._resumed())
        self.lifecycle.listen()
        if self.held:
            self.set_timer(HOLD_S, self.release)
        else:
            self._follow()
            self.call_after_refresh(self._painted)
        self.set_interval(1.0, self._tick)
        self.notifications.say_problems(self._problems)

    def _resumed(self) -> None:
        """Repaint everything after a suspension, and set the window title again."""
        self.refresh(layout=True)
        self.notifications.announce(self.view, self.view)

    def on_unmount(self) -> None:
        """Restore the window title and the signal handlers."""
        self.notifications.window_title.restore()
        self.lifecycle.listen_no_more()

    def release(self) -> None:
        """Do the first paint, and start to follow the run; without effect if it was done."""
        if not self.held:
            return
        if self.is_batching:  # Textual would discard the paint
            self.call_later(self.release)
            return
        self.held = False
        screen = self.screen
        for panel in screen.query(CellPanel):
            panel.update()
        self.paint_whole(screen)
        self._painted()
        self._follow()

    def may_paint(self) -> bool:
        """Whether the first paint has been done or is due; until then nothing is painted."""
        return not self.held

    def _follow(self) -> None:
        self.run_worker(self._pump(), name="pump", exit_on_error=True)

    async def _pump(self) -> None:
        """Pass the views of the source to the screens; exit when the source ends. All data enters here."""
        async for view in self.source.views():
            self.take(view)
        self.exit()

    def take(self, view: View) -> None:
        """Show a view on every visible screen, and notify of what is new in it."""
        if self.is_closing:
            return
        before, self.view = self.view, view
        if self.absence:  # "since" goes on until it was looked at
            self.absence = self._since_left(view) or self.absence
        self._shown_at = time.monotonic()
        self._redraw_at = 0.0
        for screen in self.screen_stack:
            if isinstance(screen, RunScreen) and screen.is_current:
                screen.show(view)
        self.notifications.announce(before, view)
        self.next_attempt.take()
        if not self._summed_up and view.link != "connecting" and view.events:
            self._summed_up = True
            self._sum_up(view)

    def _sum_up(self, view: View) -> None:
        """Say what has happened since the user's last visit: in the header until it was looked at, and in a terminal
        whose header has no row for it as a toast."""
        self.absence = self._since_left(view)
        if self.absence and self.size.height < ROWS_FOR_NEWS:
            self.notifications.sum_up(self.absence)
        elif self.absence and self.run_screen is not None:
            self.run_screen.show(view)

    def _since_left(self, view: View) -> str:
        """What has happened since the user's last visit, as a sentence; empty without one, or after a moment."""
        return since_then(self.last_visit, view, time.time()) if self.last_visit is not None else ""

    def _tick(self) -> None:
        """Redraw the clocks on the screen if no view came lately: each second while one of them changes, else every
        ``CALM_S`` seconds."""
        now = time.monotonic()
        if now - self._shown_at < FRESH_S or now < self._redraw_at:
            return
        screen = self.run_screen
        if screen is not None and screen.is_current and not self.is_closing:
            self._redraw_at = 0.0 if screen.redraw(self.view) else now + CALM_S

    def _redraw(self) -> None:
        for screen in self.screen_stack:
            for panel in screen.query(CellPanel):
                panel.update()

    # -- used by the parts

    @property
    def run_screen(self) -> RunScreen | None:
        """The topmost full screen, even if a dialog covers it; None before the first one."""
        return next((s for s in reversed(self.screen_stack) if isinstance(s, RunScreen)), None)

    @property
    def driver(self) -> Driver | None:
        """Writes to the terminal; None before the application runs."""
        return driver_of(self)

    def write_to_terminal(self, sequence: str) -> None:
        """Send a control sequence that is no part of a screen (title, clipboard); dropped before the start."""
        if self.driver is not None:
            self.driver.write(sequence)

    def open_run(self, run: RunListed) -> None:
        """Close this interface for that of another run; the run that was shown goes on."""
        path = Path(run.run_dir)
        if os.path.realpath(path) == os.path.realpath(self.source.run.path):
            while len(self.screen_stack) > 1:
                self.pop_screen()
        elif run.state == "elsewhere":
            line = line_there(run.host or "", "attach", path)
            words = f"run {run.run} is running on {run.host}; to open it: {line}"
            self.notifications.toast(words, "warning", about="open")
        elif not self._opens_others or self.next_attempt.command:
            why = "a new attempt of this run is starting" if self._opens_others else self.why_readonly
            words = (
                f"to open run {run.run}, type in a shell: liverl-tui attach --run {shlex.quote(str(path))}"
            )
            self.notifications.toast(f"{why}; {words}", "warning", about="open")
        else:
            self.next_run = path
            self.exit()

    def leave(self) -> None:
        """Ask whether to detach from the run or to stop it, and exit."""
        self.lifecycle.action_leave()

    def on_notify(self, message: Notify) -> None:
        """Remove the toasts that the new one replaces, before Textual shows it."""
        self.notifications.drop_outdated(message.notification)

    async def on_event(self, event: events.Event) -> None:
        """Hide the hints of the first start with the first key, which does what it always does. What a key or the mouse
        shows may have clocks of its own."""
        if isinstance(event, events.InputEvent):
            self._redraw_at = 0.0
        if self.hints and isinstance(event, events.Key):
            self.hints = False
            for bar in self.screen.query(KeyBar):
                bar.update()
        await super().on_event(event)

    def on_app_focus(self) -> None:
        """Note that the user looks at this terminal."""
        self.notifications.focused = True

    def on_app_blur(self) -> None:
        """Note that the user looks elsewhere."""
        self.notifications.focused = False

    def key_unused(self, key: str) -> None:
        """Say where a key works that does nothing on this screen."""
        if isinstance(self.screen, RunScreen) and (text := elsewhere(key)) is not None:
            self.notifications.toast(text, "warning")

    def action_target(self, name: str) -> object:
        """Return the part that handles action ``name``; the application itself for all others."""
        return self._part_of.get(name, self)

    def refuses(self, target: object, action: str, parameters: tuple[object, ...]) -> bool:
        """Say why a key does nothing now, if so."""
        why = why_idle(target, action, parameters)
        if why:
            self.notifications.toast(why, "warning")
        return bool(why)

    def has_acted(self) -> None:
        """An action may have made other keys useful, or useless."""
        if isinstance(self.screen, RunScreen):
            self.screen.refresh_keys_soon()

    # -- crashes of the interface: one line instead of Textual's traceback of many screens

    def describe_fault(self, error: Exception) -> str:
        """Save the traceback to a file, and return the line to print instead of it."""
        from liverl_tui.app.crash import report

        in_run = not (self.readonly or self.view.demo)
        ended = self.view.snapshot is not None and self.view.snapshot.result is not None
        goes_on = not ended and self.view.link not in ("demo", "ended")
        return report(error, self.source.run, in_run=in_run, goes_on=goes_on)
