"""Selects the files of the newest launch, so that an old failure is not the verdict on today's run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from liverl.logs.launches import SLACK_S, Division, Written, divide
from liverl.observe.metrics.event_files import event_files
from liverl.offline.doctor.inputs import Input, Inputs
from liverl.offline.doctor.logs import Log, dated
from liverl.offline.doctor.trial_folders import TrialFolder
from liverl.util.ages import ago

# An estimate: a log without a stamp at its beginning is not taken to be longer than this (seconds).
LONGEST_S = 12 * 3600.0


class Scope(msgspec.Struct, frozen=True):
    """``logs``, ``trials``, ``metrics``: what is to be judged; ``earlier``: what is of earlier launches or runs, by its
    path, with the words for it."""

    logs: tuple[Log, ...] = ()
    trials: tuple[TrialFolder, ...] = ()
    metrics: tuple[Path, ...] = ()
    earlier: dict[str, str] = {}


def scope(inputs: Inputs, named: frozenset[str], now: float) -> Scope:
    """What is to be judged. ``named``: paths that the user named; ``now``: Unix seconds."""
    runs = {str(run.path) for run in inputs.runs}
    dates = dated(one for one in inputs.files if one.read and one.path not in runs)
    division = Division() if inputs.runs else _divided(dates, named)
    logs, old = list[Log](), list[Log]()
    for log in dates:
        (old if log.path in division.earlier else logs).append(log)
    begin = division.began
    trials, old_trials = _of_launch(inputs.trials, begin, named)
    metrics = sorted(((_modified(path), path) for path in inputs.metrics), reverse=True)
    current = [(at, path) for at, path in metrics if str(path) in named or _is_current(at, begin)]
    newest = [path for _, path in current[:1]] if not any(str(p) in named for _, p in current) else []
    kept = newest or [path for _, path in current if str(path) in named]
    earlier = {log.path: _words(log.input.what, now - log.over) for log in old}
    earlier |= {str(one.path): _words(one.words, now - one.modified) for one in old_trials}
    earlier |= {
        str(path): _words("steps of a training", now - at) for at, path in metrics if path not in kept
    }
    return Scope(tuple(logs), tuple(trials), tuple(kept), earlier)


def _divided(logs: Sequence[Log], named: frozenset[str]) -> Division:
    """What the user named himself is all of one run, and tells of no launch."""
    written = [Written(log.path, log.over, log.begin, log.trains and log.path not in named) for log in logs]
    return divide(written, kept=named, longest=LONGEST_S)


def _words(what: str, age: float) -> str:
    return f"{what}; of an earlier launch, last written {ago(age)} ago, not judged"


def _of_launch(
    folders: Sequence[TrialFolder], begin: float | None, named: frozenset[str]
) -> tuple[list[TrialFolder], list[TrialFolder]]:
    """The folders of trials of the launch that began at ``begin``, and the others; without a launch, the newest one."""
    if not folders:
        return [], []
    newest = max(folder.modified for folder in folders)
    wanted = [
        folder
        for folder in folders
        if str(folder.path) in named
        or (_is_current(folder.modified, begin) if begin is not None else folder.modified >= newest - SLACK_S)
    ]
    return wanted, [folder for folder in folders if folder not in wanted]


def _is_current(at: float, begin: float | None) -> bool:
    return begin is None or at >= begin - SLACK_S


def _modified(path: Path) -> float:
    try:
        files = event_files(path) if path.is_dir() else [path]
        return max((os.stat(one).st_mtime for one in files), default=0.0)
    except OSError:
        return 0.0


def as_files(
    inputs: Inputs, found: Scope, words: dict[str, str], unread: dict[str, Input]
) -> tuple[Input, ...]:
    """The files of a diagnosis, with what became of each. ``words``: what is added to the kind of those that were read;
    ``unread``: those that were not, with the reason."""
    judged = (
        {log.path for log in found.logs}
        | {str(one.path) for one in found.trials}
        | set(map(str, found.metrics))
    )
    result = []
    for one in inputs.files:
        if one.path in unread:
            one = unread[one.path]
        elif one.path in found.earlier:
            one = msgspec.structs.replace(one, what=found.earlier[one.path], read=False, missed=False)
        elif one.path in judged:
            one = msgspec.structs.replace(one, what=one.what + words.get(one.path, ""), read=True)
        result.append(one)
    return tuple(result)
