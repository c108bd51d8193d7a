"""Services may open more files than the shell that started the run, as far as the hard limit allows it."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.runs import ToyRun, make_run, toy

from liverl.procs.open_files import WANTED, raised

LOW = 512


@pytest.fixture
def few_files() -> Iterator[int]:
    """This process, and what it starts, have a low soft limit; the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LOW, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def soft_limit(pid: int) -> int:
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]


def test_services_get_what_the_hard_limit_allows(
    few_files: int, tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    run = ending(make_run(tmp_path, [toy("served", "sleep")]))
    backend = run.start()
    pid = run.until("served", "ready").pid
    assert pid is not None
    assert soft_limit(pid) == raised(LOW, few_files) == min(WANTED, few_files) > LOW
    # A new keeper's services, too, and those after the backend was replaced.
    run.kill_backend()
    assert run.start() != backend
    run.command("restart", service="served")
    again = run.until("served", lambda s: s.state == "ready" and s.pid not in (None, pid)).pid
    assert again is not None and soft_limit(again) == min(WANTED, few_files)
