"""The checkpoints of a run: which there are, which can go, and their removal.

Never removed: the newest complete one, from which the trainer resumes; the best by validation, or without any by the
training reward; exported ones; what the trainer of a live run may be writing; and what is not known to be broken or
confirmed."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec

from liverl.control.paths import user_name
from liverl.model import SCHEMA
from liverl.observe.checkpoint_files import (
    CheckpointFiles,
    checkpoint_steps,
    half_removed,
    latest_step,
    read_checkpoint,
)
from liverl.observe.metrics.series import SeriesSet, fullest, series_of, validation_key
from liverl.offline.checkpoint_aside import SetAside, is_aside, remove_if_empty, set_aside_folders, went_back
from liverl.offline.clean_run import refusal
from liverl.plan.checkpoints import checkpoints as folder_of
from liverl.plan.moved import read_plan
from liverl.plan.spec import Plan
from liverl.rundir.layout import RunDir
from liverl.util.atomic_file import write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.checked_path import open_folder
from liverl.util.decode import decode_json
from liverl.util.lock_file import held_lock
from liverl.util.regular_file import read_regular
from liverl.util.remove_tree import remove_tree
from liverl.util.tree_size import measure


class NoCheckpoints(Exception):
    """There is nothing to look at; the message says why."""


class Export(msgspec.Struct, frozen=True):
    """A checkpoint that was exported. ``target``: the folder with the model; ``at``: Unix seconds."""

    step: int
    target: str
    at: float


class CheckpointRow(msgspec.Struct, frozen=True):
    """One checkpoint. ``state``: complete, incomplete or unknown, and ``why``; ``validation``: the score after its
    step, None if none was recorded; ``reward``: the mean training reward of the three steps up to its own; ``keeps``:
    why it is never removed, empty if it may be; ``exported``: where to."""

    step: int
    path: str
    state: str
    why: str
    format: str
    world_size: int | None
    files: int
    bytes: int
    saved_at: float
    newest: bool = False
    best: bool = False
    validation: float | None = None
    exported: tuple[str, ...] = ()
    keeps: str = ""
    reward: float | None = None


class CheckpointList(msgspec.Struct, frozen=True):
    """What ``checkpoints ls --json`` prints. ``folder``: where they are; ``live``: why something may still be written
    there, empty if nothing is; ``score``: the metric by which the best is the best, and ``no_score``: why it is not a
    validation, or why there is no best one;
    ``half_removed``: what an interrupted ``prune`` has left; ``free``: bytes on that disk for this user;
    ``best_unknown``: the metrics cannot be read, so that nothing is removed; ``set_aside``: what going back to an
    earlier checkpoint has set aside, the oldest first: neither in ``rows`` nor in ``bytes``."""

    run: str
    folder: str
    live: str
    latest: int | None
    score: str
    no_score: str
    rows: tuple[CheckpointRow, ...]
    half_removed: tuple[str, ...]
    bytes: int
    free: int
    best_unknown: bool = False
    schema: int = SCHEMA
    set_aside: tuple[SetAside, ...] = ()


class Failed(msgspec.Struct, frozen=True):
    """What could not be removed, and why."""

    path: str
    why: str


class PruneReport(msgspec.Struct, frozen=True):
    """What ``checkpoints prune --json`` prints. ``removed``: whether it was tried; ``rows``: the checkpoints that go,
    ``kept``: those that stay, each with its reason in ``keeps``; ``leftovers``: of an interrupted ``prune``, which go,
    too; ``bytes``: what went."""

    run: str
    folder: str
    removed: bool
    rows: tuple[CheckpointRow, ...]
    kept: tuple[CheckpointRow, ...]
    leftovers: tuple[str, ...]
    bytes: int
    failed: tuple[Failed, ...]
    schema: int = SCHEMA


def place_of(run_dir: Path) -> Path:
    """The folder of a run's checkpoints: a link or the trainer's own value may lead elsewhere."""
    plan = plan_of(run_dir)
    return folder_of(plan, run_dir) if plan is not None else RunDir(run_dir).checkpoints


def plan_of(run_dir: Path) -> Plan | None:
    """The run's plan; None if it cannot be read."""
    try:
        return read_plan(read_regular(RunDir(run_dir).plan))
    except (OSError, *BAD_JSON):
        return None


def list_checkpoints(
    run_dir: Path,
    say: Callable[[str], None] = lambda _: None,
    uncounted: Callable[[str], None] = lambda _: None,
) -> CheckpointList:
    """Look at all checkpoints of a run. Blocking. ``say`` hears how far it is, ``uncounted`` what could not be counted
    of a checkpoint, and why.

    Raises:
        NoCheckpoints: there is no such folder, or it cannot be read.
    """
    base = Path(os.path.realpath(place_of(run_dir)))
    try:
        steps, leftovers = checkpoint_steps(base), half_removed(base)
        latest, why_none = latest_step(base)
        found = []
        for number, (step, path) in enumerate(steps.items(), 1):
            say(f"counting checkpoint {number} of {len(steps)}")
            if (one := _looked_at(step, path, latest, why_none)) is not None:
                found.append(one)
                if one.uncounted:
                    uncounted(one.uncounted)
        free, aside = os.statvfs(base), set_aside_folders(base)
        leftovers += tuple(path for one in aside for path in half_removed(Path(one.path)))
    except FileNotFoundError:
        raise NoCheckpoints(f"no checkpoint was written yet: there is no {base}") from None
    except OSError as error:
        raise NoCheckpoints(f"{error.filename or base}: {error.strerror or error}") from error
    scores = scores_of(run_dir)
    live, exported = refusal(run_dir), _by_step(read_exports(run_dir))
    rows = _rows(found, latest, scores, exported, live)
    run = f"{run_dir.parent.name}/{run_dir.name}"
    left = tuple(map(str, leftovers))
    total = sum(row.bytes for row in rows)
    return CheckpointList(
        run,
        str(base),
        live,
        latest,
        scores.key,
        scores.why_none,
        rows,
        left,
        total,
        free.f_bavail * free.f_frsize,
        scores.unreadable,
        set_aside=aside,
    )


def set_aside_rows(run_dir: Path, found: CheckpointList) -> tuple[CheckpointRow, ...]:
    """The checkpoints that were set aside, for ``prune``. One whose step was exported stays. Blocking.

    Raises:
        NoCheckpoints: the record of the exported ones cannot be read.
    """
    scores, exported = scores_of(run_dir), _by_step(read_exports(run_dir))
    rows: list[CheckpointRow] = []
    for folder in found.set_aside:
        record = went_back(Path(folder.path))
        looked_at = [
            one
            for step, path in checkpoint_steps(Path(folder.path)).items()
            if (
                one := _looked_at(
                    step, path, record.latest if record is not None else None, "nothing tells more"
                )
            )
        ]
        for row in _rows(looked_at, None, scores, exported, ""):
            keeps = f"exported to {row.exported[-1]}" if row.exported else ""
            rows.append(msgspec.structs.replace(row, newest=False, best=False, keeps=keeps))
    return tuple(rows)


def usable_checkpoint(run_dir: Path, step: int) -> str:
    """The path of a run's checkpoint of this step; empty if there is none, or it is not complete. Blocking."""
    base = Path(os.path.realpath(place_of(run_dir)))
    try:
        path = checkpoint_steps(base).get(step)
        latest, why_none = latest_step(base)
    except OSError:
        return ""
    found = _looked_at(step, path, latest, why_none) if path is not None else None
    return found.path if found is not None and found.state != "incomplete" else ""


def _looked_at(step: int, path: Path, latest: int | None, why_none: str) -> CheckpointFiles | None:
    try:
        return read_checkpoint(step, path, latest, why_none)
    except FileNotFoundError:  # the trainer has removed it meanwhile
        return None
    except OSError as error:
        reason = error.strerror or str(error)
        why = f"it cannot be looked at: {reason}"
        return CheckpointFiles(step, str(path), "unknown", why, 0, 0, (), 0.0, f"{path}: {reason}")


def _rows(
    found: list[CheckpointFiles],
    latest: int | None,
    scores: Scores,
    exported: Mapping[int, tuple[str, ...]],
    live: str,
) -> tuple[CheckpointRow, ...]:
    """Pure."""
    newest = max((one.step for one in found if one.state == "complete"), default=None)
    measure_of = scores.by_step or scores.rewards
    usable = [one.step for one in found if one.state != "incomplete" and one.step in measure_of]
    # Of several with the highest validation the first, as in the header and in ``ls``; by training reward the newest.
    sign = -1 if scores.by_step else 1
    best = max(usable, key=lambda step: (measure_of[step], sign * step), default=None)
    rows = []
    for one in found:
        keeps = ""
        if one.step == newest:
            keeps = "the newest complete one, from which the trainer resumes"
        elif one.step == best:
            keeps = f"the best by {'validation' if scores.by_step else 'training reward'}"
        elif one.step in exported:
            keeps = f"exported to {exported[one.step][-1]}"
        elif live and (latest is None or one.step > latest):
            keeps = f"it may be being written: {live}"
        elif one.state == "unknown":
            keeps = f"{one.why}; remove it by hand if it is of no use"
        rows.append(
            CheckpointRow(
                one.step,
                one.path,
                one.state,
                one.why,
                one.format,
                one.world_size,
                one.files,
                one.bytes,
                one.saved_at,
                one.step == newest,
                one.step == best,
                scores.by_step.get(one.step),
                exported.get(one.step, ()),
                keeps,
                scores.rewards.get(one.step),
            )
        )
    return tuple(rows)


def to_prune(rows: tuple[CheckpointRow, ...], keep: int | None) -> tuple[CheckpointRow, ...]:
    """Which checkpoints go: all but the newest ``keep`` complete ones (at least one), and those with a reason to stay;
    None: none goes. Pure."""
    if keep is None:
        return ()
    complete = sorted((row.step for row in rows if row.state == "complete"), reverse=True)
    stay = set(complete[: max(1, keep)])
    return tuple(row for row in rows if not row.keeps and row.step not in stay)


# --- which is the best ----------------------------------------------------------------------------------


class Scores(msgspec.Struct, frozen=True):
    """``by_step``: the validation score after each step; ``rewards``: for each step the mean training reward of the
    three up to it; ``key``: the metric of the best one, a validation if there is any; ``why_none``: why there is no
    validation, empty if there are some; ``unreadable``: there may be some, but they cannot be read."""

    by_step: dict[int, float] = {}
    key: str = ""
    why_none: str = ""
    unreadable: bool = False
    rewards: dict[int, float] = {}


SMOOTHED = 3  # steps over which the training reward is taken: as many as the interface tells of a run's end


def scores_of(run_dir: Path) -> Scores:
    """The validation scores of a run: as in the interface, of the first ``val-core/`` metric by name; and its training
    rewards. A larger score is a better one. Blocking."""
    try:
        series, unreadable = series_of(run_dir)
    except OSError as error:
        why = f"{error.filename or run_dir} cannot be read: {error.strerror or error}"
        return Scores(why_none=why, unreadable=True)
    if unreadable:
        path, reason = next(iter(unreadable.items()))
        return Scores(why_none=f"{path} cannot be read: {reason}", unreadable=True)
    reward = fullest("reward", series.series) or ""
    rewards = smoothed(_points(series, reward)) if reward else {}
    key = validation_key(series.series)
    if key:
        return Scores(_points(series, key), key, rewards=rewards)
    why = "its metrics have no validation" if rewards else "its metrics have neither validation nor reward"
    return Scores(key=reward, why_none=why, rewards=rewards)


def _points(series: SeriesSet, key: str) -> dict[int, float]:
    points = series.series[key]
    pairs = zip(points.steps, points.values, strict=True)
    return {step: value for step, value in pairs if math.isfinite(value)}


def smoothed(rewards: Mapping[int, float]) -> dict[int, float]:
    """For each step the mean of the rewards of the ``SMOOTHED`` steps up to it, of those that are known. Pure."""
    means = {}
    for step in rewards:
        near = [rewards[at] for at in range(step - SMOOTHED + 1, step + 1) if at in rewards]
        means[step] = sum(near) / len(near)
    return means


def best_words(found: CheckpointList) -> str:
    """Which checkpoint is the best and by what, or why none is, as a phrase."""
    row = next((row for row in found.rows if row.best), None)
    if row is None:
        return f"no best one: {found.no_score or 'none of them has a score'}"
    if row.validation is not None:
        return f"best: step {row.step}, validation {row.validation:.4g} ({found.score})"
    return (
        f"best: step {row.step}, by training reward: mean {row.reward:.4g} of the {SMOOTHED} steps up to it, as "
        f"{found.no_score}"
    )


# --- exported ones --------------------------------------------------------------------------------------


def read_exports(run_dir: Path) -> tuple[Export, ...]:
    """The exports of a run, oldest first; empty without any.

    Raises:
        NoCheckpoints: the record cannot be read, so that nobody can tell what was exported.
    """
    path = RunDir(run_dir).exported
    try:
        return decode_json(read_regular(path), type=tuple[Export, ...])
    except FileNotFoundError:
        return ()
    except (OSError, *BAD_JSON) as error:
        text = f"{path} cannot be read: {error}; it names the exported checkpoints, which are never removed"
        raise NoCheckpoints(text) from error


def add_export(run_dir: Path, step: int, target: Path) -> None:
    """Note that a checkpoint was exported.

    Raises:
        OSError: it cannot be written.
        NoCheckpoints: the record cannot be read.
    """
    others = [one for one in read_exports(run_dir) if (one.step, one.target) != (step, str(target))]
    data = msgspec.json.encode([*others, Export(step, str(target), time.time())])
    write_atomic(RunDir(run_dir).exported, msgspec.json.format(data), inside=run_dir)


def _by_step(exports: tuple[Export, ...]) -> dict[int, tuple[str, ...]]:
    steps: dict[int, tuple[str, ...]] = {}
    for one in exports:
        steps[one.step] = (*steps.get(one.step, ()), one.target)
    return steps


# --- removal --------------------------------------------------------------------------------------------


def prune(
    run_dir: Path,
    keep: int | None,
    shown: CheckpointList,
    say: Callable[[str], None] = lambda _: None,
    aside: tuple[CheckpointRow, ...] = (),
) -> tuple[int, tuple[Failed, ...]]:
    """Remove what ``to_prune`` names, of what the user was shown only, what an interrupted prune left, and ``aside``:
    some of ``set_aside_rows``. Each one gets another name first, so that nobody takes a half removed one for a
    checkpoint. Returns the bytes that went, and what could not be removed. Blocking."""
    with steady(run_dir, shown.live) as why:
        if why:
            return 0, (Failed(shown.folder, why),)
        try:
            now = list_checkpoints(run_dir)  # the trainer may have written or removed some meanwhile
            still = {row.path for row in set_aside_rows(run_dir, now) if not row.keeps} if aside else set()
        except NoCheckpoints as error:
            return 0, (Failed(shown.folder, str(error)),)
        if now.best_unknown:
            words = f"which one is the best is not known, so that nothing was removed: {now.no_score}"
            return 0, (Failed(shown.folder, words),)
        agreed = {row.step for row in to_prune(shown.rows, keep)}
        going = [row.path for row in to_prune(now.rows, keep) if row.step in agreed]
        going += [row.path for row in aside if row.path in still]
        freed, failed = 0, []
        for path in map(Path, (*now.half_removed, *going)):
            say(f"removing {path}")
            try:
                freed += _remove(path, path.parent)
                if is_aside(path.parent.name):
                    remove_if_empty(path.parent)
            except OSError as error:
                failed.append(Failed(os.fspath(error.filename or path), error.strerror or str(error)))
        return freed, tuple(failed)


def _remove(path: Path, base: Path) -> int:
    size = measure(path, inside=base)
    if size.foreign is not None:
        where, uid = size.foreign
        raise PermissionError(1, f"belongs to {user_name(uid)}", where)
    if not path.name.startswith("."):
        name = f".{path.name}.removed"
        folder = open_folder(base)
        try:
            os.rename(path.name, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)
        path = base / name
    errors = remove_tree(path, inside=base)
    if errors:
        raise errors[0]
    return size.bytes


def steady(run_dir: Path, live: str) -> AbstractContextManager[str]:
    """Holds the lock of a run that has ended, so that no attempt begins meanwhile; why nothing may be changed, else
    empty. A live run's lock is its backend's."""
    if live:
        return nullcontext("")
    busy = "an attempt of the run has just begun; look again with liverl-tui checkpoints ls"
    return held_lock(RunDir(run_dir).lock, busy, only_locked=True)
