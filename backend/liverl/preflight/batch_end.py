"""When the batch job ends in which the run is started."""

from __future__ import annotations

import time
from collections.abc import Mapping

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.observe.batch_end import Ask, read_batch_end, squeue_end
from liverl.util.ages import ago, clock

NAME = "end of the batch job"


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
    return Check(
        NAME,
        "ok",
        f"in {ago(read.at - now)}, at {clock(read.at)} ({read.by})",
        values={"left_s": round(read.at - now)},
    )
