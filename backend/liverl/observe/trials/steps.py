"""Trials of one step on demand, for steps no longer in the snapshot, and groups of one prompt."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable

from liverl.model import TrialHead
from liverl.observe.trials.cut_off import age_of, with_starts
from liverl.observe.trials.records import parse_config, parse_result
from liverl.observe.trials.scanner import STEP_DIR, LineReader
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.trial import Trial
from liverl.util.regular_file import open_binary


def steps_on_disk(run_dir: str | os.PathLike[str]) -> list[int]:
    """Return the steps that have trials, oldest first; none if the directory is missing.

    Raises:
        OSError: the storage failed.
    """
    numbers = {
        int(match[1])
        for name in _folders(os.path.join(run_dir, "trials"))
        if (match := STEP_DIR.fullmatch(name))
    }
    return sorted(numbers)


def heads_of_step(run_dir: str | os.PathLike[str], step: int) -> list[TrialHead]:
    """Return all trials of ``step``, newest first, also those from before it was begun again. Reads each trajectory
    once: about a second per gigabyte.

    Raises:
        OSError: the storage failed; removed files are no error.
    """
    root = os.path.join(run_dir, "trials")
    read, now = LineReader(), time.time()
    heads = []
    for path, where in _trials_of(root, step):
        trial = Trial(root, path, where)
        more = True
        while more:
            before = trial.turns + trial.bad
            if not trial.check(read, now):
                break  # removed in the meantime
            more = trial.unread and trial.turns + trial.bad > before
        else:
            heads.append(trial.head())
    starts = TrainerStarts(run_dir)
    starts.poll()
    return sorted(
        with_starts(heads, starts),
        key=lambda head: (age_of(head), head.path),
        reverse=True,
    )


GroupKey = tuple[
    int | None, str, str, bool
]  # step, task, prompt of the step, of an earlier attempt at the step


def group_of(head: TrialHead) -> GroupKey:
    """The GRPO group of a trial: the trials of one prompt in one step."""
    return head.step, head.task, head.group, head.earlier


def equal_groups(heads: Iterable[TrialHead]) -> frozenset[GroupKey]:
    """Return the groups whose trials are all finished with the same reward: GRPO learns nothing from them.

    ``heads`` must contain every trial of a step.
    """
    rewards: dict[GroupKey, list[float | None]] = defaultdict(list)
    for head in heads:
        rewards[group_of(head)].append(head.reward)
    return frozenset(
        group
        for group, group_rewards in rewards.items()
        if len(group_rewards) > 1 and None not in group_rewards and len(set(group_rewards)) == 1
    )


def _trials_of(root: str, step: int) -> Iterable[tuple[str, int | None]]:
    """Return (path below ``root``, step) of the trials of a step, in either layout."""
    flat = []
    for folder in _folders(root):
        match = STEP_DIR.fullmatch(folder)
        if match is None:
            flat.append(folder)
        elif int(match[1]) == step:
            yield from ((f"{folder}/{name}", step) for name in _folders(os.path.join(root, folder)))
    for name in flat:
        if _told_step(os.path.join(root, name)) == step:
            yield name, None


def _told_step(directory: str) -> int | None:
    for name, parse in (("config.json", parse_config), ("result.json", parse_result)):
        try:
            with open_binary(os.path.join(directory, name)) as file:
                parsed = parse(file.read())
        except OSError:
            continue  # it has none (yet)
        if parsed is not None and parsed.step is not None:
            return parsed.step
    return None


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(e.name for e in entries if e.name[0] not in "_." and e.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
