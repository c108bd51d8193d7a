"""``docs/benchmarks.md``, made of the results in ``tests/bench/results``: ``python -m kit.benchmarks`` (in ``tests/``)
writes it, and so does ``pytest tests/unit/test_benchmarks_page.py --update-documents``. ``.ci/benchmarks`` measures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kit.command_pages import ROOT, cell, plain

sys.path.insert(0, str(ROOT / "tests" / "bench"))

from stored import RESULTS, Figure, Result, busy, read

PAGE = ROOT / "docs" / "benchmarks.md"
# The order of the tables: what costs a run something first.
ORDER = (
    "sessions",
    "supervise",
    "running",
    "terminal",
    "large_log",
    "doctor_tree",
    "trials",
    "compare",
    "hosts",
    "procstats",
)
HEAD = """# Benchmarks

What liverl-tui costs, beside others that do the same work in the same minutes. Every figure was measured: this page is
made of the stored results in [`tests/bench/results`](../tests/bench/README.md) by `.ci/benchmarks page`, and
`.ci/benchmarks` measures anew.

- **Ratios** (ours to the other's) are what to look at: both sides ran on the same machine under the same load. Below 1x
  is less than the other takes. CPU, memory and counts also hold on a busy machine; seconds of a clock do not.
- **Load** is the load average over a minute, before and after. On two cores a load above 2 means that programs waited
  for a core.
- **Target** is what we hold ourselves to. `missed` stands where it was not kept.
- `.ci/benchmarks guard` measures again, compares the ratios with the stored ones, and ends with 1 if one has grown by
  more than half; of a busy machine it compares no seconds of a clock. It runs nightly, not with every change.

Not measured so far, and so not here: runit, nvitop, and verl's own agent loop.
"""


def results(folder: Path = RESULTS) -> list[Result]:
    """The stored results in the order of the page; those of other machines behind ours of the same benchmark."""
    found = [read(path) for path in sorted(folder.glob("*.json"))]
    place = {name: number for number, name in enumerate(ORDER)}
    return sorted(found, key=lambda one: (place.get(one.bench, len(place)), bool(one.elsewhere), one.title))


def page(found: Sequence[Result]) -> str:
    """The page. Pure."""
    return HEAD + "".join(f"\n{section(one)}" for one in found)


def section(result: Result) -> str:
    """A heading, how it was measured, and the table."""
    peers = list(dict.fromkeys(name for one in result.figures for name in one.beside))
    limits = any(one.limit is not None for one in result.figures)
    notes = any(one.note for one in result.figures)
    heads = ["what", "ours", *peers, *(["target"] if limits else []), *(["remark"] if notes else [])]
    rows = []
    for one in result.figures:
        cells = [plain(one.what), f"{number(one.value)} {one.unit}".strip()]
        cells += [beside(one, peer) for peer in peers]
        cells += [target(one)] if limits else []
        cells += [plain(one.note)] if notes else []
        rows.append("| " + " | ".join(map(cell, cells)) + " |")
    load = f" Load {result.load[0]:g} before and {result.load[1]:g} after." if result.load is not None else ""
    if busy(result):
        load += " **The machine was busy**: seconds of a clock say little, also as ratios; CPU, memory and counts hold."
    how = f"{plain(result.elsewhere)}." if result.elsewhere else f"`{result.command}`."
    lines = [
        f"## {result.title}",
        "",
        f"{result.date}, on {plain(result.machine)}.{load} {how}",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *rows,
    ]
    return "\n".join(lines) + "\n"


def beside(figure: Figure, peer: str) -> str:
    """A peer's number, and ours as a multiple of it."""
    if peer not in figure.beside:
        return ""
    value = figure.beside[peer]
    ratio = f" ({figure.value / value:.2g}x)" if value > 0 and figure.value > 0 and figure.guarded else ""
    return f"{number(value)} {figure.unit}{ratio}".strip()


def target(figure: Figure) -> str:
    """What is promised, and whether it was kept."""
    if figure.limit is None:
        return ""
    return f"{number(figure.limit)} {figure.unit}" + (": **missed**" if figure.value > figure.limit else "")


def number(value: float) -> str:
    """Three digits that count: ``0.071``, ``12.3``, ``1,250``."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def write() -> None:
    """Write the page."""
    PAGE.write_text(page(results()), "utf-8")


if __name__ == "__main__":
    write()
