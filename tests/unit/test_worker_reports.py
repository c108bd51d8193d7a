"""The reports of the sessions in verl's workers, as the backend reads them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from liverl.model import SessionsStatus, SilentSession
from liverl.serving.worker_reports import SKEW_S, WorkerReports, added_up, read_reports


def report(worker: str, **changes: Any) -> dict[str, Any]:
    return {
        "worker": worker,
        "attempt": "attempt_002",
        "started": 100.0,
        "pid": 7,
        "address": f"http://h:{worker}",
        "open": 2,
        "finished": 5,
        "waiting": 1,
        "counters": {"num_calls": 7, "min_global_steps": 3, "max_global_steps": 4, "num_aborts": 1},
        **changes,
    }


def test_the_workers_of_the_present_trainer_are_read_and_nothing_else(tmp_path: Path) -> None:
    files = {
        "1": report("1"),
        "2": report("2", started=99.9),
        "3": report("3", attempt="attempt_001"),
        "replicas": [],
        "settings": {"run_dir": "/r"},
        "4": report("4", open="many"),
    }
    for name, body in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
    (tmp_path / "5.json").write_text("{")
    assert [each.worker for each in read_reports(tmp_path, "attempt_002", 100.0)] == ["1"]
    assert [each.worker for each in read_reports(tmp_path, "attempt_002", 0.0)] == ["1", "2"]
    assert read_reports(tmp_path / "none", "attempt_002", 0.0) == ()


def test_workers_are_added_up(tmp_path: Path) -> None:
    names = [f"{number}" for number in range(3)]
    for name in names:
        low = (
            {"counters": {"num_calls": 1, "min_global_steps": 1, "max_global_steps": 2}}
            if name == "2"
            else {}
        )
        silent = [{"id": f"t{name}.{i}", "since": float(10 * i) - int(name)} for i in range(4)]
        (tmp_path / f"{name}.json").write_text(json.dumps(report(name, silent=silent, **low)))
    status = added_up([each.status for each in read_reports(tmp_path, "attempt_002", 0.0)])
    assert (status.open, status.finished, status.waiting) == (6, 15, 3)
    assert status.counters["num_calls"] == 15 and status.counters["num_aborts"] == 2
    assert (status.counters["min_global_steps"], status.counters["max_global_steps"]) == (1, 4)
    assert status.workers == ("http://h:0", "http://h:1", "http://h:2") and status.address is None
    assert len(status.silent) == 8 and status.silent[0] == SilentSession("t2.0", -2.0)
    alone = added_up([SessionsStatus(address="http://h:0", open=1)])
    assert (alone.address, alone.workers, alone.open) == ("http://h:0", ("http://h:0",), 1)
    nobody = added_up([])
    assert (nobody.address, nobody.workers, nobody.open) == (None, (), 0)


@pytest.mark.parametrize(
    ("trainer", "read"),
    [
        ("its process started at 1000", {"new", "skewed"}),
        ("it has no process", {"new", "skewed", "old"}),
        ("there is none", {"new", "skewed", "old"}),
    ],
)
def test_workers_of_an_earlier_process_of_the_trainer_do_not_count(
    tmp_path: Path, trainer: str, read: set[str]
) -> None:
    """But those of a host whose clock is late do."""
    process = SimpleNamespace(started_at=1000.0) if trainer.endswith("1000") else None
    slots = {"trainer": SimpleNamespace(current=SimpleNamespace(process=process))}
    supervisor: Any = SimpleNamespace(
        run_dir=tmp_path,
        attempt_dir=tmp_path / "attempt_002",
        now=lambda: 1500.0,
        slots={} if trainer == "there is none" else slots,
    )
    (tmp_path / "sessions").mkdir()
    for name, started in (("new", 1001.0), ("skewed", 1000.0 - SKEW_S), ("old", 999.0 - SKEW_S)):
        (tmp_path / "sessions" / f"{name}.json").write_text(json.dumps(report(name, started=started)))
    workers = WorkerReports(supervisor)
    assert workers.status().open == 0
    workers.reader()()()
    status = workers.status()
    assert {address.removeprefix("http://h:") for address in status.workers} == read
    assert status.open == 2 * len(read)
