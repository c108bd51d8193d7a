"""What a run's directory holds by kind, what of it may go, and with which command. Blocking; nothing is removed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from liverl.model import SCHEMA
from liverl.offline.checkpoints import CheckpointRow, NoCheckpoints, best_words, list_checkpoints
from liverl.offline.clean_run import refusal
from liverl.rundir.commands import run_words
from liverl.rundir.layout import RunDir
from liverl.util.tree_size import measure

# What ``clean`` and ``checkpoints prune`` may remove, by kind; all else is kept, or the user's.
TRIALS, LOGS, CHECKPOINTS, EXPORTS, SAVED, RECORDS = (
    "trials",
    "logs",
    "checkpoints",
    "exported models",
    "saved by you",
    "records",
)
_ATTEMPT = re.compile(r"attempt_\d{3,9}")
_ORDER = (CHECKPOINTS, EXPORTS, TRIALS, LOGS, SAVED, RECORDS)


class DiskRow(msgspec.Struct, frozen=True):
    """A kind of files. ``may_go``: the command that removes what is not needed of it, empty if nothing of it may go;
    ``why``: what it is for, or why it stays."""

    kind: str
    files: int
    bytes: int
    may_go: str
    why: str


class RunDisk(msgspec.Struct, frozen=True):
    """``live``: why nothing may go now, empty if it may; ``rows``: the largest first; ``checkpoints``: of the run,
    which may lie elsewhere, in ``folder``, and ``no_checkpoints``: why there are none; ``best``: which one
    is the best and by what; ``free``: bytes on the disk of
    the run's directory for this user; ``problems``: what could not be looked at."""

    run: str
    run_dir: str
    bytes: int
    free: int
    live: str
    rows: tuple[DiskRow, ...]
    folder: str = ""
    checkpoints: tuple[CheckpointRow, ...] = ()
    no_checkpoints: str = ""
    problems: tuple[str, ...] = ()
    best: str = ""
    schema: int = SCHEMA


def run_disk(run_dir: Path, say: Callable[[str], None] = lambda _: None) -> RunDisk:
    """Look at everything in the run's directory. Links are not followed.

    Raises:
        OSError: the directory cannot be listed.
    """
    run = RunDir(run_dir)
    sums: dict[str, list[int]] = {}
    problems: list[str] = []
    for path in _entries(run_dir):
        kind = _kind(run, path)
        say(f"counting {kind}")
        try:
            found = measure(path)
        except OSError as error:
            problems.append(f"{path}: {error.strerror or error}")
            continue
        total = sums.setdefault(kind, [0, 0])
        total[0], total[1] = total[0] + found.files, total[1] + found.bytes
        if found.problem:
            problems.append(found.problem)
    live = refusal(run_dir)
    rows = [
        DiskRow(kind, files, size, *_remedy(kind, run))
        for kind in _ORDER
        if (found_of := sums.get(kind)) is not None
        for files, size in [found_of]
    ]
    folder, none, best = "", "", ""
    checkpoints: tuple[CheckpointRow, ...] = ()
    try:
        listed = list_checkpoints(run_dir)
        folder, checkpoints, best = listed.folder, listed.rows, best_words(listed)
    except NoCheckpoints as error:
        none = str(error)
    free = os.statvfs(run_dir)
    return RunDisk(
        run.name,
        str(run_dir),
        sum(row.bytes for row in rows),
        free.f_bavail * free.f_frsize,
        live,
        tuple(sorted(rows, key=lambda row: -row.bytes)),
        folder,
        checkpoints,
        none,
        tuple(problems),
        best if checkpoints else "",
    )


def _entries(run_dir: Path) -> Iterator[Path]:
    """What is looked at as one: an entry of the directory, and of an attempt."""
    for name in sorted(os.listdir(run_dir)):
        path = run_dir / name
        if _ATTEMPT.fullmatch(name) and path.is_dir() and not path.is_symlink():
            yield from (path / inner for inner in sorted(os.listdir(path)))
        else:
            yield path


def _kind(run: RunDir, path: Path) -> str:
    if path == run.trials or (path.parent == run.path and path.name.startswith("trials.")):
        return TRIALS
    if path.name == "logs" and path.parent != run.path:
        return LOGS
    if path == run.checkpoints:
        return CHECKPOINTS
    if path == run.exports:
        return EXPORTS
    if path.parent == run.path and path.name in ("screenshots", "saved", "copied"):
        return SAVED
    return RECORDS


def _remedy(kind: str, run: RunDir) -> tuple[str, str]:
    """The command that removes what may go of a kind, and what the kind is for."""
    words = run_words(run.path)
    return {
        TRIALS: (f"liverl-tui clean {words} --trials", "transcripts, rewards and tokens of each trial"),
        LOGS: (f"liverl-tui clean {words} --logs", "what the services printed"),
        CHECKPOINTS: (
            f"liverl-tui checkpoints prune {words} --keep 1",
            "what the run goes on from; the newest, the best and exported ones stay",
        ),
        EXPORTS: ("", "models that you have exported: remove them by hand"),
        SAVED: ("", "pictures, tables and texts that the interface saved: remove them by hand"),
        RECORDS: ("", "configuration, plan, metrics, events, reports: small, and the run's memory"),
    }[kind]
