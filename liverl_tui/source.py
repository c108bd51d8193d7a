"""Where views come from: the control socket of a live run, or the files of one without a backend.

The interface never owns a process; all it can do is ask (``command``), and start a dead backend again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any, Protocol

import msgspec

from liverl.control.messages import NO_EVENTS, BackendDead, BackendElsewhere, BackendSilent, ControlError
from liverl.model import Event, Snapshot
from liverl.rundir import RunDir
from liverl_tui.view import KEPT_EVENTS, View

RETRY_S = 1.0
FILES_S = 2.0  # between two looks at the files of a run without a backend


class Source(Protocol):
    """What the interface shows and asks."""

    run: RunDir

    def views(self) -> AsyncIterator[View]:
        """Views as things change, until the interface is closed."""

    async def command(self, name: str, **args: Any) -> dict[str, Any]:
        """Have the backend do something.

        Raises:
            ControlError: it was refused, failed, or there is nobody to ask.
        """

    async def revive(self) -> None:
        """Start a dead backend again; it adopts what still runs.

        Raises:
            LaunchError: it does not come up.
        """


def client_name() -> str:
    """Who the run's events say we are."""
    try:
        where = os.ttyname(0).removeprefix("/dev/")
    except OSError:
        where = "no terminal"
    return f"interface pid {os.getpid()} ({where})"


class RunSource:
    """A run on this host."""

    def __init__(self, run: RunDir, *, interval: float = 0.5) -> None:
        self.run = run
        self.interval = interval  # seconds between two snapshots
        self.name = client_name()

    async def views(self) -> AsyncIterator[View]:
        view = View()
        while True:
            try:
                async for view in self._live(view):
                    yield view
                why, link = "", "ended"
            except BackendSilent as error:
                yield msgspec.structs.replace(view, why=f"{error}; trying again")
                await asyncio.sleep(RETRY_S)
                continue
            except BackendElsewhere as error:
                why, link = str(error), "lost"
            except BackendDead as error:
                result = await asyncio.to_thread(self.run.read_result)
                why, link = ("", "ended") if result is not None else (str(error), "lost")
            except ControlError as error:
                why, link = str(error), "lost"
            view = msgspec.structs.replace(view, link=link, why=why)  # type: ignore[arg-type]
            async for view in self._files(view):
                yield view

    async def _live(self, view: View) -> AsyncIterator[View]:
        """From the backend, to its orderly end."""
        from liverl.control.client import connect
        from liverl.control.history import last_events

        async with connect(self.run.path, name=self.name) as client:
            snapshot = await client.snapshot()
            view = msgspec.structs.replace(view, link="live", why="", snapshot=snapshot)
            yield view
            view = view.with_events(await asyncio.to_thread(last_events, self.run.path, KEPT_EVENTS))
            seq = view.events[-1].seq if view.events else NO_EVENTS
            async for item in client.stream(seq, snapshots=True, interval=self.interval):
                if isinstance(item, Event):
                    view = view.with_events([item])
                else:
                    view = msgspec.structs.replace(view, snapshot=item)
                yield view

    async def _files(self, view: View) -> AsyncIterator[View]:
        """From the files, until a backend lives."""
        from liverl.control.history import last_events
        from liverl.offline import OfflineRun
        from liverl.runs import Alive, backend_alive

        files = await asyncio.to_thread(OfflineRun, self.run.path)
        while True:
            snapshot: Snapshot | None = await asyncio.to_thread(files.poll)
            view = msgspec.structs.replace(view, snapshot=snapshot or view.snapshot)
            view = view.with_events(await asyncio.to_thread(last_events, self.run.path, KEPT_EVENTS))
            yield view
            await asyncio.sleep(FILES_S)
            if isinstance(await asyncio.to_thread(backend_alive, self.run.path), Alive):
                return

    async def command(self, name: str, **args: Any) -> dict[str, Any]:
        from liverl.control.client import connect

        async with connect(self.run.path, name=self.name) as client:
            return await client.command(name, **args)

    async def revive(self) -> None:
        from liverl.supervise.launch import start_backend

        await asyncio.to_thread(start_backend, self.run.path)
