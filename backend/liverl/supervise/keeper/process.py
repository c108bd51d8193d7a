"""The keeper: parent and subreaper of a run's services, holder of its listening sockets.

It runs as a separate script (``python -I -S process.py RUN_DIR``) with the standard library only, so that it stays
small and outlives the backend. While no backend runs, services keep their parent, their exit statuses are still
collected, and the proxy's port stays bound. It makes no decisions about services. Clients send one JSON request per
line on ``keeper.sock`` and get one answer each:

``hello``                         -> pid, children, listeners
``spawn`` token argv env cwd log fds [umask] [about] -> pid, tick (idempotent: a token is started once; ``about`` is
                                     kept in the child's record, for a backend whose journal is damaged)
``listen`` name host port         -> port (idempotent); the host is a numeric address
``adopt_fd`` name (+ SCM_RIGHTS)  -> takes over a listening socket
``get_fd`` name                   -> answer (+ SCM_RIGHTS)
``forget`` token                  -> drops an ended child's record
``close`` name                    -> closes a listening socket
``ends``                          -> empty; sent after the exits of all children that have ended so far
``exit``                          -> ends the keeper; refused while children are running, and then the keeper ends
                                     after the last of them, once no client is connected

Whenever a leader ends, every client is sent ``{"exit": {...}}`` and ``exits/TOKEN.json`` is written.

No client can end or block the keeper. A request that it cannot carry out is answered with ``{"error": ...}``. The
keeper opens nothing that could block it, it never waits for a client, and what it keeps for clients is limited:
requests, answers that nobody reads, descriptors, connections. When connections or descriptors run out, it closes
connections that have never made a valid request, the oldest first.

If the run's directory was removed and no backend is connected, nobody can find the run any more. The keeper then ends
every process below it (TERM to the leaders, TERM to all, KILL to all) and exits, which frees the ports. The directory
counts as removed when its link count is 0: a directory that was moved still has a link, and an error from the file
system proves nothing.
"""

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import stat
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Record = dict[str, Any]

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
MAX_LINE = 4 << 20  # bytes of a request
MAX_UNSENT = 4 << 20  # bytes of answers that a client has not read; with more it is disconnected
MAX_BUFFERED = 32 << 20  # bytes of both for all clients; beyond it the client with the most is disconnected
PAUSE_READING = 1 << 16  # bytes of unread answers at which no more requests are taken from a client
MAX_CLIENTS = 128  # connections at the same time
MAX_OF_PROCESS = 16  # of these, from one process; with more, its oldest is disconnected
ACCEPTS = 64  # connections accepted before the clients are served again; less than MAX_CLIENTS
LINES = 8  # requests of one client that are answered before it is the next one's turn
MAX_FDS = 4  # descriptors that a client has sent and not used yet; further ones are closed
SPARE_FDS = 8  # descriptors kept for requests, connections and files when no others are left
NEEDED_FDS = 4  # of these, for a start; with fewer, connections are closed
MAX_NAME = 200  # characters of a token or of a listening socket's name
MAX_ERROR = 1000  # characters of an error in an answer
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
LOOK_AROUND_MS = 60_000  # between two checks of the run directory while a backend is connected
ALONE_MS = 5_000  # the same while no backend is connected; also between two attempts to write an exit status
ENDING_MS = 200  # between two checks of the processes that are being ended
# Seconds of each stage; after KILL_GRACE the keeper exits although processes could not be killed.
LEADERS_GRACE, TREE_GRACE, KILL_GRACE = 10.0, 5.0, 30.0
BACKLOG = 2048  # connections that wait for a proxy to accept them; the kernel caps it at net.core.somaxconn


class Client:
    """One connection: the bytes that were received and not answered yet, and the answers that were not sent yet."""

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.sock = sock
        self.pid = pid
        self.fd = sock.fileno()
        self.known = False  # it has made a valid request
        self.closed = False
        self.received = bytearray()
        self.searched = 0  # bytes of ``received`` in which there is no end of a line
        self.fds: list[int] = []  # received and not used yet
        self.unsent: deque[tuple[memoryview, list[int]]] = deque()  # with duplicated descriptors
        self.unsent_bytes = 0

    @property
    def has_request(self) -> bool:
        """Whether there is a complete request that can be answered now."""
        if self.closed or self.unsent_bytes > PAUSE_READING:
            return False
        end = self.received.find(b"\n", self.searched)
        self.searched = end if end >= 0 else len(self.received)
        return end >= 0

    def take_line(self) -> bytes | None:
        """Remove and return the next line; None if it is not complete."""
        end = self.received.find(b"\n", self.searched)
        if end < 0:
            return None
        line = bytes(self.received[:end])
        del self.received[: end + 1]
        self.searched = 0
        return line

    @property
    def events(self) -> int:
        """What to wait for: requests, unless earlier ones or their answers are pending; room for answers."""
        reading = 0 if self.unsent_bytes > PAUSE_READING or self.has_request else select.POLLIN
        return reading | (select.POLLOUT if self.unsent else 0)


class Reserve:
    """Descriptors that are open for nothing, to be closed when one is needed and none is left."""

    def __init__(self) -> None:
        self.fds: list[int] = []
        self.fill()

    def fill(self) -> int:
        """Open the missing ones. Returns how many there are now."""
        while len(self.fds) < SPARE_FDS:
            try:
                self.fds.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        return len(self.fds)

    def release(self) -> None:
        """Close all of them."""
        while self.fds:
            os.close(self.fds.pop())


class Keeper:
    """Serves one run directory. Creating it binds ``keeper.sock`` and changes into the directory.

    Raises:
        SystemExit: another keeper serves this directory (code 3).
        OSError: the directory cannot be written.
    """

    def __init__(self, run_dir: str) -> None:
        self.run_dir = run_dir
        self.children: dict[str, Record] = {}
        self.by_pid: dict[int, str] = {}
        self.unwritten: list[Record] = []  # children whose exits are reported, and not written yet
        self.failed: list[Record] = []  # the same after a write error
        self.retry_at = 0.0  # monotonic seconds; when ``failed`` are written again
        self.last_fault = ""
        self.listeners: dict[str, socket.socket] = {}
        self.clients: dict[int, Client] = {}
        self.server = self._bind()
        self.wake_r, wake_w = os.pipe()
        os.set_blocking(self.wake_r, False)
        os.set_blocking(wake_w, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Only the request "exit" or SIGKILL ends the keeper: when a batch system sends TERM to every process, the
        # exit statuses and the port must survive until the services have ended.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self.null = os.open("/dev/null", os.O_RDONLY)  # the standard input of services
        self.reserve = Reserve()
        self.poll = select.poll()
        self.poll.register(self.server, select.POLLIN)
        self.poll.register(self.wake_r, select.POLLIN)
        self.dismissed = False  # exit after the last child has ended, unless a client says hello
        self.ended = False
        self.removed_at: float | None = None  # monotonic seconds; None while the run directory exists
        self.stage = 0  # 1: TERM sent to the leaders, 2: TERM sent to all

    def _bind(self) -> socket.socket:
        os.chdir(self.run_dir)  # a relative socket path avoids the limit of 107 bytes
        os.makedirs("exits", exist_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if answered("keeper.sock"):
            complain("another keeper is already running for this run")
            raise SystemExit(3)
        with contextlib.suppress(FileNotFoundError):
            os.unlink("keeper.sock")
        old_umask = os.umask(0o177)
        sock.bind("keeper.sock")
        os.umask(old_umask)
        sock.listen(MAX_CLIENTS)
        sock.setblocking(False)
        return sock

    def run(self) -> None:
        """Serve until a client requests the exit, or the run directory was removed and its processes have ended."""
        over = False
        while not (self.ended or over):
            try:
                over = self._round()
            except Exception as error:  # noqa: BLE001 - no fault of its own ends the parent of all services
                self._report_fault(error)

    def _round(self) -> bool:
        """Wait for something to do, and do it. Returns whether the keeper is not needed any more."""
        # A connected backend stops the services itself, and must not wait for the keeper while the file system hangs.
        if (
            self.removed_at is None
            and not (self.by_pid and self._backend_connected())
            and directory_removed()
        ):
            complain("the run directory was removed; stopping its services")
            self.removed_at = time.monotonic()
        if self.removed_at is not None and self._end_all(time.monotonic() - self.removed_at):
            return True
        for fd, event in self.poll.poll(self._pause()):
            if fd == self.wake_r:
                self._drain_wakeups()
            elif fd == self.server.fileno():
                self._accept()
            elif fd in self.clients:
                self._one_client(self.clients[fd], lambda client: self._serve(client, event))  # noqa: B023
        for client in [client for client in self.clients.values() if client.has_request]:
            self._one_client(client, self._answer_lines)
        self._limit_buffers()
        self._reap()
        self._refill()
        return self.dismissed and not self.by_pid and not self._backend_connected() and not self.poll.poll(0)

    def _one_client(self, client: Client, do: Callable[[Client], None]) -> None:
        """``do(client)``; a client for which that fails is disconnected, and the others are served."""
        try:
            do(client)
        except Exception as error:  # noqa: BLE001 - see run
            self._report_fault(error)
            self._drop(client)

    def _report_fault(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self.last_fault:
            self.last_fault = text
            complain(f"internal error, the keeper continues: {text}")
        time.sleep(0.05)  # the same may fail again at once

    def _backend_connected(self) -> bool:
        """Whether a client is connected that has made a valid request."""
        return any(client.known for client in self.clients.values())

    def _pause(self) -> int:
        """Milliseconds until the next check of the directory or the processes, if no request comes."""
        if any(client.has_request for client in self.clients.values()):
            return 0
        if self.removed_at is not None:
            return ENDING_MS
        return LOOK_AROUND_MS if self._backend_connected() and not self.failed else ALONE_MS

    def _end_all(self, passed: float) -> bool:
        """Carry out the stage that is due ``passed`` seconds after the directory was found removed. Returns whether to
        exit: nothing is running any more, or the last grace is over."""
        tree = self._with_reserve(lambda: descendants(os.getpid()))
        if not tree or passed > LEADERS_GRACE + TREE_GRACE + KILL_GRACE:
            return True
        self.reserve.release()
        if passed > LEADERS_GRACE + TREE_GRACE:
            send(tree, signal.SIGKILL)  # repeated: new forks may have escaped the previous signal
        elif passed > LEADERS_GRACE and self.stage < 2:
            self.stage = 2
            send(tree, signal.SIGTERM)
        elif self.stage < 1:
            self.stage = 1
            send({pid: tick for pid, tick in tree.items() if pid in self.by_pid}, signal.SIGTERM)
        self._refill()
        return False

    def _drain_wakeups(self) -> None:
        try:
            os.read(self.wake_r, 4096)
        except BlockingIOError:
            pass

    # --- descriptors ---

    def _with_reserve(self, do: Callable[[], T]) -> T:
        """``do()``; if there are no descriptors for it, once more with those of the reserve."""
        try:
            return do()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
        self.reserve.release()
        try:
            return do()
        finally:
            self._refill()

    def _refill(self) -> None:
        """Fill the reserve, if necessary at the expense of clients that have never made a valid request."""
        while self.reserve.fill() < NEEDED_FDS and self._drop_unknown():
            pass

    def _drop_unknown(self) -> bool:
        """Disconnect the oldest client that has never made a valid request. Returns whether there was one."""
        client = next((client for client in self.clients.values() if not client.known), None)
        if client is not None:
            self._drop(client)
        return client is not None

    # --- children ---

    def _reap(self) -> None:
        self._report_exits()
        if self.failed and time.monotonic() >= self.retry_at:
            self.unwritten += self.failed
            self.failed = []
        # Reported before the files are written: while a checkpoint is flushed, an fsync takes longer than clients wait.
        while self.unwritten:
            child = self.unwritten.pop(0)
            try:
                self._with_reserve(lambda: write_exit(child))  # noqa: B023 - called at once
            except (OSError, ValueError) as error:
                # Kept in self.children, which "hello" returns: a full disk must not lose an exit status.
                text = f"could not write the exit status of {child['token']}: {error}"
                if text != self.last_fault:
                    self.last_fault = text
                    complain(text)
                self.failed.append(child)
                self.retry_at = time.monotonic() + ALONE_MS / 1000

    def _report_exits(self) -> None:
        """Reap every child that has ended, and send the exits of leaders to all clients."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            token = self.by_pid.pop(pid, None)
            if token is not None:
                child = self.children[token]
                self.unwritten.append(child)
                child["exit"] = {
                    "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
                    "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
                    "at": time.time(),
                    "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
                    "peak_rss_bytes": usage.ru_maxrss * 1024,
                }
                for client in list(self.clients.values()):
                    self._send(client, {"exit": child})

    def _spawn(self, request: Record) -> Record:
        token = name_in(request, "token")
        if token in self.children:
            return self.children[token]
        env = texts_in(request, "env")
        inherited = {
            variable: self.listeners[name].fileno() for variable, name in texts_in(request, "fds").items()
        }
        env.update({variable: str(fd) for variable, fd in inherited.items()})
        fds = list(inherited.values())
        start = Start(argv_in(request), env, text_in(request, "cwd"), fds, umask_in(request))
        out, error_r, error_w = self._with_reserve(lambda: open_streams(text_in(request, "log")))
        try:
            pid = os.fork()
            if pid == 0:
                start.execute(self.null, out, error_w)
            # Before anything else can fail: the exit status of an unknown child would be lost.
            child: Record = {
                "token": token,
                "pid": pid,
                "tick": None,
                "exit": None,
                "about": request.get("about"),
            }
            self.by_pid[pid], self.children[token] = token, child
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
            del self.by_pid[pid], self.children[token]
            return {"error": problem.decode("utf-8", "replace")}
        child["tick"] = self._with_reserve(lambda: start_tick(pid))
        return child

    # --- clients ---

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, _ = self._with_reserve(self.server.accept)
            except BlockingIOError:
                return
            except OSError as error:
                self._report_fault(error)
                return
            raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, uid, _ = struct.unpack("3i", raw)
            self._drop_surplus(pid)
            if uid not in (0, os.geteuid()) or (
                len(self.clients) >= MAX_CLIENTS and not self._drop_unknown()
            ):
                sock.close()
                continue
            sock.setblocking(False)
            client = self.clients[sock.fileno()] = Client(sock, pid)
            self.poll.register(sock, client.events)
            self._refill()

    def _drop_surplus(self, pid: int) -> None:
        """Make room for one more connection of a process: one that makes ever more must not shut out the backend."""
        same = [client for client in self.clients.values() if client.pid == pid]
        if len(same) >= MAX_OF_PROCESS:
            self._drop(next((client for client in same if not client.known), same[0]))

    def _drop(self, client: Client) -> None:
        if client.closed:
            return
        client.closed = True
        self.poll.unregister(client.fd)
        del self.clients[client.fd]
        for fd in client.fds:
            os.close(fd)
        for _, fds in client.unsent:
            for fd in fds:
                os.close(fd)
        client.sock.close()

    def _limit_buffers(self) -> None:
        while True:
            sizes = {fd: len(c.received) + c.unsent_bytes for fd, c in self.clients.items()}
            if sum(sizes.values()) <= MAX_BUFFERED:
                return
            self._drop(self.clients[max(sizes, key=lambda fd: sizes[fd])])

    def _serve(self, client: Client, event: int) -> None:
        """Handle what ``poll`` has reported for a client."""
        self._flush(client)
        if not client.closed and client.events & select.POLLIN:
            self._read(client)
        elif event & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
            self._drop(client)  # nobody will read the answers that it still gets

    def _read(self, client: Client) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(client.sock, 1 << 16, MAX_FDS, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        client.fds += fds
        while len(client.fds) > MAX_FDS:
            os.close(client.fds.pop())
        if not data or len(client.received) + len(data) > MAX_LINE:
            self._drop(client)
            return
        client.received += data
        self._answer_lines(client)

    def _answer_lines(self, client: Client) -> None:
        """Answer some of the client's requests; the others come after those of other clients."""
        for _ in range(LINES):
            if not client.has_request or self.ended:
                break
            line = client.take_line()
            assert line is not None
            self._answer(client, line)
        if client.closed:
            return
        if not client.received:
            while client.fds:  # they belong to no request
                os.close(client.fds.pop())
        self.poll.modify(client.fd, client.events)

    def _answer(self, client: Client, line: bytes) -> None:
        send_fds: list[int] = []
        number = None
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise TypeError(f"expected a JSON object, found {type(request).__name__}")
            if isinstance(request.get("id"), int | str):
                number = request["id"]
            answer = self._do(client, request, send_fds)
            client.known = True
        except Exception as error:  # noqa: BLE001 - whatever a request causes is answered
            text = f"{type(error).__name__}: {error}"[:MAX_ERROR]
            answer = {"error": text, "errno": getattr(error, "errno", None)}
        self._send(client, {"id": number, **answer}, send_fds)

    def _send(self, client: Client, message: Record, fds: list[int] | None = None) -> None:
        """Send a message, or keep it until the client reads. ``fds`` now belong to this object."""
        if client.closed or client.unsent_bytes > MAX_UNSENT:
            for fd in fds or ():
                os.close(fd)
            self._drop(client)
            return
        data = memoryview(json.dumps(message).encode() + b"\n")
        client.unsent.append((data, fds or []))
        client.unsent_bytes += len(data)
        self._flush(client)

    def _flush(self, client: Client) -> None:
        """Send what the client's socket takes now."""
        while client.unsent and not client.closed:
            data, fds = client.unsent[0]
            try:
                sent = socket.send_fds(client.sock, [data], fds) if fds else client.sock.send(data)
            except BlockingIOError:
                break
            except OSError:
                self._drop(client)
                return
            for fd in fds:
                os.close(fd)
            client.unsent_bytes -= sent
            if sent < len(data):
                client.unsent[0] = (data[sent:], [])
            else:
                client.unsent.popleft()
        if not client.closed:
            self.poll.modify(client.fd, client.events)

    def _do(self, client: Client, request: Record, send_fds: list[int]) -> Record:
        kind = request["do"]
        if kind == "hello":
            self.dismissed = False  # a backend uses the keeper again
            ports = {name: sock.getsockname()[1] for name, sock in self.listeners.items()}
            return {"pid": os.getpid(), "children": list(self.children.values()), "listeners": ports}
        if kind == "ends":
            self._report_exits()
            return {}
        if kind == "spawn":
            return self._spawn(request)
        if kind == "listen":
            return {"port": self._listen(request)}
        if kind == "get_fd":
            listener = self.listeners[name_in(request, "name")]
            send_fds.append(self._with_reserve(lambda: os.dup(listener.fileno())))
            return {"name": request["name"]}
        if kind == "adopt_fd":
            return {"port": self._adopt(client, name_in(request, "name"))}
        if kind == "forget":
            child = self.children.get(name_in(request, "token"))
            if child is not None and child["exit"] is not None:
                del self.children[child["token"]]
            return {}
        if kind == "close":
            sock = self.listeners.pop(name_in(request, "name"), None)
            if sock is not None:
                sock.close()
            return {}
        if kind == "exit":
            self.retry_at = 0.0
            self._reap()
            self.dismissed = True
            if self.by_pid:
                return {"error": f"service processes still running: {len(self.by_pid)}"}
            self.ended = True
            return {}
        raise ValueError(f"unknown request {str(kind)[:MAX_NAME]!r}")

    def _listen(self, request: Record) -> int:
        name, host, port = name_in(request, "name"), text_in(request, "host"), request["port"]
        if name not in self.listeners:
            if not isinstance(port, int) or not 0 <= port <= 65535:
                raise ValueError(f"port: expected a number from 0 to 65535, found {str(port)[:MAX_NAME]}")
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            if not numeric(family, host):  # a name would be looked up, which can take minutes
                raise ValueError(f"host: expected an IP address such as 127.0.0.1, found {host[:MAX_NAME]!r}")
            sock = self._with_reserve(lambda: socket.socket(family, socket.SOCK_STREAM))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((host, port))
                sock.listen(BACKLOG)
            except OSError as error:
                sock.close()
                raise OSError(error.errno, f"{host}:{port}: {os.strerror(error.errno or 0)}") from None
            self.listeners[name] = sock
        number: int = self.listeners[name].getsockname()[1]
        return number

    def _adopt(self, client: Client, name: str) -> int:
        """Take over the descriptor that came with a request; it is closed if it is no listening TCP socket."""
        if not client.fds:
            raise ValueError("no descriptor came with the request")
        fd = client.fds.pop(0)
        if not listens(fd):
            os.close(fd)
            raise ValueError("the descriptor is not a listening TCP socket")
        sock = socket.socket(fileno=fd)
        if name in self.listeners:
            sock.close()
        else:
            self.listeners[name] = sock
        number: int = self.listeners[name].getsockname()[1]
        return number


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


# --- requests ---


def found(value: object) -> str:
    """What a value is, for an error."""
    return "nothing" if value is None else type(value).__name__


def text_in(request: Record, key: str) -> str:
    """A text of a request. Raises ValueError if it is something else."""
    value = request.get(key)
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{key}: expected a text without null characters, found {found(value)}")
    return value


def name_in(request: Record, key: str) -> str:
    """A token, or the name of a listening socket: also the name of a file. Raises ValueError if it cannot be one."""
    value = text_in(request, key)
    if not 0 < len(value) <= MAX_NAME or not value.isascii() or not value.isprintable():
        raise ValueError(
            f"{key}: expected 1 to {MAX_NAME} printable ASCII characters, found {value[:MAX_NAME]!r}"
        )
    if "/" in value or value.startswith("."):
        raise ValueError(f"{key}: expected a name without '/' that does not begin with '.', found {value!r}")
    return value


def texts_in(request: Record, key: str) -> dict[str, str]:
    """A copy of an object of texts; empty if it is missing. Raises ValueError if it is something else."""
    value = request.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key}: expected an object, found {found(value)}")
    return {name: text_in(value, name) for name in value}


def argv_in(request: Record) -> list[str]:
    """The command of a request. Raises ValueError if it is none."""
    value = request.get("argv")
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise ValueError("argv: expected a list of at least one text")
    return value


def umask_in(request: Record) -> int | None:
    """The umask of a request; None if there is none: older backends send none. Raises ValueError if it is no mode."""
    value = request.get("umask")
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0o777):
        return value
    raise ValueError(f"umask: expected a number from 0 to {0o777}, found {value!r}"[:200])


def numeric(family: int, host: str) -> bool:
    """Whether ``host`` is an address of the family, not a name."""
    try:
        socket.inet_pton(family, host)
    except (OSError, ValueError):
        return False
    return True


# --- files and sockets ---


def answered(path: str) -> bool:
    """Whether a process listens on the socket ``path``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True  # as many connections wait for it as its socket holds
        except OSError:
            return False
        return True


def listens(fd: int) -> bool:
    """Whether a descriptor is a listening TCP socket."""
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return False
    with socket.socket(fileno=os.dup(fd)) as sock:
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
            return False
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1


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


def write_exit(child: Record) -> None:
    """Write ``exits/TOKEN.json`` with fsync. Raises OSError."""
    path = f"exits/{child['token']}.json"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + ".tmp")
    # A new file only: another program may have put a link or a FIFO there.
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump(child, file)
        file.flush()
        os.fsync(fd)
    os.replace(path + ".tmp", path)


def complain(text: str) -> None:
    """Write a line to keeper.log. Write errors are ignored: a full disk must not end the keeper."""
    try:
        os.write(2, f"{text}\n".encode())
    except OSError:
        pass


def directory_removed() -> bool:
    """Whether the keeper's working directory, the run directory, was removed. False if it was moved, or if the file
    system returns an error."""
    try:
        return os.stat(".").st_nlink == 0
    except OSError:
        return False


def stat_of(pid: int) -> list[bytes]:
    """The fields of ``/proc/PID/stat`` from the third (state) on; empty if there is no such process, or if it
    is hidden from this user.

    Raises:
        OSError: the file cannot be read for another reason.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM):
            return []
        raise


def start_tick(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if there is no such process. With the pid it
    identifies a process, since pids are reused."""
    fields = stat_of(pid)
    return int(fields[19]) if fields else None


def descendants(root: int) -> dict[int, int]:
    """Every process below ``root`` that has not ended: pid -> start tick."""
    table = {
        int(name): fields for name in os.listdir("/proc") if name.isdigit() and (fields := stat_of(int(name)))
    }
    children: dict[int, list[int]] = {}
    for pid, fields in table.items():
        children.setdefault(int(fields[1]), []).append(pid)
    below: dict[int, int] = {}
    pending = list(children.get(root, ()))
    while pending:
        pid = pending.pop()
        pending += children.get(pid, ())
        if table[pid][0] not in (b"Z", b"X"):
            below[pid] = int(table[pid][19])
    return below


def send(processes: dict[int, int], number: signal.Signals) -> None:
    """Send a signal to exactly these processes (pid -> start tick), never to another process with a reused pid."""
    for pid, tick in processes.items():
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            continue  # it has ended
        try:
            if start_tick(pid) == tick:
                signal.pidfd_send_signal(fd, number)
        except OSError as error:
            complain(f"cannot send {number.name} to pid {pid}: {error}")
        finally:
            os.close(fd)


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
    if os.path.exists("keeper.sock"):
        os.unlink("keeper.sock")


if __name__ == "__main__":
    main()
