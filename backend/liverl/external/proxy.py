"""Watches the proxy of a launch script: which processes listen, with which configuration, and whether they respond.

Nothing here starts, stops or changes the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from liverl.external import litellm, model_list, port_holders
from liverl.external.litellm import LiteLLMLaunch, NotLiteLLM
from liverl.external.model_list import ListingError
from liverl.external.port_holders import HolderProcess, PortHolders
from liverl.external.ray_cluster import reachable
from liverl.model import Owner, ProxyStatus, ServiceStatus, TreeStats
from liverl.procs import procfs
from liverl.procs.tree import Member
from liverl.rundir.journal import read_object
from liverl.supervise.services.observed_state import ObservedState
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.atomic_file import write_atomic
from liverl.util.base_url import base_url
from liverl.util.plural import quantity
from liverl.util.regular_file import read_text

NAME = "proxy"
HEALTH = "/health/liveliness"
_TIMEOUT = 5.0  # seconds for the answer of a health check
# Seconds between two scans for the holders of the port: reading all descriptors is expensive on a large host.
_AGAIN = 15.0
_FAILURES = 3  # failed checks in a row until it is degraded: two workers on busy cores respond late


class ExternalProxy:
    """The state of the script's proxy on ``port``. While ``restarting``, results of polls are dropped."""

    def __init__(self, supervisor: Supervisor, port: int) -> None:
        self.port = port
        self.restarting = False
        self.held: PortHolders | None = None
        self.leader: HolderProcess | None = None
        self.launch: LiteLLMLaunch | None = None  # of the newest LiteLLM on this port
        self.listed: tuple[str, ...] = ()  # addresses in its configuration
        self.own = port_holders.own_addresses()
        self._supervisor = supervisor
        self._state = ObservedState(supervisor, NAME, f"nothing listens on port {port} yet")
        self._generation = 0
        # adopted: it runs in the trainer's process tree, and ends with it; foreign: elsewhere
        self._owner: Owner = "foreign"
        self._loaded: tuple[str, ...] = ()  # addresses that the running process read when it started
        self._ready_at: float | None = None
        self._scanned = 0.0
        self._missed = 0
        self._file_key: tuple[int, int, int] | None = None  # mtime (ns), size, inode of the file read last
        self._unreadable = ""
        self._memory = supervisor.run_dir / "adopted_proxy.json"

    # --- polling ---

    async def look(self) -> None:
        """Poll the port, the configuration and the health check once."""
        held = await asyncio.to_thread(self._holders)
        if self.restarting:
            return
        if held is None:
            self.held = None
            if self._generation or self._state.state != "waiting":
                self._state.enter("failed", f"the proxy has exited; no process listens on port {self.port}")
            return
        if self.held is None or held.inodes != self.held.inodes or self._changed(held):
            captured = await asyncio.to_thread(self._capture, held)
            if self.restarting:
                return
            self._take(held, captured)
        self.held = held
        if self.leader is None:
            return
        await self.read_file()
        problem = await self.problem()
        if self.restarting:
            return
        self._missed = 0 if problem is None else self._missed + 1
        if problem is None:
            self._ready_at = self._ready_at or self._supervisor.now()
            self._state.enter("ready", self._pending_words())
        elif self._ready_at is None:
            self._state.enter("starting", problem)
        elif self._missed >= _FAILURES:
            self._state.enter("degraded", problem)

    def look_after_script(self) -> None:
        """Note whether the proxy has exited since the launch script did."""
        if self.leader is not None and not procfs.alive(*self.leader.member):
            self.held = self.leader = None
            self._state.enter("stopped", "the proxy exited because the launch script did")

    def _holders(self) -> PortHolders | None:
        earlier, sockets = self.held, list(procfs.listeners(self.port))
        if earlier is None or not sockets:
            return port_holders.look(self.port) if sockets else None
        same = earlier.inodes == {inode for _, inode, _ in sockets}
        alive = all(procfs.alive(*process.member) for process in earlier.holders)
        if same and alive and self._supervisor.now() - self._scanned < _AGAIN:
            return earlier
        self._scanned = self._supervisor.now()
        return port_holders.look(self.port)

    def _changed(self, held: PortHolders) -> bool:
        leader = self.leader
        return leader is None or leader.member not in {root.member for root in held.roots}

    def _take(
        self, held: PortHolders, captured: tuple[HolderProcess, LiteLLMLaunch, tuple[str, ...]] | str
    ) -> None:
        """Take over the facts of a process that listens now and did not before."""
        if isinstance(captured, str):
            self.leader, self._loaded, self.listed = None, (), ()
            self._state.enter("degraded", captured)
            return
        self.leader, self.launch, self.listed = captured
        stored = self._remembered(self.leader.member)
        self._generation, self._loaded = stored or (self._generation + 1, self.listed)
        self._ready_at, self._missed, self._file_key = None, 0, None
        self._owner = "adopted" if runs_in_launch(self._supervisor)(self.leader.pid) else "foreign"
        self._remember()
        others = len(held.holders) - 1
        count = f" and {quantity(others, 'other process', 'other processes')}" if others else ""
        lists = ", ".join(self.listed) or "no replica"
        text = f"the proxy on port {self.port} is {litellm.words(self.leader)}{count}"
        self._supervisor.say("adopted", f"{text}; {self.launch.config} lists {lists}", service=NAME)
        if self._owner == "foreign":
            self._supervisor.say("adopted", self._stranger(self.leader), "warning", NAME)
        self._state.enter("starting", "waiting for the proxy's first response")

    def _capture(self, held: PortHolders) -> tuple[HolderProcess, LiteLLMLaunch, tuple[str, ...]] | str:
        """The main process, how it was started, and the addresses that it lists; or why they cannot be read."""
        try:
            leader, launch = litellm.capture(held, self.port)
        except NotLiteLLM as error:
            return str(error)
        try:
            return leader, launch, model_list.backends(model_list.read(read_text(launch.config)), launch.env)
        except (ListingError, OSError, ValueError) as error:
            return f"cannot read the proxy's configuration {launch.config}: {error}"

    def _stranger(self, leader: HolderProcess) -> str:
        trainer = self._supervisor.slots["trainer"].current.process
        if trainer is not None and leader.tick < trainer.tick:
            return (
                f"the proxy on port {self.port} (pid {leader.pid}) was started before the launch script; if an "
                "earlier launch left this process behind, stop it, as it receives this run's requests"
            )
        return (
            f"the proxy on port {self.port} (pid {leader.pid}) was not started by the launch script and does not exit "
            "with the script; if an earlier launch left this process behind, stop it"
        )

    async def read_file(self) -> None:
        """Update ``listed`` from the proxy's configuration if the file has changed. A file that cannot be read is
        reported once and leaves ``listed`` as it was."""
        launch = self.launch
        assert launch is not None
        try:
            status = await asyncio.to_thread(launch.config.stat)
            key = (status.st_mtime_ns, status.st_size, status.st_ino)
            if key == self._file_key:
                return
            self._file_key = key
            text = await asyncio.to_thread(read_text, launch.config)
            self.listed = model_list.backends(model_list.read(text), launch.env)
        except (OSError, ListingError, ValueError) as error:
            if str(error) != self._unreadable:
                self._unreadable = str(error)
                why = f"cannot read the proxy's configuration {launch.config}: {error}"
                self._supervisor.say("adopted", why, "warning", NAME)
        else:
            self._unreadable = ""

    async def problem(self) -> str | None:
        """Why the health check failed; None if it returned 200."""
        import aiohttp

        try:
            status, _ = await self._supervisor.http.get(f"{self.address}{HEALTH}", _TIMEOUT)
        except TimeoutError:
            return f"the proxy did not respond to GET {HEALTH} within {_TIMEOUT:g} s"
        except (OSError, aiohttp.ClientError) as error:
            return f"the proxy did not respond: {error}"
        return None if status == 200 else f"the proxy returned {status} for GET {HEALTH}"

    def restart_begins(self) -> None:
        """Drop the results of polls until ``restart_ends``, as the proxy is being stopped and started."""
        self.restarting = True
        self._state.enter("stopping", "restarting")

    def restart_ends(self) -> None:
        """Take the process on the port as new at the next poll, whether the restart succeeded or not."""
        self.restarting = False
        self.held = self.leader = None
        self._scanned = 0.0

    # --- what the process has loaded, stored for a later backend ---

    def _remembered(self, member: Member) -> tuple[int, tuple[str, ...]] | None:
        record = read_object(self._memory)
        if record is None or tuple(record["leader"]) != member:
            return None
        return record["generation"], tuple(record["loaded"])

    def _remember(self) -> None:
        assert self.leader is not None
        record = {"leader": self.leader.member, "generation": self._generation, "loaded": self._loaded}
        try:
            write_atomic(self._memory, msgspec.json.encode(record))
        except OSError as error:
            self._supervisor.records.write_failed(f"{self._memory.name}: {error.strerror}")

    # --- results ---

    @property
    def address(self) -> str:
        """The URL at which clients on this host reach the proxy."""
        host = reachable(self.held.address) if self.held is not None else "127.0.0.1"
        return base_url(host, self.port)

    def lists(self, address: str) -> bool:
        """Whether the proxy's configuration file has this address now."""
        return self._among(address, self.listed)

    def routes_to(self, address: str) -> bool:
        """Whether the running process has loaded this address."""
        return self.leader is not None and self._among(address, self._loaded)

    def _among(self, address: str, urls: Collection[str]) -> bool:
        wanted = model_list.place(address, self.own)
        return wanted is not None and wanted in {model_list.place(url, self.own) for url in urls}

    @property
    def pending(self) -> list[str]:
        """Addresses in the configuration file that the running process has not loaded."""
        return [url for url in self.listed if not self._among(url, self._loaded)]

    def _pending_words(self) -> str:
        pending = self.pending
        return f"restart the proxy to load {', '.join(pending)} from its configuration" if pending else ""

    @property
    def seen(self) -> bool:
        """Whether a proxy has been found at this port."""
        return self._generation > 0

    def service(self) -> ServiceStatus:
        """The proxy as a service, for the snapshot. ``owner``: adopted if it runs in the launch script's tree."""
        held, leader = self.held, self.leader
        log = self.launch.log if self.launch is not None and leader is not None else None
        members = tuple(process.pid for process in held.holders) if held is not None else ()
        return ServiceStatus(
            name=NAME,
            kind="proxy",
            owner=self._owner,
            state=self._state.state,
            why=self._state.why,
            since=self._state.since,
            pid=leader.pid if leader is not None else None,
            generation=self._generation,
            restarts=max(0, self._generation - 1),
            log=str(log) if log is not None else None,
            address=self.address,
            ports={"http": self.port},
            ready_at=self._ready_at,
            members=members,
            tree=TreeStats(processes=len(members)),
        )

    def status(self) -> ProxyStatus:
        """The proxy's address and loaded routes, for the snapshot. Its requests are not counted."""
        config: Path | None = self.launch.config if self.launch is not None else None
        return ProxyStatus(
            address=self.address,
            backends=self._loaded if self.leader is not None else (),
            config=str(config) if config is not None else None,
            generation=self._generation,
        )


def runs_in_launch(supervisor: Supervisor) -> Callable[[int], bool]:
    """A function that says whether a pid is in the trainer's process tree: by the last scan, by its ancestors, or by
    its environment tag. The function may be called in another thread."""
    tree = frozenset(supervisor.process_scan.members().get("trainer", ()))
    run, run_dir = supervisor.run, str(supervisor.run_dir)

    def in_launch(pid: int) -> bool:
        at: int | None = pid
        while at is not None and at > 1:
            if at in tree:
                return True
            proc = procfs.read_proc(at)
            at = proc.ppid if proc is not None else None
        tag = procfs.environment_tag(pid) or ""
        ours = procfs.environment_tag(pid, b"LIVERL_RUN_DIR") == run_dir
        return ours and tag.startswith(f"{run}/trainer/")

    return in_launch
