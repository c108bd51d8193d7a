"""Where views come from: the control socket of a live run, or the files of one without a backend.

The interface never owns a process; all it can do is ask (``command``), and have a backend started.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from liverl.control.messages import BackendDead, BackendSilent, ControlError, ProtocolMismatch
from liverl.exit_codes import ExitCode
from liverl.model import Event, Snapshot
from liverl.rundir.layout import BackendRecord, LiveBackend, RunDir, backend_alive, read_backend
from liverl_tui.data.view import KEPT_EVENTS, Link, View

if TYPE_CHECKING:
    from liverl.control.client import Client
    from liverl.daemon.launch import LaunchError

Answer = TypeVar("Answer")

RETRY_S = 1.0  # until a backend that did not answer is asked again
LOOK_S = 0.5  # between two looks for a backend, where there was none
FILES_S = 2.0  # between two looks at the files of a run without a backend
QUIET_S = 5.0  # without a word; then the backend is asked whether it is still there ...
ANSWER_S = 5.0  # ... and has this long to say so
ENDING_S = 10.0  # from a backend's ``bye`` to the end of its process


class Source(Protocol):
    """What the interface shows and asks."""

    run: RunDir

    def views(self) -> AsyncIterator[View]:
        """Views as things change, until the interface is closed, or there is nothing to show at all."""

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


class Newest:
    """The newest of everything, handed out as views: at most one every ``interval`` seconds, however much
    comes in between. A change of the link does not wait."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.link: Link = "connecting"
        self.why = ""
        self.snapshot: Snapshot | None = None
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._shown = View()
        self._shown_at = float("-inf")
        self._changed = asyncio.Event()
        self._at_once = asyncio.Event()

    @property
    def seq(self) -> int:
        """The number of the newest event."""
        return self._events[-1].seq if self._events else 0

    def say(self, link: Link, why: str = "") -> None:
        if (link, why) != (self.link, self.why):
            self.link, self.why = link, why
            self._changed.set()
            self._at_once.set()

    def add(self, *news: Event | Snapshot | None) -> None:
        """Events that are there already are left out."""
        for item in news:
            if isinstance(item, Snapshot):
                self.snapshot = item
            elif item is not None and item.seq > self.seq:
                self._events.append(item)
        self._changed.set()
        if self._shown.snapshot is None and self.snapshot is not None:
            self._at_once.set()

    async def take(self) -> View:
        """The next view, as soon as there is news and it is due."""
        while True:
            await self._changed.wait()
            due = self._shown_at + self.interval - time.monotonic()
            if due > 0:
                try:
                    async with asyncio.timeout(due):
                        await self._at_once.wait()
                except TimeoutError:
                    pass  # nothing urgent: it is due now
            self._changed.clear()
            self._at_once.clear()
            before, events = self._shown, self._recent()
            same = self.snapshot is before.snapshot and events is before.events
            if not same or (self.link, self.why) != (before.link, before.why):
                self._shown = View(self.link, self.why, self.snapshot, events)
                self._shown_at = time.monotonic()
                return self._shown

    def _recent(self) -> tuple[Event, ...]:
        """The events; the tuple of the last view where none has come since."""
        before = self._shown.events
        return before if (before[-1].seq if before else 0) == self.seq else tuple(self._events)


class SharedClient:
    """A connected client that several tasks use at the same time; the last one to leave closes it.

    The stream of snapshots may end before the answer to the command that has stopped the backend is read.
    """

    def __init__(self, client: Client, close: Callable[[], Awaitable[None]]) -> None:
        self.client = client
        self._close = close
        self._users = 0

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Client]:
        self._users += 1
        try:
            yield self.client
        finally:
            self._users -= 1
            if not self._users:
                await self._close()


class RunSource:
    """A run on this host. With ``start`` its backend is started first, and ``error`` says why it was not."""

    def __init__(
        self,
        run: RunDir,
        *,
        interval: float = 0.5,
        start: Callable[[], object] | None = None,
        first: Snapshot | None = None,
    ) -> None:
        """``interval``: seconds between two views. ``start``: blocks until the backend answers, and raises
        LaunchError. ``first``: the run's state, where it is known already."""
        self.run = run
        self.interval = interval
        self.name = client_name()
        self.error: LaunchError | None = None
        self._start = start
        self._first = first
        self._look = asyncio.Event()  # a backend may be there now
        self._heard = 0.0
        self._shared: SharedClient | None = None  # of the backend that was listened to last

    async def views(self) -> AsyncIterator[View]:
        newest = Newest(self.interval)
        newest.snapshot = self._first
        following = asyncio.create_task(self._follow(newest))
        taking: asyncio.Task[View] | None = None
        try:
            while True:
                taking = asyncio.create_task(newest.take())
                await asyncio.wait({following, taking}, return_when=asyncio.FIRST_COMPLETED)
                if taking.done():
                    yield taking.result()
                else:  # it never returns unless the backend could not be started, or it has failed
                    following.result()
                    return
        finally:
            tasks = [t for t in (following, taking) if t is not None and not t.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, newest: Newest) -> None:
        """Keep ``newest`` so."""
        if self._start is not None:
            newest.say("connecting", "starting the backend")
            await asyncio.to_thread(self._begin, self._start)
            if self.error is not None:
                return
        while True:
            refused: BackendRecord | None = None
            try:
                await self._live(newest)
                link, why = await asyncio.to_thread(self._end, newest.snapshot)
            except BackendSilent as error:
                newest.say("connecting", f"{error}; trying again")
                await asyncio.sleep(RETRY_S)
                continue
            except BackendDead as error:
                link, why = await asyncio.to_thread(self._end, newest.snapshot, str(error))
            except (
                ControlError
            ) as error:  # it lives, and is not for us: elsewhere, of another version or user
                link, why = "lost", str(error)
                refused = await asyncio.to_thread(read_backend, self.run.path)
            newest.say(link, why)
            await self._files(newest, refused)

    def _begin(self, start: Callable[[], object]) -> None:
        from liverl.daemon.launch import LaunchError

        try:
            start()
        except LaunchError as error:
            self.error = error

    # -- with a backend

    async def _live(self, newest: Newest) -> None:
        """From the backend, to its orderly end.

        Raises:
            ControlError: the other kinds of end.
        """
        try:
            await self._listen(newest)
        except msgspec.DecodeError as error:
            raise ProtocolMismatch(
                f"the backend sent something that this version does not know: {error}"
            ) from error

    async def _listen(self, newest: Newest) -> None:
        async with self._connected() as client:
            snapshot = await self._ask(client)
            events = client.events(max(newest.seq, snapshot.seq - KEPT_EVENTS), follow=False)
            newest.add(snapshot, *[event async for event in events])
            newest.say("live")
            watching = asyncio.create_task(self._watch(client, newest))
            try:
                stream = client.stream(newest.seq, snapshots=True, interval=self.interval)
                async with aclosing(stream):
                    async for item in stream:
                        self._heard = time.monotonic()
                        newest.add(item)
                        newest.say("live")
            finally:
                watching.cancel()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        """A new connection, which commands use too as long as it lasts.

        Raises:
            ControlError: there is nobody to talk to here.
        """
        from liverl.control.client import connect

        stack = AsyncExitStack()
        client = await stack.enter_async_context(connect(self.run.path, name=self.name))
        shared = SharedClient(client, stack.aclose)
        async with shared.use():
            self._shared = shared
            yield client

    async def _ask(self, client: Client) -> Snapshot:
        """The present state.

        Raises:
            BackendSilent: it is not said in time.
        """
        return await self._in_time(client, client.snapshot())

    async def _in_time(self, client: Client, answer: Awaitable[Answer]) -> Answer:
        """What ``answer`` gives, within ``ANSWER_S`` seconds.

        Raises:
            BackendSilent: it takes longer.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            raise BackendSilent(
                f"the backend of {self.run.name} (pid {client.hello.pid}) lives but does not answer"
            ) from None

    async def _watch(self, client: Client, newest: Newest) -> None:
        """Say so while the backend does not answer; that it is back is heard in the stream. Its end is, too."""
        self._heard = time.monotonic()
        while True:
            await asyncio.sleep(max(0.1, self._heard + QUIET_S - time.monotonic()))
            if time.monotonic() - self._heard < QUIET_S:
                continue
            try:
                newest.add(await self._ask(client))
                newest.say("live")
            except BackendSilent as error:
                newest.say("live", str(error))
            except ControlError:
                return
            self._heard = time.monotonic()

    # -- without one

    def _end(self, shown: Snapshot | None, why: str = "") -> tuple[Link, str]:
        """What an end was: the run's, or only the backend's."""
        from liverl.control.blocking import await_gone

        await_gone(self.run.path, ENDING_S)
        result = self.run.read_result()
        if result is not None and (shown is None or result.attempt >= shown.attempt):
            return "ended", ""
        return "lost", why or f"the backend of {self.run.name} has ended without a result"

    async def _files(self, newest: Newest, refused: BackendRecord | None) -> None:
        """From the files, until a backend lives that has not refused us."""
        from liverl.control.history import last_events
        from liverl.offline.run import OfflineRun

        path = self.run.path
        files = await asyncio.to_thread(OfflineRun, path)
        read_at = float("-inf")
        self._look.clear()
        while True:
            # What has ended is read once, and what is lost again and again: its services may still write.
            if read_at < 0 or (newest.link == "lost" and time.monotonic() - read_at > FILES_S):
                newest.add(await asyncio.to_thread(files.poll))
                newest.add(*await asyncio.to_thread(last_events, path, KEPT_EVENTS))
                read_at = time.monotonic()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
            alive = await asyncio.to_thread(backend_alive, path)
            if isinstance(alive, LiveBackend) and alive.record != refused:
                return

    # -- the other way

    async def command(self, name: str, **args: Any) -> dict[str, Any]:
        shared = self._shared
        if shared is not None and shared.client.connected:
            async with shared.use() as client:
                # A backend that does not answer now must not do it later, when nobody expects it any more.
                await self._in_time(client, client.ping())
                return await client.command(name, **args)
        from liverl.control.client import connect

        async with connect(self.run.path, name=self.name) as client:
            return await client.command(name, **args)

    async def revive(self) -> None:
        from liverl.daemon.launch import LaunchError, start_backend

        if await asyncio.to_thread(self.run.read_result) is not None:
            raise LaunchError(
                f"run {self.run.name} has ended; its next attempt: liverl-tui up --resume {self.run.path}",
                ExitCode.USAGE,
            )
        await asyncio.to_thread(start_backend, self.run.path)
        self._look.set()
