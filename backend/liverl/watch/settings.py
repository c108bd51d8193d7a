"""What a watched run says of its own settings: in its logs, on its command lines and in its script's files. Of a run of
ours they stand in its configuration. What is not said stays unknown: no default of anybody's is taken for it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from liverl.causes.quiet.owed import Owed, Passed
from liverl.external.litellm import option
from liverl.external.script_steps import ScriptSteps
from liverl.model import UnreadableFile
from liverl.observe.config_dump import read_dump, sampling_of
from liverl.observe.trials.engine_parser import VARIABLES, EngineParser, in_script, places
from liverl.observe.trials.script_sampling import COMPARED, ScriptSampling
from liverl.procs import procfs
from liverl.util.regular_file import open_binary
from liverl.watch.folder import role_of
from liverl.watch.scene import Scene
from liverl.watch.units import Unit

HEAD = 2 << 20  # bytes of the beginning of a log: verl's configuration and the versions stand there
PLACES_S = 60.0  # seconds between two searches of a script's files
_VERSION = re.compile(
    r"Initializing a V1 LLM engine \(v([^)\s]{1,40})\)|vLLM API server version (\d[\w.+-]{0,40})"
)
_STEPS = re.compile(r"\+{0,2}trainer\.total_training_steps=(\d{1,12})")
_SAMPLING = re.compile(r"\+{0,2}actor_rollout_ref\.rollout\.(val_kwargs\.)?(\w+)=([\d.eE+-]{1,20})")


class Settings(msgspec.Struct, frozen=True):
    """``owed``: steps of the whole training; ``step``: the newest one in its logs; ``closed``: the line by which the
    trainer says there that it ends; ``versions``: of the engines; ``parser``: for tool calls, and where it is
    set; ``sampling``: what the trainer takes its trials to be sampled with; ``unreadable``: logs that could not be
    read. None and empty: nothing says it."""

    owed: Owed | None = None
    step: int | None = None
    closed: str = ""
    versions: tuple[str, ...] = ()
    parser: EngineParser = EngineParser()
    sampling: ScriptSampling | None = None
    unreadable: tuple[UnreadableFile, ...] = ()

    @property
    def total(self) -> int | None:
        """Steps of the whole training; None if nothing says it."""
        return self.owed.steps if self.owed is not None else None


class SettingsReader:
    """Reads them again where the run's logs have grown. One thread at a time. ``folders``: that the user named."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._steps = ScriptSteps()
        self._heads: dict[Path, _Head] = {}
        self._parser = EngineParser()
        # For which process the script's files were searched, and when on the monotonic clock
        self._searched: tuple[int | None, float] | None = None

    def look(self, scene: Scene) -> Settings:
        """What the run says now. Blocks on the disk."""
        unread: dict[str, str] = {}
        trainer = next(
            (unit for unit in scene.services.values() if unit.kind == "trainer"), None
        )  # the newest
        argv = _argv(trainer)
        trainers = training_logs(scene)
        try:
            self._steps.look(trainers, passed(argv))
        except OSError as error:
            unread[error.filename or str(trainers[0])] = error.strerror or str(error)
        logs = dict.fromkeys((*trainers, *_engine_logs(scene)))
        self._heads = {log: self._heads.get(log) or _Head(log) for log in logs}
        for log, head in self._heads.items():
            try:
                head.read()
            except OSError as error:
                unread[str(log)] = error.strerror or str(error)
        dumped = (self._heads[log].sampling for log in trainers)
        sampling = next((one for one in dumped if one is not None), None)
        return Settings(
            self._steps.owed,
            self._steps.told.step,
            self._steps.told.closed,
            tuple(sorted({text for head in self._heads.values() for text in head.versions})),
            self._parser_of(scene, trainer),
            sampling if sampling is not None else sampling_on(argv),
            tuple(UnreadableFile(path, why) for path, why in sorted(unread.items())),
        )

    def _parser_of(self, scene: Scene, trainer: Unit | None) -> EngineParser:
        """On a server's command line, else in the files of the trainer's script."""
        for process in scene.processes:
            parser = option(process.argv, "--tool-call-parser")
            if parser:
                place = f"--tool-call-parser on the command line of pid {process.pid}"
                return EngineParser(parser, place)
        whose = trainer.pid if trainer is not None else None
        if (
            self._searched is None
            or self._searched[0] != whose
            or time.monotonic() > self._searched[1] + PLACES_S
        ):
            self._parser = self._in_files(trainer)
            self._searched = whose, time.monotonic()
        return self._parser

    def _in_files(self, trainer: Unit | None) -> EngineParser:
        process = trainer.process if trainer is not None else None
        folders = self._folders or ((Path(process.cwd),) if process is not None else ())
        found = [one for folder in sorted({*map(os.path.realpath, folders)}) for one in places(folder)]
        pid = trainer.pid if trainer is not None else None
        environment = procfs.whole_environment(pid) if pid is not None else None
        if environment is None and any(place.variable for place in found):
            return EngineParser()  # what the variable sets is not known
        given = next((value for name in VARIABLES if (value := (environment or {}).get(name))), None)
        return in_script(found, given)


def training_logs(scene: Scene) -> list[Path]:
    """The logs of the newest training: that of its process first, then those of no process, the newest first."""
    units = [unit for unit in scene.services.values() if unit.log is not None]
    own = [unit.log for unit in units if unit.kind == "trainer"][:1]
    alone = [unit.log for unit in units if unit.process is None and role_of(unit.what) == "trainer"]
    return [log for log in dict.fromkeys((*own, *alone)) if log is not None]


def _engine_logs(scene: Scene) -> list[Path]:
    return [
        unit.log
        for unit in scene.services.values()
        if unit.log is not None and (unit.kind == "replica" or role_of(unit.what) == "replica")
    ]


def _argv(trainer: Unit | None) -> tuple[str, ...]:
    if trainer is None:
        return ()
    if trainer.process is not None:
        return trainer.process.argv
    return procfs.arguments(trainer.pid) if trainer.pid is not None else ()


def passed(argv: Iterable[str]) -> Passed | None:
    """The steps that a trainer got on its command line; None if it got none. Pure."""
    found = [match for word in argv if (match := _STEPS.fullmatch(word))]
    return Passed(int(found[-1][1]), "its command line") if found else None


def sampling_on(argv: Iterable[str]) -> ScriptSampling | None:
    """The parameters of the trials on verl's command line; None without any. Pure."""
    given: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for word in argv:
        match = _SAMPLING.fullmatch(word)
        if match is None or match[2] not in COMPARED:
            continue
        try:
            given[1 if match[1] else 0][match[2]] = float(match[3])
        except ValueError:
            continue  # Hydra refuses it, too
    return ScriptSampling(*given) if any(given) else None


class _Head:
    """What the beginning of a log says."""

    def __init__(self, path: Path) -> None:
        self.versions: tuple[str, ...] = ()
        self.sampling: ScriptSampling | None = None
        self._path = path
        self._read = 0  # bytes that were there when it was read

    def read(self) -> None:
        """Read it again where it has grown; once it is whole, never again."""
        if self._read >= HEAD:
            return
        try:
            with open_binary(self._path) as file:
                data = file.read(HEAD)
        except FileNotFoundError:
            return
        if len(data) == self._read:
            return
        self._read = len(data)
        text = data.decode("utf-8", "replace")
        self.versions = tuple(sorted({match[1] or match[2] for match in _VERSION.finditer(text)}))
        dump = read_dump(text.split("\n"))
        self.sampling = sampling_of(dump) if dump is not None else None
