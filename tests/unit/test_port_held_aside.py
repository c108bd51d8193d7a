"""Who holds a port is looked for among all runs of the user: beside the event loop, which has others to serve."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from liverl.plan.spec import PortSpec, ServiceSpec
from liverl.procs.procfs import Holder
from liverl.supervise.keeper.client import KeeperError
from liverl.supervise.services import keeper_manager, prepare
from liverl.supervise.services.instance import Instance


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads in which runs were looked for."""
    threads: list[threading.Thread] = []

    def run_of(_pid: int | None) -> None:
        threads.append(threading.current_thread())

    holder = Holder(7, "x", "nc -l 4000")
    for module in (keeper_manager, prepare):
        monkeypatch.setattr(module, "run_of", run_of)
    monkeypatch.setattr("liverl.procs.procfs.port_holder", lambda _port: holder)
    return threads


async def test_of_a_port_that_the_service_binds(looked: list[threading.Thread], tmp_path: Path) -> None:
    hub: Any = SimpleNamespace(now=lambda: 0.0, run_dir=tmp_path)
    made = Instance(hub, ServiceSpec("a", "task", ("true",), ports=(PortSpec("http", 4000),)))
    with pytest.raises(prepare.PrepareProblem, match="port 4000 is held by"):
        await made._prepare(1)
    assert looked and threading.current_thread() not in looked


async def test_of_a_port_that_the_keeper_binds(looked: list[threading.Thread], tmp_path: Path) -> None:
    records: Any = SimpleNamespace(write_failed=print, warn=print)
    nothing: Any = None
    kept = keeper_manager.KeeperManager("p/r", tmp_path, records, nothing, nothing, nothing)

    async def refuse(*_: Any, **__: Any) -> None:
        raise KeeperError("in use", 98)

    kept.request = refuse  # type: ignore[method-assign]
    with pytest.raises(prepare.PrepareProblem, match="port 4000 is held by"):
        await kept.hold_port("a", PortSpec("http", 4000, held=True))
    assert looked and threading.current_thread() not in looked
