"""Preflight names the run of this user that holds a port: a real process on a real port."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.runs import toy
from msgspec.structs import asdict, replace

from liverl.plan.spec import Plan, PortSpec
from liverl.preflight.ports import port_checks
from liverl.procs import procfs
from liverl.rundir.index import register
from liverl.rundir.layout import own_record, write_backend

LISTEN = """
import socket, sys
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
print(s.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that lives: its backend is this process."""
    path = tmp_path / "runs" / "liverl" / "long"
    path.mkdir(parents=True)
    write_backend(path, own_record(path / "control.sock", "1"))
    return path


@pytest.fixture
def listening(run_dir: Path) -> Iterator[tuple[int, int]]:
    """pid and port of a process with the run's tag."""
    env = {**os.environ, "LIVERL_RUN_DIR": str(run_dir), "LIVERL_RUN": "liverl/long/proxy/1"}
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate("")


def text_of(port: int, kind: str = "proxy", key: str = "infrastructure.litellm_port") -> str:
    spec = replace(toy("p", "sleep"), kind=kind, ports=(PortSpec("http", port, key=key),))
    (check,) = port_checks(Plan("liverl/new", "/r/liverl/new", "managed", (), (spec,), None, 0))
    assert check.status == "fail" and check.patch == {key: "0"}
    ends = {
        True: "end that run, if it is no longer needed: liverl-tui stop --run liverl/long",
        False: f"end the process that holds port {port} if it is yours",
    }
    assert check.fix == f"--set {key}=0 takes any free port; or {ends['by your' in check.text]}"
    return check.text


def test_a_port_of_a_live_run_offers_both_ways(run_dir: Path, listening: tuple[int, int]) -> None:
    pid, port = listening
    register(run_dir)
    assert text_of(port) == (
        f"held by your live run liverl/long (pid {pid}). To show that run: liverl-tui attach liverl/long"
    )
    assert text_of(port, "ray", "infrastructure.ray_port") == text_of(port)


def test_a_port_of_a_run_whose_backend_died(run_dir: Path, listening: tuple[int, int]) -> None:
    register(run_dir)
    record = own_record(run_dir / "control.sock", "1")
    write_backend(run_dir, type(record)(**{**asdict(record), "tick": record.tick + 1}))
    text = text_of(listening[1])
    assert "your run liverl/long" in text and "whose backend has died" in text
    assert "liverl-tui up --run liverl/long" in text and "liverl-tui stop --run liverl/long" in text


def test_what_is_no_run_of_the_index_is_named_as_before(run_dir: Path, listening: tuple[int, int]) -> None:
    pid, port = listening
    held = procfs.port_holder(port)
    assert held is not None and text_of(port) == f"held by {held.words()}", "the tag alone proves nothing"
    other = run_dir.with_name("other")
    other.mkdir()
    write_backend(other, own_record(other / "control.sock", "1"))
    register(other)
    assert f"held by pid {pid} (user " in text_of(port)
