"""The services' leaders: started once each, reaped, and their exits reported."""

import os
import time
from collections.abc import KeysView

from .connections import Connections
from .descriptors import Reserve
from .exit_files import ExitFiles
from .listeners import Listeners
from .messages import Record, argv_in, name_in, text_in, texts_in, umask_in
from .processes import start_tick
from .start import Start, open_streams


class Children:
    """A record for each leader that was started, until it is forgotten."""

    def __init__(
        self, connections: Connections, listeners: Listeners, reserve: Reserve, exit_files: ExitFiles
    ) -> None:
        self._connections = connections
        self._listeners = listeners
        self._reserve = reserve
        self._exit_files = exit_files
        self._records: dict[str, Record] = {}
        self._tokens: dict[int, str] = {}  # of those that are running, by pid
        self._null = os.open("/dev/null", os.O_RDONLY)  # the standard input of services

    def records(self) -> list[Record]:
        """All records, in the order of the starts."""
        return list(self._records.values())

    @property
    def running(self) -> KeysView[int]:
        """The pids of those that have not ended."""
        return self._tokens.keys()

    def forget(self, token: str) -> None:
        """Drop the record of a child that has ended."""
        child = self._records.get(token)
        if child is not None and child["exit"] is not None:
            del self._records[token]

    def spawn(self, request: Record) -> Record:
        """Start the service of a request and return its record, or the error of its start; a token that was started
        before is not started again.

        Raises:
            ValueError, KeyError: a value of the request is not what is expected.
            OSError: its log cannot be opened, or no process can be created.
        """
        token = name_in(request, "token")
        if token in self._records:
            return self._records[token]
        env = texts_in(request, "env")
        inherited = {
            variable: self._listeners.fd(name) for variable, name in texts_in(request, "fds").items()
        }
        env.update({variable: str(fd) for variable, fd in inherited.items()})
        fds = list(inherited.values())
        start = Start(argv_in(request), env, text_in(request, "cwd"), fds, umask_in(request))
        out, error_r, error_w = self._reserve.use(lambda: open_streams(text_in(request, "log")))
        try:
            pid = os.fork()
            if pid == 0:
                start.execute(self._null, out, error_w)
            # Before anything else can fail: the exit status of an unknown child would be lost.
            child: Record = {
                "token": token,
                "pid": pid,
                "tick": None,
                "exit": None,
                "about": request.get("about"),
            }
            self._tokens[pid], self._records[token] = token, child
            os.close(error_w)
            error_w = -1
            problem = b""
            while chunk := os.read(error_r, 4096):
                problem += chunk
        finally:
            for fd in (out, error_r, error_w):
                if fd >= 0:
                    os.close(fd)
        if problem:
            os.waitpid(pid, 0)
            del self._tokens[pid], self._records[token]
            return {"error": problem.decode("utf-8", "replace")}
        child["tick"] = self._reserve.use(lambda: start_tick(pid))
        return child

    def reap(self, *, retry: bool = False) -> None:
        """Reap, report and record every exit; with ``retry`` also write those at once that could not be written."""
        # Reported before the files are written: while a checkpoint is flushed, an fsync takes longer than clients wait.
        self.report_exits()
        self._exit_files.write(retry=retry)

    def report_exits(self) -> None:
        """Reap every child that has ended, and send the exits of leaders to all clients."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            token = self._tokens.pop(pid, None)
            if token is not None:
                child = self._records[token]
                self._exit_files.add(child)
                child["exit"] = {
                    "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
                    "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
                    "at": time.time(),
                    "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
                    "peak_rss_bytes": usage.ru_maxrss * 1024,
                }
                self._connections.send_all({"exit": child})
