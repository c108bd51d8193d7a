"""The runs of a list, each with what its files say of it at one look: no log and no metrics are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from liverl.model import Result, UnixTime
from liverl.rundir.index import RunInfo
from liverl.rundir.layout import RunDir
from liverl.util.decode import decode_json, decode_loose_json
from liverl.util.regular_file import read_regular

Sort = Literal["changed", "started", "reward", "steps", "time", "name", "state"]
_CONFIG = 1 << 20  # bytes of a saved configuration that are read
_MODEL = re.compile(
    r"^model:\n(?:[ ]{2,40}[^\n]{0,2000}\n){0,40}?  model_path: (?P<path>[^\n]{1,4096})", re.MULTILINE
)


class RunListed(msgspec.Struct, frozen=True):
    """An entry of ``ls --json``. ``steps``: finished; ``total_steps``: planned; ``reward_first`` and ``reward_last``:
    means of its first and last three steps, of fewer than six both the mean of all; ``seconds``: from the start of its
    newest attempt to its end, or to its last sign; ``model``: the path of its weights; ``sandboxes_left``: how many
    things a run that is not live has left in Docker or a cluster, by its files, None if it has begun none;
    ``validation``: its highest score, after the step ``validation_step``, and ``best_checkpoint``: the path of that
    step's checkpoint, empty without one, or if it is not complete. None: not known."""

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
    """What the files of a run say of it."""
    run = RunDir(info.run_dir)
    ended = info.state in ("done", "failed", "stopped")
    result = run.read_result() if ended else None
    now = run.read_snapshot()
    rewards = now.rewards if now is not None else None
    # The numbers of a smoke run mean nothing.
    best = rewards.validation if rewards is not None and now is not None and not now.smoke else None
    began = (
        result.started_at if result is not None else now.started_at if now is not None else info.started_at
    )
    until = result.ended_at if result is not None else now.at if now is not None else None
    return RunListed(
        info.run,
        str(info.run_dir),
        info.state,
        info.host,
        info.pid,
        info.started_at,
        result.steps if result is not None else _step(run),
        _sandboxes_left(info, result),
        result.total_steps if result is not None else now.total_steps if now is not None else None,
        rewards.first if rewards is not None else None,
        rewards.last if rewards is not None else None,
        until - began if until is not None and began is not None and until >= began else None,
        _model(run),
        result.cause.text if result is not None and result.cause is not None else "",
        now is not None and now.smoke,
        best.best if best is not None else None,
        best.best_step if best is not None else None,
        _checkpoint(run, best.best_step) if best is not None else "",
    )


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
