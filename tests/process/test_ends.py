"""Launch scripts that end with exit code 0, under the real command line: what is said, the exit code, and what
``--resume-or-start`` does then. The scripts are real and print what trainers print; Ray's interface for jobs is
simulated here (``tests/stack/test_ray_job.py`` has a real one)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from kit.ports import free_port
from kit.runs import ToyRun

from liverl.model import Result
from liverl.rundir.layout import RunDir

pytestmark = pytest.mark.first

CONFIG = """
run: {{topology: verl, engine: vllm}}
trainer: {{kind: command, command: [bash, go.sh]}}
model: {{model_path: org/model, served_model_name: policy}}
infrastructure: {{nnodes: 1, ngpus_per_node: 1, litellm_port: {port}}}
vllm: {{gen_tp: 1}}
"""
STEPS = """
steps() {
  for n in $(seq $1 $2); do echo "step:$n - training/global_step:$n - critic/score/mean:0.25 - timing_s/step:0.1"; done
}
"""
FAULT = "ValueError: response_mask must contain at least one valid token (1)"


class Launch:
    """One launch script in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "my.yaml").write_text(CONFIG.format(port=free_port()))

    def script(self, text: str) -> None:
        (self.folder / "go.sh").write_text(STEPS + text)

    def up(self, *more: str) -> subprocess.CompletedProcess[str]:
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
        return subprocess.run(
            [*command, "--resume-or-start", *more],
            env={**os.environ, "LIVERL_RUN__RUN_ROOT": str(self.folder / "runs")},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    @property
    def run(self) -> RunDir:
        return RunDir(self.folder / "runs" / "liverl" / "n")

    @property
    def result(self) -> Result:
        found = self.run.read_result()
        assert found is not None
        return found


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    made = Launch(tmp_path)
    yield made
    if made.run.path.exists():
        ToyRun(made.run.path).end()


def test_a_quiet_end_is_resumed_until_all_steps_are_done(launch: Launch) -> None:
    launch.script(
        """
        echo "Total training steps: 5"
        if [ -e began ]; then echo "Setting global step to 3"; steps 4 5; else touch began; steps 1 3; fi
        """
    )
    first = launch.up()
    assert first.returncode == 5, first.stdout + first.stderr
    assert "training has not completed: the trainer ended without an error after step 3 of 5" in first.stdout
    assert "to resume: liverl-tui up --resume liverl/n" in first.stdout
    assert (launch.result.state, launch.result.steps, launch.result.total_steps, launch.result.made) == (
        *("stopped", 3, 5, 3),
    )
    second = launch.up()
    assert (second.returncode, launch.result.state) == (0, "done"), second.stdout
    assert (launch.result.steps, launch.result.made, launch.result.resume) == (5, 2, None)
    third = launch.up()
    assert (third.returncode, third.stderr) == (0, "run liverl/n is done; nothing was started\n")


def test_an_attempt_without_a_step_is_not_resumed_again(launch: Launch) -> None:
    launch.script(
        'echo "Setting global step to 60"; echo "Total training steps: 120"; echo "wandb: finished"\n'
    )
    assert launch.up().returncode == 5
    again = launch.up()
    assert again.returncode == 1 and launch.result.attempt == 1
    assert "ended without an error at step 60 of 120, where it had resumed" in again.stderr
    assert "nothing was started" in again.stderr and "trainer.total_epochs" in again.stderr
    changed = launch.up("--set", "supervise.stop_grace=3")
    assert changed.returncode == 5 and launch.result.attempt == 2, "a changed configuration may help"


def test_a_pipe_hides_no_error(launch: Launch) -> None:
    launch.script(
        f"""
        train() {{
          steps 1 1
          printf '%s\\n' '(TaskRunner pid=42) Traceback (most recent call last):' \\
            '(TaskRunner pid=42)   File "/w/t.py", line 9, in fit' '(TaskRunner pid=42) {FAULT}' \\
            'Traceback (most recent call last):' '  File "/w/main_ppo.py", line 30, in <module>' \\
            'ray.exceptions.RayTaskError(ValueError): ray::TaskRunner.run() (pid=42)' '{FAULT}'
          return 1
        }}
        train 2>&1 | tee log.txt
        echo "logs are in log.txt"
        """
    )
    done = launch.up()
    assert (done.returncode, launch.result.state) == (1, "failed"), done.stdout
    assert launch.result.cause is not None and launch.result.cause.id == "verl-no-tokens"
    assert "set -o pipefail" in done.stdout


def test_a_trainer_in_the_background_is_named(launch: Launch) -> None:
    launch.script(
        """
        printf 'import time\nprint("Total training steps: 20", flush=True)\ntime.sleep(600)\n' > train.py
        nohup python3 train.py &
        until grep -qs "training steps" "$LIVERL_RUN_DIR"/attempt_*/logs/trainer.*.log; do sleep 0.05; done
        """
    )
    done = launch.up()
    assert (done.returncode, launch.result.state) == (5, "stopped"), done.stdout
    assert launch.result.cause is not None and launch.result.cause.id == "trainer-in-background"
    assert "train.py still ran, and was ended together with the script" in launch.result.summary
    assert "`wait`" in done.stdout
    assert launch.up().returncode == 1, "it would end so again"


def test_a_script_that_owes_nothing(launch: Launch) -> None:
    launch.script("echo 'the data is prepared'\n")
    done = launch.up()
    assert (done.returncode, launch.result.summary) == (0, "ended (exit 0); no training step was seen")
    assert "training has completed" not in done.stdout
    again = launch.up()
    assert again.returncode == 0 and "no training step was seen; nothing was started" in again.stderr


class Jobs:
    """What stands in for Ray's interface for jobs; each question takes the next state, and the last one stays."""

    def __init__(self, states: list[str], log: str) -> None:
        outer, self.states = self, states

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                told: dict[str, Any] = {"logs": log}
                if not self.path.endswith("/logs"):
                    told = {"status": outer.states.pop(0) if outer.states[1:] else outer.states[0]}
                data = json.dumps(told).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


def test_a_submitted_job_is_followed_and_not_started_again(launch: Launch) -> None:
    steps = "".join(f"step:{n} - training/global_step:{n} - critic/score/mean:0.5\n" for n in range(1, 6))
    jobs = Jobs(["PENDING", "PENDING", "RUNNING", "SUCCEEDED"], f"Total training steps: 5\n{steps}")
    try:
        launch.script(
            f"echo 'Job submission server address: http://127.0.0.1:{jobs.server.server_port}'\n"
            "echo started >> starts\necho \"Job 'raysubmit_7' submitted successfully\"\n"
        )
        first = launch.up()
        assert first.returncode == 5, first.stdout + first.stderr
        assert "only submitted the Ray job raysubmit_7, which is PENDING" in launch.result.summary
        assert launch.result.job is not None and launch.result.job.id == "raysubmit_7"
        second = launch.up()
        assert second.returncode == 0, second.stderr
        assert "raysubmit_7, which is PENDING; nothing was started" in second.stderr
        assert "Ray job raysubmit_7: RUNNING" in second.stderr
        assert (launch.result.state, launch.result.steps, launch.result.attempt) == ("done", 5, 1)
        assert "is done; nothing was started" in launch.up().stderr
        assert (launch.folder / "starts").read_text() == "started\n"
    finally:
        jobs.server.shutdown()
        jobs.server.server_close()


def test_a_job_that_nobody_answers_for_is_not_started_again(launch: Launch) -> None:
    launch.script(
        f"echo 'Job submission server address: http://127.0.0.1:{free_port()}'\n"
        "echo \"Job 'raysubmit_7' submitted successfully\"\n"
    )
    assert launch.up().returncode == 5
    again = launch.up()
    assert again.returncode == 1 and launch.result.attempt == 1
    assert "its state is not known" in again.stderr and "ray job status raysubmit_7" in again.stderr
