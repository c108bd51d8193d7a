"""The limit of processes and threads of a user (RLIMIT_NPROC), as the reason why none can be started."""

from __future__ import annotations

import errno
import resource


def too_few(error: BaseException) -> str | None:
    """In words, that the limit was reached, if ``error`` says that no process or thread can be started; else None."""
    no_process = isinstance(error, OSError) and error.errno == errno.EAGAIN
    no_thread = isinstance(error, RuntimeError) and str(error) == "can't start new thread"
    if not no_process and not no_thread:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    limit = "a limit of the container" if soft == resource.RLIM_INFINITY else f"ulimit -u is {soft}"
    what = "process" if no_process else "thread"
    return f"cannot start another {what}: the limit of processes and threads is reached ({limit}); raise it"
