"""What the supervisor asks others about processes of its services: why one ended, and whether one may be started."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from liverl.model import Cause
from liverl.supervise.services.instance import Instance

# What is looked at right before a process of an instance is started: why it must not be started; None if it may
BeforeStart = Callable[[Instance], Awaitable[Cause | None]]


class Ends(Protocol):
    """Why processes ended."""

    def begin(self, instance: Instance) -> asyncio.Task[Cause | None] | None:
        """Find in the background why the newest process of an instance ended; None if that is known otherwise."""
        ...

    async def of(self, instance: Instance) -> Cause:
        """Why an instance is not up any more."""
        ...

    def close(self) -> None:
        """Give up what is still being found."""
        ...
