"""Everything about one GPU as rows of text, in sections. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from liverl.control.gpu_detail import GpuDetail
from liverl.model import GpuStatus, Snapshot
from liverl_tui.text.status_label import SnapshotIndex, of_gpu
from liverl_tui.text.words import percent, size
from liverl_tui.text.wrapping import wrap
from liverl_tui.widgets.base.cells import Row, fit
from liverl_tui.widgets.gpu.past import Past, axis, bars
from liverl_tui.widgets.gpu.processes import holders, process_rows
from liverl_tui.widgets.gpu.readings import facts

LABEL = 13  # columns of a fact's name
_GUTTER = 20  # columns left of a chart
_TALL = 34  # rows of the pane from which charts have three lines


@dataclass(frozen=True)
class AboutGpu:
    """What is known of one GPU. ``detail``: None until the backend has answered; ``note``: why there is none."""

    gpu: GpuStatus
    now: float  # Unix time
    snapshot: Snapshot
    past: Past
    zoom: int = 1
    detail: GpuDetail | None = None
    note: str = ""


def gpu_rows(about: AboutGpu, width: int, height: int) -> list[Row]:
    """All sections, in ``width`` columns. ``height``: rows of the pane, which decide on the height of the charts."""
    rows = [Row((f" {line}", "warn")) for line in wrap(about.note, width - 2)] if about.note else []
    rows += _holder(about, width)
    for title, section in (
        ("Processes", process_rows(about.gpu, about.detail, about.now, width)),
        ("History", _history(about, width, 3 if height >= _TALL else 1)),
        ("Now", _facts(about, width)),
    ):
        rows.append(Row((f" {title} ", "title"), ("─" * max(0, width - len(title) - 2), "rule")))
        rows += section
    return rows


def fact(name: str, text: str, width: int, style: str = "text") -> Iterator[Row]:
    """A named fact, wrapped to ``width``."""
    for index, line in enumerate(wrap(text, width - LABEL - 2)):
        yield Row((" " + fit(name if not index else "", LABEL) + " ", "dim"), (line, style))


def _holder(about: AboutGpu, width: int) -> Iterator[Row]:
    """The answer to who holds this GPU, in one line."""
    label = of_gpu(about.gpu, SnapshotIndex(about.snapshot), about.now)
    yield from fact("held by", holders(about.gpu, about.detail), width, "strong")
    yield from fact("state", label.text, width, label.style)


def _facts(about: AboutGpu, width: int) -> Iterator[Row]:
    for name, text, style in facts(about.gpu, about.detail):
        yield from fact(name, text, width, style)


def _history(about: AboutGpu, width: int, rows: int) -> Iterable[Row]:
    gpu, columns = about.gpu, max(8, width - _GUTTER - 1)
    clock_max = about.detail.reading("sm_clock_max").value if about.detail is not None else None
    megahertz = gpu.sm_clock_mhz
    for measure, now, top, top_text in (
        ("utilization", percent(gpu.utilization), 1.0, "100%"),
        ("memory", size(gpu.memory_used), gpu.memory_total, size(gpu.memory_total)),
        ("power", f"{gpu.power_w or 0:.0f}W", gpu.power_limit_w, f"{gpu.power_limit_w or 0:.0f}W"),
        ("clock", f"{megahertz or 0:.0f}MHz", clock_max, f"{clock_max or 0:.0f}MHz"),
    ):
        values = about.past.columns(measure, about.now, columns, about.zoom)  # type: ignore[arg-type]
        known = [value for value in values if value is not None]
        if not top:  # the limit is not known: the highest value fills the chart
            top, top_text = max(known, default=1.0), ""
        missing = {
            "utilization": gpu.utilization,
            "memory": gpu.memory_used,
            "power": gpu.power_w,
            "clock": megahertz,
        }[measure] is None
        lines = bars(values, top, rows)
        for line in lines[:-1]:
            yield Row((f" {top_text if line is lines[0] else '':>{_GUTTER - 2}} ", "dim"), (line, "meter"))
        row = Row(
            (f" {measure:<11}", "dim"), (f"{'n/a' if missing else now:>7} ", "dim" if missing else "strong")
        )
        yield row.add(lines[-1], "meter")
    yield Row((" " * _GUTTER, "dim"), (axis(columns, about.zoom), "dim"))
