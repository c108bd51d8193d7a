"""The docker program: lists what a daemon has, and removes what is named by id."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from liverl.agents.harbor.owned import KEPT, RUN_ID, TRIAL
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
_AT_ONCE = 100  # names in one command
_LONGEST = 300  # characters of a refusal that are shown
_GRACE = "1"  # seconds for a kept container to stop


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

    def remove(self, kind: Kind, names: Sequence[str]) -> str:
        """Remove these, by id, or images by name. Returns the program's last complaint, "" without one."""
        return self._each((*_REMOVES[kind],), names)

    def stop(self, ids: Sequence[str]) -> str:
        """Stop these containers, and keep them. Returns the program's last complaint, "" without one."""
        return self._each(("stop", "--time", _GRACE), ids)

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
        for line in self._run([*command, "--format", f"[{form}]"]).splitlines():
            try:
                values = decode_json(line.encode(), type=list[str])
            except BAD_JSON:
                raise DockerError(
                    f"docker {command[0]} printed a line that is no list: {line[:_LONGEST]}"
                ) from None
            values += [""] * (len(fields) + len(_LABELS) - len(values))
            ident, name, third, run_id, trial, kept, project, service, number = values
            if kind == "container" and not number:
                project = service = ""
            if kind == "image":
                yield Thing(kind, f"{name}:{third}", name)
            else:
                running = third in ("running", "restarting", "paused")
                yield Thing(kind, ident, name, run_id, trial, kept == "true", project, service, running)

    def _run(self, words: Sequence[str]) -> str:
        left = self._until - time.monotonic()
        if left <= 0:
            raise DockerError("there was no time left")
        try:
            done = subprocess.run(
                ["docker", *words],
                env=self._env,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=left,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except FileNotFoundError:
            raise DockerError("there is no program docker on PATH") from None
        except OSError as error:
            raise DockerError(f"the program docker cannot be started: {error.strerror or error}") from None
        except subprocess.TimeoutExpired:
            raise DockerError(f"docker {words[0]} did not return within {left:.0f} s") from None
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"docker {words[0]} exited with {done.returncode}"]
            raise DockerError(lines[-1][:_LONGEST])
        return done.stdout
