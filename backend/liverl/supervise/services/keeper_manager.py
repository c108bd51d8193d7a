"""The run's keeper as the backend needs it: always one, with all our listening sockets, whatever dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from liverl.model import Exit
from liverl.plan.spec import PortSpec
from liverl.procs import procfs
from liverl.procs.tree import Member
from liverl.supervise.keeper.client import KeeperClient, KeeperError, KeeperGone
from liverl.supervise.services.prepare import PrepareProblem
from liverl.supervise.services.records import Records
from liverl.util.atomic_file import write_atomic

PATIENCE = 10.0  # seconds that a start waits for a new keeper; one comes up within 0.1
_REAPING = 3.0  # seconds for the keeper to see the ends that we have seen
_HEARING = 60.0  # seconds that a keeper may be at a disk, or at an exec, before it is not asked any more


class KeeperManager:
    """``on_exit(token, exit)``: a leader ended. ``on_keeper(pid)``: the keeper is this process now."""

    def __init__(
        self,
        run: str,
        run_dir: Path,
        records: Records,
        on_exit: Callable[[str, Exit], None],
        on_keeper: Callable[[int], None],
    ) -> None:
        self.run = run
        self.run_dir = run_dir
        self._records = records
        self._on_keeper = on_keeper
        self._keeper = KeeperClient(run_dir, on_exit, self._gone)
        self._listeners: dict[str, tuple[PortSpec, int]] = {}  # name -> (spec, our duplicate)
        self._numbers: dict[str, int] = {}  # the same, their port numbers
        self._up = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None
        self._spawns = 0  # asked for, and not yet told of
        self._met = False  # a keeper has answered
        self._over = False

    @property
    def pid(self) -> int:
        return self._keeper.pid

    def holds(self, name: str) -> bool:
        """Whether a listening socket is held under this name."""
        return name in self._listeners

    def held_port(self, name: str) -> int | None:
        """The port number of a listening socket that is held under this name."""
        return self._numbers.get(name)

    # --- being connected ---

    async def connect(self) -> tuple[bool, list[dict[str, Any]]]:
        """Reach or start the keeper. Returns whether it lived before, and its children's records.

        Raises:
            KeeperError, KeeperGone, OSError: it cannot be started.
        """
        env = {k: v for k, v in os.environ.items() if not k.startswith("LIVERL_")}
        env["LIVERL_RUN"] = f"{self.run}/keeper/0"
        env["LIVERL_RUN_DIR"] = str(self.run_dir)
        try:
            lived, children, _ = await self._keeper.connect(env)
        except KeeperGone:
            if self._met:
                raise
            # One that had been dismissed before, and went with its last child as we came.
            lived, children, _ = await self._keeper.connect(env)
        self._met = True
        self._on_keeper(self.pid)
        try:
            record = {"pid": self.pid, "tick": procfs.start_tick(self.pid)}
            write_atomic(self.run_dir / "keeper.json", msgspec.json.encode(record))
        except OSError as error:
            self._records.write_failed(str(error))  # it is for people: we find the keeper by its socket
        if not self._listeners:
            self._up.set()
        return lived, children

    def _gone(self) -> None:
        if self._met and not self._over:
            self._up.clear()
            self._records.say(
                "keeper",
                "the keeper exited unexpectedly; starting a new one (services keep running)",
                "warning",
            )
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        """Start keepers until one lives that has all our sockets."""
        pause, told = 0.05, ""
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
                if (why := str(error) or "it exited immediately") != told:
                    told = why
                    self._records.say("keeper", f"could not start a new keeper: {why}; retrying", "error")
                await asyncio.sleep(pause)
                pause = min(5.0, pause * 2)
        self._records.say("keeper", f"the new keeper is running (pid {self.pid})")

    async def _until_up(self) -> None:
        """Wait for a keeper that has all our sockets: another one would bind the port anew.

        Raises:
            KeeperGone: there is none, and it takes long to get one.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                await self._up.wait()
        except TimeoutError:
            raise KeeperGone from None

    async def request(self, do: str, **args: Any) -> dict[str, Any]:
        """One request to the keeper that serves.

        Raises:
            KeeperError: it refused.
            KeeperGone: there is none, or it died over it.
        """
        await self._until_up()
        return await self._keeper.request(do, **args)

    async def heard(self) -> None:
        """Until the keeper has told of every exit that came before, however slow its disk; or there is none, or it
        hangs."""
        with contextlib.suppress(KeeperError, KeeperGone, TimeoutError):
            async with asyncio.timeout(_HEARING):
                await self.request("ends")

    # --- forks ---

    @property
    def spawning(self) -> bool:
        """Whether the keeper may have forked a process that we do not know yet: until it has become its service, it
        bears no sign of it."""
        return self._spawns > 0

    async def spawn(self, **what: Any) -> dict[str, Any]:
        """Have a process started; returns its record. Whoever asks must make it known at once, before others run.

        Raises:
            KeeperError: it cannot be executed.
            KeeperGone: there is no keeper, or it died over it.
        """
        self._spawns += 1
        try:
            return await self.request("spawn", **what)
        finally:
            self._spawns -= 1

    async def orphan(self, tag: str) -> Member | None:
        """The leader that a keeper forked before it died without a word, if it did."""
        await self.forks_settled()
        return procfs.leader_by_tag(tag, self.run_dir)

    async def forks_settled(self) -> None:
        """Wait until no fork of a dead keeper is left that has yet to become its service: until then it shows
        the keeper's tag."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + PATIENCE
        while loop.time() < give_up:
            if self._up.is_set():
                forks = procfs.tagged(f"{self.run}/keeper/0", self.run_dir)
                if all(p.pid == self.pid or p.zombie for p in forks):
                    return
            await asyncio.sleep(0.02)

    # --- listening sockets ---

    async def hold_port(self, service: str, port: PortSpec) -> int:
        """The number of a port whose socket the keeper holds for the run.

        Raises:
            PrepareProblem: somebody else has it; the holder is named.
        """
        name = f"{service}.{port.name}"
        try:
            answer = await self.request("listen", name=name, host=port.host, port=port.number)
        except KeeperError as error:
            holder = procfs.port_holder(port.number)
            who = f" is held by {holder.words()}" if holder else f": {error}"
            raise PrepareProblem(f"port {port.number}{who}") from None
        if name not in self._listeners:
            self._keep(name, port, await self._keeper.get_listener(name))
        number: int = answer["port"]
        return number

    def _keep(self, name: str, port: PortSpec, fd: int) -> None:
        self._listeners[name] = (port, fd)
        with socket.socket(fileno=os.dup(fd)) as sock:
            self._numbers[name] = sock.getsockname()[1]

    async def recover_listener(self, name: str, port: PortSpec) -> bool:
        """Get a duplicate of a socket that the keeper has held for an earlier backend, if it does."""
        listeners = (await self._keeper.request("hello"))["listeners"]
        if name not in listeners:
            return False
        self._keep(name, port, await self._keeper.get_listener(name))
        return True

    async def hand_over(self, name: str, port: PortSpec, fd: int) -> None:
        """Give the keeper a listening socket that it did not open."""
        await self._keeper.request("adopt_fd", fd=fd, name=name)
        self._keep(name, port, fd)

    # --- the end ---

    async def dismiss(self) -> None:
        """End the keeper, as nothing is left for it to keep."""
        self._over = True
        try:
            async with asyncio.timeout(PATIENCE):
                await self._ask_to_go()
        except KeeperGone:
            pass
        except TimeoutError:
            # It is at a start that does not return: nothing may be started any more once we have gone.
            self._records.say(
                "keeper", f"the keeper does not respond; killing it (pid {self.pid})", "warning"
            )
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        except KeeperError as error:
            self._records.say("keeper", f"the keeper keeps running: {error}", "warning")

    async def _ask_to_go(self) -> None:
        """What has been killed is no process any more to us a moment before its parent can reap it."""
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
        """Let go of it; it lives on."""
        self._over = True
        if self._renewing is not None:
            self._renewing.cancel()
        for _, fd in self._listeners.values():
            os.close(fd)
        self._listeners.clear()
        self._numbers.clear()
        self._keeper.close()
