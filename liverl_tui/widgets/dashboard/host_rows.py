"""Rows that stand for a whole host of a run on several: its GPUs as cells, its replicas in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from liverl.model import GpuStatus, NodeStatus, ReplicaStatus
from liverl.util.plural import quantity
from liverl_tui.text.node_words import of_node
from liverl_tui.text.status_label import SERVING, StatusLabel
from liverl_tui.text.words import count, one_line, percent, short_name
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.dashboard.gpu_rows import memory_share

HOST = "host "  # the keys of rows of hosts begin so; neither a service nor a UUID has a space in its name
CELL = 20  # columns of the narrowest host beside others, with the gap after it
CELLS = 8  # GPUs that are shown one by one, the worst first
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
    use = percent(_mean(gpu.utilization for gpu, _ in host.gpus))
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


def gpu_line(host: HostGpus, names: int) -> Row:
    """A host on a line of its own. ``names``: columns of the longest name."""
    row, label = Row(), host.label
    row.add(short_name(host.name, names), "text", names).add(" ")
    row.spans += cells(host)
    row.add(" ").add(percent(_mean(gpu.utilization for gpu, _ in host.gpus)), "text", 4, ">")
    row.add(" ").add(percent(_mean(memory_share(gpu) for gpu, _ in host.gpus)), "text", 4, ">")
    power = [gpu.power_w for gpu, _ in host.gpus if gpu.power_w is not None]
    row.add(" ").add(f"{sum(power) / 1000:.1f}kW" if power else "n/a", "text", 7, ">")
    hottest = max((gpu.temperature_c for gpu, _ in host.gpus if gpu.temperature_c is not None), default=None)
    row.add(" ").add("n/a" if hottest is None else f"{hottest:.0f}°C", "text", 5, ">").add(" ")
    row.add(label.text, label.style)
    kinds = {one.kind or one.words for _, one in host.gpus if one.problem and one != label}
    return row.add(f"  {', '.join(sorted(kinds))}", "warn") if kinds else row


def gpu_head(names: int) -> Row:
    """The heads of such lines."""
    row = Row().add("host", "head", names).add(" ").add("gpus", "head", CELLS).add(" ")
    row.add("util", "head", 4, ">").add(" ").add("mem%", "head", 4, ">").add(" ")
    return row.add("power", "head", 7, ">").add(" ").add("temp", "head", 5, ">").add(" state", "head")


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
