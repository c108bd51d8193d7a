"""Rows of the GPUs pane on a machine without GPUs: the CPU of the host and of its services. Pure."""

from __future__ import annotations

import math
from functools import lru_cache

from liverl.model import HostStats, ServiceStatus
from liverl_tui.text.status_label import StatusLabel
from liverl_tui.text.words import UNKNOWN, percent, short_name, size
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.fitting import Chosen, Column, choose
from liverl_tui.widgets.base.meters import Sweep, bar

CELL = 26  # columns of the narrowest cell, with the gap after it
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


def host_line(host: HostStats, name: str, history: str, width: int) -> Row:
    """One line about the host; below 76 columns it has no meters. ``history``: CPU history, already drawn.

    Example: ``host node1  41% ━━━━──── of 8 cores   9.0G of 32G  28% ━━──────``.
    """
    cpu = share(host.cpu_percent)
    memory = (
        host.memory_used / host.memory_total if host.memory_used is not None and host.memory_total else None
    )
    row = Row((f"{name} ", "strong"))
    meter = 10 if width >= 76 else 0
    row.add("cpu ", "dim").add(percent(cpu), "text", 4, ">")
    if meter:
        filled, rest = bar(cpu, meter)
        row.add(" ").add(filled, "meter").add(rest, "meter_off")
    row.add(f" of {host.cpu_count or '?'} cores  ", "dim")
    row.add("mem ", "dim").add(
        percent(memory), "warn" if memory is not None and memory > 0.95 else "text", 4, ">"
    )
    if meter:
        filled, rest = bar(memory, meter)
        row.add(" ").add(filled, "meter").add(rest, "meter_off")
    row.add(f" of {size(host.memory_total)} ", "dim")
    return row.add(history, "meter")


@lru_cache(maxsize=16)
def table(width: int, name: int) -> Chosen:
    """The columns of the table at ``width``. ``name``: columns that the longest service name needs."""
    columns = (
        Column("name", "service", min(max(7, name), 20), 0),
        Column("cpu", "cpu", 5, 0, ">"),
        Column("rss", "mem", 5, 1, ">"),
        Column("processes", "procs", 5, 4, ">"),
        Column("history", "history", 8, 3, grows=60),
        Column("state", "", 24, 2, grows=12),
    )
    return choose(columns, width)


def line(service: ServiceStatus, label: StatusLabel, history: str, chosen: Chosen) -> Row:
    """One service as a line of the table. ``history``: as wide as the column ``history`` of ``chosen``."""
    row = Row()
    for column, width in chosen:
        match column.name:
            case "history":
                row.add(history, "meter")
            case "state":
                row.add(label.within(width), label.style, width)
            case name:
                row.add(_value(service, name), "text", width, column.align)
        row.add(" ")
    return row


def _value(service: ServiceStatus, name: str) -> str:
    if name == "name":
        return service.name
    tree = service.tree
    if not runs(service):
        return UNKNOWN
    match name:
        case "cpu":
            return UNKNOWN if tree.cpu_percent is None else f"{tree.cpu_percent:.0f}%"
        case "rss":
            return size(tree.rss_bytes)
        case "processes":
            return str(tree.processes)
    raise KeyError(name)


def cell(service: ServiceStatus, label: StatusLabel, history: Sweep, name: int, width: int) -> Row:
    """One service as a cell of exactly ``width`` columns: ``trainer  131% 1.2G ▂▃▅ ●``. From 36 columns on the state
    has words. ``name``: columns that the longest service name needs."""
    state = 10 if width >= 36 else 1
    room = width - state - 14  # for the name and the history
    name = max(1, min(max(name, room - 16), room - 3))
    row = Row().add(short_name(service.name, name), "text", name).add(" ")
    row.add(_value(service, "cpu"), "text", 5, ">").add(" ").add(_value(service, "rss"), "text", 5, ">").add(
        " "
    )
    row.add(history.cells(room - name), "meter").add(" ")
    return row.add(label.glyph if state == 1 else label.within(state), label.style, state)
