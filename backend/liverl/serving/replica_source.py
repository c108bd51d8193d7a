"""The interface to replicas that are no services of ours: verl's actors, of our trainer or of a launch script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from liverl.causes.verdict.ray_shortage import RayLoad
from liverl.model import Cause, EngineFacts
from liverl.observe.engine.activity import ActivityState
from liverl.serving.endpoint import ReplicaEndpoint


class ReplicaSource(Protocol):
    """Finds verl's replicas from outside. Implemented by ``VerlReplicas`` and ``LaunchScript``."""

    @property
    def cause(self) -> Cause | None:
        """Why the run has to fail; None while nothing is wrong."""

    @property
    def total_steps(self) -> int | None:
        """Steps of the training, from the trainer's log; None before they are printed."""

    @property
    def trackers(self) -> dict[str, str]:
        """Where the trainer logs its metrics besides: ``wandb`` -> URL of the run, ``tensorboard`` -> folder."""

    @property
    def ray_load(self) -> RayLoad | None:
        """The load of the Ray cluster, while a replica has no process yet; else None."""

    async def look(self) -> float:
        """Poll once; returns seconds until the next poll."""

    async def close(self) -> None:
        """End the child process that asks Ray for addresses."""

    def endpoints(self) -> list[ReplicaEndpoint]:
        """Every expected replica, by rank, found or not."""

    def serving(self) -> int:
        """The number of replicas that serve now."""

    def doing(
        self, endpoint: ReplicaEndpoint, facts: EngineFacts | None, trainer: Mapping[str, Any]
    ) -> ActivityState:
        """What one replica does now. ``facts``: of its engine, None if it did not answer. ``trainer``: the trainer's
        report."""

    def dead(self) -> str | None:
        """The replica that died first, with its cause; None if none died by itself."""

    def ended_unasked(self, name: str) -> bool:
        """Whether the process of the replica has ended by itself, while the trainer that owns it lives. False where
        Ray's words leave that open."""

    def members(self, trees: dict[str, list[int]]) -> dict[str, list[int]]:
        """``trees`` (service -> pids) with each replica's processes under its own name instead of the trainer's."""
