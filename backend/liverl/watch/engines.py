"""Replicas inside a trainer: servers of vLLM and SGLang that a trainer's Ray has started, found by their processes.

Ray's dashboard names them, but many runs have none. Their processes tell by their titles what they are; a run's own
are those below its processes, below the raylets of its Ray session, and those that its logs name by their pids.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from liverl.engines import WATCHED
from liverl.external.port_holders import own_addresses
from liverl.procs import procfs
from liverl.procs.procfs import Proc
from liverl.util.regular_file import open_binary
from liverl.watch.http import Refused, get
from liverl.watch.replicas import Candidate

# The titles of an engine's processes, and of Ray's actors that serve it (vLLM 0.24, verl 0.9, SGLang 0.5).
_ENGINE = re.compile(r"(VLLM)::EngineCore|(sglang)::(?:scheduler|data_parallel_controller)")
_SERVER = re.compile(r"ray::(?:\w+\.)?(vLLM|SGLang)HttpServer")
_PROMPT = ("VLLM::", "sglang::", "ray::", "python", "vllm", "pt_main")  # beginnings of their short names
_RAYLET = "raylet"
_SESSION = re.compile(r"/(session_\d{4}-\d\d-\d\d_[\d_-]+)(?:/|$)")
_LOGGED = re.compile(rb"\((\w+)[^()\n]{0,40}? pid=(\d{1,8})(?:, ip=([0-9a-fA-F.:]+))?\)")
_TAIL = 256 << 10  # bytes of a log that are searched for pids
_HEALTH_S = 1.0  # for an answer; a server that is well takes milliseconds
_TICKS = os.sysconf("SC_CLK_TCK")
_UP = 200, 503  # answers of a server: 503 once its engine has ended


class Server(msgspec.Struct, frozen=True):
    """A process that serves an engine. ``engines``: pids of the engine's processes below it; ``engine``: vllm or
    sglang."""

    pid: int
    tick: int
    engine: str
    engines: tuple[int, ...] = ()


def servers(table: Mapping[int, Proc], title: Callable[[int], str]) -> list[Server]:
    """All servers by the titles of their processes and of those below them, the oldest first. ``title``: of a pid."""
    found: dict[int, tuple[str, list[int]]] = {}
    for pid, proc in table.items():
        if proc.zombie or not proc.comm.startswith(_PROMPT):
            continue
        words = title(pid)
        if (match := _SERVER.match(words)) is not None:
            found.setdefault(pid, (match[1].lower(), []))
        elif (match := _ENGINE.match(words)) is not None and proc.ppid in table:
            found.setdefault(proc.ppid, ((match[1] or match[2]).lower(), []))[1].append(pid)
    known = [
        Server(pid, table[pid].tick, engine, tuple(sorted(engines)))
        for pid, (engine, engines) in found.items()
        if not _ENGINE.match(title(pid)) and pid > 1
    ]
    return sorted(known, key=lambda one: (one.tick, one.pid))


def ours(pid: int) -> bool:
    """Whether a process is of this user."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def title_of(pid: int) -> str:
    """The first word of a process's command line, in which it writes its title; "" for another user's."""
    return next(iter(procfs.arguments(pid)), "") if ours(pid) else ""


def below(leaders: Collection[int], table: Mapping[int, Proc]) -> set[int]:
    """The pids of the trees of ``leaders``. Pure."""
    found = {pid for pid in leaders if pid in table}
    children: dict[int, list[int]] = {}
    for pid, proc in table.items():
        children.setdefault(proc.ppid, []).append(pid)
    waiting = list(found)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def sessions_of(pids: Iterable[int]) -> set[str]:
    """The sessions of Ray in which processes have files or sockets open, or which their command lines name."""
    found: set[str] = set()
    for pid in pids:
        texts = [*procfs.arguments(pid), *_open_files(pid)]
        found.update(match[1] for text in texts if (match := _SESSION.search(text)) is not None)
    return found


def raylets(table: Mapping[int, Proc], sessions: Collection[str]) -> set[int]:
    """The raylets of this user in these sessions."""
    named = (pid for pid, proc in table.items() if proc.comm == _RAYLET and ours(pid))
    return {pid for pid in named if not sessions_of([pid]).isdisjoint(sessions)}


def pids_in(log: Path) -> set[int]:
    """The pids of this host that the end of a log names before its lines, as Ray and vLLM do."""
    try:
        with open_binary(log) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL))
            data = file.read(_TAIL)
    except OSError:
        return set()
    here = {address.encode() for address in own_addresses()}
    return {int(match[2]) for match in _LOGGED.finditer(data) if match[3] is None or match[3] in here}


def _open_files(pid: int) -> list[str]:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []
    names = []
    for number in numbers:
        try:
            names.append(os.readlink(f"/proc/{pid}/fd/{number}"))
        except OSError:
            continue
    return names


class EngineFinder:
    """Finds the servers of a watched run; one that was found once stays, so that its end is seen. One thread at a
    time. ``all_of_them``: whatever this user runs here is watched."""

    def __init__(self, boot: float, *, all_of_them: bool) -> None:
        self._boot = boot
        self._all = all_of_them
        self._known: dict[tuple[int, int], Server] = {}
        self._addresses: dict[tuple[int, int], str] = {}
        self._shown: set[tuple[int, int]] = set()  # which are, or were, replicas on their own

    def look(
        self,
        table: Mapping[int, Proc],
        leaders: Collection[int],
        shown: Collection[int],
        logs: Iterable[Path],
        began: float | None,
    ) -> list[Candidate]:
        """The replicas now. ``leaders``: the run's processes; ``shown``: those that are replicas already; ``logs``: of
        the run; ``began``: when its newest launch began, Unix seconds."""
        for server in self._of_the_run(servers(table, title_of), table, leaders, logs):
            above = self._known.get((server.pid, server.tick))
            engines = server.engines or (above.engines if above is not None else ())
            self._known[server.pid, server.tick] = msgspec.structs.replace(server, engines=engines)
        candidates = []
        for key, server in list(self._known.items()):
            if began is not None and self._started(server) < began - 1.0 and not _lives(table, *key):
                del self._known[key]  # of a launch before
            elif not _with_parents(server.pid, table).isdisjoint(shown):
                self._shown.add(key)
            elif key not in self._shown:
                candidates.append(self._candidate(server, table))
        return candidates

    def _of_the_run(
        self,
        found: list[Server],
        table: Mapping[int, Proc],
        leaders: Collection[int],
        logs: Iterable[Path],
    ) -> list[Server]:
        new = [one for one in found if (one.pid, one.tick) not in self._known]
        if self._all:
            new = [one for one in new if not _tagged(one.pid, table)]
            return [one for one in found if one in new or (one.pid, one.tick) in self._known]
        if not new:
            return found
        tree = below(leaders, table)
        members = tree | below(raylets(table, sessions_of(tree)), table)
        if not all(one.pid in members for one in new):
            members = members.union(*(pids_in(log) for log in logs))
        part = {one.pid for one in new if one.pid in members or members.intersection(one.engines)}
        return [one for one in found if one.pid in part or (one.pid, one.tick) in self._known]

    def _started(self, server: Server) -> float:
        return self._boot + server.tick / _TICKS

    def _candidate(self, server: Server, table: Mapping[int, Proc]) -> Candidate:
        name = f"{server.engine}-{server.pid}"
        address = self._address(server)
        if not _lives(table, server.pid, server.tick):
            why = f"pid {server.pid} has exited"
            return Candidate(name, address, kind="verl", state="failed", why=why, engine=server.engine)
        gone = [pid for pid in server.engines if pid not in table or table[pid].zombie]
        started = self._started(server)
        if gone:
            why = f"its engine (pid {gone[0]}) has exited; its server (pid {server.pid}) still runs"
            return Candidate(name, address, server.pid, started, "verl", "failed", why, server.engine)
        why = "" if address else f"no port of its process answers GET {WATCHED[server.engine].health} yet"
        return Candidate(name, address, server.pid, started, "verl", why=why, engine=server.engine)

    def _address(self, server: Server) -> str | None:
        """The port of the process that serves HTTP; Ray's own ports speak another protocol."""
        key, health = (server.pid, server.tick), WATCHED[server.engine].health
        if key not in self._addresses and procfs.alive(*key):
            hosts = dict.fromkeys(("127.0.0.1", *sorted(own_addresses())))
            for port in sorted(procfs.listening(server.pid)):
                for host in hosts:
                    try:
                        status, _ = get(_url(host, port, health), _HEALTH_S)
                    except Refused:
                        continue
                    if status in _UP:
                        self._addresses[key] = _url(host, port)
                        return self._addresses[key]
        return self._addresses.get(key)


def _url(host: str, port: int, path: str = "") -> str:
    return f"http://[{host}]:{port}{path}" if ":" in host else f"http://{host}:{port}{path}"


def _lives(table: Mapping[int, Proc], pid: int, tick: int) -> bool:
    proc = table.get(pid)
    return proc is not None and proc.tick == tick and not proc.zombie


def _tagged(pid: int, table: Mapping[int, Proc]) -> bool:
    """Whether a process is of a run of liverl-tui: it or one above it carries its tag. A title may have overwritten
    its own."""
    return any(procfs.environment_tag(one) is not None for one in _with_parents(pid, table))


def _with_parents(pid: int, table: Mapping[int, Proc]) -> set[int]:
    """A process and all above it. Pure."""
    found: set[int] = set()
    while pid in table and pid not in found:
        found.add(pid)
        pid = table[pid].ppid
    return found
