"""The hosts of a run on several hosts, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from liverl.model import NodeStatus
from liverl_tui.text.status_label import StatusLabel
from liverl_tui.text.words import duration, one_line, size

# state -> glyph, style; the worst first
_LOOKS = {"lost": ("✖", "bad"), "missing": ("◌", "warn"), "joining": ("◐", "info"), "ready": ("●", "ok")}
_RANKS = {state: rank for rank, state in enumerate(_LOOKS)}


def worst_first(nodes: Sequence[NodeStatus]) -> list[NodeStatus]:
    """The hosts, those with something wrong in front."""
    return sorted(nodes, key=lambda node: (_RANKS[node.state], not node.why))


def of_node(node: NodeStatus, now: float) -> StatusLabel:
    """The state of a host, and for how long if it is not ready. ``now``: Unix seconds."""
    glyph, style = _LOOKS[node.state]
    words = node.state if node.state == "ready" else f"{node.state} {duration(now - node.since)}"
    return StatusLabel(glyph, words, style, problem=node.state in ("lost", "missing"), kind=node.state)


def of_nodes(nodes: Sequence[NodeStatus]) -> StatusLabel:
    """How many of the hosts are ready, in the style of the worst."""
    ready = sum(node.state == "ready" for node in nodes)
    glyph, style = _LOOKS[worst_first(nodes)[0].state]
    return StatusLabel(glyph, f"{ready} of {len(nodes)} ready", style, problem=ready < len(nodes))


def node_words(node: NodeStatus, now: float) -> str:
    """Address, reason, what to run on a host, and its figures: ``10.77.0.11  it left the run; run there: liverl-tui
    join DIR``. ``now``: Unix seconds."""
    told = one_line(node.why)
    if node.command:
        told += f"{'; ' if told else ''}run there: {one_line(node.command)}"
    figures = figures_words(node, now) if node.state == "ready" else ""
    return "  ".join(part for part in (one_line(node.ip), told, figures) if part)


def figures_words(node: NodeStatus, now: float) -> str:
    """What is measured on a host: ``cpu 41%  memory 210G of 2.0T  shm 60G  disk 900G free``, in front of it how old
    that is if it is old, since a narrow row ends early; "" if nothing is known. ``now``: Unix seconds."""
    if node.measured_at is None:
        return ""
    words = [f"(measured {duration(now - node.measured_at)} ago)"] if node.old(now) else []
    words += [] if node.cpu_percent is None else [f"cpu {node.cpu_percent:.0f}%"]
    if node.memory_used is not None and node.memory_total is not None:
        words.append(f"memory {size(node.memory_used)} of {size(node.memory_total)}")
    words += [] if node.shm_used is None else [f"shm {size(node.shm_used)}"]
    words += [] if node.disk_free is None else [f"disk {size(node.disk_free)} free"]
    return "  ".join(words)


def nodes_words(nodes: Sequence[NodeStatus]) -> str:
    """What is wrong with the hosts, in short: the worst one by name, and how many others are as it is."""
    worst = worst_first(nodes)[0]
    if worst.state == "ready":
        return one_line(f"{worst.name}: {worst.why}") if worst.why else ""
    alike = sum(node.state == worst.state for node in nodes) - 1
    if worst.name:
        more = f" (and {alike} more)" if alike else ""
        return one_line(f"{worst.name} {worst.state}: {worst.why}") + more
    return f"run on {'each missing host' if alike else 'the missing host'}: {one_line(worst.command)}"
