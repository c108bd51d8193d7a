"""The servers and trainers that this user runs on this host, by their command lines: kind, port, log, start.

Those of runs of liverl-tui carry a tag: ``attach`` shows them, and here they count only in a folder that the user
named.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from liverl.external import ray_cluster
from liverl.external.litellm import is_litellm, option
from liverl.procs import procfs
from liverl.procs.procfs import Proc
from liverl.util.kernel_file import kernel_text

Kind = Literal["replica", "proxy", "ray", "trainer"]

_TICKS = os.sysconf("SC_CLK_TCK")
_VLLM_SERVER = re.compile(r"vllm\.entrypoints\.(?:openai\.)?api_server")
_VLLM_COMMAND = re.compile(r"vllm\.entrypoints\.cli\.main|(?:.*/)?vllm")
_TRAINER_MODULE = re.compile(r"(?:verl|recipe)(?:\.\w+)*\.\w*main\w*")
_TRAINER_SCRIPT = re.compile(r"(?:^|/)(?:verl|recipe)/(?:\w+/)*\w*main\w*\.py$|(?:^|/)main_ppo\.py$")
# What runs of ours start for CPUs, by module.
_OURS: dict[str, Kind] = {"liverl.embedded.engine": "replica", "liverl.embedded.trainer": "trainer"}
# SGLang's servers and routers, by module or command: docs.sglang.io, sgl-model-gateway.
_SGLANG_SERVER = re.compile(
    r"sglang\.launch_server|sglang\.srt\.entrypoints\.(?:http|grpc)_server|.*/sglang/launch_server\.py"
)
_SGLANG_ROUTER = re.compile(
    r"sglang_router\.launch_(?:router|server)|sglang_router|(?:.*/)?(?:sglang-router|smg|sgl-model-gateway)"
)
_SGLANG_COMMAND = re.compile(r"sglang\.cli\.main|(?:.*/)?sglang")
_DEFAULT_PORTS = {
    ("replica", "vllm"): 8000,
    ("proxy", "vllm"): 4000,
    ("replica", "sglang"): 30000,
    ("proxy", "sglang"): 30000,
}
_WRITES = os.O_WRONLY | os.O_RDWR


class Found(msgspec.Struct, frozen=True):
    """A process. ``tick``: start in clock ticks since boot; ``log``: the file that its output goes to, None if it goes
    to a terminal or cannot be told; ``port``: on which it listens, or will by its command line; ``started_at``: Unix
    seconds; ``tagged``: it is of a run of liverl-tui."""

    kind: Kind
    pid: int
    tick: int
    argv: tuple[str, ...]
    cwd: str
    started_at: float
    log: Path | None = None
    port: int | None = None
    listens: bool = False
    engine: str = "vllm"  # of a replica and of what routes to it: of ``engines.WATCHED``
    tagged: bool = False


def kind_of(argv: Sequence[str]) -> Kind | None:
    """What a command line starts; None if nothing that is watched. Pure."""
    if is_litellm(argv):
        return "proxy"
    if ray_cluster.parse(tuple(argv)) is not None:
        return "ray"
    name, rest = _program(argv)
    if (own := _OURS.get(name)) is not None:
        return own
    if _SGLANG_ROUTER.fullmatch(name):
        return "proxy"
    if _SGLANG_SERVER.fullmatch(name) or (_SGLANG_COMMAND.fullmatch(name) and rest[:1] == ["serve"]):
        return "replica"
    if _VLLM_COMMAND.fullmatch(name):
        return "replica" if rest[:1] == ["serve"] else None
    if _VLLM_SERVER.fullmatch(name):
        return "replica"
    trains = _TRAINER_SCRIPT.search(name) if name.endswith(".py") else _TRAINER_MODULE.fullmatch(name)
    return "trainer" if trains else None


def engine_of(argv: Sequence[str]) -> str:
    """Which engine a server or its router is of: a key of ``engines.WATCHED``. Pure."""
    name = _program(argv)[0]
    patterns = (_SGLANG_ROUTER, _SGLANG_SERVER, _SGLANG_COMMAND)
    return "sglang" if any(pattern.fullmatch(name) for pattern in patterns) else "vllm"


def _program(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The program of a command line, without its interpreter, and its arguments: a path, or a module behind ``-m``."""
    words = list(argv)
    if not words:
        return "", []
    if not os.path.basename(words[0]).startswith("python"):
        return words[0], words[1:]
    words = words[1:]
    while words and words[0].startswith("-"):
        if words[0] == "-m":
            return next(iter(words[1:2]), ""), words[2:]
        if words[0] == "-c":
            return "", []
        words = words[2:] if words[0] in ("-X", "-W") else words[1:]
    return (words[0], words[1:]) if words else ("", [])


def roots(kinds: Mapping[int, Kind], parents: Mapping[int, int]) -> list[int]:
    """The pids whose parent is not of the same kind: a forked worker keeps the command line of its parent. Pure."""
    return [pid for pid, kind in kinds.items() if kinds.get(parents.get(pid, 0)) != kind]


def descendants(table: Mapping[int, Proc], leaders: Collection[int]) -> dict[int, set[int]]:
    """Leader -> pids of its tree, itself included. A process below two leaders belongs to the nearer one. Pure."""
    trees: dict[int, set[int]] = {leader: set() for leader in leaders}
    for pid in table:
        at, seen = pid, set[int]()
        while at not in trees and at in table and at not in seen:
            seen.add(at)
            at = table[at].ppid
        if at in trees:
            trees[at].add(pid)
    return trees


class ProcessFinder:
    """Looks for processes; remembers those that it has looked at, as command lines cost a read each."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[int, int], Kind | None] = {}
        self._logs: dict[tuple[int, int], Path | None] = {}
        self.boot = _boot_time()  # Unix seconds

    def look(self, table: Mapping[int, Proc]) -> list[Found]:
        """What runs now, the oldest first. ``table``: of ``procfs.scan``."""
        living = {(proc.pid, proc.tick) for proc in table.values() if not proc.zombie}
        self._kinds = {member: kind for member, kind in self._kinds.items() if member in living}
        self._logs = {member: log for member, log in self._logs.items() if member in living}
        for pid, tick in living - self._kinds.keys():
            self._kinds[pid, tick] = self._kind(pid)
        kinds = {pid: kind for (pid, _), kind in self._kinds.items() if kind is not None}
        found = [self._found(pid, table[pid].tick, kinds[pid]) for pid in roots(kinds, _parents(table))]
        return sorted(found, key=lambda one: (one.tick, one.pid))

    def _kind(self, pid: int) -> Kind | None:
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                return None
        except OSError:
            return None
        return kind_of(procfs.arguments(pid))

    def _found(self, pid: int, tick: int, kind: Kind) -> Found:
        argv = procfs.arguments(pid)
        engine = engine_of(argv)
        listening = procfs.listening(pid) if (kind, engine) in _DEFAULT_PORTS else {}
        named = option(argv, "--port", "-p")
        port = int(named) if named and named.isdigit() else _DEFAULT_PORTS.get((kind, engine))
        if listening and port not in listening:
            port = min(listening)
        if (pid, tick) not in self._logs:
            self._logs[pid, tick] = log_of(pid)
        return Found(
            kind=kind,
            pid=pid,
            tick=tick,
            argv=argv,
            cwd=_link(f"/proc/{pid}/cwd"),
            started_at=self.boot + tick / _TICKS,
            log=self._logs[pid, tick],
            port=port,
            listens=port in listening,
            engine=engine,
            tagged=procfs.environment_tag(pid) is not None,
        )


def _parents(table: Mapping[int, Proc]) -> dict[int, int]:
    return {pid: proc.ppid for pid, proc in table.items()}


def log_of(pid: int) -> Path | None:
    """The regular file that the process's stdout or stderr goes to, also through ``| tee FILE``; None if there is none,
    or it was deleted."""
    for number in (1, 2):
        target = _link(f"/proc/{pid}/fd/{number}")
        if target.startswith("pipe:["):
            target = _behind_tee(target)
        if target.startswith("/") and not target.startswith("/dev/"):
            try:
                if stat.S_ISREG(os.stat(target).st_mode):
                    return Path(target)
            except OSError:
                continue
    return None


def _behind_tee(pipe: str) -> str:
    """The file that the ``tee`` at the end of a pipe writes; "" if there is none."""
    for pid in _pids():
        if _link(f"/proc/{pid}/fd/0") != pipe:
            continue
        argv = procfs.arguments(pid)
        if argv and os.path.basename(argv[0]) == "tee":
            names = [word for word in argv[1:] if not word.startswith("-")]
            return os.path.join(_link(f"/proc/{pid}/cwd"), names[0]) if names else ""
    return ""


def writers(paths: Iterable[Path]) -> dict[Path, int]:
    """Those of ``paths`` that a process of this user has open for writing -> the oldest such process, which is no
    ``tee``. Scans all of ``/proc``."""
    wanted = {os.path.realpath(path): path for path in paths}
    best: dict[Path, tuple[int, int]] = {}
    for pid in _pids() if wanted else ():
        for name in _open_for_writing(pid, wanted):
            tick = procfs.start_tick(pid)
            argv = procfs.arguments(pid)
            if tick is not None and not (argv and os.path.basename(argv[0]) == "tee"):
                best[wanted[name]] = min(best.get(wanted[name], (tick, pid)), (tick, pid))
    return {path: pid for path, (_, pid) in best.items()}


def _open_for_writing(pid: int, wanted: Collection[str]) -> set[str]:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return set()  # it has exited, or belongs to another user
    names = set()
    for number in numbers:
        name = _link(f"/proc/{pid}/fd/{number}")
        if name in wanted and name not in names and _writes(pid, number):
            names.add(name)
    return names


def _writes(pid: int, number: str) -> bool:
    try:
        lines = kernel_text(f"/proc/{pid}/fdinfo/{number}").splitlines()
        flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
    except OSError:
        return False
    return bool(int(flags, 8) & _WRITES)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name[0] in "123456789"]


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _boot_time() -> float:
    """Unix time of the host's start. /proc/stat has it to a second only, by which the last line of one launch would
    be of the next."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
