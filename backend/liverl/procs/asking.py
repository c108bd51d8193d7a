"""Programs that are started to be asked something: their text within a time that holds, whatever they have started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from liverl.procs import procfs

_SHOWN = 120  # characters of the command that is waited for


class NotEndedError(subprocess.TimeoutExpired):
    """The program, or one that it has started and that holds its output, has not ended in time; all were killed.
    ``waits_for``: the command of the one it has started, empty if there was none."""

    def __init__(self, argv: Sequence[str], seconds: float, waits_for: str) -> None:
        super().__init__(list(argv), seconds)
        self.waits_for = waits_for


def ask_program(
    argv: Sequence[str],
    seconds: float,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """What a program has printed, and its exit code. Blocks for ``seconds`` at the most. Bytes that are not UTF-8
    are U+FFFD in the texts. It runs in a session of its own, so that what it starts, such as kubectl's plug-in for
    credentials, can be ended with it. ``env``, ``cwd``: of its process, by default ours.

    Raises:
        NotEndedError: no end within ``seconds``.
        OSError: it cannot be started.
    """
    process = subprocess.Popen(
        argv,
        env=None if env is None else dict(env),
        cwd=cwd,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            out, err = process.communicate(stdin or None, timeout=seconds)
        except BaseException as error:
            started = _started(process.pid)
            _end(process.pid)
            if isinstance(error, subprocess.TimeoutExpired):
                raise NotEndedError(argv, seconds, started) from None
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that a program has written to stderr, or its exit code."""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit {done.returncode}"


def _started(leader: int) -> str:
    others = [pid for pid in procfs.scan() if pid != leader and _session(pid) == leader]
    return procfs.command_line(max(others))[:_SHOWN] if others else ""


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0  # it has ended


def _end(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass
