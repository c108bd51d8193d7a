"""Joins this host to a run's Ray head: starts ``ray start --address --block`` below this process, starts it again after
what may pass, and ends the processes below this one, and no others, when the run ends or this process is told to.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from liverl.exit_codes import ExitCode, of_signal
from liverl.external.port_holders import own_interfaces
from liverl.hosts.cluster import Cluster, NotPrivate, read_cluster
from liverl.hosts.lacks import clock_difference, differing, no_interface, too_few_gpus, unseen, versions
from liverl.hosts.refusals import refusal
from liverl.hosts.states import FOLDER, JoinedHost, JoinState, read_states, write_state
from liverl.plan.inherit import inherited
from liverl.plan.ray import STARTED, own_temp_dir
from liverl.procs import procfs
from liverl.rundir.layout import RunDir, hostname
from liverl.util import clocks
from liverl.util.lock_file import open_lock
from liverl.util.regular_file import open_append, read_end, read_text
from liverl.util.remove_tree import remove_tree

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # prctl
LOOK_S = 0.5
AGAIN_S = 5.0  # between two starts
UNKNOWN = 3  # starts in a row that may fail in the same way before it counts as lasting
CONNECT_S = 3.0
LAST_BYTES = 1 << 20  # of a start's log that are read
# Seconds for ``ray start`` to end its processes; for its agents, which it leaves, after SIGTERM; after SIGKILL.
TERM_S, REST_S, KILL_S = 15.0, 5.0, 10.0

Tell = Callable[[str], None]


class CannotJoin(Exception):
    """Why this host cannot join, in one sentence. ``exit_code``: of the command."""

    def __init__(self, message: str, exit_code: int = ExitCode.PREFLIGHT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class _Ended(NamedTuple):
    code: int
    words: str


class Joiner:
    """One ``join``: ``run`` blocks until the run has ended, or until ``stop`` was called with a signal's number.

    ``tell`` gets sentences for the user. ``node_ip``: this host's address for the head; "" = the one from which it
    reaches the head. ``patience``: seconds to wait for a head that answers. ``trusted``: is called with the run
    directory before anything of it is executed; it may raise. ``next_attempt``: of a run that has ended, wait for the
    next attempt.
    """

    def __init__(
        self,
        run_dir: Path,
        tell: Tell,
        trusted: Callable[[], None],
        *,
        node_ip: str = "",
        patience: float = 1800.0,
        next_attempt: bool = False,
    ) -> None:
        self._run, self._tell, self._trusted = RunDir(run_dir), tell, trusted
        self._given_ip, self._patience, self._next = node_ip, patience, next_attempt
        self._host = hostname()
        self._stopped = threading.Event()
        self._signal = 0
        self._said = ""
        self._reaches_from = ""  # the address of this host when it reaches the head
        self._first = True  # whether the run was not looked at yet

    def stop(self, number: int) -> None:
        """End what was started, and return from ``run``. May be called by a signal handler."""
        self._signal = number
        self._stopped.set()

    def run(self) -> int:
        """Join, and stay until the end. Returns the command's exit code.

        Raises:
            CannotJoin: see there.
        """
        if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise CannotJoin(
                "this system does not let a process keep its orphans (prctl), so its end would leave some"
            )
        deadline, failures, last = clocks.ran() + self._patience, 0, ""
        while True:
            cluster = self._wait_for_head(deadline)
            if cluster is None:
                return self._code()
            ip = self._own_ip(cluster)
            with self._only_one(cluster):
                lacking = self._lacks(cluster, ip)
                if lacking:  # somebody may mount or copy it meanwhile
                    self._refused(cluster, ip, lacking, deadline)
                    if self._stopped.wait(AGAIN_S):
                        self._write(cluster, ip, "left", "told to stop")
                        return self._code()
                    continue
                ended = self._one_start(cluster, ip)
                if ended is None:
                    return self._code()
                found = refusal(ended.words, cluster.token_file, ip, self._reaches_from)
                failures = failures + 1 if found.why == last else 1
                last = found.why
                lasting = not found.again or (failures >= UNKNOWN and found.why.startswith("ray start ended"))
                self._write(cluster, ip, "refused" if lasting else "joining", found.why)
            if lasting:
                raise CannotJoin(f"this host cannot join: {found.why}; see {self._log(cluster)}")
            self._say(f"{found.why}; trying again")
            deadline = clocks.ran() + self._patience
            if self._stopped.wait(AGAIN_S):
                return self._code()

    # --- before ---

    def _wait_for_head(self, deadline: float) -> Cluster | None:
        """The head, once it listens; None if the run has ended or this process was told to stop."""
        while not self._stopped.is_set():
            result = self._run.read_result()
            if result is not None and not (self._first and self._next):
                if self._first:
                    words = f"run {self._run.name} has ended: {result.summary or result.state}"
                    fix = "Continue it with `up --resume`, then join, or join with --next"
                    raise CannotJoin(f"{words}. {fix}", ExitCode.USAGE)
                self._say(f"run {self._run.name} has ended")
                return None
            if result is not None:
                self._wait_for_next(deadline)
                continue
            self._first = False
            why = (
                f"waiting for run {self._run.name} to start its Ray head ({self._run.path / 'cluster.json'})"
            )
            if self._run.path.is_dir():
                self._trusted()
                try:
                    cluster = read_cluster(self._run.path)
                except NotPrivate as error:
                    raise CannotJoin(str(error)) from None
                except ValueError as error:
                    raise CannotJoin(f"{self._run.path / 'cluster.json'} is damaged: {error}") from None
                if cluster is not None:
                    problem = _unreachable(cluster)
                    if not problem and self._head(cluster) is not None:
                        return cluster
                    why = f"waiting for the Ray head at {cluster.address}: {problem or 'it is starting'}"
            self._say(why)
            if clocks.ran() > deadline:
                raise CannotJoin(f"gave up after {self._patience:g} s {why}")
            self._stopped.wait(LOOK_S)
        return None

    def _wait_for_next(self, deadline: float) -> None:
        """Wait a moment for the next attempt of a run that had ended when this began."""
        why = f"waiting for the next attempt of run {self._run.name}, which has ended"
        self._say(why)
        if clocks.ran() > deadline:
            raise CannotJoin(f"gave up after {self._patience:g} s {why}")
        self._stopped.wait(LOOK_S)

    def _lacks(self, cluster: Cluster, ip: str) -> str:
        """What of the run this host does not see, as a sentence; "" = nothing.

        Raises:
            CannotJoin: it lacks what does not come by itself.
        """
        found = unseen(cluster)
        if found:
            return f"this host does not see {'; '.join(found)}"
        lasting = no_interface(cluster.interface, own_interfaces()) or too_few_gpus(cluster.gpus, os.environ)
        try:
            here = versions(cluster)
        except ValueError as error:
            lasting = lasting or f"{cluster.python} cannot be asked for its packages: {error}"
        else:
            head = self._head(cluster)
            other = differing(head.versions, here) if head is not None else ""
            if other and head is not None:
                lasting = lasting or f"{cluster.python} has other versions than on {head.host}: {other}"
        if lasting:
            self._write(cluster, ip, "refused", lasting)
            raise CannotJoin(f"this host cannot join: {lasting}")
        return ""

    def _refused(self, cluster: Cluster, ip: str, why: str, deadline: float) -> None:
        """Tell that this host cannot join yet; after the deadline that it cannot join."""
        self._write(cluster, ip, "refused", why)
        if clocks.ran() > deadline:
            raise CannotJoin(f"gave up after {self._patience:g} s: {why}")
        self._say(f"{why}; looking again until they are there")

    @staticmethod
    def _head(cluster: Cluster) -> JoinedHost | None:
        """What the head's host says of itself; None while it has said nothing."""
        states = read_states(Path(cluster.attempt_dir))
        return next((state for state in states if state.ip == cluster.host), None)

    def _own_ip(self, cluster: Cluster) -> str:
        with socket.socket(
            socket.AF_INET6 if ":" in cluster.host else socket.AF_INET, socket.SOCK_DGRAM
        ) as sock:
            sock.connect((cluster.host, cluster.port))
            ip = str(sock.getsockname()[0])
        if ip == cluster.host:
            raise CannotJoin(
                f"{ip} is this host: the run's Ray head runs here; run this on the other hosts",
                ExitCode.USAGE,
            )
        self._reaches_from = ip
        if self._given_ip and self._given_ip != ip:
            self._tell(
                f"warning: this host reaches the head from {ip}, not from {self._given_ip} (--node-ip)"
            )
        return self._given_ip or ip

    def _only_one(self, cluster: Cluster) -> _Lock:
        folder = Path(cluster.attempt_dir) / FOLDER
        folder.mkdir(exist_ok=True)
        return _Lock(
            folder / f"{self._host}.lock", f"this host ({self._host}) has already joined run {self._run.name}"
        )

    # --- while it runs ---

    def _one_start(self, cluster: Cluster, ip: str) -> _Ended | None:
        """Start Ray once and wait; None: the run has ended or this process was told to stop."""
        temp = own_temp_dir(self._run.path / self._host)
        argv = [
            *(cluster.python, "-m", "ray.scripts.scripts", "start", "--address", cluster.address, "--block"),
            *("--node-ip-address", ip, "--temp-dir", temp),
            *cluster.flags,
        ]
        log_path = self._log(cluster)
        with os.fdopen(open_append(log_path), "ab") as log:
            begin = log.seek(0, os.SEEK_END)
            self._write(cluster, ip, "joining", "starting Ray")
            self._say(f"joining {cluster.address} as {ip}, log {log_path}")
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment(cluster),
                    cwd="/",
                    start_new_session=True,
                    preexec_fn=_die_with_parent,  # noqa: PLW1509 - this program has one thread
                )
            except OSError as error:
                raise CannotJoin(f"cannot execute {cluster.python} on this host: {error.strerror}") from None
            try:
                ended = self._watch(cluster, ip, process, log_path, begin)
            finally:
                left = _end_all(process)
                if left:
                    self._tell(f"warning: processes {', '.join(map(str, left))} could not be killed")
        if ended is None:
            self._write(cluster, ip, "left", "the run has ended" if not self._signal else "told to stop")
            for left_over in remove_tree(temp):
                self._tell(f"warning: cannot remove {temp}: {left_over.strerror}")
        return ended

    def _watch(
        self, cluster: Cluster, ip: str, process: subprocess.Popen[bytes], log: Path, begin: int
    ) -> _Ended | None:
        joined = False
        while not self._stopped.wait(LOOK_S):
            if self._run.read_result() is not None:
                self._say(f"run {self._run.name} has ended")
                return None
            code = process.poll()
            if code is not None:
                return _Ended(code, read_end(log, begin, LAST_BYTES).decode(errors="replace"))
            if not joined and STARTED.encode() in read_end(log, begin, LAST_BYTES):
                joined = True
                other = clock_difference(cluster)
                if other:
                    self._tell(f"warning: {self._host}: {other}")
                self._write(cluster, ip, "joined", other)
                self._say(f"joined run {self._run.name}; Ctrl-C leaves it")
        return None

    def _environment(self, cluster: Cluster) -> dict[str, str]:
        env = inherited(os.environ, "trainer", cluster.pass_env)
        env = {name: value for name, value in env.items() if name not in cluster.unset_env}
        if "PYTHONPATH" in env and "PYTHONPATH" in cluster.env:
            cluster.env["PYTHONPATH"] += os.pathsep + env.pop("PYTHONPATH")
        env |= cluster.env
        for name, path in cluster.secret_env.items():
            try:
                env[name] = read_text(path).strip()
            except OSError as error:
                raise CannotJoin(
                    f"cannot read {path} (the value of {name}) on this host: {error.strerror}"
                ) from None
        if "CUDA_VISIBLE_DEVICES" in os.environ:
            env["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]
        run = self._run.path
        return env | {"LIVERL_RUN": f"{self._run.name}/join-{self._host}/0", "LIVERL_RUN_DIR": str(run)}

    # --- what is said ---

    def _log(self, cluster: Cluster) -> Path:
        return Path(cluster.attempt_dir) / "logs" / f"node-{self._host}.log"

    def _write(self, cluster: Cluster, ip: str, state: JoinState, why: str) -> None:
        said = JoinedHost(self._host, ip, os.getpid(), state, why, reaches_from=self._reaches_from)
        try:
            write_state(Path(cluster.attempt_dir), said)
        except OSError as error:
            raise CannotJoin(
                f"cannot write to {cluster.attempt_dir} on this host: {error.strerror}"
            ) from None

    def _say(self, words: str) -> None:
        if words != self._said:
            self._said = words
            self._tell(words)

    def _code(self) -> int:
        return of_signal(self._signal) if self._signal else ExitCode.OK


class _Lock:
    """Held as long as this host joins, so that it joins once."""

    def __init__(self, path: Path, busy: str) -> None:
        self._path, self._busy, self._fd = path, busy, -1

    def __enter__(self) -> None:
        self._fd = open_lock(self._path)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise CannotJoin(self._busy, ExitCode.USAGE) from None

    def __exit__(self, *_exception: object) -> None:
        os.close(self._fd)


def _unreachable(cluster: Cluster) -> str:
    """Why nothing answers at the head's address; "" if something does. Ray itself says so only after a minute."""
    try:
        socket.create_connection((cluster.host, cluster.port), CONNECT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def below(pid: int) -> tuple[procfs.Proc, ...]:
    """The living processes below this one. Orphans of them are its children, if it is their subreaper."""
    table = procfs.scan()
    found: list[procfs.Proc] = []
    above = {pid}
    while above:
        children = [one for one in table.values() if one.ppid in above]
        found += children
        above = {one.pid for one in children}
    return tuple(one for one in found if not one.zombie)


def _end_all(leader: subprocess.Popen[bytes]) -> tuple[int, ...]:
    """SIGTERM to the leader, which ends Ray's processes; then SIGTERM and SIGKILL to what is left below this process.
    Returns the pids that are left."""
    if leader.poll() is None:
        leader.terminate()
        try:
            leader.wait(TERM_S)
        except subprocess.TimeoutExpired:
            leader.kill()
    for number, seconds in ((signal.SIGTERM, REST_S), (signal.SIGKILL, KILL_S)):
        for process in below(os.getpid()):
            if procfs.alive(process.pid, process.tick):
                os.kill(process.pid, number)
        if _gone(seconds):
            break
    leader.poll()
    return tuple(process.pid for process in below(os.getpid()))


def _gone(seconds: float) -> bool:
    """Reap until nothing is left below this process, for at most ``seconds``."""
    deadline, pause = clocks.ran() + seconds, threading.Event()
    while below(os.getpid()):
        if clocks.ran() > deadline:
            return False
        pause.wait(0.1)
        _reap()
    _reap()
    return True


def _reap() -> None:
    """Take the exit statuses of orphans. ``subprocess`` copes with a leader whose status is taken."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
