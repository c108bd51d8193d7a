"""The main loop: waits for clients and exits, and lets each part do its work."""

import ctypes
import os
import select
import signal
import sys
from collections.abc import Callable

from . import server
from .children import Children
from .connections import Client, Connections
from .descriptors import Reserve
from .exit_files import FOLDER, RETRY_MS, ExitFiles
from .faults import Faults
from .listeners import Listeners
from .removal import Removal
from .requests import Requests

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
LOOK_AROUND_MS = 60_000  # between two checks of the run directory while a backend is connected
ALONE_MS = 5_000  # the same while no backend is connected
ENDING_MS = 200  # between two checks of the processes that are being ended


class Keeper:
    """Serves one run directory. Creating it binds ``keeper.sock`` and changes into the directory.

    Raises:
        SystemExit: another keeper serves this directory (code 3).
        OSError: the directory cannot be written.
    """

    def __init__(self, run_dir: str) -> None:
        os.chdir(run_dir)  # a relative socket path avoids the limit of 107 bytes
        os.makedirs(FOLDER, exist_ok=True)
        self.server = server.bind()
        self.wake_r, wake_w = os.pipe()
        os.set_blocking(self.wake_r, False)
        os.set_blocking(wake_w, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Only the request "exit" or SIGKILL ends the keeper: when a batch system sends TERM to every process, the
        # exit statuses and the port must survive until the services have ended.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self.poll = select.poll()
        self.poll.register(self.server, select.POLLIN)
        self.poll.register(self.wake_r, select.POLLIN)
        self.faults = Faults()
        self.connections = Connections(self.poll)
        self.reserve = Reserve(self.connections.drop_unknown)
        self.listeners = Listeners(self.reserve)
        self.exit_files = ExitFiles(self.reserve, self.faults)
        self.children = Children(self.connections, self.listeners, self.reserve, self.exit_files)
        self.requests = Requests(self.connections, self.children, self.listeners)
        self.removal = Removal(self.reserve)

    def run(self) -> None:
        """Serve until a client requests the exit, or the run directory was removed and its processes have ended."""
        over = False
        while not (self.requests.ended or over):
            try:
                over = self._round()
            except Exception as error:  # noqa: BLE001 - no fault of its own ends the parent of all services
                self.faults.report(error)

    def _round(self) -> bool:
        """Wait for something to do, and do it. Returns whether the keeper is not needed any more."""
        # A connected backend stops the services itself, and must not wait for the keeper while the file system hangs.
        if not (self.children.running and self.connections.backend_connected):
            self.removal.look()
        if self.removal.end_all(self.children.running):
            return True
        for fd, event in self.poll.poll(self._pause()):
            if fd == self.wake_r:
                self._drain_wakeups()
            elif fd == self.server.fileno():
                server.accept(self.server, self.connections, self.reserve, self.faults)
            elif (client := self.connections.of(fd)) is not None:
                self._one_client(client, lambda client: self._serve(client, event))  # noqa: B023
        for client in self.connections.with_requests():
            self._one_client(client, self.requests.answer_some)
        self.connections.limit_buffers()
        self.children.reap()
        self.reserve.fill()
        return self._not_needed() and not self.poll.poll(0)

    def _one_client(self, client: Client, do: Callable[[Client], None]) -> None:
        """``do(client)``; a client for which that fails is disconnected, and the others are served."""
        try:
            do(client)
        except Exception as error:  # noqa: BLE001 - see run
            self.faults.report(error)
            self.connections.drop(client)

    def _serve(self, client: Client, event: int) -> None:
        if self.connections.serve(client, event):
            self.requests.answer_some(client)

    def _not_needed(self) -> bool:
        """Whether it was dismissed, and has neither children nor a backend."""
        return (
            self.requests.dismissed and not self.children.running and not self.connections.backend_connected
        )

    def _pause(self) -> int:
        """Milliseconds until the next check of the directory or the processes, if no request comes."""
        if self.connections.with_requests():
            return 0
        if self.removal.noticed:
            return ENDING_MS
        pause = LOOK_AROUND_MS if self.connections.backend_connected else ALONE_MS
        return min(pause, RETRY_MS) if self.exit_files.failed else pause

    def _drain_wakeups(self) -> None:
        try:
            os.read(self.wake_r, 4096)
        except BlockingIOError:
            pass


def main() -> None:
    """Run the keeper for the directory in ``sys.argv[1]``. Prints ``ready`` for the backend that started it once the
    socket accepts connections."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NAME, b"liverl-keeper", 0, 0, 0)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        print(f"cannot become a subreaper: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
    keeper = Keeper(sys.argv[1])
    print("ready", flush=True)
    # Close the pipe to the backend: from now on they communicate by the socket only.
    null = os.open("/dev/null", os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    keeper.run()
    server.unbind()
