"""When the interface itself fails: the traceback into a file, one line to the terminal."""

from __future__ import annotations

import time
import traceback

from liverl.rundir.layout import RunDir
from liverl_tui.data.own_files import write_own

FILE = "interface-crash.log"


def report(error: BaseException, run: RunDir, *, in_run: bool) -> str:
    """Save what happened; the line that tells of it."""
    from liverl.version import __version__

    inner = getattr(error, "error", None)  # a worker's failure wraps the one that matters
    cause = inner if isinstance(inner, BaseException) else error
    trace = "".join(traceback.format_exception(cause))
    text = f"{time.strftime('%Y-%m-%d %H:%M:%S')} liverl-tui {__version__}\n{trace}"
    said = f"liverl-tui has crashed ({type(cause).__name__}); run {run.name} is still running"
    try:
        path = write_own(run.path, FILE, text, in_run=in_run)
    except OSError:
        return f"{said}.\n{text}"
    return f"{said}. The traceback is in {path}"
