"""The first process of the service where it has several: it starts the others, speaks for them, and ends them.

It holds all sockets, so that what is meant for a process waits while that is being started again. It carries no turn:
the others accept connections themselves, and pass each one on to the process that has its session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from liverl.sessions import handover
from liverl.sessions.layout import misplaced, share_out
from liverl.sessions.link import Link, Order, Reload, Report, Stop, TokensDiffer
from liverl.sessions.merging import LastOnes, Totals, differences, merged_report
from liverl.sessions.relay import Relay
from liverl.sessions.replicas import ReplicaList
from liverl.sessions.report import ReportFile
from liverl.sessions.server import TRAINER_BODY
from liverl.sessions.service import (
    REPORT_S,
    SAME_REQUEST_S,
    Handed,
    Keys,
    control_socket,
    http_server,
)
from liverl.sessions.settings import SOCKET, Settings
from liverl.sessions.store import Store
from liverl.sessions.time_limit import Looks
from liverl.sessions.worker import VARIABLE, Inherited, before_exec
from liverl.util import clocks
from liverl.util.deadline import within
from liverl.util.faults import Faults
from liverl.util.signals import StopRequests
from liverl.util.socket_path import usable_address

logger = logging.getLogger(__name__)

# Seconds without a report, one of which comes each second, after which a process counts as hung and is killed: longer
# than any step of its work, and so much shorter than the 60 s that the trainer waits for the end of a session
# (``client.FINISH_S``) that the next process answers it.
HUNG_S = 20.0
# The same while it starts, when it reads its journals, and says nothing before it serves.
START_S = 120.0
DRAIN_S = 10.0  # seconds for the replies that the other processes sample when one cannot be started
STABLE_S = 30.0  # seconds that a process serves, after which its end has nothing to do with its start
# Starts of one process in a row of which none gets there, after which the service ends: the backend then decides.
MOST_STARTS = 5
ENDS = 8  # ends of single processes that are reported
PAUSE_S = 0.5  # seconds before the third of them, doubling: the second one begins at once


_OF_LIVING = {"in_flight", "waiting", "queued"}  # numbers in a report


class CannotServe(Exception):
    """A process of the service cannot be started. ``code``: its exit code."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code


class _Part:
    """One process: what it was given, and what it says."""

    def __init__(self, number: int, control: socket.socket) -> None:
        self.number, self.control = number, control
        self.receiving, self.sending = handover.pair()
        self.link: Link | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.facts: dict[str, Any] | None = None  # of its last report, of this process or one before
        self.heard = 0.0  # on ``clocks.ran``: when it was started, or reported
        self.hung = False  # and was killed for that
        self.serves = False
        self.since = 0.0  # on ``clocks.ran``: when it began to serve
        self.restarts = -1

    @property
    def stable(self) -> bool:
        """Whether it has served for a while."""
        return self.serves and clocks.ran() - self.since > STABLE_S

    def tell(self, order: Order) -> None:
        """Say something to the process, if there is one."""
        if self.link is not None:
            self.link.tell(order)


class Front:
    """The front."""

    def __init__(
        self,
        settings: Settings,
        keys: Keys,
        listeners: Sequence[socket.socket],
        generation: int,
        of: int,
        config: Path,
        lock: int,
    ) -> None:
        """``listeners``: of the agents' part; ``of``: how many processes; ``config``: the file with the settings;
        ``lock``: see ``layout``."""
        self._settings, self._keys, self._config = settings, keys, config
        self._listeners, self._lock, self._of = list(listeners), lock, of
        self._generation = generation
        self._parts: list[_Part] = []
        self._report = ReportFile(settings.folder / f"status.{generation}.json")
        self._before: dict[str, Any] = {}
        self._totals = Totals()
        self._last, self._last_ones = LastOnes(), dict[str, str]()
        self._differs: dict[str, str] = {}  # see ``Handed``: what a process has seen outlives it
        self._ends: deque[dict[str, Any]] = deque(maxlen=ENDS)  # see ``SessionProcessEnd``
        self._state = "starting"
        self._error: str | None = None  # why the service ends
        # The processes that have said something since the last report was written
        self._reported: set[int] = set()
        self._stopping = False
        self._stop_now = False
        self._change = asyncio.Event()  # set when a process serves, none can, or the service is to stop
        self._why: Exception | None = None
        self._faults = Faults(logger)

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, as ``Service.run``.

        Raises:
            OSError: the directory of the sessions, or a socket, cannot be used.
            CannotServe: a process cannot be started.
        """
        loop = asyncio.get_running_loop()
        requests = StopRequests(SAME_REQUEST_S)

        def end(number: int) -> None:
            if requests.received(number):
                if self._stopping:
                    self._stop_now = True
                    self._tell_all(Stop(now=True))
                self._stopping = True
                self._change.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end, number)
        loop.add_signal_handler(signal.SIGHUP, self._tell_all, Reload())
        await self._straighten()
        with contextlib.ExitStack() as stack:
            ways = {number: self._socket(number, stack) for number in range(self._of)}
            kept = [asyncio.ensure_future(self._keep(part)) for part in self._parts]
            watching = asyncio.ensure_future(self._watch())
            try:
                await self._serve(ways)
            except Exception as error:
                self._stopping = True
                self._state, self._error = "failed", str(error)
                self._write_report()
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(self._stop(), DRAIN_S)
                self._write_report()
                raise
            finally:
                self._stopping = True
                watching.cancel()
                await self._end_all(kept)

    async def _straighten(self) -> None:
        """Bring what an earlier service has left into the places where these processes look."""
        folder = self._settings.folder
        share_out(folder, self._of)
        if misplaced(folder):
            async with aiohttp.ClientSession() as http:
                store = Store(folder, (), ReplicaList(http))
                store.restore()
                await store.close()
            share_out(folder, self._of)

    def _socket(self, number: int, stack: contextlib.ExitStack) -> str:
        """Make the socket of the trainer's part of one process; return its address."""
        path = self._settings.folder / f"worker.{number + 1}.sock"
        control = control_socket(path)
        stack.callback(path.unlink, missing_ok=True)
        control.listen(128)
        self._parts.append(_Part(number, control))
        return stack.enter_context(usable_address(path))

    async def _serve(self, addresses: dict[int, str]) -> None:
        await self._until(lambda: all(part.serves for part in self._parts))
        if self._stopping:
            await self._stop()
            return
        async with self._control(addresses) as server:
            self._state = "serving"
            first = self._parts[0].facts or {}
            logger.info(
                "generation %d is serving on %s; replicas: %d; processes: %d",
                self._generation,
                first.get("address"),
                first.get("replicas", 0),
                self._of,
            )
            reports = asyncio.ensure_future(self._reports())
            try:
                await self._until(lambda: False)
            finally:
                reports.cancel()
            server.stop_accepting()
            self._state = "draining"
            self._write_report()
            await self._stop()

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for ``condition``, or until the service is to stop.

        Raises:
            CannotServe: a process cannot be started.
        """
        while not (condition() or self._stopping or self._why is not None):
            await self._change.wait()
            self._change.clear()
        if self._why is not None:
            raise self._why

    async def _stop(self) -> None:
        """Let all processes end, with the replies that they sample."""
        self._tell_all(Stop(now=self._stop_now))
        for part in self._parts:
            if part.process is not None:
                await part.process.wait()

    @contextlib.asynccontextmanager
    async def _control(self, addresses: dict[int, str]) -> AsyncIterator[Any]:
        """The trainer's part."""
        async with contextlib.AsyncExitStack() as stack:
            ways = {}
            for number, address in addresses.items():
                connector = aiohttp.UnixConnector(address, limit=0)
                http = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
                ways[number] = await stack.enter_async_context(http)
            relay = Relay(ways, self._keys.control, lambda: self._stopping, self._whole)
            server = http_server(relay.app(), relay.gate, TRAINER_BODY)
            try:
                await server.start(control_socket(Path(self._settings.run_dir) / SOCKET))
                yield server
            finally:
                await server.close()

    # -- processes

    async def _keep(self, part: _Part) -> None:
        """Have a process run until the service stops."""
        try:
            failures = 0
            while not self._stopping:
                part.restarts += 1
                code = await self._run(part)
                if self._stopping:
                    return
                failures = 0 if part.stable or code == -signal.SIGHUP else failures + 1
                part.serves = False
                how = "killed: it hung" if part.hung else _ended_with(code)
                words = f"process {part.number + 1} of {self._of} has ended ({how})"
                # What it said of the settings or the sockets is said by the next one, too.
                if failures >= MOST_STARTS or (part.facts is None and code in (1, 2)):
                    raise CannotServe(words, 2 if code == 2 else 1)
                logger.error("%s; starting it again", words)
                self._note_end(part, how)
                if failures > 1:
                    await asyncio.sleep(PAUSE_S * 2 ** (failures - 2))
        except Exception as error:  # noqa: BLE001 - whatever it is, the service cannot go on
            self._why = error
            self._change.set()

    def _note_end(self, part: _Part, how: str) -> None:
        now = clocks.moment()
        end = {"process": part.number + 1, "of": self._of, "how": how, "since": now.wall, "at": now}
        self._ends.append({**end, "sessions": (part.facts or {}).get("open", 0), "reopened": None})

    def _note_reopened(self, part: _Part, sessions: int) -> None:
        """``sessions``: that the process has found again."""
        for end in self._ends:
            if end["process"] == part.number + 1 and end["reopened"] is None:
                end["reopened"] = sessions

    async def _run(self, part: _Part) -> int:
        """Start a process, listen to it to its end, and return its exit code."""
        ours, theirs = socket.socketpair()
        with theirs:
            part.process = await self._start(part, theirs)
        part.heard, part.hung = clocks.ran(), False
        part.link = await Link.of(ours)
        if self._stopping:
            part.tell(Stop(now=self._stop_now))
        listening = asyncio.ensure_future(self._listen(part, part.link))
        try:
            return await part.process.wait()
        finally:
            listening.cancel()
            part.link.close()
            part.link = None

    async def _start(self, part: _Part, link: socket.socket) -> asyncio.subprocess.Process:
        sending = {each.number: each.sending.fileno() for each in self._parts if each is not part}
        settings = Handed(self._settings, self._keys, self._differs).in_memory()
        given = Inherited(
            os.getpid(),
            part.number,
            self._of,
            link.fileno(),
            part.control.fileno(),
            part.receiving.fileno(),
            sending,
            self._lock,
            settings,
        )
        words = ["-P", "-m", "liverl.sessions", "--config", str(self._config)]
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                *words,
                "--worker",
                f"{part.number + 1}/{self._of}",
                env={**os.environ, VARIABLE: msgspec.json.encode(given).decode()},
                pass_fds=[*(each.fileno() for each in self._listeners), *given.fds],
                preexec_fn=before_exec,
            )
        finally:
            os.close(settings)

    async def _listen(self, part: _Part, link: Link) -> None:
        async for message in link.messages():
            if isinstance(message, Report):
                part.facts, part.heard = self._whole(part.number, message.facts), clocks.ran()
                if not part.serves:
                    part.serves, part.since = True, part.heard
                    self._note_reopened(part, message.facts.get("open", 0))
                self._change.set()
                with self._faults.logged("a report of a process cannot be used"):
                    self._last_ones = self._last.take(part.number, message.facts)
                    self._tell_differences()
                self._reported.add(part.number)
                if self._state != "starting" and len(self._reported) == self._of:
                    self._write_report()

    def _whole(self, number: int, facts: Mapping[str, Any]) -> dict[str, Any]:
        """What a process says, with what its predecessors had counted."""
        return self._totals.take(number, self._parts[number].restarts, facts)

    def _tell_differences(self) -> None:
        """Tell each process what others have seen of the tokens of a model."""
        every = [part.facts or {} for part in self._parts]
        self._differs = {**differences(every), **self._differs}
        for model, words in self._differs.items():
            for part, facts in zip(self._parts, every, strict=True):
                if part.serves and model not in differences([facts]):
                    part.tell(TokensDiffer(model, words))

    def _tell_all(self, order: Order) -> None:
        for part in self._parts:
            part.tell(order)

    async def _end_all(self, kept: Sequence[asyncio.Future[None]]) -> None:
        """Kill what is left, and wait for it."""
        for task in kept:
            task.cancel()
        await asyncio.gather(*kept, return_exceptions=True)
        for part in self._parts:
            if part.process is not None and part.process.returncode is None:
                part.process.kill()
                await part.process.wait()

    # -- reports

    async def _watch(self) -> None:
        looks = Looks(HUNG_S)
        while True:
            if looks.steady():
                self._kill_hung()
            await asyncio.sleep(REPORT_S)

    async def _reports(self) -> None:
        while True:
            self._write_report()
            await asyncio.sleep(REPORT_S)

    def _kill_hung(self) -> None:
        now = clocks.ran()
        for part in self._parts:
            process = part.process
            if process is None or process.returncode is not None or self._stopping:
                continue
            if now - part.heard > (HUNG_S if part.serves else START_S):
                what = "does not report" if part.serves else "has hung in its start"
                logger.error("process %d of %d %s; killing it", part.number + 1, self._of, what)
                part.heard, part.hung = now, True
                with contextlib.suppress(ProcessLookupError):
                    process.kill()

    def _write_report(self) -> None:
        self._reported.clear()
        with self._faults.logged("the report cannot be written"):
            self._report.write(self._facts())

    def _facts(self) -> dict[str, Any]:
        """What the backend is told: see ``Service``. ``processes``: of each one."""
        merged = merged_report([_now(part) for part in self._parts], self._before)
        self._before = {**merged}
        down = [str(part.number + 1) for part in self._parts if not part.serves]
        if down and self._state == "serving":
            merged["error"] = f"down, and being started again: process {', '.join(down)} of {self._of}"
        if self._error is not None:
            merged["error"] = self._error
        return {
            "pid": os.getpid(),
            "generation": self._generation,
            "state": self._state,
            **merged,
            "last": self._last_ones,
            "process_ends": [*self._ends],
            "processes": [
                {
                    "pid": (part.facts or {}).get("pid") if part.serves else None,
                    "open": (part.facts or {}).get("open", 0),
                    "restarts": part.restarts,
                }
                for part in self._parts
            ],
        }


def _now(part: _Part) -> dict[str, Any]:
    """What a process says; of one that is down what lasts: no request is in it."""
    facts = part.facts or {}
    return facts if part.serves else {**facts, **dict.fromkeys(_OF_LIVING & facts.keys(), 0)}


def _ended_with(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
