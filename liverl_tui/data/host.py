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


class Host(Protocol):
    """The application, as far as what it shows is concerned.

    ``held``: nothing is painted yet, and ``release`` begins to. ``readonly``: commands are refused, with a toast.
    """

    source: Source
    view: View
    readonly: bool
    held: bool

    def release(self) -> None: ...

    def toast(
        self,
        text: str,
        severity: Literal["information", "warning", "error"] = "information",
        *,
        brief: bool = False,
        about: str = "",
    ) -> None: ...

    @property
    def run_screen(self) -> Any: ...

    def call_later(self, callback: Callable[..., Any], *args: Any) -> bool: ...

    async def send(self, name: str, **args: Any) -> dict[str, Any]: ...

    def service(self, name: str | None) -> ServiceStatus | None: ...

    def action_back(self) -> None: ...

    def action_events(self) -> None: ...

    def action_add_replica(self) -> None: ...

    def restart_one(self, service: ServiceStatus) -> None: ...

    def start_one(self, service: ServiceStatus) -> None: ...

    def stop_one(self, service: ServiceStatus) -> None: ...

    def remove_one(self, service: ServiceStatus) -> None: ...

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


def host_of(node: DOMNode) -> Host:
    """The application that shows ``node``."""
    return cast(Host, node.app)
