"""What benchmarks leave on disk: figures beside those of peers, with the machine, the date, the command and the load.

A benchmark that can write it has the option ``--json FILE``. ``tests/bench/results/`` holds one file for each benchmark
and machine; ``python -m kit.benchmarks`` (in ``tests/``) makes ``docs/benchmarks.md`` of them, and
``python tests/bench/guard.py`` compares ratios with them.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
FORM = 1  # of the files


@dataclass(frozen=True)
class Figure:
    """One measured number. ``unit``: of ``value`` and of what is ``beside`` it, which others took for the same work in
    the same minutes, by their names. ``limit``: what the value is not to exceed, in its unit; None: no such promise.
    ``guarded``: whether a ratio to others that grows is a regression; not of counts, nor of what is no work of ours.
    ``clock``: whether it is seconds of a clock: where programs wait for a core, these say little even as ratios."""

    what: str
    value: float
    unit: str
    beside: dict[str, float] = field(default_factory=dict)
    limit: float | None = None
    note: str = ""
    guarded: bool = True
    clock: bool = False


@dataclass(frozen=True)
class Result:
    """One file. ``date``: of the measurement, in UTC; ``load``: the averages over a minute before and after it;
    ``elsewhere``: how it was measured where no command of this repository does that again; else empty."""

    bench: str
    title: str
    command: str
    date: str
    machine: str
    load: tuple[float, float] | None
    figures: list[Figure]
    elsewhere: str = ""
    form: int = FORM


def busy(result: Result) -> bool:
    """Whether programs waited for a core: more wanted to run than there are cores."""
    cores = re.search(r"(\d+) cores", result.machine)
    return result.load is not None and cores is not None and max(result.load) > int(cores[1])


def add_option(parser: ArgumentParser) -> None:
    """Give a benchmark the option ``--json FILE``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")


def machine() -> str:
    """Processor, cores, memory, kernel and Python, without anything that names the host."""
    cores, memory = os.cpu_count(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = next(iter(models), platform.machine())
    release = ".".join(platform.release().split(".")[:2])
    python = platform.python_version()
    return f"{model}, {cores} cores, {memory:.0f} GiB; Linux {release}; Python {python}"


class Recorder:
    """Made when a benchmark begins; writes what it found. ``title``: what is measured, for a heading."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._before = os.getloadavg()[0]

    def write(self, path: Path, figures: Iterable[Figure], argv: Sequence[str] | None = None) -> None:
        """Write the file, whole or not at all."""
        words = list(sys.argv if argv is None else argv)
        bench = Path(words[0]).stem
        found = Result(
            bench=bench,
            title=self._title,
            command=shlex.join(["python", f"tests/bench/{bench}.py", *without_json(words[1:])]),
            date=time.strftime("%Y-%m-%d", time.gmtime()),
            machine=machine(),
            load=(round(self._before, 1), round(os.getloadavg()[0], 1)),
            figures=list(figures),
        )
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_text(encoded(found), "utf-8")
        temporary.replace(path)


def without_json(words: Sequence[str]) -> list[str]:
    """A command line without ``--json FILE``."""
    kept: list[str] = []
    skipped = False
    for word in words:
        if skipped:
            skipped = False
        elif word == "--json":
            skipped = True
        elif not word.startswith("--json="):
            kept.append(word)
    return kept


def encoded(result: Result) -> str:
    """A result as its file has it: numbers with four digits that count."""
    plain = asdict(result)
    for one in plain["figures"]:
        one["value"] = _rounded(one["value"])
        one["beside"] = {name: _rounded(value) for name, value in one["beside"].items()}
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def read(path: Path) -> Result:
    """The result of a file.

    Raises:
        ValueError: it has another form.
    """
    found = json.loads(path.read_text("utf-8"))
    if not isinstance(found, dict) or found.get("form") != FORM:
        raise ValueError(f"{path.name} is no result of form {FORM}")
    figures = [Figure(**one) for one in found["figures"]]
    load = tuple(found["load"]) if found["load"] is not None else None
    return Result(**{**found, "figures": figures, "load": load})
