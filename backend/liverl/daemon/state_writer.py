"""Diagnoses the run, adds an event for each symptom that begins or ends, and writes ``history.jsonl`` and
``snapshot.json``, the last known state, for readers without a backend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from liverl.control.history import events_after
from liverl.daemon.run_supervisor import RunSupervisor
from liverl.daemon.sampler import SampledFacts
from liverl.daemon.stack_saver import StackSaver
from liverl.daemon.stall_watch import StallWatch
from liverl.diagnose.advice import means
from liverl.diagnose.catalogue.rules import RULES
from liverl.diagnose.failures import is_end
from liverl.diagnose.standing import standing
from liverl.diagnose.tracker import Diagnosis, RunContext, Unreached, words
from liverl.model import Cause, HostStats, ServiceStatus, Snapshot, Symptom, TreeStats
from liverl.observe import history
from liverl.observe.memory import MemoryWatch, memory_growth
from liverl.observe.oom_kills import OomKills
from liverl.observe.trials.engine_parser import EngineParser, engine_parser
from liverl.observe.trials.script_sampling import ScriptSampling, script_sampling
from liverl.procs.memory_limit import MemoryLimit
from liverl.proxy.config import aliases
from liverl.rundir.layout import RunDir
from liverl.serving.replica_source import ReplicaSource
from liverl.snapshot_json import encode_snapshot
from liverl.util.atomic_file import write_atomic

LOOK_S = 2.0  # seconds between two diagnoses
QUIET_S = 5.0  # the same with no new events, no symptoms, none that is held, and no complaints in logs
_DOWN = ("failed", "gave_up", "backing_off")


class StateWriter:
    """Diagnoses and writes the state of one attempt. ``snapshot(symptoms)`` builds the present state."""

    def __init__(
        self,
        supervisor: RunSupervisor,
        snapshot: Callable[[tuple[Symptom, ...]], Snapshot],
        oom_kills: OomKills | None = None,
        facts: Callable[[], SampledFacts] = SampledFacts,
        source: ReplicaSource | None = None,
        failure: Callable[[], Cause | None] = lambda: None,
        unreached: Callable[[], tuple[Unreached, ...]] = lambda: (),
        stacks: StackSaver | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """``facts``: the newest samples, of which rules see what is not in a snapshot. ``source``: of the replicas that
        verl manages; None if there are none. ``failure``: why the run fails, once it does and that is known.
        ``unreached``: targets of notifications. ``stacks``: saves those of processes that hang.
        ``stopped``: whether the run ends because somebody stops it."""
        self._stopped = stopped
        self._stood: tuple[Symptom, ...] | None = None  # the problems that it had when it began to stop
        self._supervisor = supervisor
        self._snapshot = snapshot
        self._run = RunDir(supervisor.run_dir)
        self._oom_kills = oom_kills or OomKills(())
        self._facts = facts
        self._source = source
        self._failure = failure
        self._unreached = unreached
        self._stalls = StallWatch(supervisor, stacks or StackSaver(supervisor))
        self._down: frozenset[str] = frozenset()  # services that have stopped serving, at the last change
        # Services of whose end the cause was known then
        self._told: frozenset[tuple[str, float]] = frozenset()
        self._history = history.HistoryWriter(supervisor.run_dir)
        earlier = self._earlier_snapshot()
        symptoms, muted = (earlier.symptoms, earlier.muted) if earlier is not None else ((), ())
        later = events_after(supervisor.run_dir, earlier.seq) if earlier is not None else []
        stand = standing(symptoms, (one.id for one in muted), later)
        self._earlier = {one.id: one for one in (*stand.symptoms, *muted)}
        self._diagnosis = Diagnosis(RULES, stand.symptoms, stand.muted)
        self._memory, self._memory_limit = MemoryWatch(), MemoryLimit()
        self._causes: dict[str, tuple[int, Cause]] = {}  # service -> generation, line of its log
        plan = supervisor.plan
        self._parser = EngineParser()
        self._sampling: ScriptSampling | None = None
        self._parser_known = False
        self._aliases = aliases(plan.served_model, plan.replica_engine.litellm_prefix)
        # Of the first line of history; earlier, little is measured
        self._due = supervisor.now() + 1.5 * LOOK_S
        self._seq = 0  # newest event at the last diagnosis
        self._written: Snapshot | None = None  # as written last, without measurements
        self._one_at_a_time = asyncio.Lock()

    @property
    def symptoms(self) -> tuple[Symptom, ...]:
        """The symptoms of the newest diagnosis, and of a run that somebody stops the problems that it had then: nothing
        was done about them, and they may be why it was stopped."""
        newest = self._diagnosis.symptoms
        if not self._stood or not self._stopped():
            return newest
        seen = {one.id for one in newest}
        return (*newest, *(one for one in self._stood if one.id not in seen))

    @property
    def diagnosis(self) -> Symptom | None:
        """The root problem of the run: the earliest critical symptom that does not only tell of an end; None
        without one."""
        critical = [s for s in self.symptoms if s.severity == "critical" and not is_end(s.id)]
        return min(critical, key=self._began, default=None)

    def _began(self, symptom: Symptom) -> float:
        """Unix time at which its condition was there first, as far as that is known."""
        began = self._diagnosis.began(symptom.id)
        return (symptom.since or 0.0) if began is None else began

    @property
    def muted(self) -> tuple[Symptom, ...]:
        """The muted symptoms of the newest diagnosis."""
        return self._diagnosis.muted

    def write_to(self, run_dir: Path) -> None:
        """Write ``snapshot.json`` to this directory from now on: the run's own, after it was renamed."""
        self._run = RunDir(run_dir)

    def _earlier_snapshot(self) -> Snapshot | None:
        """What an earlier backend of this attempt wrote to ``snapshot.json``; None if there was none."""
        last = self._run.read_snapshot()
        return last if last is not None and last.attempt == self._supervisor.attempt else None

    def services_changed(self) -> None:
        """Diagnose now if a service has stopped serving or serves again, or if it is known why one ended; called after
        every change of a service."""
        slots = self._supervisor.slots.values()
        down = frozenset(s.name for s in slots if s.current.machine.down_since is not None)
        told = frozenset((name, cause.at) for name, cause in self._supervisor.end_causes.newest.items())
        if (down, told) != (self._down, self._told) and not self._supervisor.stopping:
            self._supervisor.spawn_task(self._look_now())
        self._down, self._told = down, told

    def configuration_changed(self) -> None:
        """Read the configuration again at the next diagnosis."""
        self._parser_known = False

    async def _look_now(self) -> None:
        with self._supervisor.records.guarded():
            await self.look()

    async def look(self) -> float:
        """Diagnose the run once, and write history and snapshot every ``history.INTERVAL`` seconds. Returns the
        seconds until the next call."""
        async with self._one_at_a_time:
            snapshot = await self._diagnose()
            if snapshot.at >= self._due:
                # So that it is not written one tick late
                self._due = snapshot.at + history.INTERVAL - LOOK_S / 2
                await asyncio.get_running_loop().run_in_executor(None, self._write, snapshot)
        told = any(log.failed or log.complaints for log in self._facts().live_logs) or self._diagnosis.holding
        quiet, self._seq = self._seq == snapshot.seq and not self.symptoms and not told, snapshot.seq
        pause = self._supervisor.pace.until_next(QUIET_S if quiet else LOOK_S, history.INTERVAL)
        return self._stalls.pause(snapshot.at, pause)

    async def close(self) -> None:
        """Write the final snapshot, after the run has ended."""
        async with self._one_at_a_time:
            await asyncio.get_running_loop().run_in_executor(None, self._write_snapshot, self._present())

    def _present(self) -> Snapshot:
        """The run's present state with the symptoms of the newest diagnosis."""
        return msgspec.structs.replace(self._snapshot(self.symptoms), muted=self.muted)

    async def _diagnose(self) -> Snapshot:
        snapshot, supervisor = self._present(), self._supervisor
        if self._stood is None and supervisor.stopping:
            was = self._diagnosis.symptoms
            self._stood = tuple(s for s in was if s.severity != "info" and not is_end(s.id))
        down = [s for s in snapshot.services if s.state in _DOWN]
        for service in down:
            await self._find_cause(service)
        causes = {s.name: self._causes[s.name][1] for s in down if s.name in self._causes}
        await supervisor.end_causes.read()  # else a failure would be told first without its cause
        causes |= self._causes_of_restarts(snapshot)
        unwanted = frozenset(s.name for s in supervisor.slots.values() if not s.current.machine.wanted)
        if not self._parser_known:
            in_thread = asyncio.get_running_loop().run_in_executor
            self._parser = await in_thread(None, engine_parser, self._run.path)
            self._sampling = await in_thread(None, script_sampling, self._run.path)
            self._parser_known = True
        facts = self._facts()
        oom = self._oom_kills.evidence(snapshot.at)
        context = RunContext(
            volumes=facts.volumes,
            largest=facts.largest,
            step_bytes=facts.step_bytes,
            causes=causes,
            aliases=self._aliases,
            unwanted=unwanted,
            tool_parser=self._parser.name,
            parser_set=self._parser,
            oom=oom,
            silence=await self._stalls.look(snapshot, facts.log_written),
            suspects=self._stalls.suspects,
            stacks=self._stalls.stacks,
            recent=facts.recent,
            live_logs=facts.live_logs,
            ray_load=self._source.ray_load if self._source is not None else None,
            failure=self._failure(),
            sampling=self._sampling,
            unreached=self._unreached(),
            memory=memory_growth(self._memory, snapshot, self._memory_limit),
            engine_versions=facts.engine_versions,
            mute=supervisor.plan.settings.mute,
            earlier=self._earlier,
            means=means(supervisor.plan.inert, cpus=supervisor.plan.cpus),
        )
        for change in self._diagnosis.update(snapshot, context):
            with_run = change.what == "cleared" and supervisor.stopping
            text, level = words(change, snapshot.at, with_run=with_run)
            subject = change.symptom.id.rpartition(":")[2]
            service_name = subject if subject in supervisor.slots else None
            more: dict[str, object] = {"with_run": True} if with_run else {}
            if change.what not in ("cleared", "muted"):
                more.update(fix=change.symptom.fix, title=change.symptom.title)
            kind = "symptom_muted" if change.what == "muted" else "symptom"
            supervisor.say(kind, text, level, service_name, id=change.symptom.id, what=change.what, **more)
        return msgspec.structs.replace(snapshot, symptoms=self.symptoms, muted=self.muted)

    def _causes_of_restarts(self, snapshot: Snapshot) -> dict[str, Cause]:
        """Why the last process ended of each service that was, or is being, started again, as far as it is known."""
        found = {}
        for service in snapshot.services:
            if service.failed_at is None or service.state in ("stopping", *_DOWN):
                continue
            cause = self._supervisor.end_causes.newest.get(service.name)
            if cause is not None and cause.at >= service.failed_at:  # else it is that of an earlier failure
                found[service.name] = cause
        return found

    async def _find_cause(self, service: ServiceStatus) -> None:
        """Note why the newest process of a service ended; the logs of each are searched once."""
        cached = self._causes.get(service.name)
        slot = self._supervisor.slots.get(service.name)
        if slot is None or (cached is not None and cached[0] == service.generation):
            return
        ends = self._supervisor.end_causes
        if slot.current.process is None and not ends.stated(slot.current).id:
            return  # it was never started, and no rule knows why
        cause = await ends.of(slot.current)
        self._causes[service.name] = (service.generation, msgspec.structs.replace(cause, at=service.since))

    # --- file access, off the event loop ---

    def _write(self, snapshot: Snapshot) -> None:
        try:
            trees = {s.name: s.tree for s in snapshot.services}
            gpus = [gpu for gpu in snapshot.gpus if gpu.node in ("", snapshot.backend.host)]
            self._history.append(history.sample_of(snapshot.at, snapshot.host, gpus, trees))
        except OSError as error:
            self._supervisor.records.write_failed(f"{history.FILE}: {error.strerror}")
        self._write_snapshot(snapshot)

    def _write_snapshot(self, snapshot: Snapshot) -> None:
        """Write ``snapshot.json``, unless only measurements have changed since it was written."""
        stable = _without_measurements(snapshot)
        if stable == self._written:
            return
        try:
            write_atomic(self._run.snapshot, encode_snapshot(snapshot), sync=False)
            self._written = stable
        except OSError as error:
            self._supervisor.records.write_failed(f"{self._run.snapshot.name}: {error.strerror}")


def _without_measurements(snapshot: Snapshot) -> Snapshot:
    """The snapshot without its time, host, disk, GPUs and process trees: these differ each time, and are outdated once
    the backend has exited."""
    services = tuple(msgspec.structs.replace(s, tree=TreeStats()) for s in snapshot.services)
    return msgspec.structs.replace(snapshot, at=0.0, host=HostStats(), disk=None, gpus=(), services=services)
