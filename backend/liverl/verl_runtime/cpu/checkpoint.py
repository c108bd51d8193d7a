"""Weight updates to replicas that do not share a worker with the trainer (verl's trainer_mode separate_async).

verl's own checkpoint engines need CUDA or RDMA. This one is liverl's, for the CPU only: the trainer's rank 0 calls the
checkpoint worker of each replica with parts of the weights, and Ray's object store carries them. Which replicas get
them and when is decided by verl's ``CheckpointEngineManager``, which also cuts and resumes their requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import ray
import torch
from verl.checkpoint_engine.base import CheckpointEngine

from liverl.verl_runtime.cpu.parts import parts_of

_Part = dict[str, torch.Tensor]


class CpuCheckpointEngine(CheckpointEngine):  # type: ignore[misc]
    """One process's end of a transfer: a trainer's rank, or the checkpoint worker of a replica.

    A replica's worker holds what has arrived and is not loaded yet, at most the whole model.
    """

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        """``bucket_size``: bytes of one part; a larger tensor is a part of its own. ``is_master``: verl sets it in the
        trainer's rank 0; ``build_topology`` decides who sends."""
        self._bucket_size = bucket_size
        self._receivers: Sequence[Any] = ()
        self._arrived: asyncio.Queue[tuple[_Part, bool]] = asyncio.Queue()

    def prepare(self) -> Any:
        """Return this worker's actor handle, by which the sender calls it."""
        return ray.get_runtime_context().current_actor

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Rank 0 of the trainer sends to all checkpoint workers; ``metadata`` holds the trainer's handles, then
        theirs."""
        receivers = metadata[actor_wg_world_size:]
        nobody: list[Any] = []
        senders = {"receivers": [receivers, *[nobody] * (actor_wg_world_size - 1)]}
        return senders, {"receivers": [nobody] * rollout_world_size}

    def init_process_group(self, receivers: Sequence[Any]) -> None:
        """Begin a transfer. ``receivers``: handles of the workers to send to; empty in all but the sender."""
        self._receivers = receivers
        self._arrived = asyncio.Queue()

    def finalize(self) -> None:
        """End a transfer: forget the receivers and what was not read."""
        self._receivers = ()
        self._arrived = asyncio.Queue()

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    async def send_weights(self, weights: Any, global_steps: int | None = None) -> None:
        """Send named tensors to all receivers. Every rank of the trainer reads ``weights``, since reading gathers the
        shards of all ranks.

        Raises:
            ray.exceptions.RayError: a receiver has failed.
        """
        async for part, last in parts_of(weights, self._bucket_size):
            if not self._receivers:
                continue
            stored = ray.put(part)
            await asyncio.gather(
                *(
                    worker.execute_checkpoint_engine.remote("arrive", stored, last)
                    for worker in self._receivers
                )
            )

    def arrive(self, part: _Part, last: bool) -> None:
        """Take a part that the sender has sent; it is called through verl's ``execute_checkpoint_engine``."""
        self._arrived.put_nowait((part, last))

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yield each name and tensor in the order in which they were sent."""
        last = False
        while not last:
            part, last = await self._arrived.get()
            for name, tensor in part.items():
                yield name, tensor
