"""What the backend says of the run as a whole, and leaves for those who come when it is gone: symptoms as they
begin and end, ``history.jsonl``, and ``snapshot.json``, the last known state.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from math import inf

import msgspec

from liverl.diagnose.catalogue.rules import RULES
from liverl.diagnose.tracker import Diagnosis, RunContext, words
from liverl.model import Cause, HostStats, ServiceStatus, Snapshot, Symptom, TreeStats
from liverl.observe import history
from liverl.proxy.config import aliases
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import encode_snapshot
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.atomic_file import write_atomic
from liverl.util.ticks import until_tick

LOOK_S = 2.0  # seconds between two looks at the symptoms ...
QUIET_S = 5.0  # ... of a run in which nothing happens
_FELL = ("failed", "gave_up", "backing_off")


class StateWriter:
    """``snapshot`` gives the present state, with the symptoms that it is handed."""

    def __init__(self, supervisor: Supervisor, snapshot: Callable[[tuple[Symptom, ...]], Snapshot]) -> None:
        self._supervisor = supervisor
        self._snapshot = snapshot
        self._run = RunDir(supervisor.run_dir)
        self._history = history.HistoryWriter(supervisor.run_dir)
        self._diagnosis = Diagnosis(RULES, self._told_before())
        self._causes: dict[str, tuple[int, Cause]] = {}  # service -> generation, the line of its log
        self._disk_free: int | None = None
        plan = supervisor.plan
        self._aliases = aliases(plan.served_model, plan.replica_engine.litellm_prefix)
        self._due = supervisor.now() + 1.5 * LOOK_S  # before that little has been measured
        self._seq = 0  # newest event at the last look
        self._kept: Snapshot | None = None  # as it was written last, without what always moves
        self._one_at_a_time = asyncio.Lock()

    @property
    def symptoms(self) -> tuple[Symptom, ...]:
        return self._diagnosis.symptoms

    @property
    def diagnosis(self) -> Symptom | None:
        """What is wrong with the run at the root: the earliest critical symptom that is more than a service's end."""
        found = [s for s in self.symptoms if s.severity == "critical" and not s.id.startswith("service_")]
        return min(found, key=lambda symptom: symptom.since or inf, default=None)

    def _told_before(self) -> tuple[Symptom, ...]:
        """What an earlier backend of this attempt had told."""
        last = self._run.read_snapshot()
        return last.symptoms if last is not None and last.attempt == self._supervisor.attempt else ()

    async def look(self) -> float:
        """One look at the run, and every ten seconds a line about it; returns seconds until the next look."""
        async with self._one_at_a_time:
            snapshot = await self._judge()
            if snapshot.at >= self._due:
                self._due = snapshot.at + history.INTERVAL - LOOK_S / 2  # not one tick late
                await asyncio.get_running_loop().run_in_executor(None, self._write, snapshot)
        quiet, self._seq = self._seq == snapshot.seq and not self.symptoms, snapshot.seq
        return until_tick(QUIET_S if quiet else LOOK_S)

    async def close(self) -> None:
        """The run is over: the state that stays."""
        async with self._one_at_a_time:
            await asyncio.get_running_loop().run_in_executor(None, self._keep, self._snapshot(self.symptoms))

    async def _judge(self) -> Snapshot:
        snapshot, supervisor = self._snapshot(self.symptoms), self._supervisor
        fallen = [s for s in snapshot.services if s.state in _FELL]
        for service in fallen:
            await self._find_cause(service)
        causes = {s.name: self._causes[s.name][1] for s in fallen if s.name in self._causes}
        unwanted = frozenset(s.name for s in supervisor.slots.values() if not s.current.machine.wanted)
        beside = RunContext(self._disk_free, causes, self._aliases, unwanted)
        for news in self._diagnosis.update(snapshot, beside):
            text, level = words(news, snapshot.at)
            about = news.symptom.id.partition(":")[2]
            concerned = about if about in supervisor.slots else None
            supervisor.say("symptom", text, level, concerned, id=news.symptom.id, what=news.what)
        return msgspec.structs.replace(snapshot, symptoms=self.symptoms)

    async def _find_cause(self, service: ServiceStatus) -> None:
        """The telling line of the newest process's log, looked for once."""
        known = self._causes.get(service.name)
        slot = self._supervisor.slots.get(service.name)
        process = slot.current.process if slot is not None else None
        if slot is None or process is None or (known is not None and known[0] == service.generation):
            return
        self._causes.pop(service.name, None)
        if process.generation != service.generation:
            return  # its next generation could not even be started: its state says why
        if slot.current.machine.shut_down:
            return  # its state says why we ended it, its log only that it did as it was told
        found = await asyncio.to_thread(self._supervisor.records.log_says, process.log, process.log_start)
        if found is not None:
            log = str(process.log.relative_to(self._supervisor.run_dir))
            cause = Cause(service.name, found[0], service.since, log, found[1])
            self._causes[service.name] = (service.generation, cause)

    # --- on the disk; off the event loop ---

    def _write(self, snapshot: Snapshot) -> None:
        try:
            self._disk_free = shutil.disk_usage(self._run.path).free
            trees = {s.name: s.tree for s in snapshot.services}
            self._history.append(history.sample_of(snapshot.at, snapshot.host, snapshot.gpus, trees))
        except OSError as error:
            self._supervisor.records.write_failed(f"{history.FILE}: {error.strerror}")
        self._keep(snapshot)

    def _keep(self, snapshot: Snapshot) -> None:
        """Write ``snapshot.json``, if it says anything that the one on disk does not."""
        still = _without_motion(snapshot)
        if still == self._kept:
            return
        try:
            write_atomic(self._run.snapshot, encode_snapshot(snapshot), sync=False)
            self._kept = still
        except OSError as error:
            self._supervisor.records.write_failed(f"{self._run.snapshot.name}: {error.strerror}")


def _without_motion(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the numbers that differ at every look, and that no reader would trust afterwards."""
    services = tuple(msgspec.structs.replace(s, tree=TreeStats()) for s in snapshot.services)
    return msgspec.structs.replace(snapshot, at=0.0, host=HostStats(), gpus=(), services=services)
