"""Rows of the GPUs pane: one GPU as a line of a table or as a small cell. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct

from liverl.model import GpuStatus
from liverl_tui.text.status_label import StatusLabel, owner_words
from liverl_tui.text.words import percent
from liverl_tui.widgets.base.cells import Row, Span
from liverl_tui.widgets.base.fitting import Chosen, Column, stepped
from liverl_tui.widgets.base.meters import WIDTHS, bar, history_width

HOT = 85.0  # °C: from here on an H100 or H200 is about to throttle
FULL = 0.97  # ratio of the memory: shown as a warning from here on
CELL = 20  # columns of the narrowest cell, with the gap after it
GOOD_CELL = 40  # the same of a cell with a bar and most owners in full
_BAR = 6  # columns of the bar in such a cell
_LEAST_OWNER = 6  # columns below which an owner is not shown in a cell


def facts_of(gpus: tuple[GpuStatus, ...], labels: list[StatusLabel]) -> tuple[str, str]:
    """(text, style) for the title: number and model of the GPUs, and how many have which problem.

    Example: ``8 × H100  ▲ 2 foreign``. ``labels``: one for each GPU.
    """
    names = {gpu.name.removeprefix("NVIDIA ") for gpu in gpus}
    text = f"{len(gpus)} × {names.pop()}" if len(names) == 1 else f"{len(gpus)} of {len(names)} kinds"
    problems: dict[str, int] = {}
    for label in labels:
        if label.problem:
            kind = label.kind or label.words
            problems[kind] = problems.get(kind, 0) + 1
    if not problems:
        return text, "dim"
    return f"{text}  ▲ " + ", ".join(f"{count} {kind}" for kind, count in problems.items()), "warn"


class GpuFacts(Struct, frozen=True):
    """What the columns read of one GPU."""

    gpu: GpuStatus
    label: StatusLabel


@lru_cache(maxsize=16)
def columns(owner: int, state: int, node: int = 0) -> tuple[Column, ...]:
    """All columns of the table. ``owner``, ``state``, ``node``: terminal columns that each gets; with ``node`` 0 there
    is no column for the host."""
    host = (Column("node", "host", node, 0, value=lambda f: f.gpu.node, cell=_node),) if node else ()
    return (
        *host,
        Column("index", "gpu", 3, 0, ">", value=lambda f: f.gpu.index, label="number", cell=_index),
        _number("util", "util", 4, 0, lambda f: f.gpu.utilization, "utilization", cell=_util),
        Column("bar", "", 8, 7, label="utilization as a bar"),
        _number("memory", "memory", 8, 4, lambda f: f.gpu.memory_used, "memory", cell=_memory),
        _number("share", "mem%", 4, 1, lambda f: memory_share(f.gpu), "mem%: memory used", cell=_share),
        _number("power", "power", 8, 3, lambda f: f.gpu.power_w, "power", cell=_power),
        _number("temperature", "temp", 4, 5, lambda f: f.gpu.temperature_c, "temperature", cell=_temperature),
        Column("owner", "owner", owner, 1, value=lambda f: f.gpu.owner),
        Column("state", "state", state, 2, value=lambda f: f.label.text),
        Column("history", "history", WIDTHS[-1], 6, grows=WIDTHS[0]),
        _number("clock", "clock", 7, 12, lambda f: f.gpu.sm_clock_mhz, "SM clock", cell=_clock, shown=False),
        _number(
            "processes", "procs", 5, 12, lambda f: len(f.gpu.pids), "processes", cell=_processes, shown=False
        ),
    )


def widths(longest_owner: int, longest_state: int, width: int) -> tuple[int, int]:
    """The widths of the columns ``owner`` and ``state`` in a pane of ``width`` columns."""
    return min(max(5, longest_owner), 26 if width >= 110 else 16), stepped(longest_state)


def with_history(chosen: Chosen) -> Chosen:
    """``chosen`` with a width of the history that fits whole bars."""
    return tuple((c, history_width(w) if c.name == "history" else w) for c, w in chosen)


def _number(
    name: str,
    head: str,
    width: int,
    rank: int,
    value: Callable[[GpuFacts], float | None],
    label: str,
    *,
    cell: Callable[[GpuFacts], Span],
    shown: bool = True,
) -> Column:
    return Column(name, head, width, rank, ">", 0, value, True, label, shown, cell)


def line(facts: GpuFacts, history: str, chosen: Chosen) -> Row:
    """One GPU as a line of the table. ``history``: as wide as the column ``history`` of ``chosen``."""
    row, gpu, label = Row(), facts.gpu, facts.label
    for column, width in chosen:
        match column.name:
            case "bar":
                filled, rest = bar(gpu.utilization, width)
                row.add(filled, "meter").add(rest, "meter_off")
            case "history":
                row.add(history, "meter")
            case "state":
                row.add(label.within(width), label.style, width)
            case "owner":
                row.add(owner_words(gpu, width), "text", width)
            case _:
                assert column.cell is not None
                text, style = column.cell(facts)
                row.add(text, style, width, column.align)
        row.add(" ")
    return row


def _node(facts: GpuFacts) -> Span:
    return facts.gpu.node, "text"


def _index(facts: GpuFacts) -> Span:
    return str(facts.gpu.index), "text"


def _util(facts: GpuFacts) -> Span:
    return _or_na(percent(facts.gpu.utilization), facts.gpu.utilization), "text"


def _memory(facts: GpuFacts) -> Span:
    gpu = facts.gpu
    if gpu.memory_used is None or gpu.memory_total is None:
        return "n/a", "dim"
    return f"{gpu.memory_used / (1 << 30):.0f}/{gpu.memory_total / (1 << 30):.0f}G", "text"


def _share(facts: GpuFacts) -> Span:
    share = memory_share(facts.gpu)
    return _or_na(percent(share), share), "warn" if share is not None and share >= FULL else "text"


def _power(facts: GpuFacts) -> Span:
    gpu = facts.gpu
    if gpu.power_w is None:
        return "n/a", "dim"
    limit = f"/{gpu.power_limit_w:.0f}" if gpu.power_limit_w is not None else ""
    return f"{gpu.power_w:.0f}{limit}W", "text"


def _temperature(facts: GpuFacts) -> Span:
    degrees = facts.gpu.temperature_c
    if degrees is None:
        return "n/a", "dim"
    return f"{degrees:.0f}°C", "warn" if degrees >= HOT else "text"


def _clock(facts: GpuFacts) -> Span:
    clock = facts.gpu.sm_clock_mhz
    return ("n/a", "dim") if clock is None else (f"{clock:.0f}MHz", "text")


def _processes(facts: GpuFacts) -> Span:
    return str(len(facts.gpu.pids)), "text"


def _cell_columns(width: int) -> tuple[tuple[str, str, int, str], ...]:
    """(name, head, columns, alignment) of the parts of a cell in ``width`` columns; the last is the glyph."""
    bar_width = _BAR if width >= GOOD_CELL - 1 else 0
    fixed = 3 + 4 + 4 + 1 + 4 + (bar_width + 1 if bar_width else 0)
    owner = max(1, width - fixed)
    if owner < _LEAST_OWNER:  # too few letters to say whose it is: a bar says more
        bar_width, owner = owner, 0
    parts = (
        ("index", "gpu", 3, ">"),
        ("bar", "", bar_width, "<"),
        ("util", "util", 4, ">"),
        ("share", "mem%", 4, ">"),
        ("owner", "owner", owner, "<"),
        ("glyph", "", 1, "<"),
    )
    return tuple(part for part in parts if part[2])


_IN_CELLS = {"index": _index, "util": _util, "share": _share}


def cell_head(width: int) -> Row:
    """The heads above a cell of ``width`` columns."""
    row = Row()
    for _, head, columns, align in _cell_columns(width):
        row.add(head, "head", columns, align).add(" ", "head")
    return row


def cell(gpu: GpuStatus, label: StatusLabel, width: int) -> Row:
    """One GPU as a cell: index, bar, utilization, memory, owner, and the verdict as its glyph.

    Example: ``  0 ━━━━━╸  97%  84% replica-0 ●``. Below ``GOOD_CELL`` there is no bar,
    below ``_LEAST_OWNER`` columns for the owner there is one in its place.
    """
    row, facts = Row(), GpuFacts(gpu, label)
    for name, _, columns, align in _cell_columns(width):
        match name:
            case "bar":
                filled, rest = bar(gpu.utilization, columns)
                row.add(filled, "meter").add(rest, "meter_off").add(" ")
            case "glyph":
                row.add(label.glyph, label.style, columns)
            case "owner":
                row.add(owner_words(gpu, columns), "text", columns, align).add(" ")
            case _:
                text, style = _IN_CELLS[name](facts)
                row.add(text, style, columns, align).add(" ")
    return row


def memory_share(gpu: GpuStatus) -> float | None:
    """Used memory as a ratio 0..1; None if used or total memory is unknown."""
    if gpu.memory_used is None or not gpu.memory_total:
        return None
    return gpu.memory_used / gpu.memory_total


def _or_na(text: str, value: float | None) -> str:
    return "n/a" if value is None else text
