"""The two panes of the service screen: the list of services, and the detail of the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from liverl.model import ReplicaStatus, ServiceStatus, TreeStats
from liverl_tui.text.status_label import StatusLabel, standing
from liverl_tui.text.words import GLYPH, STYLE, UNKNOWN, age, count, short_name, size, state_word
from liverl_tui.widgets.base.cells import Row, Span
from liverl_tui.widgets.base.chooser import ChooserPane
from liverl_tui.widgets.base.fitting import Column
from liverl_tui.widgets.base.scroll import ScrollPane
from liverl_tui.widgets.service.text import About, argv_line, detail_rows


@dataclass(frozen=True)
class Facts:
    """What the columns read of one service or replica. ``now``: Unix time."""

    status: ServiceStatus | ReplicaStatus
    now: float

    @property
    def tree(self) -> TreeStats | None:
        """What its processes use; None for a replica that is no service, and for a service without processes."""
        tree = self.status.tree if isinstance(self.status, ServiceStatus) else None
        return tree if tree is not None and tree.processes else None

    @property
    def uptime(self) -> float | None:
        """Seconds since it became ready."""
        since = self.status.ready_at if isinstance(self.status, ServiceStatus) else self.status.since
        return None if since is None else max(0.0, self.now - since)


def _glyph(facts: Facts) -> Span:
    if (stands := _standing(facts)) is not None:
        return f" {stands.glyph}", stands.style
    return f" {GLYPH[facts.status.state]}", STYLE[facts.status.state]


def _standing(facts: Facts) -> StatusLabel | None:
    return standing(facts.status, facts.now) if isinstance(facts.status, ServiceStatus) else None


def _state(facts: Facts) -> Span:
    if (stands := _standing(facts)) is not None:
        return stands.short, stands.style
    return state_word(facts.status.state), STYLE[facts.status.state]


def _number(
    name: str,
    head: str,
    width: int,
    value: Callable[[Facts], float | None],
    words: Callable[[float | None], str],
) -> Column:
    """A column of numbers that is shown only if the user wants it. ``words``: a number as text."""

    def cell(facts: Facts) -> Span:
        return words(value(facts)), "text"

    return Column(name, head, width, 3, ">", 0, value, True, name, False, cell)


def _percent_of_core(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}%"


_COLUMNS = (
    Column("glyph", "", 2, 0, label="sign of the state", cell=_glyph),
    Column("name", "name", 6, 0, grows=200, value=lambda f: f.status.name),
    Column("state", "state", 13, 1, value=lambda f: state_word(f.status.state), cell=_state),
    Column(
        "kind",
        "kind",
        11,
        3,
        value=lambda f: f.status.kind,
        shown=False,
        cell=lambda f: (f.status.kind, "text"),
    ),
    _number("restarts", "rst", 3, lambda f: f.status.restarts, count),
    _number("uptime", "up", 5, lambda f: f.uptime, age),
    _number("cpu", "cpu", 5, lambda f: f.tree.cpu_percent if f.tree is not None else None, _percent_of_core),
    _number("memory", "mem", 5, lambda f: f.tree.rss_bytes if f.tree is not None else None, size),
)


class ServiceList(ChooserPane):
    """All services with their states, and the replicas that are no services of the run. ``chosen`` is called with the
    name when the cursor moves to another one."""

    title = "Services"
    list_name = "services"
    own_orders = ("as configured",)

    def __init__(self, chosen: Callable[[str], None], *, id: str | None = None) -> None:
        super().__init__(chosen, id=id)
        self._services: dict[str, ServiceStatus | ReplicaStatus] = {}
        self._command: Callable[[], str] = str
        self._now = 0.0

    def take(
        self, services: Sequence[ServiceStatus | ReplicaStatus], selected: str | None, now: float = 0.0
    ) -> None:
        """Show these services. ``selected``: the name to put the cursor on; None leaves it where it is. ``now``: Unix
        time."""
        self._now = now
        self._services = {s.name: s for s in services}
        if selected is not None:
            self._cursor = selected
        self.update()

    def items(self) -> Sequence[str]:
        """The names of the services and replicas."""
        return list(self._services)

    def columns(self) -> tuple[Column, ...]:
        """All columns; those of uptime, CPU and memory only for services."""
        return _COLUMNS

    def item(self, key: str) -> Facts:
        """What is known of a service or replica."""
        return Facts(self._services[key], self._now)

    def words(self, key: str) -> str:
        """Name, kind, state, and why it is in that state."""
        service = self._services[key]
        return f"{key} {service.kind} {state_word(service.state)} {service.why}"

    def head(self, width: int) -> Row | None:
        """The column heads, once the user has arranged the list: names and states need none."""
        arrangement = self.arrangement
        return super().head(width) if arrangement.order is not None or arrangement.columns else None

    def row(self, key: str, width: int) -> Row:
        """One service: glyph, name, state, and the columns that the user has added."""
        facts, row = self.item(key), Row()
        for column, room in self.drawn_table(width):
            if column.name == "name":
                row.add(short_name(key, room), "text", room)
            else:
                assert column.cell is not None
                text, style = column.cell(facts)
                row.add(text, style, room, column.align)
            row.add(" ")
        return row

    def copy_row(self, key: str) -> str:
        """The command of the chosen service, from the callback given to ``copies``; of marked services the rows."""
        return super().copy_row(key) if self.arrangement.marks else self._command()

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
