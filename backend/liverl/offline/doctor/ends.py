"""Trainings that ended, or stopped to write, before all their steps were done, without an error. Pure."""

from __future__ import annotations

from liverl.causes.finding import Evidence, Explanation
from liverl.offline.doctor.ages import ago, clock
from liverl.offline.doctor.training import Training

ENDED = "ended-early"
STOPS = "log-stops"
QUIET_S = 900.0  # a log that has grown within this many seconds may be of a run that goes on,
QUIET_STEPS = 5.0  # or within this many times what a step takes


def ended_early(run: Training) -> Explanation | None:
    """A program that says that it ended without an error, with steps left to do; None for any other."""
    if not run.ended or run.complete or not run.began:
        return None
    reached, owed = run.reached or 0, run.owed
    if owed is None and (run.reached is not None or not run.background):
        return None
    if owed is not None and reached >= owed:
        return None
    made = run.reached is not None and (run.resumed is None or run.reached > run.resumed)
    of = "" if owed is None else f" of {owed}"
    if made or run.resumed:
        title = f"It ended without an error after step {reached}{of}"
    else:
        title = f"It ended without an error before the first step{f' (0{of})' if of else ''}"
    cause, fix, command = _why(run, made)
    where = run.ended_in or (None, None)
    proof = Evidence(run.ended, where[0], where[1])
    return Explanation(ENDED, "warning", title, cause, fix, command, evidence=(proof,))


def _why(run: Training, made: bool) -> tuple[str, str, str]:
    reached, owed, batches = run.reached or 0, run.owed, run.batches
    if run.submitted and not made:
        job = run.submitted
        return (
            f"The script only submitted {job} (--no-wait) and ended; what became of it is in the log of that job.",
            "Read the log of the job; without --no-wait, the script ends with the job and its exit code.",
            f"ray job logs {job}" if job != "a job" else "ray job list",
        )
    if run.background and not made:
        return (
            "The script put the trainer into the background (nohup, &) and ended: a job ends with its script, and "
            "Ray or the batch system ends what is left of it.",
            "Start the trainer in the foreground, or end the script with wait; exec python ... does it, too.",
            "",
        )
    if run.resumed is not None and not made:
        return (
            f"It was resumed at step {run.resumed} and made no further step: the data loader of that checkpoint is "
            "at the end of its epoch, or trainer.total_epochs is reached already.",
            "Raise trainer.total_epochs beyond the epochs that were done, or resume without the state of the data "
            "loader (data.pt of the checkpoint), then go on.",
            "",
        )
    if made and batches and owed and reached % batches == 0:
        epochs, needed = reached // batches, -(-owed // batches)
        return (
            f"The data loader has {batches} batches, so that step {reached} ends epoch {epochs}: "
            f"trainer.total_epochs is {epochs}, or the data is used up.",
            f"Set trainer.total_epochs={needed} at least: {owed} steps need {needed} epochs of {batches} batches. "
            "Then resume.",
            "",
        )
    if made:
        return (
            "Its program ended by itself and printed no error: the epochs or the data were used up, or something "
            "asked it to end.",
            "Compare trainer.total_epochs x batches per epoch with the steps that it owes, then resume it.",
            "",
        )
    return (
        "Its program ended by itself before it trained: it only validated (trainer.val_only), its data is empty, or "
        "its script did not wait for the trainer.",
        "Look at what the script starts last, and at trainer.val_only and the number of rows.",
        "",
    )


def log_stops(run: Training, over: float, line: Evidence, now: float) -> Explanation | None:
    """A training with steps left whose log ends without a word, and has not grown for long. ``over``: when the log was
    last written; ``line``: its last one."""
    quiet = max(QUIET_S, QUIET_STEPS * (run.seconds or 0.0))
    if not run.unfinished or run.ended or now - over < quiet:
        return None
    where = f"step {run.reached} of {run.owed}" if run.reached else f"its start (0 of {run.owed} steps)"
    return Explanation(
        STOPS,
        "warning",
        f"The log stops at {where}, without an error",
        f"Nothing was written since {clock(over)} ({ago(now - over)} ago): the trainer was killed from outside, its "
        "host went down, or it hangs. The log does not say which.",
        "If its processes still run, it hangs: py-spy dump shows where. Else look at the batch system and the "
        "kernel's log for who ended it, and resume it.",
        "pgrep -af 'main_ppo|TaskRunner|train'; dmesg -T | grep -iE 'out of memory|killed process'",
        evidence=(line,),
    )
