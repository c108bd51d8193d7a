"""What ``up --resume-or-start`` does with a run that has ended: go on with it, follow its job, or start nothing."""

from __future__ import annotations

from liverl.causes.quiet.end import NO_STEP
from liverl.causes.quiet.reasons import QUIET
from liverl.exit_codes import ExitCode
from liverl.model import Result
from liverl.rundir.commands import next_command
from liverl.rundir.layout import RunDir
from liverl_tui.cli.output import echo
from liverl_tui.text.words import one_line


def is_done(run: RunDir, result: Result) -> bool:
    """Whether nothing is left to do, which is then told."""
    if result.state != "done":
        return False
    how = f"has {NO_STEP}" if result.summary.startswith(NO_STEP) else "is done"
    echo(f"run {run.name} {how}; nothing was started", err=True)
    return True


def settled(run: RunDir, result: Result, *, changed: bool, follow: bool) -> int | None:
    """The exit code where nothing is to be started, told on stderr; None where the run is to be resumed. ``changed``:
    the command changes the run's configuration; ``follow``: wait for a job that is still running."""
    if result.job is not None and result.job.system == "ray":
        from liverl_tui.cli.follow_job import of_job

        found = of_job(run, result, result.job, follow=follow)
        if isinstance(found, int):
            return found
        if is_done(run, found):
            return ExitCode.OK
        result = found
    if changed or not _made_nothing(result):
        return None
    assert result.cause is not None
    echo(
        f"run {run.name}: attempt {result.attempt} made no step; it {one_line(result.cause.text)}. "
        f"{one_line(result.cause.why)} Another attempt would end in the same way, so nothing was started.\n"
        f"What to do: {one_line(result.cause.fix)}\n"
        f"To start it anyway: {next_command(result)}",
        err=True,
    )
    return ExitCode.FAILED


def _made_nothing(result: Result) -> bool:
    """Whether the attempt ended without an error, and made no step."""
    quiet = result.cause is not None and result.cause.id in QUIET
    return result.state == "stopped" and quiet and result.made == 0
