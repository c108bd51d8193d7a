"""Whether a person can be asked a question."""

from __future__ import annotations

import os
import sys
from typing import IO, Any


def somebody_there() -> bool:
    """Whether stdin, stdout or stderr is the terminal of this process, and the process is in its foreground.

    It is not under nohup, setsid, cron, a batch system (Slurm, PBS, LSF) or in a container without ``-t``, and not in
    the background of a shell, where a question would only stop the process.
    """
    return any(_in_foreground(stream) for stream in (sys.stdin, sys.stdout, sys.stderr))


def _in_foreground(stream: IO[Any] | None) -> bool:
    try:
        return stream is not None and stream.isatty() and os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # the terminal of another session, as under setsid; or the stream is closed
        return False
