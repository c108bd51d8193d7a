"""The start of a service: its log, and what its process does between fork and exec."""

import errno
import os
import signal
import stat

from .messages import MAX_ERROR


class Start:
    """What a forked child executes."""

    def __init__(
        self, argv: list[str], env: dict[str, str], cwd: str, fds: list[int], umask: int | None
    ) -> None:
        self.argv, self.env, self.cwd, self.fds, self.umask = argv, env, cwd, fds, umask

    def execute(self, null: int, out: int, error_w: int) -> None:
        """After the fork: become the service, or write the problem to ``error_w``. Never returns. Opens nothing: there
        may be no descriptor left."""
        step = "start"
        try:
            step = "setsid"
            os.setsid()
            os.dup2(null, 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            for fd in self.fds:
                os.set_inheritable(fd, True)
            for number in range(1, signal.NSIG):
                if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
                    try:
                        signal.signal(number, signal.SIG_DFL)
                    except (OSError, ValueError):
                        continue
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            if self.umask is not None:
                os.umask(self.umask)
            step = f"enter {self.cwd}"
            os.chdir(self.cwd)
            step = f"execute {self.argv[0]}"
            os.execvpe(self.argv[0], self.argv, self.env)
        except BaseException as error:  # noqa: BLE001 - after a fork nothing may escape
            os.write(error_w, f"cannot {step}: {error}"[:MAX_ERROR].encode("utf-8", "replace"))
        finally:
            os._exit(127)


def open_log(path: str) -> int:
    """Open a log for appending and return its descriptor. Never waits for a reader of a FIFO.

    Raises:
        OSError: it is a link or not a regular file, or it cannot be opened.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY
    try:
        fd = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise OSError(
                error.errno, "the log is a link, a FIFO or a device; expected a regular file", path
            ) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "the log is not a regular file", path)
        os.set_blocking(fd, True)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_streams(log: str) -> tuple[int, int, int]:
    """Descriptors for a start: the log, and both ends of a pipe for its problem.

    Raises:
        OSError: as ``open_log``, or there are no more descriptors.
    """
    out = open_log(log)
    try:
        return (out, *os.pipe())
    except BaseException:
        os.close(out)
        raise
