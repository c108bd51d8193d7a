"""Cases that need a world of their own: ``unshare ... python faults_inside.py CASE FOLDER``.

Run by test_faults.py; an assertion that fails is the exit code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec
from kit.mounts import MS_RDONLY, fill, keep_mounts_in, mount
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.control.blocking import Connection
from liverl.control.messages import Cursor
from liverl.model import Event
from liverl.plan.spec import RestartPolicy, ServiceSpec
from liverl.procs import procfs, tree
from liverl.rundir.journal import read_journal


def disk(folder: Path, size: str, flags: int = 0) -> Path:
    """A small file system of its own."""
    keep_mounts_in()
    folder.mkdir()
    mount("tmpfs", str(folder), "tmpfs", flags, f"size={size}")
    return folder


def up(*args: object) -> tuple[int, str]:
    return command("up", *args)


def command(*args: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "liverl_tui.cli.main", *map(str, args)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def task(go: Path) -> ServiceSpec:
    """Ends with 7 once there is this file, and writes nothing."""
    from msgspec.structs import replace

    spec = toy("task", ends_run=True, restart=RestartPolicy(mode="never"))
    text = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\nsys.exit(7)"
    return replace(spec, argv=(sys.executable, "-c", text, str(go)))


def whole_lines(run: ToyRun) -> list[dict[str, Any]]:
    """The journal's records; every line of journal and events is whole. Half a line may be there for a moment,
    until the rest is written, or it is cut off where the disk takes no more."""
    for name in ("journal.jsonl", "events.jsonl"):
        path = run.run_dir / name

        def whole(path: Path = path) -> bytes | None:
            data = path.read_bytes()
            return data if data.endswith(b"\n") else None

        data = wait_until(whole, what=f"a whole last line of {name}")
        assert data is not None
        for line in data.splitlines():
            msgspec.json.decode(line)
    return list(read_journal(run.run_dir / "journal.jsonl").records)


def events(run: ToyRun) -> list[Event]:
    """What the backend tells its clients, written or not."""
    with Connection(run.run_dir) as connection:
        return list(connection.events_after(Cursor(0)))


def no_traceback(run: ToyRun) -> None:
    log = (run.run_dir / "backend.log").read_text()
    assert "Traceback" not in log, log


# --- cases ------------------------------------------------------------------------------------------------


def pid_reuse(folder: Path) -> None:
    """A stranger gets the pid of a service that died while nobody looked."""
    run = make_run(
        folder, [toy("a", "sleep", restart=RestartPolicy(mode="never"), fatal=False), toy("b", "sleep")]
    )
    run.start()
    pid = run.until("a", "ready").pid
    b = run.until("b", "ready").pid
    keeper = run.snapshot().backend.keeper_pid
    assert pid and keeper
    tick = procfs.start_tick(pid)
    run.kill_backend()
    for victim in (keeper, pid):
        os.kill(victim, 9)
    wait_until(lambda: _reaped(pid), what="the end of the service")
    stranger = _process_with(pid)
    assert procfs.start_tick(pid) != tick
    assert tree.send((pid, tick or 0), 15) is False  # type: ignore[arg-type]
    run.start()
    status = run.until("a", lambda s: s.state in ("failed", "stopped"))
    assert status.pid is None and status.members == (), status
    assert run.service("b").pid == b
    assert "exit 0" not in status.why, status.why
    run.command("stop")
    assert run.result().exit_code == 0
    assert stranger.poll() is None, "the stranger was signalled"
    stranger.kill()
    stranger.wait()


def _reaped(pid: int) -> bool:
    """Whether the number is free; we are init here."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        pass
    return not os.path.exists(f"/proc/{pid}")


def _process_with(pid: int) -> subprocess.Popen[bytes]:
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        if process.pid == pid:
            return process
        process.kill()
        process.wait()
    raise AssertionError(f"pid {pid} did not come again")


def read_only(folder: Path) -> None:
    root = disk(folder / "ro", "1m", MS_RDONLY)
    code, out = up("--no-ui", "--run-root", root, "--name", "x", "--set", "infrastructure.litellm_port=0")
    assert code == 3, out
    assert str(root) in out and "is not writable" in out and "Traceback" not in out, out


def full(folder: Path) -> None:
    root = disk(folder / "full", "1m")
    fill(root)
    code, out = up("--no-ui", "--run-root", root, "--name", "x", "--set", "infrastructure.litellm_port=0")
    assert code == 3, out
    assert str(root) in out and "free" in out and "Traceback" not in out, out
    assert sorted(os.listdir(root)) == ["filler"]


def full_before_adoption(folder: Path) -> None:
    """The backend is dead and the disk is full: nothing can be taken over until there is room."""
    root = disk(folder / "disk", "8m")
    run = make_run(root, [toy("a", "deaf")])
    run.start()
    pid = run.until("a", "ready").pid
    run.kill_backend()
    filler = fill(root)
    before = (run.run_dir / "journal.jsonl").read_bytes()
    code, out = up("--detach", "--run", run.run_dir)
    assert code == 3, (code, out)
    assert "No space left" in out and "Traceback" not in out, out
    assert (run.run_dir / "journal.jsonl").read_bytes() == before
    assert procfs.alive(pid or 0, None)
    filler.unlink()
    code, out = up("--detach", "--run", run.run_dir)
    assert code == 0, out
    assert run.until("a", "ready").pid == pid
    _end(run)


def fills_up(folder: Path) -> None:
    """Services that run go on; one that dies comes back once there is room; nothing is doubled."""
    root = disk(folder / "disk", "16m")
    again_and_again = RestartPolicy(base=0.2, cap=0.5, max_failures=1000)
    run = make_run(root, [toy("a", "deaf"), toy("b", "deaf", restart=again_and_again)])
    run.start()
    a, b = run.until("a", "ready").pid, run.until("b", "ready").pid
    filler = fill(root)

    def refused() -> bool:
        status = run.service("b")
        if status.state == "ready" and status.pid:  # there was room for a line in the last block
            try:
                os.kill(status.pid, 9)
            except ProcessLookupError:
                pass
        return "No space left" in status.why

    wait_until(refused, what="a start that cannot be journalled")
    assert run.service("a").pid == a and run.service("a").state == "ready"
    whole_lines(run)
    filler.unlink()
    again = run.until("b", "ready")
    assert again.pid != b and run.service("a").pid == a
    assert len([t for t in run.tagged().values() if "/b/" in t]) == 1
    run.kill_backend()
    run.start()
    assert (run.service("a").pid, run.service("b").pid) == (a, again.pid)
    _end(run)


def fills_up_and_the_backend_dies(folder: Path) -> None:
    """What could not be journalled is known from the keeper and the processes themselves."""
    root = disk(folder / "disk", "16m")
    go = folder / "go"
    run = make_run(root, [toy("a", "deaf"), task(go)])
    run.start()
    a, leader = run.until("a", "ready").pid, run.until("task", "ready").pid
    filler = fill(root)
    run.kill_backend()
    go.touch()
    wait_until(lambda: not procfs.alive(leader or 0, None))
    filler.unlink()
    code, out = up("--detach", "--run", run.run_dir)
    assert code in (0, 1), out
    result = run.result()
    assert (result.state, result.exit_code) == ("failed", 1), result
    assert any("exit 7" in e.text for e in run.events()), "the keeper kept the status that it could not write"
    assert not procfs.alive(a or 0, None)
    whole_lines(run)
    no_traceback(run)


def fills_up_and_the_run_ends(folder: Path) -> None:
    """Everything is stopped in order, and the result is written on the full disk, into room that was kept for it."""
    root = disk(folder / "disk", "16m")
    go = folder / "go"
    run = make_run(root, [toy("a", "deaf"), task(go)])
    backend = run.start()
    a, _ = run.until("a", "ready").pid, run.until("task", "ready").pid
    filler = fill(root)
    go.touch()
    wait_until(lambda: not procfs.alive(a or 0, None), what="the stop in order")
    result = run.result()
    assert filler.exists() and not list(run.run_dir.glob("attempt_*/reserve"))
    code, out = command("ls", "--run-root", root, "--json")
    assert (code, json.loads(out)[0]["state"]) == (0, "failed"), out
    assert any("No space left" in e.text for e in run.events() if e.kind == "write")
    assert (result.state, result.exit_code) == ("failed", 1)
    assert result.cause is not None and "exited with code 7" in result.cause.text
    assert not procfs.alive(backend, None) and run.tagged() == {}
    assert [r["k"] for r in whole_lines(run)][-1] == "end"
    assert [e.seq for e in run.events()] == list(range(1, len(run.events()) + 1)), "nothing is missing"
    no_traceback(run)


def fills_up_for_good(folder: Path) -> None:
    """Neither result nor exit status could be written, and the backend was killed: unknown is what is said."""
    root = disk(folder / "disk", "16m")
    go = folder / "go"
    run = make_run(root, [toy("a", "deaf"), task(go)])
    run.start()
    a = run.until("a", "ready").pid
    run.until("task", "ready")
    for reserve in run.run_dir.glob("attempt_*/reserve"):
        reserve.unlink()
    filler = fill(root)
    go.touch()
    wait_until(lambda: not procfs.alive(a or 0, None), what="the stop in order")
    run.kill_backend()
    for pid, tag in run.tagged().items():
        assert tag.endswith("/keeper/0")
        os.kill(pid, 9)
    filler.unlink()
    code, out = up("--no-ui", "--run", run.run_dir)
    assert code == 2 and "Traceback" not in out, (code, out)
    assert "none of its services is left; nothing was started" in out
    code, out = command("stop", "--run", run.run_dir)
    assert code == 0 and "Traceback" not in out, (code, out)
    result = run.result()
    assert result.state == "failed" and result.cause is not None
    assert "exited with code 7" in result.cause.text or "unknown exit" in result.cause.text, result
    wait_until(lambda: run.tagged() == {}, what="the last process")
    no_traceback(run)


def _end(run: ToyRun) -> None:
    run.command("stop")
    assert run.result().exit_code == 0
    whole_lines(run)
    no_traceback(run)
    wait_until(lambda: run.tagged() == {}, what="the last process")


CASES = (
    pid_reuse,
    read_only,
    full,
    full_before_adoption,
    fills_up,
    fills_up_and_the_backend_dies,
    fills_up_and_the_run_ends,
    fills_up_for_good,
)

if __name__ == "__main__":
    name, base = sys.argv[1], Path(sys.argv[2])
    os.environ["XDG_STATE_HOME"] = str(base / "state")
    case = next(c for c in CASES if c.__name__ == name)
    began = time.monotonic()
    try:
        case(base)
    finally:
        for found in base.rglob("plan.json"):
            ToyRun(found.parent).end()
    print(f"{name}: {time.monotonic() - began:.1f} s")
