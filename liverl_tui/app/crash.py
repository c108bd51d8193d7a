"""Reports a crash of the interface: the traceback to a file, one line to the terminal."""

from __future__ import annotations

import time
import traceback

from liverl.rundir.layout import RunDir
from liverl.util import redact
from liverl.util.visible import visible
from liverl_tui.data.own_files import write_own

FILE = "interface-crash.log"


def report(error: BaseException, run: RunDir, *, in_run: bool, goes_on: bool = True) -> str:
    """Save the traceback of ``error``, and return the line to print; with the traceback if it cannot be saved.

    ``in_run``: whether it may be saved in the run directory; see ``write_own``; ``goes_on``: the run does not end with
    the interface: it is no recording, and has not ended before."""
    from liverl.version import __version__

    inner = getattr(error, "error", None)  # Textual's WorkerFailed wraps the original error
    cause = inner if isinstance(inner, BaseException) else error
    trace = "".join(traceback.format_exception(cause))
    text = f"{time.strftime('%Y-%m-%d %H:%M:%S')} liverl-tui {__version__}\n{trace}"
    text = visible(redact.value(text), lines=True)  # an error may quote an address or a header
    still = f"; run {run.name} is still running" if goes_on else f" while it showed {run.name}"
    summary = f"liverl-tui has crashed ({type(cause).__name__}){still}"
    try:
        path = write_own(run.path, FILE, text, in_run=in_run)
    except OSError:
        return f"{summary}.\n{text}"
    return f"{summary}. The traceback is in {path}"
