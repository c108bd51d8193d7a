"""Runs of toy services under the real backend daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kit.waiting import PATIENCE_S, wait_until
from liverl.control import blocking
from liverl.control.messages import BackendDead, BackendSilent
from liverl.daemon.launch import start_backend
from liverl.daemon.plan_change import PlanChange
from liverl.model import ConfigChange, Event, Result, ServiceStatus, Snapshot
from liverl.plan.spec import (
    EnvironmentSpec,
    NotifyPlan,
    Plan,
    Probe,
    Probes,
    RestartPolicy,
    ServiceSpec,
    Settings,
    StopStage,
)
from liverl.procs import procfs
from liverl.rundir.layout import RunDir
from liverl.util.atomic_file import write_atomic
from liverl.util.modes import make_directory, new_directory

TOY = Path(__file__).with_name("toy.py")
# A web server on the socket that the run holds; it tells its pid.
WEB = """
import http.server, os, socket
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(str(os.getpid()).encode())
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
server.socket.close()
server.socket = socket.socket(fileno=int(os.environ["LIVERL_LISTEN_FD"]))
server.serve_forever()
"""
QUICK_STOP = (
    StopStage("TERM", "leader", 0.5),
    StopStage("TERM", "tree", 0.3),
    StopStage("KILL", "tree", 3.0),
)
GRACE_S = 10.0  # of a run at the end of its test, before what is left of it is killed
DEAF = Probes(startup=Probe(kind="log_line", pattern="^deaf$", interval=0.05))
QUICK = RestartPolicy(base=0.05, cap=0.2, window=60, max_failures=3)


def toy(name: str, *argv: str, **changes: Any) -> ServiceSpec:
    """A service that runs the toy with these arguments. One that ignores signals is ready when it does."""
    fields: dict[str, Any] = {
        "name": name,
        "kind": "task",
        "argv": (sys.executable, "-S", str(TOY), *argv),
        "probes": DEAF if argv and argv[0] in ("deaf", "deaf-until") else Probes(),
        "restart": QUICK,
        "stop": QUICK_STOP,
        **changes,
    }
    return ServiceSpec(**fields)


@dataclass
class ToyRun:
    """A run directory, and whatever was started for it; ``end`` leaves no process behind."""

    run_dir: Path
    backends: list[int] = field(default_factory=list)

    def start(self, *, env: dict[str, str] | None = None, resume: bool = False) -> int:
        before = dict(os.environ)
        os.environ.update(env or {})
        try:
            pid = start_backend(self.run_dir, resume=resume)
        finally:
            os.environ.clear()
            os.environ.update(before)
        self.backends.append(pid)
        return pid

    def start_to_crash(self, crash_at: str) -> None:
        """Start a backend that kills itself at a named point, and wait until it has."""
        env = {**os.environ, "LIVERL_CRASH_AT": crash_at}
        with open(self.run_dir / "backend.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "liverl.daemon.main", "--run-dir", str(self.run_dir)],
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert process.wait(60) == -signal.SIGKILL

    def kill_backend(self) -> None:
        pid = self.backends[-1]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not procfs.alive(pid, None), what="the backend's end")
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass

    def snapshot(self) -> Snapshot:
        """The state as the backend says it. On a busy machine that may take longer than a client waits for it."""

        def answer() -> Snapshot | None:
            try:
                return blocking.snapshot(self.run_dir)
            except BackendSilent:
                return None

        found = wait_until(answer, what="the backend's answer")
        assert found is not None
        return found

    def service(self, name: str) -> ServiceStatus:
        found = self.snapshot().service(name)
        assert found is not None, f"no service {name}"
        return found

    def command(self, name: str, **args: Any) -> dict[str, Any]:
        return blocking.command(self.run_dir, name, **args)

    def until(
        self, name: str, state: str | Callable[[ServiceStatus], bool], seconds: float = PATIENCE_S
    ) -> ServiceStatus:
        """Wait for a service's state."""

        def look() -> ServiceStatus | None:
            status = self.service(name)
            good = status.state == state if isinstance(state, str) else state(status)
            return status if good else None

        found = wait_until(look, seconds, f"{name}: {state}")
        assert found is not None
        return found

    def result(self, seconds: float = PATIENCE_S) -> Result:
        """Wait for the run's end."""
        found = wait_until(lambda: RunDir(self.run_dir).read_result(), seconds, "result.json")
        assert found is not None
        pid = self.backends[-1] if self.backends else None
        if pid is not None:
            wait_until(lambda: not procfs.alive(pid, None), what="the backend's end")
        if found.exit_code != 75:  # then its keeper stays, with what would not die
            keeper = "/keeper/0"  # which was asked to go, and does so a moment later
            wait_until(
                lambda: not any(tag.endswith(keeper) for tag in self.tagged().values()),
                what="the keeper's end",
            )
        return found

    def events(self) -> list[Event]:
        """Those in the file, once it has all that a living backend has told by now: it writes a moment later."""

        told: Snapshot | None = None

        def all_there() -> bool:
            nonlocal told
            try:
                told = told or blocking.snapshot(self.run_dir)
            except BackendSilent:
                return False
            except BackendDead:
                return True
            found = self._written()
            written = found[-1].seq if found else 0
            return written >= told.seq or not procfs.alive(told.backend.pid, None)

        wait_until(all_there, what="all events in events.jsonl")
        return self._written()

    def _written(self) -> list[Event]:
        lines = (self.run_dir / "events.jsonl").read_bytes().split(b"\n")
        return [msgspec.json.decode(line, type=Event) for line in lines[:-1]]  # the last one may be half

    def tagged(self) -> dict[int, str]:
        """Every process of the run that still shows its tag, by pid."""
        run = f"{self.run_dir.parent.name}/{self.run_dir.name}/"
        found = {}
        for pid, proc in procfs.scan().items():
            tag = procfs.environment_tag(pid)
            place = procfs.environment_tag(pid, b"LIVERL_RUN_DIR")
            ours = place is not None and os.path.realpath(place) == os.path.realpath(self.run_dir)
            if tag and tag.startswith(run) and ours and not proc.zombie:
                found[pid] = tag
        return found

    def backends_alive(self) -> set[int]:
        """The pids of the run's backends. A child of one (it builds an environment) shows its tag too, and is none."""
        tagged = {pid for pid, tag in self.tagged().items() if "/backend/" in tag}
        table = procfs.scan()
        return {pid for pid in tagged if pid in table and table[pid].ppid not in tagged}

    def end(self) -> None:
        """End what this test started, by pid."""
        members: set[int] = set()
        try:
            snapshot = blocking.snapshot(self.run_dir)
            members = {pid for s in snapshot.services for pid in s.members}
            self.command("stop", now=True)
            wait_until(lambda: RunDir(self.run_dir).read_result(), GRACE_S)
        except Exception:
            pass
        # A process that one scan found may have started another one before it died, which writes into the directory
        # that is removed next: scan until nothing of the run is left.
        self._kill({*self.tagged(), *members, *self.backends})
        wait_until(lambda: not self._kill(set(self.tagged())), what="the end of all processes of the run")

    def _kill(self, pids: set[int]) -> bool:
        """Kill those of ``pids`` that live, with all that hangs under them; whether there was any."""
        table = procfs.scan()
        ending = {pid for pid in pids if pid in table and not table[pid].zombie} - {os.getpid()}
        # What shows no sign of the run any more hangs under what does, or under its keeper.
        while under := {p for p, proc in table.items() if proc.ppid in ending and not proc.zombie} - ending:
            ending |= under
        for pid in ending:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        left = [table[pid] for pid in ending]
        wait_until(lambda: not any(procfs.alive(proc.pid, proc.tick) for proc in left), what="their end")
        return bool(ending)


def change_of(run: ToyRun) -> PlanChange:
    """A change for the next attempt: the services get another argument."""
    plan = msgspec.json.decode((run.run_dir / "plan.json").read_bytes(), type=Plan)
    services = tuple(msgspec.structs.replace(spec, argv=(*spec.argv, "600")) for spec in plan.services)
    told = ConfigChange(0, "trainer.x", 1, 2, "--set")
    return PlanChange(
        msgspec.structs.replace(plan, services=services, total_steps=8), "trainer: {x: 2}\n", (told,)
    )


def make_run(
    folder: Path,
    services: Iterable[ServiceSpec],
    *,
    replica: ServiceSpec | None = None,
    replicas: int = 0,
    served_model: str = "",
    environments: tuple[EnvironmentSpec, ...] = (),
    settings: Settings | None = None,
    notify: NotifyPlan | None = None,
    name: str = "toy",
    smoke: tuple[str, ...] = (),
) -> ToyRun:
    """A run directory with a plan of toy services."""
    run_dir = folder / "tests" / name
    make_directory(run_dir.parent)
    new_directory(run_dir)
    plan = Plan(
        run=f"tests/{name}",
        run_dir=str(run_dir),
        topology="managed",
        environments=environments,
        services=tuple(services),
        replica_template=replica,
        expected_replicas=replicas,
        served_model=served_model,
        settings=settings or Settings(scan_interval=0.3, stuck_after=5.0),
        notify=notify or NotifyPlan(),
        smoke=smoke,
    )
    write_atomic(run_dir / "plan.json", msgspec.json.encode(plan))
    return ToyRun(run_dir)
