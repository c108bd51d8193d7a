"""The replicas pane: every replica, the ones that are missing, and the services that work with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual import events

from liverl.model import ReplicaStatus, ServiceStatus, Snapshot
from liverl_tui.data.host import host_of
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import bindings
from liverl_tui.text.status_label import SERVING, SnapshotIndex, StatusLabel, of_replica, of_service
from liverl_tui.text.words import GLYPH
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.base.fitting import Chosen, heads
from liverl_tui.widgets.base.rows import RowsPane
from liverl_tui.widgets.dashboard import replica_rows

MISSING = "-"
# What needs no row: environments that are built, and what was to be done once and is done.
_QUIET = {"environment": ("ready", "stopped"), "task": ("stopped",)}


class ReplicasPane(RowsPane):
    """Where not everything fits, the last line has the other services in short: their states are always seen."""

    scope = "replicas"
    title = "Replicas"
    number = "2"
    BINDINGS = bindings("replicas")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view = View()
        self._clock = Clock()
        self._snapshot_index: SnapshotIndex | None = None
        self._replicas: dict[str, ReplicaStatus] = {}
        self._services: dict[str, ServiceStatus] = {}
        self._labels: dict[str, StatusLabel] = {}
        self._gpus: dict[str, str] = {}  # replica -> indices of its GPUs
        self._keys: tuple[str, ...] = ()
        self._names = 0  # columns of the longest name
        self._squeezed = False
        self.problems_first = False

    def show(self, view: View) -> None:
        self._view = view
        self._clock.take(view)
        if view.snapshot is not None:
            self._take(view.snapshot)
        self.update()

    def _take(self, snapshot: Snapshot) -> None:
        now = self._clock.now()
        self._snapshot_index = snapshot_index = SnapshotIndex(snapshot)
        self._replicas = snapshot_index.replicas
        self._services = {
            s.name: s
            for s in snapshot.services
            if s.kind != "replica" and s.state not in _QUIET.get(s.kind, ())
        }
        self._labels = {name: of_replica(r, snapshot_index, now) for name, r in self._replicas.items()}
        self._labels |= {name: of_service(s, now) for name, s in self._services.items()}
        indices = {gpu.uuid: gpu.index for gpu in snapshot.gpus}
        self._gpus = {}
        for name, replica in self._replicas.items():
            self._gpus[name] = ",".join(
                str(i) for i in sorted(indices[u] for u in replica.gpus if u in indices)
            )
        self._names = min(20, max((len(name) for name in self._labels), default=0))
        self._order()

    def _order(self) -> None:
        names: list[str] = list(self._replicas)
        if self.problems_first:
            names.sort(key=lambda n: (not self._labels[n].problem, self._replicas[n].state == "ready"))
        missing = (MISSING,) if self._missing else ()
        self._keys = (*names, *missing, *self._services)

    @property
    def _missing(self) -> int:
        """Replicas that should be there and do not exist yet."""
        snapshot = self._view.snapshot
        if snapshot is None or snapshot.state not in ("starting", "running"):
            return 0
        stays = sum(not replica.leaving for replica in self._replicas.values())
        return max(0, snapshot.replicas.expected - stays)

    # -- room

    @property
    def wanted_rows(self) -> int:
        return 2 + max(1, len(self._keys))

    @property
    def least_rows(self) -> int:
        """Title and heads, two replicas, and the other services in short."""
        return min(self.wanted_rows, 5)

    # -- drawing

    def keys(self) -> Sequence[str]:
        return self._keys

    def facts(self) -> tuple[str, str]:
        snapshot = self._view.snapshot
        if snapshot is None:
            return "", "dim"
        found = snapshot.replicas
        if not found.expected and not found.items:
            return "none in this run", "dim"
        text = f"{found.ready} of {found.expected} ready"
        short = found.ready < found.expected
        if snapshot.proxy.address is not None:
            text += f", {found.listed} in the proxy"
            short = short or found.listed < found.expected
        leaving = sum(replica.leaving for replica in found.items)
        text += f", {leaving} draining" if leaving else ""
        if self.problems_first:
            text += ", problems first"
        return text, "warn" if short and snapshot.state in ("starting", "running") else "dim"

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        above = 1 + (height > 3 and bool(self._replicas))
        self._squeezed = bool(self._services) and height > 2 and above + len(self._keys) > height
        if not self._squeezed:
            return super().compose_rows(width, height)
        rows = list(super().compose_rows(width, height - 1))
        rows.append(replica_rows.short_line([(name, self._labels[name]) for name in self._services]))
        return rows

    def on_click(self, event: events.Click) -> None:
        if self._squeezed and event.y == self.content_size.height - 1:
            event.prevent_default()  # no row of the list stands there
            self.select(next(iter(self._services)))

    def head(self, width: int) -> Row | None:
        return heads(self._table(width)) if self._replicas else None

    def _table(self, width: int) -> Chosen:
        return replica_rows.table(width, self._names, max(map(len, self._gpus.values()), default=0))

    def row(self, key: str, width: int) -> Row:
        snapshot_index = self._snapshot_index
        assert snapshot_index is not None  # without a snapshot there are no keys
        snapshot = snapshot_index.snapshot
        if key == MISSING:
            return self._missing_row(snapshot)
        now, label = self._clock.now(), self._labels[key]
        service, replica = snapshot_index.services.get(key), snapshot_index.replicas.get(key)
        names = max(7, self._names)
        if replica is not None and replica.state in SERVING:
            return replica_rows.line(replica, label, snapshot_index, now, self._gpus[key], self._table(width))
        why = service.why if service is not None else ""
        if replica is not None:
            why = why or replica.why
            return replica_rows.unready(key, label, replica.progress, why, replica.restarts, names, width)
        assert service is not None  # keys are replicas and services
        if service.state in SERVING or service.state == "stopping":
            return replica_rows.service_line(service, label, snapshot, now, names)
        return replica_rows.unready(key, label, service.progress, why, service.restarts, names, width)

    def _missing_row(self, snapshot: Snapshot) -> Row:
        words = f"{self._missing} of {snapshot.replicas.expected} replicas do not exist yet"
        row = Row().add(MISSING, "text", max(7, self._names)).add(" ")
        return row.add(f"{GLYPH['waiting']} missing", "warn", replica_rows.STATE).add(f" {words}", "dim")

    def empty(self, width: int) -> Iterable[Row]:
        return [Row(("-", "dim"))]

    # -- actions

    def action_order(self) -> None:
        self.problems_first = not self.problems_first
        self._order()
        self.update()

    def action_select(self) -> None:
        key = self.cursor
        if key == MISSING:
            self.notify("this replica does not exist yet", severity="warning")
        elif key is not None:
            host_of(self).navigation.open_service(key)
