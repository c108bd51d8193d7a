"""Folders of trials in a tree, told from folders of logs by a few of their entries: they may hold tens of thousands."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from liverl.observe.trials.root import STEP_DIR
from liverl.observe.trials.trial import TASK
from liverl.util.plural import quantity

PROBED = 3  # entries of a folder that are looked into
_TRAJECTORIES = frozenset(("litellm-trajectory.jsonl", "proxy_trajectory.json"))
_BESIDE_RESULT = frozenset(("agent", "verifier", "trial.log", "exception.txt", "agent.log"))


class TrialFolder(msgspec.Struct, frozen=True):
    """``path``: of the folder whose entries, or those of ``step_NNNN`` in it, are trials; ``trials``: how many;
    ``steps``: how many folders of steps; ``modified``: Unix time at which the newest trial or step was made."""

    path: Path
    trials: int
    steps: int
    modified: float

    single: bool = False  # it is a trial itself

    @property
    def words(self) -> str:
        """What it is, for people."""
        if self.single:
            return "a trial"
        steps = f" in {quantity(self.steps, 'step')}" if self.steps else ""
        return f"{quantity(self.trials, 'trial')}{steps}"


def is_trial(names: set[str]) -> bool:
    """Whether a folder with these entries is a trial of LiveRL or Harbor."""
    return bool(names & _TRAJECTORIES) or ("result.json" in names and bool(names & _BESIDE_RESULT))


def trial_folder(folder: Path, folders: list[str]) -> TrialFolder | None:
    """What is known of a folder whose subfolders are ``folders``; None if they are no trials."""
    steps = [name for name in folders if STEP_DIR.fullmatch(name)]
    if steps:
        newest = sorted(steps, key=lambda name: int(name[5:]), reverse=True)
        if not any(_holds_trials(folder / name) for name in newest[:PROBED]):
            return None
        counts = [_count(folder / name) for name in steps]
        return TrialFolder(
            folder, sum(counts), len(steps), _modified([folder / one for one in newest[:PROBED]])
        )
    named = [name for name in folders if name[0] not in "_."]
    if not any(_is_trial_at(folder / name) for name in named[:PROBED]):
        return None
    return TrialFolder(folder, len(named), 0, _modified([folder]))


def is_named_as_trial(name: str) -> bool:
    """Whether a folder among trials has the name of one."""
    return TASK.search(name) is not None


def _holds_trials(step: Path) -> bool:
    try:
        with os.scandir(step) as entries:
            some = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)][:PROBED]
    except OSError:
        return False
    return any(_is_trial_at(step / name) for name in some)


def _is_trial_at(path: Path) -> bool:
    try:
        return is_trial(set(os.listdir(path)))
    except OSError:
        return False


def _count(step: Path) -> int:
    try:
        return len(os.listdir(step))
    except OSError:
        return 0


def _modified(paths: list[Path]) -> float:
    times = []
    for path in paths:
        try:
            times.append(os.stat(path).st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)
