"""``up --resume-or-start``: one command for the first start of a batch job's run and for every requeue."""

from __future__ import annotations

import os
import time

from liverl.exit_codes import ExitCode
from liverl.rundir.index import RunLookupError, describe, elsewhere_message
from liverl.rundir.layout import DeadBackend, LiveBackend, RemoteBackend, RunDir, backend_alive
from liverl_tui.cli.options import UpOptions
from liverl_tui.cli.output import echo
from liverl_tui.text.errors import CliError

_OPTION = "--resume-or-start"
_LOOK_S = 0.2  # seconds between two looks at the run of another host


def check_options(options: UpOptions) -> None:
    """Check what is given beside ``--resume-or-start``.

    Raises:
        CliError: another option excludes it, or nothing names the run.
    """
    from liverl_tui.cli.resume import names_no_run

    given = {
        "--run": options.run is not None,
        "--resume": options.resume is not None,
        "--readonly": options.readonly,
    }
    for other in (name for name, is_given in given.items() if is_given):
        raise CliError(
            f"{_OPTION} and {other} exclude each other; {_OPTION} starts or resumes the run that --name names",
            ExitCode.USAGE,
        )
    if names_no_run(options):
        raise CliError(
            f"{_OPTION} needs the run's name, so that every start finds the same run; give --name NAME",
            ExitCode.USAGE,
        )


def state_of_backend(run: RunDir) -> LiveBackend | DeadBackend:
    """The run's backend, seen from this host. A job that is requeued on another host finds the heartbeat of a backend
    that Slurm has ended a moment ago: wait until it counts as dead, unless the run has a result already.

    Raises:
        RunLookupError: the backend on the other host is alive.
    """
    first = _heartbeat(run)
    told = False
    while isinstance(alive := backend_alive(run.path), RemoteBackend):
        # The result is written when every service has ended, and removed when the next attempt begins.
        if run.read_result() is not None:
            return DeadBackend(alive.record)
        if _heartbeat(run) > first:
            raise RunLookupError(elsewhere_message(describe(run.path)))
        if not told:
            told = True
            echo(
                f"run {run.name} was running on {alive.host} a moment ago; waiting until its backend there counts as "
                "dead, which takes three minutes at most",
                err=True,
            )
        time.sleep(_LOOK_S)
    return alive


def _heartbeat(run: RunDir) -> int:
    """When the backend's record was last written or touched; 0: there is none."""
    try:
        return os.stat(run.backend).st_mtime_ns
    except OSError:
        return 0
