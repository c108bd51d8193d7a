"""Trainings whose log stops before all their steps were done, without an error. Pure."""

from __future__ import annotations

from liverl.causes.finding import Evidence, Explanation
from liverl.causes.quiet.reasons import signal_words
from liverl.model import TrialsStatus
from liverl.offline.doctor.training import Training
from liverl.util.ages import ago, clock

STOPS = "log-stops"
FAILED = "exit-without-error"
NOT_TOLD = "end-not-told"
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


def end_not_told(run: Training, over: float, line: Evidence, now: float) -> Explanation | None:
    """The note that nobody knows whether a training that has stopped writing was complete: its log tells neither how
    many steps it owes nor that it has ended. Arguments as of ``log_stops``."""
    quiet = max(QUIET_S, QUIET_STEPS * (run.seconds or 0.0))
    if not run.began or run.owed is not None or run.ended or run.told.finished or now - over < quiet:
        return None
    after = f" after step {run.reached}" if run.reached else ""
    return Explanation(
        NOT_TOLD,
        "info",
        f"Whether the training was complete is not known: its log stops{after}",
        f"Nothing has been written since {clock(over)} ({ago(now - over)} ago). The log tells neither how many steps "
        "there are nor how its program ended.",
        "Compare its last step with the steps that you expect.",
        evidence=(line,),
    )


def end_of_metrics_not_told(step: int, path: str) -> Explanation:
    """The note on steps of which only a file of metrics is left, which never tells how its program ended."""
    return Explanation(
        NOT_TOLD,
        "info",
        f"Whether the training was complete is not known: its metrics end with step {step}",
        "There is no log of the trainer, and metrics tell neither how many steps there are nor how its program ended.",
        "Compare the last step with the steps that you expect, and give doctor the log of the trainer, too.",
        evidence=(Evidence("", path),),
    )


def exit_without_error(run: Training, line: Evidence) -> Explanation:
    """The finding that a program tells an exit code other than 0, and that its log shows no error. ``line``: that
    says so."""
    where = "" if not run.began else f" after step {run.reached}" if run.reached else " before its first step"
    of = f" of {run.owed}" if run.reached and run.owed else ""
    return Explanation(
        FAILED,
        "warning",
        f"All {run.owed} steps are done, but its program ended with an exit code other than 0"
        if run.complete and run.owed
        else f"It failed{where}{of}: its log tells an exit code, and no error",
        f'The log ends with "{line.text}"{signal_words(line.text)}, and nothing before it says why: the error was '
        "written elsewhere, or not at all.",
        "Look for the error where the program itself writes: its own log files, the standard error of the job, Ray's "
        "session folder. Run doctor on those, too.",
        evidence=(line,),
    )


def end_of_trials_not_told(trials: TrialsStatus) -> Explanation:
    """The note on trials without a log and without metrics: they do not tell how the training went, and those without a
    result not even how they ended."""
    open_ = trials.total - trials.finished
    words = "none of its trials has a result" if not trials.finished else "only its trials are here"
    return Explanation(
        NOT_TOLD,
        "info",
        f"Whether the training was complete is not known: {words}",
        f"There is no log and there are no metrics of a trainer. Trials without a result: {open_} of {trials.total}.",
        "Name the folder of the run itself, or its trainer's log, too.",
    )
