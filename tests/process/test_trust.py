"""Runs that another user could have changed: real users, real commands, real backends."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from kit.acls import acl_of, others_with, set_acl
from kit.cli import MAIN, run_cli
from kit.runs import ToyRun, make_run, toy
from kit.terminal import Terminal, clean_environment
from kit.waiting import wait_until

from liverl.exit_codes import ExitCode
from liverl.rundir.layout import RunDir
from liverl.util import posix_acl

OTHER = 65533  # a user id that owns nothing here
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user")


# The interpreter may lie where only root can read: everything is imported before the user changes.
IMPORTS = """
import difflib, encodings.ascii, glob, grp, importlib, os, pkgutil, psutil, pwd, sys
import liverl_tui.cli
rooms = ["control", "daemon", "offline", "rundir", "diagnose", "observe", "logs", "plan", "config"]
for room in ["liverl_tui.cli", "liverl_tui.text", *("liverl." + name for name in rooms)]:
    package = importlib.import_module(room)
    for found in pkgutil.walk_packages(package.__path__, room + "."):
        importlib.import_module(found.name)
from liverl_tui.cli.main import run
def become(uid):
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
"""
AS_USER = f"{IMPORTS}\nbecome(int(sys.argv[1]))\nsys.exit(run(sys.argv[2:]))\n"
# Several command lines one after another, each in a process of its own that has imported everything already.
EACH_AS_USER = f"""{IMPORTS}
import json, tempfile
told = []
for arguments in json.loads(sys.argv[2]):
    files = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    pid = os.fork()
    if not pid:
        os.dup2(files[0].fileno(), 1); os.dup2(files[1].fileno(), 2)
        become(int(sys.argv[1]))
        sys.exit(run(arguments))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for file in files:
        file.seek(0)
    told.append((code, *(file.read().decode() for file in files)))
print(json.dumps(told))
"""


def cli(*args: object, uid: int | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """A command, as user ``uid`` if that is given."""
    return run_cli(*args, command=MAIN if uid is None else (sys.executable, "-c", AS_USER, str(uid)), **env)


def each_as(uid: int, *commands: Sequence[object]) -> list[subprocess.CompletedProcess[str]]:
    """Commands as user ``uid``, one after another."""
    asked = [[*map(str, command)] for command in commands]
    done = run_cli(command=(sys.executable, "-c", EACH_AS_USER, str(uid), json.dumps(asked)))
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    return [
        subprocess.CompletedProcess(command, code, out, err)
        for command, (code, out, err) in zip(asked, told, strict=True)
    ]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that every user can enter: pytest's own ones are private."""
    path = Path(tempfile.mkdtemp(prefix="liverl-trust-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def run(folder: Path, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    """A run whose only service leaves a mark."""
    mark = [sys.executable, "-c", f"open({str(folder / 'mark')!r}, 'w').write('executed')"]
    return ending(make_run(folder, [toy("worker", "sleep"), toy("marker", argv=tuple(mark))]))


def give_away(run: ToyRun, uid: int) -> None:
    for path in [run.run_dir, *run.run_dir.rglob("*")]:
        os.chown(path, uid, uid)


def changed(run: ToyRun) -> set[str]:
    return {p.name for p in run.run_dir.rglob("*")}


@needs_root
@pytest.mark.parametrize(
    "command",
    [
        ("up", "--detach", "--run"),
        ("up", "--resume"),
        ("stop", "--run"),
        ("stop", "--now", "--run"),
        ("scale", "+1", "--run"),
        ("restart", "worker", "--run"),
        ("start", "worker", "--run"),
        ("stop", "worker", "--run"),
        ("check", "--run"),  # it executes the interpreters that the plan names
    ],
    ids=" ".join,
)
def test_root_does_not_act_on_the_run_of_another_user(
    run: ToyRun, folder: Path, command: tuple[str, ...]
) -> None:
    give_away(run, OTHER)
    before = changed(run)
    refused = cli(*command, run.run_dir)
    assert refused.returncode == ExitCode.PREFLIGHT, refused.stderr
    assert f"{run.run_dir}/plan.json: it belongs to uid {OTHER}" in refused.stderr
    assert f"--trust {run.run_dir}" in refused.stderr and "supervise.trusted_roots" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert changed(run) == before and not (folder / "mark").exists()


@needs_root
@pytest.mark.parametrize("above", ["..", "../.."])
def test_a_run_below_a_directory_of_another_user_is_not_executed(
    run: ToyRun, folder: Path, above: str
) -> None:
    """Its owner could put another run there."""
    path = (run.run_dir / above).resolve()
    os.chown(path, OTHER, OTHER)
    for command in (("up", "--detach", "--run"), ("stop", "--run")):
        refused = cli(*command, run.run_dir)
        assert refused.returncode == ExitCode.PREFLIGHT, refused.stderr
        assert f"{path}: it belongs to uid {OTHER}" in refused.stderr
    assert not (folder / "mark").exists()


@needs_root
@pytest.mark.parametrize("command", [("attach",), ("--run",), ("up", "--run")], ids=" ".join)
def test_the_interface_opens_the_run_of_another_user_for_reading_only(
    run: ToyRun, command: tuple[str, ...]
) -> None:
    give_away(run, OTHER)
    before = changed(run)
    name = command if command[-1] == "--run" else (*command, "--run")
    argv = [sys.executable, "-m", "liverl_tui", *name, str(run.run_dir)]
    with Terminal(argv, env=clean_environment(PYTHONPATH=os.environ.get("PYTHONPATH", ""))) as terminal:
        assert terminal.wait() == ExitCode.PREFLIGHT
        assert b"is not trusted" in terminal.raw
    assert changed(run) == before


@needs_root
def test_another_user_does_not_act_on_a_run_of_a_third_one(run: ToyRun, folder: Path) -> None:
    give_away(run, OTHER)
    home = folder / "home"
    home.mkdir()
    os.chown(home, OTHER - 1, OTHER - 1)
    refused = cli("stop", "--run", run.run_dir, uid=OTHER - 1, HOME=str(home), XDG_STATE_HOME=str(home))
    assert refused.returncode == ExitCode.PREFLIGHT, refused.stderr
    assert f"it belongs to uid {OTHER}, not to you (uid {OTHER - 1}) or root" in refused.stderr


@needs_root
def test_anybodys_run_can_be_read(run: ToyRun, folder: Path) -> None:
    give_away(run, OTHER)
    for command in (("status",), ("events",), ("logs",), ("attach", "--plain")):
        read = cli(*command, "--run", run.run_dir)
        assert "not trusted" not in read.stderr, command
    (run.run_dir / "events.jsonl").write_text("")
    for command in (("status",), ("events",), ("logs",)):
        read = cli(*command, "--run", run.run_dir, uid=OTHER - 1, HOME="/", XDG_STATE_HOME=str(folder / "no"))
        assert read.returncode == 0 and "not trusted" not in read.stderr, (command, read.stderr)


@pytest.mark.parametrize(
    ("loose", "bits"),
    [(".", 0o777), ("plan.json", 0o666), ("..", 0o777), ("journal.jsonl", 0o666)],
)
def test_what_every_user_can_write_is_not_executed(run: ToyRun, folder: Path, loose: str, bits: int) -> None:
    path = (run.run_dir / loose).resolve()
    path.touch()
    path.chmod(bits)
    refused = cli("up", "--detach", "--run", run.run_dir)
    assert refused.returncode == ExitCode.PREFLIGHT, refused.stderr
    assert f"{path}: every user can write it" in refused.stderr
    assert f"chmod o-w {path}" in refused.stderr
    assert not (folder / "mark").exists()


@pytest.mark.parametrize("loose", [".", "plan.json", ".."])
def test_what_another_user_can_write_by_an_access_control_list_is_not_executed(
    run: ToyRun, folder: Path, loose: str
) -> None:
    """The mode alone reads as one that a group can write, which is a warning."""
    path = (run.run_dir / loose).resolve()
    set_acl(path, acl_of(user=OTHER))
    assert path.stat().st_mode & 0o002 == 0
    refused = cli("up", "--detach", "--run", run.run_dir)
    assert refused.returncode == ExitCode.PREFLIGHT, refused.stderr
    assert f"{path}: its access control list lets uid {OTHER} write it" in refused.stderr
    assert not (folder / "mark").exists()
    trusted = cli("up", "--detach", "--trust", run.run_dir, "--run", run.run_dir)
    assert trusted.returncode == 0, trusted.stderr


@needs_root
def test_below_a_default_access_control_list_another_user_can_write_nothing_of_a_run(
    folder: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    """The umask has no effect below such a directory, and its list would let the user write what has all bits."""
    set_acl(folder, acl_of(user=OTHER, others=7), posix_acl.DEFAULT)
    made = "import os; os.mkdir('made'); open('made/file', 'w').close()"
    run = ending(make_run(folder, [toy("worker", "sleep"), toy("writer", argv=(sys.executable, "-c", made))]))
    run.start()
    run.until("worker", "ready")
    wait_until((run.run_dir / "made/file").exists, what="the service's file")
    assert others_with(2, run.run_dir) == []
    assert others_with(7, run.run_dir / "secrets") == []
    tries = [f"touch {p}" for p in run.run_dir.rglob("*")] + [f"touch {run.run_dir}/new"]
    tries += [f"cat {p}" for p in (run.run_dir / "secrets").iterdir()]
    drop = f"import os; os.setgroups([]); os.setgid({OTHER}); os.setuid({OTHER}); "
    code = f"{drop}print([t for t in {tries!r} if os.system(t + ' >/dev/null 2>&1') == 0])"
    worked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert worked.stdout == "[]\n", worked
    run.command("stop", now=True)
    run.result()
    assert others_with(2, run.run_dir) == []


@needs_root
def test_a_live_run_of_another_user_can_be_read_and_not_joined(
    folder: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    """``up --resume`` said "attached" with exit code 0, and did nothing; ``status`` and ``wait`` were refused."""
    run = ending(make_run(folder, [toy("worker", "sleep")]))
    pid = run.start()
    run.until("worker", "ready")
    of_root = (
        f"run tests/toy belongs to another user, and its backend (pid {pid} of root) answers nobody else"
    )

    def written() -> bool:
        snapshot = RunDir(run.run_dir).read_snapshot()
        return snapshot is not None and snapshot.state == "running"

    wait_until(written, what="the state in its files")
    here = ("--run", run.run_dir)
    acts = ("up --detach", "up --resume --detach", "up --no-ui", "stop", "scale +1")
    for refused in each_as(OTHER, *([*command.split(), *here] for command in acts)):
        assert refused.returncode == ExitCode.FAILED, refused
        assert of_root in refused.stderr and "attached" not in refused.stdout + refused.stderr, refused.stderr
    looks = ("status", "status --json", "wait", "wait --for done --timeout 0.1", "logs worker", "events")
    status, as_json, ready, late, *shown = each_as(OTHER, *([*command.split(), *here] for command in looks))
    assert status.returncode == 0 and of_root in status.stdout and "worker" in status.stdout, status
    told = json.loads(as_json.stdout)
    assert (told["live"], told["state"], told["services"][0]["state"]) == (False, "running", "ready")
    assert ready.returncode == 0
    assert late.returncode == ExitCode.TIMEOUT and "timed out" in late.stderr
    assert [one.returncode for one in shown] == [0, 0], shown
    command = [sys.executable, "-c", AS_USER, str(OTHER), "wait", "--for", "done", "--run", str(run.run_dir)]
    waits = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        run.command("stop", now=True)
        assert waits.wait(60) == run.result().exit_code
    finally:
        waits.kill()
        waits.wait()


def test_the_backend_itself_refuses_too(run: ToyRun, folder: Path) -> None:
    (run.run_dir / "plan.json").chmod(0o666)
    refused = subprocess.run(
        [sys.executable, "-m", "liverl.daemon.main", "--run-dir", str(run.run_dir)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == ExitCode.PREFLIGHT
    assert "not trusted" in refused.stderr
    assert changed(run) == {"plan.json"}


def test_trust_is_the_way_out_for_up_and_stop(run: ToyRun, folder: Path) -> None:
    (run.run_dir / "plan.json").chmod(0o666)
    started = cli("up", "--detach", "--trust", run.run_dir, "--run", run.run_dir)
    assert started.returncode == 0, started.stderr
    run.until("worker", "ready")
    wait_until((folder / "mark").exists, what="the plan's execution")
    refused = cli("stop", "--run", run.run_dir)
    assert refused.returncode == ExitCode.PREFLIGHT
    # Also with a backend that has died: `stop` starts one, which must know the directory as trusted.
    run.backends.append(run.snapshot().backend.pid)
    run.kill_backend()
    stopped = cli("stop", "--run", run.run_dir, LIVERL_SUPERVISE__TRUSTED_ROOTS=f"[{folder}]")
    assert stopped.returncode == 0, stopped.stderr
    run.result()


def test_the_users_configuration_is_read_and_the_runs_own_is_not(run: ToyRun, tmp_path: Path) -> None:
    (run.run_dir / "plan.json").chmod(0o666)
    text = f"supervise:\n  trusted_roots: [{run.run_dir}]\n"
    own, inside = tmp_path / "mine.yaml", run.run_dir / "config.yaml"
    own.write_text(text)
    inside.write_text(text)
    link = tmp_path / "link.yaml"
    link.symlink_to(inside)
    for config in (inside, link):
        refused = cli("up", "--detach", "--run", run.run_dir, "--config", config)
        assert refused.returncode == ExitCode.PREFLIGHT, refused.stderr
    started = cli("up", "--detach", "--run", run.run_dir, "--config", own)
    assert started.returncode == 0, started.stderr
    run.until("worker", "ready")


def test_a_group_that_can_write_is_warned_about(run: ToyRun) -> None:
    os.chown(run.run_dir, -1, OTHER) if os.geteuid() == 0 else pytest.skip("needs root, for another group")
    run.run_dir.chmod(0o775)
    started = cli("up", "--detach", "--run", run.run_dir)
    assert started.returncode == 0, started.stderr
    assert f"warning: {run.run_dir}: a group can write it (mode 0775)" in started.stderr


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077], ids=oct)
def test_what_the_backend_writes_is_not_writable_by_others_and_services_keep_the_umask(
    folder: Path, ending: Callable[[ToyRun], ToyRun], umask: int
) -> None:
    made = folder / "made"
    write = (sys.executable, "-c", f"open({str(made)!r}, 'w').write('x')")
    run = ending(make_run(folder, [toy("worker", "sleep"), toy("writer", argv=write)]))
    before = os.umask(umask)
    try:
        run.start()
    finally:
        os.umask(before)
    run.until("worker", "ready")
    wait_until(made.exists, what="the service's file")
    run.command("stop", now=True)
    run.result()
    loose = [
        f"{p.relative_to(run.run_dir)} {stat.S_IMODE(p.lstat().st_mode):04o}"
        for p in run.run_dir.rglob("*")
        if p.lstat().st_mode & 0o022
    ]
    assert loose == []
    assert changed(run) > {"journal.jsonl", "events.jsonl", "keeper.log", "backend.log", "exits", "lock"}
    assert stat.S_IMODE((run.run_dir / "secrets").stat().st_mode) == 0o700
    secrets = {stat.S_IMODE(p.stat().st_mode) for p in (run.run_dir / "secrets").iterdir()}
    assert secrets == {0o600}
    assert stat.S_IMODE(made.stat().st_mode) == 0o666 & ~umask


def test_up_names_the_ports_that_it_cannot_guard(folder: Path) -> None:
    """On a host without GPUs another check refuses the run, on one with GPUs the question that nobody answers."""
    up = cli("up", "--detach", "--name", "x", "--profile", "h200-smoke", "--run-root", folder)
    assert up.returncode in (ExitCode.PREFLIGHT, ExitCode.USAGE), up.stderr
    assert "preflight warning (unguarded ports): verl's vLLM replicas require no token" in up.stderr
    assert not list(folder.rglob("plan.json"))
