"""What the parts of the application need of it: each part is made with one of these."""

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
    """``driver`` writes to the terminal; None before the application runs."""

    @property
    def driver(self) -> Driver | None: ...

    def write_to_terminal(self, sequence: str) -> None: ...


class NotificationsHost(TerminalHost, Protocol):
    source: Source
    readonly: bool

    @property
    def size(self) -> Size: ...

    def post_message(self, message: Message) -> bool: ...

    def toasts(self) -> Sequence[Notification]: ...

    def drop_toast(self, toast: Notification) -> None: ...

    def bell(self) -> None: ...


class ScreensHost(Host, Protocol):
    """``screen`` is on top, and ``run_screen`` the full one that is seen, be it behind a dialog."""

    @property
    def screen(self) -> Screen[Any]: ...

    @property
    def run_screen(self) -> RunScreen | None: ...

    def push_screen(self, screen: Screen[Any], callback: Callable[[Any], None] | None = None) -> object: ...

    def run_worker(
        self,
        work: Coroutine[Any, Any, None],
        *,
        name: str = "",
        group: str = "default",
        exclusive: bool = False,
    ) -> object: ...


class NavigationHost(ScreensHost, TerminalHost, Protocol):
    theme: Any  # str; a reactive attribute

    @property
    def no_color(self) -> bool: ...

    @property
    def screen_stack(self) -> Sequence[Screen[Any]]: ...

    def pop_screen(self) -> object: ...

    def export_screenshot(self, *, title: str | None = None) -> str: ...


class LifecycleHost(ScreensHost, TerminalHost, Protocol):
    def exit(self, *, return_code: int = 0) -> None: ...

    def action_suspend_process(self) -> None: ...
