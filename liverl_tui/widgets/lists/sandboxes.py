"""The list of what the run's trials have in Docker or Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from liverl.model import SandboxesStatus, SandboxStatus
from liverl.util.plural import quantity
from liverl_tui.data.host import Host, host_of
from liverl_tui.keys.bindings import Scope, bindings, find
from liverl_tui.text.words import age, one_line
from liverl_tui.text.wrapping import wrap
from liverl_tui.widgets.base.cells import Row, Span, fit, with_below
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.base.fitting import Column
from liverl_tui.widgets.base.rows import RowsPane

if TYPE_CHECKING:
    from liverl_tui.data.view import View

_STATES: dict[str, Span] = {
    "running": ("● running", "ok"),
    "created": ("◐ starting", "info"),
    "paused": ("▲ paused", "warn"),
    "restarting": ("↻ restarting", "warn"),
    "removing": ("◑ removing", "dim"),
    "exited": ("○ exited", "dim"),
    "dead": ("✖ dead", "bad"),
}


def state_of(row: SandboxStatus) -> Span:
    """(glyph and word, style) of a container's state; one that has ended has its exit status."""
    word, style = _STATES.get(row.state, (one_line(row.state) or "-", "warn"))
    if row.exit is not None:
        return f"{word} {row.exit}", "bad" if row.exit else style
    return word, style


def notes_of(row: SandboxStatus) -> tuple[Span, ...]:
    """What is to be said of a container, the most serious first."""
    notes: list[Span] = []
    if row.reason:
        notes.append((row.reason, "warn"))
    if row.oom:
        notes.append(("memory used up", "bad"))
    if row.left:
        notes.append(("left: no living trial", "warn"))
    if row.kept:
        notes.append(("kept", "info"))
    return tuple(notes)


_COLUMNS = (
    Column(
        "trial", "trial", 20, 0, grows=30, value=lambda row: row.trial or None, cell=lambda row: (row.trial, "text")
    ),
    Column("state", "state", 13, 0, value=lambda row: state_of(row)[0], cell=state_of),
    Column("since", "for", 6, 1, ">", value=lambda row: row.since, label="time of its start or end"),
    Column(
        "note", "note", 22, 2, value=lambda row: " ".join(text for text, _ in notes_of(row)) or None
    ),
    Column("node", "node", 14, 3, value=lambda row: row.node or None, cell=lambda row: (row.node, "dim")),
    Column("id", "id", 12, 3, value=lambda row: row.id, cell=lambda row: (row.id, "dim")),
    Column(
        "attempt", "attempt", 12, 5, value=lambda row: row.attempt or None, cell=lambda row: (row.attempt, "dim")
    ),
    Column(
        "name", "name", 16, 4, grows=20, value=lambda row: row.name, cell=lambda row: (row.name, "dim")
    ),
)  # fmt: skip


class SandboxList(RowsPane):
    """The containers of the run's trials: those that are left first, then the oldest."""

    scope: ClassVar[Scope] = "sandboxes"
    title = "Sandboxes"
    list_name = "sandboxes"
    own_orders = ("left first, then the oldest",)
    BINDINGS = bindings("sandboxes")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._clock = Clock()
        self._status: SandboxesStatus | None = None
        self._known = False  # a snapshot was shown
        self._containers: dict[str, SandboxStatus] = {}

    def show(self, view: View) -> None:
        """Show the sandboxes of a new view."""
        self._clock.take(view)
        self._known = view.snapshot is not None
        self._status = view.snapshot.sandboxes if view.snapshot is not None else None
        self._containers = {row.id: row for row in self._status.rows} if self._status is not None else {}
        self.update()

    @property
    def chosen(self) -> SandboxStatus | None:
        """The container under the cursor; None if none is listed."""
        key = self.cursor
        return self._containers.get(key) if key is not None else None

    # -- the list

    def items(self) -> Sequence[str]:
        """The ids of the containers."""
        return list(self._containers)

    def columns(self) -> tuple[Column, ...]:
        """All columns."""
        return _COLUMNS

    def item(self, key: str) -> Any:
        """The container."""
        return self._containers[key]

    def row(self, key: str, width: int) -> Row:
        """One container in one line."""
        one, line = self._containers[key], Row()
        for column, columns in self.drawn_table(width):
            text, style = self._cell(column, one)
            line.add(fit(one_line(text), columns) if column.align == "<" else text.rjust(columns), style)
            line.add(" ")
        return line

    def _cell(self, column: Column, row: SandboxStatus) -> Span:
        if column.name == "since":
            return age(max(0.0, self._clock.now() - row.since) if row.since is not None else None), "dim"
        if column.name == "note":
            notes = notes_of(row)
            return ", ".join(text for text, _ in notes), notes[0][1] if notes else "dim"
        assert column.cell is not None
        return column.cell(row)

    def copy_row(self, key: str) -> str:
        """The command that opens a shell in it; of one that has ended, the command that shows its log."""
        row = self._containers[key]
        return row.exec or row.logs or f"docker logs {row.id}"

    @property
    def marked_services(self) -> list[str] | None:
        """None: a sandbox is no service."""
        return None

    # -- drawing

    def facts(self) -> tuple[str, str]:
        """The numbers of containers by state, and whether Docker or the cluster answers."""
        status = self._status
        if status is None:
            return "none", "dim"
        counts = (
            (status.running, "running"), (status.starting, "starting"), (status.ended, "ended"), (status.left, "left"),
        )  # fmt: skip
        words = [f"{number} {word}" for number, word in counts if number]
        words += [quantity(status.networks, "network")] if status.networks else []
        if status.oldest is not None:
            words.append(f"oldest {age(max(0.0, self._clock.now() - status.oldest))}")
        if not status.reachable:
            words.insert(
                0, f"✖ {'the cluster' if status.backend == 'kubernetes' else 'Docker'} does not answer"
            )
        return " · ".join(
            words
        ) or "none", "bad" if not status.reachable else "warn" if status.left else "dim"

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The list; below it why there is no answer, and the command for the chosen one."""
        below = self._below(width)
        return with_below(super().compose_rows(width, max(2, height - len(below))), below, height)

    def _below(self, width: int) -> list[Row]:
        status, row = self._status, self.chosen
        rows: list[Row] = []
        if status is not None and not status.reachable:
            why = f"{one_line(status.why)} (shown is the last answer)"
            rows += [Row((f" {line}", "bad")) for line in wrap(why, width - 2)]
        if row is not None:
            copy = find("app", "copy").mention
            line = fit(self.copy_row(row.id), max(8, width - len(copy) - 3)).rstrip()
            rows.append(Row((f" {copy} ", "key"), (line, "text")))
        return rows

    def empty(self, width: int) -> Iterable[Row]:
        """Why there is none."""
        if not self._known:
            return [Row((" no state yet", "dim"))]
        if self._status is None:
            words = (
                "the trials have begun no container and no pod (harbor_agent.environment_type: docker makes "
                "containers)"
            )
        else:
            words = (
                f"no {'pod' if self._status.backend == 'kubernetes' else 'container'} of a trial is there now"
            )
        return [Row((f" {line}", "dim")) for line in wrap(words, max(8, width - 2))]

    # -- what keys do

    @property
    def _app(self) -> Host:
        return host_of(self)

    def open_row(self) -> None:
        """Open the trial."""
        self.action_open()

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: a container is listed."""
        return "no sandbox is listed" if action == "open" and self.chosen is None else ""

    def action_open(self) -> None:
        """Open the trial of the container."""
        row = self.chosen
        if row is None:
            return
        if row.path:
            self._app.navigation.open_trial(row.path)
        else:
            self._app.notifications.toast(
                f"trial {row.trial or row.name} is not among the newest ones", "warning"
            )
