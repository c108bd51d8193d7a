"""Cases on storage that hangs: ``python slow_files_inside.py CASE FOLDER``. Run by test_slow_files.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kit.runs import ToyRun, make_run, toy
from kit.slow_files import SlowFiles, own_mounts, slow_files
from kit.waiting import wait_until

from liverl.control.blocking import Connection
from liverl.control.messages import NO_EVENTS
from liverl.offline.stop import stop_run

UNAVAILABLE = 77  # exit code: no mounts or no FUSE here


@contextmanager
def running(folder: Path) -> Iterator[tuple[ToyRun, SlowFiles]]:
    try:
        own_mounts()
        place = slow_files(folder, folder / "disk")
        files = place.__enter__()
    except OSError:
        sys.exit(UNAVAILABLE)
    run = make_run(files.place, [toy("a", "sleep"), toy("b", "sleep")])
    try:
        run.start()
        for name in ("a", "b"):
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
        wait_until(lambda: path in {f.path for f in run.snapshot().unreadable}, 40, "the fact")
        files.quick()
        wait_until(lambda: not run.snapshot().unreadable, 40, "the end of the fact")
        files.slow({"stat": None}, "/trainer.json")
        result = stop_run(run.run_dir)
        assert result is not None and result.state == "stopped", result


def files_of_a_start(folder: Path) -> None:
    """A start whose log cannot be looked at: the backend answers meanwhile, and the start goes on afterwards."""
    with running(folder) as (run, files), Connection(run.run_dir) as connection:
        files.slow({"stat": None}, "/logs/a.2.log")
        connection.command("restart", {"service": "a"}, wait=False)
        wait_until(lambda: _state(connection, "a") == "preparing", 20, "the start")
        for _ in range(20):  # it stays there, and each answer comes
            assert _state(connection, "a") == "preparing"
        files.quick()
        run.until("a", lambda s: s.generation == 2 and s.state == "ready")


def _state(connection: Connection, name: str) -> str:
    service = connection.snapshot(timeout=20).service(name)
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

        wait_until(over, 60, "the end")
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
