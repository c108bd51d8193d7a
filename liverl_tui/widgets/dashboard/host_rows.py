"""Rows that stand for a whole host of a run on several: its GPUs as cells, its replicas in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from liverl.model import GpuStatus, NodeStatus, ReplicaStatus
from liverl.util.plural import quantity
from liverl_tui.text.columns import columns_of
from liverl_tui.text.node_words import of_node
from liverl_tui.text.status_label import SERVING, StatusLabel
from liverl_tui.text.words import count, one_line, percent, short_name
from liverl_tui.widgets.base.cells import Row, Span
from liverl_tui.widgets.base.fitting import Chosen, Column, choose, stepped
from liverl_tui.widgets.base.meters import WIDTHS, bar
from liverl_tui.widgets.dashboard.gpu_rows import memory_share, with_history

HOST = "host "  # the keys of rows of hosts begin so; neither a service nor a UUID has a space in its name
CELL = 20  # columns of the narrowest host beside others, with the gap after it
CELLS = 8  # GPUs that are shown one by one, the worst first
_LEAST_STATE = 12  # columns of the state of a host on a line of its own
_LEVELS = "▁▂▃▄▅▆▇█"


class HostGpus(Struct, frozen=True):
    """A host and its GPUs. ``gpus``: with their labels, the worst first; ``node``: None for one that Ray does not
    list; ``now``: Unix seconds."""

    name: str
    node: NodeStatus | None
    gpus: tuple[tuple[GpuStatus, StatusLabel], ...]
    now: float

    @property
    def label(self) -> StatusLabel:
        """The state of the host, or if it is ready that of the worst GPU."""
        if self.node is not None and self.node.state != "ready":
            return of_node(self.node, self.now)
        return self.gpus[0][1] if self.gpus else StatusLabel("-", "no GPUs", "dim")

    @property
    def problem(self) -> bool:
        """Whether something is wrong with the host or with one of its GPUs."""
        return self.label.problem


def worst_gpus_first(
    gpus: Iterable[tuple[GpuStatus, StatusLabel]],
) -> tuple[tuple[GpuStatus, StatusLabel], ...]:
    """GPUs with a problem, then those with the least use."""
    return tuple(sorted(gpus, key=lambda one: (not one[1].problem, one[0].utilization or 0.0, one[0].index)))


def cells(host: HostGpus) -> list[tuple[str, str]]:
    """One character for each of at most ``CELLS`` GPUs: how high its use is, ``?`` where that is not known."""
    spans = []
    for gpu, label in host.gpus[:CELLS]:
        if gpu.utilization is None:
            spans.append((label.glyph if label.problem else "?", label.style))
        else:
            level = _LEVELS[min(7, int(gpu.utilization * 8))]
            spans.append((level, label.style if label.problem else "meter"))
    return [*spans, (" " * (CELLS - len(spans)), "text")]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def gpu_cell(host: HostGpus, width: int) -> Row:
    """A host beside others, in ``width`` columns: ``n12 ▆▇▇▇▇▇▇█  94% ●``."""
    row, label = Row(), host.label
    use = percent(use_of(host))
    room = width - CELLS - 8
    row.add(short_name(host.name, max(1, room)), "text", max(1, room)).add(" ")
    row.spans += cells(host)
    return row.add(" ").add(use, "text", 4, ">").add(" ").add(label.glyph, label.style, 1)


def gpu_cell_head(width: int) -> Row:
    """The heads above such a cell."""
    room = max(1, width - CELLS - 8)
    return (
        Row()
        .add("host" if room >= len("host") else "", "head", room)
        .add(" gpus", "head", CELLS + 2)
        .add("util", "head", 4, ">")
    )


def state_of(host: HostGpus) -> tuple[str, list[str]]:
    """(state, the further kinds of problems of its GPUs) of a host, in words."""
    label = host.label
    return label.text, sorted({one.kind or one.words for _, one in host.gpus if one.problem and one != label})


def gpu_table(hosts: Iterable[HostGpus], names: int, width: int) -> Chosen:
    """The columns of hosts on lines of their own, in ``width`` columns. ``names``: columns of the longest name."""
    longest = max(
        (columns_of("  ".join([state, *kinds])) for state, kinds in map(state_of, hosts)), default=0
    )
    room = width - names - CELLS - 4 - 4 - 4  # beside what every line has, and the gaps
    return with_history(choose(_gpu_columns(names, min(stepped(longest), max(_LEAST_STATE, room))), width))


@lru_cache(maxsize=16)
def _gpu_columns(names: int, state: int) -> tuple[Column, ...]:
    return (
        Column("host", "host", names, 0),
        Column("gpus", "gpus", CELLS, 0),
        Column("util", "util", 4, 0, ">"),
        Column("bar", "", 8, 7),
        Column("memory", "memory", 10, 4, ">"),
        Column("share", "mem%", 4, 1, ">"),
        Column("power", "power", 7, 3, ">"),
        Column("temperature", "temp", 5, 5, ">"),
        Column("state", "state", state, 2),
        Column("history", "history", WIDTHS[-1], 6, grows=WIDTHS[0]),
    )


def gpu_line(host: HostGpus, history: str, chosen: Chosen) -> Row:
    """A host on a line of its own: the means and sums over its GPUs. ``history``: as wide as in ``chosen``."""
    row = Row()
    for column, width in chosen:
        match column.name:
            case "gpus":
                row.spans += cells(host)
            case "bar":
                filled, rest = bar(use_of(host), width)
                row.add(filled, "meter").add(rest, "meter_off")
            case "history":
                row.add(history, "meter")
            case "state":
                _add_state(row, host, width)
            case name:
                text, style = _FIGURES[name](host)
                row.add(short_name(text, width) if name == "host" else text, style, width, column.align)
        row.add(" ")
    return row


def _add_state(row: Row, host: HostGpus, width: int) -> None:
    state, kinds = state_of(host)
    words = f"  {', '.join(kinds)}" if kinds else ""
    row.add(state, host.label.style, min(width, columns_of(state)))
    if (room := width - columns_of(state)) > 0:
        row.add(words, "warn", room)


def use_of(host: HostGpus) -> float | None:
    """The mean utilization of the host's GPUs; None where none is known."""
    return _mean(gpu.utilization for gpu, _ in host.gpus)


def _figure(text: str | None) -> Span:
    return ("n/a", "dim") if text is None else (text, "text")


def _name(host: HostGpus) -> Span:
    return host.name, "text"


def _util(host: HostGpus) -> Span:
    use = use_of(host)
    return _figure(None if use is None else percent(use))


def _share(host: HostGpus) -> Span:
    share = _mean(memory_share(gpu) for gpu, _ in host.gpus)
    return _figure(None if share is None else percent(share))


def _memory(host: HostGpus) -> Span:
    known = [
        (gpu.memory_used, gpu.memory_total)
        for gpu, _ in host.gpus
        if gpu.memory_used is not None and gpu.memory_total is not None
    ]
    if not known:
        return _figure(None)
    used, total = (sum(column) / (1 << 30) for column in zip(*known, strict=True))
    return _figure(f"{used:.0f}/{total:.0f}G")


def _power(host: HostGpus) -> Span:
    power = [gpu.power_w for gpu, _ in host.gpus if gpu.power_w is not None]
    return _figure(f"{sum(power) / 1000:.1f}kW" if power else None)


def _temperature(host: HostGpus) -> Span:
    hottest = max((gpu.temperature_c for gpu, _ in host.gpus if gpu.temperature_c is not None), default=None)
    return _figure(None if hottest is None else f"{hottest:.0f}°C")


_FIGURES = {
    "host": _name,
    "util": _util,
    "share": _share,
    "memory": _memory,
    "power": _power,
    "temperature": _temperature,
}


def replicas_words(replicas: Sequence[tuple[ReplicaStatus, StatusLabel]]) -> tuple[str, bool]:
    """(words, whether one has a problem) on a host's replicas: the one with a problem by name, else their load."""
    if not replicas:
        return "", False
    of = quantity(len(replicas), "replica")
    troubled = [
        (one, label) for one, label in replicas if label.problem or one.state in ("failed", "gave_up")
    ]
    if troubled:
        one, label = troubled[0]
        more = f", and {len(troubled) - 1} more" if len(troubled) > 1 else ""
        return f"{one_line(one.name)} {label.words}{more}; {of}", True
    serving = [one for one, _ in replicas if one.state in SERVING]
    if len(serving) < len(replicas):
        one, label = next((one, label) for one, label in replicas if one.state not in SERVING)
        return f"{len(serving)} of {of} ready; {one_line(one.name)} {label.words}", False
    running = sum(one.engine.running or 0 for one in serving)
    waiting = sum(one.engine.waiting or 0 for one in serving)
    words = [of, f"{running:.0f} run {waiting:.0f} wait"]
    rates = [one.engine.tokens_per_s for one in serving if one.engine.tokens_per_s is not None]
    words += [f"{count(sum(rates))} tok/s"] if rates else []
    cache = _mean(one.engine.kv_cache_usage for one in serving)
    words += [f"KV {percent(cache)}"] if cache is not None else []
    return "  ".join(words), False
