"""A launch script that only submits its training to a real Ray (``ray job submit --no-wait``). The trainer is a stub
that prints what verl prints (simulated)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import raykit
from kit.ports import free_port
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.rundir.layout import RunDir

pytestmark = [pytest.mark.stack, pytest.mark.slow]

CONFIG = """
run: {{topology: verl, engine: vllm}}
trainer: {{kind: command, command: [bash, go.sh]}}
model: {{model_path: /nowhere/model, served_model_name: policy}}
infrastructure: {{nnodes: 1, ngpus_per_node: 1, litellm_port: {port}, ray_dashboard_port: {dashboard}}}
vllm: {{gen_tp: 1}}
"""
TRAINER = """
import pathlib, time
print("Total training steps: 5", flush=True)
while not pathlib.Path("GO").exists():
    time.sleep(0.2)
for n in range(1, 1 + int(pathlib.Path("GO").read_text())):
    print(f"step:{n} - training/global_step:{n} - critic/score/mean:0.5", flush=True)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[raykit.Cluster]:
    folder = tmp_path / "ray"
    folder.mkdir()
    made = raykit.Cluster(folder)
    try:
        made.wait()
        yield made
    finally:
        made.end()


@pytest.mark.parametrize(("steps", "code", "state"), [(5, 0, "done"), (3, 5, "stopped")])
def test_a_job_of_ray_is_followed_to_its_end(
    cluster: raykit.Cluster, tmp_path: Path, steps: int, code: int, state: str
) -> None:
    (tmp_path / "my.yaml").write_text(CONFIG.format(port=free_port(), dashboard=free_port()))
    (tmp_path / "train.py").write_text(TRAINER.replace("GO", str(tmp_path / "go")))
    submit = f"{raykit.python()} -m ray.scripts.scripts job submit --address {cluster.api} --no-wait"
    (tmp_path / "go.sh").write_text(f"{submit} -- {raykit.python()} {tmp_path}/train.py\n")
    env = {**os.environ, **cluster.env, "LIVERL_RUN__RUN_ROOT": str(tmp_path / "runs")}
    command = [
        sys.executable,
        "-m",
        "liverl_tui",
        "up",
        "--no-ui",
        "--yes",
        "--config",
        "my.yaml",
        "--name",
        "n",
    ]
    command.append("--resume-or-start")

    def up() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
        )

    run = RunDir(tmp_path / "runs" / "liverl" / "n")
    try:
        first = up()
        assert first.returncode == 5, first.stdout + first.stderr
        result = run.read_result()
        assert result is not None and result.job is not None and result.job.address == cluster.api
        assert "only submitted the Ray job" in result.summary
        with (tmp_path / "second.txt").open("w") as out:
            second = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=out, stderr=out)
        said = tmp_path / "second.txt"
        wait_until(lambda: "following the job" in said.read_text(), what="it follows the job")
        (tmp_path / "go").write_text(str(steps))
        assert second.wait(120) == code, said.read_text()
        ended = run.read_result()
        assert ended is not None and (ended.state, ended.attempt, ended.steps) == (state, 1, steps)
        assert "nothing was started" in said.read_text()
    finally:
        if run.path.exists():
            ToyRun(run.path).end()
