"""The GPUs pane; on a machine without GPUs it shows the CPU of the host and of the services."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import structs
from msgspec.structs import replace

from liverl.model import GpuStatus, ServiceStatus, Snapshot
from liverl_tui.data.host import host_of
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import bindings, find
from liverl_tui.text.columns import columns_of
from liverl_tui.text.facts import why_no_gpus
from liverl_tui.text.status_label import SnapshotIndex, StatusLabel, of_gpu, of_service, owner_of, spins
from liverl_tui.text.words import one_line
from liverl_tui.widgets.base.arranging import fitted
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.base.fitting import Chosen, Column, heads
from liverl_tui.widgets.base.grid import GridPane
from liverl_tui.widgets.base.meters import History, history_head
from liverl_tui.widgets.dashboard import cpu_rows, gpu_rows, host_rows
from liverl_tui.widgets.dashboard.host_rows import HostGpus
from liverl_tui.widgets.dashboard.selection import ServiceSelected, Unfolded

if TYPE_CHECKING:
    from liverl.observe.history import Sample

SAMPLE_S = 0.9  # seconds between two samples of the histories; snapshots come every 0.5 or 1 s
SPINNING_S = 10.0  # seconds: a shorter time of low power may be the gap between two kernels, not a stall
WIDE = 200  # terminal columns: a width at which every column is as wide as it can be
HOST = "host"  # key of the host's history
FEW_GPUS = 2  # so many have a line each on the smallest terminal
LEAST_OF_HOSTS = 4  # lines of hosts that are always there, the worst ones


class GpusPane(GridPane):
    """One item for each GPU, or for each service if the snapshot has no GPUs. Items are keyed by GPU UUID or service
    name. Above one host, one item for each host, the worst first, and its GPUs behind it if it was unfolded."""

    scope = "gpus"
    title = "GPUs"
    number = find("dashboard", "jump('gpus')").name
    list_name = "gpus"
    own_orders = ("by number",)
    narrowest = gpu_rows.CELL
    BINDINGS = bindings("gpus")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view = View()
        self._clock = Clock()
        self._gpus: dict[str, GpuStatus] = {}
        self._services: dict[str, ServiceStatus] = {}
        self._labels: dict[str, StatusLabel] = {}
        self._histories: dict[str, History] = {}
        # UUID -> Unix time of the first of the samples with high utilization and low power
        self._spinning: dict[str, float] = {}
        self._sampled = 0.0
        self._hosts: dict[str, HostGpus] = {}  # by key, the worst first; none of a run on one host
        self._host_tables: dict[int, Chosen] = {}  # by the width of the pane, of the newest snapshot
        self._open: set[str] = set()  # hosts whose GPUs are shown

    # -- facts

    def show(self, view: View) -> None:
        """Take the facts of a view: items, verdicts and, at most every ``SAMPLE_S``, a sample of the histories."""
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
        if snapshot.result is None and abs(snapshot.at - self._sampled) >= SAMPLE_S:
            self._sample(snapshot)
        if self._gpus:
            snapshot_index = SnapshotIndex(snapshot)
            self._labels = {
                u: of_gpu(g, snapshot_index, now, self._spinning_for(u)) for u, g in self._gpus.items()
            }
            self._take_hosts(snapshot_index, now)
        else:
            self._hosts = {}
            self._labels = {name: of_service(s, now) for name, s in self._services.items()}

    def _take_hosts(self, index: SnapshotIndex, now: float) -> None:
        self._host_tables.clear()
        of: dict[str, list[tuple[GpuStatus, StatusLabel]]] = {
            node.name: [] for node in index.snapshot.nodes if node.name
        }
        for uuid, gpu in self._gpus.items():
            of.setdefault(gpu.node, []).append((gpu, self._labels[uuid]))
        hosts = [
            HostGpus(name, index.nodes.get(name), host_rows.worst_gpus_first(gpus), now)
            for name, gpus in of.items()
        ]
        hosts.sort(key=lambda host: not host.problem)
        self._hosts = {f"{host_rows.HOST}{host.name}": host for host in hosts} if len(hosts) > 1 else {}

    @property
    def _folds(self) -> bool:
        """Whether the items are hosts; what is sorted or looked for may be on a folded host."""
        return bool(self._hosts) and self.sorting is None and not self.prompt.text

    def _sample(self, snapshot: Snapshot) -> None:
        at = self._sampled = snapshot.at
        for uuid, gpu in self._gpus.items():
            self._history(uuid).add(at, gpu.utilization)
            if spins(gpu):
                self._spinning.setdefault(uuid, at)
            else:
                self._spinning.pop(uuid, None)
        for name, use in self._use_of_hosts({u: gpu.utilization for u, gpu in self._gpus.items()}).items():
            self._history(f"{host_rows.HOST}{name}").add(at, use)
        if not self._gpus:
            cores = snapshot.host.cpu_count
            self._history(HOST).add(at, cpu_rows.share(snapshot.host.cpu_percent))
            for name, service in self._services.items():
                if cpu_rows.runs(service):
                    self._history(name).add(at, cpu_rows.share_of_service(service.tree.cpu_percent, cores))

    def seed(self, history: Iterable[Sample]) -> None:
        """Add the samples of ``history.jsonl`` to the histories, in any order. Called after the first snapshot was
        shown, since a service's share depends on the number of cores."""
        cores = self._view.snapshot.host.cpu_count if self._view.snapshot is not None else None
        for sample in history:
            for uuid, gpu in sample.gpus.items():
                self._history(uuid).add(sample.at, gpu.utilization)
            for name, host_use in self._use_of_hosts(
                {u: gpu.utilization for u, gpu in sample.gpus.items()}
            ).items():
                self._history(f"{host_rows.HOST}{name}").add(sample.at, host_use)
            self._history(HOST).add(sample.at, cpu_rows.share(sample.host.cpu))
            for name, use in sample.services.items():
                self._history(name).add(sample.at, cpu_rows.share_of_service(use.cpu, cores))
        self.update()

    def _use_of_hosts(self, use: dict[str, float | None]) -> dict[str, float]:
        """The mean use of the GPUs of each host, of those that are listed now. ``use``: by UUID."""
        of: dict[str, list[float]] = {}
        for uuid, share in use.items():
            if share is not None and (gpu := self._gpus.get(uuid)) is not None and gpu.node:
                of.setdefault(gpu.node, []).append(share)
        return {name: sum(shares) / len(shares) for name, shares in of.items()}

    def _history(self, key: str) -> History:
        return self._histories.setdefault(key, History())

    def _spinning_for(self, uuid: str) -> float | None:
        since = self._spinning.get(uuid)
        if since is None or self._sampled - since < SPINNING_S:
            return None
        return self._sampled - since

    # -- room

    @property
    def wanted_rows(self) -> int:
        """Rows of the pane with every item on a line of its own."""
        count = len(self.items())
        return 1 + len(self.lead(80, True)) + (count + 1 if count else 0) + len(self.tail(80))

    @property
    def least_rows(self) -> int:
        """Rows of the pane with as many items on a line, below heads, as fit into 80 columns; a line each for few GPUs,
        which then have their heads, too."""
        most = 80 // (gpu_rows.GOOD_CELL if self._gpus else cpu_rows.CELL)
        lines = -(-len(self._gpus or self._services) // most)
        if 0 < len(self._gpus) <= FEW_GPUS:
            lines = len(self._gpus)
        if self._hosts:
            lines = min(LEAST_OF_HOSTS, -(-len(self._hosts) // (80 // host_rows.CELL)))
        return 1 + len(self.lead(80, False)) + (lines + 1 if lines else 1) + len(self.tail(80))

    # -- drawing

    def items(self) -> Sequence[str]:
        """The UUIDs of the GPUs, of folded hosts their keys; without GPUs, the names of the services."""
        if self._folds:
            keys: list[str] = []
            for key, host in self._hosts.items():
                keys += [key, *(gpu.uuid for gpu, _ in host.gpus if key in self._open)]
            return keys
        return tuple(self._gpus or self._services)

    def columns(self) -> tuple[Column, ...]:
        """All columns of the table of GPUs; without GPUs, of services."""
        return self._columns(WIDE)

    def item(self, key: str) -> gpu_rows.GpuFacts | cpu_rows.CpuFacts | None:
        """What is known of a GPU or service; None for a host."""
        if key in self._hosts:
            return None
        label = self._labels[key]
        if key in self._gpus:
            return gpu_rows.GpuFacts(self._gpus[key], label)
        return cpu_rows.CpuFacts(self._services[key], label)

    def words(self, key: str) -> str:
        """Number, name, UUID, owner and verdict of a GPU; name, kind and state of a service."""
        if key in self._hosts:
            return f"{key} {self._hosts[key].label.text}"
        text = self._labels[key].text
        if key in self._gpus:
            gpu = self._gpus[key]
            return f"{gpu.node} {gpu.index} {gpu.name} {gpu.uuid} {gpu.owner} {text}"
        return f"{key} {self._services[key].kind} {text}"

    @property
    def marked_services(self) -> list[str] | None:
        """The services that use the marked GPUs, or the marked services; None without marks."""
        if not self.arrangement.marks:
            return None
        return list(dict.fromkeys(n for key in self.marked if (n := self._service_of(key)) is not None))

    def facts(self) -> tuple[str, str]:
        """Number, model and problems of the GPUs; without GPUs, why there are none."""
        snapshot = self._view.snapshot
        if snapshot is None:
            return "", "dim"
        if not self._gpus:
            return f"(no GPUs: {why_no_gpus(snapshot)})", "dim"
        text, style = gpu_rows.facts_of(snapshot.gpus, list(self._labels.values()))
        lost = [
            host.name for host in self._hosts.values() if host.node is not None and host.node.state == "lost"
        ]
        if self._hosts:
            first, _, rest = text.partition("  ")
            text = f"{first} on {len(self._hosts)} hosts{'  ' if rest else ''}{rest}"
        if lost:
            text, style = f"{text}  ✖ {len(lost)} lost", "bad"
        return text, style

    def markable(self, key: str) -> bool:
        """All but hosts."""
        return key not in self._hosts

    def lead(self, width: int, table: bool) -> Sequence[Row]:
        """Without GPUs, the line of the host; otherwise nothing."""
        snapshot = self._view.snapshot
        if snapshot is None or self._gpus:
            return ()
        host, name = snapshot.host, snapshot.backend.host
        if snapshot.result is not None:  # what the host does now has nothing to do with the run
            host = structs.replace(host, cpu_percent=None, memory_used=None)
        if not table:
            return (cpu_rows.host_cell(host, name),)
        chosen = self.drawn_table(width - self.gutter_width)
        line = cpu_rows.host_line(host, name, self._history_cells(HOST, chosen), chosen)
        return (Row((" " * self.gutter_width, "text"), *line.spans),)

    def tail(self, width: int) -> Sequence[Row]:
        """One warning for each part of the snapshot's GPU note: GPUs that are expected and missing."""
        note = self._view.snapshot.gpu_note if self._view.snapshot is not None else None
        if note is None or not self._gpus:
            return ()
        return [Row((f"▲ {one_line(part)}", "warn")) for part in note.split("; ")]

    def head(self, width: int) -> Row | None:
        """The column heads of the table of GPUs or services; that of the histories says which time they show. Those of
        hosts while all of them are folded."""
        if self._folds and not self._open:
            return heads(self._with_time(self._host_table(width)))
        return self.heads_of(self._with_time(self.drawn_table(width)))

    def _with_time(self, chosen: Chosen) -> Chosen:
        """``chosen``, the head of the histories with the time that they show."""
        return tuple(
            (replace(c, head=history_head(w, self._ended)) if c.name == "history" else c, w)
            for c, w in chosen
        )

    def _host_table(self, width: int) -> Chosen:
        if width not in self._host_tables:  # each line asks for it
            self._host_tables[width] = host_rows.gpu_table(self._hosts.values(), self._host_names, width)
        return self._host_tables[width]

    def cell_head(self, width: int) -> Row:
        """The heads above a cell."""
        if self._folds and not self._open:
            return host_rows.gpu_cell_head(width)
        if self._gpus:
            return gpu_rows.cell_head(width)
        return cpu_rows.cell_head(self._longest_name, width, self._ended)

    def row(self, key: str, width: int) -> Row:
        """One GPU or service as a line of the table; a host as a line of its own."""
        if key in self._hosts:
            table = self._host_table(width)
            return host_rows.gpu_line(self._hosts[key], self._history_cells(key, table), table)
        chosen, facts = self.drawn_table(width), self.item(key)
        history = self._history_cells(key, chosen)
        if isinstance(facts, gpu_rows.GpuFacts):
            return gpu_rows.line(facts, history, chosen)
        assert facts is not None  # only hosts have none
        return cpu_rows.line(facts, history, chosen)

    def cell(self, key: str, width: int) -> Row:
        """One GPU, service or host as a cell, for panes with too few lines."""
        if key in self._hosts:
            return host_rows.gpu_cell(self._hosts[key], width)
        if key in self._gpus:
            return gpu_rows.cell(self._gpus[key], self._labels[key], width)
        return cpu_rows.cell(
            self._services[key], self._labels[key], self._history(key), self._end, self._longest_name, width
        )

    def empty(self, width: int) -> Iterable[Row]:
        """A dash, where there are neither GPUs nor services."""
        return [Row(("-", "dim"))]

    def _history_cells(self, key: str, chosen: Chosen) -> str:
        width = next((w for column, w in chosen if column.name == "history"), 0)
        return self._history(key).cells(width, self._end)

    def table(self, width: int) -> Chosen:
        """See ``RowsPane.table``."""
        chosen = fitted(self._columns(width), self.arrangement.drawn, width)
        return gpu_rows.with_history(chosen)

    def _columns(self, width: int) -> tuple[Column, ...]:
        if self._gpus:
            owner = max(len(gpu.owner) for gpu in self._gpus.values())
            state = max(len(label.text) for label in self._labels.values())
            node = min(20, max((len(gpu.node) for gpu in self._gpus.values()), default=0))
            return gpu_rows.columns(*gpu_rows.widths(owner, state, width), node=node if self._hosts else 0)
        host = self._view.snapshot.backend.host if self._view.snapshot is not None else ""
        return cpu_rows.columns(max(self._longest_name, len(host)))

    @property
    def _host_names(self) -> int:
        """Columns of the longest name of a host, or of the word above them."""
        names = (columns_of(host.name) for host in self._hosts.values())
        return max(len("host"), min(24, max(names, default=0)))

    @property
    def _longest_name(self) -> int:
        return max((len(name) for name in self._services), default=0)

    @property
    def _end(self) -> float:
        """Unix time at the right end of the histories: now, or the end of the run."""
        snapshot = self._view.snapshot
        if snapshot is None:
            return 0.0
        return snapshot.result.ended_at if snapshot.result is not None else snapshot.at

    @property
    def _ended(self) -> str:
        """When the run ended, as local time of the day; empty if it has not."""
        snapshot = self._view.snapshot
        if snapshot is None or snapshot.result is None:
            return ""
        return time.strftime("%H:%M", time.localtime(snapshot.result.ended_at))

    # -- actions

    @property
    def selected_service(self) -> str | None:
        """The service that uses the GPU under the cursor, or the service under the cursor; None if no service of this
        run uses that GPU."""
        key = self.cursor
        return self._service_of(key) if key is not None and key not in self._hosts else None

    def _service_of(self, key: str) -> str | None:
        if key in self._gpus and self._view.snapshot is not None:
            return owner_of(self._gpus[key], SnapshotIndex(self._view.snapshot))
        return key

    def moved(self) -> None:
        """Tell the dashboard the service under the cursor."""
        self.post_message(ServiceSelected(self.selected_service))

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: a row is listed."""
        return "no GPU is listed" if action == "select" and self.cursor is None else ""

    def action_select(self) -> None:
        """Open the screen of the GPU under the cursor; without GPUs, that of the service. Unfold a host, or fold it."""
        key = self.cursor
        if key in self._hosts:
            if not self._hosts[key].gpus:
                self.say(f"no GPU is reported on {self._hosts[key].name}")
                return
            self._open ^= {key}
            self.update()
            self.post_message(Unfolded())
        elif key in self._gpus:
            host_of(self).navigation.open_gpu(key)
        elif key is not None:
            host_of(self).navigation.open_service(key)
