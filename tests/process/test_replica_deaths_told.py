"""Real replicas that end: which of their ends the service of the sessions is told, and how soon."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.cli import run_cli
from kit.real import real_run
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.rundir.journal import read_object
from liverl.sessions.replica_file import REPLICAS, deaths_in, file_digest, read_replicas

pytestmark = [pytest.mark.stack]


@pytest.fixture
def run(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    """Two replicas and the sessions, without a trainer."""
    sets = (
        "proxy.trials_through=sessions",
        "trainer.kind=none",
        "run.replicas=2",
        "supervise.storm_failures=99",
    )
    made = ending(real_run(tmp_path, *sets))
    made.start(env={"XDG_STATE_HOME": str(tmp_path / "state")})
    for name in ("replica-0", "replica-1", "sessions"):
        made.until(name, "ready", 120)
    wait_until(lambda: len(listed(made)) == 2, what="both replicas in the list")
    return made


def file_of(run: ToyRun) -> bytes:
    return (run.run_dir / REPLICAS).read_bytes()


def listed(run: ToyRun) -> list[str]:
    try:
        return [each.url for each in read_replicas(file_of(run)) if not each.draining]
    except FileNotFoundError:
        return []


def deaths(run: ToyRun) -> dict[str, int]:
    return deaths_in(read_replicas(file_of(run)))


def loaded(run: ToyRun) -> bool:
    """Whether the service has loaded the file as it is now."""
    generation = run.service("sessions").generation
    report = read_object(run.run_dir / f"sessions/status.{generation}.json") or {}
    return report.get("config_sha") == file_digest(file_of(run))


def back(run: ToyRun, name: str, after: int) -> None:
    """Wait until the next process of a replica is listed."""
    run.until(name, lambda s: s.state == "ready" and s.generation > after, 120)
    wait_until(lambda: len(listed(run)) == 2, what="both replicas in the list")


def test_a_process_that_ends_by_itself_is_told_and_one_that_is_restarted_is_not(run: ToyRun) -> None:
    before = run.service("replica-0")
    gone = f"http://127.0.0.1:{before.ports['http']}"
    assert gone in listed(run) and deaths(run) == {}
    os.kill(before.pid or 0, signal.SIGKILL)
    wait_until(
        lambda: deaths(run) == {gone: 1} and loaded(run), what="its death in the file, and the file loaded"
    )
    back(run, "replica-0", before.generation)
    assert deaths(run) == {gone: 1}

    for how in (("restart", "replica-1"), ("restart", "replica-0")):
        now = run.service(how[1])
        done = run_cli(*how, "--run", str(run.run_dir))
        assert done.returncode == 0, done.stderr
        back(run, how[1], now.generation)
    assert deaths(run) == {gone: 1}

    run.kill_backend()
    run.start(env={"XDG_STATE_HOME": str(run.run_dir.parents[1] / "state")})
    second = run.until("replica-1", "ready", 60)
    wait_until(lambda: len(listed(run)) == 2, what="both replicas in the list")
    assert deaths(run) == {gone: 1}, "the next backend knows what the first has counted"
    other = f"http://127.0.0.1:{second.ports['http']}"
    os.kill(second.pid or 0, signal.SIGKILL)
    expected = {gone: 1}
    expected[other] = expected.get(other, 0) + 1
    wait_until(lambda: deaths(run) == expected and loaded(run), what="the second death")
