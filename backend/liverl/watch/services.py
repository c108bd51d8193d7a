"""The services of a watched run over time: which have come and gone, their states, since when."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from liverl.control.service_detail import Generation, ServiceDetail
from liverl.daemon.run_files import ServiceLog, ServiceLogs
from liverl.engines import ENGINES
from liverl.model import GpuStatus, ReplicaStatus, ServiceState, ServiceStatus, TreeStats, UnreadableFile
from liverl.observe.boot.stages import Stage
from liverl.plan.spec import RestartPolicy
from liverl.procs import procfs
from liverl.util import redact
from liverl.util.ages import ago
from liverl.watch.folder import LogFound, role_of
from liverl.watch.log_times import LogTimes
from liverl.watch.mirror import Mirror
from liverl.watch.processes import Found
from liverl.watch.proxy import ProxyFacts
from liverl.watch.quiet import Pace, Paces
from liverl.watch.ray import RayFacts
from liverl.watch.scene import Scene
from liverl.watch.units import MAY_BE_COPIED, MOST_LOGS, UNSEEN, Unit, address_of

_KINDS = ("ray", "replica", "proxy", "trainer", "task")  # in the order in which they are shown
# A log of which no process is visible is of one that runs elsewhere at most for so long, whatever its pace was.
ELSEWHERE_S = 1800.0
# One that may be a copy is taken for one for so long after the first look, in which it has not grown (an estimate:
# trainers print every few seconds, except within a step).
COPY_S = 60.0
EARLIER = "earlier-runs"  # the row of the launches before the newest one
_ENDED = ("stopped", "failed")
_SERVERS = ("ray", "replica", "proxy")


class Seen(msgspec.Struct, frozen=True):
    """What else is known when services are shown. ``failed``: services whose logs hold the cause of a failure;
    ``closed``: by its log the training has ended; ``errors``: service that has ended -> the error with which its own
    log ends."""

    scene: Scene = Scene()
    replicas: Mapping[str, ReplicaStatus] = {}
    proxies: Mapping[str, ProxyFacts] = {}
    ray: RayFacts = RayFacts()
    failed: tuple[str, ...] = ()
    trees: Mapping[str, TreeStats] = {}
    gpus: tuple[GpuStatus, ...] = ()
    closed: bool = False
    errors: Mapping[str, str] = {}


class Services:
    """``known``: every service that has had a process -> its newest one. One thread at a time."""

    def __init__(self, mirror: Mirror, times: LogTimes | None = None) -> None:
        self.known: dict[str, Unit] = {}
        self._mirror = mirror
        self._logs = ServiceLogs(mirror.run.path, of_others=True)
        self._since: dict[str, tuple[ServiceState, float]] = {}
        # Services that have served -> Unix time since which they do not any more, None while they do.
        self._down: dict[str, float | None] = {}
        self._gone: set[tuple[int, int]] = set()  # processes whose exit was reported
        self._restarts: dict[str, int] = {}
        self._times = times or LogTimes()
        self._paces = Paces(self._times)
        self._looked: dict[Path, float] = {}  # logs that may be copies -> Unix time of the first look
        self.quiet: dict[str, Pace] = {}  # trainers that should write and have written nothing for long

    def follow(self, scene: Scene, now: float) -> None:
        """Report which processes have come and gone, and read the stages of those that start."""
        for name, unit in scene.services.items():
            if unit.process is not None:
                before = self.known.get(name)
                self._report(name, unit, unit.process, before.process if before is not None else None, now)
                self.known[name] = unit
        for name, unit in self.known.items():
            process = unit.process
            if process is not None and not _lives(process) and (process.pid, process.tick) not in self._gone:
                self._gone.add((process.pid, process.tick))
                self._mirror.say(now, "exited", f"pid {process.pid} has exited", "warning", name)
        logs = [
            ServiceLog(name, self._log(name, unit.log), _stage_parser(unit))
            for name, unit in scene.services.items()
            if unit.log is not None
        ]
        self._logs.look(logs, time.time())

    def _report(self, name: str, unit: Unit, process: Found, before: Found | None, now: float) -> None:
        if before is None:
            log = f", log {unit.log}" if unit.log is not None else ", its output is in no file"
            port = f", port {process.port}" if process.port is not None else ""
            self._mirror.say(now, "found", f"found {unit.what} (pid {process.pid}){port}{log}", service=name)
        elif (before.pid, before.tick) != (process.pid, process.tick):
            self._restarts[name] = self._restarts.get(name, 0) + 1
            text = f"started again: pid {process.pid}, before it pid {before.pid}"
            self._mirror.say(now, "restarted", text, "warning", name)

    @property
    def unreadable(self) -> tuple[UnreadableFile, ...]:
        """Logs that could not be read at the last look."""
        return self._logs.unreadable

    def _log(self, name: str, log: Path) -> Path:
        return self._mirror.run.path / self._mirror.link_log(name, log)

    def stage(self, name: str) -> Stage | None:
        """How far the start of a service is, by its log."""
        unit = self.known.get(name)
        return self._logs.stages.get(self._log(name, unit.log)) if unit is not None and unit.log else None

    def statuses(self, seen: Seen, now: float) -> tuple[ServiceStatus, ...]:
        """All services, in the order in which they are shown. ``now``: Unix seconds."""
        self.quiet = {}
        shown = {n: u for n, u in self.known.items() if n not in seen.scene.services} | seen.scene.services
        services = []
        if seen.ray.address and not any(unit.kind == "ray" for unit in shown.values()):
            unit = Unit("ray", what=f"Ray {seen.ray.version}".strip())
            state: ServiceState = "degraded" if seen.ray.problem else "ready"
            ray = self._status("ray", unit, state, seen.ray.problem or "", seen, now)
            services.append(msgspec.structs.replace(ray, address=f"http://{seen.ray.address}"))
        for name, unit in sorted(shown.items(), key=lambda item: _order(item[1])):
            state, why = self._state(name, unit, seen, now)
            services.append(self._status(name, unit, state, why, seen, now))
        if seen.scene.earlier:
            services.append(self._earlier(seen.scene.earlier, now))
        services += [
            self._unseen_proxy(name, facts, seen, now)
            for name, facts in seen.proxies.items()
            if name not in shown
        ]
        return tuple(services)

    def _earlier(self, logs: tuple[LogFound, ...], now: float) -> ServiceStatus:
        """All launches before the newest one, as one row: its generations are their logs, the newest last."""
        for log in reversed(logs[:MOST_LOGS]):
            shown = self._mirror.link_log(EARLIER, log.path)
        newest = logs[0]
        others = "" if len(logs) == 1 else f", and {len(logs) - 1} older"
        return ServiceStatus(
            name=EARLIER,
            kind="task",
            owner="foreign",
            state="stopped",
            why=f"{newest.path.name} last grew {ago(now - newest.modified)} ago{others}; "
            "liverl-tui doctor FILE shows how one ended",
            since=newest.modified,
            pid=None,
            log=shown,
            generation=min(len(logs), MOST_LOGS),
            restarts=0,
        )

    def _unseen_proxy(self, name: str, facts: ProxyFacts, seen: Seen, now: float) -> ServiceStatus:
        """The proxy on the port that the user named, where its process was not found: it is another user's, or is
        called otherwise."""
        state: ServiceState = "ready" if facts.problem is None else "degraded"
        unit = Unit("proxy", log=facts.log, what="LiteLLM", pid=facts.pid)
        service = self._status(name, unit, state, facts.problem or facts.config_problem, seen, now)
        return msgspec.structs.replace(
            service, address=facts.address, ports={"http": facts.port}, members=facts.members
        )

    def _status(
        self, name: str, unit: Unit, state: ServiceState, why: str, seen: Seen, now: float
    ) -> ServiceStatus:
        process = unit.process
        before = self._since.get(name)
        if before is None or before[0] != state:
            first = process.started_at if process is not None else unit.modified or now
            self._since[name] = state, first if before is None else now
        if state == "ready":
            self._down[name] = None
        elif name in self._down and self._down[name] is None:
            self._down[name] = now
        down_since = self._down.get(name)
        stage = self.stage(name) if state == "starting" else None
        restarts = self._restarts.get(name, 0)
        return ServiceStatus(
            name=name,
            kind=unit.kind,
            owner="foreign",
            state=state,
            why=why,
            since=self._since[name][1],
            pid=unit.pid if state not in _ENDED else None,
            generation=restarts + 1,
            restarts=restarts,
            log=self._mirror.link_log(name, unit.log) if unit.log is not None else None,
            address=address_of(process) if process is not None else None,
            ports={"http": process.port} if process is not None and process.port is not None else {},
            gpus=used_gpus(name, seen.gpus),
            started_at=process.started_at if process is not None else None,
            stage=stage[0] if stage is not None else None,
            progress=stage[1] if stage is not None else None,
            members=seen.scene.trees.get(name, ()),
            tree=seen.trees.get(name, TreeStats()),
            down_since=down_since,
            failure=why if down_since is not None else "",
        )

    def _state(self, name: str, unit: Unit, seen: Seen, now: float) -> tuple[ServiceState, str]:
        process = unit.process
        pace = self._paces.look(unit.log, now) if unit.log is not None else None
        silent = quiet_words(pace, now) if pace is not None else ""
        if process is not None and _lives(process):
            state, why = self._state_of_process(name, unit, seen)
            self._note(name, unit, pace, now)
            return state, _joined(why, silent)
        if process is None and unit.pid is not None and procfs.alive(unit.pid, None):
            self._note(name, unit, pace, now)
            return "ready", _joined(f"pid {unit.pid} writes its log", silent)
        grown = _joined(_what(unit), self._grown(unit, now))
        if process is not None:
            # A server never exits by itself in good order; a trainer does.
            failed = name in seen.failed or name in seen.errors or unit.kind in _SERVERS
            why = _joined(f"pid {process.pid} has exited", seen.errors.get(name, ""), grown)
            return ("failed" if failed else "stopped"), why
        if name in seen.failed:
            return "failed", _joined("no process writes its log", grown)
        if seen.closed and (unit.kind == "trainer" or role_of(unit.what) == "trainer"):
            return "stopped", _joined("by its log the training has ended", grown)
        # What writes polls into it lives, too.
        grown_at = self._times(unit.log)[1] if unit.log is not None else unit.modified
        still = self._still(unit.log, now)
        if still >= COPY_S:
            grown = _joined(grown, f"it has not grown in the {ago(still)} since it was first looked at")
        elif pace is not None and now - grown_at < min(pace.allowed, ELSEWHERE_S):
            self._note(name, unit, pace, now)
            return "ready", _joined(silent or grown, UNSEEN)
        error = seen.errors.get(name, "")
        return ("failed" if error else "stopped"), _joined(
            error or "no process writes its log", silent or grown
        )

    def _still(self, log: Path | None, now: float) -> float:
        """For how many seconds a log that may be a copy was looked at without growing; 0.0 of any other."""
        if log is None or not self._times.may_be_copied(log):
            return 0.0
        return now - self._looked.setdefault(log, now)

    def _grown(self, unit: Unit, now: float) -> str:
        """When the log of a unit last grew, in words; "" without a log."""
        if unit.log is None:
            return ""
        size, written = self._times(unit.log)
        if not size and not written:
            return "its log was removed"
        how = MAY_BE_COPIED if self._times.may_be_copied(unit.log) else "last grew"
        return f"its log {how} {ago(now - written)} ago"

    def _note(self, name: str, unit: Unit, pace: Pace | None, now: float) -> None:
        """Note a trainer that lives and writes nothing. Servers without requests have nothing to say."""
        if unit.kind == "trainer" and pace is not None and pace.quiet(now) is not None:
            self.quiet[name] = pace

    def _state_of_process(self, name: str, unit: Unit, seen: Seen) -> tuple[ServiceState, str]:
        replica, facts = seen.replicas.get(name), seen.proxies.get(name)
        if replica is not None:
            return replica.state, replica.why
        if facts is not None and facts.problem is not None:
            return ("degraded" if name in self._down or facts.answered else "starting"), facts.problem
        if unit.kind == "ray" and seen.ray.problem:
            return "degraded", seen.ray.problem
        return "ready", facts.config_problem if facts is not None else ""

    def detail(self, name: str) -> ServiceDetail | None:
        """What is known of the process of a service; None without one."""
        unit = self.known.get(name)
        process = unit.process if unit is not None else None
        if unit is None or process is None:
            return None
        start = Generation(1, self._restarts.get(name, 0) + 1, "current", process.started_at, process.pid)
        return ServiceDetail(
            name=name,
            kind=unit.kind,
            live=True,
            argv=tuple(redact.command(process.argv)),
            cwd=process.cwd,
            restart=RestartPolicy("never"),  # by us
            generations=(start,),
        )


def _what(unit: Unit) -> str:
    """What a log without a process is; "" of a trainer's, which its name says, and of a text that tells nothing."""
    told = unit.kind != "trainer" and unit.process is None and unit.what not in ("", "text")
    return unit.what if told else ""


def quiet_words(pace: Pace, now: float) -> str:
    """That a log has not grown for long, and how often it usually does; "" while it has not been long. Pure."""
    seconds = pace.quiet(now)
    if seconds is None:
        return ""
    polls = " except for polls" if pace.polled else ""
    usual = f", usually every {ago(pace.usual)}" if pace.usual >= 1.0 else ""
    return f"its log has not grown for {ago(seconds)}{polls}{usual}"


def used_gpus(name: str, gpus: tuple[GpuStatus, ...]) -> tuple[str, ...]:
    """UUIDs of the GPUs that a service or replica has processes on. Pure."""
    return tuple(gpu.uuid for gpu in gpus if name in gpu.owner.split(" + "))


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)


def _stage_parser(unit: Unit) -> str | None:
    if unit.process is not None and unit.process.engine == "sglang":
        return None  # its start is not read
    names = {"replica": ENGINES["vllm"].boot.name, "proxy": "litellm", "trainer": "trainer"}
    return names.get(unit.kind) if unit.process is not None else None


def _order(unit: Unit) -> tuple[int, float]:
    began = unit.process.started_at if unit.process is not None else -unit.modified
    return _KINDS.index(unit.kind), began


def _lives(process: Found) -> bool:
    return procfs.alive(process.pid, process.tick)
