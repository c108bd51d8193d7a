"""What is asked of a whole run of ``liverl-tui up`` that a fault ends: every place says the same cause, in time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kit.cli import run_cli
from kit.drills import Drill, ended
from kit.runs import ToyRun
from kit.verl_runs import RUN, Launch, ray_directory
from kit.waiting import wait_until
from liverl.control.messages import ControlError
from liverl.diagnose import failures
from liverl.model import Event, Result
from liverl.procs import procfs


def judged(run: ToyRun, drill: Drill, ray: Path | None = None) -> Result:
    """The result of a run that has ended: every place says the same, seconds after the service's end, or where no
    service failed after the run's failure. ``ray``: the directory of Ray, if its logs tell of the fault too: they do of
    processes, and not of exceptions, which Ray gives to the driver."""
    rule, _, service = drill.alert.partition(":")
    end = next(e for e in run.events() if (e.kind == rule == failures.RUN) or _fails(e, service))
    result = ended(run, drill, end.at - 0.5)
    told = of_doctor(run.run_dir)
    said = f"{told['title']} {told['cause']}"
    assert [word for word in drill.cause if word not in said] == [], said
    assert result.cause is not None and told["fix"] == result.cause.fix
    if ray is not None:
        of_doctor(ray)
    return result


def _fails(event: Event, service: str) -> bool:
    ends = event.kind == "state" and event.service == service
    return ends and (event.data or {}).get("state") in ("failed", "gave_up")


def own_ray(run: ToyRun) -> Path:
    """The directory of the run's own Ray."""
    found = ray_directory(run.run_dir)
    assert found is not None
    return Path(found)


def of_doctor(path: Path) -> dict[str, Any]:
    """The cause that doctor tells of a folder."""
    done = run_cli("doctor", path, "--json")
    assert done.returncode == 1, f"{path}: {done.stdout}{done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["cause"] is not None, found["symptoms"]
    first: dict[str, Any] = found["symptoms"][0]
    return first


def stepped(run: ToyRun, launch: Launch, number: int = 1) -> None:
    """Wait until a run has done so many steps."""
    (process,) = launch.processes[-1:]
    output = launch.output(run.run_dir.name)

    def done() -> bool:
        assert process.poll() is None, output.read_text()[-3000:]
        try:
            return (run.snapshot().step or 0) >= number
        except (ControlError, OSError):
            return False

    wait_until(done, RUN, f"{number} steps")


def actor(run: ToyRun, words: str) -> int:
    """The pid of a process of the run whose command line has these words."""
    found = [pid for pid in procfs.scan() if words in procfs.command_line(pid)]
    mine = [pid for pid in found if pid in run.tagged()]
    assert mine, f"of {found} none has the run's tag"
    return mine[0]
