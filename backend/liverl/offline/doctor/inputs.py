"""The files that a diagnosis reads: those named, and the logs in the folders named."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from liverl import model
from liverl.causes.finding import Exit
from liverl.model import Cause, Snapshot
from liverl.observe.hung_stacks import SUFFIX
from liverl.offline.doctor.kinds import HEAD, kind_of
from liverl.rundir.layout import LiveBackend, RemoteBackend, RunDir, backend_alive
from liverl.util.regular_file import RefusedFileError, open_regular, read_regular

FILES = 4000  # of one diagnosis; a folder with more is looked at so far
GENERATION = re.compile(
    r"(.+)\.(\d{1,9})\.log"
)  # of a service, and the number of its process: replica-0.2.log
_SKIPPED = frozenset((".git", ".venv", "node_modules", "__pycache__", "site-packages", "secrets", "sandbox"))


class Input(msgspec.Struct, frozen=True):
    """One line of ``files``. ``what``: its kind in words, or why it cannot be read; ``read``: whether it is searched
    as a log; ``size``: bytes, None if unknown."""

    path: str
    what: str
    read: bool = False
    size: int | None = None


class _Kept(msgspec.Struct):
    exit: model.Exit | None = None


class Inputs(msgspec.Struct, frozen=True):
    """``exits``: of the processes of runs of this program, by their files; ``stated``: why the only run that was found
    failed, as its backend saw it, None if no or another answer was stored."""

    files: tuple[Input, ...]
    exits: tuple[Exit, ...] = ()
    stated: Cause | None = None


def collect(paths: list[Path]) -> Inputs:
    """What is at ``paths``: each file once, in the order given, those of a folder by name. Never waits for a FIFO."""
    files: dict[str, Input] = {}
    runs: list[RunDir] = []
    for path in paths:
        for one in _of(path, runs):
            files.setdefault(one.path, one)
            if len(files) >= FILES:
                more = Input("...", f"more than {FILES} files; the others are not looked at")
                files = {more.path: more, **files}  # first, so that it is seen
                return _with_ends(files, runs)
    return _with_ends(files, runs)


def _with_ends(files: dict[str, Input], runs: list[RunDir]) -> Inputs:
    exits = tuple(one for run in runs for one in _exits(run))
    return Inputs(tuple(files.values()), exits, _stated(runs[0]) if len(runs) == 1 else None)


def _stated(run: RunDir) -> Cause | None:
    """Why a run failed, with the full paths of its logs."""
    result = run.read_result()
    if result is None or result.state != "failed" or result.cause is None:
        return None
    proof = tuple(
        msgspec.structs.replace(one, log=str(run.path / one.log)) if one.log else one
        for one in result.cause.evidence
    )
    return msgspec.structs.replace(result.cause, evidence=proof)


def _of(path: Path, runs: list[RunDir]) -> Iterator[Input]:
    if not path.is_dir():
        yield look(path, named=True)
        return
    count = 0
    for one in _in_folder(path, runs):
        count += 1
        yield one
    if not count:
        yield Input(str(path), "an empty folder")


def _in_folder(folder: Path, runs: list[RunDir]) -> Iterator[Input]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield Input(str(folder), f"cannot be read: {error.strerror}")
        return
    names = {entry.name for entry in entries}
    run = RunDir(folder)
    if names & {"plan.json", "backend.json", "journal.jsonl"} and run.is_run():
        runs.append(run)
        yield from _of_run(run)
        return
    if _is_trial(names):
        yield Input(str(folder), "a trial of LiveRL or Harbor: no logs of a run")
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _SKIPPED and not entry.name.startswith("global_step_"):
                yield from _in_folder(Path(entry.path), runs)
        else:
            yield look(Path(entry.path), named=False)


def _is_trial(names: set[str]) -> bool:
    return "result.json" in names and bool(
        names & {"agent", "verifier", "litellm-trajectory.jsonl", "trial.log"}
    )


def _of_run(run: RunDir) -> Iterator[Input]:
    """The logs of the newest attempt."""
    attempts = run.attempts()
    yield Input(str(run.path), f"a run of this program: {_standing(run)}")
    if not attempts:
        return
    folder = run.logs(attempts[-1])
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        yield Input(str(folder), f"cannot be read: {error.strerror}")
        return
    for name in names:
        if not name.endswith(".idx"):
            yield look(folder / name, named=False, own=True)
    for path in sorted(run.stacks(attempts[-1]).glob(f"*{SUFFIX}")):
        yield look(path, named=True)


def _standing(run: RunDir) -> str:
    result = run.read_result()
    if result is not None:
        return f"{result.state}, attempt {result.attempt}"
    return (
        "it still runs"
        if isinstance(backend_alive(run.path), LiveBackend | RemoteBackend)
        else "it has no result"
    )


def _exits(run: RunDir) -> Iterator[Exit]:
    result, snapshot = run.read_result(), run.read_snapshot()
    if snapshot is not None and result is not None and result.state == "stopped":
        failing = list(_still_failing(run, snapshot))
        if failing:
            yield from failing
            return
    # A run that is stopped or done ends its services by signals, which are no failures.
    failed = result is None or result.state == "failed"
    told = False
    if snapshot is not None and failed:
        for service in snapshot.services:
            if service.state in ("failed", "gave_up") and service.exit is not None:
                log = "" if service.log is None else str(run.path / service.log)
                yield Exit(service.name, log, service.exit.code, service.exit.signal, service.exit.at)
                told = told or service.exit.known
    if told:
        return  # the run's exit code follows from that
    if result is not None:
        yield Exit("the run", "", result.exit_code if failed else 0, None, result.ended_at)
    elif isinstance(backend_alive(run.path), LiveBackend | RemoteBackend):
        yield Exit("the run", "", 0)


def _still_failing(run: RunDir, snapshot: Snapshot) -> Iterator[Exit]:
    """Of a run that somebody stopped: processes that had failed by themselves and whose successors never served."""
    for service in snapshot.services:
        generation = GENERATION.fullmatch(service.log or "")
        if service.failed_at is None or generation is None or (service.ready_at or 0.0) >= service.failed_at:
            continue
        for number in (int(generation[2]), int(generation[2]) - 1):
            ended = _exit_of(run.path / "exits" / f"{service.name}.{number}.json")
            if ended is not None and not ended.ok and (ended.at or 0.0) <= service.failed_at:
                log = str(run.path / f"{generation[1]}.{number}.log")
                yield Exit(service.name, log, ended.code, ended.signal, ended.at)
                break


def _exit_of(file: Path) -> model.Exit | None:
    """What the keeper has written of the end of a process; None if it cannot be read."""
    try:
        return msgspec.json.decode(read_regular(file, 1 << 20), type=_Kept).exit
    except (OSError, ValueError, RecursionError):
        return None


def look(path: Path, *, named: bool, own: bool = False) -> Input:
    """What one file is; never fails."""
    shown = str(path)
    try:
        fd = open_regular(path)
    except RefusedFileError as error:
        return Input(shown, error.strerror or "not a regular file")
    except OSError as error:
        return Input(shown, f"cannot be read: {error.strerror}")
    try:
        size = os.fstat(fd).st_size
        head = os.pread(fd, HEAD, 0)
        tail = os.pread(fd, HEAD, size - HEAD) if size > 2 * HEAD else os.pread(fd, HEAD, HEAD)
    except OSError as error:
        return Input(shown, f"cannot be read: {error.strerror}")
    finally:
        os.close(fd)
    kind = kind_of(path.name, head, tail, named=named, own=own)
    return Input(shown, kind.words, kind.log, size)
