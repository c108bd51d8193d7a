"""The runs of a list, each with what its files say of it at one look: no log is read, and no metrics but for the
verdict on the rewards of a run that has ended, once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from liverl.control.history import end_told
from liverl.model import Result, RewardCourse, Rewards, UnixTime
from liverl.observe.metrics.rewards import RewardHistory, course_words, ends_words
from liverl.offline.left import settled
from liverl.procs import procfs
from liverl.rundir.index import RunInfo
from liverl.rundir.layout import RunDir, hostname
from liverl.util.decode import decode_json, decode_loose_json
from liverl.util.regular_file import read_regular

Sort = Literal["changed", "started", "reward", "steps", "time", "name", "state"]
_CONFIG = 1 << 20  # bytes of a saved configuration that are read
_METRICS = 4 << 20  # bytes of metrics that are read for a verdict, which takes 0.1 s
_NUMBER = re.compile(r"[-_.]{0,9}[vV]?\d{1,19}$")  # at the end of a name: ``-2``, ``_v3``
_MODEL = re.compile(
    r"^model:\n(?:[ ]{2,40}[^\n]{0,2000}\n){0,40}?  model_path: (?P<path>[^\n]{1,4096})", re.MULTILINE
)


class RunListed(msgspec.Struct, frozen=True):
    """An entry of ``ls --json``. ``steps``: finished; ``total_steps``: planned; ``reward_first`` and
    ``reward_last``: means of its first and last three steps, of fewer than six both the mean of all; ``seconds``:
    from the start of its newest attempt to its end, or to its last sign, to now while it goes on; ``cause``: why it
    failed, or why its backend answers nobody; ``model``: the path of its weights; ``sandboxes_left``: how many things a
    run that is not live has left in Docker or a cluster, by its files, None if it has begun none; ``validation``: its
    highest score, after the step ``validation_step``, and ``best_checkpoint``: the path of that step's checkpoint,
    empty without one, or if it is not complete; ``reward_course``: whether its rewards prove that it learned, None also
    of a smoke run;
    ``attempt``: the newest one, which ``started_at`` and ``seconds`` are of. None: not known."""

    run: str
    run_dir: str
    state: str
    host: str | None
    pid: int | None
    started_at: UnixTime | None
    steps: int | None
    sandboxes_left: int | None
    total_steps: int | None = None
    reward_first: float | None = None
    reward_last: float | None = None
    seconds: float | None = None
    model: str = ""
    cause: str = ""
    smoke: bool = False
    validation: float | None = None
    validation_step: int | None = None
    best_checkpoint: str = ""
    reward_course: RewardCourse | None = None
    attempt: int | None = None

    @property
    def standing(self) -> str:
        """``state``; ``never started`` of a run that was only made, which counts as ``lost`` for scripts."""
        never = self.state == "lost" and RunDir(Path(self.run_dir)).never_started()
        return "never started" if never else self.state

    @property
    def attempt_words(self) -> str:
        """Which attempt its start and its time are of, where others came before it: they do not count."""
        return f"attempt {self.attempt}" if self.attempt is not None and self.attempt > 1 else ""

    @property
    def reward_words(self) -> str:
        """What its rewards prove, in a few words; empty of a smoke run, and where they have no change to judge."""
        judged = not self.smoke and self.reward_course is not None
        changed = self.reward_first is not None and self.reward_first != self.reward_last
        proved = self.reward_course is not None and self.reward_course.proved
        return course_words(self.reward_course, short=True) if judged and (changed or proved) else ""

    def reward_ends(self, arrow: str = "->") -> str:
        """The mean reward of its first and of its last three steps; of fewer than six one mean, and so where nobody can
        say whether the change is one. Empty without a reward."""
        if self.smoke:
            return "smoke"  # its batches are too small for it to mean anything
        first = self.reward_first if self.reward_course is not None else self.reward_last
        return ends_words(first, self.reward_last, self.steps, arrow=arrow) or ""

    @property
    def best_words(self) -> str:
        """Its best checkpoint by validation as a phrase; empty without a validation."""
        if self.validation is None or self.validation_step is None:
            return ""
        score = f"validation {self.validation:.4g}"
        if self.best_checkpoint:
            return f"best checkpoint: step {self.validation_step}, {score}"
        return f"best {score} after step {self.validation_step}: no checkpoint of it"


def listed(info: RunInfo) -> RunListed:
    """What the files of a run say of it, and its processes where nothing else says its state."""
    info = settled(info)
    run = RunDir(info.run_dir)
    ended = info.state in ("done", "failed", "stopped")
    result = run.read_result() if ended else None
    now = run.read_snapshot()
    rewards = _rewards(run, info.state, now.rewards) if now is not None else None
    # The numbers of a smoke run mean nothing.
    best = rewards.validation if rewards is not None and now is not None and not now.smoke else None
    began = (
        result.started_at if result is not None else now.started_at if now is not None else info.started_at
    )
    until = result.ended_at if result is not None else now.at if now is not None else None
    if info.state in ("live", "orphaned"):
        # It goes on, as `status` says: the snapshot is some seconds old, or of its backend's last moment.
        until = time.time()
    return RunListed(
        info.run,
        str(info.run_dir),
        info.state,
        info.host,
        info.pid,
        began,  # not of the backend, which may have been restarted
        result.steps if result is not None else _step(run),
        _sandboxes_left(info, result),
        result.total_steps if result is not None else now.total_steps if now is not None else None,
        rewards.first if rewards is not None else None,
        rewards.last if rewards is not None else None,
        until - began if until is not None and began is not None and until >= began else None,
        _model(run),
        _cause(info, result),
        now is not None and now.smoke,
        best.best if best is not None else None,
        best.best_step if best is not None else None,
        _checkpoint(run, best.best_step) if best is not None else "",
        _course(run, info.state, rewards)
        if rewards is not None and now is not None and not now.smoke
        else None,
        result.attempt if result is not None else now.attempt if now is not None else None,
    )


def _cause(info: RunInfo, result: Result | None) -> str:
    """Why it failed, which only its events tell where no result could be written; or why its backend answers nobody."""
    if result is None and info.state in ("lost", "orphaned"):
        return end_told(info.run_dir)
    return _halted(info) or (result.cause.text if result is not None and result.cause is not None else "")


def _halted(info: RunInfo) -> str:
    """That the backend of a live run answers nobody, as a signal has stopped its process; "" of any other."""
    if info.state != "live" or info.pid is None or info.host != hostname() or not procfs.is_stopped(info.pid):
        return ""
    return f"its backend is stopped by a signal; to continue it: kill -CONT {info.pid}"


def _rewards(run: RunDir, state: str, told: Rewards) -> Rewards:
    """The rewards of a run. ``told``: by its snapshot, which nobody writes any more once its backend is gone without a
    result: its trainer may have gone on, so that then its metrics tell them, as they do to ``status``."""
    return (_of_metrics(run) if state in ("orphaned", "lost") else None) or told


def _of_metrics(run: RunDir) -> Rewards | None:
    """What the metrics of a run say; None if they cannot be read, or are too large for a list."""
    try:
        file = run.metrics.stat()
    except OSError:
        return None
    return _judged(run.path, file.st_size, file.st_mtime_ns) if file.st_size <= _METRICS else None


def _course(run: RunDir, state: str, rewards: Rewards) -> RewardCourse | None:
    """What the rewards of a run prove. Its snapshot may have it from another version, or not at all, so that of a run
    whose backend has ended all steps are judged anew, as its dashboard does; of one that never had six, none is."""
    if state in ("live", "elsewhere") or rewards.first == rewards.last:
        return rewards.course
    judged = _of_metrics(run)
    return (judged.course if judged is not None else None) or rewards.course


@lru_cache(maxsize=1024)
def _judged(run_dir: Path, size: int, written_ns: int) -> Rewards:
    """The rewards in the metrics of a run, which have this size and were written then."""
    from liverl.observe.metrics.steps import MetricsReader

    history, steps = RewardHistory(), MetricsReader.of_run(run_dir)
    while steps.poll() or steps.records:
        history.add(steps.records)
    return history.summary()


def _sandboxes_left(info: RunInfo, result: Result | None) -> int | None:
    """How many things a run that is not live has left in Docker or a cluster, by its files: those that its result
    names, else its trials whose sandboxes nobody has ended. None: it has begun none, or it is live. Nobody is asked."""
    if info.state in ("live", "elsewhere"):
        return None
    from liverl.sandboxes.ledgers import read

    try:
        begun = read(info.run_dir)
    except OSError:
        return None  # a directory of another user
    found = (begun.docker, begun.pods)
    if not any(one.begun for one in found):
        return None
    if result is None:
        return sum(len(one.open) for one in found)
    end = result.sandboxes
    return len(end.left) + len(end.kept) if end is not None else 0


class Previous(msgspec.Struct, frozen=True):
    """The run with which another one is compared where nobody names one. ``words``: which one it is, as a phrase in
    which ``it`` is the other one."""

    run: RunListed
    words: str


def previous_run(run: RunListed, runs: Iterable[RunListed]) -> Previous | None:
    """The newest of the runs that began before ``run`` in its project with a name like its own (``grpo-2`` for
    ``grpo-3``), else with its model, else of all; None if none began before it, or nobody knows when it began. A smoke
    run is compared with smoke runs only, and no other run with one. Pure."""
    began = run.started_at
    if began is None:
        return None
    earlier = [
        one
        for one in runs
        if one.started_at is not None and one.started_at < began and one.smoke is run.smoke
    ]
    project, stem = _lineage(run)
    own = [one for one in earlier if _lineage(one)[0] == project]
    alike = [one for one in own if stem and _lineage(one)[1] == stem]
    model = [one for one in own if run.model and one.model == run.model]
    for found, words in (
        (alike, "the run before it with a name like its own"),
        (model, "the run of the same model before it"),
        (earlier, "the run that began before it"),
    ):
        if found:
            return Previous(max(found, key=lambda one: one.started_at or 0.0), words)
    return None


def _lineage(run: RunListed) -> tuple[str, str]:
    """Its project, and its name without the number at its end; a name that is a time or a number has none."""
    project, _, name = run.run.rpartition("/")
    stem = _NUMBER.sub("", name)
    return project, stem if any(one.isalpha() for one in stem) else ""


def in_order(runs: Iterable[RunListed], by: Sort) -> list[RunListed]:
    """The runs, sorted: the largest number first, names and states from A to Z, what is not known last. ``changed``
    leaves them as they are; runs that are equal stay in their order."""
    keys: dict[str, Callable[[RunListed], float | None]] = {
        "started": lambda one: one.started_at,
        "reward": lambda one: one.reward_last,
        "steps": lambda one: one.steps,
        "time": lambda one: one.seconds,
    }
    if by in ("name", "state"):
        return sorted(runs, key=lambda one: one.run if by == "name" else one.state)
    if by == "changed":
        return list(runs)
    key = keys[by]
    return sorted(runs, key=lambda one: (key(one) is None, -(key(one) or 0.0)))


def _step(run: RunDir) -> int | None:
    """Of a run that has not ended, from the trainer's record."""
    try:
        step = decode_loose_json(read_regular(run.trainer)).get("step")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return step if isinstance(step, int) else None


def _checkpoint(run: RunDir, step: int) -> str:
    from liverl.offline.checkpoints import usable_checkpoint

    return usable_checkpoint(run.path, step)


def _model(run: RunDir) -> str:
    """The path of the model's weights in the saved configuration; empty if it does not tell it. Only that line is read:
    a list may have hundreds of runs."""
    try:
        found = _MODEL.search(read_regular(run.config, _CONFIG).decode("utf-8", "replace"))
    except OSError:
        return ""
    if found is None:
        return ""
    text = found["path"].strip()
    try:
        return str(decode_json(text)) if text.startswith('"') else text.strip("'")
    except ValueError:
        return ""
