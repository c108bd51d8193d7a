"""Trainings whose log stops before all their steps were done, without an error. Pure."""

from __future__ import annotations

from liverl.causes.finding import Evidence, Explanation
from liverl.offline.doctor.training import Training
from liverl.util.ages import ago, clock

STOPS = "log-stops"
QUIET_S = 900.0  # a log that has grown within this many seconds may be of a run that goes on,
QUIET_STEPS = 5.0  # or within this many times what a step takes


def log_stops(run: Training, over: float, line: Evidence, now: float) -> Explanation | None:
    """The finding that a log stops without an error although steps are left. ``over``: when the log was last
    written; ``line``: its last one."""
    quiet = max(QUIET_S, QUIET_STEPS * (run.seconds or 0.0))
    if not run.unfinished or run.ended or now - over < quiet:
        return None
    where = f"step {run.reached} of {run.owed}" if run.reached else f"its start (0 of {run.owed} steps)"
    return Explanation(
        STOPS,
        "warning",
        f"The log stops at {where}, without an error",
        f"Nothing has been written since {clock(over)} ({ago(now - over)} ago): the trainer was killed from outside, "
        "its host went down, or it hangs. The log does not show which.",
        "If its processes still run, it hangs: py-spy dump --pid PID shows where. Otherwise check the batch system and "
        "the kernel log for what ended it, and resume the run.",
        "pgrep -af 'main_ppo|TaskRunner|train'; dmesg -T | grep -iE 'out of memory|killed process'",
        evidence=(line,),
    )
