"""The proxy of a launch that is not ours, as it is seen from outside: who listens, by which file, and whether it
answers. Looking changes nothing."""

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

NAME = "proxy"
HEALTH = "/health/liveliness"
_TIMEOUT = 5.0  # seconds for its answer
_AGAIN = (
    15.0  # seconds until its workers are looked for again: a scan of all descriptors is dear on a large host
)
_FAILURES = 3  # checks in a row that it may miss: two workers on busy cores answer late


class ExternalProxy:
    """``port``: where the script's proxy listens. ``restarting``: it is being restarted by us, and what is seen
    meanwhile means nothing."""

    def __init__(self, supervisor: Supervisor, port: int) -> None:
        self.port = port
        self.restarting = False
        self.held: PortHolders | None = None
        self.leader: HolderProcess | None = None
        self.launch: LiteLLMLaunch | None = None  # of the newest LiteLLM that was seen there
        self.listed: tuple[str, ...] = ()  # addresses in its configuration
        self.own = port_holders.own_addresses()
        self._supervisor = supervisor
        self._now = ObservedState(supervisor, NAME, f"nothing listens on port {port} yet")
        self._generation = 0
        # adopted: it runs in the trainer's process tree, and ends with it; foreign: elsewhere
        self._owner: Owner = "foreign"
        self._loaded: tuple[str, ...] = ()  # addresses that this process has read when it started
        self._ready_at: float | None = None
        self._scanned = 0.0
        self._missed = 0
        self._known_file: tuple[int, int, int] | None = None
        self._unreadable = ""
        self._memory = supervisor.run_dir / "adopted_proxy.json"

    # --- looking ---

    async def look(self) -> None:
        """Look once."""
        held = await asyncio.to_thread(self._holders)
        if self.restarting:
            return
        if held is None:
            self.held = None
            if self._generation or self._now.state != "waiting":
                self._now.enter("failed", f"the proxy has exited: no process listens on port {self.port}")
            return
        if self.held is None or held.inodes != self.held.inodes or self._changed(held):
            seen = await asyncio.to_thread(self._capture, held)
            if self.restarting:
                return
            self._meet(held, seen)
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
            self._now.enter("ready", self._pending_words())
        elif self._ready_at is None:
            self._now.enter("starting", problem)
        elif self._missed >= _FAILURES:
            self._now.enter("degraded", problem)

    def look_at_what_is_left(self) -> None:
        """The launch script is over."""
        if self.leader is not None and not procfs.alive(*self.leader.member):
            self.held = self.leader = None
            self._now.enter("stopped", "it exited with the launch script")

    def _holders(self) -> PortHolders | None:
        known, sockets = self.held, list(procfs.listeners(self.port))
        if known is None or not sockets:
            return port_holders.look(self.port) if sockets else None
        same = known.inodes == {inode for _, inode, _ in sockets}
        alive = all(procfs.alive(*process.member) for process in known.holders)
        if same and alive and self._supervisor.now() - self._scanned < _AGAIN:
            return known
        self._scanned = self._supervisor.now()
        return port_holders.look(self.port)

    def _changed(self, held: PortHolders) -> bool:
        known = self.leader
        return known is None or known.member not in {root.member for root in held.roots}

    def _meet(
        self, held: PortHolders, seen: tuple[HolderProcess, LiteLLMLaunch, tuple[str, ...]] | str
    ) -> None:
        """Somebody else listens than before."""
        if isinstance(seen, str):
            self.leader, self._loaded, self.listed = None, (), ()
            self._now.enter("degraded", seen)
            return
        self.leader, self.launch, self.listed = seen
        known = self._remembered(self.leader.member)
        self._generation, self._loaded = known or (self._generation + 1, self.listed)
        self._ready_at, self._missed, self._known_file = None, 0, None
        self._owner = "adopted" if runs_in_launch(self._supervisor)(self.leader.pid) else "foreign"
        self._remember()
        others = len(held.holders) - 1
        said = f"{litellm.words(self.leader)} listens on port {self.port}, with {others} other processes"
        lists = ", ".join(self.listed) or "no replica"
        self._supervisor.say("adopted", f"{said}; {self.launch.config} lists {lists}", service=NAME)
        if self._owner == "foreign":
            self._supervisor.say("adopted", self._stranger(self.leader), "warning", NAME)
        self._now.enter("starting", "waiting for its first response")

    def _capture(self, held: PortHolders) -> tuple[HolderProcess, LiteLLMLaunch, tuple[str, ...]] | str:
        """Who it is, how it was started, whom it lists; or why that cannot be told."""
        try:
            leader, launch = litellm.capture(held, self.port)
        except NotLiteLLM as error:
            return str(error)
        try:
            return leader, launch, model_list.backends(model_list.read(launch.config.read_text()), launch.env)
        except (ListingError, OSError, ValueError) as error:
            return f"{launch.config}: {error}"

    def _stranger(self, leader: HolderProcess) -> str:
        trainer = self._supervisor.slots["trainer"].current.process
        if trainer is not None and leader.tick < trainer.tick:
            return (
                "it was started before the launch script; a process left over from an earlier launch may "
                "receive this run's requests"
            )
        return (
            f"pid {leader.pid} on port {self.port} was not started by the launch script and does not end with it; "
            "if it is left over from an earlier launch, stop it"
        )

    async def read_file(self) -> None:
        """Take notice of what its configuration lists now."""
        launch = self.launch
        assert launch is not None
        try:
            about = await asyncio.to_thread(launch.config.stat)
            key = (about.st_mtime_ns, about.st_size, about.st_ino)
            if key == self._known_file:
                return
            self._known_file = key
            text = await asyncio.to_thread(launch.config.read_text)
            self.listed = model_list.backends(model_list.read(text), launch.env)
        except (OSError, ListingError, ValueError) as error:
            if str(error) != self._unreadable:
                self._unreadable = str(error)
                why = f"cannot read {launch.config}: {error}"
                self._supervisor.say("adopted", why, "warning", NAME)
        else:
            self._unreadable = ""

    async def problem(self) -> str | None:
        """What it does instead of answering."""
        import aiohttp

        try:
            status, _ = await self._supervisor.http.get(f"{self.address}{HEALTH}", _TIMEOUT)
        except TimeoutError:
            return f"no response from {HEALTH} within {_TIMEOUT:g} s"
        except (OSError, aiohttp.ClientError) as error:
            return f"no response: {error}"
        return None if status == 200 else f"GET {HEALTH} returned {status}"

    def restart_begins(self) -> None:
        """From now on its end is wanted."""
        self.restarting = True
        self._now.enter("stopping", "restarting")

    def restart_ends(self) -> None:
        """Whatever came of it: look at it anew."""
        self.restarting = False
        self.held = self.leader = None
        self._scanned = 0.0

    # --- what a process has loaded, for a backend that comes later ---

    def _remembered(self, member: Member) -> tuple[int, tuple[str, ...]] | None:
        told = read_object(self._memory)
        if told is None or tuple(told["leader"]) != member:
            return None
        return told["generation"], tuple(told["loaded"])

    def _remember(self) -> None:
        assert self.leader is not None
        told = {"leader": self.leader.member, "generation": self._generation, "loaded": self._loaded}
        try:
            write_atomic(self._memory, msgspec.json.encode(told))
        except OSError as error:
            self._supervisor.records.write_failed(f"{self._memory.name}: {error.strerror}")

    # --- what is known ---

    @property
    def address(self) -> str:
        """Where clients on this host reach it."""
        host = reachable(self.held.address) if self.held is not None else "127.0.0.1"
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def lists(self, address: str) -> bool:
        """Whether its configuration has this address now."""
        return self._among(address, self.listed)

    def routes_to(self, address: str) -> bool:
        """Whether the process that serves has read this address."""
        return self.leader is not None and self._among(address, self._loaded)

    def _among(self, address: str, known: Collection[str]) -> bool:
        wanted = model_list.place(address, self.own)
        return wanted is not None and wanted in {model_list.place(url, self.own) for url in known}

    @property
    def pending(self) -> list[str]:
        """Addresses that its configuration has, and it has not read yet."""
        return [url for url in self.listed if not self._among(url, self._loaded)]

    def _pending_words(self) -> str:
        waits = self.pending
        return f"restart it to load {', '.join(waits)} from its configuration" if waits else ""

    def service(self) -> ServiceStatus:
        held, leader = self.held, self.leader
        log = self.launch.log if self.launch is not None and leader is not None else None
        members = tuple(process.pid for process in held.holders) if held is not None else ()
        return ServiceStatus(
            name=NAME,
            kind="proxy",
            owner=self._owner,
            state=self._now.state,
            why=self._now.why,
            since=self._now.since,
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
        config: Path | None = self.launch.config if self.launch is not None else None
        return ProxyStatus(
            address=self.address,
            backends=self._loaded if self.leader is not None else (),
            config=str(config) if config is not None else None,
            generation=self._generation,
        )


def runs_in_launch(supervisor: Supervisor) -> Callable[[int], bool]:
    """Tells whether a process is in the trainer's process tree: by the last scan, by descent, or by its tag. What it
    returns may be called in another thread."""
    tree = frozenset(supervisor.process_scan.members().get("trainer", ()))
    run, run_dir = supervisor.run, str(supervisor.run_dir)

    def told(pid: int) -> bool:
        at: int | None = pid
        while at is not None and at > 1:
            if at in tree:
                return True
            proc = procfs.read_proc(at)
            at = proc.ppid if proc is not None else None
        tag = procfs.environment_tag(pid) or ""
        ours = procfs.environment_tag(pid, b"LIVERL_RUN_DIR") == run_dir
        return ours and tag.startswith(f"{run}/trainer/")

    return told
