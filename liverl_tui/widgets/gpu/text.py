"""Everything about one GPU as rows of text, in sections. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from liverl.control.gpu_detail import GpuDetail
from liverl.model import GpuStatus, Snapshot
from liverl_tui.text.words import percent, size
from liverl_tui.text.wrapping import wrap
from liverl_tui.widgets.base.cells import Row, fit
from liverl_tui.widgets.gpu.past import Measure, Past, axis, bars
from liverl_tui.widgets.gpu.processes import holders, process_rows
from liverl_tui.widgets.gpu.readings import facts, in_few_lines

LABEL = 13  # columns of a fact's name
_GUTTER = 22  # columns left of a chart
_TALL = 34  # rows of the pane from which charts have three lines
_NAMES = {"utilization": "util", "memory": "memory", "power": "power", "clock": "clock"}


@dataclass(frozen=True)
class AboutGpu:
    """What is known of one GPU. ``detail``: None until the backend has answered; ``note``: why there is none."""

    gpu: GpuStatus
    now: float  # Unix time
    snapshot: Snapshot
    past: Past
    live: bool = True  # else nothing is newer than the snapshot
    zoom: int = 1
    detail: GpuDetail | None = None
    note: str = ""
    silent: str = ""  # what does not say the details of its processes, where no backend does

    @property
    def end(self) -> float:
        """Unix time at which the history ends."""
        return self.now if self.live else self.snapshot.at


def gpu_rows(about: AboutGpu, width: int, height: int) -> list[Row]:
    """All sections, in ``width`` columns. ``height``: rows of the pane, which decide on the height of the charts."""
    rows = [Row((f" {line}", "warn")) for line in wrap(about.note, width - 2)] if about.note else []
    rows += _holder(about, width)
    for title, section in (
        (
            "Processes",
            process_rows(about.gpu, about.detail, about.now, width, about.snapshot.services, about.silent),
        ),
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
    """The answer to who holds this GPU."""
    words = holders(about.gpu, about.detail)
    style = "dim" if words == "free" else "warn" if "foreign" in words else "strong"
    yield from fact("held by", words, width, style)


def _facts(about: AboutGpu, width: int) -> Iterator[Row]:
    for name, text, style, _ in in_few_lines(facts(about.gpu, about.detail)):
        yield from fact(name, text, width, style)


def _history(about: AboutGpu, width: int, rows: int) -> Iterable[Row]:
    gpu, columns = about.gpu, max(8, width - _GUTTER - 1)
    clock_max = about.detail.reading("sm_clock_max").value if about.detail is not None else None
    measures: tuple[tuple[Measure, float | None, float | None, str], ...] = (
        ("utilization", gpu.utilization, 1.0, percent(gpu.utilization)),
        ("memory", gpu.memory_used, gpu.memory_total, f"{size(gpu.memory_used)}/{size(gpu.memory_total)}"),
        ("power", gpu.power_w, gpu.power_limit_w, _of(gpu.power_w, gpu.power_limit_w, "W")),
        ("clock", gpu.sm_clock_mhz, clock_max, _of(gpu.sm_clock_mhz, clock_max, "MHz")),
    )
    for measure, now, most, text in measures:
        values = about.past.columns(measure, about.end, columns, about.zoom)
        top = most or max((value for value in values if value is not None), default=0.0)
        lines = bars(values, top, rows)
        for line in lines[:-1]:
            yield Row((" " * _GUTTER, "dim"), (line, "meter"))
        row = Row((f" {_NAMES[measure]:<7}", "dim"))
        row.add("n/a" if now is None else text, "dim" if now is None else "strong", 13, ">")
        yield row.add(" ").add(lines[-1], "meter")
    yield Row((" " * _GUTTER, "dim"), (axis(columns, about.zoom, "now" if about.live else "end"), "dim"))


def _of(now: float | None, most: float | None, unit: str) -> str:
    """``612/700W``; without a limit, ``612W``."""
    return f"{now or 0:.0f}/{most:.0f}{unit}" if most else f"{now or 0:.0f}{unit}"
