"""What a run's directory holds by kind, what of it may go, and with which command. Blocking; nothing is removed."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from liverl.model import SCHEMA
from liverl.observe.checkpoint_files import is_checkpoint
from liverl.observe.checkpoints import LATEST
from liverl.offline.checkpoint_aside import SetAside, is_aside
from liverl.offline.checkpoints import (
    CheckpointList,
    CheckpointRow,
    NoCheckpoints,
    best_words,
    list_checkpoints,
    set_aside_rows,
    to_prune,
)
from liverl.offline.clean_items import Found, Item, What
from liverl.offline.clean_run import collect_run, refusal
from liverl.rundir.commands import run_words
from liverl.rundir.layout import RunDir
from liverl.util.tree_size import TreeSize, allocated, measure

# What ``clean`` and ``checkpoints prune`` may remove, by kind; all else is kept, or the user's.
TRIALS, LOGS, CHECKPOINTS, ASIDE, EXPORTS, SAVED, RECORDS = (
    "trials",
    "logs",
    "checkpoints",
    "checkpoints set aside",
    "exported models",
    "saved by you",
    "records",
)
_ATTEMPT = re.compile(r"attempt_\d{3,9}")
_ORDER = (CHECKPOINTS, ASIDE, EXPORTS, TRIALS, LOGS, SAVED, RECORDS)


class DiskRow(msgspec.Struct, frozen=True):
    """A kind of files. ``may_go``: the command that removes what is not needed of it, empty if nothing of it may go;
    ``why``: what it is for, or why it stays; ``goes``: of ``bytes`` those that the command would remove now, 0 while it
    would be refused; None: what would go is not known."""

    kind: str
    files: int
    bytes: int
    may_go: str
    why: str
    goes: int | None = 0


class RunDisk(msgspec.Struct, frozen=True):
    """``live``: why no trial and no log may go now, empty if they may; ``rows``: the largest first; ``checkpoints``: of
    the run, which may lie elsewhere, in ``folder``, and ``no_checkpoints``: why there are none; ``best``: which one
    is the best and by what; ``free``: bytes on the disk of the run's directory for this user; ``problems``: what could
    not be looked at; ``set_aside``: checkpoints that going back has set aside; ``prune``: bytes that ``checkpoints
    prune --keep 1`` would remove in ``folder``, None: not known."""

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
    set_aside: tuple[SetAside, ...] = ()
    prune: int | None = 0


def run_disk(run_dir: Path, say: Callable[[str], None] = lambda _: None) -> RunDisk:
    """Look at everything in the run's directory. Links are not followed. ``say`` hears what is being counted, and how
    far it is.

    Raises:
        OSError: the directory cannot be listed.
    """
    run = RunDir(run_dir)
    inside = _inside(run_dir)
    live = refusal(run_dir)
    sums: dict[str, list[int]] = {}
    problems: list[str] = []

    def add(kind: str, files: int, size: int) -> None:
        total = sums.setdefault(kind, [0, 0])
        total[0], total[1] = total[0] + files, total[1] + size

    folder, none, best = "", "", ""
    checkpoints: tuple[CheckpointRow, ...] = ()
    aside: tuple[SetAside, ...] = ()
    prune: int | None = 0
    goes: dict[str, int | None] = {}
    # Whether the checkpoints are in the run's directory, and were counted with their list: so sum and list agree.
    listed = False
    try:
        found = list_checkpoints(run_dir, say, problems.append)
        folder, checkpoints, best, aside = found.folder, found.rows, best_words(found), found.set_aside
        prune = _pruned(found)
        if Path(folder) == Path(os.path.realpath(run.checkpoints)) and not run.checkpoints.is_symlink():
            goes[CHECKPOINTS], goes[ASIDE] = prune, _given_up(run_dir, found)
            listed = True
            for row in checkpoints:
                add(CHECKPOINTS, row.files, row.bytes)
    except NoCheckpoints as error:
        none = str(error)
    cleaned = _cleaned(run_dir, live, say)
    entries = list(_entries(run, inside, listed=listed))
    of_kind = Counter(kind for kind, _, _ in entries)
    so_far: Counter[str] = Counter()
    for kind, path, alone in entries:
        so_far[kind] += 1
        say(f"counting {kind}, {so_far[kind]} of {of_kind[kind]}")
        try:
            size = _measured(path, cleaned, alone=alone)
        except OSError as error:
            problems.append(f"{path}: {error.strerror or error}")
            continue
        add(kind, size.files, size.bytes)
        if size.problem:
            problems.append(size.problem)
    for kind in (TRIALS, LOGS):
        goes[kind] = sum(item.size.bytes for item in cleaned.values() if item.what == kind)
    rows = [
        DiskRow(kind, files, size, *_remedy(kind, run), goes.get(kind, 0))
        for kind in _ORDER
        if (found_of := sums.get(kind)) is not None
        for files, size in [found_of]
    ]
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
        set_aside=aside,
        prune=prune,
    )


def _cleaned(run_dir: Path, live: str, say: Callable[[str], None]) -> dict[Path, Item]:
    """What ``clean --all`` would remove of trials and logs, by its path: nothing of a run of which it is refused."""
    if live:
        return {}
    wanted: set[What] = {"trials", "logs"}
    found = Found([], [], {})
    collect_run(run_dir, wanted, found, say)
    return {item.path: item for item in found.items if item.what in wanted}


def _pruned(listed: CheckpointList) -> int | None:
    """Bytes that ``checkpoints prune --keep 1`` would remove; None where it removes nothing until the best is known."""
    if listed.best_unknown:
        return None
    return sum(row.bytes for row in to_prune(listed.rows, 1)) + _size(map(Path, listed.half_removed))


def _given_up(run_dir: Path, listed: CheckpointList) -> int | None:
    """Bytes that ``checkpoints prune --set-aside`` would remove."""
    if listed.best_unknown:
        return None
    return sum(row.bytes for row in set_aside_rows(run_dir, listed) if not row.keeps)


def _size(paths: Iterable[Path]) -> int:
    total = 0
    for path in paths:
        with suppress(OSError):
            total += measure(path).bytes
    return total


def _measured(path: Path, cleaned: Mapping[Path, Item], *, alone: bool) -> TreeSize:
    """``alone``: a folder without what it holds.

    Raises:
        OSError: it cannot be looked at.
    """
    if alone:
        return TreeSize(bytes=allocated(os.lstat(path)))
    return cleaned[path].size if path in cleaned else measure(path)


def _entries(run: RunDir, inside: Iterable[Path], *, listed: bool) -> Iterator[tuple[str, Path, bool]]:
    """What is looked at as one, with its kind: an entry of the directory, of an attempt, and of the folders of which
    some entries may go and others stay. The last says that such a folder itself is meant. ``inside``: the entries of
    the directory; ``listed``: without the checkpoints, of which the sizes are known, or which came later."""
    for path in inside:
        if _ATTEMPT.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            for inner in _inside(path):
                kind = LOGS if inner.name == "logs" else RECORDS
                yield from _parts(kind, inner) if kind == LOGS else [(kind, inner, False)]
        elif path == run.trials:
            yield from _parts(TRIALS, path)
        elif path == run.checkpoints:
            yield from _beside_checkpoints(path, listed=listed)
        else:
            yield _kind(run, path), path, False


def _parts(kind: str, folder: Path) -> Iterator[tuple[str, Path, bool]]:
    if not folder.is_dir() or folder.is_symlink():
        yield kind, folder, False
        return
    yield kind, folder, True
    for path in _inside(folder):
        yield kind, path, False


def _beside_checkpoints(folder: Path, *, listed: bool) -> Iterator[tuple[str, Path, bool]]:
    """The folder of the checkpoints and the trainer's mark in it are records: so the size of the checkpoints is the sum
    of their list."""
    for kind, path, alone in _parts(CHECKPOINTS, folder):
        if alone or path.name == LATEST:
            yield RECORDS, path, alone
        elif is_aside(path.name):
            yield ASIDE, path, alone
        elif not (listed and is_checkpoint(path)):
            yield kind, path, alone


def _inside(folder: Path) -> list[Path]:
    return [folder / name for name in sorted(os.listdir(folder))]


def _kind(run: RunDir, path: Path) -> str:
    """Of an entry of the run's directory."""
    if path.name.startswith("trials."):
        return TRIALS
    if path == run.exports:
        return EXPORTS
    return SAVED if path.name in ("screenshots", "saved", "copied") else RECORDS


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
        ASIDE: (
            f"liverl-tui checkpoints prune {words} --set-aside",
            f"until `liverl-tui checkpoints back {words} --undo` brings them back",
        ),
        EXPORTS: ("", "models that you have exported: remove them by hand"),
        SAVED: ("", "pictures, tables and texts that the interface saved: remove them by hand"),
        RECORDS: ("", "configuration, plan, metrics, events, reports: small, and the run's memory"),
    }[kind]
