"""Rows of the replicas pane: replicas, and the services beside them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from msgspec import Struct

from liverl.model import (
    CARRIER_WORDS,
    Carrier,
    EngineFacts,
    ReplicaStatus,
    ServiceStatus,
    SessionsStatus,
    Snapshot,
)
from liverl.util.plural import plural, quantity
from liverl_tui.text.columns import columns_of
from liverl_tui.text.facts import bypassed_words, ended, hosts_words, open_words
from liverl_tui.text.status_label import SnapshotIndex, StatusLabel, engine_now
from liverl_tui.text.words import UNKNOWN, age, count, number, one_line, percent, short_name, size
from liverl_tui.widgets.base.cells import Row, Span
from liverl_tui.widgets.base.fitting import Chosen, Column, Value
from liverl_tui.widgets.base.fitting import columns as columns_of_spans
from liverl_tui.widgets.base.meters import bar

# Name of the row about the sessions in verl's workers: that of the service in other runs
WORKERS = "sessions"
NARROW = 100  # columns; below it an address is its port only
CROWDED = 0.95  # ratio of the KV cache from which on the engine preempts requests
WORDIEST = 2  # see ``columns``
METER = 10  # columns of the bar that shows the progress of a start


class ReplicaFacts(Struct, frozen=True):
    """What the columns read of one row. ``replica`` and ``service``: of that name; None if there is none. ``now``: Unix
    time; ``gpus``: indices of the GPUs, as text."""

    name: str
    label: StatusLabel
    replica: ReplicaStatus | None
    service: ServiceStatus | None
    index: SnapshotIndex
    now: float
    gpus: str = ""

    @property
    def engine(self) -> EngineFacts:
        """What the engine of the replica says; nothing for a service. What a process that is stopped has said of a
        moment before is not said of now."""
        if self.replica is None:
            return _NO_ENGINE
        return engine_now(self.replica, self.service, self.now)

    @property
    def since(self) -> float | None:
        """Since when it serves: Unix time."""
        if self.service is not None and (
            self.service.ready_at is not None or self.service.owner != "foreign"
        ):
            return self.service.ready_at
        return self.replica.since if self.replica is not None else None

    @property
    def address(self) -> str:
        """Host and port, without the scheme; empty if it has none."""
        known = self.replica or self.service
        return ((known.address if known is not None else None) or "").removeprefix("http://")

    @property
    def restarts(self) -> int:
        """How often it was restarted."""
        known = self.replica or self.service
        return known.restarts if known is not None else 0

    @property
    def kind(self) -> str:
        """How the replica is started, or the kind of the service."""
        known = self.replica or self.service
        return known.kind if known is not None else ""

    @property
    def node(self) -> str:
        """The host of the replica; "" where that is not known."""
        return self.replica.node if self.replica is not None else ""

    @property
    def cpu(self) -> float | None:
        """CPU of its processes in percent of a core; None if it has none here."""
        return (
            self.service.tree.cpu_percent
            if self.service is not None and self.service.tree.processes
            else None
        )

    @property
    def memory(self) -> int | None:
        """Memory of its processes, in bytes; None if it has none here."""
        return (
            self.service.tree.rss_bytes if self.service is not None and self.service.tree.processes else None
        )


_NO_ENGINE = EngineFacts()


@lru_cache(maxsize=48)
def columns(
    name: int,
    state: int,
    gpus: int,
    narrow: bool = False,
    carrier: Carrier = "proxy",
    node: int = 0,
    wordy: int = 0,
) -> tuple[Column, ...]:
    """All columns of the table. ``name``, ``gpus``: terminal columns that the longest of each needs; with ``gpus`` 0
    there is no column for them. ``state``: that of the states. ``narrow``: an address is its port only.
    ``carrier``: what carries the trials; without a list of replicas, there is no column for that. ``node``: as
    ``gpus``, for the host. ``wordy``: how many of the abbreviated heads are words, 0 to ``WORDIEST``."""
    load, load_width = ("running/waiting", 15) if wordy > 1 else ("run/wait", 8)
    seconds, seconds_width = ("s/answer", 8) if wordy else ("s/ans", 5)
    hits, hits_width = ("prefix hits", 11) if wordy else ("prefix", 6)
    restarts, restarts_width = ("restarts", 8) if wordy else ("rst", 3)
    every = (
        Column(
            "name",
            "replica",
            max(7, name),
            0,
            value=lambda f: f.name,
            label="name",
            cell=_plain(lambda f: f.name),
        ),
        Column("state", "state", state, 0, value=lambda f: f.label.text),  # its words depend on the room
        Column(
            "listed",
            "proxy" if carrier == "proxy" else "listed",
            6,
            1,
            value=_listed_value,
            label=f"in {CARRIER_WORDS[carrier].name}",
            cell=_listed_cell,
        ),
        _number("load", load, load_width, 2, _load, "run/wait: requests", cell=_load_cell),
        _number("rate", "tok/s", 6, 3, lambda f: f.engine.tokens_per_s, "tok/s: generated tokens", count),
        _number(
            "seconds",
            seconds,
            seconds_width,
            4,
            lambda f: f.engine.seconds_per_answer,
            "s/ans: seconds per answer, over the last minute",
            cell=_seconds_cell,
        ),
        _number("kv", "KV", 4, 4, lambda f: f.engine.kv_cache_usage, "KV cache", cell=_kv_cell),
        _number(
            "version", "policy", 6, 5, lambda f: f.engine.policy_version, "policy version", cell=_version_cell
        ),
        _number(
            "hit", hits, hits_width, 6, lambda f: f.engine.prefix_cache_hit_rate, "prefix cache hits", percent
        ),
        _number(
            "restarts", restarts, restarts_width, 9, lambda f: f.restarts, "restarts", cell=_restarts_cell
        ),
        _number("uptime", "up", 5, 8, _minus_since, "uptime", cell=_uptime_cell),
        Column(
            "gpus",
            "gpu",
            min(max(3, gpus), 15),
            7,
            value=lambda f: f.gpus or None,
            cell=_plain(lambda f: f.gpus),
        ),
        Column(
            "address",
            "port" if narrow else "address",
            6 if narrow else 15,
            10,
            value=lambda f: f.address or None,
            cell=_port_cell if narrow else _plain(lambda f: f.address),
            label="address",
        ),
        Column(
            "node", "host", min(max(4, node), 20), 5, value=lambda f: f.node, cell=_plain(lambda f: f.node)
        ),
        Column("kind", "kind", 10, 11, value=lambda f: f.kind, cell=_plain(lambda f: f.kind)),
        _number(
            "waiting", "waiting", 7, 12, lambda f: f.engine.waiting, "waiting requests", _whole, shown=False
        ),
        _number(
            "running", "running", 7, 12, lambda f: f.engine.running, "running requests", _whole, shown=False
        ),
        _number(
            "answers",
            "answers",
            7,
            12,
            lambda f: f.engine.request_success_total,
            "answered requests",
            shown=False,
        ),
        _number(
            "tokens",
            "tokens",
            7,
            12,
            lambda f: f.engine.generation_tokens_total,
            "generated tokens",
            shown=False,
        ),
        _number("cpu", "cpu", 5, 12, lambda f: f.cpu, "CPU", _percent_of_core, shown=False),
        _number("memory", "mem", 5, 12, lambda f: f.memory, "memory", size, shown=False),
    )
    present = {"gpus": bool(gpus), "node": bool(node), "listed": CARRIER_WORDS[carrier].keeps_list}
    return tuple(c for c in every if present.get(c.name, True))


def _number(
    name: str,
    head: str,
    width: int,
    rank: int,
    value: Callable[[ReplicaFacts], float | None],
    label: str,
    words: Callable[[float | None], str] = count,
    *,
    cell: Callable[[ReplicaFacts], Span] | None = None,
    shown: bool = True,
) -> Column:
    """A column of numbers, the largest first. ``words``: a number as text; ``cell``: see ``Column``."""

    def plain(facts: ReplicaFacts) -> Span:
        return words(value(facts)), "text"

    return Column(name, head, width, rank, ">", 0, value, True, label, shown, cell or plain)


def _plain(read: Callable[[ReplicaFacts], str]) -> Callable[[ReplicaFacts], Span]:
    """The cell of a column of plain texts."""
    return lambda facts: (read(facts) or UNKNOWN, "text")


def _listed_cell(facts: ReplicaFacts) -> Span:
    return _listed(facts.replica, facts.index.snapshot) if facts.replica is not None else (UNKNOWN, "text")


def _listed_value(facts: ReplicaFacts) -> Value:
    return _listed_cell(facts)[0] if facts.replica is not None else None


def _load(facts: ReplicaFacts) -> float | None:
    running, waiting = facts.engine.running, facts.engine.waiting
    return None if running is None and waiting is None else (running or 0.0) + (waiting or 0.0)


def _load_cell(facts: ReplicaFacts) -> Span:
    engine = facts.engine
    crowded = (engine.waiting or 0.0) > (engine.running or 0.0)
    return f"{_whole(engine.running)}/{_whole(engine.waiting)}", "warn" if crowded else "text"


def _seconds_cell(facts: ReplicaFacts) -> Span:
    slow = any(symptom.id == f"replica_slow:{facts.name}" for symptom in facts.index.snapshot.symptoms)
    return number(facts.engine.seconds_per_answer, 2)[:5], "warn" if slow else "text"


def _kv_cell(facts: ReplicaFacts) -> Span:
    usage = facts.engine.kv_cache_usage
    return percent(usage), "warn" if usage is not None and usage >= CROWDED else "text"


def _version_cell(facts: ReplicaFacts) -> Span:
    version = facts.engine.policy_version
    behind = version is not None and version != facts.index.snapshot.policy_version is not None
    return UNKNOWN if version is None else f"v{version}", "warn" if behind else "text"


def _restarts_cell(facts: ReplicaFacts) -> Span:
    return str(facts.restarts), "warn" if facts.restarts else "text"


def _minus_since(facts: ReplicaFacts) -> float | None:
    """Sorts as the uptime does, but does not change with the time."""
    return None if facts.since is None else -facts.since


def _uptime_cell(facts: ReplicaFacts) -> Span:
    return UNKNOWN if facts.since is None else age(facts.now - facts.since), "text"


def _port_cell(facts: ReplicaFacts) -> Span:
    _, colon, port = facts.address.rpartition(":")
    return f":{port}" if colon else UNKNOWN, "text"


def _percent_of_core(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}%"


def line(facts: ReplicaFacts, chosen: Chosen) -> Row:
    """One serving replica as a line of the table."""
    row = Row()
    for column, width in chosen:
        if column.cell is None:
            row.add(facts.label.within(width), facts.label.style, width)
        else:
            text, style = column.cell(facts)
            row.add(text, style, width, column.align)
        row.add(" ")
    return row


def _listed(replica: ReplicaStatus, snapshot: Snapshot) -> tuple[str, str]:
    address = replica.address
    if snapshot.carrier_down is not None:
        return "○ down", "warn"
    if not snapshot.has_list or _has_begun_no_list(snapshot):
        return UNKNOWN, "dim"
    if (
        replica.listed
        and address is not None
        and snapshot.carrier == "proxy"
        and any(b.startswith(address) for b in snapshot.proxy.cooled_down)
    ):
        return "▲ cool", "warn"  # the proxy has put it in cooldown after failures
    return ("● in", "text") if replica.listed else ("○ out", "text")


def _has_begun_no_list(snapshot: Snapshot) -> bool:
    """Whether what carries the trials has not started yet: no replica is in its list, whatever is written for it."""
    carriers = [service for service in snapshot.services if service.kind == snapshot.carrier]
    return bool(carriers) and all(
        service.generation <= 1 and service.state in ("waiting", "starting") for service in carriers
    )


def _whole(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def unready(
    name: str,
    label: StatusLabel,
    progress: float | None,
    why: str,
    restarts: int,
    name_width: int,
    state_width: int,
) -> Row:
    """A replica or service that does not serve: its state, a bar for ``progress`` (0..1), restarts, and why."""
    row = Row().add(name, "text", name_width).add(" ")
    row.add(label.text, label.style, max(state_width, len(label.text)))
    if progress is not None:
        filled, rest = bar(progress, METER)
        row.add(" ").add(filled, "meter").add(rest, "meter_off")
    if restarts:
        row.add(f" {quantity(restarts, 'restart')}", "warn")
    why = one_line(why).removeprefix(f"{label.words} ")  # "waiting for proxy" behind "waiting"
    return row.add(f" {why}" if why and why != label.words else "", "dim")


def service_line(
    service: ServiceStatus,
    label: StatusLabel,
    snapshot: Snapshot,
    now: float,
    name_width: int,
    state_width: int,
) -> Row:
    """A running service that is not a replica: state, generation, address, counters of its kind, uptime; with GPUs
    also memory, which otherwise the pane above shows."""
    row = Row().add(short_name(service.name, name_width), "text", name_width).add(" ")
    row.add(label.text, label.style, max(state_width, len(label.text))).add(" ")
    facts = [f"gen {service.generation}"]
    if service.address is not None:
        facts.append(service.address.removeprefix("http://"))
    if service.kind == "proxy":
        proxy = snapshot.proxy
        if words := bypassed_words(snapshot):
            facts.append(words)
        elif proxy.requests is not None:
            facts.append(f"{count(proxy.requests)} {plural(proxy.requests, 'request')}")
        if proxy.failures:
            facts.append(f"{count(proxy.failures)} failed")
        if proxy.unattributed:
            facts.append(f"{count(proxy.unattributed)} unattributed")
        if proxy.cooled_down:
            facts.append(f"{quantity(len(proxy.cooled_down), 'replica')} in cooldown")
    elif service.kind == "sessions" and snapshot.sessions is not None:
        facts += _session_facts(snapshot, snapshot.sessions)
    elif service.kind == "trainer" and snapshot.policy_version is not None:
        facts.append(f"policy v{snapshot.policy_version}")
    if service.restarts:
        facts.append(quantity(service.restarts, "restart"))
    if service.ready_at is not None:
        facts.append(f"up {age(now - service.ready_at)}")
    if service.tree.processes and snapshot.gpus:
        processes = quantity(service.tree.processes, "process", "processes")
        facts.append(f"{size(service.tree.rss_bytes)} in {processes}")
    return row.add("  ".join(facts), "text")


def _session_facts(snapshot: Snapshot, sessions: SessionsStatus) -> Iterator[str]:
    yield f"{count(sessions.requests)} {plural(sessions.requests, 'request')}"
    if sessions.counters.get("num_failed"):
        yield f"{count(sessions.counters['num_failed'])} failed"
    yield open_words(snapshot, sessions)
    if sessions.waiting and not ended(snapshot):
        yield f"{count(sessions.waiting)} being sampled"


def workers_line(label: StatusLabel, snapshot: Snapshot, name_width: int, state_width: int) -> Row:
    """The sessions in verl's agent-loop workers, which are no service: state, where they are, and counters."""
    row = Row().add(WORKERS, "text", name_width).add(" ")
    row.add(label.text, label.style, max(state_width, len(label.text))).add(" ")
    sessions = snapshot.sessions
    if sessions is None or not sessions.workers:
        return row.add("verl's agent-loop workers host them", "dim")
    return row.add("  ".join([*_session_facts(snapshot, sessions), hosts_words(sessions)]), "text")


def host_line(
    name: str,
    label: StatusLabel,
    words: str,
    name_width: int,
    state_width: int,
    width: int,
    *,
    problem: bool,
) -> Row:
    """A host of a run on several, or all of them: state, and ``words`` on what is wrong or where it is. Of figures,
    those that do not fit into ``width`` as a whole are left out."""
    row = Row().add(name, "text", name_width).add(" ")
    row.add(label.text, label.style, max(state_width, len(label.text)))
    if not problem:
        words = _whole_parts(words, width - columns_of_spans(row.spans) - 1)
    return row.add(f" {words}" if words else "", "warn" if problem else "dim")


def _whole_parts(words: str, room: int) -> str:
    """The first of the parts of ``words``, which have two blanks between them, as many as fit; at least one."""
    shown, *rest = words.split("  ")
    for part in rest:
        if columns_of(f"{shown}  {part}") > room:
            break
        shown = f"{shown}  {part}"
    return shown


def short_line(labels: list[tuple[str, StatusLabel]]) -> Row:
    """Several services in one line: ``● proxy ready  ◐ trainer starting 12s``. ``labels``: (name, label)."""
    row = Row()
    for name, label in labels:
        if row.spans:
            row.add("  ")
        row.add(f"{label.glyph} {name} ", label.style).add(label.words, label.style)
    return row
