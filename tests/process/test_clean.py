"""``clean``: what it lists, frees and leaves, with real runs, processes, sockets and files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit import contract
from kit.cli import MAIN, run_cli
from kit.contract import problems
from kit.ports import free_port
from kit.runs import ToyRun, make_run, toy
from kit.terminal import Terminal, clean_environment
from kit.waiting import wait_until

from liverl.external import litellm
from liverl.offline import clean
from liverl.offline.clean import find
from liverl.plan.ray import own_temp_dir
from liverl.plan.spec import Plan, RestartPolicy
from liverl.procs.path_users import users_of
from liverl.rundir.cleaned import read_cleaned
from liverl.rundir.layout import RunDir
from liverl.util.tree_size import measure
from liverl_tui.cli import main as cli

pytestmark = pytest.mark.first

Ending = Callable[[ToyRun], ToyRun]
Ended = Callable[[Path, str], ToyRun]
NEVER = RestartPolicy(mode="never")
STRANGER = 54321  # a user id of nobody
KEPT = {
    "checkpoints/global_step_1/actor/model.pt": "weights",
    "wandb/run-1/files/output.log": "wandb",
    "config.yaml": "run: {}",
    "metrics.jsonl": '{"step": 1, "data": {}}\n',
    "preflight.json": "{}",
}
GOES = {
    "trials/step_0001/a/litellm-trajectory.jsonl": "t" * 1000,
    "trials/step_0001/b/result.json": "{}",
    "attempt_001/logs/extra.1.log": "x" * 5000,
}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="files of another user are made by root")


def tree(folder: Path) -> dict[str, str]:
    """Every path below a folder, with its kind and content."""
    found = {}
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(top, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                found[str(path.relative_to(folder))] = path.read_bytes().hex()
            elif stat.S_ISLNK(mode):
                found[str(path.relative_to(folder))] = f"-> {os.readlink(path)}"
            else:
                found[str(path.relative_to(folder))] = stat.filemode(mode)
    return found


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def real_run(folder: Path, name: str, ending: Ending) -> ToyRun:
    """A run that has ended, and has made everything that may go and everything that may not."""
    trainer = toy("trainer", "exit", "0", kind="trainer", ends_run=True, restart=NEVER)
    run = ending(make_run(folder, [trainer], name=name))
    run.start()
    run.result()
    write(run.run_dir, KEPT | GOES)
    return run


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    runs: list[ToyRun] = []
    try:
        yield real_run(
            tmp_path_factory.mktemp("template"), "done", lambda run: runs.append(run) or run
        ).run_dir  # type: ignore[func-returns-value]
    finally:
        for run in runs:
            run.end()


@pytest.fixture
def ended_run(template: Path) -> Callable[[Path, str], ToyRun]:
    """Makes copies of a real run that has ended."""

    def copy(root: Path, name: str) -> ToyRun:
        run_dir = root / "tests" / name
        shutil.copytree(template, run_dir, symlinks=True)
        return ToyRun(run_dir)

    return copy


@dataclass
class Temp:
    """Paths in /tmp that a test makes; none is left."""

    paths: list[Path] = field(default_factory=list)

    def ray(self, run: ToyRun) -> Path:
        """Ray's folder of a run."""
        path = Path(own_temp_dir(run.run_dir))
        self.paths.append(path)
        write(path, {"session_1/logs/raylet.out": "r" * 300})
        return path

    def file(self, path: Path, text: str) -> Path:
        self.paths.append(path)
        path.write_text(text)
        return path


@pytest.fixture
def temp() -> Iterator[Temp]:
    made = Temp()
    yield made
    for path in made.paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@pytest.fixture
def living() -> Iterator[Callable[[Path], int]]:
    """Starts a process that works in a directory; its pid."""
    started = []

    def start(cwd: Path) -> int:
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], cwd=cwd))
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def cleaned(root: Path, *args: object) -> tuple[int, dict[str, Any]]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(["clean", *map(str, args), "--json", "--run-root", str(root)])
    report = json.loads(out.getvalue())
    assert list(problems(report, contract.output("clean --json"))) == []
    return code, report


def why(report: dict[str, Any], path: Path) -> str:
    (found,) = [left["why"] for left in report["left"] if left["path"] == str(path)]
    return str(found)


def adopt(run: ToyRun, port: int) -> None:
    """Have the plan say that its trainer is a launch script whose LiteLLM listens on this port."""
    path = RunDir(run.run_dir).plan
    plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(plan, adopted_port=port)))


# --- which runs ---------------------------------------------------------------------------------------


def test_only_ended_runs_lose_anything(tmp_path: Path, ending: Ending, ended_run: Ended, temp: Temp) -> None:
    root = tmp_path / "runs"
    done = ended_run(root, "done")
    live = ending(make_run(root, [toy("a", "sleep")], name="live"))
    orphan = ending(make_run(root, [toy("a", "sleep")], name="orphan"))
    for run in (live, orphan):
        run.start()
        run.until("a", "ready")
        log = RunDir(run.run_dir).logs(1) / "a.1.log"
        wait_until(lambda log=log: "up" in log.read_text(), what="all that it prints")  # type: ignore[misc]
        write(run.run_dir, GOES)
    orphan.kill_backend()
    never = make_run(root, [toy("a", "sleep")], name="never")
    elsewhere = ended_run(root, "elsewhere")
    record = json.loads((elsewhere.run_dir / "backend.json").read_text())
    (elsewhere.run_dir / "backend.json").write_text(json.dumps({**record, "host": "another-host"}))
    os.utime(elsewhere.run_dir / "backend.json", (1, 1))
    submitted = ended_run(root, "submitted")
    result = json.loads((submitted.run_dir / "result.json").read_text())
    result["job"] = {"system": "ray", "id": "raysubmit_1"}
    (submitted.run_dir / "result.json").write_text(json.dumps(result))
    (root / "tests" / "linked").symlink_to(done.run_dir)
    rays = [(run, temp.ray(run)) for run in (live, orphan, never, done)]
    left = [
        (live, "it is running"),
        (orphan, "its services may still be running"),
        (never, "no backend of it has left a record"),
        (elsewhere, "it ran on another-host"),
        (submitted, "submitted the ray job raysubmit_1"),
    ]
    before = [(run, tree(run.run_dir)) for run in (orphan, never, elsewhere, submitted)]
    code, report = cleaned(root, "--all", "--yes")
    assert code == 0 and report["removed"] and report["failed"] == []
    assert {row["run"] for row in report["rows"]} == {"tests/done"}
    for run, words in left:
        assert words in why(report, run.run_dir), run.run_dir.name
    assert not rays.pop()[1].exists()
    for run, ray in rays:
        assert ray.exists() and "its run is left" in why(report, ray), run.run_dir.name
    for run, was in before:
        moving = {"members.json", "keeper.log"}  # of those that still run
        assert changed(was, tree(run.run_dir)) <= moving, run.run_dir.name
    assert all((live.run_dir / name).exists() for name in GOES)
    assert live.service("a").state == "ready"
    code, report = cleaned(root, live.run_dir, done.run_dir, "--all", "--yes")
    assert code == 1 and report["rows"] == [], "a run that was named and may not be cleaned"


# --- what goes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        ((), {"leftovers"}),
        (("--logs",), {"leftovers", "logs"}),
        (("--trials",), {"leftovers", "trials"}),
        (("--all",), {"leftovers", "logs", "trials"}),
    ],
)
def test_what_goes_and_nothing_else(
    flags: tuple[str, ...], kinds: set[str], tmp_path: Path, ended_run: Ended, temp: Temp
) -> None:
    root, outside = tmp_path / "runs", tmp_path / "outside"
    run = ended_run(root, "done")
    write(outside, {"precious": "p", "logs/of-script.log": "s"})
    (run.run_dir / "trials" / "planted").symlink_to(outside)
    (run.run_dir / "trials" / "step_0001" / "a" / "planted").symlink_to(outside)
    (run.run_dir / "trials.2").symlink_to(outside)
    (run.run_dir / "attempt_002").symlink_to(outside)
    (run.run_dir / "attempt_001" / "logs" / "train-log.1.log").symlink_to(outside / "logs" / "of-script.log")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(run.run_dir / "control.sock"))
    ray, before = temp.ray(run), tree(tmp_path)
    command = ("done", *flags)
    code, listed = cleaned(root, *command)
    assert (code, listed["removed"], listed["files"]) == (0, False, 0)
    assert tree(tmp_path) == before and ray.exists(), "nothing goes without --yes"
    code, report = cleaned(root, *command, "--yes")
    assert code == 0 and report["failed"] == [] and report["rows"] == listed["rows"]
    assert {row["what"] for row in report["rows"]} == kinds
    expected = {"control.sock"}
    run_before = {path: kind for path, kind in before.items() if path.startswith("runs/tests/done/")}
    if "logs" in kinds:
        expected |= {
            path
            for path, kind in tree(run.run_dir).items()
            | {(p[len("runs/tests/done/") :], k) for p, k in run_before.items()}
            if path.startswith("attempt_001/logs/") and not kind.startswith("->")
        }
    if "trials" in kinds:
        expected |= {
            path[len("runs/tests/done/") :]
            for path in run_before
            if path.startswith("runs/tests/done/trials/step_0001")
        }
    if kinds != {"leftovers"}:
        expected.add("cleaned.json")
    gone = {path.removeprefix("runs/tests/done/") for path in changed(before, tree(tmp_path))}
    assert gone == expected
    assert not ray.exists() and all((run.run_dir / name).read_text() == text for name, text in KEPT.items())
    assert report["files"] == sum(row["files"] for row in report["rows"])
    assert report["bytes"] == sum(row["bytes"] for row in report["rows"]) >= 300
    code, again = cleaned(root, *command, "--yes")
    assert code == 0 and again["rows"] == [] and not again["removed"]
    records = read_cleaned(run.run_dir)
    assert {one.what for one in records} == kinds - {"leftovers"}
    stored = run.run_dir / "cleaned.json"
    if records:
        assert list(problems(json.loads(stored.read_text()), contract.output("cleaned.json"))) == []


def test_a_folder_of_ray_that_a_process_uses_stays(
    tmp_path: Path, ended_run: Ended, temp: Temp, living: Callable[[Path], int]
) -> None:
    run = ended_run(tmp_path, "done")
    ray = temp.ray(run)
    pid = living(ray / "session_1")
    wait_until(lambda: ray in users_of([ray]), what="the process")
    code, report = cleaned(tmp_path, "--yes")
    assert code == 0 and f"pid {pid} (" in why(report, ray)
    assert (ray / "session_1" / "logs" / "raylet.out").exists()


def test_who_uses_a_path(tmp_path: Path, living: Callable[[Path], int]) -> None:
    folder, beside = tmp_path / "lv-1", tmp_path / "lv-12"
    folder.mkdir()
    beside.mkdir()
    pid = living(beside)
    wait_until(lambda: f"pid {pid} " in users_of([beside]).get(beside, ""), what="its directory")
    assert folder not in users_of([folder]), "lv-12 is not lv-1"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(folder / "raylet"))
        assert users_of([folder]) == {folder: f"a process that has the socket {folder}/raylet"}
    with open(folder / "log", "w") as log:
        asked = [sys.executable, "-c", "import time; time.sleep(600)", f"--temp-dir={folder}"]
        named = subprocess.Popen(asked, stdin=subprocess.DEVNULL)
        try:
            wait_until(lambda: f"pid {named.pid} " in users_of([folder]).get(folder, ""), what="its words")
        finally:
            named.kill()
            named.wait()
        holder = subprocess.Popen(asked[:3], stdin=subprocess.DEVNULL, stdout=log)
        try:
            wait_until(lambda: f"pid {holder.pid} " in users_of([folder]).get(folder, ""), what="its file")
        finally:
            holder.kill()
            holder.wait()


def test_a_link_in_place_of_rays_folder_stays(tmp_path: Path, ended_run: Ended, temp: Temp) -> None:
    run = ended_run(tmp_path / "runs", "done")
    outside = tmp_path / "outside"
    write(outside, {"precious": "p"})
    link = Path(own_temp_dir(run.run_dir))
    temp.paths.append(link)
    link.symlink_to(outside)
    code, report = cleaned(tmp_path / "runs", "done", "--yes")
    assert code == 0 and "it is a link" in why(report, link)
    assert link.is_symlink() and (outside / "precious").exists()


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("of the run", ""),
        ("written later", "changed after the run had ended"),
        ("written before", "written before the run's last attempt"),
        ("somebody listens", "a process listens on port"),
        ("its process lives", "is running"),
    ],
)
def test_files_of_litellm(case: str, words: str, tmp_path: Path, ended_run: Ended, temp: Temp) -> None:
    run = ended_run(tmp_path, "done")
    result = RunDir(run.run_dir).read_result()
    assert result is not None
    port = free_port()
    adopt(run, port)
    yaml, pid = litellm.usual_files(port)
    files = {yaml: "model_list: []", litellm.usual_log(port): "log", pid: "4194305"}
    if case == "its process lives":
        files[pid] = str(os.getppid())
    at = {"written later": result.ended_at + 3600, "written before": result.started_at - 5}
    for path, text in files.items():
        temp.file(path, text)
        os.utime(path, (at.get(case, result.ended_at),) * 2)
    with socket.socket() as sock:
        if case == "somebody listens":
            sock.bind(("127.0.0.1", port))
            sock.listen()
        code, report = cleaned(tmp_path, "done", "--yes")
    assert code == 0
    for path in files:
        assert path.exists() == bool(words), path
        assert not words or words in why(report, path)


def test_unfinished_folders_of_runs(tmp_path: Path, ended_run: Ended) -> None:
    ended_run(tmp_path, "done")
    project = tmp_path / "tests"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    old = time.time() - 7200
    cases = {
        f".a.{gone.pid}.7.new": ("", old),
        f".b.{os.getpid()}.7.new": ("is running", old),
        f".c.{gone.pid}.7.new": ("may run on another host", time.time()),
        ".d.new": (None, old),  # not made by liverl-tui
        f"e.{gone.pid}.7.new": (None, old),
    }
    for name, (_, at) in cases.items():
        write(project / name, {"x.yaml": "x"})
        os.utime(project / name, (at, at))
    code, report = cleaned(tmp_path, "done", "--yes")
    assert code == 0 and report["rows"] == [], "of the run that is named only"
    code, report = cleaned(tmp_path, "--yes")
    assert code == 0
    for name, (words, _) in cases.items():
        assert (project / name).exists() == (words != ""), name
        if words:
            assert words in why(report, project / name)


@needs_root
def test_files_of_another_user_are_named_and_left(tmp_path: Path, ended_run: Ended, temp: Temp) -> None:
    run, theirs = ended_run(tmp_path, "mine"), ended_run(tmp_path, "theirs")
    trial = run.run_dir / "trials" / "step_0001" / "a"
    os.chown(trial / "litellm-trajectory.jsonl", STRANGER, STRANGER)
    os.chown(run.run_dir / "attempt_001" / "logs" / "extra.1.log", STRANGER, STRANGER)
    ray = temp.ray(run)
    os.chown(ray, STRANGER, STRANGER)
    os.chown(theirs.run_dir, STRANGER, STRANGER)
    before = tree(theirs.run_dir)
    code, report = cleaned(tmp_path, "--all", "--yes")
    assert code == 0 and report["failed"] == []
    for path in (trial, run.run_dir / "attempt_001" / "logs" / "extra.1.log", ray, theirs.run_dir):
        assert f"belongs to uid {STRANGER}" in why(report, path)
    assert (trial / "litellm-trajectory.jsonl").exists() and ray.exists()
    assert not (trial.parent / "b").exists() and tree(theirs.run_dir) == before


# --- what the user is told ----------------------------------------------------------------------------


def test_without_a_terminal_nothing_goes(tmp_path: Path, ended_run: Ended) -> None:
    run = ended_run(tmp_path, "done")
    before = tree(run.run_dir)
    done = run_cli("clean", "done", "--all", "--run-root", tmp_path)
    assert done.returncode == 0 and tree(run.run_dir) == before
    assert "nothing was removed: there is no terminal to ask; to remove it, add --yes" in done.stdout
    assert "tests/done" in done.stdout and "trials" in done.stdout


def test_a_run_root_without_runs_is_told(tmp_path: Path) -> None:
    done = run_cli("clean", "--yes", "--run-root", tmp_path / "mistyped")
    assert done.returncode == 0 and f"no run was found under {tmp_path}/mistyped" in done.stderr
    assert "nothing to remove" in done.stdout


@pytest.mark.parametrize(("answer", "goes"), [("n\n", False), ("\n", False), ("y\n", True)])
def test_it_asks_once(answer: str, goes: bool, tmp_path: Path, ended_run: Ended) -> None:
    run = ended_run(tmp_path, "done")
    held = measure(run.run_dir / "trials" / "step_0001").bytes
    ours, its = pty.openpty()
    try:
        command = [*MAIN, "clean", "done", "--trials", "--run-root", str(tmp_path)]
        os.write(ours, answer.encode())
        done = subprocess.run(command, stdin=its, capture_output=True, text=True, timeout=60, check=False)
    finally:
        os.close(ours)
        os.close(its)
    assert done.returncode == 0 and done.stderr.count("[y/N]") == 1
    assert (run.run_dir / "trials" / "step_0001").exists() is not goes
    assert (f"freed {held:,} bytes in 2 files" in done.stdout) is goes
    assert ("nothing was removed" in done.stdout) is not goes


def test_what_cannot_be_removed_is_said(tmp_path: Path, ended_run: Ended) -> None:
    """A mount in a trial; without the right to mount, a backend that holds the lock."""
    run = ended_run(tmp_path, "done")
    held = subprocess.Popen(["flock", str(RunDir(run.run_dir).lock), "sleep", "600"], start_new_session=True)
    try:
        lock = RunDir(run.run_dir).lock
        wait_until(
            lambda: subprocess.run(["flock", "-n", lock, "true"], check=False).returncode, what="the lock"
        )
        before = tree(run.run_dir)
        done = run_cli("clean", "done", "--all", "--yes", "--run-root", tmp_path)
    finally:
        os.killpg(held.pid, signal.SIGKILL)
        held.wait()
    assert done.returncode == 1 and tree(run.run_dir) == before
    assert "freed 0 bytes in 0 files" in done.stdout
    assert f"could not remove {run.run_dir}: a backend holds its lock" in done.stderr


def test_what_is_left_of_an_item_is_not_counted(
    tmp_path: Path, ended_run: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    """simulated: a storage that refuses to remove one file."""
    run = ended_run(tmp_path, "done")
    found = find([run.run_dir], (), {"trials"})
    held = measure(run.run_dir / "trials" / "step_0001" / "b" / "result.json").bytes

    def refuse(path: Path, *, inside: Path) -> tuple[OSError, ...]:
        (Path(path) / "b" / "result.json").unlink()
        return (PermissionError(1, "Operation not permitted", f"{path}/a"),)

    monkeypatch.setattr(clean, "remove_tree", refuse)
    outcome = clean.remove(found)
    assert (outcome.files, outcome.bytes) == (1, held)
    assert [(one.path, one.why) for one in outcome.failed] == [
        (str(run.run_dir / "trials" / "step_0001" / "a"), "Operation not permitted")
    ]
    assert [(one.what, one.files) for one in read_cleaned(run.run_dir)] == [("trials", 1)]


def test_what_went_before_ctrl_c_is_recorded(
    tmp_path: Path, ended_run: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended_run(tmp_path, "done")
    found, real, calls = find([run.run_dir], (), {"logs"}), clean.remove_tree, []
    assert len(found.items) >= 2

    def interrupted(path: Path, *, inside: Path) -> tuple[OSError, ...]:
        calls.append(path)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return real(path, inside=inside)

    monkeypatch.setattr(clean, "remove_tree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        clean.remove(found)
    (record,) = read_cleaned(run.run_dir)
    assert (record.what, record.files, record.attempts) == ("logs", 1, (1,))
    assert not calls[0].exists() and calls[1].exists()


def test_every_command_opens_a_run_without_logs(tmp_path: Path, ending: Ending) -> None:
    run = real_run(tmp_path, "done", ending)
    code, _ = cleaned(tmp_path, "done", "--all", "--yes")
    assert code == 0
    told = "the logs of attempt 1 were removed by liverl-tui clean"
    status = run_cli("status", "--run", run.run_dir)
    assert status.returncode == 0 and told in status.stdout and "has ended: done" in status.stdout
    assert "the trials were removed by liverl-tui clean" in status.stdout
    doctor = run_cli("doctor", run.run_dir)
    assert doctor.returncode == 1 and "Logs or trials of the run were removed" in doctor.stdout
    assert told in " ".join(doctor.stdout.split()) and "nothing wrong" not in doctor.stdout
    logs = run_cli("logs", "--run", run.run_dir)
    assert logs.returncode == 0 and told in logs.stderr
    attached = run_cli("attach", "--no-ui", "--run", run.run_dir)
    assert attached.returncode == 0 and "Traceback" not in attached.stderr
    shown = Terminal([*MAIN, "attach", "--run", str(run.run_dir)], env=clean_environment(), cwd=tmp_path)
    try:
        shown.wait_for("ended")
        shown.wait_for("trainer")
        shown.press("q")
        assert shown.wait() == 0
    finally:
        shown.close()
    assert (run.run_dir / "attempt_001" / "report.md").exists()
    run.start(resume=True)
    assert run.result().attempt == 2 and (run.run_dir / "attempt_002" / "logs" / "trainer.2.log").exists()
    doctor = run_cli("doctor", run.run_dir)
    assert "were removed" not in doctor.stdout, "the newest attempt has its logs"
