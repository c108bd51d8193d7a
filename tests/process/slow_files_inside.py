"""Cases on storage that hangs: ``python slow_files_inside.py CASE FOLDER``. Run by test_slow_files.py."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import yaml
from kit.inside import UNAVAILABLE
from kit.mounts import own_mounts
from kit.runs import ToyRun, make_run, toy
from kit.slow_files import SlowFiles, slow_files
from kit.waiting import wait_until

from liverl.control.blocking import Connection
from liverl.control.messages import NO_EVENTS
from liverl.offline.stop import stop_run
from liverl.plan.spec import Dependency, PortSpec
from liverl.procs import procfs


@contextmanager
def running(folder: Path, *, replicas: int = 0, start: bool = True) -> Iterator[tuple[ToyRun, SlowFiles]]:
    """A run of two toys, one of them in the proxy's place if there are ``replicas``, on slow files."""
    try:
        own_mounts()
        place = slow_files(folder, folder / "disk")
        files = place.__enter__()
    except OSError:
        sys.exit(UNAVAILABLE)
    waits = (Dependency("all_ready", "replica", replicas),) if replicas else ()
    last = toy("proxy", "sleep", kind="proxy", depends_on=waits) if replicas else toy("b", "sleep")
    replica = toy("replica-{index}", "http", "{port:http}", kind="replica", ports=(PortSpec("http"),))
    run = make_run(
        files.place, [toy("a", "sleep"), last], replica=replica, replicas=replicas, served_model="m"
    )
    try:
        if start:
            run.start()
            for name in ("a", last.name):
                run.until(name, "ready")
        yield run, files
    finally:
        files.quick()
        run.end()
        place.__exit__(None, None, None)


def report(folder: Path) -> None:
    """The trainer's report cannot be read: the backend answers, names it, and stops the run."""
    with running(folder) as (run, files):
        (run.run_dir / "trainer.json").write_text("{}")
        files.slow({"stat": None}, "/trainer.json")
        path = "reports of trainer and proxy"
        wait_until(lambda: path in {f.path for f in run.snapshot().unreadable}, what="the fact")
        files.quick()
        wait_until(lambda: not run.snapshot().unreadable, what="the end of the fact")
        files.slow({"stat": None}, "/trainer.json")
        result = stop_run(run.run_dir)
        assert result is not None and result.state == "stopped", result


def files_of_a_start(folder: Path) -> None:
    """A start whose log cannot be looked at: the backend answers meanwhile, and the start goes on afterwards."""
    with running(folder) as (run, files), Connection(run.run_dir) as connection:
        files.slow({"stat": None}, "/logs/a.2.log")
        connection.command("restart", {"service": "a"}, wait=False)
        wait_until(lambda: _state(connection, "a") == "preparing", what="the start")
        for _ in range(20):  # it stays there, and each answer comes
            assert _state(connection, "a") == "preparing"
        files.quick()
        run.until("a", lambda s: s.generation == 2 and s.state == "ready")


def list_of_replicas(folder: Path) -> None:
    _hanging_list(folder, "replicas.json")


def list_of_the_proxy(folder: Path) -> None:
    _hanging_list(folder, "proxy/litellm.yaml")


def _hanging_list(folder: Path, name: str) -> None:
    """A list of the replicas cannot be written: the backend answers, restarts a replica, names the file, writes the
    newest list when it can, and stops the run."""
    with running(folder, replicas=2) as (run, files):
        path = run.run_dir / name
        wait_until(lambda: len(_listed(path)) == 2, what="the list of both")
        before = _listed(path)
        files.slow({"fsync": None}, path.name)
        _replica_restarts(run, 2)
        assert _listed(path) == before, "it cannot be written"
        wait_until(
            lambda: [e for e in run.events() if e.kind == "storage" and str(path) in e.text], what="the event"
        )
        files.quick()
        wait_until(lambda: len(_listed(path)) == 2 and _listed(path) != before, what="the newest list")
        files.slow({"fsync": None}, path.name)
        _replica_restarts(run, 3)
        result = stop_run(run.run_dir)
        assert result is not None and result.state == "stopped", result


def _replica_restarts(run: ToyRun, generation: int) -> None:
    pid = run.service("replica-0").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    run.until("replica-0", lambda s: s.generation == generation and s.state == "ready")
    wait_until(lambda: len([r for r in run.snapshot().replicas.items if r.listed]) == 2, what="both listed")


def _listed(path: Path) -> list[str]:
    """The addresses of the replicas in either list."""
    text = path.read_text()
    if path.suffix == ".json":
        return sorted(
            replica["url"] for replica in json.loads(text)["replicas"] if replica["state"] == "listed"
        )
    models = yaml.safe_load(text)["model_list"]
    return sorted({model["model_info"]["liverl_backend"] for model in models})


def record_of_the_keeper(folder: Path) -> None:
    """A new keeper is not waited for by anything, although its record cannot be written."""
    with running(folder) as (run, files):
        files.slow({"fsync": None}, "keeper.json")
        before = run.snapshot().backend.keeper_pid
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: run.snapshot().backend.keeper_pid != before, what="the new keeper")
        result = stop_run(run.run_dir)
        assert result is not None and result.state == "stopped", result


def index_of_runs(folder: Path) -> None:
    """The backend of a run that has ended exits, although it cannot be removed from the index."""
    os.environ["XDG_STATE_HOME"] = str(folder / "disk" / "state")
    with running(folder) as (run, files):
        files.slow({"unlink": None}, "/index/")
        result = stop_run(run.run_dir)
        assert result is not None and result.state == "stopped", result
        backend = run.backends[-1]
        wait_until(lambda: not procfs.alive(backend, None), what="the end of the backend")
        assert "did not answer within 5 s" in (run.run_dir / "backend.log").read_text()


def lists_of_a_start(folder: Path) -> None:
    """The proxy is started when the list that it reads has been written."""
    with running(folder, replicas=2, start=False) as (run, files):
        files.slow({"fsync": None}, "litellm.yaml")
        run.start()
        run.until("replica-1", "ready")
        run.until("proxy", lambda s: s.state == "waiting" and "litellm.yaml to be written" in s.why)
        files.quick()
        run.until("proxy", "ready")
        assert len(_listed(run.run_dir / "proxy/litellm.yaml")) == 2


def _state(connection: Connection, name: str) -> str:
    service = connection.snapshot(timeout=60).service(name)
    assert service is not None
    return service.state


def last_state(folder: Path) -> None:
    """The last state cannot be written: the run ends with its result, and says so to its clients."""
    with running(folder) as (run, files), Connection(run.run_dir) as connection:
        connection.subscribe(NO_EVENTS, snapshots=True)
        files.slow({"write": None}, "snapshot.json")
        connection.command("stop", {}, wait=False)

        def over() -> bool:
            message = connection.read(1.0)
            return message is not None and message.bye is not None

        wait_until(over, what="the end")
        assert (run.run_dir / "result.json").exists()


def exit_statuses(folder: Path) -> None:
    """A keeper that waits for the disk reports an exit late: no process is said to live on."""
    with running(folder) as (run, files):
        files.slow({"write": 9.0}, "/exits")
        result = stop_run(run.run_dir)
        assert result is not None and (result.exit_code, result.state) == (0, "stopped"), result


if __name__ == "__main__":
    os.environ["XDG_STATE_HOME"] = str(Path(sys.argv[2]) / "state")
    globals()[sys.argv[1]](Path(sys.argv[2]))
