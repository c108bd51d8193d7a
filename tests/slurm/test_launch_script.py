"""A launch script in the form of verl's own example for Slurm: Ray by srun on each node, in a container, and the
training in a third step; or submitted as a job of Ray. It is run as ``trainer.kind: command`` on two nodes.

Slurm, Ray and verl are real, the nodes are namespaces of this machine, and the replicas are those for CPUs. Simulated:
apptainer, which only executes what it is given. It takes five to ten minutes on two cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from kit.runs import ToyRun
from kit.slurm import Slurm, over
from kit.verl_runs import RUN, nothing_lives, smoke_directory, verl_python
from kit.waiting import wait_until

from liverl.plan.guest_path import stub
from liverl.snapshot_json import decode_snapshot

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(2400)]

STEPS = 2
APPTAINER = """#!/bin/sh
# Simulated: takes the options and the image off, and runs the command here.
while [ "$1" != img.sif ]; do shift; done
shift
exec "$@"
"""
JOB = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
export PATH={bin}:{folder}:$PATH XDG_STATE_HOME={folder}/state
exec {program} up --no-ui --yes --config {folder}/my.yaml --name script --run-root {folder}/runs
"""
SCRIPT = """#!/bin/bash
set -x
NNODES=${{NNODES:-16}}
mapfile -t nodes_array < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head_node=${{nodes_array[0]}}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
port=6379
ip_head=$head_node_ip:$port
export ip_head
echo "IP Head: $ip_head"
srun --nodes=1 --ntasks=1 -w "$head_node" \\
    apptainer run --nv --bind /work img.sif \\
    ray start --head --node-ip-address="$head_node_ip" --port=$port --num-cpus 64 --num-gpus 1 --block &
sleep 30
for ((i = 1; i < SLURM_JOB_NUM_NODES; i++)); do
    node_i=${{nodes_array[$i]}}
    srun --nodes=1 --ntasks=1 -w "$node_i" \\
        apptainer run --nv --bind /work img.sif \\
        ray start --address "$ip_head" --num-cpus 64 --num-gpus 1 --block &
    sleep 5
done
PYTHONUNBUFFERED=1 {start} \\
    python3 -m verl.trainer.main_ppo \\
    {overrides} \\
    trainer.nnodes="$NNODES" trainer.n_gpus_per_node=1 2>&1 | tee verl_demo_slurm.log
"""
SRUN = 'srun --overlap --nodes=1 --ntasks=1 -w "$head_node" apptainer run --nv --bind /work img.sif'
SUBMIT = "ray job submit --address http://127.0.0.1:8265 --runtime-env={folder}/runtime_env.yaml --"
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return len(solution_str) % 2
"""
PLAIN = """
import sys
from pyarrow import parquet
parquet.write_table(parquet.read_table(sys.argv[1]).drop_columns(["agent_name"]), sys.argv[2])
"""
ENV = {
    "VERL_USE_EXTERNAL_MODULES": "liverl.verl_runtime.cpu",
    "VERL_ENGINE_DEVICE": "cuda",
    "TORCH_COMPILE_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Else the head asks for a token where some other ray.init() has left ~/.ray/auth_token, and the second host,
    # which does not look for one, is refused.
    "RAY_AUTH_MODE": "disabled",
}


def overrides(smoke: Path, folder: Path) -> str:
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return " ".join(
        [
            *("algorithm.adv_estimator=grpo", "algorithm.use_kl_in_reward=False", "trainer.logger=[console]"),
            *(f"data.train_files={folder}/train.parquet", f"data.val_files={folder}/val.parquet"),
            *("data.train_batch_size=4", "data.max_prompt_length=512", "data.max_response_length=32"),
            *("data.dataloader_num_workers=0", "data.filter_overlong_prompts=False"),
            *(
                f"actor_rollout_ref.model.path={smoke}/model",
                "actor_rollout_ref.model.use_remove_padding=False",
            ),
            "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
            *(
                f"{actor}.strategy=fsdp2",
                f"{actor}.ppo_mini_batch_size=4",
                f"{actor}.ppo_micro_batch_size_per_gpu=4",
            ),
            *(f"{actor}.use_torch_compile=False", f"{actor}.fsdp_config.use_torch_compile=False"),
            *("actor_rollout_ref.ref.fsdp_config.use_torch_compile=False", f"{actor}.use_kl_loss=False"),
            *(f"{rollout}.name=vllm", f"{rollout}.tensor_model_parallel_size=1", f"{rollout}.n=2"),
            *(f"{rollout}.max_model_len=1024", f"{rollout}.disable_log_stats=False"),
            *(f"{rollout}.log_prob_micro_batch_size_per_gpu=4", f"{rollout}.agent.num_workers=1"),
            *("reward.num_workers=1", f"reward.custom_reward_function.path={folder}/reward.py"),
            *("transfer_queue.backend.SimpleStorage.num_data_storage_units=1", "trainer.device=cpu"),
            *("trainer.val_before_train=False", "trainer.save_freq=-1", "trainer.test_freq=-1"),
            *(f"trainer.total_training_steps={STEPS}", f"trainer.default_local_dir={folder}/checkpoints"),
        ]
    )


@pytest.mark.parametrize("how", ["srun", "job"])
def test_a_script_in_the_form_of_verls_example(
    how: str, two_hosts: Slurm, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    smoke = smoke_directory(tmp_path_factory)
    if not (smoke / "model").exists():
        pytest.skip("LIVERL_TEST_VERL_SMOKE names no folder with a smoke model")
    # Rows of the smoke model name an agent loop of ours; those of people name none.
    for name in ("train", "val"):
        words = [str(verl_python()), "-c", PLAIN, f"{smoke}/{name}.parquet", f"{tmp_path}/{name}.parquet"]
        subprocess.run(words, check=True)
    package = stub("path")
    (tmp_path / package.path).parent.mkdir(parents=True)
    (tmp_path / package.path).write_text(package.text)
    (tmp_path / "apptainer").write_text(APPTAINER)
    (tmp_path / "apptainer").chmod(0o755)
    (tmp_path / "reward.py").write_text(REWARD)
    env = ENV | {"PYTHONPATH": str(tmp_path / "path")}
    (tmp_path / "runtime_env.yaml").write_text(json.dumps({"env_vars": env}))
    start = SRUN if how == "srun" else SUBMIT.format(folder=tmp_path)
    (tmp_path / "go.sh").write_text(SCRIPT.format(start=start, overrides=overrides(smoke, tmp_path)))
    config = {
        "run": {"topology": "verl", "engine": "vllm"},
        "trainer": {"kind": "command", "command": ["bash", f"{tmp_path}/go.sh"], "env": env},
        "model": {"model_path": f"{smoke}/model", "served_model_name": "policy"},
        "infrastructure": {"nnodes": 2, "ngpus_per_node": 1},
        "vllm": {"gen_tp": 1},
        "environment": {"venv_path": str(verl_python().parent.parent)},
    }
    (tmp_path / "my.yaml").write_text(json.dumps(config))
    job = tmp_path / "job.sh"
    program = Path(sys.executable).with_name("liverl-tui")
    job.write_text(JOB.format(bin=verl_python().parent, folder=tmp_path, program=program))
    run = ToyRun(tmp_path / "runs" / "liverl" / "script")

    number = two_hosts.submit(job)
    serving = set[str]()

    def ended() -> bool:
        if (run.run_dir / "snapshot.json").exists():
            told = decode_snapshot((run.run_dir / "snapshot.json").read_bytes())
            serving.update(one.address for one in told.replicas.items if one.state == "ready" and one.address)
        return two_hosts.job(number)["JobState"] not in ("PENDING", "RUNNING")

    wait_until(ended, RUN, "the end of the job")
    assert over(two_hosts, number) == "COMPLETED", two_hosts.output(number)[-3000:]
    result = run.result()
    assert (result.state, result.exit_code, result.steps) == ("done", 0, STEPS)
    assert sorted(urlsplit(one).hostname or "" for one in serving) == ["10.77.0.10", "10.77.0.11"]
    nothing_lives(run.run_dir)
