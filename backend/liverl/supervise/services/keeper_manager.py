"""Keeps a keeper running for the backend: reconnects, starts a new one if it dies, and restores its listening
sockets."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from liverl.model import Exit
from liverl.plan.inherit import inherited
from liverl.plan.spec import BRIDGE, PortSpec
from liverl.procs import procfs, tree
from liverl.procs.tree import Member
from liverl.rundir.holders import held_by, run_of
from liverl.supervise.keeper.client import KeeperClient, KeeperError, KeeperGone
from liverl.supervise.services.asked import Addresses
from liverl.supervise.services.prepare import PrepareProblem
from liverl.supervise.services.records import Records
from liverl.util.modes import callers_umask
from liverl.util.newest_file import NewestFile

PATIENCE = 10.0  # seconds that a request waits for a new keeper, which normally starts within 0.1 s
_REAPING = 3.0  # seconds for the keeper to reap the processes that the backend has already seen ending
# Seconds that a keeper may be blocked by a disk or an exec before its exit reports are given up
_EXIT_REPORTS = 60.0


class KeeperManager:
    """``on_exit(token, exit)`` is called when a leader has ended, ``on_keeper(pid)`` after each connection to a
    keeper. ``addresses``: see ``asked``."""

    def __init__(
        self,
        run: str,
        run_dir: Path,
        records: Records,
        on_exit: Callable[[str, Exit], None],
        on_keeper: Callable[[int], None],
        addresses: Addresses,
    ) -> None:
        self.run = run
        self.run_dir = run_dir
        self._records = records
        self._on_keeper = on_keeper
        self._addresses = addresses
        self._file = NewestFile(  # for people; the backend finds the keeper by its socket
            run_dir / "keeper.json",
            written=lambda _: None,
            failed=records.write_failed,
            late=partial(records.warn, "storage"),
        )
        self._keeper = KeeperClient(run_dir, on_exit, self._gone)
        self._listeners: dict[
            str, tuple[PortSpec, int]
        ] = {}  # ``service.port`` -> (spec, duplicated descriptor)
        self._numbers: dict[str, int] = {}  # ``service.port`` -> port number
        self._hosts: dict[str, str] = {}  # ``service.port`` -> address that it listens on
        self._earlier: dict[str, int] = {}  # ``service.port`` -> the number that it had
        self._up = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self._spawns = 0  # spawn requests without an answer yet
        self._connected_once = False
        self._tick: int | None = None  # start tick of the keeper
        self._closing = False
        self._without_bridge = ""  # why there was no address for sandboxes

    @property
    def pid(self) -> int:
        """The keeper's pid; 0 before the first connection."""
        return self._keeper.pid

    def holds(self, name: str) -> bool:
        """Whether the run holds the listening socket ``service.port``."""
        return name in self._listeners

    def held_port(self, name: str) -> int | None:
        """The port number of the listening socket ``service.port``; None if the run does not hold it."""
        return self._numbers.get(name)

    def held_ports(self) -> dict[str, int]:
        """The number of each listening socket that the run holds, by ``service.port``."""
        return dict(self._numbers)

    def held_hosts(self) -> dict[str, str]:
        """The address of each listening socket that the run holds, by ``service.port``."""
        return dict(self._hosts)

    # --- being connected ---

    async def connect(self) -> tuple[bool, list[dict[str, Any]]]:
        """Connect to the keeper, or start one. Returns whether it was already running, and its children's records.

        Raises:
            KeeperError, KeeperGone, OSError: it cannot be started or reached.
        """
        env = inherited(os.environ, "base")
        env["LIVERL_RUN"] = f"{self.run}/keeper/0"
        env["LIVERL_RUN_DIR"] = str(self.run_dir)
        try:
            already_running, children, _ = await self._keeper.connect(env)
        except KeeperGone:
            if self._connected_once:
                raise
            # A keeper that had been dismissed exited after its last child while we connected.
            already_running, children, _ = await self._keeper.connect(env)
        self._connected_once = True
        self._tick = procfs.start_tick(self.pid)
        self._on_keeper(self.pid)
        self._file.put(msgspec.json.encode({"pid": self.pid, "tick": self._tick}))
        if not self._listeners:
            self._up.set()
        return already_running, children

    def _gone(self) -> None:
        if self._connected_once and not self._closing:
            self._up.clear()
            self._records.say(
                "keeper",
                "the keeper exited unexpectedly; starting a new one (services keep running)",
                "warning",
            )
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        """Start keepers until one is running and has all listening sockets of the run."""
        pause, last_problem = 0.05, ""
        while not self._up.is_set():
            self._keeper.reap()
            try:
                await self.connect()
                for name, (port, fd) in self._listeners.items():
                    await self._keeper.request("adopt_fd", name=name, fd=fd)
                    text = f"passed the listening socket on port {port.number} to the new keeper"
                    self._records.say("keeper", text, "debug")
                self._up.set()
            except (KeeperError, KeeperGone, OSError) as error:
                if (why := str(error) or "it exited immediately") != last_problem:
                    last_problem = why
                    self._records.say("keeper", f"could not start a new keeper: {why}; retrying", "error")
                await asyncio.sleep(pause)
                pause = min(5.0, pause * 2)
        self._records.say("keeper", f"the new keeper is running (pid {self.pid})")

    async def _until_up(self) -> None:
        """Wait for a keeper that has all listening sockets: one without them would bind the ports a second time.

        Raises:
            KeeperGone: none is running after ``PATIENCE`` seconds.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                await self._up.wait()
        except TimeoutError:
            raise KeeperGone from None

    async def request(self, do: str, **args: Any) -> dict[str, Any]:
        """Send a request to the keeper and return the answer; waits while a new keeper is being started.

        Raises:
            KeeperError: the keeper refused.
            KeeperGone: none is running, or it died before it answered.
        """
        await self._until_up()
        return await self._keeper.request(do, **args)

    async def wait_for_exit_reports(self) -> None:
        """Return once the keeper has reported every exit so far, or if no keeper is running, or if it does not answer
        within ``_EXIT_REPORTS`` seconds."""
        with contextlib.suppress(KeeperError, KeeperGone, TimeoutError):
            async with asyncio.timeout(_EXIT_REPORTS):
                await self.request("ends")

    # --- forks ---

    @property
    def spawning(self) -> bool:
        """Whether the keeper may have forked a process that it has not reported yet. Until such a process executes its
        service, nothing shows to which service it belongs."""
        return self._spawns > 0

    async def spawn(self, **what: Any) -> dict[str, Any]:
        """Start a process (see ``spawn`` in ``keeper/process``); returns its record. The caller must add the
        process to the process trees before it awaits anything else, or a scan takes it for a stray.

        Raises:
            KeeperError: the command cannot be executed.
            KeeperGone: no keeper is running, or it died before it answered.
        """
        self._spawns += 1
        try:
            return await self.request("spawn", umask=callers_umask(), **what)
        finally:
            self._spawns -= 1

    async def orphan(self, tag: str) -> Member | None:
        """The leader with this tag that a keeper forked before it died without answering; None if it forked none."""
        await self.forks_settled()
        return procfs.leader_by_tag(tag, self.run_dir)

    async def forks_settled(self) -> None:
        """Wait, at most ``PATIENCE`` seconds, until every fork of a dead keeper has executed its service; until then
        it carries the keeper's tag in its environment."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + PATIENCE
        while loop.time() < give_up:
            if self._up.is_set():
                forks = procfs.tagged(f"{self.run}/keeper/0", self.run_dir)
                if all(p.pid == self.pid or p.zombie for p in forks):
                    return
            await asyncio.sleep(0.02)

    # --- listening sockets ---

    def prefer(self, name: str, number: int) -> None:
        """Open the port ``service.port`` at ``number`` again where the plan leaves the number open: clients know it."""
        self._earlier[name] = number

    async def hold_port(self, service: str, port: PortSpec) -> int | None:
        """Have the keeper open the listening socket of a port, if it is not open yet; returns the port number. None:
        it is for the bridge of Docker, and this machine has none, which is told as an event.

        Raises:
            PrepareProblem: the port cannot be bound; the message names the process that holds it, if there is one.
            KeeperGone: no keeper is running, or it died before it answered.
        """
        name = f"{service}.{port.name}"
        if port.host == BRIDGE and name not in self._listeners:
            address, why = await self._addresses(port.host)
            if not address:
                if self._without_bridge != why:
                    self._without_bridge = why
                    text = (
                        f"sandboxes in Docker cannot reach {service}, which listens on 127.0.0.1 only: {why}"
                    )
                    self._records.say("socket", text, "warning", service)
                return None
            port = msgspec.structs.replace(port, host=address)
        # An open one stays where it is
        host = "127.0.0.1" if port.host == BRIDGE else await _numeric(port.host)
        wanted = port.number or self._earlier.pop(name, 0)
        try:
            answer = await self.request("listen", name=name, host=host, port=wanted)
        except KeeperError as error:
            if wanted != port.number:
                text = f"its port {wanted} was taken while neither backend nor keeper ran: it gets another one, which "
                self._records.say("socket", f"{text}its clients must be told", "warning", service)
                return await self.hold_port(service, port)
            held = await asyncio.to_thread(_holder_words, port.number)
            if held is not None:
                raise PrepareProblem(f"{port.words} is held by {held}") from None
            why = os.strerror(error.errno) if error.errno else str(error)
            raise PrepareProblem(f"cannot listen on {port.words} of {port.host}: {why}") from None
        if name not in self._listeners:
            self._note_listener(name, port, await self._keeper.get_listener(name))
        number: int = answer["port"]
        return number

    def _note_listener(self, name: str, port: PortSpec, fd: int) -> None:
        self._listeners[name] = (port, fd)
        with socket.socket(fileno=os.dup(fd)) as sock:
            host, self._numbers[name] = sock.getsockname()[:2]
        self._hosts[name] = str(host)

    async def recover_listener(self, name: str, port: PortSpec) -> bool:
        """Get a duplicate of a socket that the keeper held for an earlier backend; False if it holds none of this
        name."""
        listeners = (await self._keeper.request("hello"))["listeners"]
        if name not in listeners:
            return False
        self._note_listener(name, port, await self._keeper.get_listener(name))
        return True

    async def hand_over(self, name: str, port: PortSpec, fd: int) -> None:
        """Pass a listening socket to the keeper that it did not open. ``fd`` now belongs to this object.

        Raises:
            KeeperError, KeeperGone: the keeper refused it, or died.
        """
        await self._keeper.request("adopt_fd", fd=fd, name=name)
        self._note_listener(name, port, fd)

    # --- the end ---

    def continue_stopped(self) -> None:
        """Continue a keeper that is stopped by a signal: without it no exit is reported and no zombie is reaped, and
        a run that is stopping would not end."""
        keeper = procfs.read_proc(self.pid) if self.pid else None
        if keeper is None or keeper.state != "T" or keeper.tick != self._tick:
            return
        if tree.send((keeper.pid, keeper.tick), signal.SIGCONT):
            text = f"the keeper (pid {keeper.pid}) was stopped by a signal; continuing it to end the run"
            self._records.say("keeper", text, "warning")

    async def dismiss(self) -> None:
        """End the keeper after all services have ended. It is killed if it does not answer within ``PATIENCE``
        seconds."""
        self._closing = True
        try:
            async with asyncio.timeout(PATIENCE):
                await self._request_exit()
        except KeeperGone:
            pass
        except TimeoutError:
            # It hangs in a start; nothing may be started after the backend has exited.
            self._records.say(
                "keeper", f"the keeper does not respond; killing it (pid {self.pid})", "warning"
            )
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        except KeeperError as error:
            self._records.say("keeper", f"the keeper keeps running: {error}", "warning")

    async def _request_exit(self) -> None:
        """Request the exit, again for ``_REAPING`` seconds: the keeper refuses until it has reaped the killed
        processes.

        Raises:
            KeeperError: children are still running.
            KeeperGone: it died before it answered.
        """
        give_up = asyncio.get_running_loop().time() + _REAPING
        while True:
            try:
                await self._keeper.request("exit")
                return
            except KeeperGone:
                raise
            except KeeperError:
                if asyncio.get_running_loop().time() > give_up:
                    raise
                await asyncio.sleep(0.05)

    def close(self) -> None:
        """Close the connection and the duplicated sockets; the keeper keeps running."""
        self._closing = True
        if self._renewing is not None:
            self._renewing.cancel()
        for _, fd in self._listeners.values():
            os.close(fd)
        self._listeners.clear()
        self._numbers.clear()
        self._keeper.close()


def _holder_words(number: int) -> str | None:
    """Who listens on a port, behind "held by"; None if nobody does. Blocks: looks among all runs of the user."""
    holder = procfs.port_holder(number)
    return None if holder is None else held_by(holder, run_of(holder.pid))


async def _numeric(host: str) -> str:
    """The numeric address of ``host``: the keeper looks up no names.

    Raises:
        PrepareProblem: the name is not known.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return host
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise PrepareProblem(f"cannot look up the address of {host}: {error}") from None
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])
