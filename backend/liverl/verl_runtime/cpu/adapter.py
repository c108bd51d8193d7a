"""Loads weights into a replica: in a worker of the trainer that shares its device with a replica (hybrid), or in the
worker beside a replica on a device of its own, which gets them from the trainer (``checkpoint.py``)."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout

from liverl.verl_runtime.cpu.parts import parts_of
from liverl.verl_runtime.cpuengine.settings import faults

logger = logging.getLogger(__name__)
logger.setLevel(os.getenv("VERL_LOGGING_LEVEL", "INFO"))

_CRASH_EXIT = 17  # exit status of the fault "crash_at_step"


class CpuServerAdapter(BaseRollout):  # type: ignore[misc]
    """Registered for ("vllm", "async")."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        rank = int(os.environ["RANK"])
        size = (
            self.config.tensor_model_parallel_size
            * self.config.data_parallel_size
            * self.config.pipeline_model_parallel_size
        )
        self._replica = rank // size if replica_rank == -1 else replica_rank
        self._leads = rank % size == 0  # the other ranks of a replica only take part in gathering the weights
        self._server: Any = None
        self._first_step: int | None = None

    def _handle(self) -> Any:
        if self._server is None:  # replicas start after the workers
            self._server = ray.get_actor(f"{self.config.name}_server_{self._replica}_0")
        return self._server

    async def resume(self, tags: list[str]) -> None:
        """Wake the replica up; ``tags`` as in vLLM's sleep mode."""
        if self._leads and self.config.free_cache_engine:
            await self._handle().wake_up.remote(tags=tags)

    async def release(self) -> None:
        """Put the replica to sleep."""
        if self._leads and self.config.free_cache_engine:
            await self._handle().sleep.remote()

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    async def update_weights(
        self,
        weights: Any,
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        **unused: Any,
    ) -> None:
        """Send named tensors in parts of the configured bucket size, then the step, then clear the cache.

        Raises:
            ValueError: the wire format is not supported.
        """
        if wire_format != "named_tensors":
            raise ValueError(f"the CPU replica supports only named_tensors, not {wire_format}")
        self._crash_if_asked(global_steps)
        started, size = time.monotonic(), 0
        limit = self.config.checkpoint_engine.update_weights_bucket_megabytes << 20
        async for part, last in parts_of(weights, limit):
            size += sum(tensor.nbytes for tensor in part.values())
            if self._leads:
                await self._handle().load_weights.remote(part, last, global_steps)
        if not self._leads:
            return
        await self._handle().clear_kv_cache.remote()
        if global_steps is not None:
            await self._handle().set_global_steps.remote(global_steps)
        if self._replica == 0:
            logger.info("update_weights done, time cost: %.2fs (%.1f MiB)",
                        time.monotonic() - started, size / 2**20)  # fmt: skip

    def _crash_if_asked(self, step: int | None) -> None:
        """Fault ``crash_at_step``: exit this worker, but only in a run that started at step 0.

        A run resumed from a checkpoint with the same configuration must get past that step.
        """
        if self._first_step is None:
            self._first_step = step or 0
        if step is not None and step == faults().crash_at_step and self._first_step == 0:
            logger.error("fault: this worker exits at step %d", step)
            os._exit(_CRASH_EXIT)
