"""Faults of whole runs of ``liverl-tui up --no-ui`` with the real verl 0.9.1 and Ray, on a CPU: each ends with its
cause and its fix within seconds of its end, and what goes on is named within seconds of its evidence.

LIVERL_TEST_VERL_PYTHON and LIVERL_TEST_VERL_SMOKE as in ``kit.verl_runs``; without them the first run builds verl's
environment and the smoke model. Each run takes two to six minutes on two cores:
``pytest -m slow -n0 tests/stack/test_verl_faults.py``.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import yaml
from kit.drills import NAMED_S, Drill, note, status
from kit.judged_runs import actor, judged, of_doctor, own_ray, stepped
from kit.memory_group import inside, killed_for_memory, memory_cgroup
from kit.plain_verl import DATA, REWARD, overrides
from kit.ports import free_ports
from kit.raykit import Cluster
from kit.runs import ToyRun
from kit.verl_runs import (
    Launch,
    finished,
    result_of,
    verl_python,
)
from kit.waiting import wait_until

import liverl
from liverl.causes.verdict.ray_shortage import RayLoad, shortage
from liverl.diagnose.catalogue.ray_waits import GROUP_HOLD_S
from liverl.supervise.services.probes import Http
from liverl.verl.discovery.ray_rest import RayError, RayRest

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(2400)]

STEPS = "training.total_steps=200"
COUNTED_S = 5.0  # seconds between two counts of Ray's monitor


# --- keys ---------------------------------------------------------------------------------------------------


def test_a_key_with_a_typo_is_refused_before_the_start(launch: Launch) -> None:
    """The first run may have to build the environment first, and is refused then; nothing is started in either."""
    process = launch.up("typo", "trainer.overrides={trainer.total_epoch: 3}")
    code = finished(process)
    output = launch.output("typo").read_text()
    assert code == 3, output[-3000:]
    assert "the installed verl has no key trainer.total_epoch; did you mean trainer.total_epochs?" in output
    assert not launch.run_dir("typo").exists() or not list(launch.run_dir("typo").glob("*/logs/trainer*"))


# --- killed -------------------------------------------------------------------------------------------------


# Process, signal -> words of the cause, and of the fix
KILLS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "worker-kill": (
        *("ray::WorkerDict", "KILL"),
        ("the Ray actor WorkerDict (pid", "ended without an error of its own"),
        ("dmesg", "worker-*.err"),
    ),
    "worker-segv": (*("ray::WorkerDict", "SEGV"), ("segmentation fault",), ("compiled packages",)),
    "replica-kill": (
        *("ray::vLLMHttpServer", "KILL"),
        ("the Ray actor vLLMHttpServer (pid", "ended without an error of its own"),
        ("dmesg", "worker-*.err"),
    ),
    "trainer-segv": (*("verl.trainer.main_ppo", "SEGV"), ("segmentation fault",), ("compiled packages",)),
    "raylet-kill": (
        *("raylet/raylet", "KILL"),
        ("Ray's raylet was killed or crashed (exit code -9)",),
        ("raylet.out",),
    ),
}


@pytest.mark.parametrize("case", KILLS)
def test_a_process_that_is_killed(launch: Launch, case: str) -> None:
    words, number, cause, fix = KILLS[case]
    run = ToyRun(launch.run_dir(case))
    process = launch.up(case, STEPS)
    stepped(run, launch)
    os.kill(actor(run, words), signal.Signals[f"SIG{number}"])
    assert finished(process) != 0
    service = "ray" if case == "raylet-kill" else "trainer"
    drill = Drill(f"kill -{number} of {words}", f"service_failed:{service}", cause, fix)
    judged(run, drill, None if case == "trainer-segv" else own_ray(run))


def test_a_worker_that_rays_memory_monitor_kills(launch: Launch) -> None:
    """The threshold lies below what the run needs, so that Ray kills workers as it does where the host is full."""
    run = ToyRun(launch.run_dir("rayoom"))
    memory = psutil.virtual_memory()
    share = (memory.total - memory.available + (1 << 30)) / memory.total
    process = launch.up("rayoom", STEPS, env={"RAY_memory_usage_threshold": f"{share:.3f}"})
    assert finished(process) == 1, launch.output("rayoom").read_text()[-3000:]
    drill = Drill(
        "Ray's memory monitor kills a worker",
        "service_failed:trainer",
        ("Ray's memory monitor killed", "worker(s)", "GB"),
        ("RAY_memory_usage_threshold",),
    )
    judged(run, drill, own_ray(run))


def test_a_worker_that_the_kernel_kills_for_memory(launch: Launch) -> None:
    """The control group, its limit and the kill are real. A worker is made the first to go; another process of the
    group takes the memory."""
    run = ToyRun(launch.run_dir("kernel"))
    with memory_cgroup() as (group, limit, usage):
        try:
            process = launch.up("kernel", STEPS, before=inside(group))
            stepped(run, launch)
            pid = actor(run, "ray::WorkerDict")
            killed_for_memory(group, limit, usage, pid, 64 << 20)
            assert finished(process) == 1, launch.output("kernel").read_text()[-3000:]
            drill = Drill(
                "the kernel kills a worker for memory (a real cgroup)",
                "service_failed:trainer",
                ("the Ray actor WorkerDict", "was killed for memory by the kernel"),
                ("Raise the memory limit",),
            )
            judged(run, drill, own_ray(run))
        finally:
            launch.end()


def test_a_checkpoint_of_another_world_size(launch: Launch, smoke: Path) -> None:
    run = ToyRun(launch.run_dir("two"))
    sets = ("training.total_steps=1", "training.save_freq=1")
    assert finished(launch.up("two", *sets)) == 0, launch.output("two").read_text()[-3000:]
    (saved,) = (run.run_dir / "checkpoints").glob("global_step_*")
    resumed = {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": str(saved)}
    one = launch.up(
        "one", STEPS, "infrastructure.ngpus_per_node=1", f"trainer.overrides={json.dumps(resumed)}"
    )
    assert finished(one) == 3
    refused = f"{saved} was saved with 2 GPUs that train, and this run has 1"
    assert refused in launch.output("one").read_text()

    # A launch script's verl is not checked before it runs.
    words = (*(f"{key}={value}" for key, value in resumed.items()), "trainer.n_gpus_per_node=1")
    process = script(launch, "script", *plain_words(launch, smoke), *words)
    assert finished(process) == 1, launch.output("script").read_text()[-3000:]
    drill = Drill(
        "a launch script resumes with another world size",
        "service_failed:trainer",
        ("The checkpoint was saved with another number of GPUs than 1", "model_world_size_1_rank_0.pt"),
        ("Resume with the number that saved it", "infrastructure.ngpus_per_node"),
    )
    judged(ToyRun(launch.run_dir("script")), drill)


# --- what a run reads and writes ----------------------------------------------------------------------------

RAISES = """
def score(data_source, solution_str, ground_truth, extra_info=None, **other):
    return float(extra_info["no_such_column"])
"""


def test_a_reward_function_that_raises(launch: Launch) -> None:
    (launch.state / "reward.py").write_text(RAISES)
    run = ToyRun(launch.run_dir("reward"))
    process = launch.up("reward", STEPS, f"reward.function={launch.state}/reward.py:score", "agent.kind=chat")
    assert finished(process) == 1, launch.output("reward").read_text()[-3000:]
    drill = Drill(
        "a reward function raises",
        "service_failed:trainer",
        ("The reward function score raised KeyError: 'no_such_column'",),
        ("reward.function",),
    )
    judged(run, drill)


ODD = """
import itertools

ODD = (float("nan"), None, "1.0", float("-inf"))
CALLS = itertools.count()

def score(data_source, solution_str, ground_truth, extra_info=None, **other):
    call = next(CALLS)
    return ODD[call % 8] if call % 8 < len(ODD) else (call % 3) / 2
"""


def test_rewards_that_are_no_numbers(launch: Launch) -> None:
    """One reward that is NaN makes the gradient of the whole step NaN: the others are trained without it."""
    (launch.state / "odd.py").write_text(ODD)
    run = ToyRun(launch.run_dir("odd"))
    words = ("training.total_steps=2", f"reward.function={launch.state}/odd.py:score", "agent.kind=chat")
    assert finished(launch.up("odd", *words)) == 0, launch.output("odd").read_text()[-3000:]
    results = [json.loads(file.read_text()) for file in run.run_dir.glob("trials/step_*/*/result.json")]
    failed = [one["exception_info"] for one in results if one["exception_info"]]
    assert failed and len(failed) < len(results)
    assert {one["exception_type"] for one in failed} == {"RewardError"}
    told = {one["exception_message"] for one in failed}
    assert {
        f"what odd.py:score returned is {value}; expected a finite number"
        for value in ("nan", "-inf", "'1.0'")
    } <= told
    (metrics,) = run.run_dir.glob("attempt_001/metrics.verl.*.jsonl")
    steps = [json.loads(line)["data"] for line in metrics.read_text().splitlines()]
    assert len(steps) == 2 and all(math.isfinite(float(step["actor/grad_norm"])) for step in steps)


def test_a_disk_that_is_full_for_checkpoints(launch: Launch) -> None:
    small = launch.state / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        run = ToyRun(launch.run_dir("full"))
        there = f"trainer.overrides={{trainer.default_local_dir: {small}}}"
        process = launch.up("full", STEPS, "training.save_freq=1", there)
        assert finished(process) == 1, launch.output("full").read_text()[-3000:]
        drill = Drill(
            "the disk of the checkpoints is full",
            "service_failed:trainer",
            ("A checkpoint could not be written or read: the disk is probably full",),
            ("df -h",),
        )
        judged(run, drill)
        told = [e.text for e in run.events() if e.kind == "symptom" and e.data["id"].startswith("disk_low")]
        assert any("checkpoints" in text for text in told), told
    finally:
        launch.end()
        subprocess.run(["umount", "-l", small], check=True)


# --- Ray has too little --------------------------------------------------------------------------------------


def lacking(cluster: Cluster) -> float:
    """Wait until Ray itself counts that something waits for more than is free; since when."""

    async def load() -> RayLoad:
        http = Http()
        try:
            return await RayRest(http, cluster.api, cluster.token).load()
        finally:
            await http.close()

    def short() -> bool:
        time.sleep(0.5)  # Ray counts every 5 s
        try:
            return shortage(asyncio.run(load())) is not None
        except RayError:
            return False  # its dashboard is busy

    wait_until(short, 200, "an actor that waits")
    return time.time()


def alerted(run: ToyRun, drill: Drill, seen: float) -> None:
    """Wait for the alert. In a healthy start verl asks for more than is free for a moment, too, so that it comes
    ``GROUP_HOLD_S`` after the run has seen it; ``seen``: when this test did."""

    def told() -> float:
        found = (e for e in run.events() if e.kind == "symptom" and e.data["id"] == drill.alert)
        return next((e.at for e in found), 0.0)

    at = wait_until(told, GROUP_HOLD_S + NAMED_S, f"the alert {drill.alert}")
    alert = next(one for one in status(run)["symptoms"] if one["id"] == drill.alert)
    said = f"{alert['title']}: {alert['cause']}"
    assert [word for word in drill.cause if word not in said] == [], said
    assert [word for word in drill.fix if word not in alert["fix"]] == [], alert["fix"]
    note(drill, at - seen, said, alert["fix"])
    assert at - seen < GROUP_HOLD_S + 2 * COUNTED_S  # Ray counts for each of the two at other times


def test_an_actor_that_waits_for_cpus(launch: Launch) -> None:
    """Three CPUs a GPU are for the actors of one GPU, and TransferQueue's take two before them."""
    folder = launch.state / "cluster"
    folder.mkdir()
    cluster = Cluster(folder, str(verl_python()), cpus=7, gpus=2, store=512 << 20)
    try:
        cluster.wait()
        there = (
            f"ray.address={cluster.address}",
            f"ray.dashboard_address={cluster.api.removeprefix('http://')}",
            f"ray.auth_token_file={cluster.token}",
        )
        run = ToyRun(launch.run_dir("waits"))
        process = launch.up("waits", STEPS, "verl.actor_deadline=150", *there)
        seen = lacking(cluster)
        drill = Drill(
            "an actor waits for CPUs: the alert",
            "ray-too-few-resources",
            ("An actor waits for 6 CPUs", "Ray has 5 of 7 CPUs free"),
            ("Start Ray with at least 8 CPUs", "ray status"),
        )
        alerted(run, drill, seen)
        assert finished(process) == 1, launch.output("waits").read_text()[-3000:]
        result = result_of(run.run_dir)
        assert result.cause is not None and "An actor waits for 6 CPUs" in result.cause.text
        assert "at least 8 CPUs" in result.cause.fix
        told = of_doctor(run.run_dir)
        assert told["title"].endswith(result.cause.text) and told["fix"] == result.cause.fix
    finally:
        cluster.end()


# --- a launch script ------------------------------------------------------------------------------------------

SCRIPT = """#!/usr/bin/env bash
# As LiveRL starts a run: settings in the environment, and verl's output in a log of its own.
set -euo pipefail
mkdir -p logs
echo "train log: $PWD/logs/$EXP_NAME.log"
"$VENV_PATH/bin/python" -m verl.trainer.main_ppo "$@" >"logs/$EXP_NAME.log" 2>&1
"""


def sources(folder: Path) -> Path:
    """A folder for PYTHONPATH with nothing but our own package."""
    package = folder / "path" / "liverl"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(f'__path__ = ["{Path(liverl.__file__).parent}"]\n')
    return package.parent


def script(launch: Launch, name: str, *words: str) -> subprocess.Popen[bytes]:
    """Start a run whose trainer is a launch script that calls verl with these words."""
    port, ray_port, dashboard = free_ports(3)
    folder = launch.state / "launch"
    folder.mkdir()
    (folder / "start.sh").write_text(SCRIPT)
    config = {
        "run": {"topology": "verl", "engine": "vllm"},
        "trainer": {"kind": "command", "command": ["bash", "start.sh", *words]},
        "environment": {"venv_path": str(verl_python().parents[1])},
        "model": {"model_path": str(launch.model / "model"), "served_model_name": "policy"},
        "infrastructure": {
            "nnodes": 1,
            "ngpus_per_node": 2,
            "litellm_port": port,
            "ray_port": ray_port,
            "ray_dashboard_port": dashboard,
        },
        "vllm": {"gen_tp": 1},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    env = {
        "PYTHONPATH": str(sources(folder)),
        "VERL_USE_EXTERNAL_MODULES": "liverl.verl_runtime.cpu",
        "TORCH_COMPILE_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(launch.temp),
    }
    return launch.own(name, folder / "config.yaml", env)


def test_a_key_with_a_typo_in_a_launch_script(launch: Launch) -> None:
    run = ToyRun(launch.run_dir("script"))
    process = script(launch, "script", "algorithm.adv_estimator=grpo", "trainer.total_epoch=3")
    assert finished(process) == 1, launch.output("script").read_text()[-3000:]
    drill = Drill(
        "a launch script gives verl a key with a typo",
        "service_failed:trainer",
        ("This verl has no configuration key trainer.total_epoch",),
        ("did you mean trainer.total_epochs?", "launch script"),
    )
    result = judged(run, drill)
    assert result.cause is not None and (result.cause.log or "").endswith("train-log.1.log")


def plain_words(launch: Launch, smoke: Path, reward: str = REWARD) -> list[str]:
    """What a script gives verl for a run of 200 steps that starts a Ray of its own."""
    if not (smoke / "val.parquet").exists():
        command = [str(verl_python()), "-m", "liverl.verl_runtime.smoke", str(smoke)]
        env = {**os.environ, "PYTHONPATH": str(sources(launch.state))}
        subprocess.run(command, check=True, timeout=400, env=env)
    files = [str(folder / "train.parquet") for folder in (smoke, launch.state)]
    subprocess.run([str(verl_python()), "-c", DATA, *files], check=True, timeout=200)
    (launch.state / "reward.py").write_text(reward)
    ray = ("ray_kwargs.ray_init.num_cpus=16", "+ray_kwargs.ray_init.num_gpus=2")
    return [*overrides(launch.state, smoke, 200), *ray]


def test_a_launch_script_whose_data_is_missing(launch: Launch, smoke: Path) -> None:
    run = ToyRun(launch.run_dir("missing"))
    process = script(
        launch, "missing", *plain_words(launch, smoke), "data.train_files=/no/such/train.parquet"
    )
    assert finished(process) == 1, launch.output("missing").read_text()[-3000:]
    drill = Drill(
        "a launch script names data that is missing",
        "service_failed:trainer",
        ("/no/such/train.parquet",),
        ("data.train_index",),
    )
    judged(run, drill)
    told = [e.data["id"] for e in run.events() if e.kind == "symptom"]
    assert told == ["service_failed:trainer"], "its Ray exits before it, and is no failure of its own"


def test_a_launch_script_whose_raylet_is_killed(launch: Launch, smoke: Path) -> None:
    """Its verl has started a Ray of its own, whose logs are in the session's folder only."""
    run = ToyRun(launch.run_dir("raylet"))
    process = script(launch, "raylet", *plain_words(launch, smoke))
    stepped(run, launch)
    os.kill(actor(run, "raylet/raylet"), signal.SIGKILL)
    assert finished(process) == 1, launch.output("raylet").read_text()[-3000:]
    drill = Drill(
        "a launch script's raylet is killed", "service_failed:trainer", ("raylet",), ("raylet.out",)
    )
    judged(run, drill, launch.temp)
