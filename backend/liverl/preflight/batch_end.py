"""When the batch job ends in which the run is started."""

from __future__ import annotations

import time
from collections.abc import Mapping

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.observe.batch_end import Ask, read_batch_end, squeue_end
from liverl.util.ages import ago, clock

NAME, MARGIN = "end of the batch job", "batch.margin"


def checks(config: RunConfig, env: Mapping[str, str]) -> Check | None:
    """``check`` for this process."""
    return check(config, env, time.time())


def check(config: RunConfig, env: Mapping[str, str], now: float, ask: Ask = squeue_end) -> Check | None:
    """The end that is found; None if there is none. An end that the user has set and that has passed is refused: the
    trainer would save no checkpoint before the real one. ``now``: Unix seconds."""
    read = read_batch_end(env, config.batch.end_time, now, ask)
    if read is None:
        return None
    if read.at is None:
        return Check(NAME, "fail" if config.batch.end_time else "warn", read.problem)
    left, margin = read.at - now, config.batch.margin
    when = f"in {ago(left)}, at {clock(read.at)} ({read.by})"
    values: dict[str, float] = {"left_s": round(left)}
    if margin < left:
        return Check(NAME, "ok", when, values=values)
    # A tenth of what is left is what an hour keeps by the default, and more.
    wanted = str(max(0, int(left / 10)))
    return Check(
        NAME,
        "warn",
        f"{when}, and {MARGIN} is {margin:g} s: from the first step on the trainer is asked to save, since no time is "
        "left for another step",
        fix=f"ask for a longer job, or set {MARGIN} to less than the time that is left, such as {wanted}",
        patch={MARGIN: wanted},
        guess=True,
        values=values,
    )
