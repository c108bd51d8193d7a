"""The examples run as they are described. Ray, LiteLLM and verl of the launch script are toys (simulated); what the
others start is real."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.ports import free_port
from kit.runs import ToyRun
from kit.waiting import wait_until

import liverl
from liverl.exit_codes import ExitCode
from liverl.external import port_holders
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive
from liverl.util.signals import SAME_REQUEST_S

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LAUNCH = EXAMPLES / "launch_script"
PROXY_TOY = Path(__file__).with_name("uvicorn_toy.py")
SMALL = (
    "infrastructure.litellm_port=0",
    "proxy.trials_through=sessions",  # LiteLLM takes seconds to start; tests/stack/test_run.py has it
    "training.train_batch_size=2",
    "training.n_resp_per_prompt=2",
    "training.train_prompt_mini_batch_size=2",
    "training.total_steps=1",
    "embedded.turn_latency=0.02",
)

LONG = (*SMALL, "training.total_steps=1000")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty place for programs and runs. No run in ``<folder>/runs`` outlives the test."""
    (tmp_path / "bin").mkdir()
    yield tmp_path
    for record in (tmp_path / "runs").glob("*/*/backend.json"):
        ToyRun(record.parent).end()


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """A job's environment: ``liverl-tui`` is on the path, and so are the programs in ``<folder>/bin``."""
    program(folder / "bin" / "liverl-tui", f'#!/bin/sh\nexec {sys.executable} -m liverl_tui "$@"\n')
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "LIVERL_RUN__RUN_ROOT": str(folder / "runs"), **variables}


SCRIPTS = sorted(EXAMPLES.glob("*/*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_shell_scripts_are_well_formed(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.stack
@pytest.mark.slow
def test_the_printed_slurm_job_is_queued_again_by_itself_only_at_its_time_limit(folder: Path) -> None:
    """The script of ``liverl-tui launcher slurm``. Slurm's own programs are toys here (simulated); ``tests/slurm`` has
    real ones."""
    program(folder / "bin" / "scontrol", f'#!/bin/sh\necho "$@" >> {folder}/scontrol.log\n')
    program(folder / "bin" / "squeue", "#!/bin/sh\necho N/A\n")
    env = environment(folder, SLURM_JOB_ID="4711")
    sets = [word for setting in (*SMALL, "embedded.turn_latency=1") for word in ("--set", setting)]
    words = ["launcher", "slurm", "--name", "night", "--run-root", str(folder / "runs"), "-o", "job.sbatch"]
    subprocess.run([sys.executable, "-m", "liverl_tui", *words, *sets], env=env, cwd=folder, check=True)
    run, script = RunDir(folder / "runs" / "liverl" / "night"), ["bash", "job.sbatch"]

    def stopped_by(number: signal.Signals) -> int:
        with open(folder / "job.log", "ab") as log:
            job = subprocess.Popen(script, env=env, cwd=folder, stdout=log, stderr=log)
        try:
            wait_until(lambda: isinstance(backend_alive(run.path), LiveBackend), what="the backend")
            job.send_signal(number)
            return job.wait(120)
        finally:
            job.kill()

    queued = folder / "scontrol.log"
    assert stopped_by(signal.SIGTERM) == 5, (folder / "job.log").read_text()
    assert not queued.exists(), "scancel is no wish to go on, and a preempted job is in the queue already"
    assert stopped_by(signal.SIGUSR1) == 5, (folder / "job.log").read_text()
    assert queued.read_text() == "requeue 4711\n"
    stopped = run.read_result()
    assert stopped is not None and (stopped.state, stopped.attempt) == ("stopped", 2)

    again = subprocess.run(script, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    done = run.read_result()
    assert done is not None and (done.state, done.attempt, done.steps) == ("done", 3, 1)
    assert queued.read_text() == "requeue 4711\n", "a run that is done is not queued again"


KILL_WAIT_S = 30.0  # Slurm's default


@pytest.mark.stack
@pytest.mark.slow
@pytest.mark.parametrize(
    ("deaf", "rounds", "seconds"),
    [("[replica-0, trainer]", 1, KILL_WAIT_S), ("[replica-0, trainer]", 2, 15.0), ("[]", 1, 15.0)],
    ids=["deaf services", "deaf services, signalled again", "services that end by themselves"],
)
def test_a_preempted_job_ends_within_kill_wait_and_goes_on_when_it_is_requeued(
    folder: Path, deaf: str, rounds: int, seconds: float
) -> None:
    """Slurm sends SIGTERM several times at once to every process of a job, and SIGKILL after KillWait."""
    sets = (
        *SMALL,
        "training.total_steps=3",
        "training.save_freq=1",
        f"embedded.faults.ignore_sigterm={deaf}",
    )
    words = [word for setting in sets for word in ("--set", setting)]
    argv = [
        sys.executable,
        "-m",
        "liverl_tui",
        "up",
        "--no-ui",
        "--name",
        "night",
        "--resume-or-start",
        *words,
    ]
    env = environment(folder, SLURM_JOB_ID="4711")
    run = ToyRun(folder / "runs" / "liverl" / "night")
    with open(folder / "up.log", "ab") as log:
        up = subprocess.Popen(argv, env=env, cwd=folder, stdout=log, stderr=log)
    try:
        within_a_step = run.run_dir / "trials" / "step_0002"
        wait_until(lambda: within_a_step.exists() or up.poll() is not None, what="the second step")
        assert up.poll() is None, (folder / "up.log").read_text()
        began = time.monotonic()
        for sent in range(rounds):
            wait_until(lambda sent=sent: time.monotonic() - began > sent * (SAME_REQUEST_S + 0.5))
            for _ in range(3):
                for pid in {up.pid, *run.tagged()}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
        assert up.wait(120) == 5, (folder / "up.log").read_text()
        assert time.monotonic() - began < seconds, (folder / "up.log").read_text()
    finally:
        up.kill()
    stopped = run.result()
    assert (stopped.state, stopped.exit_code, run.tagged()) == ("stopped", 5, {})

    again = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    done = run.result()
    assert (done.state, done.attempt, done.steps) == ("done", 2, 3)
    third = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert (third.returncode, third.stderr) == (0, "run liverl/night is done; nothing was started\n")


@pytest.mark.stack
def test_the_library_example_starts_a_run_and_follows_it(folder: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "library.py"), *SMALL, "run.name=library"]
    done = subprocess.run(
        command, env=environment(folder), cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run_dir, *steps = done.stdout.splitlines()
    assert run_dir == str(folder / "runs" / "liverl" / "library")
    assert len(steps) == 1 and steps[0].startswith("step 1/1: reward ")
    assert liverl.snapshot(run_dir).state == "done"


def test_the_library_example_stops_its_run_at_ctrl_c(folder: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "library.py"), *LONG, "run.name=library"]
    with subprocess.Popen(
        command, env=environment(folder), cwd=folder, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        run_dir, step = job.stdout.readline().rstrip(), job.stdout.readline()
        assert step.startswith("step 1/")
        job.send_signal(signal.SIGINT)
        job.communicate()
    result = RunDir(Path(run_dir)).read_result()
    assert result is not None and (result.state, result.exit_code) == ("stopped", job.returncode)
    assert job.returncode == ExitCode.STOPPED


def test_what_the_page_shows_of_the_library_does_what_it_says(folder: Path) -> None:
    """The programs of docs/scripts.md, as they are printed: they start a run, follow it, and end it."""
    page = (ROOT / "docs" / "scripts.md").read_text("utf-8").partition("\n## Library\n")[2]
    starts, ends, follows = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    config: dict[str, dict[str, str]] = {}
    for one in LONG:
        key, _, value = one.partition("=")
        section, _, name = key.partition(".")
        config.setdefault(section, {})[name] = value
    lines = [
        f"{section}: {{{', '.join(f'{k}: {v}' for k, v in keys.items())}}}"
        for section, keys in config.items()
    ]
    (folder / "config.yaml").write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-c", starts],
        env=environment(folder),
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{folder / 'runs' / 'liverl' / 'first'}\n"
    run = ToyRun(folder / "runs" / "liverl" / "first")
    run.until("trainer", lambda service: service.state == "ready")
    program = [sys.executable, "-c", follows]
    with subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None and follower.stdout.readline()
        done = subprocess.run(
            [sys.executable, "-c", ends], cwd=folder, capture_output=True, text=True, check=False
        )
        events, _ = follower.communicate()
    assert (done.returncode, done.stderr, follower.returncode) == (0, "", 0)
    assert done.stdout.strip() == "None" or done.stdout.strip().isdigit(), "a step"
    assert liverl.snapshot(run.run_dir).state == "stopped"
    assert "scale" in events and "stopped" in events.splitlines()[-1]


def test_the_library_example_names_a_wrong_setting(folder: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "library.py"), "training.total_stepz=1"]
    done = subprocess.run(
        command, env=environment(folder), cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "training.total_steps" in done.stderr and "Traceback" not in done.stderr
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("sets", "code", "words"),
    [
        (["run.name=no/name"], ExitCode.USAGE, "run.name"),
        (
            ["infrastructure.litellm_port={taken}"],
            ExitCode.PREFLIGHT,
            "1 check failed before the start: ports: ",
        ),
        (["run.name=there"], ExitCode.USAGE, "already exists"),
    ],
)
def test_the_library_starts_nothing_that_up_would_not_start(
    folder: Path, sets: list[str], code: ExitCode, words: str
) -> None:
    there = folder / "runs" / "liverl" / "there"
    there.mkdir(parents=True)
    (there / "plan.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sets = [one.format(taken=port) for one in sets]
        command = [sys.executable, str(EXAMPLES / "library.py"), *SMALL, *sets]
        done = subprocess.run(
            command, env=environment(folder), cwd=folder, capture_output=True, text=True, check=False
        )
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr and os.listdir(there.parent) == ["there"]


def test_what_the_launch_script_starts_is_shown_and_ends_with_it(folder: Path) -> None:
    venv = folder / "venv" / "bin"
    venv.mkdir(parents=True)
    (folder / "litellm").symlink_to(PROXY_TOY)
    program(venv / "ray", "#!/bin/sh\nexit 0\n")
    program(venv / "litellm", f'#!/bin/sh\nexec {sys.executable} {folder}/litellm "$@"\n')
    program(
        venv / "python",
        f'#!/bin/sh\necho "$@" > {folder}/trainer\nuntil [ -e {folder}/over ]; do sleep 0.1; done\n',
    )
    script = shutil.copy(LAUNCH / "launch.sh", folder)
    port = free_port()
    argv = [
        *(sys.executable, "-m", "liverl_tui", "up", "--no-ui", "--yes", "--name", "launch"),
        *("--config", str(LAUNCH / "config.yaml")),
        *("--set", f"trainer.command=[bash, {script}]", "--set", f"environment.venv_path={folder / 'venv'}"),
        *("--set", f"infrastructure.litellm_port={port}", "--set", f"model.model_path={folder}"),
        *("--set", f"trainer.cwd={folder}"),
    ]
    run_dir = folder / "runs" / "liverl" / "launch"
    with open(folder / "up.log", "ab") as log:
        up = subprocess.Popen(argv, env=environment(folder), cwd=folder, stdout=log, stderr=log)
    try:
        wait_until(lambda: isinstance(backend_alive(run_dir), LiveBackend), what="the backend")
        run = ToyRun(run_dir)
        proxy = run.until("proxy", "ready")
        wait_until((folder / "trainer").exists, what="the trainer")
        assert proxy.owner == "adopted"
        assert proxy.address == f"http://127.0.0.1:{port}"
        assert run.snapshot().proxy.backends == ("http://127.0.0.1:8100/v1",)
        assert (
            f"trainer.nnodes=1 trainer.n_gpus_per_node=8 actor_rollout_ref.model.path={folder}"
            in (folder / "trainer").read_text()
        )
        (folder / "over").touch()
        assert up.wait(120) == 0, (folder / "up.log").read_text()
    finally:
        up.kill()
    # The kernel closes what the dead have left a moment later.
    wait_until(lambda: port_holders.look(port) is None, what="a free port")
