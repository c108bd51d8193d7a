"""When a backend looks seldom: nothing happens and nobody watches."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.clock import Clock

from liverl.procs import procfs
from liverl.supervise.services.process_scan import SCAN_ANYWAY, ProcessScan
from liverl.util.pace import QUIET_AFTER, QUIET_PERIOD, Pace


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pauses(pace: Pace, seconds: float, quiet: float = QUIET_PERIOD) -> float:
    """How far apart the looks are: a pause is between half of that and one and a half."""
    pause = pace.until_next(seconds, quiet)
    return (
        seconds
        if seconds / 2 <= pause < 1.5 * seconds
        else quiet
        if quiet / 2 <= pause < 1.5 * quiet
        else pause
    )


def test_a_run_is_quiet_some_time_after_the_last_change(clock: Clock) -> None:
    pace = Pace(clock)
    clock.now += QUIET_AFTER - 0.1
    assert not pace.quiet and pauses(pace, 1.0) == 1.0
    clock.now += 0.1
    assert pace.quiet and pauses(pace, 1.0) == QUIET_PERIOD
    assert pauses(pace, 1.0, quiet=4.0) == 4.0
    assert pauses(pace, 60.0) == 60.0, "it is never looked at more often than else"
    pace.changed()
    assert not pace.quiet and pauses(pace, 1.0) == 1.0


def test_a_watched_run_is_never_quiet(clock: Clock) -> None:
    pace = Pace(clock)
    pace.watched_by(2)
    clock.now += 10 * QUIET_AFTER
    assert not pace.quiet
    pace.watched_by(0)
    assert not pace.quiet, "whoever left may come again"
    clock.now += QUIET_AFTER
    assert pace.quiet


@pytest.mark.parametrize("event", [Pace.changed, lambda pace: pace.watched_by(1)], ids=["change", "client"])
async def test_a_pause_of_a_quiet_run_ends_when_something_happens(clock: Clock, event: Any) -> None:
    pace = Pace(clock)
    clock.now += QUIET_AFTER
    sleeping = [asyncio.ensure_future(pace.sleep(60.0)) for _ in range(2)]
    await asyncio.sleep(0)
    event(pace)
    async with asyncio.timeout(60):
        await asyncio.gather(*sleeping)
    again = asyncio.ensure_future(pace.sleep(60.0))
    await asyncio.sleep(0)
    event(pace)  # it is not quiet now: pauses are short enough
    await asyncio.sleep(0)
    assert not again.done()
    again.cancel()


async def test_a_pause_ends_by_itself() -> None:
    began = time.monotonic()
    await Pace().sleep(0.05)
    assert time.monotonic() - began >= 0.05


def test_the_newest_pid_changes_with_every_process() -> None:
    before = procfs.newest_pid()
    if before is None:
        pytest.skip("this kernel does not tell the newest pid")
    pid = subprocess.Popen([sys.executable, "-c", ""])
    pid.wait()
    after = procfs.newest_pid()
    assert after is not None and after != before


class Scans:
    """A ``ProcessScan`` that counts its scans of a run with the leaders ``names``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
        self.count = 0
        self.newest: int | None = 7
        self.names = ["a"]
        self.keeper = SimpleNamespace(spawning=False, run="p/r", run_dir="/nowhere")
        self.scan = ProcessScan(cast(Any, self.keeper), 1, cast(Any, None), lambda: (), 1.0, Pace())
        monkeypatch.setattr(time, "monotonic", clock)
        monkeypatch.setattr(procfs, "newest_pid", lambda: self.newest)
        monkeypatch.setattr(self.scan, "_leaders", lambda: dict.fromkeys(self.names, (1, 1)))
        monkeypatch.setattr(self.scan, "_scan", self._note)

    def _note(self) -> None:
        self.count += 1

    def look(self) -> int:
        """Look once; returns the number of scans so far."""
        asyncio.run(self.scan.scan_and_pause())
        return self.count


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Scans:
    return Scans(monkeypatch, clock)


def test_processes_are_scanned_when_there_may_be_others(scans: Scans, clock: Clock) -> None:
    assert [scans.look(), scans.look()] == [1, 1], "no process was started in between"
    scans.newest = 8
    assert [scans.look(), scans.look()] == [2, 2]
    scans.names.append("b")
    assert [scans.look(), scans.look()] == [3, 3]
    scans.scan.members_have_exited()
    assert [scans.look(), scans.look()] == [4, 4]
    clock.now += SCAN_ANYWAY
    assert [scans.look(), scans.look()] == [5, 5]


def test_what_is_being_started_is_scanned_again(scans: Scans) -> None:
    scans.keeper.spawning = True
    assert [scans.look(), scans.look()] == [1, 2]
    scans.keeper.spawning = False
    assert [scans.look(), scans.look()] == [3, 3]


def test_without_the_newest_pid_every_look_scans(scans: Scans) -> None:
    scans.newest = None
    assert [scans.look(), scans.look()] == [1, 2]


@pytest.mark.parametrize("text", ["", "0.1 0.2 0.3 1/2 0\n", "0.1 0.2 0.3 1/2\n"])
def test_a_kernel_that_does_not_tell_the_newest_pid(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    monkeypatch.setattr("builtins.open", lambda *args, **options: os.fdopen(read, "rb", buffering=0))
    found = procfs.newest_pid()
    monkeypatch.undo()
    assert found is None
