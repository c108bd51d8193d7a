"""A ``breakpoint()`` in a whole run of verl with ``ray.debug``: the run says that it waits and how to attach, calls it
no stall, and goes on once somebody has attached and continued.

Ray and verl are real, the replica is that for CPUs. LIVERL_TEST_VERL_PYTHON names a Python with verl 0.9.1.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from kit.runs import ToyRun
from kit.verl_runs import RUN, Launch, finished, nothing_lives, result_of, verl_python
from kit.waiting import wait_until

from liverl.model import Breakpoint

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(2400)]

# Stops once in all processes, at the first reward.
REWARD = """
def score(*_args, **_more):
    try:
        open({mark!r}, "x").close()
    except FileExistsError:
        return 1.0
    breakpoint()
    return 1.0
"""


# The rows of the smoke model without the loop that they name.
PLAIN = """
import pandas, pathlib, sys
file = pathlib.Path(sys.argv[1])
pandas.read_parquet(file).drop(columns="agent_name").to_parquet(pathlib.Path(sys.argv[2]) / file.name)
"""


def test_a_breakpoint_waits_until_somebody_attaches(launch: Launch, smoke: Path, tmp_path: Path) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text(REWARD.format(mark=str(tmp_path / "stopped")))
    run = ToyRun(launch.run_dir("stops"))
    sets = ("ray.debug=true", f"reward.function={reward}:score", "infrastructure.ngpus_per_node=1")
    # In loops of ours, which the rows name, tasks have rewards of their own.
    for name in ("train", "val"):
        subprocess.run([str(verl_python()), "-c", PLAIN, smoke / f"{name}.parquet", tmp_path], check=True)
    sets += (f"data.train_index={tmp_path}/train.parquet", f"data.val_index={tmp_path}/val.parquet")
    sets += (f"model.model_path={smoke}/model", "verl.agent_loop=single_turn_agent")
    sets += ("run.topology=in_process", "training.total_steps=1")
    process = launch.up("stops", *sets)

    def waits() -> tuple[Breakpoint, ...]:
        assert process.poll() is None, launch.output("stops").read_text()[-3000:]
        there = (run.run_dir / "attempt_001" / "logs" / "trainer.1.log").exists()
        return run.snapshot().breakpoints if there else ()

    (one,) = wait_until(waits, RUN, "a breakpoint that waits")
    snapshot = run.snapshot()
    print(one)
    assert snapshot.phase == "stopped at a breakpoint; liverl-tui events shows how to attach"
    assert not [symptom for symptom in snapshot.symptoms if "stall" in symptom.id]
    told = [event.text for event in run.events() if event.kind == "breakpoint"]
    assert told == [
        f"{one.process} stopped at a breakpoint ({one.address}); to attach, run on its host: {one.command}"
    ]
    # Its list of one, then the debugger's own command.
    attached = subprocess.run(
        ["/bin/sh", "-c", one.command],
        input="0\nc\n",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    print(attached.stdout[-2000:], attached.stderr[-2000:])
    assert finished(process) == 0, launch.output("stops").read_text()[-3000:]
    assert "no process waits at a breakpoint any more" in [
        event.text for event in run.events() if event.kind == "breakpoint"
    ]
    assert result_of(run.run_dir).state == "done"
    nothing_lives(run.run_dir)
