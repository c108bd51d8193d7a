"""A table of ends: what the backend says of each way in which a trainer can end. The backend's parts are real and start
nothing; logs are written as verl, Ray and shells print them, and Ray's interface for jobs is simulated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest

from liverl.daemon.run import Run
from liverl.model import Exit, Result, Rewards
from liverl.plan.spec import Plan, ScriptOutputs, ServiceSpec
from liverl.supervise.services.leader import LeaderProcess
from liverl.supervise.services.state_machine import MachineState

TRAINER = ServiceSpec("trainer", "trainer", argv=("train",), ends_run=True)
RAY = "(TaskRunner pid=42) "


def total(number: int) -> str:
    return f"{RAY}Total training steps: {number}\n"


def steps(first: int, last: int) -> str:
    return "".join(
        f"{RAY}step:{n} - training/global_step:{n} - critic/score/mean:0.5 - timing_s/step:1.0\n"
        for n in range(first, last + 1)
    )


def bar(done: int, of: int, before: int | None = None) -> str:
    first = (
        f"Training Progress:   0%|          | {before}/{of} [00:00<?, ?it/s]\r" if before is not None else ""
    )
    return f"{first}Training Progress:  50%|█████     | {done}/{of} [00:10<00:10,  1.00s/it]\n"


def resumed(step: int) -> str:
    return f"{RAY}Setting global step to {step}\n{RAY}Resuming from /ckpt/global_step_{step}\n"


def loader(batches: int, epochs: int | None = None) -> str:
    told = "" if epochs is None else f"{RAY}             'total_epochs': {epochs},\n"
    return f"{told}{RAY}Size of train dataloader: {batches}, Size of val dataloader: 1\n"


def submitted(job: str = "raysubmit_1", end: str = "") -> str:
    told = f"Job '{job}' {end}\n" if end else ""
    return f"Job submission server address: http://ADDRESS\nJob '{job}' submitted successfully\n{told}"


FAULT = "response_mask must contain at least one valid token (1)"
ACTOR = (
    f'{RAY}Traceback (most recent call last):\n{RAY}  File "/w/verl/trainer/ppo/ray_trainer.py", line 900, in fit\n'
    f"{RAY}    check(mask)\n{RAY}ValueError: {FAULT}\n"
)
DRIVER = (
    'Traceback (most recent call last):\n  File "/w/main_ppo.py", line 30, in <module>\n    main()\n'
    f"ray.exceptions.RayTaskError(ValueError): ray::TaskRunner.run() (pid=42, ip=10.0.0.1)\nValueError: {FAULT}\n"
)
OOM = (
    'Traceback (most recent call last):\n  File "/w/t.py", line 1, in <module>\n    step()\ntorch.OutOfMemoryError: '
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is "
    "free.\n"
)
EPILOGUE = "+ cleanup\n+ rsync -a logs store:\nsent 120 bytes  received 35 bytes\n"
CAUGHT = 'Traceback (most recent call last):\n  File "/w/hub.py", line 3, in get\nConnectionError: hub is offline\n'
SHUTDOWN = "wandb: Run summary: training/global_step 20\nwandb: finished\n"
NOTHING = "ended (exit 0); no training step was seen"


class Row(NamedTuple):
    """One way to end, and what is said of it. ``job``: the state that Ray tells, None: nothing answers; ``given``:
    steps by the plan, and who says so; ``counted``: steps by the run's metrics."""

    name: str
    log: str
    state: str
    code: int
    summary: str
    kind: str = "command"
    exit: int = 0
    given: tuple[int | None, str] = (None, "")
    job: str | None = None
    of_job: str = ""
    left: tuple[str, ...] = ()
    counted: int = 0
    cause: str = ""
    made: int | None = None


OURS = (20, "training.total_steps")
FILE = (20, "training.total_steps (my.yaml:4)")
LOST = "but its log ends with an error: "
TABLE = [
    # all steps
    Row("all, by its log", total(20) + steps(1, 20), "done", 0, "done: 20 steps"),
    Row("all, by its bar", bar(20, 20, 0), "done", 0, "done: 20 steps"),
    Row("all, by what verl was given", steps(1, 20), "done", 0, "done: 20 steps", "verl", given=OURS),
    Row("all, by what we trained", steps(1, 20), "done", 0, "done: 20 steps", "embedded", given=OURS),
    Row("all, by the user's file", steps(1, 20), "done", 0, "done: 20 steps", given=FILE),
    Row(
        "all, by its counter",
        "step 1/3 loss 0.5\nstep 2/3 loss 0.4\nstep 3/3 loss 0.3\n",
        "done",
        0,
        "done: 3 steps",
    ),
    Row("all, resumed", resumed(15) + total(20) + steps(16, 20), "done", 0, "done: 20 steps", made=5),
    Row("resumed at the last one", resumed(20) + total(20), "done", 0, "done: 20 steps", made=0),
    Row(
        "all, and noise at shutdown",
        total(20) + steps(1, 20) + CAUGHT + SHUTDOWN,
        "done",
        0,
        "done: 20 steps",
    ),
    Row("all, by metrics only", total(20), "done", 0, "done: 20 steps", counted=20),
    Row(
        "more than owed",
        steps(1, 25),
        "done",
        0,
        "done: 25 steps, more than the 20 of training.total_steps (my.yaml:4)",
        given=FILE,
    ),
    Row(
        "two sources differ, all",
        total(10) + steps(1, 10),
        "done",
        0,
        "done: 10 of 10 steps (from its log; 20 from training.total_steps (my.yaml:4))",
        given=FILE,
    ),
    Row(
        "a fully asynchronous trainer",
        total(12800) + bar(0, 20, 0) + steps(1, 20) + bar(20, 20),
        "done",
        0,
        "done: 20 of 20 steps (from its progress bar; 12800 from its log)",
    ),
    Row(
        "all, as transformers' Trainer draws it",
        "  Total optimization steps = 1,000\n  0%|          | 0/1000 [00:00<?, ?it/s]\r"
        "100%|██████████| 1000/1000 [10:00<00:00,  1.6it/s]\n",
        "done",
        0,
        "done: 1000 steps",
    ),
    Row(
        "all, in a form of its own",
        total(3) + "step 1: loss=0.5\nstep 2: loss=0.4\nstep 3: loss=0.3\n",
        "done",
        0,
        "done: 3 steps",
    ),
    # nobody says how many
    Row("three under our default", steps(1, 3), "done", 0, "done: 3 steps"),
    Row(
        "the script tells the trainer's exit code",
        total(20) + steps(1, 3) + "training exited with 137\n",
        "failed",
        1,
        'failed: trainer in step 4: exited with 0, but its log ends with "training exited with 137"',
        cause="exit-code-hidden",
    ),
    Row(
        "only its exit code, total unknown",
        "exit code: 1\n",
        "failed",
        1,
        'failed: trainer in step 1: exited with 0, but its log ends with "exit code: 1"',
        cause="exit-code-hidden",
    ),
    Row(
        "the same, all steps",
        total(3) + steps(1, 3) + "cleanup exited with 1\n",
        "done",
        0,
        "done: 3 steps",
    ),
    Row(
        "an exit code long before the end",
        "lint exited with 1\n" + "copied a file\n" * 300,
        "done",
        0,
        NOTHING,
    ),
    Row("no step, nothing owed", "prepared the data\n", "done", 0, NOTHING),
    Row("an empty log", "", "done", 0, NOTHING),
    Row("steps of a script's parts", "Step 1/3: install\nStep 2/3: download\n", "done", 0, NOTHING),
    Row("a caught error, then steps", CAUGHT + steps(1, 3), "done", 0, "done: 3 steps"),
    Row("a caught error, then much else", CAUGHT + "evaluating a task\n" * 80, "done", 0, NOTHING),
    Row("only a validation", f"{RAY}step:0 - val-core/acc:0.5\n", "done", 0, NOTHING),
    Row("Ray left running", steps(1, 3), "done", 0, "done: 3 steps", left=("raylet", "gcs_server")),
    # fewer steps than owed, no error
    Row(
        "fewer, by its log",
        total(20) + steps(1, 3) + SHUTDOWN,
        "stopped",
        5,
        "stopped: ended without an error after step 3 of 20",
        cause="ended-early",
        made=3,
    ),
    Row(
        "fewer, by its bar",
        bar(25, 100, 0),
        "stopped",
        5,
        "stopped: ended without an error after step 25 of 100",
        cause="ended-early",
        made=25,
    ),
    Row(
        "fewer, by a printed configuration",
        f"{RAY}  'total_training_steps': 20,\n" + steps(1, 3),
        "stopped",
        5,
        "stopped: ended without an error after step 3 of 20",
        cause="ended-early",
    ),
    Row(
        "fewer, by a command line",
        "+ python -m verl.trainer.main_ppo trainer.total_training_steps=20\n" + steps(1, 3),
        "stopped",
        5,
        "stopped: ended without an error after step 3 of 20",
        cause="ended-early",
    ),
    Row(
        "fewer, by what verl was given",
        steps(1, 3),
        "stopped",
        5,
        "stopped: ended without an error after step 3 of 20",
        "verl",
        given=OURS,
        cause="ended-early",
    ),
    Row(
        "fewer, by what we trained",
        steps(1, 3),
        "stopped",
        5,
        "stopped: ended without an error after step 3 of 20",
        "embedded",
        given=OURS,
        cause="ended-early",
    ),
    Row(
        "fewer, by the user's file",
        steps(1, 3),
        "stopped",
        5,
        "stopped: ended without an error after step 3 of 20",
        given=FILE,
        cause="ended-early",
    ),
    Row(
        "two sources differ, fewer",
        total(10) + steps(1, 3),
        "stopped",
        5,
        "stopped: ended without an error after step 3 of 10 (from its log; 20 from training.total_steps (my.yaml:4))",
        given=FILE,
        cause="ended-early",
    ),
    Row(
        "no step of those owed",
        total(20) + SHUTDOWN,
        "stopped",
        5,
        "stopped: ended without an error; 0 of 20 steps were seen",
        cause="ended-early",
        made=0,
    ),
    Row(
        "epochs too few",
        loader(25, 1) + total(100) + resumed(20) + steps(21, 25),
        "stopped",
        5,
        "stopped: ended without an error after step 25 of 100. The data loader has 25 batches and trainer.total_epochs "
        "is 1: 1 x 25 = 25 steps, fewer than 100 (from its log)",
        cause="epochs-too-few",
        made=5,
    ),
    Row(
        "epochs used up, number untold",
        loader(25) + total(100) + steps(1, 50),
        "stopped",
        5,
        "stopped: ended without an error after step 50 of 100. The data loader has 25 batches and 2 epochs were read: "
        "2 x 25 = 50 steps, fewer than 100 (from its log)",
        cause="epochs-too-few",
    ),
    Row(
        "resumed at an epoch's end",
        resumed(60) + total(120) + bar(60, 120),
        "stopped",
        5,
        "stopped: ended without an error at step 60 of 120, where it had resumed. It resumed at step 60, probably "
        "at the end of an epoch: the data loader's saved state has no batch left, so the trainer had nothing to do",
        cause="resumed-at-epoch-boundary",
        made=0,
        counted=60,
    ),
    Row(
        "resumed within an epoch",
        loader(25, 9) + resumed(60) + total(120) + bar(60, 120),
        "stopped",
        5,
        "stopped: ended without an error at step 60 of 120, where it had resumed",
        cause="ended-early",
        made=0,
    ),
    Row(
        "the data is used up",
        total(100) + steps(1, 7) + f"{RAY}dataset exhausted\n",
        "stopped",
        5,
        "stopped: ended without an error after step 7 of 100. The data was used up: dataset exhausted",
        cause="data-used-up",
    ),
    Row(
        "validation only",
        f"{RAY}  'val_only': True,\n{RAY}step:0 - val-core/acc:0.5\n",
        "stopped",
        5,
        "stopped: ended without an error; 0 of 20 steps were seen. It was told to validate only (val_only), so "
        "it made no step",
        "verl",
        given=OURS,
        cause="validation-only",
        made=0,
    ),
    Row(
        "a caught error, then fewer",
        total(20) + CAUGHT + steps(1, 3),
        "stopped",
        5,
        "stopped: ended without an error after step 3 of 20",
        cause="ended-early",
    ),
    Row(
        "began anew, and made no step",
        f"{RAY}Training from scratch\n" + total(20),
        "stopped",
        5,
        "stopped: ended without an error; 0 of 20 steps were seen",
        counted=80,
        cause="ended-early",
        made=0,
    ),
    Row(
        "fewer, within the first epoch",
        loader(25, 1) + total(100) + steps(1, 7),
        "stopped",
        5,
        "stopped: ended without an error after step 7 of 100",
        cause="ended-early",
    ),
    Row(
        "an error, and a bar that went on",
        total(20) + bar(1, 20, 0) + OOM + bar(3, 20),
        "stopped",
        5,
        "stopped: ended without an error after step 3 of 20",
        cause="ended-early",
        made=3,
    ),
    # background
    Row(
        "a trainer left behind",
        total(20),
        "stopped",
        5,
        "stopped: ended without an error; 0 of 20 steps were seen. Its script started a program in the "
        "background and ended before that program: python3 -m verl.trainer.main_ppo still ran, and was ended together "
        "with the script",
        left=("raylet", "python3 -m verl.trainer.main_ppo"),
        cause="trainer-in-background",
        made=0,
    ),
    Row(
        "a trainer left behind, nothing owed",
        "started\n",
        "stopped",
        5,
        "stopped: ended without an error, and no training step was seen. Its script started a program in the "
        "background and ended before that program: python3 train.py still ran, and was ended together with the script",
        left=("python3 train.py",),
        cause="trainer-in-background",
    ),
    Row(
        "a trainer left behind in training",
        total(20) + steps(1, 3),
        "stopped",
        5,
        "stopped: ended without an error after step 3 of 20. Its script started a program in the background and "
        "ended before that program: python3 train.py still ran, and was ended together with the script",
        left=("python3 train.py",),
        cause="trainer-in-background",
        made=3,
    ),
    Row(
        "nohup, by its trace",
        "+ nohup python -m verl.trainer.main_ppo trainer.total_training_steps=500\n",
        "stopped",
        5,
        "stopped: ended without an error; 0 of 500 steps were seen. Its script started a program in the "
        "background and ended before that program",
        cause="trainer-in-background",
        made=0,
    ),
    # an error behind exit code 0
    Row(
        "an actor, then the driver", total(20) + steps(1, 3) + ACTOR + DRIVER, "failed", 1, f"{LOST}No trial"
    ),
    Row("the same, total unknown", steps(1, 3) + ACTOR + DRIVER, "failed", 1, f"{LOST}No trial"),
    Row(
        "the same, with an epilogue", steps(1, 3) + ACTOR + DRIVER + EPILOGUE, "failed", 1, f"{LOST}No trial"
    ),
    Row("the driver alone", steps(1, 3) + DRIVER, "failed", 1, f"{LOST}No trial"),
    Row("one line", steps(1, 3) + f"ValueError: {FAULT}\n", "failed", 1, f"{LOST}No trial"),
    Row("before the first step", DRIVER, "failed", 1, f"{LOST}No trial"),
    Row("memory, what verl was given", steps(1, 3) + OOM, "failed", 1, f"{LOST}", "verl", given=OURS),
    Row("memory, what we trained", steps(1, 3) + OOM, "failed", 1, f"{LOST}", "embedded", given=OURS),
    Row(
        "an unknown one",
        steps(1, 3) + CAUGHT + EPILOGUE,
        "failed",
        1,
        f"{LOST}ConnectionError: hub is offline",
    ),
    Row(
        "a shell's word on a signal",
        steps(1, 3) + "train.sh: line 7:  4242 Segmentation fault      (core dumped) python\n",
        "failed",
        1,
        f"{LOST}",
    ),
    Row(
        "resumed, then an error",
        resumed(10) + total(20) + steps(11, 12) + OOM + EPILOGUE,
        "failed",
        1,
        LOST,
        made=2,
    ),
    Row(
        "an engine that died",
        total(20)
        + steps(1, 3)
        + "(vLLMHttpServer pid=7) ERROR 11-26 core_client.py:600] Engine core proc EngineCore_DP0 died unexpectedly\n",
        "failed",
        1,
        "vLLM's EngineCore process ended",
    ),
    Row(
        "a launcher's word on its child",
        steps(1, 3) + "srun: error: n1: task 0: Exited with exit code 1\n" + EPILOGUE,
        "failed",
        1,
        f"{LOST}srun: error: n1: task 0: Exited with exit code 1",
    ),
    Row(
        "a command that is not found",
        "train.sh: line 3: torchrun: command not found\n+ date\n",
        "failed",
        1,
        "did not find the command torchrun",
    ),
    Row(
        "tried again, and all steps made",
        total(20) + steps(1, 3) + OOM + "restarting\n" + total(20) + resumed(3) + steps(4, 20),
        "done",
        0,
        "done: 20 steps",
        made=17,
    ),
    Row(
        "long behind an error, steps owed",
        total(20) + steps(1, 3) + OOM + "copying a checkpoint\n" * 80,
        "failed",
        1,
        "GPU 0 out of memory",
    ),
    # Ray jobs
    Row(
        "a job that is pending",
        submitted(),
        "stopped",
        5,
        "stopped: its script only submitted the Ray job raysubmit_1, which is PENDING, and ended",
        job="PENDING",
        cause="job-submitted",
    ),
    Row(
        "a job that runs",
        submitted(),
        "stopped",
        5,
        "stopped: its script only submitted the Ray job raysubmit_1, which is RUNNING, and ended",
        job="RUNNING",
        cause="job-submitted",
    ),
    Row(
        "a job that was followed in part",
        submitted() + total(20) + steps(1, 3),
        "stopped",
        5,
        "stopped: its script stopped following the Ray job raysubmit_1, which is RUNNING, and ended; ended without an "
        "error after step 3 of 20",
        job="RUNNING",
        cause="job-submitted",
        made=3,
    ),
    Row(
        "a job nobody answers for",
        submitted(),
        "stopped",
        5,
        "stopped: its script only submitted the Ray job raysubmit_1, and ended",
        cause="job-submitted",
    ),
    Row(
        "a job that succeeded",
        submitted(),
        "done",
        0,
        "done: 20 steps",
        job="SUCCEEDED",
        of_job=total(20) + steps(1, 20),
        made=20,
    ),
    Row(
        "a job that succeeded early",
        submitted(),
        "stopped",
        5,
        "stopped: ended without an error after step 3 of 20",
        job="SUCCEEDED",
        of_job=total(20) + steps(1, 3),
        cause="ended-early",
        made=3,
    ),
    Row(
        "a job that failed",
        submitted(),
        "failed",
        1,
        "failed: the Ray job raysubmit_1 failed",
        job="FAILED",
        cause="job-failed",
    ),
    Row(
        "a job that was stopped",
        submitted(),
        "stopped",
        5,
        "stopped: the Ray job raysubmit_1 was stopped",
        job="STOPPED",
        cause="job-failed",
    ),
    Row("a followed job", submitted(end="succeeded") + total(20) + steps(1, 20), "done", 0, "done: 20 steps"),
    Row(
        "a followed job behind a pipe",
        total(20) + steps(1, 3) + submitted(end="failed"),
        "failed",
        1,
        f"{LOST}Job 'raysubmit_1' failed",
        made=3,
    ),
    Row(
        "a followed job with nohup",
        submitted(end="succeeded") + "+ nohup python -m verl.trainer.main_ppo\n",
        "stopped",
        5,
        "stopped: ended without an error, and no training step was seen. Its script started a program in the "
        "background and ended before that program",
        cause="trainer-in-background",
    ),
    Row(
        "a Slurm job",
        "Submitted batch job 4711\n",
        "stopped",
        5,
        "stopped: its script only submitted the Slurm job 4711, and ended",
        cause="job-submitted",
    ),
    Row(
        "a Kubernetes job",
        "rayjob.ray.io/train created\n",
        "stopped",
        5,
        "stopped: its script only submitted the Kubernetes job rayjob.ray.io/train, and ended",
        cause="job-submitted",
    ),
    Row(
        "a job that failed, with its log",
        submitted(),
        "failed",
        1,
        "failed: trainer in step 4: GPU 0 out of memory",
        job="FAILED",
        of_job=total(20) + steps(1, 3) + OOM,
        made=3,
    ),
    Row(
        "a job that failed, long behind its error",
        submitted(),
        "failed",
        1,
        "GPU 0 out of memory",
        job="FAILED",
        of_job=steps(1, 3) + OOM + "copying a checkpoint\n" * 80,
    ),
    # other exit codes
    Row(
        "exit 1, all steps",
        total(20) + steps(1, 20),
        "failed",
        1,
        "failed: trainer: exited with code 1",
        exit=1,
    ),
    Row("exit 1, an error", total(20) + steps(1, 3) + OOM, "failed", 1, "failed: trainer: ", exit=1),
    Row("exit 2, nothing", "usage: train.sh\n", "failed", 1, "failed: trainer: exited with code 2", exit=2),
    Row("killed", steps(1, 3), "failed", 137, "failed: trainer killed by SIGKILL", exit=-9),
]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[..., Run]]:
    runs: list[Run] = []

    def made(row: Row) -> Run:
        outputs = ScriptOutputs(trials=()) if row.kind == "command" else None
        given = {"total_steps": row.given[0], "steps_by": row.given[1], "script": outputs}
        plan = Plan("p/n", str(tmp_path), "managed", (), (), None, expected_replicas=0, **given)
        runs.append(Run(plan, tmp_path, 1, None))
        return runs[-1]

    yield made
    for run in runs:
        await run.supervisor.http.close()
        run.sampler.close()
        run.supervisor.close()


class Jobs:
    """What stands in for Ray's interface for jobs."""

    def __init__(self, row: Row) -> None:
        outer = self
        self.asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                told: dict[str, Any] = (
                    {"logs": row.of_job} if self.path.endswith("/logs") else {"status": row.job}
                )
                data = json.dumps(told).encode()
                self.send_response(200 if row.job else 500)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def jobs() -> Iterator[Callable[[Row], Jobs]]:
    made: list[Jobs] = []

    def start(row: Row) -> Jobs:
        made.append(Jobs(row))
        return made[-1]

    yield start
    for one in made:
        one.close()


async def ended(run: Run, row: Row, log: str, folder: Path) -> Result:
    """The result of a trainer that ended with this log."""
    number = -row.exit if row.exit < 0 else None
    exit_ = Exit(code=None if number else row.exit, signal=number)
    good = exit_.ok
    words = exit_.words()
    machine = {"state": "stopped" if good else "failed", "exit": exit_, "why": words, "last_failure": words}
    run.supervisor.add_slot(TRAINER, MachineState(generation=1, **machine))  # type: ignore[arg-type]
    path = folder / "attempt_001" / "logs" / "trainer.1.log"
    path.parent.mkdir(parents=True)
    path.write_text(log)
    trainer = run.supervisor.slots["trainer"].current
    trainer.leader.process = LeaderProcess(1, 1, -1, {}, path, 0, 1.0)
    trainer.left_behind = row.left
    if row.counted:
        record = {"step": row.counted, "data": {"training/global_step": row.counted}}
        (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    run.outcome.update()
    async with asyncio.timeout(60):
        await run.outcome.until_over()
    return run.outcome.conclude([], run.snapshots.step() or 0, None, Rewards(), run.snapshots.total_steps())


@pytest.mark.parametrize("row", TABLE, ids=[row.name for row in TABLE])
async def test_the_table_of_ends(
    row: Row, make: Callable[..., Run], jobs: Callable[[Row], Jobs], tmp_path: Path
) -> None:
    log = row.log
    if "ADDRESS" in log:
        log = log.replace("ADDRESS", jobs(row).address)
    result = await ended(make(row), row, log, tmp_path)
    assert (result.state, result.exit_code) == (row.state, row.code), result
    assert (result.resume is None) == (row.state == "done")
    if row.state == "failed":
        assert row.summary in result.summary, result.summary
    else:
        assert result.summary == row.summary
    if row.cause or row.state == "done":
        assert (result.cause.id if result.cause else "") == row.cause
    if row.made is not None:
        assert result.made == row.made
    if row.summary.startswith(LOST) and row.kind == "command":
        assert result.cause is not None and "set -o pipefail" in result.cause.fix
    if row.cause not in ("", "job-failed"):
        assert result.cause is not None and result.cause.why and result.cause.fix


def test_the_table_is_large_enough() -> None:
    assert len(TABLE) >= 40 and len({row.name for row in TABLE}) == len(TABLE)


async def test_an_end_that_cannot_be_judged_is_not_done(
    make: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise ValueError("no rule for this")

    monkeypatch.setattr("liverl.daemon.verdict.judged", fails)
    row = next(row for row in TABLE if row.state == "done")
    result = await ended(make(row), row, row.log, tmp_path)
    assert (result.state, result.exit_code) == ("stopped", 5)
    assert result.resume is not None and "could not be determined" in result.summary
    assert result.cause is not None and "doctor" in result.cause.fix


@pytest.mark.parametrize("unread", ["read_told", "error_behind_success"])
async def test_an_end_whose_log_cannot_be_read_is_not_done(
    unread: str, make: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated: a disk that fails."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error", "trainer.1.log")

    monkeypatch.setattr(f"liverl.daemon.end_causes.{unread}", fails)
    row = next(row for row in TABLE if row.name == "no step, nothing owed")
    result = await ended(make(row), row, row.log, tmp_path)
    assert (result.state, result.exit_code) == ("stopped", 5), result.summary
    assert result.cause is not None and result.cause.id == "end-not-judged" and result.resume is not None
    assert "cannot read trainer.1.log: Input/output error" in result.cause.why
