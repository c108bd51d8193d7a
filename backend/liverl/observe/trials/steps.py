"""Trials of one step on demand, for steps no longer in the snapshot."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

from liverl.model import TrialHead
from liverl.observe.trials.cut_off import age_of, ended_with, in_step, with_starts
from liverl.observe.trials.dumps import dump_of, dumped_steps
from liverl.observe.trials.root import STEP_DIR, folders_in
from liverl.observe.trials.scanner import TRIALS, LineReader, first_line
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.step_times import StepTimes
from liverl.observe.trials.tools_offered import ToolsOffered
from liverl.observe.trials.trial import Trial
from liverl.rundir.layout import RunDir


def steps_on_disk(run_dir: str | os.PathLike[str]) -> list[int]:
    """Return the steps that have trials or a dump of verl's, oldest first; none if there is neither. With trials
    outside of step directories, all finished steps may have some.

    Raises:
        OSError: the storage failed.
    """
    numbers, flat = set(dumped_steps(run_dir)), False
    for root in RunDir(Path(run_dir)).trial_roots():
        for name in folders_in(root):
            match = STEP_DIR.fullmatch(name)
            numbers |= {int(match[1])} if match else set()
            flat = flat or match is None
    if flat:
        times = StepTimes(run_dir)
        times.poll()
        numbers |= {finished.step for finished in times.finished}
    return sorted(numbers)


def heads_of_step(
    run_dir: str | os.PathLike[str], step: int, times: StepTimes | None = None
) -> list[TrialHead]:
    """Return all trials of ``step``, newest first, also those from before it was begun again. Reads each trajectory
    once: about a second per gigabyte. ``times``: of the run, to be read on; None: of its own.

    Raises:
        OSError: the storage failed; removed files are no error.
    """
    read, now, tools = LineReader(), time.time(), ToolsOffered(run_dir)
    starts, times = TrainerStarts(run_dir), times or StepTimes(run_dir)
    starts.poll()
    times.poll()
    heads: list[TrialHead] = []
    known: set[int] = set()
    for root in RunDir(Path(run_dir)).trial_roots():
        for path, where in _trials_of(root, step, starts, times, now):
            trial = Trial(str(root), path, where)
            head = whole_head(trial, read, now)
            if trial.row:
                known.add(hash(trial.row))
            if head is not None and (root.name == TRIALS or age_of(head) >= starts.first):
                tools.hear(head)
                heads.append(in_step(head, starts, times)[0])
    dump = dump_of(run_dir, step)
    dump.read(math.inf)
    heads += dump.heads(known)
    return sorted(
        map(tools.judged, with_starts(heads, starts)),
        key=lambda head: (age_of(head), head.path),
        reverse=True,
    )


def head_at(run_dir: str | os.PathLike[str], path: str) -> TrialHead | None:
    """The head of the trial at ``path``, relative to the run's directory, with the step that it counts for; None if it
    is not there.

    Raises:
        OSError: the storage failed.
    """
    root, _, inner = path.partition("/")
    match = STEP_DIR.fullmatch(inner.partition("/")[0])
    trial = Trial(os.path.join(run_dir, root), inner, int(match[1]) if match else None)
    head = whole_head(trial, LineReader(), time.time())
    if head is None:
        return None
    tools, starts, times = ToolsOffered(run_dir), TrainerStarts(run_dir), StepTimes(run_dir)
    starts.poll()
    times.poll()
    return placed(head, starts, times, tools)


def placed(head: TrialHead, starts: TrainerStarts, times: StepTimes, tools: ToolsOffered) -> TrialHead:
    """The head of one trial with the step that it counts for, as far as the trainer lived, and judged by the tools that
    agents of its kind are offered."""
    tools.hear(head)
    return tools.judged(ended_with(in_step(head, starts, times)[0], starts))


def whole_head(trial: Trial, read: LineReader, now: float) -> TrialHead | None:
    """The head of a trial that was read to its end; None if it was removed in the meantime. ``now``: Unix seconds.

    Raises:
        OSError: it cannot be read.
    """
    more = True
    while more:
        before = trial.turns + trial.bad
        if not trial.check(read, now):
            return None
        more = trial.unread and trial.turns + trial.bad > before
    return trial.head()


def _trials_of(
    root: Path, step: int, starts: TrainerStarts, times: StepTimes, now: float
) -> Iterator[tuple[str, int | None]]:
    """The (path below ``root``, step) of the trials of a step, in either layout."""
    flat = []
    for folder in folders_in(root):
        match = STEP_DIR.fullmatch(folder)
        if match is None:
            flat.append(folder)
        elif int(match[1]) == step:
            yield from ((f"{folder}/{name}", step) for name in folders_in(root / folder))
    for name in flat:
        trial = Trial(str(root), name, None)
        if trial.check(first_line, now) and in_step(trial.head(), starts, times)[0].step == step:
            yield name, None
