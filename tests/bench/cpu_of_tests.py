"""A plug-in of pytest: how many seconds of CPU each test takes, with all processes that it starts.

    PYTHONPATH=tests/bench .venv/bin/python -m pytest -p cpu_of_tests --drills=rest
    .venv/bin/python tests/bench/cpu_of_tests.py [FOLDER]

Each worker writes `WORKER.tsv` into the folder of `LIVERL_CPU_OF_TESTS` (default `/tmp/cpu-of-tests`): seconds of CPU,
seconds by the clock, name. What a module's fixture costs is part of its first test. As root the worker and all that it
starts are counted by a control group (cgroup v1, `cpuacct`), also processes that have left it, such as a keeper; else
only the children whose end somebody has waited for.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("LIVERL_CPU_OF_TESTS", "/tmp/cpu-of-tests"))
_GROUPS = Path("/sys/fs/cgroup/cpuacct")


def _group() -> Path | None:
    """A control group that holds this process and all that it starts from now on."""
    group = _GROUPS / f"tests-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return None
    return group


class _Meter:
    """Seconds of CPU of this worker's processes."""

    def __init__(self) -> None:
        self._group = _group()
        FOLDER.mkdir(parents=True, exist_ok=True)
        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._rows = (FOLDER / f"{name}.tsv").open("a", encoding="utf-8", buffering=1)

    def seconds(self) -> float:
        if self._group is not None:
            return int((self._group / "cpuacct.usage").read_text()) / 1e9
        return sum(os.times()[:4])

    def write(self, cpu: float, clock: float, name: str) -> None:
        self._rows.write(f"{cpu:.3f}\t{clock:.3f}\t{name}\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        cpu, clock = self.seconds(), time.monotonic()
        try:
            return (yield)
        finally:
            self.write(self.seconds() - cpu, time.monotonic() - clock, item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        clock = time.monotonic()
        try:
            return (yield)
        finally:
            self.write(self.seconds(), time.monotonic() - clock, "start and collection")


def pytest_configure(config: pytest.Config) -> None:
    """Only who runs tests is measured, not the process that hands them out."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(_Meter(), "cpu-of-tests")


def main() -> None:
    """Print what the files of tests and the dearest tests took."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    rows = [
        (float(cpu), float(clock), name)
        for file in sorted(folder.glob("*.tsv"))
        for cpu, clock, name in (line.split("\t") for line in file.read_text().splitlines())
    ]
    files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
    for cpu, clock, name in rows:
        totals = files[name.split("::")[0]]
        totals[0] += cpu
        totals[1] += clock
        totals[2] += 1
    print(
        f"CPU {sum(row[0] for row in rows):.0f} s, clock {sum(row[1] for row in rows):.0f} s of all workers"
    )
    print("\nCPU s  clock s  tests  file")
    for file, (cpu, clock, count) in sorted(files.items(), key=lambda item: -item[1][0])[:60]:
        print(f"{cpu:5.1f}  {clock:7.1f}  {count:5.0f}  {file}")
    print("\nCPU s  clock s  test")
    for cpu, clock, name in sorted(rows, reverse=True)[:100]:
        print(f"{cpu:5.1f}  {clock:7.1f}  {name}")


if __name__ == "__main__":
    main()
