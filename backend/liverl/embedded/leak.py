"""A fault for supervision tests: a worker with its own session and process title that ignores SIGTERM.

``python -m liverl.embedded.leak`` starts it and exits at once, so that the worker outlives its parent, like a
vLLM or Ray worker whose server was killed. It exits after ``LIFETIME`` seconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

from liverl.util.append import write_all
from liverl.util.checked_path import open_checked

LIFETIME = 900  # seconds
TITLE = "liverl-leaked-worker"
_PR_SET_NAME = 15


def leak_worker() -> int:
    """Start the worker as a grandchild and return its pid.

    Raises:
        OSError, subprocess.SubprocessError: it could not be started.
    """
    command = [sys.executable, "-m", __name__]
    reply = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, start_new_session=True, timeout=30
    ).stdout
    return int(reply)


def _retitle() -> None:
    try:
        import setproctitle
    except ImportError:
        ctypes.CDLL(None).prctl(_PR_SET_NAME, TITLE.encode(), 0, 0, 0)
    else:
        # This overwrites the environment block too: its tags can no longer be read.
        setproctitle.setproctitle(TITLE)


def _main() -> None:
    ready, done = os.pipe()
    pid = os.fork()
    if pid:
        os.close(done)
        os.read(ready, 1)
        print(pid, flush=True)
        return
    os.setsid()
    for deaf in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(deaf, signal.SIG_IGN)
    signal.alarm(LIFETIME)
    _retitle()
    null = open_checked(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.close(ready)
    write_all(done, b"1")
    os.close(done)
    while True:
        signal.pause()


if __name__ == "__main__":
    _main()
