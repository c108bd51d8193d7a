"""The source of a run that somebody else started. It is read only: every command is refused, with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from liverl.control.messages import CommandError
from liverl_tui.data.view import KEPT_EVENTS, View

if TYPE_CHECKING:
    from liverl.daemon.plan_change import PlanChange
    from liverl.model import Result, Snapshot
    from liverl.watch.watcher import Watcher

READ_ONLY = "`watch` is read-only: it changes nothing of a run that was started elsewhere"


class WatchSource:
    """Shows what ``watcher`` sees. ``interval``: seconds between two views; never shorter than ``LEAST_S``."""

    LEAST_S = 1.0

    def __init__(self, watcher: Watcher, interval: float) -> None:
        self.run = watcher.run
        self.interval = interval
        self._watcher = watcher

    async def views(self) -> AsyncIterator[View]:
        """See ``Source.views``; they never end."""
        snapshot: Snapshot | None = None
        while True:
            why = ""
            try:
                snapshot = await asyncio.to_thread(self._watcher.poll)
            except OSError as error:
                why = f"cannot read: {error}"
            yield View("live", why, snapshot, self._watcher.events[-KEPT_EVENTS:])
            await asyncio.sleep(max(self.LEAST_S, self.interval))

    async def command(self, name: str, **args: Any) -> dict[str, Any]:
        """Answer what only reads: ``inspect`` and ``inspect_gpu``.

        Raises:
            CommandError: every other command, or nothing is known of that service or GPU.
        """
        from liverl.observe.gpu.detail import Unreadable

        if name == "inspect":
            detail = await asyncio.to_thread(self._watcher.inspect, str(args.get("service")))
            if detail is None:
                raise CommandError("unknown", "its process is not visible from here")
            return dict(msgspec.to_builtins(detail))
        if name == "inspect_gpu":
            try:
                return dict(
                    msgspec.to_builtins(await asyncio.to_thread(self._watcher.gpu, str(args.get("gpu"))))
                )
            except Unreadable as error:
                raise CommandError("gpu_unreadable", f"n/a ({error})") from None
        raise CommandError("refused", READ_ONLY)

    async def revive(self) -> None:
        """See ``Source.revive``; there is no backend."""
        raise CommandError("refused", READ_ONLY)

    async def kill(self, tell: Callable[[str], None]) -> Result:
        """See ``Source.kill``; the run cannot be stopped from here."""
        raise CommandError("refused", READ_ONLY)

    async def ended(self, attempt: int) -> Result:
        """See ``Source.ended``; the run cannot be stopped from here."""
        raise CommandError("refused", READ_ONLY)

    async def resume(self, change: PlanChange) -> None:
        """See ``Source.resume``; the run cannot be resumed from here."""
        raise CommandError("refused", READ_ONLY)
