"""The two panes of the service screen: the list of services, and the detail of the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from liverl.model import ReplicaStatus, ServiceStatus
from liverl_tui.text.words import GLYPH, STYLE, short_name, state_word
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.chooser import ChooserPane
from liverl_tui.widgets.base.scroll import ScrollPane
from liverl_tui.widgets.service.text import About, argv_line, detail_rows


class ServiceList(ChooserPane):
    """All services with their states, and the replicas that are no services of the run. ``chosen`` is called with the
    name when the cursor moves to another one."""

    title = "Services"

    def __init__(self, chosen: Callable[[str], None], *, id: str | None = None) -> None:
        super().__init__(chosen, id=id)
        self._services: dict[str, ServiceStatus | ReplicaStatus] = {}
        self._command: Callable[[], str] = str

    def take(self, services: Sequence[ServiceStatus | ReplicaStatus], selected: str | None) -> None:
        """Show these services. ``selected``: the name to put the cursor on; None leaves it where it is."""
        self._services = {s.name: s for s in services}
        if selected is not None:
            self._cursor = selected
        self.update()

    def keys(self) -> Sequence[str]:
        """The names of the services and replicas."""
        return list(self._services)

    def row(self, key: str, width: int) -> Row:
        """One service: glyph, name, state."""
        service = self._services[key]
        row = Row((f" {GLYPH[service.state]} ", STYLE[service.state]))
        room = max(6, width - 17)
        row.add(short_name(key, room), "text", width=room)
        return row.add(f" {state_word(service.state)}", STYLE[service.state])

    def copy_line(self) -> str:
        """The command of the chosen service, from the callback given to ``copies``."""
        return self._command()

    def copies(self, command: Callable[[], str]) -> None:
        """Set the callback that returns what ``copy_line`` copies."""
        self._command = command


class DetailPane(ScrollPane):
    """Everything known about one service, to scroll through."""

    title = "Service"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.about: About | None = None

    def take(self, about: About) -> None:
        """Show these facts; another service is shown from its top."""
        if self.about is None or self.about.name != about.name:
            self.to_top()
        self.about = about
        self.update()

    def heading(self) -> tuple[str, str]:
        """Name and kind of the service."""
        return ("", "no services yet") if self.about is None else (self.about.name, self.about.kind)

    def lines(self, width: int, height: int) -> list[Row]:
        """All lines of the detail."""
        return detail_rows(self.about, width) if self.about is not None else []

    def copy_line(self) -> str:
        """The command line, quoted for a shell."""
        return argv_line(self.about.detail) if self.about is not None else ""
