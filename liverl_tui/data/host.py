"""What screens and widgets may ask of the application that shows them.

Screens and widgets stand below the application and do not import it: they know this protocol only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from liverl.model import ServiceStatus
from liverl_tui.data.source import Source
from liverl_tui.data.view import View

if TYPE_CHECKING:
    from textual.dom import DOMNode


class Notifications(Protocol):
    def toast(
        self,
        text: str,
        severity: Literal["information", "warning", "error"] = "information",
        *,
        brief: bool = False,
        about: str = "",
    ) -> None: ...


class Commands(Protocol):
    """What changes the run. Where it cannot be done now, a toast says why; what could hurt is confirmed first."""

    def action_add_replica(self) -> None: ...

    def restart_one(self, service: ServiceStatus) -> None: ...

    def start_one(self, service: ServiceStatus) -> None: ...

    def stop_one(self, service: ServiceStatus) -> None: ...

    def remove_one(self, service: ServiceStatus) -> None: ...


class Navigation(Protocol):
    """What changes the screen only."""

    def action_back(self) -> None: ...

    def action_events(self) -> None: ...

    def open_service(self, name: str) -> None: ...

    def open_log(self, name: str) -> None: ...

    def open_trial(
        self,
        path: str,
        *,
        trials: Callable[[], Any] | None = None,
        among: Callable[[], str] | None = None,
        moved: Callable[[str], None] | None = None,
    ) -> None: ...

    def use_theme(self, name: str) -> None: ...


class Host(Protocol):
    """The application, as far as what it shows is concerned.

    ``held``: nothing is painted yet, and ``release`` begins to. ``readonly``: commands are refused, with a toast.
    """

    source: Source
    view: View
    readonly: bool
    held: bool

    @property
    def notifications(self) -> Notifications: ...

    @property
    def commands(self) -> Commands: ...

    @property
    def navigation(self) -> Navigation: ...

    @property
    def run_screen(self) -> Any: ...

    def release(self) -> None: ...

    def call_later(self, callback: Callable[..., Any], *args: Any) -> bool: ...


def host_of(node: DOMNode) -> Host:
    """The application that shows ``node``."""
    return cast(Host, node.app)
