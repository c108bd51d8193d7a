"""Which environments of ours nobody has used for long: built ones in the cache, copies on local disks, and what killed
builders left. What a run that may still be going on names is never removed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from liverl.control.paths import user_name
from liverl.environments import BuildError, resolve
from liverl.environments.local_copy import NEVER, RECORD, base_of, family
from liverl.environments.resolve import MARKER
from liverl.offline.clean_run import refusal
from liverl.plan.moved import read_plan
from liverl.procs.path_users import users_of
from liverl.rundir.index import RunInfo
from liverl.rundir.layout import RunDir
from liverl.util.ages import ago
from liverl.util.lock_file import held_lock
from liverl.util.plural import quantity
from liverl.util.regular_file import read_regular
from liverl.util.remove_tree import remove_tree
from liverl.util.tree_size import measure

UNUSED_DAYS = 30  # for so long nobody has used what is removed
_DAY = 86400.0
Kind = Literal["environment", "copy", "unfinished"]


class Kept(msgspec.Struct, frozen=True):
    """A folder that stays, and why: the end of a sentence."""

    path: str
    why: str


class Unused(msgspec.Struct, frozen=True):
    """A folder that can go. ``used``: when it was used last, Unix seconds; ``lock``: under which it is made."""

    path: str
    kind: Kind
    files: int
    bytes: int
    used: float
    lock: str


class Collected(msgspec.Struct, frozen=True):
    """``unused``: what can go, ``kept``: what stays."""

    unused: tuple[Unused, ...]
    kept: tuple[Kept, ...]


class GcReport(msgspec.Struct, frozen=True):
    """What ``envs gc --json`` prints. ``removed``: whether it was tried; ``unused``: what was found to be removed;
    ``bytes``: what went; ``failed``: what could not be removed."""

    removed: bool
    unused: tuple[Unused, ...]
    kept: tuple[Kept, ...]
    bytes: int
    failed: tuple[Kept, ...]


class Named(msgspec.Struct, frozen=True):
    """What runs that may still be going on use. ``by``: folder of an environment, or of all copies of one -> the run;
    ``unknown``: why that is not known of a run, so that nothing may go."""

    by: dict[str, str]
    unknown: tuple[str, ...]


def named_by_runs(runs: Sequence[RunInfo], cache: Path) -> Named:
    """Which environments the plans of runs name that are live, or of which it is not known that they have ended."""
    by: dict[str, str] = {}
    unknown = []
    for info in runs:
        why = refusal(info.run_dir)
        if not why:
            continue
        try:
            plan = read_plan(read_regular(RunDir(info.run_dir).plan))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            unknown.append(f"{info.run} ({why}), and its plan cannot be read: {error}")
            continue
        for spec in plan.environments:
            try:
                place = resolve(spec, cache)
            except BuildError as error:
                unknown.append(f"{info.run} ({why}), and its environment {spec.name!r} is not known: {error}")
                continue
            if place.kind != "own":
                root = place.python.parent.parent
                by[str(root)] = info.run
                if spec.local_copy != NEVER:
                    by[str(family(root, base_of(spec.local_copy)))] = info.run
    return Named(by, tuple(unknown))


def collect(
    cache: Path, bases: Iterable[Path], named: Named, *, now: float, days: float = UNUSED_DAYS
) -> Collected:
    """What can go below ``cache`` and the folders of copies ``bases``. Nothing is removed.

    Raises:
        OSError: /proc cannot be read.
    """
    found: list[tuple[Path, Kind, Path, float]] = []
    kept: list[Kept] = []
    for path, kind, lock, used in _folders(cache, bases):
        reason = _reason(path, named, now - used, days if kind != "unfinished" else 0.0)
        if reason:
            kept.append(Kept(str(path), reason))
        else:
            found.append((path, kind, lock, used))
    users = users_of([path for path, *_ in found])
    unused = []
    for path, kind, lock, used in found:
        if path in users:
            kept.append(Kept(str(path), f"{users[path]} uses it"))
            continue
        try:
            size = measure(path)
        except OSError as error:
            kept.append(Kept(str(path), f"it cannot be looked at: {error.strerror}"))
            continue
        if size.foreign is not None:
            why = f"{size.foreign[0]} in it belongs to {user_name(size.foreign[1])}"
            kept.append(Kept(str(path), why))
        elif size.problem:
            kept.append(Kept(str(path), size.problem))
        else:
            unused.append(Unused(str(path), kind, size.files, size.bytes, used, str(lock)))
    return Collected(tuple(unused), tuple(kept))


def _reason(path: Path, named: Named, age: float, days: float) -> str:
    if named.unknown:
        return f"it may be used by run {named.unknown[0]}"
    for folder in (path, path.parent):
        if str(folder) in named.by:
            return f"the plan of run {named.by[str(folder)]} names it, and that run has not ended"
    if age < days * _DAY:
        return f"it was used {ago(age)} ago, less than {quantity(days, 'day')}"
    return ""


def _folders(cache: Path, bases: Iterable[Path]) -> Iterator[tuple[Path, Kind, Path, float]]:
    """(folder, kind, its lock, when it was used last)."""
    for path in _children(cache / "envs"):
        name = path.name
        if name.startswith(".build-"):
            yield path, "unfinished", path.with_name(f".{name[7:].rpartition('-')[0]}.lock"), _changed(path)
        elif not name.startswith("."):
            marker = path / MARKER
            kind: Kind = "environment" if marker.is_file() else "unfinished"
            yield path, kind, path.with_name(f".{name}.lock"), _changed(marker if marker.is_file() else path)
    for base in bases:
        for folder in _children(base):
            for path in _children(folder):
                if path.name.startswith(".") and not path.name.startswith(".copy-"):
                    continue
                record = path / RECORD
                whole = record.is_file()
                yield (
                    path,
                    "copy" if whole else "unfinished",
                    folder / ".environment.lock",
                    _changed(record if whole else path),
                )


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(Path(e.path) for e in os.scandir(folder) if e.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()  # it goes just now


def remove(unused: Unused) -> str:
    """Remove one; why it was left, or "" if it is gone. It is left if somebody makes or uses it since it was found."""
    path = Path(unused.path)
    with held_lock(unused.lock, "another process is making it") as why:
        if why:
            return why
        used = next((u for p, _, _, u in _again(path) if p == path), None)
        if used is None:
            return ""
        if used != unused.used:
            return "it was used a moment ago"
        gone = path.with_name(f".gone-{path.name}-{os.getpid()}")
        try:
            path.rename(gone)  # at once, so that nobody starts a part of it
            failed = remove_tree(gone)
        except OSError as error:
            return f"{error.filename or path}: {error.strerror}"
        return f"{failed[0].filename}: {failed[0].strerror}" if failed else ""


def _again(path: Path) -> Iterator[tuple[Path, Kind, Path, float]]:
    """What ``_folders`` says of one folder now."""
    return _folders(path.parent.parent, [path.parent.parent])
