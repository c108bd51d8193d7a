"""A run of the embedded default's configuration whose trainer waits for a gate, so that things can change before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kit.real import real_run
from kit.runs import ToyRun, toy
from liverl.model import Check
from liverl.plan.spec import Dependency, Plan, PortSpec
from liverl.preflight import record
from liverl.rundir.layout import RunDir
from liverl.util.atomic_file import write_atomic

OPEN = "open"  # the name of the file that opens the gate
FIRST = (Check("run directory", "ok", "70 GiB free", "run-directory"),)


def change_plan(run: ToyRun, **changes: Any) -> Plan:
    plan = msgspec.json.decode((run.run_dir / "plan.json").read_bytes(), type=Plan)
    plan = msgspec.structs.replace(plan, **changes)
    write_atomic(run.run_dir / "plan.json", msgspec.json.encode(plan))
    return plan


def gated(folder: Path, port: int = 0, *sets: str, embedded: bool = False) -> ToyRun:
    """The run, checked and not started. Its trainer has ``port``, if it is not 0, and ends with 0. ``embedded``: with
    all services of the embedded default and its own trainer."""
    run = real_run(folder, *sets)
    gate = toy("gate", "exit-when", "0", OPEN)
    ports = (PortSpec("own", port),) if port else ()
    own = change_plan(run).services if embedded else (toy("trainer", "exit", "0", kind="trainer"),)
    after = Dependency("exited_0", "gate")
    services = tuple(
        msgspec.structs.replace(
            spec, ports=(*spec.ports, *ports), depends_on=(*spec.depends_on, after), ends_run=True, fatal=True
        )
        if spec.kind == "trainer"
        else spec
        for spec in own
    )
    changes = {} if embedded else {"replica_template": None, "expected_replicas": 0}
    change_plan(run, services=(gate, *services), **changes)
    record.write(RunDir(run.run_dir), FIRST)
    return run


def open_gate(run: ToyRun) -> None:
    (run.run_dir / OPEN).touch()
