"""How a run without a backend stands: every command says the same, and names the same next command, which works."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from kit.cli import run_cli
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.plan.spec import StopStage
from liverl.procs import procfs
from liverl.rundir.layout import RunDir
from liverl_tui.cli.main import run as main

Make = Callable[..., ToyRun]
HELD: list[int] = []  # descriptors with a lock


@pytest.fixture
def make(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield lambda *services, **options: ending(make_run(tmp_path / "runs", services, **options))
    while HELD:
        os.close(HELD.pop())


def never(make: Make) -> ToyRun:
    return make(toy("srv", "sleep"), toy("trainer", "sleep", kind="trainer", ends_run=True))


def backend_gone(make: Make) -> ToyRun:
    run = never(make)
    run.start()
    run.until("srv", "ready"), run.until("trainer", "ready")
    run.kill_backend()
    return run


def record_gone(make: Make) -> ToyRun:
    run = backend_gone(make)
    (run.run_dir / "backend.json").unlink()
    return run


def journal_gone(make: Make) -> ToyRun:
    run = backend_gone(make)
    (run.run_dir / "journal.jsonl").write_bytes(b"")
    return run


def all_gone(make: Make, *, keeper: bool = False, **options: object) -> ToyRun:
    run = make(toy("srv", "sleep"), toy("trainer", "sleep", kind="trainer", ends_run=True), **options)
    run.start()
    pids = {name: run.until(name, "ready").pid for name in ("srv", "trainer")}
    keeper_pid = run.snapshot().backend.keeper_pid
    run.kill_backend()
    for name, pid in pids.items():
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until((run.run_dir / "exits" / f"{name}.1.json").exists, what="its exit")
    if not keeper:
        assert keeper_pid is not None
        os.kill(keeper_pid, signal.SIGKILL)
        wait_until(lambda: not procfs.alive(keeper_pid, None), what="the keeper's end")
    return run


def of_smoke(make: Make) -> ToyRun:
    return all_gone(make, smoke=("training.total_steps=2",))


def bad_result(make: Make) -> ToyRun:
    run = all_gone(make)
    (run.run_dir / "result.json").write_text('{"state": "don')
    return run


def later_result(make: Make) -> ToyRun:
    """Of a version that has a state which this one does not know."""
    run = all_gone(make)
    (run.run_dir / "result.json").write_text('{"state": "paused", "exit_code": 0}')
    return run


def rebooted(make: Make) -> ToyRun:
    return changed(all_gone(make), boot_id="f" * 36)


def elsewhere(make: Make) -> ToyRun:
    run = changed(all_gone(make), host="n17")
    os.utime(run.run_dir / "backend.json", (1.0, 1.0))
    return run


def held(make: Make) -> ToyRun:
    """Another command starts it in this moment: its backend has the lock, and has left no record yet."""
    run = never(make)
    (run.run_dir / "journal.jsonl").write_text("")
    HELD.append(os.open(run.run_dir / "lock", os.O_CREAT | os.O_RDWR))
    fcntl.flock(HELD[-1], fcntl.LOCK_EX)
    return run


def changed(run: ToyRun, **fields: str) -> ToyRun:
    path = run.run_dir / "backend.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return run


@dataclass(frozen=True)
class Case:
    """``listed``: its state in ``ls --json``; ``word``: in ``ls``; ``state``: in ``status --json``; ``command``: what
    goes on with it, DIR for the directory; ``says``: what is said besides; ``up``: the exit code of ``up``, None where
    it starts something."""

    make: Callable[[Make], ToyRun]
    listed: str
    word: str
    state: str
    command: str
    says: str
    up: int | None = 2


WORDS = ("up --run", "up --resume", "stop --run", "status --run")
RUN, RESUME, STOP, STATUS = (f"liverl-tui {word} DIR" for word in WORDS)
LEFT, NONE_LEFT = "its services may still be running", "none of its services is left"
CASES = (
    Case(never, "lost", "never started", "dead", RUN, "it was never started", None),
    Case(backend_gone, "orphaned", "unsupervised", "unsupervised", RUN, LEFT, None),
    Case(record_gone, "orphaned", "unsupervised", "unsupervised", RUN, LEFT, None),
    Case(journal_gone, "orphaned", "unsupervised", "unsupervised", RUN, LEFT, None),
    Case(all_gone, "lost", "dead", "dead", RESUME, NONE_LEFT),
    Case(lambda make: all_gone(make, keeper=True), "lost", "dead", "dead", RESUME, NONE_LEFT),
    Case(rebooted, "lost", "dead", "dead", RESUME, NONE_LEFT),
    Case(of_smoke, "lost", "dead", "dead", STOP, NONE_LEFT),
    Case(bad_result, "lost", "dead", "dead", RESUME, "DIR/result.json cannot be read: it is damaged"),
    Case(later_result, "lost", "dead", "dead", RESUME, "or another version has written it"),
    Case(held, "lost", "dead", "dead", STATUS, f"a backend (pid {os.getpid()}) is starting or ending", None),
    Case(elsewhere, "lost", "dead", "dead", f"ssh -t n17 '{STOP}'", f"{LEFT} on n17"),
)
NAMES = ("never", "backend", "record", "journal", "all", "all-but-keeper", "reboot", "smoke", "bad-result")
NAMES += ("later-result", "held", "elsewhere")
REFUSED = [
    pytest.param(case, id=name) for case, name in zip(CASES, NAMES, strict=True) if case.up is not None
]


class Told(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """A command in this process, which reads only."""

    def told(*arguments: object) -> Told:
        capfd.readouterr()
        code = main([*map(str, arguments)])
        return Told(code, *capfd.readouterr())

    return told


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_all_commands_say_how_a_run_without_a_backend_stands(
    make: Make, case: Case, cli: Callable[..., Told]
) -> None:
    run = case.make(make)
    root = run.run_dir.parent.parent
    command, says = (text.replace("DIR", str(run.run_dir)) for text in (case.command, case.says))
    (listed,) = json.loads(cli("ls", "--json", "--run-root", root).out)
    line = cli("ls", "--run-root", root).out.splitlines()[1]
    assert (listed["state"], line.split("  ")[1].strip()) == (case.listed, case.word)
    status = json.loads(cli("status", run.run_dir, "--json").out)
    assert (status["state"], status["live"]) == (case.state, False)
    told = cli("status", run.run_dir).out
    assert says in told and f": {command}" in told, told
    assert ("  up " in told) is (case.state == "unsupervised"), "how long it lasted is not known"
    for asked in (("attach", run.run_dir, "--plain"), ("wait", run.run_dir, "--for", "done")):
        found = cli(*asked)
        assert found.code == 4, found
        assert "is not running; " in found.err and says in found.err and command in found.err, found.err
    doctor = cli("doctor", run.run_dir, "--json")
    assert doctor.code == 1 and command in " ".join(json.dumps(json.loads(doctor.out)).split())


@pytest.mark.parametrize("case", REFUSED)
def test_up_begins_nothing_in_a_run_of_which_no_process_is_left(make: Make, case: Case) -> None:
    """It took over an attempt whose trainer was gone, and that attempt then failed."""
    run = case.make(make)
    before = sorted(path.name for path in run.run_dir.iterdir())
    out = run_cli("up", "--run", run.run_dir, "--detach")
    assert out.returncode == case.up, out
    assert case.says.replace("DIR", str(run.run_dir)) in out.stderr
    assert sorted(path.name for path in run.run_dir.iterdir()) == before
    assert not run.backends_alive()
    if case.command == RESUME:
        assert "none of its services is left; nothing was started" in out.stderr
        (resume,) = (part for part in out.stderr.split(": ") if part.startswith("liverl-tui up --detach"))
        assert shlex.split(resume.partition(". To")[0])[-2:] == ["--resume", str(run.run_dir)]
        again = run_cli("up", "--detach", "--resume", run.run_dir)
        assert again.returncode == 0 and run.snapshot().attempt == 2, again


def test_a_new_run_starts_beside_one_of_which_nothing_is_left(make: Make) -> None:
    """The bare program and ``up --detach`` take over a run whose services go on, and no other."""
    from liverl.rundir.index import candidates
    from liverl_tui.cli.options import UpOptions
    from liverl_tui.cli.up import _only_orphan

    run = all_gone(make)
    assert _only_orphan(candidates(run.run_dir.parent.parent), UpOptions()) is None
    other = backend_gone(lambda *services: make(*services, name="other"))
    assert _only_orphan(candidates(run.run_dir.parent.parent), UpOptions()) == RunDir(other.run_dir)


def test_a_run_that_is_being_stopped_is_not_called_live(make: Make, cli: Callable[..., Told]) -> None:
    """`up --resume --detach` said that it is already live, with exit code 0, and it ended a moment later."""
    slow = (StopStage("TERM", "leader", 600.0), StopStage("KILL", "tree", 5.0))
    run = make(toy("srv", "deaf", stop=slow))
    run.start()
    run.until("srv", "ready")
    early = cli("archive", run.run_dir)
    assert early.code == 2 and f"when it has ended: liverl-tui wait --for done {run.run_dir}" in early.err
    live = cli("up", "--detach", "--resume", run.run_dir)
    assert live.code == 0 and "is already live" in live.err
    run.command("stop", now=False)
    for arguments in (("--run", run.run_dir), ("--resume", run.run_dir)):
        refused = cli("up", "--detach", *arguments)
        assert (refused.code, refused.out) == (2, ""), refused
        assert (
            "is stopping; nothing was started. To wait for its end: liverl-tui wait --for done" in refused.err
        )
        assert f"To resume it then: liverl-tui up --detach --resume {run.run_dir}" in refused.err


def test_what_was_never_started_is_not_archived(make: Make) -> None:
    run = never(make)
    out = run_cli("archive", run.run_dir)
    assert out.returncode == 2 and "was never started: there is nothing to archive" in out.stderr
