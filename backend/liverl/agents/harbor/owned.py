"""Whose a sandbox of Harbor's is: the labels that Docker keeps with it, and the ledger of the sandboxes begun.

Containers and networks live outside the process tree of a run: only labels and the ledger tell whose they are. Each
worker writes a ledger of its own, ``sandboxes/<worker>.jsonl`` in the run directory, before a sandbox begins, so that
no file has two writers. For Python 3.10 with few packages.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import secrets
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from liverl.agents.harbor.docker_endpoint import daemon_variables, endpoint
from liverl.util.append import append_whole
from liverl.util.atomic_file import write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import Undecodable, decode_json, decode_yaml
from liverl.util.kernel_file import read_kernel
from liverl.util.lock_file import open_lock
from liverl.util.modes import make_directory
from liverl.util.regular_file import read_regular
from liverl.util.remove_tree import remove_tree

FOLDER = "sandboxes"  # in the run directory
TEMP = "liverl-harbor-"  # the beginning of the name of a directory for temporary files of Harbor's process
RUN_ID, ATTEMPT, TRIAL, USER, HOST, KEPT = (
    f"liverl.{name}" for name in ("run-id", "attempt", "trial", "user", "host", "kept")
)
MAIN = "main"  # the service of Compose in which Harbor runs the agent
_GRACE = "1s"  # between SIGTERM and SIGKILL at the end of a sandbox: its work is over then
_LARGEST = 1 << 20  # bytes of a task's Compose file
_COMPOSE = "environment/docker-compose.yaml"  # of a task, beside which Harbor lays our overlay
_ID_FILE, _ID_LOCK = "id.json", "id.lock"


class Identity(msgspec.Struct, frozen=True):
    """``id``: random, 32 hex digits; ``path``: of the run directory for which it was made."""

    id: str
    path: str


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the ledger. ``begun``: sandboxes of the trial may exist from now on; ``over``: Harbor has ended them;
    ``lost``: Harbor's process died before it had ended them. The rest is of ``begun`` only. ``project``: Compose's name
    for it; ``services``: of the task; ``daemon``: the variables by which the docker program finds it, ``address``: its
    address, "" if that is not known; ``host``, ``pid``
    and ``tick`` (start, clock ticks since boot): of the worker; ``kept``: ``environment_delete`` is false; ``temp``:
    the directory for temporary files of the worker's Harbor process; ``cluster``: of a trial whose sandbox is a pod,
    how its API is asked (``kubeconfig``, ``namespace``, ``selector``), or why it cannot be (``fault``)."""

    event: Literal["begun", "over", "lost"]
    trial: str
    run_id: str = ""
    attempt: str = ""
    project: str = ""
    services: tuple[str, ...] = ()
    daemon: dict[str, str] = {}
    host: str = ""
    pid: int = 0
    tick: int = 0
    kept: bool = False
    cluster: dict[str, str] = {}
    temp: str = ""
    address: str = ""


def identity(run_dir: Path) -> str:
    """The run's id, which is made at the first call. A copy of a run directory gets an id of its own, so that it never
    removes what belongs to the original; a directory that was renamed keeps its id.

    Raises:
        OSError: it can be neither read nor written.
    """
    folder = run_dir / FOLDER
    make_directory(folder)
    fd = open_lock(folder / _ID_LOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        here, known = os.path.realpath(run_dir), _known(folder)
        if known is not None and (known.path == here or _known(Path(known.path) / FOLDER) != known):
            return known.id
        made = Identity(secrets.token_hex(16), here)
        write_atomic(folder / _ID_FILE, msgspec.json.encode(made) + b"\n")
        return made.id
    finally:
        os.close(fd)


def known_identity(run_dir: Path) -> str:
    """The run's id; "" if it has begun no sandbox, or if the directory is a copy that has begun none.

    Raises:
        OSError: it cannot be read.
    """
    known = _known(run_dir / FOLDER)
    if known is None:
        return ""
    own = known.path == os.path.realpath(run_dir) or _known(Path(known.path) / FOLDER) != known
    return known.id if own else ""


def _known(folder: Path) -> Identity | None:
    try:
        return decode_json(read_regular(folder / _ID_FILE), type=Identity)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except BAD_JSON:
        return None


def project_of(trial: str) -> str:
    """Compose's name for the sandbox of a trial, as Harbor 0.24 to 0.26 makes it (its ``docker.py``)."""
    name = re.sub(r"[^a-z0-9_-]", "-", f"{trial}__env".lower())
    return name if re.match(r"[a-z0-9]", name) else f"0{name}"


def labels_of(run_id: str, attempt: str, trial: str, *, kept: bool = False) -> dict[str, str]:
    """The labels of everything that a trial creates. ``attempt``: the name of its directory, ``attempt_001``."""
    found = {RUN_ID: run_id, ATTEMPT: attempt, TRIAL: trial, USER: _user(), HOST: socket.gethostname()}
    return {**found, KEPT: "true"} if kept else found


def overlay(
    labels: Mapping[str, str], compose: Mapping[str, Any], *, own_network: bool = True
) -> dict[str, Any]:
    """What Compose reads after the task's own file. ``compose``: the task's, empty without one; ``own_network``: the
    sandbox shares no other container's network, as Docker allows no names of hosts there.

    ``init`` makes the sandbox obey SIGTERM, which its ``sh -c "sleep infinity"`` would ignore for ten seconds.
    """
    # In Compose's files $ begins a variable.
    told = {name: value.replace("$", "$$") for name, value in labels.items()}
    services: dict[str, Any] = {name: {"labels": told} for name in _names(compose, "services")}
    services[MAIN] = {
        "init": True,
        "stop_grace_period": _GRACE,
        **({"extra_hosts": ["host.docker.internal:host-gateway"]} if own_network else {}),
        "labels": told,
    }
    found: dict[str, Any] = {"services": services}
    networks = {name: {"labels": told} for name in ("default", *_made(compose, "networks"))}
    if not _outside(compose, "networks", "default"):
        found["networks"] = networks
    else:
        networks.pop("default")
        found |= {"networks": networks} if networks else {}
    if volumes := {name: {"labels": told} for name in _made(compose, "volumes")}:
        found["volumes"] = volumes
    return found


def _section(compose: Mapping[str, Any], section: str) -> Mapping[Any, Any]:
    found = compose.get(section)
    return found if isinstance(found, Mapping) else {}


def _names(compose: Mapping[str, Any], section: str) -> Iterator[str]:
    return (name for name in _section(compose, section) if isinstance(name, str))


def _outside(compose: Mapping[str, Any], section: str, name: str) -> bool:
    """Whether something exists already: Compose refuses labels there."""
    found = _section(compose, section).get(name)
    return isinstance(found, Mapping) and bool(found.get("external"))


def _made(compose: Mapping[str, Any], section: str) -> Iterator[str]:
    return (name for name in _names(compose, section) if not _outside(compose, section, name))


def _compose_of(task: Path) -> Mapping[str, Any]:
    """The task's own Compose file; empty if it has none, or none that can be read: Harbor will say so."""
    try:
        found = decode_yaml(read_regular(task / _COMPOSE, _LARGEST))
    except (OSError, Undecodable, ValueError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _own_network(task: Path, compose: Mapping[str, Any]) -> bool:
    """Whether the agent's container surely has a network of its own. Where the task limits the network, Harbor puts it
    into that of a container which filters; ``network_mode`` and ``allow_internet`` are the keys for it."""
    main = _section(compose, "services").get(MAIN)
    if isinstance(main, Mapping) and "network_mode" in main:
        return False
    try:
        text = read_regular(task / "task.toml", _LARGEST)
    except (OSError, ValueError):
        return False
    return b"network_mode" not in text and b"allow_internet" not in text


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


class Ledger:
    """What one worker has begun. ``env``: the variables of Harbor's process.

    Raises:
        OSError: the run directory cannot be written.
    """

    def __init__(self, run_dir: Path, worker: str, attempt: str, env: Mapping[str, str]) -> None:
        self.run_id = identity(run_dir)
        self._folder, self._attempt = run_dir / FOLDER, attempt
        self._file = self._folder / f"{worker}.jsonl"
        self._daemon = daemon_variables(env)
        self._address = endpoint(env).address
        self._temp = ""

    def make_temp(self) -> str:
        """A directory for temporary files of Harbor's process, which it leaves behind if it is killed; the ledger has
        it from the next trial on.

        Raises:
            OSError: it cannot be created.
        """
        self._temp = self._temp or tempfile.mkdtemp(prefix=TEMP)
        return self._temp

    def remove_temp(self) -> None:
        """Remove that directory; what cannot be removed is left to the sweep at the end of the run."""
        if self._temp:
            remove_tree(self._temp)

    def begin(self, trial: str, task: Path, *, kept: bool) -> Path:
        """Record that sandboxes of ``trial`` may exist from now on; returns the overlay for Compose, which has to stay
        until they have ended. ``kept``: they are to outlive the trial.

        Raises:
            OSError: it cannot be recorded; then the trial must not begin.
        """
        compose = _compose_of(task)
        path = self._overlay(trial)
        labels = labels_of(self.run_id, self._attempt, trial, kept=kept)
        told = overlay(labels, compose, own_network=_own_network(task, compose))
        write_atomic(path, msgspec.json.format(msgspec.json.encode(told)) + b"\n")
        services = tuple(dict.fromkeys((MAIN, *_names(compose, "services"))))
        self._begin_at_daemon(trial, project_of(trial), services, kept=kept)
        return path

    def _begin_at_daemon(self, trial: str, project: str, services: tuple[str, ...], *, kept: bool) -> None:
        where = {"daemon": self._daemon, "address": self._address}
        self._begin(trial, kept=kept, project=project, services=services, temp=self._temp, **where)

    def _begin(self, trial: str, **facts: Any) -> None:
        """Write the line ``begun``. ``facts``: see ``Entry``."""
        pid = os.getpid()
        tick = start_tick(pid) or 0
        entry = Entry(
            "begun", trial, self.run_id, self._attempt, host=socket.gethostname(), pid=pid, tick=tick, **facts
        )
        self._write(entry, sync=True)

    def begin_probe(self, name: str) -> dict[str, str]:
        """Record that a container and a network called ``name`` may exist from now on, which belong to no trial;
        returns their labels.

        Raises:
            OSError: it cannot be recorded; then they must not begin.
        """
        self._begin_at_daemon(name, name, (), kept=False)
        return labels_of(self.run_id, self._attempt, name, kept=False)

    def begin_pod(self, trial: str, cluster: dict[str, str], *, kept: bool) -> None:
        """Record that pods of ``trial`` may exist from now on. ``cluster``: see ``Entry``.

        Raises:
            OSError: it cannot be recorded.
        """
        self._begin(trial, kept=kept, cluster=cluster)

    def over(self, trial: str) -> None:
        """Record that Harbor has ended the sandboxes of ``trial``."""
        self._write(Entry("over", trial))
        remove_tree(self._overlay(trial))

    def lost(self, trial: str) -> None:
        """Record that Harbor's process died before it had ended the sandboxes of ``trial``."""
        self._write(Entry("lost", trial))

    def _overlay(self, trial: str) -> Path:
        return self._folder / f"{trial}.yaml"

    def _write(self, entry: Entry, *, sync: bool = False) -> None:
        append_whole(self._file, msgspec.json.encode(entry) + b"\n")
        if sync:
            fd = open_lock(self._file)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def start_tick(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; None if there is none."""
    try:
        stat = read_kernel(f"/proc/{pid}/stat")
    except OSError:
        return None
    return int(stat.rpartition(b")")[2].split()[19])


def read_ledgers(run_dir: Path) -> list[Entry]:
    """All entries of a run, those of one worker in their order. Lines that are none, as a crash may leave at the end,
    are left out.

    Raises:
        OSError: a ledger cannot be read.
    """
    folder = run_dir / FOLDER
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".jsonl"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for name in names:
        for line in read_regular(folder / name).splitlines():
            try:
                found.append(decode_json(line, type=Entry))
            except BAD_JSON:
                continue
    return found
