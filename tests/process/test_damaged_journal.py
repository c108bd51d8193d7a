"""A run whose journal is damaged: what lives is adopted, nothing is started twice, and ``stop`` ends everything."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.cli import run_cli
from kit.damage import DAMAGES, leaders
from kit.runs import WEB, ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.model import Result
from liverl.plan.spec import PortSpec
from liverl.procs import procfs
from liverl.rundir.journal import read_journal
from liverl.rundir.layout import RunDir

Make = Callable[[], ToyRun]


@pytest.fixture
def killed(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], ToyRun]:
    """A run of four services, the second generation of one of them, whose backend was killed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def make() -> ToyRun:
        door = toy("door", argv=(sys.executable, "-c", WEB), ports=(PortSpec("http", held=True),))
        run = ending(
            make_run(
                tmp_path,
                [toy("a", "sleep"), toy("tree", "tree"), door, toy("work", "sleep", ends_run=True)],
                replica=toy("replica-{index}", "sleep", kind="replica"),
                replicas=1,
            )
        )
        run.start()
        for name in ("a", "tree", "door", "work", "replica-0"):
            run.until(name, "ready")
        run.command("restart", service="a")
        run.until("a", lambda s: s.state == "ready" and s.generation == 2)
        run.kill_backend()
        return run

    return make


def ended(run: ToyRun) -> Result:
    result = RunDir(run.run_dir).read_result()
    assert result is not None, (run.run_dir / "backend.log").read_text()
    wait_until(lambda: run.tagged() == {}, what="no process of the run")
    return result


def some(*names: str) -> list[Any]:
    """All damages; those that are not named are slow tests."""
    slow = pytest.mark.slow
    return [pytest.param(d, id=n, marks=() if n in names else slow) for n, d in DAMAGES.items()]


@pytest.mark.parametrize("resume", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", some("missing", "flips", "fifo", "twice"))
def test_what_lives_is_adopted_once(
    killed: Callable[[], ToyRun], damage: Callable[[Path], None], resume: bool
) -> None:
    run = killed()
    before = leaders(run)
    damage(RunDir(run.run_dir).journal)
    run.start(resume=resume)
    for name in ("a", "tree", "door", "work", "replica-0"):
        run.until(name, "ready")
    assert leaders(run) == before
    assert {s.name: s.pid for s in run.snapshot().services if s.pid} == {
        name: pid for name, (pid,) in before.items()
    }
    door = run.service("door")
    assert door.ports.get("http") and door.log == "attempt_001/logs/door.1.log"
    assert run.command("restart", service="a")["generation"] == 3
    assert run_cli("stop", "--run", run.run_dir).returncode == 0
    assert ended(run).exit_code == 5


@pytest.mark.parametrize("damage", some("noise"))
def test_stop_needs_neither_journal_nor_plan(
    killed: Callable[[], ToyRun], damage: Callable[[Path], None]
) -> None:
    run = killed()
    damage(RunDir(run.run_dir).journal)
    damage(RunDir(run.run_dir).plan)
    (run.run_dir / "members.json").write_bytes(b"\xff{")
    out = run_cli("stop", "--run", run.run_dir)
    assert out.returncode == 0, out
    assert ended(run).state == "stopped"


def test_stop_needs_no_file_of_the_run(killed: Callable[[], ToyRun]) -> None:
    run = killed()
    for path in run.run_dir.iterdir():
        if path.name not in ("keeper.sock", "keeper.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    out = run_cli("stop", "--run", run.run_dir)
    assert out.returncode == 0, out
    assert "plan.json" in ended(run).summary


def test_without_keeper_and_journal_the_tags_are_enough(killed: Callable[[], ToyRun]) -> None:
    run = killed()
    before = leaders(run)
    keeper = json.loads((run.run_dir / "keeper.json").read_text())["pid"]
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not procfs.alive(keeper, None), what="the end of the keeper")
    RunDir(run.run_dir).journal.unlink()
    run.start()
    for name in before:
        run.until(name, "ready")
    assert leaders(run) == before
    assert run_cli("stop", "--run", run.run_dir).returncode == 0
    ended(run)


def test_bad_lines_are_told_with_their_file_and_numbers(killed: Callable[[], ToyRun]) -> None:
    run = killed()
    path = RunDir(run.run_dir).journal
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"a", b"b", 1)
    lines[3] = b"[" * 100_000 + b"\n"
    path.write_bytes(b"".join(lines))
    run.start()
    (told,) = [e for e in run.events() if e.kind == "journal" and str(path) in e.text]
    assert "2 damaged lines" in told.text and "lines 2, 4" in told.text, told.text
    assert told.level == "warning"
    assert told.text in (run.run_dir / "backend.log").read_text()


def test_a_journal_that_is_no_file_is_kept_beside_the_new_one(killed: Callable[[], ToyRun]) -> None:
    run = killed()
    path = RunDir(run.run_dir).journal
    path.unlink()
    path.mkdir()
    run.start()
    (told,) = [e for e in run.events() if e.kind == "journal" and "was a directory" in e.text]
    aside = path.with_name("journal.jsonl.set-aside-1")
    assert aside.is_dir() and str(aside) in told.text
    assert read_journal(path).records, "the new journal says what was adopted"
    run.kill_backend()
    before = leaders(run)
    run.start()
    run.until("work", "ready")
    assert leaders(run) == before


def test_a_run_that_has_ended_is_not_started_again_by_a_damaged_journal(killed: Callable[[], ToyRun]) -> None:
    run = killed()
    assert run_cli("stop", "--run", run.run_dir).returncode == 0
    ended(run)
    path = RunDir(run.run_dir).journal
    path.write_bytes(path.read_bytes()[:200])
    out = run_cli("up", "--detach", "--run", run.run_dir)
    assert run.tagged() == {}, out
