"""The files that a diagnosis reads: those named, and the logs in the folders named."""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from liverl import model
from liverl.causes.finding import Exit
from liverl.causes.inputs.shown import words_of
from liverl.model import Cause, Snapshot
from liverl.observe.hung_stacks import SUFFIX
from liverl.observe.metrics.event_files import is_event_file
from liverl.observe.metrics.files import has_steps
from liverl.observe.trials.root import STEP_DIR
from liverl.offline.doctor.kinds import HEAD, kind_of
from liverl.offline.doctor.trial_folders import TrialFolder, is_named_as_trial, is_trial, trial_folder
from liverl.rundir.cleaned import read_cleaned
from liverl.rundir.layout import LiveBackend, RemoteBackend, RunDir, backend_alive
from liverl.rundir.log_names import read_log_name
from liverl.util.ages import ago
from liverl.util.decode import decode_json
from liverl.util.plural import quantity
from liverl.util.regular_file import RefusedFileError, open_regular, read_regular

FILES = 4000  # logs of one diagnosis
MORE = "..."  # stands for what was not looked at
ENTRIES = 200_000  # files and folders that are looked at; a folder of trials counts with its own entries only
UNREADABLE = "cannot be read"  # the beginning of ``Input.what`` of such a file or folder
_EVENTS = "steps of a training (tensorboard)"
_SKIPPED = frozenset((".git", ".venv", "node_modules", "__pycache__", "site-packages", "secrets", "sandbox"))


class Input(msgspec.Struct, frozen=True):
    """One line of ``files``. ``what``: its kind in words, or why it cannot be read; ``read``: whether it is judged;
    ``size``: bytes, None if unknown; ``missed``: it may tell what is wrong, and was not looked at."""

    path: str
    what: str
    read: bool = False
    size: int | None = None
    missed: bool = False


class _Kept(msgspec.Struct):
    exit: model.Exit | None = None


class Inputs(msgspec.Struct, frozen=True):
    """What is at the paths. ``files``: each once; ``runs``: of this program, the newest
    first; ``trials``: folders of trials that are no run's; ``metrics``: files with a record per step, and event files
    of tensorboard or folders of them, likewise;
    ``left_out``: why there is more than was looked at, empty if all was; ``exits``: of the processes of the newest run,
    by their files; ``stated``: why that run failed, as its backend saw it, None if no or another answer was stored."""

    files: tuple[Input, ...]
    runs: tuple[RunDir, ...] = ()
    trials: tuple[TrialFolder, ...] = ()
    metrics: tuple[Path, ...] = ()
    left_out: str = ""
    exits: tuple[Exit, ...] = ()
    stated: Cause | None = None


def collect(
    paths: list[Path], progress: Callable[[str], None] = lambda _: None, unpacked: Collection[str] = ()
) -> Inputs:
    """What is at ``paths``: the files named, and then those of the folders, the nearest first. Never waits for a FIFO.
    Of folders of trials only the number of trials is told. ``progress`` is told what is looked at. ``unpacked``: packed
    files of which ``paths`` have the content."""
    search = _Search(progress, frozenset(map(os.path.realpath, unpacked)))
    for path in paths:
        search.look_at(path)
    runs = sorted(search.runs, key=_newest, reverse=True)
    for run in runs[:1]:
        search.files[str(run.path)] = Input(
            str(run.path), f"a run of liverl-tui: {_standing(run)}", read=True
        )
        for one in (*_of_run(run), *_damaged(run)):
            search.add(one)
    for run in runs[1:]:
        search.files[str(run.path)] = Input(str(run.path), f"an earlier run, not judged: {_standing(run)}")
    files = sorted(search.files.values(), key=lambda one: one.path != MORE)  # stable: that is seen first
    return Inputs(
        tuple(files),
        tuple(runs),
        tuple(search.trials),
        tuple(search.metrics),
        search.left_out,
        tuple(one for run in runs[:1] for one in _exits(run)),
        _stated(runs[0]) if runs else None,
    )


class _Search:
    """Looks for what can be judged, level by level: the logs of a run lie nearer than the files of its trials."""

    def __init__(self, progress: Callable[[str], None], unpacked: frozenset[str]) -> None:
        self._unpacked = unpacked
        self.files: dict[str, Input] = {}
        self.runs: list[RunDir] = []
        self.trials: list[TrialFolder] = []
        self.metrics: list[Path] = []
        self.left_out = ""
        self._roots: set[str] = set()  # real paths of folders that are looked into with all below them
        self._links: dict[Path, list[Path]] = {}  # folder -> links in it that are to be followed
        self._progress = progress
        self._logs = 0
        self._entries = ENTRIES

    def add(self, one: Input) -> None:
        """Add a file, once."""
        self.files.setdefault(one.path, one)

    def look_at(self, path: Path) -> None:
        """Add what is at a path that was named."""
        if not os.path.isdir(path):  # unlike Path.is_dir: a folder that must not be entered is unreadable
            one = look(path, named=True)
            if is_event_file(path.name) and one.size is not None:
                one = msgspec.structs.replace(one, what=_EVENTS, missed=False)
                self.metrics.append(path)
            self.add(one)
            self._note_metrics(path)
            return
        before = len(self.files)
        self._roots.add(os.path.realpath(path))
        waiting = deque([(path, False)])
        while waiting:
            folder, linked = waiting.popleft()
            self._progress(f"looking for logs, {len(self.files)} files so far: {folder}")
            waiting.extend((one, linked) for one in self._folder(folder, linked=linked))
            if not linked:
                waiting.extend((one, True) for one in self._links.pop(folder, ()))
            if self.left_out:
                return
        if len(self.files) == before and not self.runs:
            self.add(Input(str(path), "an empty folder"))

    def _folder(self, folder: Path, *, linked: bool) -> list[Path]:
        """Add the files of a folder; the folders in it that are to be looked into. ``linked``: it lies behind a link,
        and further links in it are not followed."""
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            self.add(unreadable(folder, error))
            return []
        names = {entry.name for entry in entries}
        run = RunDir(folder)
        if names & {"plan.json", "backend.json", "journal.jsonl"} and run.is_run():
            self.runs.append(run)
            self.add(Input(str(run.path), "a run of liverl-tui"))
            return []
        if is_trial(names):
            self._trials(TrialFolder(folder, 1, 0, os.stat(folder).st_mtime, single=True))
            return []
        self._entries -= len(entries)
        if self._entries < 0:
            self._limit(f"more than {ENTRIES} files and folders; those below {folder} were not examined")
            return []
        folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        found = trial_folder(folder, folders)
        if found is not None:
            self._trials(found)
            folders = [n for n in folders if not (STEP_DIR.fullmatch(n) or is_named_as_trial(n))]
            folders = [n for n in folders if not is_trial(_names(folder / n))]
        events = [entry.name for entry in entries if is_event_file(entry.name)]
        if events:
            self.metrics.append(folder)
            self.add(Input(str(folder), f"{_EVENTS}, {quantity(len(events), 'file')}"))
            entries = [entry for entry in entries if entry.name not in events]
        for entry in entries:
            if entry.is_symlink() and os.path.isdir(entry.path):
                self._link(Path(entry.path), linked=linked)
            elif not entry.is_dir(follow_symlinks=False):
                self._file(Path(entry.path))
        return [
            folder / name for name in folders if name not in _SKIPPED and not name.startswith("global_step_")
        ]

    def _link(self, path: Path, *, linked: bool) -> None:
        """A link to a folder: logs often lie on another disk. What lies in the named folders is found anyway."""
        real = os.path.realpath(path)
        if any(real == root or real.startswith(root.rstrip("/") + "/") for root in self._roots):
            self.add(Input(str(path), f"a link to {real}"))
        elif linked:
            self.add(Input(str(path), f"a link to {real}, not followed", missed=path.name not in _SKIPPED))
        elif path.name not in _SKIPPED:
            self._roots.add(real)
            self._links.setdefault(path.parent, []).append(path)

    def _file(self, path: Path) -> None:
        if self.left_out or (self._unpacked and os.path.realpath(path) in self._unpacked):
            return
        one = look(path, named=False)
        self.add(one)
        self._note_metrics(path)
        self._logs += one.read
        if self._logs > FILES:
            self._limit(f"more than {FILES} logs; those after {path} were not examined")

    def _note_metrics(self, path: Path) -> None:
        if path.suffix == ".jsonl" and has_steps(path):
            self.metrics.append(path)

    def _trials(self, found: TrialFolder) -> None:
        self.trials.append(found)
        self.add(Input(str(found.path), found.words))

    def _limit(self, why: str) -> None:
        self.left_out = why
        self.add(Input(MORE, why))


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


def _newest(run: RunDir) -> tuple[bool, float]:
    """What orders runs: one that goes on, then by the time of the newest of its files."""
    times = []
    for path in (run.events, run.result, run.snapshot, run.path):
        try:
            times.append(os.stat(path).st_mtime)
        except OSError:
            continue
    return isinstance(backend_alive(run.path), LiveBackend | RemoteBackend), max(times, default=0.0)


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


def removed_of(run: RunDir) -> list[str]:
    """What ``clean`` has removed of the newest attempt's logs and of the trials, in words."""
    attempts, result = run.attempts()[-1:], run.read_result()
    ended = result.ended_at if result is not None else 0.0
    return [
        one.words
        for one in read_cleaned(run.path)
        if (set(attempts) & set(one.attempts) if one.what == "logs" else one.at >= ended)
    ]


def _of_run(run: RunDir) -> Iterator[Input]:
    """The logs of the newest attempt."""
    attempts = run.attempts()
    if not attempts:
        return
    folder = run.logs(attempts[-1])
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        yield unreadable(folder, error)
        return
    for name in names:
        if not name.endswith(".idx"):
            yield look(folder / name, named=False, own=True)
    for path in sorted(run.stacks(attempts[-1]).glob(f"*{SUFFIX}")):
        yield look(path, named=True)


def _damaged(run: RunDir) -> Iterator[Input]:
    """What a run's backend has written of it and what cannot be read."""
    for path, content in ((run.result, run.read_result), (run.snapshot, run.read_snapshot)):
        if os.path.lexists(path) and content() is None:
            yield Input(str(path), f"{UNREADABLE}: damaged, or written by another version", missed=True)


def _standing(run: RunDir) -> str:
    result = run.read_result()
    if result is not None:
        why = f", {words_of(result.cause)}" if result.cause is not None else ""
        return f"{result.state}, attempt {result.attempt}, {ago(time.time() - result.ended_at)} ago{why}"
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
        name = read_log_name(service.log)
        if service.failed_at is None or name is None or (service.ready_at or 0.0) >= service.failed_at:
            continue
        for number in (name.generation, name.generation - 1):
            ended = exit_of(run, service.name, number)
            if ended is not None and not ended.ok and (ended.at or 0.0) <= service.failed_at:
                log = str(run.path / str(name._replace(generation=number)))
                yield Exit(service.name, log, ended.code, ended.signal, ended.at)
                break


def exit_of(run: RunDir, service: str, number: int) -> model.Exit | None:
    """What the keeper has written of the end of a service's process; None if it cannot be read."""
    file = run.path / "exits" / f"{service}.{number}.json"
    try:
        return decode_json(read_regular(file, 1 << 20), type=_Kept).exit
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
        return unreadable(path, error, named=named)
    try:
        size = os.fstat(fd).st_size
        head = os.pread(fd, HEAD, 0)
        tail = os.pread(fd, HEAD, size - HEAD) if size > 2 * HEAD else os.pread(fd, HEAD, HEAD)
    except OSError as error:
        return unreadable(path, error, named=named)
    finally:
        os.close(fd)
    kind = kind_of(path.name, head, tail, named=named, own=own)
    return Input(shown, kind.words, kind.log, size, kind.missed)


def unreadable(path: Path, error: OSError, *, named: bool = False) -> Input:
    """A file or folder that cannot be read. One that has gone is missed only if the user named it: a link may point to
    what was removed long ago."""
    why = f"{UNREADABLE}: {error.strerror or error}"
    return Input(str(path), why, missed=named or error.errno != errno.ENOENT)
