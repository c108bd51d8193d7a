"""The source of views: the control socket of a run's backend, or the files of a run without one.

The interface owns no process of the run. It can only send commands to the backend, and start a backend.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from liverl.control.main_loop import call_in
from liverl.control.messages import BackendDead, BackendSilent, ControlError, unreadable_message
from liverl.control.paths import no_answer
from liverl.exit_codes import ExitCode
from liverl.model import Event, Result, Snapshot
from liverl.rundir.commands import resume_command
from liverl.rundir.layout import BackendRecord, LiveBackend, RunDir, backend_alive, read_backend
from liverl.util.bad_json import BAD_JSON
from liverl_tui.data.view import KEPT_EVENTS, Link, View
from liverl_tui.text.as_typed import as_typed_of

if TYPE_CHECKING:
    from liverl.control.client import Client
    from liverl.daemon.launch import LaunchError
    from liverl.daemon.plan_change import PlanChange

Answer = TypeVar("Answer")

# All in seconds.
RETRY_S = 1.0  # before connecting again to a backend that did not answer
LOOK_S = 0.5  # between two checks for a new backend
FILES_S = 2.0  # between two reads of the files of a run without a backend
QUIET_S = 5.0  # without a message, after which the backend is asked whether it is well ...
ANSWER_S = 5.0  # ... which it has to answer within this time
ENDING_S = 10.0  # from a backend's ``bye`` to the exit of its process
GONE_S = 1.0  # for which a thread looks whether a backend that is stopping has exited


class Source(Protocol):
    """What the interface shows, and where it sends commands. ``interval``: minimum seconds between two views; it may be
    changed at any time."""

    run: RunDir
    interval: float

    def views(self) -> AsyncIterator[View]:
        """Yield a view after each change; ends only if there is nothing to show (the backend could not be started)."""

    async def command(self, name: str, **args: Any) -> dict[str, Any]:
        """Send command ``name`` with ``args`` to the backend and return its result.

        Raises:
            ControlError: the command was refused or failed, or no backend can be reached.
        """

    async def revive(self) -> None:
        """Start a new backend in place of a dead one; it adopts the services that still run.

        Raises:
            LaunchError: the backend does not start, or the run has ended.
        """

    async def kill(self, tell: Callable[[str], None]) -> Result:
        """Kill all processes of the run past a backend that does not answer, and return the result, which another
        backend writes. ``tell`` gets one sentence about each step, on the event loop.

        Raises:
            ControlError: the run belongs to another user or host, or cannot be killed.
            LaunchError: no backend can be started to write the result.
        """

    async def ended(self, attempt: int) -> Result:
        """Wait until attempt number ``attempt`` and its backend have ended; return its result. There is no time limit:
        the backend's own limits end a stop.

        Raises:
            ControlError: the backend has ended without a result.
        """

    async def resume(self, change: PlanChange) -> None:
        """Begin the next attempt of a run that has ended, with a changed configuration.

        Raises:
            LaunchError: the backend does not start, or another command has started it without the change.
        """


def client_name() -> str:
    """Return the name under which this client appears in the run's events: pid and terminal."""
    try:
        where = os.ttyname(0).removeprefix("/dev/")
    except OSError:
        where = "no terminal"
    return f"the interface (pid {os.getpid()}, {where})"


class Newest:
    """Merges snapshots, events and states of the link into views.

    A snapshot and a change of the link are handed out at once: the backend sends at most one snapshot per interval
    of this client. Events in between are handed out together, ``interval`` seconds after the last view or with the
    next snapshot. All methods are called in the event loop."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.link: Link = "connecting"
        self.why = ""
        self.silent = False
        self.snapshot: Snapshot | None = None
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._shown = View()
        self._shown_at = float("-inf")
        self._changed = asyncio.Event()
        self._at_once = asyncio.Event()

    @property
    def seq(self) -> int:
        """Sequence number of the newest event; 0 without events."""
        return self._events[-1].seq if self._events else 0

    def say(self, link: Link, why: str = "", *, silent: bool = False) -> None:
        """Set the state of the link and its reason in words; a change makes the next view due at once. ``silent``: see
        ``View``."""
        if (link, why, silent) != (self.link, self.why, self.silent):
            self.link, self.why, self.silent = link, why, silent
            self._changed.set()
            self._at_once.set()

    def add(self, *news: Event | Snapshot | None) -> None:
        """Add snapshots and events; None and events not newer than ``seq`` are ignored."""
        for item in news:
            if isinstance(item, Snapshot):
                self.snapshot = as_typed_of(item)
                self._at_once.set()
            elif item is not None and item.seq > self.seq:
                self._events.append(item)
        self._changed.set()

    async def take(self) -> View:
        """Wait until something has changed and the next view is due, and return that view."""
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
            link = (self.link, self.why, self.silent)
            if not same or link != (before.link, before.why, before.silent):
                self._shown = View(self.link, self.why, self.snapshot, events, self.silent)
                self._shown_at = time.monotonic()
                return self._shown

    def _recent(self) -> tuple[Event, ...]:
        """Return the events; if none is new, the same tuple as in the last view."""
        before = self._shown.events
        return before if (before[-1].seq if before else 0) == self.seq else tuple(self._events)


class SharedClient:
    """A connected client that several tasks use at the same time; the last one closes it.

    After a command that stops the backend, the stream of snapshots may end before the command's answer is read.
    """

    def __init__(self, client: Client, close: Callable[[], Awaitable[None]]) -> None:
        self.client = client
        self._close = close
        self._users = 0

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Client]:
        """Use the client within the context; it is closed when the last user leaves."""
        self._users += 1
        try:
            yield self.client
        finally:
            self._users -= 1
            if not self._users:
                await self._close()


class _Left(Exception):
    """The interface was left while a backend was starting."""


class RunSource:
    """The source of one run. ``error``: why the backend could not be started by ``start``, else None."""

    def __init__(
        self,
        run: RunDir,
        *,
        interval: float = 0.5,
        start: Callable[..., object] | None = None,
        first: Snapshot | None = None,
    ) -> None:
        """``interval``: minimum seconds between two views. ``start``: called first, in a thread; it returns once the
        backend answers, or raises LaunchError. ``first``: state of the run, if already known."""
        self.run = run
        self.interval = interval
        self.name = client_name()
        self.error: LaunchError | None = None
        self._left = False  # nobody looks at the views any more
        self._start = start
        self._first = first
        self._look = asyncio.Event()  # set when a new backend may be running
        self._last_message_at = 0.0  # monotonic seconds
        self._shared: SharedClient | None = None  # connection to the last backend

    async def views(self) -> AsyncIterator[View]:
        """See ``Source.views``."""
        self._left = False
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
                else:  # ``_follow`` returns only if the backend could not be started, else it raised
                    following.result()
                    return
        finally:
            self._left = True
            tasks = [t for t in (following, taking) if t is not None and not t.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, newest: Newest) -> None:
        """Feed ``newest`` from backend and files; return only if the backend could not be started."""
        if self._start is not None:
            newest.say("connecting", "starting the backend")
            loop = asyncio.get_running_loop()

            def tell(text: str) -> None:
                loop.call_soon_threadsafe(newest.say, "connecting", text)

            await asyncio.to_thread(self._begin, self._start, tell)
            if self.error is not None:
                return
        while True:
            refused: BackendRecord | None = None
            try:
                await self._live(newest)
                link, why = await asyncio.to_thread(self._end, newest.snapshot)
            except BackendSilent as error:
                newest.say("connecting", f"{error}; trying again", silent=True)
                await asyncio.sleep(RETRY_S)
                continue
            except BackendDead as error:
                link, why = await asyncio.to_thread(self._end, newest.snapshot, str(error))
            except ControlError as error:
                # A backend that we cannot use: on another host, of another version or of another user.
                link, why = "lost", str(error)
                refused = await asyncio.to_thread(read_backend, self.run.path)
            newest.say(link, why)
            await self._files(newest, refused)

    def _begin(self, start: Callable[..., object], tell: Callable[[str], None]) -> None:
        from liverl.daemon.launch import LaunchError

        try:
            start(tell=tell, stops=self._none_unless_left)
        except LaunchError as error:
            self.error = error
        except _Left:
            return

    def _none_unless_left(self) -> int:
        """How often the user has asked to stop a backend that starts: never from here.

        Raises:
            _Left: nobody waits for it any more; it goes on.
        """
        if self._left:
            raise _Left
        return 0

    # -- with a backend

    async def _live(self, newest: Newest) -> None:
        """Feed ``newest`` from the backend until that ends in order.

        Raises:
            ControlError: the backend is missing, unusable or silent, or the connection broke.
        """
        try:
            await self._listen(newest)
        except BAD_JSON as error:
            raise unreadable_message(error) from error

    async def _listen(self, newest: Newest) -> None:
        async with self._connected() as client:
            snapshot = await self._ask(client)
            events = client.events(max(newest.seq, snapshot.seq - KEPT_EVENTS), follow=False)
            newest.add(snapshot, *[event async for event in events])
            newest.say("live")
            watching = asyncio.create_task(self._watch(client, newest))
            try:
                while await self._stream(client, newest):
                    pass
            finally:
                watching.cancel()

    async def _stream(self, client: Client, newest: Newest) -> bool:
        """Feed ``newest`` from one stream of the backend. Return True if it is to be opened again because ``interval``
        was changed, False if the backend has ended."""
        interval = newest.interval = self.interval
        async with aclosing(client.stream(newest.seq, snapshots=True, interval=interval)) as stream:
            async for item in stream:
                self._last_message_at = time.monotonic()
                newest.add(item)
                newest.say("live")
                if self.interval != interval:
                    return True
        return False

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        """Open a new connection, which commands share while it lasts.

        Raises:
            ControlError: no backend that we can use is running here.
        """
        from liverl.control.client import connect

        stack = AsyncExitStack()
        client = await stack.enter_async_context(connect(self.run.path, name=self.name))
        shared = SharedClient(client, stack.aclose)
        async with shared.use():
            self._shared = shared
            yield client

    async def _ask(self, client: Client) -> Snapshot:
        """Return the present state of the run.

        Raises:
            BackendSilent: the backend does not answer within ``ANSWER_S`` seconds.
        """
        return await self._in_time(client.snapshot())

    async def _in_time(self, answer: Awaitable[Answer]) -> Answer:
        """Return the result of ``answer``.

        Raises:
            BackendSilent: it takes longer than ``ANSWER_S`` seconds.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            what = f"no response within {ANSWER_S:g} s"
            raise await asyncio.to_thread(no_answer, self.run.path, what) from None

    async def _watch(self, client: Client, newest: Newest) -> None:
        """Ask a backend that has been quiet for ``QUIET_S`` seconds whether it is well, and report if it does not
        answer. Its state needs no asking for: nothing has changed, else it would not be quiet.

        Its recovery and its end are seen in the stream."""
        self._last_message_at = time.monotonic()
        while True:
            await asyncio.sleep(max(0.1, self._last_message_at + QUIET_S - time.monotonic()))
            if time.monotonic() - self._last_message_at < QUIET_S:
                continue
            try:
                await self._in_time(client.ping())
                newest.say("live")
            except BackendSilent as error:
                newest.say("live", str(error), silent=True)
            except ControlError:
                return
            self._last_message_at = time.monotonic()

    # -- without one

    def _end(self, shown: Snapshot | None, why: str = "") -> tuple[Link, str]:
        """Return the link after the end of the backend: whether the run has ended too. ``shown``: the last snapshot."""
        from liverl.control.blocking import await_gone

        await_gone(self.run.path, ENDING_S)
        if self._has_ended(shown):
            return "ended", ""
        return "lost", why or f"the backend of {self.run.name} has ended without a result"

    def _has_ended(self, shown: Snapshot | None) -> bool:
        result = self.run.read_result()
        return result is not None and (shown is None or result.attempt >= shown.attempt)

    async def _files(self, newest: Newest, refused: BackendRecord | None) -> None:
        """Feed ``newest`` from the files until a backend runs other than ``refused``, which we cannot use."""
        from liverl.control.history import last_events
        from liverl.offline.run import OfflineRun

        path = self.run.path
        files = await asyncio.to_thread(OfflineRun, path)
        read_at = float("-inf")
        self._look.clear()
        while True:
            # Files of an ended run are read once; those of a lost one repeatedly, as its services may still write.
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
            # A backend that only ends the run may come and go between two looks.
            gone = refused is None and not isinstance(alive, LiveBackend)
            if gone and newest.link == "lost" and await asyncio.to_thread(self._has_ended, newest.snapshot):
                newest.say("ended")
                read_at = float("-inf")

    # -- commands

    async def command(self, name: str, **args: Any) -> dict[str, Any]:
        """See ``Source.command``."""
        shared = self._shared
        if shared is not None and shared.client.connected:
            async with shared.use() as client:
                # Without the ping, a silent backend could execute the command much later.
                await self._in_time(client.ping())
                return await client.command(name, **args)
        from liverl.control.client import connect

        async with connect(self.run.path, name=self.name) as client:
            return await client.command(name, **args)

    async def revive(self) -> None:
        """See ``Source.revive``."""
        from liverl.daemon.launch import LaunchError, start_or_join

        if await asyncio.to_thread(self.run.read_result) is not None:
            raise LaunchError(
                f"run {self.run.name} has ended; to resume it: {resume_command(self.run.path)}",
                ExitCode.USAGE,
            )
        await asyncio.to_thread(self._started, partial(start_or_join, self.run.path))
        self._look.set()

    def _started(self, start: Callable[..., object]) -> None:
        with suppress(_Left):
            start(stops=self._none_unless_left)

    async def kill(self, tell: Callable[[str], None]) -> Result:
        """See ``Source.kill``."""
        from liverl.offline.stop import stop_run

        loop = asyncio.get_running_loop()
        result = await asyncio.to_thread(
            stop_run,
            self.run.path,
            now=True,
            client=self.name,
            on_note=lambda text: call_in(loop, tell, text),
        )
        self._look.set()
        if result is None:
            raise ControlError(f"the run {self.run.name} was killed, but has no result")
        return result

    async def ended(self, attempt: int) -> Result:
        """See ``Source.ended``."""
        from liverl.control.blocking import await_gone

        # In short turns: an interface that closes meanwhile must not wait for the thread.
        while isinstance(await asyncio.to_thread(await_gone, self.run.path, GONE_S), LiveBackend):
            pass
        result = await asyncio.to_thread(self.run.read_result)
        if result is None or result.attempt < attempt:
            raise BackendDead(f"the backend of {self.run.name} has ended without a result")
        return result

    async def resume(self, change: PlanChange) -> None:
        """See ``Source.resume``."""
        from liverl.daemon.launch import start_or_join

        await asyncio.to_thread(
            self._started, partial(start_or_join, self.run.path, resume=True, change=change)
        )
        self._look.set()
