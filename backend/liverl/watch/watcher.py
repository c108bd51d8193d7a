"""Snapshots of a run that somebody else started: joins what was found, asked and judged. Touches nothing of it."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from liverl.control.gpu_detail import GpuDetail
from liverl.control.service_detail import ServiceDetail
from liverl.diagnose.catalogue.progress import stalls_at
from liverl.diagnose.tracker import Diagnosis, RunContext, words
from liverl.diagnose.where import NewestStepTime
from liverl.external.model_list import place
from liverl.external.ray_cluster import running as running_rays
from liverl.model import (
    BackendInfo,
    Event,
    Evidence,
    GpuStatus,
    ProxyStatus,
    ReplicaSet,
    Snapshot,
    Symptom,
    UnreadableFile,
)
from liverl.observe.gpu.detail import DetailReader
from liverl.observe.gpu.sampler import GpuSampler
from liverl.observe.live_logs.facts import LiveLog
from liverl.observe.live_logs.reader import FollowedLog, LiveLogs
from liverl.observe.memory import MemoryWatch, memory_growth
from liverl.observe.metrics.names import key_in
from liverl.observe.metrics.rewards import step_trained_words
from liverl.observe.oom_kills import OomKills
from liverl.observe.silence import LogWrites, SilenceClock
from liverl.observe.training_processes import training_processes
from liverl.observe.trials.replica_names import replica_names
from liverl.observe.volumes import RUN_DIRECTORY, SHARED_MEMORY, VolumeWatch
from liverl.offline.readings import FileReadings
from liverl.procs.memory_limit import MemoryLimit
from liverl.procs.stats import ProcSampler
from liverl.rundir.layout import hostname
from liverl.version import __version__
from liverl.watch import proxy as proxies
from liverl.watch import router
from liverl.watch.alerts import WATCH_RULES, ended, engines_ended, merged, silent, unseen
from liverl.watch.background import Background
from liverl.watch.candidates import candidates
from liverl.watch.folder import Survey, Surveyor
from liverl.watch.log_times import LogTimes
from liverl.watch.metrics_growth import MetricsGrowth
from liverl.watch.mirror import Mirror
from liverl.watch.proxy import ProxyFacts
from liverl.watch.ray import RayFacts, RayWatch
from liverl.watch.replicas import Answer, Candidate, ReplicaProbes, ReplicaStates
from liverl.watch.scene import Scene, SceneFinder, ray_logs, stat_of
from liverl.watch.services import Seen, Services, used_gpus
from liverl.watch.settings import Settings, SettingsReader
from liverl.watch.standing import NOTHING_YET, Standing, at_rest, ended_by_its_log, signs, standing
from liverl.watch.step_ends import ends_of
from liverl.watch.target import Target, WatchError
from liverl.watch.trial_causes import TrialCauses, told_once
from liverl.watch.verdicts import RAY, Judge, JudgedLog, Judgement

# Seconds between two looks.
PROCESSES_S, SURVEY_S, SERVERS_S, RAY_S, GPUS_S, JUDGE_S = 2.0, 3.0, 2.0, 5.0, 2.0, 3.0
SHARE = 20.0  # seconds without a survey per second of one: a large folder on slow storage takes seconds
FIRST_S = 4.0  # seconds that the first snapshot waits for answers
UNJUDGED_S = 5.0  # seconds after which it is told that the logs were not judged yet
UNREADABLE = 200  # files that are named as such in a snapshot
# Seconds that a trial may take: harbor_agent.override_timeout_sec of LiveRL, unless it is changed
TRIAL_S = 2400.0
_Gpus = tuple[tuple[GpuStatus, ...], str | None]  # and why some are missing


class Watcher:
    """Watches ``target``. ``folder``: an empty private directory, which the caller removes; ``wait``: a folder that has
    nothing yet is waited for, as right behind the start of a script in the background. One thread at a time calls its
    methods.

    Raises:
        WatchError: there is nothing to watch.
        OSError: the private directory cannot be written.
    """

    def __init__(self, target: Target, folder: Path, *, wait: bool = False) -> None:
        self.target = target
        self.mirror = Mirror(folder, _name(target))
        self.run = self.mirror.run
        self._started_at = time.time()
        self._times = LogTimes()
        self._services = Services(self.mirror, self._times)
        self._states, self._files = ReplicaStates(), FileReadings(self.run.path)
        self._trial_causes = TrialCauses(self.run.path)
        self._step_time = NewestStepTime()
        self._procs, self._diagnosis = ProcSampler(), Diagnosis(WATCH_RULES)
        self._silence, self._writes = SilenceClock(TRIAL_S), LogWrites()
        self._memory, self._memory_limit = MemoryWatch(), MemoryLimit()
        self._oom_kills = OomKills()
        folders = (target.folder, target.trials, Path("/dev/shm"))
        names = (RUN_DIRECTORY, "trials", SHARED_MEMORY)
        self._volumes = VolumeWatch((name, path) for name, path in zip(names, folders, strict=True) if path)
        self._step: int | None = None  # the newest one so far, -1: none of it was there when the watch began
        self._launch: float | None = None  # when the newest launch began; 0.0 if that is not known
        self._polled = False
        surveyor, finder = Surveyor(), SceneFinder(target, self._times)
        probes, gpus, self._ray = ReplicaProbes(), GpuSampler(), RayWatch("")

        def survey() -> Survey:
            return surveyor.survey(target.folders, target.trials)

        self._survey = Background("survey", survey, SURVEY_S, survey(), share=SHARE)
        self._scene = Background(
            "processes", lambda: finder.look(self._survey.value), PROCESSES_S, finder.look(self._survey.value)
        )
        self._proxies = Background("proxies", self._look_at_proxies, SERVERS_S, dict[str, ProxyFacts]())
        self._rays = Background("ray", self._look_at_ray, RAY_S, RayFacts())
        self._answers = Background[dict[str, Answer]](
            "replicas", lambda: probes.ask(self._candidates()), SERVERS_S, {}
        )
        self._gpus = Background[_Gpus]("gpus", lambda: gpus.sample({}, self._members()), GPUS_S, ((), None))
        self._judge = Background("judge", Judge(self._judged).look, JUDGE_S, Judgement())
        self._growth = MetricsGrowth()
        settings, self._live_logs = SettingsReader(target.folders), LiveLogs(self.run.path, foreign=True)
        self._settings = Background(
            "settings", lambda: settings.look(self._scene.value), JUDGE_S, Settings(), SHARE
        )
        self._complaints = Background("live logs", self._look_at_live_logs, JUDGE_S, tuple[LiveLog, ...]())
        self._require_something(wait)

    def _require_something(self, wait: bool) -> None:
        target = self.target
        if not self.empty or (wait and target.folder is not None):
            return
        if not target.named:
            here = next(Path.cwd().glob("*.log"), None)
            hint = f". This folder has {here.name}: liverl-tui watch ." if here is not None else ""
            raise WatchError(
                "nothing to watch: no vllm serve, LiteLLM, Ray or verl of this user runs on this host. Name a folder "
                f"with its logs: liverl-tui watch DIR; runs of liverl-tui: liverl-tui ls{hint}"
            )
        where = " or ".join(str(path) for path in (*target.folders, target.trials) if path is not None)
        packed = next((one for folder in target.folders for one in _packed(folder)), None)
        hint = f". {packed.name} is packed: liverl-tui doctor {shlex.quote(str(packed))}" if packed else ""
        raise WatchError(
            f"nothing to watch in {where}: no log, no metrics, no trials, and no process works there{hint}"
        )

    @property
    def empty(self) -> bool:
        """Whether nothing was found so far."""
        target, found, scene = self.target, self._services.known, self._scene.value
        asked = target.ray is not None or target.litellm_port is not None
        return self._survey.value.empty and not (scene.services or scene.engines or found or asked)

    def start(self, wait: float = FIRST_S) -> None:
        """Begin to look; returns when every server has answered once, after ``wait`` seconds at the latest."""
        until = time.monotonic() + wait
        _begin((self._proxies, self._rays), until)
        _begin((self._answers, self._gpus), until)  # replicas are those of the proxy and of Ray
        _begin((self._settings, self._complaints), until)
        _begin((self._survey, self._scene, self._judge), 0.0)

    def settle(self, seconds: float) -> bool:
        """Wait until the logs were judged once, and what they say of the run's settings was read; whether both were."""
        until = time.monotonic() + seconds
        return self._judge.wait(seconds) and self._settings.wait(max(0.0, until - time.monotonic()))

    def read_trials(self, seconds: float, told: Callable[[int], None]) -> bool:
        """Read all trials once, for at most ``seconds``; whether that was enough. A poll reads some of them only.
        ``told`` gets their number so far, about once a second."""
        self.poll()  # finds their folders
        until = time.monotonic() + seconds
        trials = self._files.trials
        while not trials.complete and time.monotonic() < until:
            told(trials.scan(budget=1.0).total)
        return trials.complete

    def close(self) -> None:
        """Stop looking."""
        for thread in self._threads:
            thread.close()

    @property
    def _threads(self) -> tuple[Background[Any], ...]:
        servers: tuple[Background[Any], ...] = (self._proxies, self._rays, self._answers, self._gpus)
        return (*servers, self._survey, self._scene, self._judge, self._settings, self._complaints)

    # --- what is looked at in threads ---

    def _look_at_proxies(self) -> dict[str, ProxyFacts]:
        found = {
            name: unit.process
            for name, unit in self._scene.value.services.items()
            if unit.kind == "proxy" and unit.process is not None and unit.process.port is not None
        }
        routers = {name: process for name, process in found.items() if process.engine == "sglang"}
        ports = {name: process.port for name, process in found.items() if name not in routers}
        if self.target.litellm_port is not None and self.target.litellm_port not in ports.values():
            ports = {"proxy": self.target.litellm_port, **ports}
        routed = {name: router.look(process.port or 0, process.pid) for name, process in routers.items()}
        return routed | {name: proxies.look(port) for name, port in ports.items() if port is not None}

    def _look_at_ray(self) -> RayFacts:
        address = self.target.ray or self._found_ray()
        if address is None:
            return RayFacts()
        if self._ray.address != address:
            self._ray = RayWatch(address)
        return self._ray.look()

    def _found_ray(self) -> str | None:
        pids = {process.pid for process in self._scene.value.processes if process.kind == "ray"}
        if not pids:
            return None
        return next(
            (one.api for one in running_rays(lambda _: False) if one.pid in pids and one.served), None
        )

    def _candidates(self) -> list[Candidate]:
        known = dict(self._services.known)
        return candidates(self._scene.value, known, self._proxies.value.values(), self._rays.value)

    def _members(self) -> dict[str, list[int]]:
        """Service or replica -> pids. Those of Ray's actors are apart from those of the Ray around them."""
        scene = self._scene.value
        members = {name: list(pids) for name, pids in scene.trees.items()}
        for actor in (
            *scene.engines,
            *self._rays.value.replicas,
        ):  # of the same process Ray's name is the one
            if actor.pid is not None:
                tree = scene.below(actor.pid)
                members = {name: [pid for pid in pids if pid not in tree] for name, pids in members.items()}
                members[actor.name] = tree
        return members

    def _judged(self) -> Iterator[JudgedLog]:
        """The logs that say how it goes: of what runs, and of what has ended since the newest launch began."""
        scene = self._scene.value
        exited = {n: u for n, u in dict(self._services.known).items() if n not in scene.services}
        for name, unit in (*scene.services.items(), *exited.items()):
            alive = unit.pid is not None and name not in exited
            if unit.log is not None:
                shown = self.mirror.link_log(name, unit.log)
                began = unit.process.started_at if unit.process is not None else None
                yield JudgedLog(unit.log, shown, name, alive, *self._times(unit.log), began, unit.what)
        for log in ray_logs(self._survey.value):
            if scene.began is None or log.modified >= scene.began:
                yield JudgedLog(log.path, str(log.path), RAY, bool(scene.processes), *stat_of(log.path))

    def _look_at_live_logs(self) -> tuple[LiveLog, ...]:
        """What the logs of what runs complain of since the watch began."""
        logs = [
            FollowedLog(name, self.run.path / self.mirror.link_log(name, unit.log))
            for name, unit in self._scene.value.services.items()
            if unit.log is not None and unit.pid is not None
        ]
        self._live_logs.look(logs, time.time())
        return self._live_logs.facts

    # --- the snapshot ---

    def poll(self) -> Snapshot:
        """The state now. Blocking: it reads what is new in metrics and trials."""
        now = time.time()
        scene, judgement = self._scene.value, self._judge.value
        self._begin_launch(scene)
        self._services.follow(scene, now)
        self._link(self._survey.value, scene.began)
        gpus, gpu_note = self._gpus.value
        trees = self._procs.sample(self._members())
        replicas = self._replicas(gpus, now)
        seen = Seen(
            scene,
            {item.name: item for item in replicas.items},
            self._proxies.value,
            self._rays.value,
            judgement.failed,
            trees,
            gpus,
            ended_by_its_log(self._settings.value, judgement),
            judgement.errors,
        )
        services = self._services.statuses(seen, now)
        metrics = self._files.metrics()
        self._report_steps(now)
        trials = self._files.trials.scan(now=now)
        waits = self.empty
        settings = self._settings.value
        files, pace = self._survey.value.metrics, self._files.step_seconds
        writes = metrics is not None and self._growth.look(files, now, pace, alone=not services)
        state, phase = standing(
            Standing(services, replicas, metrics, trials, judgement, settings, judgement.at > 0.0, writes)
        )
        services = at_rest(services, state)
        if waits:
            state, phase = "starting", NOTHING_YET
            self._survey.soon()
        snapshot = Snapshot(
            seq=0,
            at=now,
            run=f"watch/{self.run.path.name}",
            run_dir=str(self.target.folder or self.target.logs or self.target.trials or ""),
            state=state,
            phase=phase,
            attempt=1,
            topology="verl" if self._rays.value.replicas or scene.engines else "managed",
            backend=BackendInfo(os.getpid(), self._started_at, hostname(), __version__),
            started_at=scene.began or min(signs(scene, trials), default=self._started_at),
            services=services,
            replicas=replicas,
            proxy=_proxy_status(self._proxies.value),
            step=metrics.step if metrics is not None else None,
            total_steps=settings.total,
            step_seconds=self._files.step_seconds,
            step_time=self._step_time.of(self._files.recent, trials, replica_names(services, replicas)),
            metrics=metrics,
            rewards=self._files.rewards,
            trials=trials,
            gpus=gpus,
            gpu_note=gpu_note,
            host=self._procs.host(),
            unreadable=self._unreadable(),
        )
        symptoms = self._symptoms(snapshot, judgement)
        self._polled = True
        return msgspec.structs.replace(snapshot, symptoms=symptoms, seq=self.mirror.seq)

    def _unreadable(self) -> tuple[UnreadableFile, ...]:
        """Each file or folder of the run that cannot be read, once; those of trials by their paths in the run
        directory, the others by their own."""
        found = (
            *self._survey.value.unreadable,
            *self._judge.value.unreadable,
            *self._settings.value.unreadable,
            *self._files.unreadable,
            *self._services.unreadable,
            *self._volumes.unreadable,
            *(thread.problem for thread in self._threads if thread.problem is not None),
        )
        named = {os.path.realpath(self.run.path / one.path): one.why for one in reversed(found)}
        own = (
            UnreadableFile(path.removeprefix(f"{self.run.path}/"), why)
            for path, why in reversed(named.items())
        )
        return (*own, *self._files.trials.unreadable)[:UNREADABLE]

    @property
    def events(self) -> tuple[Event, ...]:
        """What has happened since the beginning of the watch, oldest first."""
        return tuple(self.mirror.events)

    def _begin_launch(self, scene: Scene) -> None:
        """Read metrics and trials from their beginning where another launch is the newest one."""
        began = scene.began or 0.0
        if self._launch is None or began > self._launch:
            again, self._launch = self._launch is not None, began
            self.mirror.begin(began, [unit.log for unit in scene.services.values() if unit.log is not None])
            if again:
                self._files, self._step = FileReadings(self.run.path), -1
                self.mirror.say(
                    time.time(), "launch", "another launch of the run has begun", service="trainer"
                )

    def _link(self, survey: Survey, began: float | None) -> None:
        modified = {path: stat_of(path)[1] for path in survey.metrics}
        for path in sorted(modified, key=lambda path: modified[path]):
            if began is None or modified[path] >= began:
                self.mirror.link_metrics(path)
        folders = [os.path.realpath(path) for path in (self.target.trials, self.target.folder) if path]
        for path in survey.trials:
            root = os.path.realpath(path)
            self.mirror.link_trials(path, any(f"{folder}/".startswith(f"{root}/") for folder in folders))

    def _replicas(self, gpus: tuple[GpuStatus, ...], now: float) -> ReplicaSet:
        answers = self._answers.value
        routed = {place(url) for facts in self._proxies.value.values() for url in facts.backends}
        items = tuple(
            self._states.status(
                one,
                answers.get(one.name),
                now,
                listed=one.address is not None and place(one.address) in routed,
                gpus=used_gpus(one.name, gpus),
                stage=self._services.stage(one.name),
            )
            for one in self._candidates()
        )
        ready = sum(item.state == "ready" for item in items)
        return ReplicaSet(len(items), ready, sum(item.listed for item in items), items)

    def _report_steps(self, at: float) -> None:
        """Tell of the steps that were just read; those that were there before the watch are no events."""
        ends = {one.step: one for one in ends_of(self._files.news, self._files.written)}
        for metrics in self._files.news:
            end = ends.get(metrics.step)
            if self._step is None:
                if end is not None:
                    self.mirror.past_step(end)
                continue
            key = key_in("reward", metrics.values)
            reward = f": reward {metrics.values[key]:.3f}" if key is not None else ""
            if reward and (of := step_trained_words(metrics.values)):
                reward += f" ({of})"
            times: dict[str, Any] = {} if end is None else {"after": end.after, "by": end.by}
            text = f"step {metrics.step}{reward}"
            self.mirror.say(at, "step", text, service="trainer", step=metrics.step, **times)
        if self._files.news:
            self._step = self._files.news[-1].step
        elif self._polled and self._step is None:
            self._step = -1  # whatever comes is new

    def _symptoms(self, snapshot: Snapshot, judgement: Judgement) -> tuple[Symptom, ...]:
        settings = self._settings.value
        silence = self._silence.update(snapshot, self._writes.last(self._trainer_logs(snapshot)))
        due = stalls_at(snapshot, silence)
        context = RunContext(
            tool_parser=settings.parser.name,
            parser_set=settings.parser,
            sampling=settings.sampling,
            engine_versions=settings.versions,
            oom=self._oom_kills.evidence(snapshot.at),
            live_logs=self._complaints.value,
            ray_load=self._rays.value.load,
            foreign=True,
            volumes=self._volumes.look(snapshot.at),
            silence=silence,
            suspects=training_processes(snapshot.services) if due is not None and due <= snapshot.at else (),
            recent=self._files.recent,
            memory=memory_growth(self._memory, snapshot, self._memory_limit),
        )
        for news in self._diagnosis.update(snapshot, context):
            text, level = words(news, snapshot.at)
            self.mirror.say(snapshot.at, "symptom", text, level)
        stopped = (
            *engines_ended(snapshot),
            *silent(snapshot, self._services.quiet),
            *unseen(self._left_out(judgement), self._started_at),
            *ended(snapshot, judgement),
        )
        causes = self._trial_causes.look(snapshot.trials)
        return merged(told_once((*judgement.symptoms, *self._diagnosis.symptoms, *stopped), causes))

    def _left_out(self, judgement: Judgement) -> tuple[str, ...]:
        pending = not self._judge.ready and time.time() - self._started_at > UNJUDGED_S
        words = ("what its logs say, which are still being read",) if pending else ()
        folders = (*self._survey.value.left_out, *self._scene.value.left_out)
        return (*words, *folders, *judgement.left_out, *self._trial_causes.left_out)

    def _trainer_logs(self, snapshot: Snapshot) -> list[Path]:
        return [
            self.run.path / one.log
            for one in snapshot.services
            if one.kind == "trainer" and one.log is not None
        ]

    def with_real_paths(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the own paths of logs and trials instead of those of links, for who reads it outside of
        this process."""

        def real(log: str | None) -> str | None:
            return None if log is None else os.path.realpath(self.run.path / log)

        def located(one: Evidence) -> Evidence:
            text = one.text if one.text != one.log else real(one.log) or one.text
            text = of_trial(text) if one.log is None else text
            return msgspec.structs.replace(one, text=text, log=real(one.log))

        def of_trial(path: str) -> str:
            return os.path.realpath(self.run.path / path) if path.partition("/")[0] in roots else path

        replace = msgspec.structs.replace
        roots = {root.name for root in self.run.trial_roots()}
        newest = tuple(replace(head, path=of_trial(head.path)) for head in snapshot.trials.newest)
        return replace(
            snapshot,
            trials=replace(snapshot.trials, newest=newest),
            unreadable=tuple(replace(file, path=of_trial(file.path)) for file in snapshot.unreadable),
            services=tuple(replace(one, log=real(one.log)) for one in snapshot.services),
            symptoms=tuple(replace(s, evidence=tuple(map(located, s.evidence))) for s in snapshot.symptoms),
        )

    # --- details ---

    def inspect(self, name: str) -> ServiceDetail | None:
        """What is known of the process of a service; None without one."""
        return self._services.detail(name)

    def gpu(self, uuid: str) -> GpuDetail:
        """What the driver says of one GPU.

        Raises:
            Unreadable: it says nothing.
        """
        return DetailReader(uuid).read(self._members())[0]


def _begin(threads: tuple[Background[Any], ...], until: float) -> None:
    """Start them, and wait for the first result of each. ``until``: on the monotonic clock."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.wait(max(0.0, until - time.monotonic()))


def _proxy_status(found: Mapping[str, ProxyFacts]) -> ProxyStatus:
    facts = next(iter(found.values()), None)
    if facts is None:
        return ProxyStatus()
    config = str(facts.config) if facts.config is not None else None
    return ProxyStatus(address=facts.address, backends=facts.backends, config=config, generation=1)


def _name(target: Target) -> str:
    for path in (target.folder, target.logs, target.trials):
        if path is not None:
            return path.resolve().name or "root"
    return hostname().split(".")[0]


def _packed(folder: Path) -> Iterator[Path]:
    """Packed files in a folder, by their names."""
    for ending in ("gz", "xz", "bz2"):
        yield from sorted(folder.glob(f"*.{ending}"))
