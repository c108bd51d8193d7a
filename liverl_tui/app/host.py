"""Protocols: what each part of the application needs from the application that creates it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from liverl_tui.data.host import Host

if TYPE_CHECKING:
    from textual.driver import Driver
    from textual.geometry import Size
    from textual.message import Message
    from textual.notifications import Notification
    from textual.screen import Screen

    from liverl_tui.data.source import Source
    from liverl_tui.screens.base import RunScreen


class TerminalHost(Protocol):
    """An application that has a terminal."""

    @property
    def driver(self) -> Driver | None:
        """Writes to the terminal; None before the application runs."""

    def write_to_terminal(self, sequence: str) -> None:
        """Send a control sequence that is no part of a screen."""


class NotificationsHost(TerminalHost, Protocol):
    """What ``Notifications`` needs. ``readonly``: commands are refused."""

    source: Source
    readonly: bool

    @property
    def size(self) -> Size:
        """Columns and rows of the terminal."""

    @property
    def screen(self) -> Screen[Any]:
        """The topmost screen, or dialog."""

    @property
    def screen_stack(self) -> Sequence[Screen[Any]]:
        """The screens, the topmost last; empty as the program ends."""

    def post_message(self, message: Message) -> bool:
        """Queue a message; return whether it was accepted."""

    def toasts(self) -> Sequence[Notification]:
        """Return the toasts that are shown or queued."""

    def drop_toast(self, toast: Notification) -> None:
        """Remove a toast; the screen changes with the next toast."""

    def bell(self) -> None:
        """Ring the terminal's bell."""


class ScreensHost(Host, Protocol):
    """An application that shows screens and runs background work."""

    @property
    def screen(self) -> Screen[Any]:
        """The topmost screen, which may be a dialog."""

    @property
    def run_screen(self) -> RunScreen | None:
        """The topmost full screen, even if a dialog covers it; None before the first one."""

    def push_screen(self, screen: Screen[Any], callback: Callable[[Any], None] | None = None) -> object:
        """Show ``screen`` on top; ``callback`` gets its result when it is closed."""

    def run_worker(
        self,
        work: Coroutine[Any, Any, None],
        *,
        name: str = "",
        group: str = "default",
        exclusive: bool = False,
    ) -> object:
        """Run ``work`` in the background; ``exclusive``: cancel the other work of ``group`` first."""


class NavigationHost(ScreensHost, TerminalHost, Protocol):
    """What ``Navigation`` needs."""

    theme: Any  # str; a reactive attribute

    @property
    def no_color(self) -> bool:
        """Whether NO_COLOR is set."""

    @property
    def screen_stack(self) -> Sequence[Screen[Any]]:
        """The open screens, the topmost last."""

    def pop_screen(self) -> object:
        """Close the topmost screen."""

    def export_screenshot(self, *, title: str | None = None) -> str:
        """Return a picture of the screen as SVG."""


class LifecycleHost(ScreensHost, TerminalHost, Protocol):
    """What ``Lifecycle`` needs."""

    def exit(self, *, return_code: int = 0) -> None:
        """End the application; ``return_code`` becomes the exit code of the process."""

    def action_suspend_process(self) -> None:
        """Suspend the process as Textual does; the shell's ``fg`` continues it."""
