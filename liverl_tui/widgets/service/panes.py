"""The two panes of the service screen: the services, and one of them in full."""

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
    """Every service with its state, and the replicas that are none; ``chosen`` is called when the cursor goes to
    another one."""

    title = "Services"

    def __init__(self, chosen: Callable[[str], None], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._chosen = chosen
        self._services: dict[str, ServiceStatus | ReplicaStatus] = {}
        self._command: Callable[[], str] = str

    def take(self, services: Sequence[ServiceStatus | ReplicaStatus], selected: str | None) -> None:
        self._services = {s.name: s for s in services}
        if selected is not None:
            self._cursor = selected
        self.update()

    def keys(self) -> Sequence[str]:
        return list(self._services)

    def row(self, key: str, width: int) -> Row:
        service = self._services[key]
        row = Row((f" {GLYPH[service.state]} ", STYLE[service.state]))
        room = max(6, width - 17)
        row.add(short_name(key, room), "text", width=room)
        return row.add(f" {state_word(service.state)}", STYLE[service.state])

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        rows = list(super().compose_rows(width, height))
        place = 1 + self._at - self._top
        if self._services and place < len(rows):
            rows[place].cursor = True  # it is the one beside, wherever the keys go
        return rows

    def _go(self, place: int) -> None:
        super()._go(place)
        if self._cursor is not None:
            self._chosen(self._cursor)

    def copy_line(self) -> str:
        """Its command, as the screen has it."""
        return self._command()

    def copies(self, command: Callable[[], str]) -> None:
        self._command = command


class DetailPane(Pane):
    """Scrolls over everything that is known of one service."""

    title = "Service"
    BINDINGS = _MOVES

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.about: About | None = None
        self._top = 0
        self._lines: list[Row] = []

    def take(self, about: About) -> None:
        if self.about is None or self.about.name != about.name:
            self._top = 0
        self.about = about
        self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        about = self.about
        if about is None:
            return [self.title_row(width, "no services yet")]
        self._lines = detail_rows(about, width)
        room = max(1, height - 1)
        self._top = max(0, min(self._top, len(self._lines) - room))
        facts = about.kind
        if len(self._lines) > room:
            facts += f"  lines {self._top + 1}-{self._top + room} of {len(self._lines)}"
        return [self._named(about.name, width, facts), *self._lines[self._top : self._top + room]]

    def _named(self, name: str, width: int, facts: str) -> Row:
        row = self.title_row(width + len(self.title) - len(name), facts)
        row.spans[0] = (f" {name} ", row.spans[0][1])
        return row

    def action_scroll(self, by: int) -> None:
        self._top += by
        self.update()

    def action_page(self, by: int) -> None:
        self.action_scroll(by * max(1, self.content_size.height - 2))

    def action_top(self) -> None:
        self._top = 0
        self.update()

    def action_bottom(self) -> None:
        self._top = len(self._lines)
        self.update()

    def wheel(self, by: int) -> None:
        self.action_scroll(WHEEL * by)

    def copy_line(self) -> str:
        """The command, for a shell."""
        return argv_line(self.about.detail) if self.about is not None else ""

    def copy_all(self) -> str:
        """All of it, not only what is seen."""
        return "\n".join(row.text.rstrip() for row in self._lines)
