"""Samples facts while the backend supervises: processes, GPUs, training steps, trials, boot stages.

Driver calls and everything that reads files run in threads of their own, with a time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from liverl.control.gpu_detail import Xid
from liverl.daemon.run_files import RunFiles, ServiceLog, ServiceLogs
from liverl.daemon.run_supervisor import RunSupervisor
from liverl.logs.files import also_written
from liverl.model import (
    DiskStatus,
    GpuStatus,
    HostStats,
    Rewards,
    SandboxesStatus,
    StalledProcess,
    StepMetrics,
    TreeStats,
    TrialsStatus,
    UnreadableFile,
)
from liverl.observe.boot.stages import Stage
from liverl.observe.file_watch import FileWatch
from liverl.observe.gpu.ledger import allowed_gpus
from liverl.observe.gpu.sampler import GpuSampler
from liverl.observe.gpu.strangers import Stranger, strangers
from liverl.observe.live_logs.facts import LiveLog
from liverl.observe.live_logs.reader import FollowedLog, LiveLogs
from liverl.observe.metrics.names import LEARNED
from liverl.observe.metrics.pace import StepPace
from liverl.observe.metrics.recent import RecentSteps, StepCollector
from liverl.observe.metrics.rewards import RewardHistory, reward_in, scores_in, step_trained_words
from liverl.observe.metrics.step_lines import only_validates
from liverl.observe.step_sizes import StepSizes, disk_status
from liverl.observe.volumes import RUN_DIRECTORY, SHARED_MEMORY, TRIALS, Volume, VolumeWatch, is_low, largest
from liverl.plan.checkpoints import checkpoints
from liverl.plan.spec import Plan
from liverl.procs.stats import ProcSampler
from liverl.sandboxes.kubernetes.seen import SeenPods
from liverl.sandboxes.ledgers import Ledgers
from liverl.sandboxes.seen import SeenSandboxes, with_paths
from liverl.supervise.services.state_machine import SERVING
from liverl.util.blocking_call import BlockingCalls
from liverl.util.pace import QUIET_PERIOD
from liverl.util.plural import quantity

if TYPE_CHECKING:
    from liverl.external.outputs import OutputLinks, RunningScript

Members = Callable[[dict[str, list[int]]], dict[str, list[int]]]
_STEP_METRICS = (  # metrics in the event of a step
    ("reward", "reward {:.3f}"),
    ("actor/entropy", "entropy {:.3f}"),
    ("num_turns/mean", "messages a trial {:.1f}"),
    ("timing_s/step", "{:.1f} s"),
)
# Seconds that a sample by NVML may take: it blocks for ever on a GPU that has fallen off the bus. FIRST_LOOK is
# shorter, since the start of the backend waits for that sample, and a client waits for the start.
DRIVER_PATIENCE = 60.0
FIRST_LOOK = 12.0
GPU_RETRY = 60.0  # seconds between two samples on a machine without GPUs
# Seconds between two looks at the processes of a quiet run: stopped ones are named within 10
STALL_PERIOD = 7.5
READ_LIMIT = 30.0  # seconds after which a scan of the run's files counts as hanging
SCORES = 3  # scores of a validation that its event names
UNREADABLE = 20  # maximum files named in ``SampledFacts.unreadable``
DISK_PERIOD = 2.0  # seconds between two looks at the free space of file systems ...
# ... and of a quiet run, whose disk may be filled by others: with the look at its processes, as each time that the
# backend wakes costs more than what it looks at
QUIET_DISK_PERIOD = STALL_PERIOD
TOLD_STEP = 100_000_000  # bytes of a step's trials from which the event of a step tells them ...
TOLD_S = 7 * 86400.0  # ... and seconds until the disk is full, up to which it does
MEASURED_S = 30.0  # seconds between two measurements of what takes the space
# Seconds between two looks at the logs of a quiet run: what they say is named within ten. With the look at its
# processes.
LIVE_LOGS_PERIOD = STALL_PERIOD
# Seconds between two looks at the containers of trials (tens of milliseconds of the docker program), and for one look:
# a daemon that has many to start answers late.
SANDBOXES_PERIOD, SANDBOXES_LIMIT = 5.0, 10.0
QUIET_LOOKS = 5  # scans of steps and trials without news after which the interval is doubled


_KEEPER = "(keeper)"  # its key beside the services, none of which has brackets in its name


@dataclass
class SampledFacts:
    """The newest samples. ``trees`` and ``stalled``: by service; ``stages``: by log. ``gpu_note``: why GPU data is
    missing or incomplete. ``step_seconds``: pace of the training in seconds per step. ``log_written``: Unix time at
    which the trainer's logs were last written to. ``step_bytes``: what the trials of the newest finished step take;
    ``largest``: what takes most space in the run directory, while its disk is low. ``engine_versions``: those that
    replicas have printed."""

    trees: Mapping[str, TreeStats] = field(default_factory=dict)
    stalled: Mapping[str, tuple[StalledProcess, ...]] = field(default_factory=dict)
    keeper_stalled: StalledProcess | None = None
    host: HostStats = field(default_factory=HostStats)
    gpus: tuple[GpuStatus, ...] = ()
    gpu_note: str | None = None
    metrics: StepMetrics | None = None
    step_seconds: float | None = None
    rewards: Rewards = field(default_factory=Rewards)
    recent: RecentSteps = field(default_factory=RecentSteps)
    trials: TrialsStatus = field(default_factory=TrialsStatus)
    stages: Mapping[Path, Stage] = field(default_factory=dict)
    log_written: float | None = None
    volumes: tuple[Volume, ...] = ()
    step_bytes: int | None = None
    largest: tuple[tuple[str, int], ...] = ()
    unreadable: tuple[UnreadableFile, ...] = ()
    live_logs: tuple[LiveLog, ...] = ()
    engine_versions: tuple[str, ...] = ()
    sandboxes: SandboxesStatus | None = None

    @property
    def disk(self) -> DiskStatus | None:
        """The file system of the trials; None if it was not measured."""
        return disk_status(self.volumes, self.step_bytes, self.step_seconds)

    def held_up(self, now: float) -> bool:
        """Whether a process of a service stands still, so that others may wait for it. ``now``: Unix time."""
        return any(process.explains_waiting(now) for stalled in self.stalled.values() for process in stalled)


def _folders(run_dir: Path, plan: Plan) -> tuple[tuple[str, Path], ...]:
    """What the run keeps where: a folder may be a link or a mount of its own."""
    below = ((TRIALS, run_dir / "trials"), ("checkpoints", checkpoints(plan, run_dir)))
    return ((RUN_DIRECTORY, run_dir), *below, (SHARED_MEMORY, Path("/dev/shm")))


def _disk_words(disk: DiskStatus | None) -> list[str]:
    """What a step takes on the disk, once that is much, and when the disk is full, if it is within a week."""
    if disk is None or disk.step_bytes is None or disk.step_bytes < TOLD_STEP:
        return []
    left = disk.seconds_left
    full = "" if left is None or left > TOLD_S else f", the disk is full in about {left / 3600:.1f} h"
    return [f"{disk.step_bytes / 1e9:.1f} GB of trials a step{full}"]


class Sampler:
    """Samples in the background from ``start`` on; the newest values are in ``facts``."""

    def __init__(
        self,
        supervisor: RunSupervisor,
        *,
        host_interval: float,
        gpus_interval: float,
        trials_interval: float,
        gpu_members: Members = dict,
        outputs: OutputLinks | None = None,
    ) -> None:
        """Intervals in seconds. ``gpu_members`` divides a process tree that several owners share: it maps pids by
        service to pids by owner. ``outputs``: finds what a launch script writes elsewhere; None: there is none."""
        self.facts = SampledFacts()
        self.gpu_members = gpu_members
        self._supervisor = supervisor
        self._intervals = (host_interval, gpus_interval, trials_interval)
        self._procs = ProcSampler()
        self._gpus = GpuSampler()
        self._driver = BlockingCalls[tuple[tuple[GpuStatus, ...], str | None]]()
        self._outputs = outputs
        self._files = RunFiles(supervisor.run_dir, outputs)
        self._file_scans = BlockingCalls[None]()
        self._logs = ServiceLogs(supervisor.run_dir)
        self._log_looks = BlockingCalls[None]()
        self._volumes = VolumeWatch(_folders(supervisor.run_dir, supervisor.plan))
        self._volume_looks = BlockingCalls[None]()
        self._step_sizes = StepSizes(supervisor.run_dir / "trials")
        self._measured_at = 0.0  # Unix time at which the run directory's entries were last measured
        self._live_logs = LiveLogs(supervisor.run_dir, supervisor.end_causes.matcher)
        self._live_looks = BlockingCalls[None]()
        ledgers = Ledgers()
        self._sandboxes = SeenSandboxes(ledgers)
        self._pods = SeenPods(supervisor.spawn_task, ledgers)
        self._sandbox_looks = BlockingCalls[SandboxesStatus | None]()
        self._late: dict[str, UnreadableFile] = {}  # what is being read -> that it takes too long
        self._pace = StepPace()
        self._rewards = RewardHistory()
        self._recent = StepCollector()
        self._resets = 0
        # The step after which this attempt begins to train, 0 without a checkpoint; None: not known, or not begun by
        # this backend. Later steps that are there at its begin are of an earlier attempt, and thrown away.
        self.begins_after: int | None = None
        self._gpus_known = False  # GPUs were sampled once
        self._primed = False  # files were scanned once
        self._scanning = asyncio.Lock()
        self._quiet = 0  # scans of the files in a row without news
        self._watch: FileWatch | None = None
        self._news: asyncio.Task[None] | None = None
        self._more_news = False

    def start(self) -> None:
        """Begin to sample everything at its interval."""
        host, gpus, trials = self._intervals
        self._every(host, self._look_at_processes, STALL_PERIOD)
        self._every(host, self._look_at_host)
        self._every(gpus, self._look_at_gpus)
        self._every(trials, self.look_at_files)
        self._every(1.0, self._look_at_logs)
        self._every(DISK_PERIOD, self._look_at_disks, QUIET_DISK_PERIOD)
        self._every(1.0, self._look_at_live_logs, LIVE_LOGS_PERIOD)
        self._every(SANDBOXES_PERIOD, self._look_at_sandboxes)

    def _every(
        self,
        seconds: float,
        look: Callable[[], Coroutine[Any, Any, float | None]],
        quiet: float = QUIET_PERIOD,
    ) -> None:
        async def look_and_pause() -> float:
            return self._supervisor.pace.until_next(await look() or seconds, quiet)

        self._supervisor.spawn_task(self._supervisor.forever(look_and_pause))

    async def _look_at_host(self) -> float | None:
        self.facts.host = self._procs.host()
        return None

    async def _look_at_processes(self) -> float | None:
        supervisor, facts = self._supervisor, self.facts
        members = {**supervisor.process_scan.members(), _KEEPER: [supervisor.keeper_manager.pid]}
        trees = self._procs.sample(members, supervisor.now())
        if sum(tree.processes for tree in trees.values()) < sum(map(len, members.values())):
            supervisor.process_scan.members_have_exited()
        trees.pop(_KEEPER)
        stalled = dict(self._procs.stalled)
        facts.keeper_stalled = next(iter(stalled.pop(_KEEPER, ())), None)
        if stalled != facts.stalled:
            supervisor.pace.changed()  # so that it is diagnosed now
        facts.trees, facts.stalled = trees, stalled
        return None

    async def look_at_gpus_now(self) -> None:
        """Sample the GPUs before some are assigned or refused; waits ``FIRST_LOOK`` seconds at most."""
        await self._look_at_gpus(FIRST_LOOK)

    async def _look_at_gpus(self, patience: float = DRIVER_PATIENCE) -> float | None:
        supervisor = self._supervisor
        holders = dict(supervisor.ledger.holders)
        members = self.gpu_members(supervisor.process_scan.members())
        try:
            gpus, note = await self._driver.call(lambda: self._gpus.sample(holders, members), patience)
        except TimeoutError:
            supervisor.gpus = self.facts.gpus = ()
            self.facts.gpu_note = f"n/a (the GPU driver has not responded for {patience:g} s)"
            return None
        self.facts.gpus, self.facts.gpu_note = gpus, note
        supervisor.gpus = gpus
        if not self._gpus_known:
            self._gpus_known = True
            supervisor.allowed_gpus, notes = allowed_gpus(gpus, os.environ)
            for text in notes:
                supervisor.say("gpus", text, "warning")
        return None if gpus else GPU_RETRY

    def strangers(self) -> tuple[Stranger, ...]:
        """Who else held memory of the GPUs that the run may use, when they were sampled last."""
        supervisor = self._supervisor
        gpus = [gpu for gpu in self.facts.gpus if gpu.uuid in supervisor.allowed_gpus]
        return strangers(gpus, self._gpus.pid_memory, supervisor.process_scan.members())

    def watch_files(self, wanted: bool) -> None:
        """While ``wanted``, also scan steps and trials as soon as their directories change. Must be called regularly,
        since new steps have new directories."""
        if self._watch is None:
            if not wanted:
                return
            loop = asyncio.get_running_loop()

            def changed() -> None:
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                    loop.call_soon_threadsafe(self._look_soon)

            def failed(why: str) -> None:
                text = f"cannot watch files for changes: {why}; polling them every {self._intervals[2]:g} s"
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._supervisor.say, "files", text)

            self._watch = FileWatch(changed, failed, self._relevant)
        supervisor = self._supervisor
        own = (supervisor.run_dir, supervisor.attempt_dir)
        self._watch.watch((*own, *map(Path, self._files.trial_folders)) if wanted else ())

    def _relevant(self, path: str) -> bool:
        """Whether a changed path belongs to metrics, trials or the run's configuration; the backend itself writes
        other files into these directories."""
        folder, _, name = path.rpartition("/")
        return (
            name.startswith(("metrics.", "config."))
            or folder.startswith(self._files.trials_root)
            or path == self._files.trials_root
        )

    def _look_soon(self) -> None:
        self._more_news = True  # a change during a scan causes another scan
        if self._news is None or self._news.done():
            self._news = self._supervisor.spawn_task(self._look_at_news())

    async def _look_at_news(self) -> None:
        while self._more_news:
            self._more_news = False
            with self._supervisor.records.guarded():
                await self.look_at_files()

    async def look_at_files(self, *, last: bool = False) -> float | None:
        """Scan steps, trials and edits of the configuration. ``last``: after all services have stopped, so that nothing
        may be left for a later scan. Returns the seconds until the next scan; None: the usual
        interval. A scan that takes longer than ``READ_LIMIT`` seconds goes on in its thread; the
        next one waits for it.
        """
        async with self._scanning:  # two scans at once would report a step twice
            return await self._look_at_files(last)

    async def _look_at_files(self, last: bool) -> float | None:
        script = self._script()
        if not await self._read("trials", self._file_scans, lambda: self._files.scan(script, last=last)):
            return None
        news, trials = self._files.take(), self.facts.trials
        self.facts.trials = self._files.trials
        for text in news.edits:
            self._supervisor.say("config", text)
        for text in news.outputs:
            self._supervisor.say("outputs", text, service="trainer")
        if news.steps or self.facts.trials is not trials:
            self._quiet = 0
            self._supervisor.pace.changed()
        else:
            self._quiet += 1
        # Steps that existed when this backend began, or that a resumed trainer wrote again, get no event.
        reset, self._resets = self._resets != news.resets, news.resets
        fresh = self._primed and not reset
        if not self._primed and self.begins_after is not None:
            news.records = [metrics for metrics in news.records if metrics.step <= self.begins_after]
        if reset:
            self._pace.clear()
            self._rewards.clear()
            self._recent.clear()
        if steps := news.steps:
            self.facts.metrics = steps[-1]
            self._pace.add(steps, self._supervisor.now(), fresh=fresh)
            self.facts.step_seconds = self._pace.seconds
            self._recent.add(steps)
            self.facts.recent = self._recent.recent()
        if news.records:
            self._rewards.add(news.records)
            self.facts.rewards = self._rewards.summary()
        if fresh:
            for metrics in news.records:
                if not only_validates(metrics):
                    self._report_step(metrics, news.written.get(metrics.step))
                self._report_validation(metrics)
        if news.last_reported is not None:
            told = news.last_reported
            self._report_missed([metrics.step for metrics in steps if metrics.step > told])
        self._primed = True
        return 2 * self._intervals[2] if self._quiet > QUIET_LOOKS else None

    async def _read(self, what: str, calls: BlockingCalls[None], work: Callable[[], None]) -> bool:
        """Run ``work`` in a thread; return whether it ended within ``READ_LIMIT`` seconds. If not, that is a fact."""
        try:
            await calls.call(work, READ_LIMIT)
            self._late.pop(what, None)
            return True
        except TimeoutError:
            why = f"reading it has taken longer than {READ_LIMIT:g} s; the storage may be slow or hang"
            self._late[what] = UnreadableFile(what, why)
            return False
        finally:
            unreadable = (
                *self._late.values(),
                *self._volumes.unreadable,
                *self._logs.unreadable,
                *self._files.unreadable,
            )
            self.facts.unreadable = unreadable[:UNREADABLE]

    def _report_missed(self, steps: list[int]) -> None:
        """Add an event for the steps that finished after an earlier backend had died and before this one began."""
        if steps:
            which = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
            text = f"{which} finished while no backend was running"
            self._supervisor.say("step", text, service="trainer", step=steps[-1])

    def _script(self) -> RunningScript | None:
        """The newest process of the trainer, for the search for a launch script's outputs; None without such a
        script."""
        if self._outputs is None:
            return None
        from liverl.external.outputs import RunningScript

        slot = self._supervisor.slots.get("trainer")
        process = slot.current.process if slot is not None else None
        return RunningScript(process.log, process.started_at) if process is not None else None

    def _report_step(self, metrics: StepMetrics, written: tuple[float, float] | None) -> None:
        supervisor, values = self._supervisor, metrics.values
        total = supervisor.plan.total_steps
        parts = [f"step {metrics.step}/{total}" if total else f"step {metrics.step}"]
        said = step_trained_words(values)
        of = {"reward": f" ({said})"} if said else {}
        shown = values if (reward := reward_in(values)) is None else {**values, "reward": reward}
        parts += [
            f"{form.format(shown[key])}{of.get(key, '')}" for key, form in _STEP_METRICS if key in shown
        ]
        parts += [f"{key} {value}" for key, value in metrics.not_finite.items() if key.startswith(LEARNED)]
        parts += _disk_words(self.facts.disk)
        text = f"{parts[0]}: {', '.join(parts[1:])}" if parts[1:] else parts[0]
        data: dict[str, Any] = {"step": metrics.step}
        if written is not None:
            data |= {"after": written[0], "by": written[1]}
        supervisor.say("step", text, service="trainer", **data)
        trials = next((s for s in self.facts.trials.steps if s.step == metrics.step), None)
        if trials is not None and trials.zero_tool_calls:
            without = (
                f"{trials.zero_tool_calls} of {trials.total} trials of step {metrics.step} made no tool call"
            )
            supervisor.say("zero_tool_calls", without, "warning", "trainer", step=metrics.step)

    def _report_validation(self, metrics: StepMetrics) -> None:
        scores = scores_in(metrics)
        if not scores:
            return
        step, best = metrics.step, self.facts.rewards.validation
        words = [f"{key} {value:.3f}" for key, value in scores.items()][:SCORES]
        more = [f"{len(scores) - SCORES} more"] if len(scores) > SCORES else []
        text = f"validation {'before the first step' if step == 0 else f'after step {step}'}: {', '.join(words + more)}"
        if best is not None and best.best_step < step and best.key in scores:
            text += f"; the best so far was {best.best:.3f}, after step {best.best_step}"
        of_it = [head for head in self.facts.trials.newest if head.validated == step and not head.earlier]
        failed = sum(bool(head.error) for head in of_it)
        text += f"; {failed} of {quantity(len(of_it), 'trial')} failed" if failed else ""
        self._supervisor.say("validation", text, "warning" if failed else "info", "trainer", step=step)

    async def _look_at_logs(self) -> float | None:
        logs = []
        for slot in self._supervisor.slots.values():
            process = slot.current.process
            if process is not None:
                tracked = slot.state in ("starting", "ready")
                logs.append(ServiceLog(slot.name, process.log, slot.spec.stage_parser if tracked else None))
        now = self._supervisor.now()
        if await self._read("logs", self._log_looks, lambda: self._logs.look(logs, now)):
            self.facts.stages, self.facts.log_written = self._logs.stages, self._logs.written
            self.facts.engine_versions = self._logs.engine_versions
            for text in self._logs.write_errors:
                self._supervisor.records.write_failed(text)
        return None

    async def _look_at_disks(self) -> float | None:
        now = self._supervisor.now()
        await self._read("the disk", self._volume_looks, lambda: self._measure(now))
        return None

    def _measure(self, now: float) -> None:
        facts = self.facts
        self._step_sizes.look(facts.metrics.step if facts.metrics is not None else None)
        facts.step_bytes = self._step_sizes.newest
        volumes = facts.volumes = self._volumes.look(now)
        own = next((v for v in volumes if v.what == RUN_DIRECTORY), None)
        if own is None or not is_low(own):
            facts.largest = ()
        elif not facts.largest or now - self._measured_at >= MEASURED_S:
            self._measured_at = now
            facts.largest = largest(self._supervisor.run_dir)

    async def _look_at_live_logs(self) -> float | None:
        """Count what the logs of services that run complain of."""
        processes = [(slot.name, slot.current.process) for slot in self._supervisor.slots.values()]
        logs = [FollowedLog(name, one.log, one.log_start) for name, one in processes if one is not None]
        now, live = self._supervisor.now(), self._live_logs
        found = False

        def look() -> None:
            nonlocal found
            also = [
                FollowedLog(log.service, path) for log in logs for path in also_written(log.path)
            ]  # a script's
            found = live.look([*logs, *also], now)

        if await self._read("live logs", self._live_looks, look):
            self.facts.live_logs = live.facts
            if found or live.incomplete:
                self._supervisor.pace.changed()  # so that it is read on and diagnosed now
        return None

    async def _look_at_sandboxes(self) -> float | None:
        run_dir, now = self._supervisor.run_dir, self._supervisor.now()
        heads = {head.name: head.path for head in self.facts.trials.newest}
        seen = self._sandboxes
        hosts = self._supervisor.keeper_manager.held_hosts().values()
        addresses = {host for host in hosts if not host.startswith("127.") and ":" not in host}
        try:
            status = await self._sandbox_looks.call(
                lambda: seen.look(run_dir, now, SANDBOXES_LIMIT, addresses), SANDBOXES_LIMIT + 1
            )
        except TimeoutError:
            status = seen.late(now, SANDBOXES_LIMIT)
        with contextlib.suppress(OSError):  # of the ledger, which the look at Docker has told
            status = await self._pods.look(run_dir, now) or status
        status = with_paths(status, heads)
        if status != self.facts.sandboxes:
            self._supervisor.pace.changed()
        self.facts.sandboxes = status
        return None

    def replica_bytes(self) -> int | None:
        """Memory of the largest replica that runs, as of the last sample; None if none does."""
        slots = self._supervisor.slots.values()
        names = {slot.name for slot in slots if slot.spec.kind == "replica" and slot.state in SERVING}
        sizes = (tree.rss_bytes for name, tree in self.facts.trees.items() if name in names)
        return max((size for size in sizes if size), default=None)

    @property
    def pid_memory(self) -> Mapping[str, Mapping[int, int | None]]:
        """GPU memory by process: UUID -> pid -> bytes, as NVML reports them; None: NVML does not know the size."""
        return self._gpus.pid_memory

    def xid(self, board: str) -> Xid:
        """The newest XID error of the GPU with the UUID ``board``."""
        return self._gpus.xid(board)

    def close(self) -> None:
        """Stop watching files, and close NVML unless a call to it is blocked."""
        if self._watch is not None:
            self._watch.close()
        if not self._driver.busy:
            self._gpus.close()
