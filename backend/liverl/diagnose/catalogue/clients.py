"""Rules about who connects to the ports that agents use: floods of connections without a key, and no descriptors."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.diagnose.tracker import GOING, Resolved, Window
from liverl.model import Clients, Evidence, Snapshot, Symptom

FLOOD = 32  # connections of one address without a key: half of those that it may have (``util.http_limits``)
NEARLY_ALL = 0.95  # share of the descriptors


def connection_flood(window: Window) -> Iterator[Symptom | Resolved]:
    """Since the previous snapshot, connections of one address were closed because they sent no valid key, and there are
    or were many of them.

    - the address is this host's -> ``ss -tnp`` shows the program: end it
    - the address is another host's, and you know the program -> end it there, or give it the run's key
    - the address is another host's, and you do not know it -> keep it away from the port with a firewall
    """
    if window.now.state not in GOING or window.before is None:
        return
    before = dict(_ports(window.before))
    for name, clients in _ports(window.now):
        earlier = before.get(name, Clients())
        more = clients.dropped_of_peer - (
            earlier.dropped_of_peer if earlier.dropped_peer == clients.dropped_peer else 0
        )
        if more <= 0 or max(more, clients.of_peer) < FLOOD:
            continue
        peer = clients.dropped_peer or "this host"
        yield Symptom(
            id=f"connection_flood:{name}",
            severity="warning",
            title=f"connections without a key flood the {name}",
            cause=f"{peer} opens connections to the {name} and sends no valid key: {clients.dropped_of_peer:,} of them "
            f"were closed so far. Agents with a key are served: the oldest connections without one are closed first",
            fix=f"find the program at {peer} that opens them and end it (ss -tnp shows the connections of a port), or "
            "keep that address away from the port with a firewall",
            evidence=who(clients),
        )


def sessions_descriptors(window: Window) -> Iterator[Symptom | Resolved]:
    """The sessions can open no further file or connection, or refused one since the previous snapshot."""
    now, before = window.now, window.before
    clients = _sessions(now)
    if now.state not in GOING or clients is None:
        return
    earlier = None if before is None else _sessions(before)
    full = clients.descriptors >= NEARLY_ALL * clients.descriptor_limit > 0
    if not full and (earlier is None or clients.turned_away <= earlier.turned_away):
        return
    yield Symptom(
        id="sessions_descriptors",
        severity="critical",
        title="the sessions have no file descriptors left",
        cause=f"agents are turned away: {clients.connections:,} connections are open, {_of_them(clients)}",
        fix="end the program that opens connections without a key, if there is one; else raise the limit of open files "
        "(ulimit -n in the shell, LimitNOFILE in systemd) and resume the run",
        evidence=(
            Evidence(
                f"open files and connections: {clients.descriptors:,} of {clients.descriptor_limit:,}",
                value=clients.descriptors,
            ),
            Evidence(f"connections that found no room: {clients.turned_away:,}", value=clients.turned_away),
            *who(clients),
        ),
    )


def who(clients: Clients | None) -> tuple[Evidence, ...]:
    """Who has connections to a port, as evidence."""
    if clients is None:
        return ()
    told = [Evidence(f"connections: {clients.connections:,}, {_of_them(clients)}", value=clients.connections)]
    if clients.dropped_of_peer:
        peer = clients.dropped_peer or "this host"
        told.append(Evidence(f"closed so far without a key, from {peer}: {clients.dropped_of_peer:,}"))
    return tuple(told)


def _of_them(clients: Clients) -> str:
    if not clients.without_key:
        return "all with a key"
    return f"{clients.without_key:,} without a key, of these {clients.of_peer:,} from {clients.peer or 'this host'}"


def _sessions(now: Snapshot) -> Clients | None:
    return None if now.sessions is None else now.sessions.clients


def _ports(now: Snapshot) -> Iterator[tuple[str, Clients]]:
    sessions = _sessions(now)
    if sessions is not None:
        yield "sessions", sessions
    if now.proxy.clients is not None:
        yield "proxy", now.proxy.clients
