"""verl's trainer without a GPU: set ``VERL_USE_EXTERNAL_MODULES=liverl.verl_runtime.cpu`` in every process.

Registers what is liverl's own here: a CPU platform, a replica class under "vllm" with its weight adapter, and a
checkpoint engine that moves weights to replicas on devices of their own. Everything else is verl's own: hydra, Ray,
TransferQueue, trainers, the balancer and client of the replicas, agent loops, FSDP, checkpoints, logs.
"""

from __future__ import annotations

import os


def _register() -> None:
    from verl.plugin.platform import platform_manager

    from liverl.verl_runtime.cpu.platform import NAME, CpuPlatform, init_process_group

    platform_manager.PlatformRegistry.register(platform=NAME)(CpuPlatform)
    platform_manager.set_platform(CpuPlatform())
    # The engines are registered for "cuda" and "npu" only, but run on the platform's device.
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")

    import verl.utils.distributed

    verl.utils.distributed.initialize_global_process_group_ray = init_process_group

    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    RolloutReplicaRegistry.register("vllm", _replica_class)
    base._ROLLOUT_REGISTRY[("vllm", "async")] = "liverl.verl_runtime.cpu.adapter.CpuServerAdapter"

    from verl.checkpoint_engine.base import CheckpointEngineRegistry

    from liverl.verl_runtime.cpu.checkpoint import CpuCheckpointEngine

    CheckpointEngineRegistry.register(NAME)(CpuCheckpointEngine)


def _replica_class() -> type:
    from liverl.verl_runtime.cpu.replica import CpuReplica

    return CpuReplica


_register()
