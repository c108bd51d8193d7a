"""Plays a recording: a private run directory that grows as the recorded one did, and the run's state at each moment.

The state is built as for any run: trials, metrics, rewards and causes are read from the files, alerts come from the
rules; what only a backend measures comes from the tables.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from liverl.daemon.phase import phase_words
from liverl.diagnose.advice import Means, means
from liverl.diagnose.catalogue.rules import RULES
from liverl.diagnose.tracker import Diagnosis, RunContext
from liverl.diagnose.where import NewestStepTime
from liverl.model import Inert, Snapshot, StepMetrics, TrialsStatus
from liverl.observe.metrics.rewards import judged_anew
from liverl.observe.metrics.verl_phase import verl_trainer_facts
from liverl.observe.trials.cut_off import cut_off
from liverl.observe.trials.engine_parser import EngineParser, engine_parser
from liverl.observe.trials.replica_names import replica_names
from liverl.observe.trials.root import STEP_DIR
from liverl.observe.trials.scanner import TRIALS
from liverl.observe.trials.script_sampling import ScriptSampling, script_sampling
from liverl.offline.readings import FileReadings
from liverl.replay.archive import Recording, RecordingError
from liverl.replay.clock import ReplayClock
from liverl.replay.tables import MEASURED
from liverl.replay.timeline import Change, changes
from liverl.rundir.journal import read_object
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import decode_snapshot
from liverl.supervise.services.unused_environments import unused
from liverl.util.append import append_whole, write_all
from liverl.util.bad_json import BAD_JSON
from liverl.util.modes import make_directory
from liverl.util.regular_file import open_append
from liverl.util.remove_tree import remove_tree

PROJECT = "demo"  # of every replayed run
# What the rules see of the time before the first picture, so that alerts which have to last some time are there.
PREROLL_S, PREROLL_EACH_S = 60.0, 10.0
# The rules see a state at least so often, however far a replay goes at once: an alert began when it began.
EACH_S = 1.0
# Seconds of lines that have one entry in the time index of a log, with the time of the last of them
INDEX_S = 0.1


def played_again(recording: Recording, folder: Path, clock: ReplayClock) -> Player:
    """A replay at its beginning, in place of one that went further in the same ``folder``. Its logs are emptied before
    they are removed: whoever still reads one would take it for a part of the log that was rotated.

    Raises:
        RecordingError, OSError: see ``Player.begin``.
    """
    player = Player(recording, folder, clock)
    for log in player.run.path.rglob("*.log"):
        with suppress(OSError):
            os.close(open_append(log, empty=True))
    remove_tree(player.run.path, inside=folder)
    make_directory(player.run.path)
    player.begin()
    return player


class Player:
    """One replay. ``folder``: an empty private directory, which the caller removes."""

    def __init__(self, recording: Recording, folder: Path, clock: ReplayClock) -> None:
        self.about = recording.about
        self.run = RunDir(folder / PROJECT / recording.about.name)
        self._clock = clock
        self._tables = recording.tables
        self._changes = changes(recording.growth, recording.files, recording.about.begin)
        self._next = 0  # in _changes
        self._seen = self.about.begin  # the time of the newest state
        self._indexed: dict[str, int] = {}  # log -> its size
        self._steps = _steps_of({*recording.files, *(row.path for row in recording.growth)})
        self._files = FileReadings(self.run.path)
        self._step_time = NewestStepTime()
        self._diagnosis = Diagnosis(RULES)
        self._parser = EngineParser()  # as soon as config.yaml is there
        self._sampling: ScriptSampling | None = None
        self._mute: tuple[str, ...] = ()
        self._means = Means()
        make_directory(self.run.path)

    @property
    def end(self) -> float:
        """The recorded Unix time at which the replay ends."""
        return self.about.end

    def begin(self) -> Snapshot:
        """Write what was there at the beginning, and return the state then.

        Raises:
            RecordingError: the tables do not fit this version.
            OSError: the files cannot be written.
        """
        at = self.about.begin - PREROLL_S
        while at < self.about.begin:
            self._state(at)
            at += PREROLL_EACH_S
        return self._state(self.about.begin)

    def state(self, at: float) -> Snapshot:
        """Let the files grow to the recorded time ``at``, which never decreases, and return the run's state then.

        Raises:
            RecordingError, OSError: see ``begin``.
        """
        while self._seen + EACH_S < at:
            self._state(self._seen + EACH_S)
        return self._state(at)

    def _state(self, at: float) -> Snapshot:
        self._seen = at
        self._grow(at)
        snapshot = self._snapshot(at)
        causes = {s.name: c for s in snapshot.services if (c := self._files.cause(s, snapshot.services))}
        self._read_config()
        context = RunContext(
            causes=causes,
            tool_parser=self._parser.name,
            parser_set=self._parser,
            recent=self._files.recent,
            sampling=self._sampling,
            mute=self._mute,
            means=self._means,
        )
        self._diagnosis.update(snapshot, context)
        found = self._diagnosis
        return msgspec.structs.replace(snapshot, symptoms=found.symptoms, muted=found.muted)

    def _read_config(self) -> None:
        if self._parser.name is None:
            self._parser, self._sampling = engine_parser(self.run.path), script_sampling(self.run.path)
            plan = read_object(self.run.plan) or {}
            self._means = _means(plan)
            settings = plan.get("settings")
            self._mute = tuple(settings.get("mute", ())) if isinstance(settings, dict) else ()

    # --- files ---

    def _grow(self, at: float) -> None:
        due: dict[str, list[Change]] = {}
        while self._next < len(self._changes) and self._changes[self._next].at <= at:
            change = self._changes[self._next]
            due.setdefault(change.path, []).append(change)
            self._next += 1
        changed: dict[Path, float] = {}
        for path, several in due.items():
            self._write(path, several)
            changed[(self.run.path / path).parent] = several[-1].at
            changed[(self.run.path / path).parent.parent] = several[-1].at
        for folder, changed_at in changed.items():  # of a trial: when it was last active
            self._set_time(folder, changed_at)

    def _set_time(self, path: Path, at: float) -> None:
        shown = self._clock.shown(at)
        os.utime(path, (shown, shown))

    def _write(self, path: str, several: list[Change]) -> None:
        """Apply the changes of one file."""
        whole = max((place for place, change in enumerate(several) if change.whole), default=None)
        new = several[whole:] if whole is not None else several
        target = self.run.path / path
        make_directory(target.parent)
        fd = open_append(target, empty=whole is not None)
        try:
            write_all(fd, self._clock.shift(b"".join(change.data for change in new)))
        finally:
            os.close(fd)
        if path.endswith(".log"):
            self._index(path, new)
        self._set_time(target, several[-1].at)

    def _index(self, path: str, new: list[Change]) -> None:
        """Note when which byte of a log was written, as a backend does. The last one of a burst of lines has an entry,
        too: without, it would stand with what came next, behind what other logs wrote in between."""
        size = self._indexed.get(path, 0)
        entries: list[tuple[int, float]] = []  # size, recorded time
        since = 0.0  # when the lines of the newest entry began
        for change in new:
            size += len(change.data)
            if entries and change.at - since < INDEX_S:
                entries[-1] = size, change.at
            else:
                entries.append((size, change.at))
                since = change.at
        self._indexed[path] = size
        lines = "".join(f"{end} {self._clock.shown(at):.3f}\n" for end, at in entries)
        append_whole(self.run.path / f"{path}.idx", lines.encode("ascii"))

    # --- state ---

    def _snapshot(self, at: float) -> Snapshot:
        # What an older recording does not have keeps its default.
        recorded = [name for name in MEASURED if name in self._tables and self._tables[name].rows]
        fields = {name: self._tables[name].at(at) for name in recorded}
        shown = self._clock.shown(at)
        name = f"{PROJECT}/{self.about.name}"
        fields |= {"seq": 0, "at": at, "run": name, "run_dir": str(self.run.path)}
        try:
            base = decode_snapshot(self._clock.shift(msgspec.json.encode(fields)))
        except BAD_JSON as error:
            raise RecordingError(f"its tables are not of this version: {error}") from error
        metrics, trials = self._files.metrics(), self._files.trials.scan(now=shown)
        trainer, result = read_object(self.run.trainer) or {}, self.run.read_result()
        if result is not None:
            course = self._files.rewards.course
            result = msgspec.structs.replace(result, summary=judged_anew(result.summary, course))
        return msgspec.structs.replace(
            base,
            seq=self._seq(),
            state=result.state if result is not None else base.state,
            services=base.services if result is None else tuple(unused(base.services, result.ended_at)),
            phase=self._phase(base, trainer, metrics, trials),
            step=_most(base.step, trainer.get("step"), metrics and metrics.step),
            step_seconds=self._files.step_seconds,
            step_time=self._step_time.of(
                self._files.recent, trials, replica_names(base.services, base.replicas), self._means
            ),
            metrics=metrics,
            rewards=self._files.rewards,
            policy_version=_most(base.policy_version, trainer.get("policy_version")),
            trials=trials if result is None else cut_off(trials),
            unreadable=self._files.trials.unreadable,
            result=result,
        )

    def _phase(
        self, base: Snapshot, trainer: dict[str, Any], metrics: StepMetrics | None, trials: TrialsStatus
    ) -> str:
        """What the run is doing. Without a report of the trainer, as it was recorded; verl's writes none, and is judged
        by its files as in a live run, but in a step whose trials the recording does not have."""
        if not trainer and base.topology != "managed":
            trainer = verl_trainer_facts(metrics, trials, base.trials_per_step)
            step = int(trainer["step"]) + 1
            total = base.total_steps or 0
            if (
                self._steps is not None
                and step not in self._steps
                and step <= total
                and base.state == "running"
            ):
                begin = f"step {step}/{total}"  # what was recorded may be a look older than the metrics
                return base.phase if base.phase.startswith(f"{begin}:") else begin
        if not trainer:
            return base.phase
        return phase_words(base.state, base.services, base.replicas, trainer, base.total_steps, trials)

    def _seq(self) -> int:
        from liverl.control.history import last_events

        return next((event.seq for event in last_events(self.run.path, 1)), 0)


def _steps_of(paths: Iterable[str]) -> frozenset[int] | None:
    """The steps of which there are trials; None where no folder says of which step its trials are. Validations have no
    folder of a step."""
    folders = {path.split("/")[1] for path in paths if path.startswith(f"{TRIALS}/")}
    return frozenset(int(step[1]) for step in map(STEP_DIR.fullmatch, folders) if step is not None) or None


def _most(*numbers: Any) -> int | None:
    """The greatest integer of ``numbers``; None without any."""
    return max((n for n in numbers if isinstance(n, int) and not isinstance(n, bool)), default=None)


def _means(plan: dict[str, Any]) -> Means:
    """What an advice may name in a recorded run; of one without a usable list of inert keys any key."""
    try:
        inert = msgspec.convert(plan.get("inert", ()), tuple[Inert, ...])
    except msgspec.ValidationError:
        return Means()
    return means(inert, cpus=plan.get("cpus") is True)
