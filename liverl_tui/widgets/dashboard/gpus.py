"""The GPUs pane; on a machine without them, its processors and the services' share of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from liverl.model import GpuStatus, ServiceStatus, Snapshot
from liverl.observe.history import Sample
from liverl_tui.data.host import host_of
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import bindings
from liverl_tui.text.status_label import SnapshotIndex, StatusLabel, of_gpu, of_service, owner_of, spins
from liverl_tui.text.words import one_line
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.base.fitting import Chosen, heads
from liverl_tui.widgets.base.grid import GridPane
from liverl_tui.widgets.base.meters import Sweep
from liverl_tui.widgets.dashboard import cpu_rows, gpu_rows

SAMPLE_S = 0.9  # between two samples of the histories; snapshots come every half second or second
SPINNING_S = 10.0  # a look at a busy GPU between two kernels is no stall
HOST = "host"


class GpusPane(GridPane):
    scope = "gpus"
    title = "GPUs"
    number = "1"
    narrowest = gpu_rows.CELL
    BINDINGS = bindings("gpus")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view = View()
        self._clock = Clock()
        self._gpus: dict[str, GpuStatus] = {}
        self._services: dict[str, ServiceStatus] = {}
        self._labels: dict[str, StatusLabel] = {}
        self._histories: dict[str, Sweep] = {}
        self._spinning: dict[str, float] = {}  # UUID -> since when
        self._sampled = 0.0

    # -- facts

    def show(self, view: View) -> None:
        self._view = view
        self._clock.take(view)
        snapshot = view.snapshot
        if snapshot is not None:
            self._take(snapshot)
        self.update()

    def _take(self, snapshot: Snapshot) -> None:
        now = self._clock.now()
        self._gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        self._services = (
            {} if self._gpus else {s.name: s for s in snapshot.services if s.kind != "environment"}
        )
        self.title = "GPUs" if self._gpus else "CPU"  # type: ignore[misc]
        self.narrowest = gpu_rows.CELL if self._gpus else cpu_rows.CELL  # type: ignore[misc]
        if abs(snapshot.at - self._sampled) >= SAMPLE_S:
            self._sample(snapshot)
        if self._gpus:
            snapshot_index = SnapshotIndex(snapshot)
            self._labels = {
                u: of_gpu(g, snapshot_index, now, self._spinning_for(u)) for u, g in self._gpus.items()
            }
        else:
            self._labels = {name: of_service(s, now) for name, s in self._services.items()}

    def _sample(self, snapshot: Snapshot) -> None:
        at = self._sampled = snapshot.at
        for uuid, gpu in self._gpus.items():
            self._history(uuid).add(at, gpu.utilization)
            if spins(gpu):
                self._spinning.setdefault(uuid, at)
            else:
                self._spinning.pop(uuid, None)
        if not self._gpus:
            cores = snapshot.host.cpu_count
            self._history(HOST).add(at, cpu_rows.share(snapshot.host.cpu_percent))
            for name, service in self._services.items():
                if cpu_rows.runs(service):
                    self._history(name).add(at, cpu_rows.share_of_service(service.tree.cpu_percent, cores))

    def seed(self, history: Iterable[Sample]) -> None:
        """What the run's history has from before we looked, in any order. A snapshot must have been shown."""
        cores = self._view.snapshot.host.cpu_count if self._view.snapshot is not None else None
        for sample in history:
            for uuid, gpu in sample.gpus.items():
                self._history(uuid).add(sample.at, gpu.utilization)
            self._history(HOST).add(sample.at, cpu_rows.share(sample.host.cpu))
            for name, use in sample.services.items():
                self._history(name).add(sample.at, cpu_rows.share_of_service(use.cpu, cores))
        self.update()

    def _history(self, key: str) -> Sweep:
        return self._histories.setdefault(key, Sweep())

    def _spinning_for(self, uuid: str) -> float | None:
        since = self._spinning.get(uuid)
        if since is None or self._sampled - since < SPINNING_S:
            return None
        return self._sampled - since

    # -- room

    @property
    def wanted_rows(self) -> int:
        """With every item on a line of its own."""
        count = len(self._gpus or self._services)
        return 1 + len(self.lead(80)) + (count + 1 if count else 0) + len(self.tail(80))

    @property
    def least_rows(self) -> int:
        """With as many items on a line as an 80 column terminal can take."""
        most = 80 // (gpu_rows.GOOD_CELL if self._gpus else cpu_rows.CELL)
        lines = -(-len(self._gpus or self._services) // most)
        return 1 + len(self.lead(80)) + max(1, lines) + len(self.tail(80))

    # -- drawing

    def keys(self) -> Sequence[str]:
        return tuple(self._gpus or self._services)

    def facts(self) -> tuple[str, str]:
        snapshot = self._view.snapshot
        if snapshot is None:
            return "", "dim"
        if not self._gpus:
            note = (snapshot.gpu_note or "none seen yet").removeprefix("n/a (").removesuffix(")")
            return f"(no GPUs: {one_line(note)})", "dim"
        return gpu_rows.facts_of(snapshot.gpus, list(self._labels.values()))

    def lead(self, width: int) -> Sequence[Row]:
        snapshot = self._view.snapshot
        if snapshot is None or self._gpus:
            return ()
        history = self._history(HOST).cells(max(0, min(72, width - 72)))
        return (cpu_rows.host_line(snapshot.host, snapshot.backend.host, history, width),)

    def tail(self, width: int) -> Sequence[Row]:
        """GPUs that should be here and are not."""
        note = self._view.snapshot.gpu_note if self._view.snapshot is not None else None
        if note is None or not self._gpus:
            return ()
        return [Row((f"▲ {one_line(part)}", "warn")) for part in note.split("; ")]

    def head(self, width: int) -> Row | None:
        return heads(self._table(width))

    def row(self, key: str, width: int) -> Row:
        chosen = self._table(width)
        past, label = self._past(key, chosen), self._labels[key]
        if key in self._gpus:
            return gpu_rows.line(self._gpus[key], label, past, chosen)
        return cpu_rows.line(self._services[key], label, past, chosen)

    def cell(self, key: str, width: int) -> Row:
        if key in self._gpus:
            return gpu_rows.cell(self._gpus[key], self._labels[key], width)
        return cpu_rows.cell(
            self._services[key], self._labels[key], self._history(key), self._longest_name, width
        )

    def empty(self, width: int) -> Iterable[Row]:
        return [Row(("-", "dim"))]

    def _past(self, key: str, chosen: Chosen) -> str:
        width = next((w for column, w in chosen if column.name == "history"), 0)
        return self._history(key).cells(width)

    def _table(self, width: int) -> Chosen:
        if self._gpus:
            return gpu_rows.table(width, max(len(gpu.owner) for gpu in self._gpus.values()))
        return cpu_rows.table(width, self._longest_name)

    @property
    def _longest_name(self) -> int:
        return max((len(name) for name in self._services), default=0)

    # -- actions

    @property
    def selected_service(self) -> str | None:
        """The service of the row under the cursor."""
        key = self.cursor
        if key in self._gpus and self._view.snapshot is not None:
            return owner_of(self._gpus[key], SnapshotIndex(self._view.snapshot))
        return key

    def action_select(self) -> None:
        key, name = self.cursor, self.selected_service
        if name is not None:
            host_of(self).navigation.open_service(name)
        elif key is not None:
            gpu = self._gpus[key]
            self.notify(f"GPU {gpu.index} is held by no service of this run: {gpu.owner}", markup=False)
