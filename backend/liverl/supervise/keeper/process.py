"""The keeper: parent and subreaper of a run's services, holder of its listening sockets.

It runs as a separate script (``python -I -S process.py RUN_DIR``) with the standard library only, so that it stays
small and outlives the backend. While no backend runs, services keep their parent, their exit statuses are still
collected, and the proxy's port stays bound. It makes no decisions about services. Clients send one JSON request per
line on ``keeper.sock`` and get one answer each:

``hello``                         -> pid, children, listeners
``spawn`` token argv env cwd log fds [umask] -> pid, tick (idempotent: a token is started once)
``listen`` name host port         -> port (idempotent)
``adopt_fd`` name (+ SCM_RIGHTS)  -> takes over a listening socket
``get_fd`` name                   -> answer (+ SCM_RIGHTS)
``forget`` token                  -> drops an ended child's record
``close`` name                    -> closes a listening socket
``ends``                          -> empty; sent after the exits of all children that have ended so far
``exit``                          -> ends the keeper; refused while children are running, and then the keeper ends
                                     after the last of them, once no client is connected

Whenever a leader ends, every client is sent ``{"exit": {...}}`` and ``exits/TOKEN.json`` is written.

If the run's directory was removed and no backend is connected, nobody can find the run any more. The keeper then ends
every process below it (TERM to the leaders, TERM to all, KILL to all) and exits, which frees the ports. The directory
counts as removed when its link count is 0: a directory that was moved still has a link, and an error from the file
system proves nothing.
"""

import ctypes
import errno
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
MAX_LINE = 4 << 20
LOOK_AROUND_MS = 60_000  # between two checks of the run directory while a backend is connected
ALONE_MS = 5_000  # the same while no backend is connected
ENDING_MS = 200  # between two checks of the processes that are being ended
# Seconds of each stage; after KILL_GRACE the keeper exits although processes could not be killed.
LEADERS_GRACE, TREE_GRACE, KILL_GRACE = 10.0, 5.0, 30.0
BACKLOG = 2048  # connections that wait for a proxy to accept them; the kernel caps it at net.core.somaxconn


class Client:
    """One connection, with the bytes of an incomplete request line and the descriptors received so far."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""
        self.fds: list[int] = []


class Keeper:
    """Serves one run directory. Creating it binds ``keeper.sock`` and changes into the directory.

    Raises:
        SystemExit: another keeper serves this directory (code 3).
        OSError: the directory cannot be written.
    """

    def __init__(self, run_dir: str) -> None:
        self.run_dir = run_dir
        self.children: dict[str, dict[str, Any]] = {}
        self.by_pid: dict[int, str] = {}
        self.unwritten: list[tuple[str, dict[str, Any]]] = []  # reported exits without their file yet
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
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            probe.connect("keeper.sock")
        except OSError:
            try:
                os.unlink("keeper.sock")
            except FileNotFoundError:
                pass
        else:
            complain("another keeper is already running for this run")
            raise SystemExit(3)
        finally:
            probe.close()
        old_umask = os.umask(0o177)
        sock.bind("keeper.sock")
        os.umask(old_umask)
        sock.listen(8)
        sock.setblocking(False)
        return sock

    def run(self) -> None:
        """Serve until a client requests the exit, or the run directory was removed and its processes have ended."""
        while not self.ended:
            # A connected backend stops the services itself, and must not wait for the keeper while the file
            # system hangs.
            if self.removed_at is None and not (self.by_pid and self.clients) and directory_removed():
                complain("the run directory was removed; stopping its services")
                self.removed_at = time.monotonic()
            if self.removed_at is not None and self._end_all(time.monotonic() - self.removed_at):
                return
            for fd, _ in self.poll.poll(self._pause()):
                if fd == self.wake_r:
                    self._drain_wakeups()
                elif fd == self.server.fileno():
                    self._accept()
                elif fd in self.clients:
                    self._read(self.clients[fd])
            self._reap()
            if self.dismissed and not self.by_pid and not self.clients and not self.poll.poll(0):
                return

    def _pause(self) -> int:
        """Milliseconds until the next check of the directory or the processes, if no request comes."""
        if self.removed_at is not None:
            return ENDING_MS
        return LOOK_AROUND_MS if self.clients else ALONE_MS

    def _end_all(self, passed: float) -> bool:
        """Carry out the stage that is due ``passed`` seconds after the directory was found removed. Returns whether to
        exit: nothing is running any more, or the last grace is over."""
        tree = descendants(os.getpid())
        if not tree or passed > LEADERS_GRACE + TREE_GRACE + KILL_GRACE:
            return True
        if passed > LEADERS_GRACE + TREE_GRACE:
            send(tree, signal.SIGKILL)  # repeated: new forks may have escaped the previous signal
        elif passed > LEADERS_GRACE and self.stage < 2:
            self.stage = 2
            send(tree, signal.SIGTERM)
        elif self.stage < 1:
            self.stage = 1
            send({pid: tick for pid, tick in tree.items() if pid in self.by_pid}, signal.SIGTERM)
        return False

    def _drain_wakeups(self) -> None:
        try:
            os.read(self.wake_r, 4096)
        except BlockingIOError:
            pass

    # --- children ---

    def _reap(self) -> None:
        self._report_exits()
        # Reported before the files are written: while a checkpoint is flushed, an fsync takes longer than clients wait.
        while self.unwritten:
            token, child = self.unwritten.pop(0)
            try:
                self._write_exit(token, child)
            except OSError as error:
                # Kept in self.children, which "hello" returns: a full disk must not lose an exit status.
                complain(f"could not write the exit status of {token}: {error}")

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
                self.unwritten.append((token, self.children[token]))
                self._ended(token, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)

    def _ended(self, token: str, status: int, cpu: float, peak: int) -> None:
        child = self.children[token]
        child["exit"] = {
            "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            "at": time.time(),
            "cpu_seconds": round(cpu, 3),
            "peak_rss_bytes": peak,
        }
        for client in list(self.clients.values()):
            self._send(client, {"exit": child})

    def _write_exit(self, token: str, child: dict[str, Any]) -> None:
        path = f"exits/{token}.json"
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(child, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)

    def _spawn(self, request: dict[str, Any]) -> dict[str, Any]:
        token = request["token"]
        if token in self.children:
            return self.children[token]
        env = dict(request["env"])
        inherited = {}
        for variable, name in request.get("fds", {}).items():
            fd = self.listeners[name].fileno()
            inherited[variable] = fd
            env[variable] = str(fd)
        out = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        error_r, error_w = os.pipe()
        try:
            pid = os.fork()
            if pid == 0:
                self._child(request, env, out, list(inherited.values()), error_w)
            os.close(error_w)
            error_w = -1
            problem = b""
            while chunk := os.read(error_r, 4096):
                problem += chunk
        finally:
            os.close(out)
            os.close(error_r)
            if error_w >= 0:
                os.close(error_w)
        if problem:
            os.waitpid(pid, 0)
            return {"error": problem.decode("utf-8", "replace")}
        self.by_pid[pid] = token
        self.children[token] = {"token": token, "pid": pid, "tick": start_tick(pid), "exit": None}
        return self.children[token]

    def _child(
        self, request: dict[str, Any], env: dict[str, str], out: int, fds: list[int], error_w: int
    ) -> None:
        """After the fork: become the service, or write the problem to ``error_w``. Never returns."""
        step = "start"
        try:
            step = "setsid"
            os.setsid()
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            for fd in fds:
                os.set_inheritable(fd, True)
            for number in range(1, signal.NSIG):
                if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
                    try:
                        signal.signal(number, signal.SIG_DFL)
                    except (OSError, ValueError):
                        continue
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            if request.get("umask") is not None:  # an older backend does not send it
                os.umask(request["umask"])
            step = f"enter {request['cwd']}"
            os.chdir(request["cwd"])
            argv = request["argv"]
            step = f"execute {argv[0]}"
            os.execvpe(argv[0], argv, env)
        except BaseException as error:  # noqa: BLE001 - after a fork nothing may escape
            os.write(error_w, f"cannot {step}: {error}".encode())
        finally:
            os._exit(127)

    # --- clients ---

    def _accept(self) -> None:
        try:
            sock, _ = self.server.accept()
        except BlockingIOError:
            return
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", raw)
        if uid not in (0, os.geteuid()):
            sock.close()
            return
        sock.settimeout(2.0)
        self.clients[sock.fileno()] = Client(sock)
        self.poll.register(sock, select.POLLIN)

    def _drop(self, client: Client) -> None:
        fd = client.sock.fileno()
        if fd in self.clients:
            self.poll.unregister(fd)
            del self.clients[fd]
        for extra in client.fds:
            os.close(extra)
        client.fds = []
        client.sock.close()

    def _read(self, client: Client) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(client.sock, 1 << 16, 4, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, fds = b"", []
        client.fds += fds
        if not data or len(client.buffer) + len(data) > MAX_LINE:
            self._drop(client)
            return
        client.buffer += data
        while b"\n" in client.buffer:
            line, client.buffer = client.buffer.split(b"\n", 1)
            self._answer(client, line)

    def _answer(self, client: Client, line: bytes) -> None:
        send_fds: list[int] = []
        number = None
        try:
            request = json.loads(line)
            number = request.get("id")
            answer = self._do(client, request, send_fds)
        except (OSError, KeyError, ValueError, TypeError) as error:
            answer = {"error": f"{type(error).__name__}: {error}", "errno": getattr(error, "errno", None)}
        self._send(client, {"id": number, **answer}, send_fds)

    def _send(self, client: Client, message: dict[str, Any], fds: list[int] | None = None) -> None:
        data = json.dumps(message).encode() + b"\n"
        try:
            sent = socket.send_fds(client.sock, [data], fds) if fds else client.sock.send(data)
            if sent < len(data):
                client.sock.sendall(data[sent:])
        except OSError:
            self._drop(client)

    def _do(self, client: Client, request: dict[str, Any], send_fds: list[int]) -> dict[str, Any]:
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
            return {"port": self._listen(request["name"], request["host"], request["port"])}
        if kind == "get_fd":
            send_fds.append(self.listeners[request["name"]].fileno())
            return {"name": request["name"]}
        if kind == "adopt_fd":
            fd = client.fds.pop(0) if client.fds else -1
            if fd < 0:
                raise ValueError("no descriptor came with the request")
            self.listeners.setdefault(request["name"], socket.socket(fileno=fd))
            return {"port": self.listeners[request["name"]].getsockname()[1]}
        if kind == "forget":
            child = self.children.get(request["token"])
            if child is not None and child["exit"] is not None:
                del self.children[request["token"]]
            return {}
        if kind == "close":
            sock = self.listeners.pop(request["name"], None)
            if sock is not None:
                sock.close()
            return {}
        if kind == "exit":
            self._reap()
            self.dismissed = True
            if self.by_pid:
                return {"error": f"service processes still running: {len(self.by_pid)}"}
            self.ended = True
            return {}
        raise ValueError(f"unknown request {kind!r}")

    def _listen(self, name: str, host: str, port: int) -> int:
        if name not in self.listeners:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
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
