"""The replicas pane: the hosts of a run on several, existing replicas, missing replicas, and the other services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from textual import events

from liverl.model import NodeStatus, ReplicaStatus, ServiceStatus, Snapshot
from liverl.util.plural import quantity
from liverl_tui.data.host import host_of
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import bindings, find
from liverl_tui.text.facts import ended, listed_words, ready_words, unreachable_words
from liverl_tui.text.node_words import node_words, nodes_words, of_node, of_nodes, worst_first
from liverl_tui.text.status_label import (
    SERVING,
    SnapshotIndex,
    StatusLabel,
    of_replica,
    of_service,
    of_workers,
)
from liverl_tui.text.words import GLYPH
from liverl_tui.widgets.base.arranging import fitted
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.base.fitting import STEPS, Chosen, Column, stepped
from liverl_tui.widgets.base.rows import RowsPane
from liverl_tui.widgets.dashboard import replica_rows
from liverl_tui.widgets.dashboard.host_rows import HOST, replicas_words
from liverl_tui.widgets.dashboard.replica_rows import WORKERS, ReplicaFacts
from liverl_tui.widgets.dashboard.selection import ServiceSelected, Unfolded

PROBLEMS = "problems first"  # an order of the list
MISSING = "-"  # key of the row about replicas that do not exist yet
HOSTS = "hosts"  # name of the row about all hosts, which unfolds
FEW = 8  # replicas: of at most so many, each has a row from the start
# kind -> states without a row: environments that are built, tasks that are done
_QUIET = {"environment": ("ready", "stopped"), "task": ("stopped",)}


class ReplicasPane(RowsPane):
    """If the rows do not fit, the last row has the states of the services without a row in short, of those that are
    not simply ready: the header says that these are."""

    scope = "replicas"
    title = "Replicas"
    number = find("dashboard", "jump('replicas')").name
    list_name = "replicas"
    own_orders = ("as configured", PROBLEMS)
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
        self._items: tuple[str, ...] = ()
        self._names = 0  # columns of the longest name
        self._state = STEPS[0]  # columns of the states
        self._hosts: dict[str, NodeStatus] = {}  # by key, the worst first; none of a run on one host
        self._unfolded = False  # whether each host has a row, while no replica is on one
        self._of_host: dict[
            str, tuple[str, ...]
        ] = {}  # key of a host -> its replicas; empty while none is on one
        self._open: set[str] | None = None  # hosts whose replicas have rows; None: the user has not chosen
        self._beside: tuple[str, ...] = ()  # the rows below the replicas
        self._hidden: tuple[str, ...] = ()  # services without a row for lack of room

    def show(self, view: View) -> None:
        """Take the facts of a view: replicas, services, their labels."""
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
            if (s.kind != "replica" or _by_its_log(s, self._replicas))
            and s.state not in _QUIET.get(s.kind, ())
        }
        self._labels = {name: of_replica(r, snapshot_index, now) for name, r in self._replicas.items()}
        self._labels |= {name: of_service(s, now) for name, s in self._services.items()}
        workers = snapshot.carrier == "workers"
        if workers:
            self._labels[WORKERS] = of_workers(snapshot)
        indices = {gpu.uuid: gpu.index for gpu in snapshot.gpus}
        self._gpus = {}
        for name, replica in self._replicas.items():
            self._gpus[name] = ",".join(
                str(i) for i in sorted(indices[u] for u in replica.gpus if u in indices)
            )
        self._take_hosts(snapshot, now)
        missing = (MISSING,) if self._missing else ()
        self._beside = (*missing, *_beside(self._services, workers=workers))
        self._items = (*self._host_keys, *self._loose, *self._beside)
        self._fit()

    def _fit(self) -> None:
        """Choose the widths of names and states, for the rows that there are: not for replicas on folded hosts."""
        items = self.items()
        names = (name for name in items if name in self._labels and name not in self._hosts)
        self._names = min(20, max(map(len, (*names, *self._host_names)), default=0))
        # What follows the state is in columns for replicas that serve; in other rows the state may be longer.
        serving = (name for name in items if name in self._replicas and self._replicas[name].state in SERVING)
        self._state = stepped(max((len(self._labels[name].text) for name in serving), default=0))

    def rearrange(self) -> None:
        """See ``ArrangedList.rearrange``."""
        self._fit()
        super().rearrange()

    def _take_hosts(self, snapshot: Snapshot, now: float) -> None:
        """The hosts, by keys that stay the same: of those without a name by number. None after the end of a run that
        lost none, as nothing is ready any more."""
        self._hosts = {}
        if ended(snapshot) and all(node.state == "ready" for node in snapshot.nodes):
            return
        nameless = 0
        for node in worst_first(snapshot.nodes):
            nameless += not node.name
            key = f"{HOST}{node.name or nameless}"
            self._hosts[key] = node
            self._labels[key] = of_node(node, now)
        self._of_host = {}
        if len(self._hosts) > 1 and any(replica.node for replica in self._replicas.values()):
            found: dict[str, list[str]] = {key: [] for key in self._hosts}
            for name, replica in self._replicas.items():
                found.get(f"{HOST}{replica.node}", []).append(name)
            self._of_host = {key: tuple(names) for key, names in found.items()}
            ranked = sorted(
                self._hosts, key=lambda key: not (self._labels[key].problem or self._troubled(key))
            )
            self._hosts = {key: self._hosts[key] for key in ranked}
        if self._hosts:
            self._labels[HOSTS] = of_nodes(snapshot.nodes)

    @property
    def _host_names(self) -> list[str]:
        """What stands in the first column of the rows of single hosts."""
        return [f"  {node.name or '(none)'}" for node in self._hosts.values()] if self._listed else []

    @property
    def _listed(self) -> bool:
        """Whether each host has a row."""
        return self._unfolded or bool(self._of_host)

    def _is_open(self, key: str) -> bool:
        """Whether the replicas of this host have rows."""
        return len(self._replicas) <= FEW if self._open is None else key in self._open

    def _troubled(self, key: str) -> bool:
        """Whether something is wrong with a replica of this host."""
        return replicas_words(self._on(key))[1]

    def _on(self, key: str) -> list[tuple[ReplicaStatus, StatusLabel]]:
        return [(self._replicas[name], self._labels[name]) for name in self._of_host.get(key, ())]

    @property
    def _host_keys(self) -> tuple[str, ...]:
        """The rows about hosts, in front, so that a lost one is seen without scrolling; behind each, if it is open, its
        replicas."""
        if not self._hosts:
            return ()
        keys = [HOSTS]
        for key in self._hosts if self._listed else ():
            keys += [key, *(self._of_host.get(key, ()) if self._is_open(key) else ())]
        return tuple(keys)

    @property
    def _loose(self) -> tuple[str, ...]:
        """The replicas that are on no host that is listed."""
        held = {name for names in self._of_host.values() for name in names}
        return tuple(name for name in self._replicas if name not in held)

    @property
    def _missing(self) -> int:
        """How many expected replicas do not exist yet; replicas that drain do not count as existing. 0 unless the run
        is starting or running."""
        snapshot = self._view.snapshot
        if snapshot is None or snapshot.state not in ("starting", "running"):
            return 0
        staying = sum(not replica.leaving for replica in self._replicas.values())
        return max(0, snapshot.replicas.expected - staying)

    # -- room

    @property
    def wanted_rows(self) -> int:
        """Rows of the pane with every replica and service on a line: title and heads included."""
        return 1 + bool(self._replicas) + max(1, len(self._items))

    @property
    def least_rows(self) -> int:
        """Rows for the title, the heads and four rows: two replicas, the proxy and the trainer in most runs."""
        return min(self.wanted_rows, 6)

    # -- drawing

    def items(self) -> Sequence[str]:
        """Names of the replicas, ``MISSING`` if some do not exist yet, then names of the services."""
        above = tuple(key for key in self._host_keys if self._is_of_hosts(key))
        if self.in_own_order(PROBLEMS):
            problems = sorted(
                self._replicas,
                key=lambda n: (not self._labels[n].problem, self._replicas[n].state == "ready"),
            )
            wrong = [key for key in above[1:] if not self._of_host or self._labels[key].problem]
            return (*above[:1], *wrong, *problems, *self._beside)
        if self._of_host and (self.sorting is not None or self.prompt.text):
            return (
                *above,
                *self._replicas,
                *self._beside,
            )  # what is sorted or looked for may be on a folded host
        return self._items

    def columns(self) -> tuple[Column, ...]:
        """All columns of the table."""
        return self._columns(narrow=False)

    def item(self, key: str) -> ReplicaFacts | None:
        """What is known of a replica or service."""
        index = self._snapshot_index
        if key == MISSING or index is None or self._is_workers(key) or self._is_of_hosts(key):
            return None
        gpus, service = self._gpus.get(key, ""), index.services.get(key)
        return ReplicaFacts(
            key, self._labels[key], self._replicas.get(key), service, index, self._clock.now(), gpus
        )

    def words(self, key: str) -> str:
        """Name, state, kind, address, and why it is in that state."""
        if key == MISSING:
            return "missing"
        if self._is_workers(key):
            return f"{key} {self._labels[key].text} agent-loop workers"
        if self._is_of_hosts(key):
            return f"{key} {self._labels[key].text} {self._words_of_hosts(key)}"
        facts = self.item(key)
        assert facts is not None
        whys = [known.why for known in (facts.service, facts.replica) if known is not None]
        return " ".join([key, facts.label.text, facts.kind, facts.address, *whys])

    def markable(self, key: str) -> bool:
        """All but the rows of hosts, of missing replicas and of sessions that are no service."""
        return key != MISSING and not self._is_workers(key) and not self._is_of_hosts(key)

    def _is_workers(self, key: str) -> bool:
        """Whether this is the row of the sessions in verl's workers."""
        return key == WORKERS and key not in self._services

    def _is_of_hosts(self, key: str) -> bool:
        """Whether this is a row about hosts."""
        return bool(self._hosts) and (key == HOSTS or key in self._hosts)

    def _words_of_hosts(self, key: str) -> str:
        if key == HOSTS:
            return nodes_words((*self._hosts.values(),))
        replicas = replicas_words(self._on(key))[0]
        return "  ".join(part for part in (replicas, node_words(self._hosts[key], self._clock.now())) if part)

    def facts(self) -> tuple[str, str]:
        """How many replicas are ready, get new trials, and are draining; a warning if some are missing."""
        snapshot = self._view.snapshot
        if snapshot is None:
            return "", "dim"
        replicas = snapshot.replicas
        if not replicas.expected and not replicas.items:
            foreign = bool(snapshot.services) and all(one.owner == "foreign" for one in snapshot.services)
            logs = sum(
                _by_its_log(one, self._replicas) for one in self._services.values() if one.kind == "replica"
            )
            seen = (
                f"none seen on this host, {quantity(logs, 'log')} of some"
                if logs
                else "none seen on this host"
            )
            return (seen if foreign else "none in this run"), "dim"
        text = ready_words(snapshot)
        short = replicas.ready < replicas.expected
        if snapshot.carrier_down is not None:
            text, short = f"{text}, {unreachable_words(snapshot)}", True
        elif snapshot.traffic.address is not None and listed_words(snapshot):
            text += f", {listed_words(snapshot)}"
            short = short or replicas.listed < replicas.expected
        leaving = sum(replica.leaving for replica in replicas.items)
        text += f", {leaving} draining" if leaving else ""
        return text, "warn" if short and snapshot.state in ("starting", "running") else "dim"

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The list; if it does not fit, the last row has the services without a row that are not simply ready."""
        above = 1 + (height > 3 and bool(self._replicas))
        self._hidden = ()
        if not self._services or height <= 2 or above + len(self.keys()) <= height:
            return super().compose_rows(width, height)
        rows = list(super().compose_rows(width, height - 1))
        room = height - 2 - (height - 1 > 3 and bool(self._replicas))
        visible = self.keys()[self._top : self._top + room]
        hidden = [name for name in self._services if name not in visible]
        self._hidden = tuple(name for name in hidden if self._labels[name].words != "ready")
        if not self._hidden:
            return super().compose_rows(width, height)
        return [*rows, replica_rows.short_line([(name, self._labels[name]) for name in self._hidden])]

    def on_click(self, event: events.Click) -> None:
        """A click on the row of services in short selects the first of them; other rows are left to the base."""
        if self._hidden and event.y == self.content_size.height - 1:
            event.prevent_default()  # that row is not a row of the list
            self.select(self._hidden[0])

    def head(self, width: int) -> Row | None:
        """The column heads; None without replicas."""
        return super().head(width) if self._replicas else None

    def table(self, width: int) -> Chosen:
        """See ``RowsPane.table``. Heads are words as far as that costs no column."""
        narrow, drawn = width < replica_rows.NARROW, self.arrangement.drawn
        short = fitted(self._columns(narrow=narrow), drawn, width)
        for wordy in range(replica_rows.WORDIEST, 0, -1):
            worded = fitted(self._columns(narrow=narrow, wordy=wordy), drawn, width)
            if [column.name for column, _ in worded] == [column.name for column, _ in short]:
                return worded
        return short

    def _columns(self, *, narrow: bool, wordy: int = 0) -> tuple[Column, ...]:
        gpus = max(map(len, self._gpus.values()), default=0)
        node = max((len(replica.node) for replica in self._replicas.values()), default=0)
        carrier = self._view.snapshot.carrier if self._view.snapshot is not None else "proxy"
        return replica_rows.columns(self._names, self._state, gpus, narrow, carrier, node, wordy)

    def row(self, key: str, width: int) -> Row:
        """A line of the table for a replica that serves; state, progress and reason for any other."""
        snapshot_index = self._snapshot_index
        assert snapshot_index is not None  # without a snapshot there are no keys
        snapshot = snapshot_index.snapshot
        if key == MISSING:
            return self._missing_row(snapshot)
        now, label = self._clock.now(), self._labels[key]
        if self._is_workers(key):
            return replica_rows.workers_line(label, snapshot, max(7, self._names), self._state)
        service, replica = snapshot_index.services.get(key), snapshot_index.replicas.get(key)
        names = max(7, self._names)
        if self._is_of_hosts(key):
            name = key if key == HOSTS else f"  {self._hosts[key].name or '(none)'}"
            problem = label.problem or self._troubled(key)
            words = self._words_of_hosts(key)
            return replica_rows.host_line(name, label, words, names, self._state, width, problem=problem)
        if replica is not None and replica.state in SERVING:
            facts = ReplicaFacts(key, label, replica, service, snapshot_index, now, self._gpus[key])
            return replica_rows.line(facts, self.drawn_table(width))
        why = service.why if service is not None else ""
        if replica is not None:
            why = why or replica.why
            return replica_rows.unready(
                key, label, replica.progress, why, replica.restarts, names, self._state
            )
        assert service is not None  # keys are replicas and services
        if service.state in SERVING or service.state == "stopping":
            return replica_rows.service_line(service, label, snapshot, now, names, self._state)
        return replica_rows.unready(key, label, service.progress, why, service.restarts, names, self._state)

    def _missing_row(self, snapshot: Snapshot) -> Row:
        words = f"{self._missing} of {snapshot.replicas.expected} replicas do not exist yet"
        row = Row().add(MISSING, "text", max(7, self._names)).add(" ")
        return row.add(f"{GLYPH['waiting']} missing", "warn", max(self._state, 9)).add(f" {words}", "dim")

    def empty(self, width: int) -> Iterable[Row]:
        """A dash, where there are neither replicas nor services."""
        return [Row(("-", "dim"))]

    # -- actions

    def moved(self) -> None:
        """Tell the dashboard the replica or service under the cursor."""
        if (name := self.cursor) is not None and name != MISSING and not self._is_of_hosts(name):
            self.post_message(ServiceSelected(self._service_of(name)))

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: a row is listed."""
        return "no replica is listed" if action == "select" and self.cursor is None else ""

    def action_select(self) -> None:
        """Open the screen of the replica or service under the cursor; a missing replica has none. The row of all hosts
        unfolds, and folds again."""
        key = self.cursor
        if key is not None and self._is_of_hosts(key):
            self._unfold(key)
            return
        if key == MISSING:
            self.say("the missing replicas do not exist yet; there is nothing to open")
        elif key is not None:
            host_of(self).navigation.open_service(self._service_of(key))

    def _unfold(self, key: str) -> None:
        if key != HOSTS and not self._of_host.get(key):
            node = self._hosts[key]
            done = f"{node.name or 'this host'} has nothing to open"
            self.say(f"run there: {node.command}" if node.command else done)
            return
        if self._of_host:
            opened = {one for one in self._of_host if self._is_open(one)}
            everything = set() if opened else set(self._of_host)
            self._open = everything if key == HOSTS else opened ^ {key}
        else:
            self._unfolded = not self._unfolded
        self.show(self._view)
        self.post_message(Unfolded())

    def _service_of(self, key: str) -> str:
        """The service or replica of a row: for the sessions in verl's workers the trainer, whose processes they are."""
        if not self._is_workers(key):
            return key
        return next((name for name, service in self._services.items() if service.kind == "trainer"), key)


def _by_its_log(service: ServiceStatus, replicas: Mapping[str, ReplicaStatus]) -> bool:
    """Whether a replica of a run that is watched is known by its log only."""
    return service.owner == "foreign" and service.started_at is None and service.name not in replicas


def _beside(services: Iterable[str], *, workers: bool) -> tuple[str, ...]:
    """The rows below the replicas, by name. ``workers``: with the sessions in verl's workers, in front of the trainer
    as the service would be."""
    names = [*services]
    if workers:
        names.insert(names.index("trainer") if "trainer" in names else len(names), WORKERS)
    return tuple(names)
