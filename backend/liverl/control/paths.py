"""The place of the control socket, and how to bind and connect to it at any length of its path.

A socket address holds 107 bytes of path. A longer path is addressed as ``/proc/self/fd/<directory>/<name>``. If the
file system of the run directory does not support sockets, the socket is in a private directory with a short path.
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import socket
import stat
import struct
from pathlib import Path

from liverl.control.messages import (
    BackendDead,
    BackendElsewhere,
    BackendOfOther,
    BackendSilent,
    ControlError,
)
from liverl.procs import procfs
from liverl.rundir.index import elsewhere_words, run_hash
from liverl.rundir.layout import LiveBackend, RemoteBackend, RunDir, backend_alive
from liverl.util.socket_path import usable_address

_REFUSALS = frozenset(
    (
        errno.EPERM,
        errno.EACCES,
        errno.EOPNOTSUPP,
        errno.ENOTSUP,
        errno.ENOSYS,
        errno.EINVAL,
        errno.EROFS,
        errno.EIO,
    )
)


class SocketInUse(ControlError):
    """Another process listens on this run's control socket."""


def connect_path(path: Path, timeout: float) -> socket.socket:
    """A blocking socket connected to ``path`` within ``timeout`` seconds, which also limits later operations on it.

    Raises:
        OSError: no process listens there (FileNotFoundError, ConnectionRefusedError), the backlog stayed full
            (BlockingIOError), or permission is denied (PermissionError).
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # In the kernel: with Python's own timeout, connecting to a full backlog fails at once.
        limit = struct.pack("ll", int(timeout), max(1, int(timeout % 1 * 1e6)))  # 0 would be no limit
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        with usable_address(path) as address:
            sock.connect(address)
        sock.settimeout(timeout)
    except BaseException:
        sock.close()
        raise
    return sock


def peer_credentials(sock: socket.socket) -> tuple[int, int, int]:
    """(pid, uid, gid) of the process at the other end, recorded by the kernel when the connection was made."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, gid = struct.unpack("3i", raw)
    return pid, uid, gid


def fallback_directory() -> Path:
    """A private directory on a local file system, created if missing: ``$XDG_RUNTIME_DIR/liverl``, else
    ``/tmp/liverl-<uid>``.

    Raises:
        ControlError: the directory belongs to another user, is open to others, or cannot be created.
    """
    uid = os.geteuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    base = Path(f"/tmp/liverl-{uid}")
    if runtime.startswith("/"):
        try:
            if os.stat(runtime).st_uid == uid:
                base = Path(runtime) / "liverl"
        except OSError:
            pass  # the variable names a missing directory, as after su or in a batch job
    try:
        os.mkdir(base, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise ControlError(f"cannot create {base} for the control socket: {error.strerror}") from error
    info = os.lstat(base)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != uid or stat.S_IMODE(info.st_mode) & 0o077:
        raise ControlError(
            f"{base} is not a private directory of this user: remove it or set XDG_RUNTIME_DIR"
        )
    return base


def _bind(path: Path) -> socket.socket:
    """Bind, listen, and check that a connection works. A socket file on which no process listens is replaced."""
    _clear_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The socket file is created by bind with this mode, so it is never open to other users.
        os.fchmod(sock.fileno(), 0o600)
        with usable_address(path) as address:
            sock.bind(address)
        sock.listen(64)
        connect_path(path, 2.0).close()
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _clear_stale(path: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ControlError(
            f"{path} exists and is not a socket; remove it to let the backend create its control socket"
        )
    try:
        connect_path(path, 2.0).close()
    except (ConnectionRefusedError, FileNotFoundError):
        path.unlink(missing_ok=True)
    except (TimeoutError, BlockingIOError) as error:
        raise SocketInUse(f"a process listens on {path} but does not respond") from error
    else:
        raise SocketInUse(f"another backend listens on {path}")


def bind_control(run_dir: Path) -> tuple[socket.socket, Path]:
    """The listening socket of a run (mode 0600, non-blocking) and its path: in the run directory, else in
    ``fallback_directory``.

    Raises:
        SocketInUse: another process listens on the socket.
        ControlError: the socket cannot be created in either place.
    """
    path = RunDir(run_dir).socket
    try:
        return _bind(path), path
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise ControlError(f"cannot bind the control socket {path}: {error.strerror}") from error
    fallback = fallback_directory() / f"{run_hash(run_dir)}.sock"
    try:
        return _bind(fallback), fallback
    except OSError as error:
        raise ControlError(f"cannot bind the control socket {fallback}: {error.strerror}") from error


def connect_control(run_dir: Path, timeout: float) -> socket.socket:
    """A blocking socket connected to the run's backend within ``timeout`` seconds. Fails at once if the backend is
    dead.

    Raises:
        BackendDead: no backend is running.
        BackendElsewhere: the backend runs on another host.
        BackendSilent: the backend runs here but does not accept connections.
        BackendOfOther: the run belongs to another user.
    """
    alive = backend_alive(run_dir)
    path = RunDir(run_dir).socket  # before the recorded path: the run directory may be mounted elsewhere here
    if not path.exists() and alive.record is not None:
        path = Path(alive.record.socket)
    try:
        sock = connect_path(path, timeout)
    except OSError as error:
        if isinstance(error, PermissionError) and not isinstance(alive, RemoteBackend):
            raise of_other(run_dir, alive) from error
        raise unreachable(run_dir, alive) from error
    _, uid, _ = peer_credentials(sock)
    if uid not in (os.geteuid(), 0) and os.geteuid() != 0:
        sock.close()
        raise of_other(run_dir, alive)
    return sock


def of_other(run_dir: Path, alive: object) -> BackendOfOther:
    """The error for a live run of another user. ``alive``: the result of ``backend_alive``."""
    backend = "its backend"
    if isinstance(alive, LiveBackend):
        uid = procfs.uid_of(alive.record.pid)
        backend += f" (pid {alive.record.pid}{'' if uid is None else f' of {user_name(uid)}'})"
    return BackendOfOther(
        f"run {RunDir(run_dir).name} belongs to another user, and {backend} answers nobody else. To look at it: "
        f"liverl-tui attach --readonly --run {shlex.quote(str(run_dir))}"
    )


def owned_by_other(alive: LiveBackend) -> bool:
    """Whether a backend of this host runs as another user than this process, which is not root's."""
    uid = procfs.uid_of(alive.record.pid)
    return uid is not None and uid != os.geteuid() and os.geteuid() != 0


def user_name(uid: int) -> str:
    """The name of a user, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def no_greeting(run_dir: Path, seconds: float) -> BackendSilent:
    """The error for a backend that has sent nothing on a new connection for so many ``seconds``."""
    return no_answer(run_dir, f"it accepted the connection, but sent nothing within {seconds:g} s")


def no_answer(run_dir: Path, what: str) -> BackendSilent:
    """The error for a backend that is connected and silent; ``what``: what it did not do, in words. That a signal has
    stopped its process says all."""
    alive = backend_alive(run_dir)
    words = str(unreachable(run_dir, alive))
    stopped = isinstance(alive, LiveBackend) and procfs.is_stopped(alive.record.pid)
    return BackendSilent(words if stopped else f"{words}: {what}")


def unreachable(run_dir: Path, alive: object | None = None) -> ControlError:
    """The error for a backend that does not respond, from ``backend.json`` and the process table.

    ``alive``: the result of ``backend_alive``, if the caller has it.
    """
    state = backend_alive(run_dir) if alive is None else alive
    name = RunDir(run_dir).name
    if isinstance(state, RemoteBackend):
        return BackendElsewhere(elsewhere_words(name, state.host, run_dir), state.host)
    if isinstance(state, LiveBackend):
        pid = state.record.pid
        if procfs.is_stopped(pid):
            return BackendSilent(
                f"the backend of {name} (pid {pid}) does not respond: a signal such as SIGSTOP has stopped its "
                f"process. To continue it: kill -CONT {pid}"
            )
        return BackendSilent(
            f"the backend of {name} (pid {pid}) is running but does not respond; "
            f"see {RunDir(run_dir).path / 'backend.log'}"
        )
    result = RunDir(run_dir).read_result()
    if result is not None:
        return BackendDead(f"run {name} has ended: {result.summary or result.state}")
    return BackendDead(f"the backend of {name} is not running", run_dir)
