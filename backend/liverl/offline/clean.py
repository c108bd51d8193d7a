"""Removes what runs that have ended left behind, and on request their logs and trials. Only what belongs to these runs
is removed; checkpoints, environments, results, reports and metrics never are."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from liverl.offline.clean_host import collect_host, collect_unfinished
from liverl.offline.clean_items import Found, Item, Left, What, run_name
from liverl.offline.clean_run import collect_run, refusal
from liverl.offline.clean_sandboxes import collect_sandboxes, remove_sandboxes
from liverl.rundir.cleaned import Removal, add_cleaned
from liverl.rundir.index import RunInfo
from liverl.rundir.layout import RunDir
from liverl.util.lock_file import held_lock
from liverl.util.remove_tree import remove_tree
from liverl.util.tree_size import TreeSize, measure

_HELD = "a backend holds its lock: it has just been started"


@dataclass
class Outcome:
    """What was removed. ``sandboxes``: things in Docker; ``failed``: what could not be, and why."""

    files: int = 0
    bytes: int = 0
    sandboxes: int = 0
    failed: list[Left] = field(default_factory=list)


def find(
    run_dirs: Sequence[Path],
    known: Sequence[RunInfo],
    wanted: Set[What],
    *,
    root: Path | None = None,
    sandboxes: bool = False,
    kept: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Found:
    """What can be removed of these runs. ``known``: all runs, whose files others may be using; ``wanted``: ``logs``,
    ``trials`` or both, besides leftovers; ``root``: the run root, where all its projects count; None: only what belongs
    to ``run_dirs``; ``sandboxes``: also what they have in Docker, with ``kept`` what was kept there on request."""
    found = Found([], [], {}, kept=kept)
    ended = []
    for run_dir in dict.fromkeys(map(_real, run_dirs)):
        say(f"looking at {run_dir}")
        if why := refusal(run_dir):
            found.refused[run_dir] = why
            found.left.append(Left(str(run_dir), run_name(run_dir), why))
        else:
            ended.append(run_dir)
            collect_run(run_dir, wanted, found)
            if sandboxes:
                collect_sandboxes(run_dir, found)
    others = dict(found.refused)
    for run_dir in dict.fromkeys(_real(info.run_dir) for info in known):
        if run_dir not in others and run_dir not in ended and (why := refusal(run_dir)):
            others[run_dir] = why
    say("looking for leftovers on this host")
    collect_host(ended, others, found, everything=root is not None)
    projects = sorted({run_dir.parent for run_dir in ended} | set(_projects(root)))
    named = {} if root is not None else _names_of(ended)
    collect_unfinished(projects, named, found)
    return found


def _real(run_dir: Path) -> Path:
    """A run's directory, without links. A link to it that another user has made stays one, which is then refused."""
    place = Path(os.path.realpath(run_dir.parent), run_dir.name)
    try:
        status = os.lstat(place)
    except OSError:
        return place
    own = stat.S_ISLNK(status.st_mode) and status.st_uid == os.geteuid()
    return Path(os.path.realpath(place)) if own else place


def _projects(root: Path | None) -> list[Path]:
    if root is None:
        return []
    try:
        return [
            Path(entry.path)
            for entry in os.scandir(os.path.realpath(root))
            if entry.is_dir(follow_symlinks=False)
        ]
    except OSError:
        return []


def _names_of(run_dirs: Sequence[Path]) -> dict[Path, set[str]]:
    names: dict[Path, set[str]] = {}
    for run_dir in run_dirs:
        names.setdefault(run_dir.parent, set()).add(run_dir.name)
    return names


def remove(found: Found, say: Callable[[str], None] = lambda _: None) -> Outcome:
    """Remove what was found, of each run under its lock, so that no attempt begins meanwhile. A run that is not ended
    any more loses nothing."""
    outcome = Outcome()
    by_run: dict[Path | None, list[Item]] = {}
    for item in found.items:
        by_run.setdefault(item.run_dir, []).append(item)
    for owner in found.sandboxes:
        by_run.setdefault(owner, [])
    for run_dir, items in by_run.items():
        if run_dir is None:
            _remove_all(items, outcome, [], say)
            continue
        with held_lock(RunDir(run_dir).lock, _HELD, only_locked=True) as why:
            why = why or refusal(run_dir)
            if why:
                outcome.failed.append(Left(str(run_dir), run_name(run_dir), why))
                continue
            if run_dir in found.sandboxes:
                say(f"removing what {run_name(run_dir)} has in Docker")
                number, failed = remove_sandboxes(run_dir, found.kept)
                outcome.sandboxes += number
                outcome.failed += failed
            gone: list[tuple[Item, TreeSize]] = []
            try:
                _remove_all(items, outcome, gone, say)
            finally:  # also after Ctrl-C: what has gone is missed
                _note(run_dir, gone, outcome)
    return outcome


def _note(run_dir: Path, gone: Sequence[tuple[Item, TreeSize]], outcome: Outcome) -> None:
    """Record in the run what it has lost."""
    try:
        if removals := _removals(gone):
            add_cleaned(run_dir, removals)
    except OSError as error:
        text = f"what was removed could not be noted there: {error.strerror or error}"
        outcome.failed.append(Left(str(RunDir(run_dir).cleaned), run_name(run_dir), text))


def _remove_all(
    items: Sequence[Item],
    outcome: Outcome,
    gone: list[tuple[Item, TreeSize]],
    say: Callable[[str], None],
) -> None:
    """Remove items. ``gone`` gets what went of each that lost something."""
    for item in items:
        say(f"removing {item.path}")
        errors = remove_tree(item.path, inside=item.inside)
        left = _left_of(item) if errors else TreeSize()
        went = TreeSize(max(0, item.size.files - left.files), max(0, item.size.bytes - left.bytes))
        outcome.files += went.files
        outcome.bytes += went.bytes
        if not errors or went.files:
            gone.append((item, went))
        for error in errors:
            path = os.fspath(error.filename or item.path)
            outcome.failed.append(Left(path, run_name(item.run_dir), error.strerror or str(error)))


def _left_of(item: Item) -> TreeSize:
    try:
        return measure(item.path, inside=item.inside)
    except OSError:  # nothing is left, or it cannot be told: what is not known to have gone is not counted
        return TreeSize() if not os.path.lexists(item.path) else item.size


def _removals(gone: Sequence[tuple[Item, TreeSize]]) -> tuple[Removal, ...]:
    """The record of what went of one run."""
    removals = []
    kinds: tuple[Literal["logs", "trials"], ...] = ("logs", "trials")
    for what in kinds:
        of = [(item, size) for item, size in gone if item.what == what]
        if of:
            files, count = sum(size.files for _, size in of), sum(size.bytes for _, size in of)
            attempts = tuple(sorted({item.attempt for item, _ in of if item.attempt}))
            removals.append(Removal(what, time.time(), files, count, attempts))
    return tuple(removals)
