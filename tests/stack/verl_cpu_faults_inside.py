"""Runs in verl's Python, in a Ray of its own: five replicas, four of them with a fault. Prints one JSON object."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

os.environ["LIVERL_CPU_FAULTS"] = json.dumps(
    {
        "late_replica": {"index": 1, "seconds": 6},
        "pending_replica": 2,
        "mute_replica": 3,
        "dead_replica": 4,
        "crash_at_step": None,
    }
)

import ray
from verl.workers.config import MultiTurnConfig, RolloutConfig
from verl.workers.rollout.replica import RolloutMode, RolloutReplicaRegistry

MODEL = sys.argv[1]
PATIENCE = 5.0  # seconds for one call


class Model:
    local_path = MODEL


@ray.remote(num_cpus=0)
class Worker:
    """The trainer's worker of a replica, which serves on the same host."""


def replica(rank: int) -> Any:
    config = RolloutConfig(
        name="vllm",
        tensor_model_parallel_size=1,
        max_model_len=256,
        max_num_seqs=4,
        prompt_length=128,
        response_length=64,
        load_format="auto",
        multi_turn=MultiTurnConfig(format="qwen3_coder"),
    )
    made = RolloutReplicaRegistry.get("vllm")(
        replica_rank=rank, config=config, model_config=Model(), gpus_per_node=1
    )
    made.rollout_mode, made.workers = RolloutMode.HYBRID, [Worker.remote()]
    return made


async def main() -> dict[str, Any]:
    began = time.monotonic()
    ended: dict[int, float] = {}

    replicas = [replica(rank) for rank in range(5)]  # an actor lives as long as somebody holds its handle

    async def launch(rank: int) -> None:
        await replicas[rank].launch_servers()
        ended[rank] = time.monotonic() - began

    tasks = [asyncio.create_task(launch(rank)) for rank in range(5)]
    await asyncio.wait([tasks[0], tasks[1], tasks[4]], timeout=150)
    told: dict[str, Any] = {"late_by": ended[1] - ended[0], "dead": repr(tasks[4].exception())}
    for rank in range(4):
        actor = ray.get_actor(f"vllm_server_{rank}_0")
        try:
            async with asyncio.timeout(PATIENCE):
                told[str(rank)] = await actor.get_server_address.remote()
        except Exception as error:
            told[str(rank)] = type(error).__name__ + ": " + str(error)[-200:]
    output = await ray.get_actor("vllm_server_0_0").generate.remote([5, 6, 7], {"logprobs": True}, "r1")
    told["generated"] = [len(output.token_ids), len(output.log_probs), output.stop_reason]
    for task in tasks:
        task.cancel()
    return told


ray.init(num_cpus=4, num_gpus=0, include_dashboard=False, namespace="liverl", object_store_memory=100 << 20)
print(json.dumps(asyncio.run(main())), flush=True)
os._exit(0)  # the actors that never answer would hold the interpreter's exit
