"""What the supervisor asks others: it knows nothing of logs, GPUs and engines itself. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from liverl.model import GpuStatus


class Grant(Protocol):
    """The GPUs that a service has, or why it has none."""

    @property
    def uuids(self) -> tuple[str, ...]:
        """The ids of the GPUs."""

    @property
    def reason(self) -> str | None:
        """Why the service has none; None if it has."""


class Ledger(Protocol):
    """Which service holds which GPUs."""

    def reserve(
        self, service: str, count: int, gpus: Sequence[GpuStatus], allowed: Collection[str] | None = None
    ) -> Grant:
        """Reserve ``count`` GPUs for a service, among those that are ``allowed``."""
        ...

    def refusal(
        self,
        services: Sequence[str],
        each: int,
        gpus: Sequence[GpuStatus],
        allowed: Collection[str] | None = None,
    ) -> str | None:
        """Why services cannot get ``each`` GPUs each; None if they can."""
        ...

    def release(self, service: str) -> tuple[str, ...]:
        """Release all GPUs of a service."""
        ...


# The numeric address for a symbolic host of the plan (``plan.spec.BRIDGE``) and "", or "" and why there is none
Addresses = Callable[[str], Awaitable[tuple[str, str]]]


class RouteProblem(Protocol):
    """What is wrong with a replica's token routes."""

    @property
    def words(self) -> str:
        """What a route answered instead."""

    @property
    def final(self) -> bool:
        """Whether no later check of the same process can change it."""


# The check of a replica's token routes: how to POST (path, body), and the model's name -> what is wrong; None: nothing
TokenRoutes = Callable[
    [Callable[[str, Mapping[str, Any]], Awaitable[tuple[int, str]]], str], Awaitable[RouteProblem | None]
]


async def no_address(host: str) -> tuple[str, str]:
    """Where nobody knows symbolic hosts."""
    return "", f"nothing tells the address of {host}"
