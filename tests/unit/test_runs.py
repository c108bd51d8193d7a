"""Run directories: layout, liveness of a backend, the index, and which run is meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from liverl.model import Result
from liverl.rundir import index, layout, state_home
from liverl.rundir.index import RunLookupError, find_run
from liverl.rundir.layout import DeadBackend, LiveBackend, RemoteBackend, RunDir, backend_alive


@pytest.fixture(autouse=True)
def _state_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def make(root: Path, name: str, *, state: str = "live", **change: object) -> Path:
    """A run directory in one of the states of RunInfo, made from files only."""
    run_dir = root / name
    run_dir.mkdir(parents=True)
    (run_dir / "plan.json").write_text("{}")
    record = {**asdict(layout.own_record(run_dir / "control.sock", "0"))}
    if state != "live":
        record["tick"] += 1  # our pid, of another process
    layout.write_backend(run_dir, layout.BackendRecord(**{**record, **change}))
    if state in ("done", "failed", "stopped"):
        result = Result(state, 0, None, 3, 1.0, 2.0)
        (run_dir / "result.json").write_bytes(msgspec.json.encode(result))
    index.register(run_dir)
    return run_dir


def test_alive_needs_pid_tick_and_boot(tmp_path):
    assert isinstance(backend_alive(make(tmp_path, "p/a")), LiveBackend)
    assert isinstance(backend_alive(make(tmp_path, "p/reused", state="orphaned")), DeadBackend)
    assert isinstance(backend_alive(make(tmp_path, "p/reboot", boot_id="of yesterday")), DeadBackend)
    assert isinstance(backend_alive(make(tmp_path, "p/gone", pid=2**22 + 1)), DeadBackend)
    assert backend_alive(tmp_path / "nowhere") == DeadBackend(None)


def test_a_zombie_is_dead(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    tick = index.procfs.start_tick(child.pid)
    run_dir = make(tmp_path, "p/z", pid=child.pid, tick=tick)
    assert isinstance(backend_alive(run_dir), LiveBackend)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert isinstance(backend_alive(run_dir), DeadBackend)
    child.wait()


def test_another_host_is_judged_by_its_heartbeat(tmp_path):
    run_dir = make(tmp_path, "p/a", host="n17")
    state = backend_alive(run_dir)
    assert isinstance(state, RemoteBackend)
    assert state.host == "n17"
    assert isinstance(backend_alive(run_dir, now=time.time() + 179), RemoteBackend)
    assert isinstance(backend_alive(run_dir, now=time.time() + 181), DeadBackend)
    os.utime(run_dir / "backend.json", (0, 0))
    assert isinstance(backend_alive(run_dir), DeadBackend)
    layout.touch_backend(run_dir)
    assert isinstance(backend_alive(run_dir), RemoteBackend)


@given(
    st.one_of(
        st.binary(max_size=60),
        st.dictionaries(st.text(), st.integers()).map(lambda d: json.dumps(d).encode()),
    )
)
def test_a_broken_record_is_no_backend(tmp_path_factory, data):
    run_dir = tmp_path_factory.mktemp("r")
    (run_dir / "backend.json").write_bytes(data)
    assert backend_alive(run_dir) == DeadBackend(None)


def test_the_index_holds_live_and_orphaned_runs_and_drops_the_rest(tmp_path):
    live = make(tmp_path, "p/live")
    make(tmp_path, "p/orphan", state="orphaned")
    make(tmp_path, "p/done", state="done")
    make(tmp_path, "p/reboot", boot_id="of yesterday")
    removed = make(tmp_path, "p/removed")
    for file in removed.iterdir():
        file.unlink()
    away = make(tmp_path, "p/away", host="n17")
    folder = state_home.index_root() / index.hostname()
    (folder / "broken.json").write_text("{")
    assert {(i.run, i.state) for i in index.indexed_runs()} == {("p/live", "live"), ("p/orphan", "orphaned")}
    assert [i.run for i in index.live_runs()] == ["p/live"]
    left = {json.loads(f.read_text())["run_dir"] for f in folder.glob("*.json") if f.name != "broken.json"}
    assert left == {str(live), str(tmp_path / "p/orphan"), str(away)}
    index.unregister(live)
    index.unregister(live)
    assert index.live_runs() == []


def test_find_the_only_live_run(tmp_path):
    with pytest.raises(RunLookupError, match="no live run on this host, and none under") as none:
        find_run(None, None)
    assert none.value.exit_code == 4
    make(tmp_path, "p/done", state="done")
    with pytest.raises(
        RunLookupError,
        match=r"no live run on this host; newest finished runs.*\n  --run \S+/p/done  \(p/done, done\)",
    ):
        find_run(None, tmp_path)
    orphan = make(tmp_path, "p/orphan", state="orphaned")
    assert find_run(None, None).path == orphan
    live = make(tmp_path, "p/live")
    assert find_run(None, None).path == live
    assert find_run(None, tmp_path).path == live
    make(tmp_path, "q/live")
    with pytest.raises(
        RunLookupError, match=r"2 runs are live on this host; choose one with --run:\n.*\n"
    ) as several:
        find_run(None, None)
    assert several.value.exit_code == 2


def test_a_run_outside_the_index_is_found_by_its_root(tmp_path):
    run_dir = make(tmp_path, "p/a")
    index.unregister(run_dir)
    assert find_run(None, tmp_path).path == run_dir
    with pytest.raises(RunLookupError):
        find_run(None, tmp_path / "other")


def test_find_by_name(tmp_path, monkeypatch):
    one = make(tmp_path, "p/one", state="done")
    two = make(tmp_path, "q/two", state="done")
    make(tmp_path, "q/one", state="done")
    assert find_run(one, None).path == one
    assert find_run(Path("p/one"), tmp_path).path == one
    assert find_run(Path("two"), tmp_path).path == two
    assert find_run(Path("tw"), tmp_path).path == two
    monkeypatch.chdir(tmp_path / "q")
    assert find_run(Path("two"), None).path == two
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunLookupError, match="2 runs are named one") as several:
        find_run(Path("one"), tmp_path)
    assert several.value.exit_code == 2
    with pytest.raises(RunLookupError, match="did you mean q/two"):
        find_run(Path("twoo"), tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunLookupError, match="is not a run directory"):
        find_run(tmp_path / "empty", tmp_path)


def test_runs_on_other_hosts_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "hostname", lambda: "n17")
    run_dir = make(tmp_path, "p/a", host="n17")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert [i.run_dir for i in index.runs_elsewhere()] == [run_dir]
    with pytest.raises(
        RunLookupError, match=f"is running on n17; run: ssh -t n17 'liverl-tui attach --run {run_dir}'"
    ) as away:
        find_run(None, None)
    assert away.value.exit_code == 4


def test_layout(tmp_path):
    run = RunDir(tmp_path / "project" / "name")
    assert run.name == "project/name"
    assert run.attempts() == []
    assert not run.is_run()
    for number in (2, 1, 1000):
        run.logs(number).mkdir(parents=True)
    (run.path / "attempt_x").mkdir()
    assert run.attempts() == [1, 2, 1000]
    assert run.attempt(7).name == "attempt_007"
    assert run.read_result() is None
    run.result.write_text("{")
    assert run.read_result() is None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a b", "ä", "x" * 129, "a\n"])
def test_names_that_cannot_be_directories(name):
    assert not layout.valid_name(name)
    assert layout.valid_name("Run-1.a_b")
