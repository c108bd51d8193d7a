"""The two panes of the service screen: the list of services, and the detail of the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from textual.binding import Binding

from liverl.model import ReplicaStatus, ServiceStatus
from liverl_tui.text.words import GLYPH, STYLE, short_name, state_word
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.rows import WHEEL, Pane, RowsPane
from liverl_tui.widgets.service.text import About, argv_line, detail_rows

if TYPE_CHECKING:
    from textual.binding import BindingType

_MOVES: list[BindingType] = [
    Binding("up,k", "scroll(-1)", show=False),
    Binding("down,j", "scroll(1)", show=False),
    Binding("pageup,ctrl+b", "page(-1)", show=False),
    Binding("pagedown,ctrl+f,space", "page(1)", show=False),
    Binding("home,g", "top", show=False),
    Binding("end,G", "bottom", show=False),
]


class ServiceList(RowsPane):
    """All services with their states, and the replicas that are no services of the run. ``chosen`` is called with the
    name when the cursor moves to another one."""

    title = "Services"

    def __init__(self, chosen: Callable[[str], None], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._chosen = chosen
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

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The list. The chosen row is marked also while the pane has no focus, since the detail beside it belongs to
        it."""
        rows = list(super().compose_rows(width, height))
        place = 1 + self._at - self._top
        if self._services and place < len(rows):
            rows[place].cursor = True  # also without the focus
        return rows

    def _go(self, place: int) -> None:
        super()._go(place)
        if self._cursor is not None:
            self._chosen(self._cursor)

    def copy_line(self) -> str:
        """The command of the chosen service, from the callback given to ``copies``."""
        return self._command()

    def copies(self, command: Callable[[], str]) -> None:
        """Set the callback that returns what ``copy_line`` copies."""
        self._command = command


class DetailPane(Pane):
    """Everything known about one service, to scroll through."""

    title = "Service"
    BINDINGS = _MOVES

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.about: About | None = None
        self._top = 0
        self._lines: list[Row] = []

    def take(self, about: About) -> None:
        """Show these facts; another service is shown from its top."""
        if self.about is None or self.about.name != about.name:
            self._top = 0
        self.about = about
        self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The title with the name and the visible lines, and those lines of the detail."""
        about = self.about
        if about is None:
            return [self.title_row(width, "no services yet")]
        self._lines = detail_rows(about, width)
        room = max(1, height - 1)
        self._top = max(0, min(self._top, len(self._lines) - room))
        facts = about.kind
        if len(self._lines) > room:
            facts += f"  lines {self._top + 1}-{self._top + room} of {len(self._lines)}"
        return [self._title_with(about.name, width, facts), *self._lines[self._top : self._top + room]]

    def _title_with(self, name: str, width: int, facts: str) -> Row:
        row = self.title_row(width + len(self.title) - len(name), facts)
        row.spans[0] = (f" {name} ", row.spans[0][1])
        return row

    def action_scroll(self, by: int) -> None:
        """Scroll by rows, downwards if positive."""
        self._top += by
        self.update()

    def action_page(self, by: int) -> None:
        """Scroll one screen down (1) or up (-1), with one row in common."""
        self.action_scroll(by * max(1, self.content_size.height - 2))

    def action_top(self) -> None:
        """Scroll to the first line."""
        self._top = 0
        self.update()

    def action_bottom(self) -> None:
        """Scroll to the last line."""
        self._top = len(self._lines)
        self.update()

    def wheel(self, by: int) -> None:
        """Scroll by ``WHEEL`` rows."""
        self.action_scroll(WHEEL * by)

    def copy_line(self) -> str:
        """The command line, quoted for a shell."""
        return argv_line(self.about.detail) if self.about is not None else ""

    def copy_all(self) -> str:
        """The whole detail, also the lines outside of the screen."""
        return "\n".join(row.text.rstrip() for row in self._lines)
