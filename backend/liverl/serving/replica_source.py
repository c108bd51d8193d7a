"""Where replicas come from that are no services of ours: verl's actors, of our own run or of a launch script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from liverl.model import Cause, EngineFacts
from liverl.observe.engine.activity import ActivityState
from liverl.serving.endpoint import ReplicaEndpoint


class ReplicaSource(Protocol):
    """Finds verl's replicas from outside. ``VerlReplicas`` and ``LaunchScript`` are the two that there are."""

    @property
    def cause(self) -> Cause | None:
        """Why the run has to fail; None while nothing is wrong."""

    @property
    def total_steps(self) -> int | None:
        """Steps of the training, as its trainer has printed them; None before."""

    async def look(self) -> float:
        """Look once; returns seconds until the next look."""

    async def close(self) -> None:
        """End the child process that asks Ray for addresses."""

    def endpoints(self) -> list[ReplicaEndpoint]:
        """Every expected replica, found or not."""

    def serving(self) -> int:
        """How many of them serve now."""

    def doing(
        self, endpoint: ReplicaEndpoint, facts: EngineFacts | None, trainer: Mapping[str, Any]
    ) -> ActivityState:
        """What one of them does now. ``facts``: of its engine, None if it did not answer. ``trainer``: the trainer's
        report."""

    def dead(self) -> str | None:
        """A replica that died by itself, in words; None if none did."""

    def members(self, trees: dict[str, list[int]]) -> dict[str, list[int]]:
        """``trees`` (service -> pids) with each replica's processes told apart from the trainer's."""
