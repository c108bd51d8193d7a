"""Rows of the GPUs pane on a machine without GPUs: the CPU of the host and of its services. Pure."""

from __future__ import annotations

import math
from functools import lru_cache

from msgspec import Struct

from liverl.model import HostStats, ServiceStatus, TreeStats
from liverl_tui.text.status_label import StatusLabel
from liverl_tui.text.words import UNKNOWN, percent, short_name, size
from liverl_tui.widgets.base.cells import Row, Span
from liverl_tui.widgets.base.fitting import Chosen, Column
from liverl_tui.widgets.base.meters import WIDTHS, History, history_head, history_width

CELL = 26  # columns of the narrowest cell, with the gap after it
NOTE = 30  # columns of what the host has: "41% of 128 cores, 28% of 2.0T"
FULL = 0.95  # ratio of the host's memory: shown as a warning above it
_ENDED = ("stopped", "failed", "gave_up")


def runs(service: ServiceStatus) -> bool:
    """Whether the last sample of the service counted processes and its state is not one of ``_ENDED``."""
    return service.tree.processes > 0 and service.state not in _ENDED


def share(percent_used: float | None) -> float | None:
    """Percent 0..100 as a ratio 0..1; None stays None."""
    return None if percent_used is None else percent_used / 100


def share_of_service(percent_used: float | None, cores: int | None) -> float | None:
    """The height 0..1 of a service's CPU in its history. ``percent_used``: 100 = one core. It is the square root of
    the share of the machine, so that one busy core is visible on a machine of many cores."""
    return None if percent_used is None else math.sqrt(max(0.0, percent_used) / (100 * (cores or 1)))


class CpuFacts(Struct, frozen=True):
    """What the columns read of one service."""

    service: ServiceStatus
    label: StatusLabel

    @property
    def tree(self) -> TreeStats | None:
        """What its processes use; None if it does not run."""
        return self.service.tree if runs(self.service) else None


@lru_cache(maxsize=16)
def columns(name: int) -> tuple[Column, ...]:
    """All columns of the table. ``name``: terminal columns that the longest name needs."""
    return (
        Column("glyph", "", 1, 0, value=lambda f: f.label.text, label="state"),
        Column("name", "service", min(max(7, name), 20), 0, value=lambda f: f.service.name),
        Column("cpu", "cpu", 5, 0, ">", value=_cpu, largest_first=True, cell=_cpu_cell),
        Column("rss", "mem", 5, 1, ">", value=_memory, largest_first=True, label="memory", cell=_memory_cell),
        Column(
            "processes",
            "procs",
            5,
            4,
            ">",
            value=_processes,
            largest_first=True,
            label="processes",
            cell=_processes_cell,
        ),
        Column("history", "history", WIDTHS[-1], 2, grows=WIDTHS[0]),
        Column("note", "", NOTE, 3, label="what the host has"),
        Column("kind", "kind", 11, 5, value=lambda f: f.service.kind, cell=_kind_cell, shown=False),
    )


def _cpu(facts: CpuFacts) -> float | None:
    return facts.tree.cpu_percent if facts.tree is not None else None


def _cpu_cell(facts: CpuFacts) -> Span:
    cpu = _cpu(facts)
    return UNKNOWN if cpu is None else f"{cpu:.0f}%", "text"


def _memory(facts: CpuFacts) -> int | None:
    return facts.tree.rss_bytes if facts.tree is not None else None


def _memory_cell(facts: CpuFacts) -> Span:
    return size(_memory(facts)), "text"


def _processes(facts: CpuFacts) -> int | None:
    return facts.tree.processes if facts.tree is not None else None


def _processes_cell(facts: CpuFacts) -> Span:
    return UNKNOWN if facts.tree is None else str(facts.tree.processes), "text"


def _kind_cell(facts: CpuFacts) -> Span:
    return facts.service.kind, "text"


def host_line(host: HostStats, name: str, history: str, chosen: Chosen) -> Row:
    """The host as a line of the table: what it uses, in the columns and units of its services, and of how much.

    Example: ``  node1  328%  9.0G  ▁▂▅  41% of 8 cores, 28% of 32G``.
    """
    cpu, memory = share(host.cpu_percent), host_memory(host)
    used = UNKNOWN if cpu is None or not host.cpu_count else f"{cpu * 100 * host.cpu_count:.0f}%"
    row = Row()
    for column, width in chosen:
        match column.name:
            case "name":
                row.add(short_name(name, width), "strong", width)
            case "cpu":
                row.add(used, "text", width, ">")
            case "rss":
                full = memory is not None and memory > FULL
                row.add(size(host.memory_used), "warn" if full else "text", width, ">")
            case "history":
                row.add(history, "meter")
            case "note":
                row.add(_of_how_much(host), "dim", width)
            case _:
                row.add("", "text", width)
        row.add(" ")
    return row


def _of_how_much(host: HostStats) -> str:
    """``41% of 8 cores, 28% of 32G``; only how much there is where what is used is not known: of an ended run."""
    cores, total = f"{host.cpu_count or '?'} cores", size(host.memory_total)
    cpu, memory = share(host.cpu_percent), host_memory(host)
    if cpu is None and memory is None:
        return f"{cores}, {total}"
    return f"{percent(cpu)} of {cores}, {percent(memory)} of {total}"


def host_cell(host: HostStats, name: str) -> Row:
    """The host as a line above cells: ``node1  cpu  41% of 8 cores  mem  28% of 32G``."""
    memory = host_memory(host)
    full = memory is not None and memory > FULL
    row = Row((f"{name}  ", "strong"))
    if memory is None and host.cpu_percent is None:
        return row.add(_of_how_much(host), "dim")
    row.add("cpu ", "dim").add(percent(share(host.cpu_percent)), "text", 4, ">")
    row.add(f" of {host.cpu_count or '?'} cores  mem ", "dim")
    row.add(percent(memory), "warn" if full else "text", 4, ">")
    return row.add(f" of {size(host.memory_total)}", "dim")


def host_memory(host: HostStats) -> float | None:
    """Used memory of the host as a ratio 0..1; None if used or total memory is unknown."""
    return (
        host.memory_used / host.memory_total if host.memory_used is not None and host.memory_total else None
    )


def line(facts: CpuFacts, history: str, chosen: Chosen) -> Row:
    """What one service uses, as a line of the table. Its state is the glyph only: the replicas pane has the words.
    ``history``: as wide as the column ``history`` of ``chosen``."""
    row, label = Row(), facts.label
    for column, width in chosen:
        match column.name:
            case "history":
                row.add(history, "meter")
            case "glyph":
                row.add(label.glyph, label.style, width)
            case "name":
                row.add(short_name(facts.service.name, width), "text", width)
            case _ if column.cell is not None:
                text, style = column.cell(facts)
                row.add(text, style, width, column.align)
            case _:
                row.add("", "text", width)
        row.add(" ")
    return row


def _cell_columns(name: int, width: int) -> tuple[int, int]:
    """Columns of the name and of the history in a cell. ``name``: columns that the longest name needs."""
    room = width - 15  # beside glyph, CPU, memory and the blanks
    history = history_width(room - min(name, room))
    return max(1, min(name, room - history)), history


def cell_head(name: int, width: int, ended: str) -> Row:
    """The heads above a cell. ``ended``: see ``history_head``."""
    name_width, history = _cell_columns(name, width)
    row = Row().add("", "head", 2).add("service", "head", name_width).add(" ", "head")
    row.add("cpu", "head", 5, ">").add(" ", "head").add("mem", "head", 5, ">").add(" ", "head")
    return row.add(history_head(history, ended) if history else "", "head", width - name_width - 15)


def cell(
    service: ServiceStatus, label: StatusLabel, history: History, end: float, name: int, width: int
) -> Row:
    """One service as a cell of exactly ``width`` columns: ``● trainer  131% 1.2G ▂▃▅``. ``end``: see
    ``History.cells``; ``name``: columns that the longest service name needs."""
    name_width, history_columns = _cell_columns(name, width)
    facts = CpuFacts(service, label)
    row = Row().add(label.glyph, label.style, 1).add(" ")
    row.add(short_name(service.name, name_width), "text", name_width).add(" ")
    for text, style in (_cpu_cell(facts), _memory_cell(facts)):
        row.add(text, style, 5, ">").add(" ")
    return row.add(history.cells(history_columns, end), "meter", width - name_width - 15)
