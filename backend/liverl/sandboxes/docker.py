"""The docker program: lists what a daemon has, and removes what is named by id."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from subprocess import CompletedProcess
from typing import Any, Literal, TypeVar

import msgspec

from liverl.agents.harbor.owned import KEPT, RUN_ID, TRIAL
from liverl.procs.asking import NotEndedError, ask_program
from liverl.sandboxes.daemon_faults import told
from liverl.sandboxes.networks import Network, Networks, Pool, counted, routes
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json

Kind = Literal["container", "network", "volume", "image"]
PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"  # labels of Compose
# A container inherits Compose's other labels from an image that Compose has built: only this one says that it is its.
NUMBER = "com.docker.compose.container-number"
_LABELS = (RUN_ID, TRIAL, KEPT, PROJECT, SERVICE, NUMBER)
_LISTS: dict[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "container": (("ps", "--all", "--no-trunc"), (".ID", ".Names", ".State")),
    "network": (("network", "ls", "--no-trunc"), (".ID", ".Name", "``")),
    "volume": (("volume", "ls"), (".Name", ".Name", "``")),
    "image": (("image", "ls", "--no-trunc"), (".ID", ".Repository", ".Tag")),
}
_REMOVES: dict[Kind, tuple[str, ...]] = {
    "container": ("rm", "--force", "--volumes"),  # kills side by side; also removes volumes without a name
    "network": ("network", "rm"),
    "volume": ("volume", "rm"),
    "image": ("image", "rm"),
}
MOST = 500  # containers of a run that are looked at; one per trial, of which as many never run on one host
_INSPECTED = (
    '{"id":{{json .Id}},"name":{{json .Name}},"state":{{json .State.Status}},"exit":{{json .State.ExitCode}},'
    '"oom":{{json .State.OOMKilled}},"started":{{json .State.StartedAt}},"ended":{{json .State.FinishedAt}},'
    '"labels":{{json .Config.Labels}}}'
)
_NETWORK = (
    '{"id":{{json .Id}},"name":{{json .Name}},"ipam":{{json .IPAM.Config}},"labels":{{json .Labels}},'
    '"containers":{{json .Containers}}}'
)
_INFO = (
    '{"version":{{json .ServerVersion}},"root":{{json .DockerRootDir}},"pools":{{json .DefaultAddressPools}}}'
)
_KILLED = '{"id":{{json .Actor.ID}},"at":{{.Time}},"labels":{{json .Actor.Attributes}}}'
_USAGE = re.compile(
    r"(Run|See) 'docker .*--help'"
)  # the end of what the program says when a container cannot start
_AT_ONCE = 100  # names in one command
_LONGEST = 300  # characters of a refusal that are shown
_GRACE = "1"  # seconds for a kept container to stop


def _labels(labels: Mapping[str, str]) -> Iterator[str]:
    return (word for name, value in labels.items() for word in ("--label", f"{name}={value}"))


class DockerError(Exception):
    """The daemon did not do what it was asked for; the text says why."""


class Thing(msgspec.Struct, frozen=True):
    """Something that a daemon has. ``id``: by which it is removed; ``run_id``, ``trial``, ``kept``: by our labels,
    empty without them; ``project``, ``service``: by those of Compose; ``running``: of a container."""

    kind: Kind
    id: str
    name: str
    run_id: str = ""
    trial: str = ""
    kept: bool = False
    project: str = ""
    service: str = ""
    running: bool = False


class Container(msgspec.Struct, frozen=True):
    """A container as ``docker container inspect`` has it. Times are ISO texts, of year 1 where there is none."""

    id: str
    name: str
    state: str
    exit: int
    oom: bool
    started: str
    ended: str
    labels: dict[str, str] | None = None


class MemoryKill(msgspec.Struct, frozen=True):
    """An event of Docker's: a process in a container was killed for memory. ``at``: Unix seconds."""

    id: str
    at: float
    labels: dict[str, str] = {}


class _Inspected(msgspec.Struct, frozen=True):
    id: str
    name: str
    ipam: list[dict[str, str]] | None = None
    labels: dict[str, str] | None = None
    containers: dict[str, Any] | None = None


class _Info(msgspec.Struct, frozen=True):
    """What ``docker info`` tells. ``version``: of the daemon, "" if that did not answer: the program exits with 0 all
    the same where the daemon refused it (ran with 28.2)."""

    version: str = ""
    root: str = ""
    pools: list[Pool] | None = None


_T = TypeVar("_T")


class Docker:
    """One daemon. ``variables``: by which the program finds it, as the trial's worker had them; none of the caller's
    own counts. ``until``: on ``time.monotonic``, when every command has to have returned."""

    def __init__(self, variables: Mapping[str, str], until: float) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
        self._env, self._until = {**own, **variables}, until

    def things(self) -> list[Thing]:
        """All containers, networks, volumes and images of the daemon.

        Raises:
            DockerError: it cannot be asked.
        """
        return [thing for kind in _LISTS for thing in self._list(kind)]

    def containers(self, run_id: str) -> tuple[list[Container], int]:
        """The containers with the label of a run, the newest ``MOST``, and the number of its networks.

        Raises:
            DockerError: it cannot be asked.
        """
        mine = ("--filter", f"label={RUN_ID}={run_id}")
        networks = len(self._run(["network", "ls", "--quiet", *mine]).split())
        ids = self._run(["ps", "--all", "--quiet", "--no-trunc", *mine]).split()[:MOST]
        found: list[Container] = []
        for start in range(0, len(ids), _AT_ONCE):
            found += self._inspected(ids[start : start + _AT_ONCE])
        return found, networks

    def networks(self, *, local: bool) -> Networks:
        """How many networks the daemon can still create. ``local``: it runs on this machine, whose routes count.

        Raises:
            DockerError: it cannot be asked.
        """
        pools = self._info().pools
        ids = self._run(["network", "ls", "--quiet", "--no-trunc"]).split()
        found: list[Network] = []
        for start in range(0, len(ids), _AT_ONCE):
            words = ["network", "inspect", "--format", _NETWORK, *ids[start : start + _AT_ONCE]]
            for one in _decoded(self._run(words, despite="No such network"), "network inspect", _Inspected):
                subnets = tuple(part.get("Subnet", "") for part in one.ipam or ())
                run_id = (one.labels or {}).get(RUN_ID, "")
                found.append(Network(one.id, one.name, subnets, run_id, bool(one.containers)))
        return counted(pools, found, routes() if local else ())

    def root(self) -> str:
        """The directory in which the daemon has images and containers.

        Raises:
            DockerError: it cannot be asked.
        """
        return self._info().root

    def _info(self) -> _Info:
        done = self._ask(["info", "--format", _INFO])
        (found,) = _decoded(done.stdout, "info", _Info) or [_Info()]
        if not found.version:
            raise self._complaint("info", done)
        return found

    def memory_kills(self, run_id: str, since: float, until: float) -> list[MemoryKill]:
        """When the memory of the run's containers was used up, between two Unix times of the daemon's clock. Only its
        events have this of a command in a container that goes on.

        Raises:
            DockerError: it cannot be asked.
        """
        words = ["events", "--since", f"{since:.3f}", "--until", f"{until:.3f}", "--filter", "event=oom"]
        told = self._run([*words, "--filter", f"label={RUN_ID}={run_id}", "--format", _KILLED])
        return _decoded(told, "events", MemoryKill)

    def _inspected(self, ids: Sequence[str]) -> list[Container]:
        """What the daemon says of containers. One that has gone since it was listed is left out."""
        words = ["container", "inspect", "--format", _INSPECTED, *ids]
        return _decoded(self._run(words, despite="No such container"), "container inspect", Container)

    def remove(self, kind: Kind, names: Sequence[str]) -> str:
        """Remove these, by id, or images by name. Returns the program's last complaint, "" without one."""
        return self._each((*_REMOVES[kind],), names)

    def stop(self, ids: Sequence[str]) -> str:
        """Stop these containers, and keep them. Returns the program's last complaint, "" without one."""
        return self._each(("stop", "--time", _GRACE), ids)

    def has_image(self, name: str) -> bool:
        """Whether the daemon has an image, so that it need not be pulled.

        Raises:
            DockerError: it cannot be asked.
        """
        return bool(
            self._run(["image", "inspect", "--format", "{{.Id}}", name], despite="No such image").strip()
        )

    def create_network(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a network.

        Raises:
            DockerError: it was not created.
        """
        self._run(["network", "create", *_labels(labels), name])

    def run_script(self, image: str, script: str, name: str, labels: Mapping[str, str]) -> str:
        """What a shell script prints in a container and network of this name, which are not removed.

        Raises:
            DockerError: the container cannot be started, or the script failed.
        """
        where = ["--name", name, "--network", name, "--entrypoint", "sh"]
        return self._run(["run", "--pull", "never", "--init", *where, *_labels(labels), image, "-c", script])

    def _each(self, command: tuple[str, ...], names: Sequence[str]) -> str:
        why = ""
        for start in range(0, len(names), _AT_ONCE):
            try:
                self._run([*command, *names[start : start + _AT_ONCE]])
            except DockerError as error:
                why = str(error)
        return why

    def _list(self, kind: Kind) -> Iterator[Thing]:
        command, fields = _LISTS[kind]
        labels = [f'.Label "{name}"' for name in _LABELS] if kind != "image" else []
        # As JSON: a label of somebody else's may hold anything, a line end too.
        form = ",".join(f"{{{{json ({part})}}}}" for part in (*fields, *labels))
        for values in _decoded(self._run([*command, "--format", f"[{form}]"]), command[0], list[str]):
            values += [""] * (len(fields) + len(_LABELS) - len(values))
            ident, name, third, run_id, trial, kept, project, service, number = values
            if kind == "container" and not number:
                project = service = ""
            if kind == "image":
                yield Thing(kind, f"{name}:{third}", name)
            else:
                running = third in ("running", "restarting", "paused")
                yield Thing(kind, ident, name, run_id, trial, kept == "true", project, service, running)

    def _run(self, words: Sequence[str], despite: str = "") -> str:
        """What a command prints. ``despite``: words of a complaint that is no fault."""
        done = self._ask(words)
        if done.returncode and not (despite and despite in done.stderr):
            raise self._complaint(words[0], done)
        return done.stdout

    def _complaint(self, command: str, done: CompletedProcess[str]) -> DockerError:
        """Why a command failed: the last line of its complaint."""
        lines = [line for line in done.stderr.strip().splitlines() if not _USAGE.match(line) and line.strip()]
        return DockerError(
            told(lines[-1] if lines else f"docker {command} exited with {done.returncode}", self._env)
        )

    def _ask(self, words: Sequence[str]) -> CompletedProcess[str]:
        left = self._until - time.monotonic()
        if left <= 0:
            raise DockerError("there was no time left")
        try:
            return ask_program(["docker", *words], left, env=self._env)
        except FileNotFoundError:
            raise DockerError("there is no program docker on PATH") from None
        except OSError as error:
            raise DockerError(f"the program docker cannot be started: {error.strerror or error}") from None
        except NotEndedError:
            raise DockerError(f"docker {words[0]} did not return within {left:.0f} s") from None


def _decoded(text: str, command: str, kind: type[_T]) -> list[_T]:
    """The lines that a command printed, each as JSON of one kind.

    Raises:
        DockerError: one of them is none.
    """
    found = []
    for line in text.splitlines():
        try:
            found.append(decode_json(line.encode(), type=kind))
        except BAD_JSON:
            raise DockerError(
                f"docker {command} printed a line that is none of its own: {line[:_LONGEST]}"
            ) from None
    return found
