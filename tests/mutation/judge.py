"""Runs tests in a forked child that imports the package anew, from a copy of the checkout."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGES = ("liverl", "liverl_tui", "kit", "conftest", "tests", "test_")
OPTIONS = ("-x", "-q", "-n0", "--dist=no", "-p", "no:cacheprovider", "--no-header", "--tb=short")
OPTIONS += ("--hypothesis-profile=mutation",)
MEMORY = 8 << 30


@dataclass
class Ran:
    """How a child ended. ``code`` is pytest's, None where it was killed for time or memory."""

    code: int | None
    seconds: float
    cpu: float
    output: str


@dataclass
class Baseline:
    """What each test file runs without a mutant: its seconds, and the lines of the judged modules by path."""

    cpu: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[str, set[int]]] = field(default_factory=dict)

    def add(self, alone: Alone) -> None:
        """Keeps what one test file ran, and imports the libraries that it needs before the next fork."""
        import_ahead(alone.modules)
        self.lines[alone.test] = alone.lines
        self.seconds[alone.test] = alone.seconds
        self.cpu += alone.cpu


def import_ahead(names: Iterable[str]) -> None:
    """Imports what the tests need from other packages once, so that no child has to."""
    for name in names:
        if not name.startswith(PACKAGES) and name not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


@dataclass
class Alone:
    """One test file without a mutant: what it used, and what it ran."""

    test: str
    cpu: float
    seconds: float
    lines: dict[str, set[int]]
    modules: list[str]


def alone(copy: Path, test: str, scratch: Path, paths: set[str]) -> Alone:
    """Runs ``test`` without a mutant, and notes which lines of ``paths`` it runs.

    Raises:
        SystemExit: it fails without a mutant.
    """
    report = scratch / "lines.json"
    report.unlink(missing_ok=True)
    ran = run(copy, [test], scratch, wall=600.0, cpu=300, trace=paths, report=report)
    if ran.code != 0:
        raise SystemExit(f"{test} fails without a mutant (exit {ran.code}):\n{ran.output[-4000:]}")
    told = json.loads(report.read_text())
    lines = {path: set(at) for path, at in told["lines"].items()}
    return Alone(test, ran.cpu, ran.seconds, lines, told["modules"])


def run(
    copy: Path,
    tests: list[str],
    scratch: Path,
    *,
    wall: float,
    cpu: int,
    trace: set[str] | None = None,
    report: Path | None = None,
) -> Ran:
    """Runs test files in a child of its own session; ``wall`` and ``cpu`` are its limits in seconds."""
    log = scratch / "output.log"
    started = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = _child(copy, tests, log, cpu, trace, report)
        finally:
            os._exit(code)
    status, used = _wait(pid, started + wall)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    code = os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None
    return Ran(code, time.monotonic() - started, used, log.read_text(errors="replace"))


def _wait(pid: int, deadline: float) -> tuple[int | None, float]:
    """The child's status, None where it was killed behind ``deadline``, and the CPU seconds that it used."""
    descriptor = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
    finally:
        os.close(descriptor)
    if not ended:
        os.killpg(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    return status if ended else None, used.ru_utime + used.ru_stime


def _child(
    copy: Path, tests: list[str], log: Path, cpu: int, trace: set[str] | None, report: Path | None
) -> int:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.chdir(copy)
    folders = [str(copy / "backend"), str(copy)]
    sys.path[:0] = folders
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    # Only the run without a mutant stores bytecode: a mutant's must never be taken for the original's.
    sys.dont_write_bytecode = report is None
    if report is None:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    import pytest
    from hypothesis import Phase, settings

    settings.register_profile(
        "mutation", deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
    )
    lines: dict[str, set[int]] = {}
    with _traced(copy, trace or set(), lines):
        code = int(pytest.main([*OPTIONS, f"--basetemp={log.parent / 'tmp'}", *tests]))
    if report is not None:
        told = {"modules": sorted(sys.modules), "lines": {path: sorted(at) for path, at in lines.items()}}
        report.write_text(json.dumps(told))
    sys.stdout.flush()
    sys.stderr.flush()
    return code


@contextlib.contextmanager
def _traced(copy: Path, paths: set[str], lines: dict[str, set[int]]) -> Iterator[None]:
    if not paths:
        yield
        return
    known = {str(copy / path): lines.setdefault(path, set()) for path in paths}

    def calls(frame: FrameType, event: str, arg: Any) -> Any:
        at = known.get(frame.f_code.co_filename)
        if at is None:
            return None
        at.add(frame.f_lineno)

        def inside(frame: FrameType, event: str, arg: Any) -> Any:
            at.add(frame.f_lineno)
            return inside

        return inside

    threading.settrace(calls)
    sys.settrace(calls)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
