"""The two supervisors under one face: ours (a plan of toy services, the real daemon) and ``supervisord``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kit.runs import ToyRun, make_run
from kit.waiting import wait_until
from processes import copies, kill_payloads, payload

from liverl.control.messages import ControlError
from liverl.daemon.launch import LaunchError, start_backend
from liverl.plan.spec import PortSpec, Probe, Probes, RestartPolicy, ServiceSpec, Settings, StopStage
from liverl.procs import procfs
from liverl.rundir.layout import RunDir

SUPERVISOR = "supervisor==4.3.0"  # the version of our notes on peers
GRACE = 1.0  # seconds after SIGTERM, for both

# Each restart is the first of its series, which is immediate.
AT_ONCE = RestartPolicy(mode="always", stable=0.0, window=0.1, max_failures=1000)
STOP = (StopStage("TERM", "leader", GRACE), StopStage("TERM", "tree", GRACE), StopStage("KILL", "tree", 5.0))
DRAIN = (StopStage("USR1", "leader", 10.0), StopStage("KILL", "tree", 5.0))


@dataclass(frozen=True)
class Toy:
    """One payload as a service."""

    name: str
    mode: str
    args: tuple[object, ...] = ()


class Peer(Protocol):
    """A supervisor over toys. ``folder`` holds what the payloads note."""

    title: str
    folder: Path

    def launch(self) -> None:
        """Start the supervisor and return at once."""

    def ready(self) -> None:
        """Wait until every toy runs."""

    def pids(self) -> list[int]:
        """The supervisor's own processes."""

    def kill(self) -> None:
        """SIGKILL to the supervisor, and wait for its end."""

    def ask_stop(self) -> None:
        """Ask that everything end, and return at once."""

    def again(self) -> None:
        """Start the supervisor once more after ``kill``."""

    def restart(self, name: str) -> None:
        """Restart one toy by command; returns when it is done."""

    def generation_ready(self, name: str, after: int) -> None:
        """Wait until another process than ``after`` is up."""

    def ended(self) -> bool:
        """Whether the supervisor has ended after a stop."""

    def close(self) -> None:
        """Leave no process behind."""


class Ours:
    title = "liverl"

    def __init__(self, folder: Path, toys: Sequence[Toy]) -> None:
        self.folder = folder
        self.toys = toys
        folder.mkdir(parents=True)
        services = [self._service(toy) for toy in toys]
        # The settings of a real run: nothing is made quieter or quicker for a benchmark.
        self.run: ToyRun = make_run(folder / "run", services, settings=Settings())

    def _service(self, toy: Toy) -> ServiceSpec:
        fields: dict[str, Any] = {}
        if toy.mode == "serve":
            fields["ports"] = (PortSpec("http", held=True),)
            fields["probes"] = Probes(startup=Probe("log_line", pattern="listening", interval=0.1))
            fields["drain"] = DRAIN
        argv = tuple(payload(toy.mode, self.folder, toy.name, *toy.args))
        return ServiceSpec(
            name=toy.name, kind="task", argv=argv, restart=AT_ONCE, stop=STOP, fatal=False, **fields
        )

    def launch(self) -> None:
        with open(RunDir(self.run.run_dir).backend_log, "ab") as log:
            argv = [sys.executable, "-m", "liverl.daemon.main", "--run-dir", str(self.run.run_dir)]
            process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        self.run.backends.append(process.pid)

    def ready(self) -> None:
        if not self.run.backends:
            self.run.start()

        def look() -> bool:
            try:
                return all(s.state == "ready" for s in self.run.snapshot().services)
            except ControlError:
                return False

        wait_until(look, 30, "every service ready")

    def port(self, name: str) -> int:
        return self.run.service(name).ports["http"]

    def generation_ready(self, name: str, after: int) -> None:
        self.run.until(name, lambda s: s.state == "ready" and s.pid is not None and s.pid != after)

    def pids(self) -> list[int]:
        keeper = self.run.snapshot().backend.keeper_pid
        assert keeper is not None
        return [self.run.backends[-1], keeper]

    def kill(self) -> None:
        self.run.kill_backend()

    def again(self) -> None:
        """The public way to take a run over. A run that has ended meanwhile is no error."""
        try:
            self.run.backends.append(start_backend(self.run.run_dir))
        except LaunchError as error:
            if RunDir(self.run.run_dir).read_result() is None and "has ended" not in str(error):
                raise

    def ask_stop(self) -> None:
        self.run.command("stop")

    def restart(self, name: str) -> None:
        self.run.command("restart", service=name)

    def ended(self) -> bool:
        return RunDir(self.run.run_dir).read_result() is not None and not any(
            procfs.alive(pid, None) for pid in self.run.backends
        )

    def close(self) -> None:
        if not self.ended():
            self.run.end()
        kill_payloads(self.folder)
        _reap(self.run.backends)


class Supervisord:
    """``supervisord`` with its tuned settings: whole groups are signalled, logs are not rotated, and a program
    counts as started at once."""

    title = "supervisord"

    def __init__(self, folder: Path, toys: Sequence[Toy], python: Path) -> None:
        self.folder = folder
        self.toys = toys
        self._python = python
        self._pids: list[int] = []
        folder.mkdir(parents=True)
        self._config = folder / "supervisord.conf"
        # 107 bytes at most
        self._socket = Path("/tmp") / f"sd-{os.getpid()}-{abs(hash(folder)) % 10**8}.sock"
        self._config.write_text("\n".join(self._lines()))

    def _lines(self) -> Iterable[str]:
        yield "[unix_http_server]"
        yield f"file={self._socket}"
        yield "[rpcinterface:supervisor]"
        yield "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface"
        yield "[supervisord]"
        for line in ("nodaemon=true", "logfile_maxbytes=0", f"directory={self.folder}"):
            yield line
        yield f"logfile={self.folder}/supervisord.log"
        yield f"pidfile={self.folder}/supervisord.pid"
        yield "[supervisorctl]"
        yield f"serverurl=unix://{self._socket}"
        for toy in self.toys:
            yield f"[program:{toy.name}]"
            yield f"command={' '.join(payload(toy.mode, self.folder, toy.name, *toy.args))}"
            yield f"stdout_logfile={self.folder}/{toy.name}.log"
            yield f"stopwaitsecs={round(2 * GRACE)}"
            for line in ("autorestart=true", "startsecs=0", "stopasgroup=true", "killasgroup=true"):
                yield line
            for line in ("redirect_stderr=true", "stdout_logfile_maxbytes=0"):
                yield line

    def launch(self) -> None:
        argv = [str(self._python), "-m", "supervisor.supervisord", "-c", str(self._config)]
        self._socket.unlink(missing_ok=True)
        with open(self.folder / "out.log", "ab") as out:
            process = subprocess.Popen(argv, stdout=out, stderr=out, start_new_session=True)
        self._pids.append(process.pid)

    def ready(self) -> None:
        if not self._pids:
            self.launch()
        wait_until(
            lambda: set(copies(self.folder)) >= {t.name for t in self.toys}, 30, "every program running"
        )

    def generation_ready(self, name: str, after: int) -> None:
        wait_until(lambda: copies(self.folder).get(name, [after])[0] != after, what=f"a new {name}")

    def pids(self) -> list[int]:
        return self._pids[-1:]

    def kill(self) -> None:
        os.kill(self._pids[-1], signal.SIGKILL)
        wait_until(lambda: not procfs.alive(self._pids[-1], None), what="the end of supervisord")

    def again(self) -> None:
        self.launch()
        self.ready()

    def ask_stop(self) -> None:
        os.kill(self._pids[-1], signal.SIGTERM)

    def restart(self, name: str) -> None:
        argv = [str(self._python), "-m", "supervisor.supervisorctl", "-c", str(self._config)]
        subprocess.run([*argv, "restart", name], check=True, capture_output=True)

    def ended(self) -> bool:
        return not any(procfs.alive(pid, None) for pid in self._pids)

    def close(self) -> None:
        for pid in self._pids:
            if procfs.alive(pid, None):
                os.kill(pid, signal.SIGKILL)
        kill_payloads(self.folder)
        _reap(self._pids)
        self._socket.unlink(missing_ok=True)


def _reap(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            continue


def supervisord_python() -> Path:
    """The interpreter of a throw-away environment with ``supervisord``, installed there at the first use.

    Raises:
        subprocess.CalledProcessError: it cannot be installed (no network, no such package).
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "liverl-bench"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache / f"{SUPERVISOR.replace('==', '-')}-py{version}"
    python = folder / "bin" / "python"
    marker = folder / "installed"
    if marker.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    uv = shutil.which("uv")
    if uv is not None:
        subprocess.run([uv, "venv", "-q", "-p", sys.executable, str(folder)], check=True)
        subprocess.run([uv, "pip", "install", "-q", "-p", str(python), SUPERVISOR], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", SUPERVISOR], check=True)
    marker.write_text(time.strftime("%Y-%m-%d\n"))
    return python
