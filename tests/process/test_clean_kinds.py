"""``clean`` after runs that ended in every way, some killed with all that watched them: what it lists, frees, leaves.
Runs, processes, files and sockets are real; the table is printed (``pytest -s``)."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from kit.cli import run_cli
from kit.ports import free_port
from kit.runs import QUICK, ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.external import litellm
from liverl.plan.ray import own_temp_dir
from liverl.plan.spec import Plan, RestartPolicy
from liverl.procs import procfs
from liverl.rundir.layout import RunDir
from liverl_tui.cli import main as cli

pytestmark = [pytest.mark.slow]
NEVER = RestartPolicy(mode="never")
GOES = {
    "trials/step_0001/a/litellm-trajectory.jsonl": "t" * 1000,
    "trials/step_0001/b/result.json": "{}",
    "attempt_001/logs/extra.1.log": "x" * 5000,
}
STAYS = {
    "checkpoints/global_step_2/actor/model.pt": "weights",
    "wandb/run-1/files/output.log": "wandb",
    "config.yaml": "run: {}",
    "metrics.jsonl": '{"step": 1, "data": {}}\n',
    "notes of mine.txt": "a stranger's file in the run's folder",
    "trials-of-others/precious": "not what a run makes",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def killed(*pids: int) -> None:
    """Kill processes that this test has started, and wait until they are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(procfs.alive(pid, None) for pid in pids), what="their end")


def keeper_of(run: ToyRun) -> int:
    pid = run.snapshot().backend.keeper_pid
    assert pid is not None
    return pid


def leader_of(run: ToyRun, name: str = "a") -> int:
    pid = run.until(name, "ready").pid
    assert pid is not None
    return pid


# --- the ways in which a run ends; each gets a run of one service that sleeps, ``a``, unless it says otherwise


def stops(run: ToyRun) -> None:
    run.until("a", "ready")
    run.command("stop")
    assert run.result().state == "stopped"


def stops_now(run: ToyRun) -> None:
    run.until("a", "ready")
    run.command("stop", now=True)
    run.result()


def interrupted(run: ToyRun) -> None:
    run.until("a", "ready")
    os.kill(run.backends[-1], signal.SIGTERM)
    run.result()


def service_killed(run: ToyRun) -> None:
    os.kill(leader_of(run), signal.SIGKILL)
    assert run.result().state == "failed"


def backend_killed(run: ToyRun) -> None:
    run.until("a", "ready")
    run.kill_backend()


def stopped_without_backend(run: ToyRun) -> None:
    backend_killed(run)
    assert run_cli("stop", "--run", run.run_dir).returncode == 0
    run.result()


def keeper_killed(run: ToyRun) -> None:
    """Backend and keeper: the service goes on."""
    keeper = keeper_of(run)
    run.until("a", "ready")
    run.kill_backend()
    killed(keeper)


def all_killed(run: ToyRun) -> None:
    """As by the kernel, or when the host loses its power."""
    keeper, leader = keeper_of(run), leader_of(run)
    run.kill_backend()
    killed(keeper, leader)
    wait_until(lambda: not run.tagged(), what="its end")


def all_killed_then_stopped(run: ToyRun) -> None:
    all_killed(run)
    assert run_cli("stop", "--run", run.run_dir).returncode == 0
    run.result()


def resumed(run: ToyRun) -> None:
    run.result()
    run.start(resume=True)
    assert run.result().attempt == 2


def resumed_after_kill(run: ToyRun) -> None:
    all_killed(run)
    run.start(resume=True)
    stops(run)


def goes_on(run: ToyRun) -> None:
    run.until("a", "ready")


class Kind(NamedTuple):
    """``service``: what its plan has; ``ends``: how it ends; ``left``: why it is left; "" if it is cleaned."""

    name: str
    ends: Callable[[ToyRun], Any]
    service: tuple[str, ...] = ("sleep",)
    left: str = ""
    task: bool = False  # the service's end is that of the run
    smoke: bool = False
    script: bool = False  # its trainer is a launch script, whose LiteLLM has left its files
    starts: bool = True
    lives: bool = True  # of one that is left: whether its processes do


ALIVE = "its services may still be running"
KINDS = (
    Kind("done", ToyRun.result, ("exit", "0"), task=True),
    Kind("failed", ToyRun.result, ("exit", "7"), task=True),
    Kind("raised", ToyRun.result, ("raise",), task=True),
    Kind("smoke", ToyRun.result, ("exit", "0"), task=True, smoke=True),
    Kind("launch-script", ToyRun.result, ("exit", "0"), task=True, script=True),
    Kind("launch-script-failed", ToyRun.result, ("exit", "3"), task=True, script=True),
    Kind("resumed", resumed, ("exit", "0"), task=True),
    Kind("stopped", stops),
    Kind("stopped-deaf", stops, ("deaf",)),
    Kind("stopped-with-workers", stops, ("tree", "deaf-leader")),
    Kind("stopped-now", stops_now, ("deaf",)),
    Kind("sigterm", interrupted),
    Kind("service-killed", service_killed, task=True),
    Kind("backend-killed-then-stopped", stopped_without_backend),
    Kind("all-killed-then-stopped", all_killed_then_stopped),
    Kind("all-killed-then-resumed", resumed_after_kill),
    Kind(
        "all-killed", all_killed, left=ALIVE, lives=False
    ),  # nobody has seen its end: stop, which is told, does
    Kind("backend-killed", backend_killed, left=ALIVE),
    Kind("keeper-killed", keeper_killed, left=ALIVE),
    Kind("live", goes_on, left="it is running"),
    Kind("never-started", lambda _: None, starts=False, left="no backend of it has left a record"),
)


class Made(NamedTuple):
    """A run, and what it has left in /tmp."""

    kind: Kind
    run: ToyRun
    temp: tuple[Path, ...]

    def all_there(self) -> bool:
        return all(path.exists() for path in self.temp)


class Strangers(NamedTuple):
    """Processes and files that are no run's: ``ray`` looks like a folder of Ray's of a run, ``proxy`` like files of a
    LiteLLM, which its process holds open."""

    process: subprocess.Popen[bytes]
    files: tuple[Path, ...]


@pytest.fixture
def temp() -> Iterator[Callable[[Path, str], Path]]:
    """Makes files in /tmp; none is left."""
    made: list[Path] = []

    def make(path: Path, text: str) -> Path:
        made.append(path)
        write(path, {"session_1/logs/raylet.out": text}) if not path.suffix else path.write_text(text)
        return path

    yield make
    for path in made:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


@pytest.fixture
def strangers(tmp_path: Path, temp: Callable[[Path, str], Path]) -> Iterator[Strangers]:
    folder = temp(Path(f"/tmp/lv-{secrets.token_hex(4)}"), "of another user's run")
    files = [folder / "session_1/logs/raylet.out"]
    files += [temp(path, "of another launch") for path in litellm.usual_files(free_port())]
    for name in ("runs/precious.txt", "runs/tests/precious/notes", "runs/tests/.mine.new/x"):
        write(tmp_path, {name: "mine"})
        files.append(tmp_path / name)
    words = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    yield Strangers(process, tuple(files))
    process.kill()
    process.communicate()


def adopt(run: ToyRun, port: int) -> None:
    """SIMULATED: have the plan say that its trainer was a launch script whose LiteLLM listened on this port."""
    file = RunDir(run.run_dir).plan
    plan = msgspec.json.decode(file.read_bytes(), type=Plan)
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(plan, adopted_port=port)))


def made(
    root: Path, kind: Kind, ending: Callable[[ToyRun], ToyRun], temp: Callable[[Path, str], Path]
) -> Made:
    service = toy("a", *kind.service, ends_run=kind.task, restart=NEVER if kind.task else QUICK)
    run = ending(make_run(root, [service], name=kind.name, smoke=("x 2 -> 1",) if kind.smoke else ()))
    left = [Path(own_temp_dir(run.run_dir))]
    if kind.starts:
        run.start()
    kind.ends(run)
    if kind.script:
        port = free_port()
        adopt(run, port)
        left += [*litellm.usual_files(port), litellm.usual_log(port)]
    for path in left:
        temp(path, "4194305" if path.suffix == ".pid" else "left")
    write(run.run_dir, GOES | STAYS)
    with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
        sock.bind(str(run.run_dir / "control.sock"))  # one that is live has it
    return Made(kind, run, tuple(left))


def cleaned(root: Path, *args: str) -> dict[str, Any]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = cli.run(["clean", *args, "--json", "--run-root", str(root)])
    assert code == 0
    report: dict[str, Any] = json.loads(out.getvalue())
    return report


def told(report: dict[str, Any], runs: list[Made]) -> str:
    lines = [f"{'run':29} {'leftovers':>14} {'logs':>14} {'trials':>14}  left, and why"]
    for one in runs:
        of = [row for row in report["rows"] if row["run"] == f"tests/{one.kind.name}"]
        cells = []
        for what in ("leftovers", "logs", "trials"):
            rows = [row for row in of if row["what"] == what]
            files, size = sum(row["files"] for row in rows), sum(row["bytes"] for row in rows)
            cells.append(f"{f'{files} / {size} B' if rows else '-':>14}")
        why = [left["why"] for left in report["left"] if left["path"] == str(one.run.run_dir)]
        lines.append(f"{one.kind.name:29} {' '.join(cells)}  {''.join(why)[:60]}")
    lines.append(f"freed: {report['files']} files, {report['bytes']} bytes")
    return "\n".join(lines)


def test_after_runs_of_every_kind(
    tmp_path: Path,
    ending: Callable[[ToyRun], ToyRun],
    temp: Callable[[Path, str], Path],
    strangers: Strangers,
) -> None:
    root = tmp_path / "runs"
    runs = [made(root, kind, ending, temp) for kind in KINDS]
    assert len(runs) > 20
    listed = cleaned(root, "--all")
    assert not listed["removed"] and all(one.all_there() for one in runs), "it removes nothing without --yes"
    report = cleaned(root, "--all", "--yes")
    print(f"\n{told(report, runs)}")
    assert report["failed"] == [] and report["rows"] == listed["rows"]
    why = {left["path"]: left["why"] for left in report["left"]}
    for kind, run, left in runs:
        rows = [row for row in report["rows"] if row["run"] == f"tests/{kind.name}"]
        assert all((run.run_dir / name).read_text() == text for name, text in STAYS.items()), kind.name
        assert [path for path in left if path.exists()] == (list(left) if kind.left else []), kind.name
        there = [name for name in GOES if (run.run_dir / name).exists()]
        if kind.left:
            assert kind.left in why[str(run.run_dir)] and rows == [] and there == list(GOES), kind.name
            assert all(str(path) in why for path in left), f"{kind.name}: each path that is left is named"
        else:
            assert {row["what"] for row in rows} == {"leftovers", "logs", "trials"}, kind.name
            assert there == [] and str(run.run_dir) not in why, kind.name
            assert run_cli("status", "--run", run.run_dir).returncode == 0, kind.name
    assert strangers.process.poll() is None
    assert all(path.exists() for path in strangers.files)
    alive = {one.kind.name for one in runs if one.kind.starts and one.run.tagged()}
    assert alive == {kind.name for kind in KINDS if kind.left and kind.starts and kind.lives}, (
        "no process was ended"
    )
    (dead,) = (one for one in runs if one.kind.left and not one.kind.lives)
    assert f"liverl-tui stop --run {dead.run.run_dir}" in why[str(dead.run.run_dir)]
    assert run_cli("stop", "--run", dead.run.run_dir).returncode == 0
    rows = cleaned(root, "--all", "--yes")["rows"]
    assert {row["run"] for row in rows} == {f"tests/{dead.kind.name}"} and not any(
        map(Path.exists, dead.temp)
    )
    again = cleaned(root, "--all", "--yes")
    assert again["rows"] == []
    still = {left["path"] for left in again["left"]}  # with others of this host
    for kind, run, left in runs:
        assert (str(run.run_dir) in still) == (bool(kind.left) and kind.lives), kind.name
        assert all((str(path) in still) == path.exists() for path in left), kind.name
