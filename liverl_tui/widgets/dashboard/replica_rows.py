"""Rows of the replicas pane: replicas, and the services beside them. Pure."""

from __future__ import annotations

from functools import lru_cache

from liverl.model import ReplicaStatus, ServiceStatus, Snapshot
from liverl_tui.text.status_label import SnapshotIndex, StatusLabel
from liverl_tui.text.words import UNKNOWN, age, count, one_line, percent, short_name, size
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.fitting import Chosen, Column, choose
from liverl_tui.widgets.base.meters import bar

NARROW = 100  # columns; below it an address is its port only
CROWDED = 0.95  # ratio of the KV cache from which on the engine preempts requests
METER = 10  # columns of the bar that shows the progress of a start


@lru_cache(maxsize=16)
def table(width: int, name: int, state: int, gpus: int) -> Chosen:
    """The columns of the table at ``width``. ``name``, ``gpus``: columns that the longest of each needs; with
    ``gpus`` 0 there is no column for them. ``state``: columns of the states."""
    address = Column("address", "address", 15, 10) if width >= NARROW else Column("port", "port", 6, 10)
    all_columns = (
        Column("name", "replica", max(7, name), 0),
        Column("state", "state", state, 0),
        Column("listed", "proxy", 6, 1),
        Column("load", "run/wait", 8, 2, ">"),
        Column("rate", "tok/s", 6, 3, ">"),
        Column("kv", "KV", 4, 4, ">"),
        Column("version", "policy", 6, 5, ">"),
        Column("hit", "prefix", 6, 6, ">"),
        Column("restarts", "rst", 3, 9, ">"),
        Column("uptime", "up", 5, 8, ">"),
        Column("gpus", "gpu", min(max(3, gpus), 15), 7),
        address,
        Column("kind", "kind", 10, 11),
    )
    return choose(tuple(c for c in all_columns if gpus or c.name != "gpus"), width)


def line(
    replica: ReplicaStatus,
    label: StatusLabel,
    snapshot_index: SnapshotIndex,
    now: float,
    gpus: str,
    chosen: Chosen,
) -> Row:
    """One serving replica as a line of the table. ``gpus``: indices of its GPUs, as text; ``now``: Unix time."""
    row = Row()
    for column, width in chosen:
        if column.name == "state":
            row.add(label.within(width), label.style, width)
        else:
            text, style = _value(replica, column.name, snapshot_index, now, gpus)
            row.add(text, style, width, column.align)
        row.add(" ")
    return row


def _value(
    replica: ReplicaStatus, name: str, snapshot_index: SnapshotIndex, now: float, gpus: str
) -> tuple[str, str]:
    engine = replica.engine
    match name:
        case "name":
            return replica.name, "text"
        case "listed":
            return _listed(replica, snapshot_index.snapshot)
        case "load":
            crowded = (engine.waiting or 0.0) > (engine.running or 0.0)
            return f"{_whole(engine.running)}/{_whole(engine.waiting)}", "warn" if crowded else "text"
        case "rate":
            return count(engine.tokens_per_s), "text"
        case "kv":
            full = engine.kv_cache_usage is not None and engine.kv_cache_usage >= CROWDED
            return percent(engine.kv_cache_usage), "warn" if full else "text"
        case "version":
            version = engine.policy_version
            behind = version is not None and version != snapshot_index.snapshot.policy_version is not None
            return UNKNOWN if version is None else f"v{version}", "warn" if behind else "text"
        case "hit":
            return percent(engine.prefix_cache_hit_rate), "text"
        case "restarts":
            return str(replica.restarts), "warn" if replica.restarts else "text"
        case "uptime":
            service = snapshot_index.services.get(replica.name)
            since = service.ready_at if service is not None else replica.since
            return age(now - since) if since is not None else UNKNOWN, "text"
        case "gpus":
            return gpus or UNKNOWN, "text"
        case "address":
            return (replica.address or UNKNOWN).removeprefix("http://"), "text"
        case "port":
            _, colon, port = (replica.address or "").rpartition(":")
            return f":{port}" if colon else UNKNOWN, "text"
        case "kind":
            return replica.kind, "text"
    raise KeyError(name)


def _listed(replica: ReplicaStatus, snapshot: Snapshot) -> tuple[str, str]:
    address = replica.address
    if snapshot.proxy_down is not None:
        return "○ down", "warn"
    if (
        replica.listed
        and address is not None
        and any(b.startswith(address) for b in snapshot.proxy.cooled_down)
    ):
        return "▲ cool", "warn"  # the proxy has put it in cooldown after failures
    return ("● in", "text") if replica.listed else ("○ out", "text")


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
        row.add(f" {restarts} restart{'s' * (restarts > 1)}", "warn")
    return row.add(f" {one_line(why)}" if why and why != label.words else "", "dim")


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
        if proxy.requests is not None:
            facts.append(f"{count(proxy.requests)} requests")
        if proxy.failures:
            facts.append(f"{count(proxy.failures)} failed")
        if proxy.unattributed:
            facts.append(f"{count(proxy.unattributed)} unattributed")
        if proxy.cooled_down:
            facts.append(f"{len(proxy.cooled_down)} in cooldown")
    elif service.kind == "trainer" and snapshot.policy_version is not None:
        facts.append(f"policy v{snapshot.policy_version}")
    if service.restarts:
        facts.append(f"{service.restarts} restart{'s' * (service.restarts > 1)}")
    if service.ready_at is not None:
        facts.append(f"up {age(now - service.ready_at)}")
    if service.tree.processes and snapshot.gpus:
        facts.append(
            f"{size(service.tree.rss_bytes)} in {service.tree.processes} process{'es' * (service.tree.processes > 1)}"
        )
    return row.add("  ".join(facts), "text")


def short_line(labels: list[tuple[str, StatusLabel]]) -> Row:
    """Several services in one line: ``● proxy ready  ◐ trainer starting 12s``. ``labels``: (name, label)."""
    row = Row()
    for name, label in labels:
        if row.spans:
            row.add("  ")
        row.add(f"{label.glyph} {name} ", label.style).add(label.words, label.style)
    return row
