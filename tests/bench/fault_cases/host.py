"""Storage that is slow or hangs, too few processes, and containers that can be written in few places.

All need root: mounts in a namespace of their own, FUSE, and another user, for whom limits of processes hold.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from kit.cli import run_cli
from kit.mounts import MS_BIND, MS_RDONLY, MS_REC, MS_REMOUNT, fill, mount, own_mounts
from kit.runs import ToyRun, toy
from kit.slow_files import SlowFiles, slow_files
from kit.waiting import wait_until

from fault_cases.base import Case, Outcome
from fault_cases.toys import (
    SERVICES,
    backend,
    judged,
    kill,
    leaders,
    stopped,
    toy_run,
    until_ready,
)
from fault_cases.toys import named as named_after
from liverl.control.messages import ControlError
from liverl.daemon.launch import LaunchError
from liverl.exit_codes import ExitCode
from liverl.plan.spec import Dependency, PortSpec, ServiceSpec

SLOW = 5.0  # seconds of a request
TRIALS, LOG, REPORT = "tests/toy/trials", "/logs/s0.1.log", "/trainer.json"
Delays = dict[str, float | str | None]
STATE_FILES = ("events.jsonl", "journal.jsonl", "snapshot.json", "members.json", "history.jsonl")


def cases() -> Iterator[Case]:
    """Slow and hanging storage, limits of processes, read-only places."""
    for name in ("read", "readdir", "write", "fsync", "statfs"):
        yield Case(f"run directory: each {name} takes 5 s", partial(_slow, {name: SLOW}, ""))
    yield Case("run directory: each stat of a report takes 5 s", partial(_slow, {"stat": SLOW}, REPORT))
    yield Case("run directory: all takes half a second, at the start", partial(_slow_start, 0.5))
    yield Case("run directory: each read takes 5 s, at the start", _slow_reads_at_the_start)
    for operation in ("read", "readdir", "stat", "open"):
        yield Case(f"trials: each {operation} takes 5 s", partial(_slow, {operation: SLOW}, TRIALS))
    for operation in ("opendir", "stat", "read"):
        yield Case(f"trials: each {operation} hangs", partial(_hangs, {operation: None}, TRIALS, "trials"))
    yield Case("a log: each read takes 5 s", partial(_slow, {"read": SLOW}, LOG))
    yield Case("a log: each read hangs", partial(_hangs, {"read": None}, LOG, None))
    yield Case("a report: each request hangs", partial(_hangs, {"stat": None}, REPORT, "reports"))
    for name in STATE_FILES:
        yield Case(f"{name}: each write hangs, and ends later", partial(_hangs_for_a_while, name))
    for name in ("replicas.json", "litellm.yaml"):
        yield Case(f"{name}: each fsync hangs", partial(_hanging_list, name))
    yield Case("config file: each read takes 5 s", _slow_config)
    yield Case("the file system of the run ends", _gone)
    for limit in (1, 2, 3, 4, 6, 8, 12):
        yield Case(f"limit of processes and threads: {limit}", partial(_processes, limit))
    yield Case("limit of processes: a service cannot fork its workers", _workers)
    for name, place in READ_ONLY.items():
        yield Case(f"read-only: {name}", partial(_read_only, place))
    yield Case("read-only: the run root", _read_only_root)
    yield Case("read-only while it runs: the run directory", _remounted)
    yield Case("full while it runs: the run directory", _filled)
    for name, options in {"of one page": "size=4k", "missing": ""}.items():
        yield Case(f"/dev/shm: {name}", partial(_shared_memory, options))
    yield Case("/proc with hidepid=2, as another user", _hidepid)


# --- slow files


def _ask(run: ToyRun) -> None:
    """``status`` must answer, live."""
    answer = run_cli("status", "--run", run.run_dir, seconds=60)
    assert answer.returncode == 0 and "is not responding" not in answer.stdout, answer.stdout + answer.stderr


def _on_slow(
    folder: Path,
    fault: Callable[[ToyRun, SlowFiles], Outcome],
    *,
    start: bool = True,
    services: tuple[ServiceSpec, ...] = SERVICES,
    replica: ServiceSpec | None = None,
) -> Outcome:
    own_mounts()
    (folder / "state").mkdir()
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    with (
        slow_files(folder, folder / "disk") as files,
        toy_run(files.place, services, start=start, replica=replica) as run,
    ):
        try:
            if start:
                _trial(run)
            return fault(run, files)
        finally:
            files.quick()


def _trial(run: ToyRun) -> None:
    trial = run.run_dir / "trials" / "step_0001" / "t1"
    trial.mkdir(parents=True)
    (trial / "result.json").write_text('{"verifier_result": {"rewards": {"reward": 1.0}}}')
    (run.run_dir / "trainer.json").write_text("{}")


def _slow(delays: Delays, within: str, folder: Path) -> Outcome:
    def fault(run: ToyRun, files: SlowFiles) -> Outcome:
        files.slow(delays, within)
        _ask(run)
        return stopped(run, judged(run))

    return _on_slow(folder, fault)


def _slow_start(seconds: float, folder: Path) -> Outcome:
    def fault(run: ToyRun, files: SlowFiles) -> Outcome:
        files.slow(dict.fromkeys(("read", "write", "fsync", "readdir", "create", "rename"), seconds))
        run.start()
        until_ready(run)
        _ask(run)
        return stopped(run, judged(run), now=True)

    return _on_slow(folder, fault, start=False)


def _slow_reads_at_the_start(folder: Path) -> Outcome:
    """The start works, or is given up with a sentence; then it works when the storage does."""

    def fault(run: ToyRun, files: SlowFiles) -> Outcome:
        files.slow({"read": SLOW})
        try:
            run.start()
        except LaunchError as error:
            assert "timed out after" in str(error), error
            files.quick()
            run_cli("up", "--detach", "--run", run.run_dir)
        files.quick()
        until_ready(run)
        return stopped(run, judged(run))

    return _on_slow(folder, fault, start=False)


def _hangs(delays: Delays, within: str, what: str | None, folder: Path) -> Outcome:
    """A reader that hangs for ever is named (``what``; None: nothing reads), and all else goes on, also the stop."""

    def fault(run: ToyRun, files: SlowFiles) -> Outcome:
        files.slow(delays, within)
        began, named = time.monotonic(), None
        _ask(run)
        if what is not None:
            start = what
            wait_until(lambda: any(f.path.startswith(start) for f in run.snapshot().unreadable), 50, what)
            named = time.monotonic() - began
        assert run.command("restart", service="s1")["generation"] == 2
        outcome = stopped(run, judged(run))
        return replace(outcome, named_s=named)

    return _on_slow(folder, fault)


def _hangs_for_a_while(name: str, folder: Path) -> Outcome:
    """Writes of one file hang: the run answers, and nothing is lost or doubled when they go on."""

    def fault(run: ToyRun, files: SlowFiles) -> Outcome:
        files.slow({"write": None, "fsync": None}, name)
        _ask(run)
        victim = leaders(run)["s0"][0]
        kill(victim)
        if name != "journal.jsonl":  # nothing is started before the journal has it
            wait_until(lambda: run.service("s0").generation == 2, 30, "the restart")
        _ask(run)
        files.quick()
        return stopped(run, judged(run))

    return _on_slow(folder, fault)


def _hanging_list(name: str, folder: Path) -> Outcome:
    """A list of the replicas cannot be written: it is named, the replica that was killed comes back, and the run stops
    while it still hangs."""
    replica = toy("replica-{index}", "http", "{port:http}", kind="replica", ports=(PortSpec("http"),))
    proxy = toy("proxy", "sleep", kind="proxy", depends_on=(Dependency("all_ready", "replica", 1),))

    def fault(run: ToyRun, files: SlowFiles) -> Outcome:
        files.slow({"fsync": None}, name)
        began = time.time()
        kill(leaders(run)["replica-0"][0])
        run.until("replica-0", lambda s: s.generation == 2 and s.state == "ready", 30)
        _ask(run)
        found = partial(named_after, run, began, lambda event: event.kind == "storage" and name in event.text)
        outcome = replace(judged(run), named_s=wait_until(found, 30, "the event"))
        return stopped(run, outcome)

    return _on_slow(folder, fault, services=(*SERVICES, proxy), replica=replica)


def _slow_config(folder: Path) -> Outcome:
    own_mounts()
    with slow_files(folder, folder / "disk") as files:
        config = files.place / "run.yaml"
        config.write_text("training:\n  total_steps: 3\n")
        files.slow({"read": SLOW})
        answer = run_cli("plan", "--config", config, seconds=60)
        assert answer.returncode == 0, answer.stderr
        config.write_text("training:\n  total_steps: many\n")
        answer = run_cli("plan", "--config", config, seconds=60)
        assert answer.returncode == ExitCode.USAGE and "run.yaml" in answer.stderr, answer.stderr
    return Outcome()


def _gone(folder: Path) -> Outcome:
    """The file system ends: each request of it fails. No process stays behind."""

    def fault(run: ToyRun, files: SlowFiles) -> Outcome:
        pids = {pid for found in leaders(run).values() for pid in found} | {backend(run)}
        files.process.kill()
        files.process.wait()
        os.kill(backend(run), 15)
        wait_until(lambda: not any(map(_alive, pids)), 75, "the end of the run")
        return Outcome()

    return _on_slow(folder, fault)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- another user


class _Other:
    """The run of another user, who may read all files (the interpreter may lie where only root can), and nothing
    else. Its processes are the only ones of this user."""

    def __init__(self, run: ToyRun, folder: Path) -> None:
        self.run, self.uid = run, 50_000 + os.getpid() % 10_000
        self._home = folder / "home"
        self._home.mkdir()
        folder.chmod(0o755)
        for path in (self._home, run.run_dir.parent, run.run_dir, *run.run_dir.rglob("*")):
            os.chown(path, self.uid, self.uid)

    def command(self, *args: object, processes: int = 4096) -> subprocess.CompletedProcess[str]:
        """One of our commands as this user, who may have so many processes and threads."""
        caps = "-all,+dac_read_search"
        argv = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        argv += [f"--inh-caps={caps}", f"--ambient-caps={caps}", "prlimit", f"--nproc={processes}:4096"]
        command = (*argv, sys.executable, "-m", "liverl_tui.cli.main")
        home = str(self._home)
        answer = run_cli(*args, command=command, seconds=80, HOME=home, XDG_STATE_HOME=home, TMPDIR=home)
        assert "Traceback" not in answer.stdout + answer.stderr, answer.stderr
        return answer

    def up(self, processes: int = 4096) -> subprocess.CompletedProcess[str]:
        """``up --detach``."""
        return self.command("up", "--detach", "--run", self.run.run_dir, processes=processes)

    def stop(self) -> Outcome:
        """How the run stands, and ``stop --now``."""
        outcome = judged(self.run)
        answer = self.command("stop", "--now", "--run", self.run.run_dir)
        left = sorted(self.run.tagged().values())
        unstoppable = int(answer.returncode != 0 or bool(left))
        return replace(outcome, unstoppable=unstoppable, note=answer.stderr if unstoppable else "")


def _processes(limit: int, folder: Path) -> Outcome:
    """The run starts, or says why not; with more processes it starts."""
    with toy_run(folder, SERVICES, start=False) as run:
        other = _Other(run, folder)
        answer = other.up(limit)
        log = run.run_dir / "backend.log"
        assert not log.exists() or "Traceback" not in log.read_text(), log.read_text()[-600:]
        named = None
        if answer.returncode:
            told = answer.stderr.strip().splitlines()
            assert told and "processes" in answer.stderr, f"rc {answer.returncode}: {answer.stderr}"
            named = 0.0
            other.command("stop", "--now", "--run", run.run_dir)
            assert not run.tagged(), run.tagged()
            assert other.command("up", "--detach", "--resume", "--run", run.run_dir).returncode == 0
        elif not _ready_within(run, 5):
            # It was started, and the services were not: each says why, and the run can be stopped.
            other.command("stop", "--now", "--run", run.run_dir, processes=limit + 4)
            wait_until(lambda: not run.tagged(), 30, "the end of the run")
            assert other.command("up", "--detach", "--resume", "--run", run.run_dir).returncode == 0
        outcome = other.stop()
        return replace(outcome, named_s=named)


def _ready_within(run: ToyRun, seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        try:
            if all(s.state == "ready" for s in run.snapshot().services):
                return True
        except ControlError:
            pass
        time.sleep(0.1)
    return False


WORKERS = """
import os, sys, time
for _ in range(60):
    if os.fork() == 0:
        time.sleep(3600)
print("up", flush=True)
time.sleep(3600)
"""


def _workers(folder: Path) -> Outcome:
    """A service that cannot fork fails by name, and is stopped with the workers that it has."""
    forking = toy("forking", argv=(sys.executable, "-c", WORKERS), fatal=False)
    with toy_run(folder, (*SERVICES, forking), start=False) as run:
        other = _Other(run, folder)
        assert other.up(50).returncode == 0
        began = time.monotonic()

        def told() -> bool:
            return any(
                "No further process could be started" in e.text
                for e in run.events()
                if e.service == "forking"
            )

        wait_until(told, 40, "the reason")
        named = time.monotonic() - began
        answer = other.command("stop", "--now", "--run", run.run_dir)
        left = sorted(run.tagged().values())
        return Outcome(
            unstoppable=int(answer.returncode != 0 or bool(left)), named_s=named, note=answer.stderr
        )


def _hidepid(folder: Path) -> Outcome:
    """Another user sees only processes of its own."""
    own_mounts()
    mount("proc", "/proc", "proc", 0, "hidepid=2")
    with toy_run(folder, SERVICES, start=False) as run:
        other = _Other(run, folder)
        answer = other.up()
        assert answer.returncode == 0, answer.stderr
        until_ready(run)
        kill(next(pid for pid, tag in run.tagged().items() if tag.endswith("/backend/0")))
        assert other.up().returncode == 0
        return other.stop()


# --- places that cannot be written


def _bind_read_only(place: Path) -> None:
    mount(str(place), str(place), "none", MS_BIND)
    mount("none", str(place), "none", MS_BIND | MS_REMOUNT | MS_RDONLY)


def _container(folder: Path) -> Path:
    """Make the whole machine read-only but for the folder that is returned."""
    own_mounts()
    writable = folder / "writable"
    writable.mkdir()
    mount("tmpfs", str(writable), "tmpfs", 0, "size=64m")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    return writable


def _all(writable: Path) -> None:
    kept = str(writable.parent.parent)  # the report of this case is written there
    mount(kept, kept, "none", MS_BIND | MS_REC)
    for place in ("/", "/dev/shm"):
        mount("none", place, "none", MS_BIND | MS_REMOUNT | MS_RDONLY)


def _home(writable: Path) -> None:
    home = writable / "home"
    home.mkdir()
    _bind_read_only(home)
    os.environ["HOME"] = str(home)
    del os.environ["XDG_STATE_HOME"]


def _state(writable: Path) -> None:
    state = writable / "state"
    state.mkdir()
    _bind_read_only(state)
    os.environ["XDG_STATE_HOME"] = str(state)


def _temporary(writable: Path) -> None:
    place = writable / "tmp"
    place.mkdir()
    _bind_read_only(place)
    os.environ["TMPDIR"] = str(place)


READ_ONLY: dict[str, Callable[[Path], None]] = {
    "all but the run root": _all,
    "HOME": _home,
    "the state home": _state,
    "the directory of temporary files": _temporary,
}


def _read_only(close: Callable[[Path], None], folder: Path) -> Outcome:
    """The run starts, outlives its backend, and stops."""
    writable = _container(folder)
    close(writable)
    with toy_run(writable, SERVICES) as run:
        kill(backend(run))
        run.start()
        _ask(run)
        return stopped(run, judged(run))


def _read_only_root(folder: Path) -> Outcome:
    """``up`` refuses at once, and says what cannot be written."""
    own_mounts()
    root = folder / "root"
    root.mkdir()
    _bind_read_only(root)
    began = time.monotonic()
    answer = run_cli("up", "--detach", "--run-root", root, seconds=60)
    named = time.monotonic() - began
    told = answer.stdout + answer.stderr
    assert answer.returncode == ExitCode.PREFLIGHT and f"{root} is not writable" in told, told
    assert "Traceback" not in told, told
    return Outcome(named_s=named)


def _disk(run: ToyRun, fault: Callable[[], object]) -> Outcome:
    """Let each write of the run fail, kill a service, look, and stop the run."""
    leader = wait_until(lambda: leaders(run).get("s0"), 10, f"the leader of s0 among {run.tagged()}")[0]
    fault()
    began = time.monotonic()
    kill(leader)
    wait_until(lambda: _write_error(run), 30, "the write error")
    named = time.monotonic() - began
    _ask(run)
    run.command("stop", now=True)
    wait_until(
        lambda: not [t for t in run.tagged().values() if not t.endswith("/0")], 30, "the services' end"
    )
    return Outcome(named_s=named)


def _write_error(run: ToyRun) -> bool:
    from liverl.control.blocking import Connection
    from liverl.control.messages import Cursor

    with Connection(run.run_dir) as connection:
        return any(event.kind == "write" for event in connection.events_after(Cursor(0)))


def _remounted(folder: Path) -> Outcome:
    """Each write fails from now on, and a stop ends the processes all the same."""

    def fault(run: ToyRun, files: SlowFiles) -> Outcome:
        changes = ("write", "create", "mkdir", "unlink", "rename", "setattr", "mknod")
        return _disk(run, lambda: files.slow(dict.fromkeys(changes, "EROFS")))

    return _on_slow(folder, fault)


def _filled(folder: Path) -> Outcome:
    writable = _container(folder)
    with toy_run(writable, SERVICES) as run:
        return _disk(run, lambda: fill(writable))


def _shared_memory(options: str, folder: Path) -> Outcome:
    own_mounts()
    if options:
        mount("tmpfs", "/dev/shm", "tmpfs", 0, options)
    else:
        devices = folder / "dev"
        devices.mkdir()
        mount("tmpfs", str(devices), "tmpfs", 0, "size=64k")
        for name in ("null", "zero", "urandom", "random", "tty", "ptmx", "fuse"):
            (devices / name).touch()
            mount(f"/dev/{name}", str(devices / name), "none", MS_BIND)
        mount(str(devices), "/dev", "none", MS_BIND | MS_REC)
        assert not os.path.exists("/dev/shm")
    with toy_run(folder, SERVICES) as run:
        kill(backend(run))
        run.start()
        return stopped(run, judged(run))
