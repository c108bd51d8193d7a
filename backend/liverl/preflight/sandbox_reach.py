"""Whether the sandboxes of trials reach the sessions, asked by a container right before the trainer starts: otherwise
the first step shows it, after minutes, by trials that all fail."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from liverl.config import conditions as when
from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.harbor import tasks_directory
from liverl.plan.sessions import NAME as SESSIONS
from liverl.plan.sessions import SANDBOXES, agents_host
from liverl.plan.spec import Plan
from liverl.preflight import data_rows
from liverl.preflight.interpreter import interpreter
from liverl.preflight.sandbox_address import docker_variables, in_process
from liverl.preflight.subject import Ours
from liverl.sandboxes.docker import Docker, DockerError
from liverl.sandboxes.probe import SECONDS, images_of, probe
from liverl.util.loopback import is_loopback
from liverl.util.primary_address import primary_address

NAME = "sessions from a sandbox"
_TASKS = 20  # tasks whose images are looked for


def checks(
    plan: Plan, config: RunConfig, env: Mapping[str, str] = os.environ, ours: Ours | None = None
) -> Iterator[Check]:
    """Nothing before the run has its sockets, and nothing for agents that run beside Harbor."""
    if ours is None or not when.compose_sandboxes(config) or in_process(config):
        return
    if not when.session_service(config):
        yield Check(NAME, "skipped", "verl's workers open their ports only when the first trial begins")
        return
    where = f"{SESSIONS}.{SANDBOXES}"
    if where not in ours.ports:
        where = f"{SESSIONS}.http"
    port, listens = ours.ports.get(where), ours.hosts.get(where, "")
    host = agents_host(config) or ("" if listens in when.ANY_HOST else listens) or primary_address()
    if port is None:
        yield Check(NAME, "skipped", "the run does not hold the socket of its sessions yet")
        return
    if is_loopback(host):
        text = f"sandboxes cannot reach {host}: when the run began, this machine had no gateway of Docker's bridge"
        yield Check(NAME, _refused(config), text)
        return
    variables = docker_variables(plan, config, env)
    until = time.monotonic() + SECONDS
    try:
        image, wanted = _image(plan, config, Docker(_docker(variables), until))
    except (DockerError, ValueError) as error:
        yield Check(NAME, "skipped", f"it was not tried whether sandboxes reach {host}:{port}: {error}")
        return
    if not image:
        names = ", ".join(wanted)
        what = (
            f"the daemon has none of the images of the tasks yet ({names})" if wanted else "no task names one"
        )
        yield Check(NAME, "skipped", f"it was not tried whether sandboxes reach {host}:{port}: {what}")
        return
    attempt = f"attempt_{ours.attempt:03d}"
    found = probe(Path(plan.run_dir), attempt, variables, image, host, port, time.monotonic() + SECONDS)
    if found.reached:
        yield Check(NAME, "ok", f"a container of {image} reaches {host}:{port}")
    elif found.reached is None:
        yield Check(
            NAME, "skipped", f"it was not found out whether sandboxes reach {host}:{port}: {found.text}"
        )
    else:
        fix = (
            f"allow connections from Docker's networks to {host} in this machine's firewall (chain INPUT), or set "
            "proxy.host to an address that the sandboxes reach"
        )
        yield Check(NAME, _refused(config), found.text, fix=fix)


def _refused(config: RunConfig) -> Literal["fail", "warn"]:
    """An address that the user has chosen is not refused: names in it may be known to the trials' networks only."""
    return "fail" if when.bridged(config) and not config.proxy.advertise else "warn"


def _docker(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith("DOCKER_")}


def _image(plan: Plan, config: RunConfig, docker: Docker) -> tuple[str, tuple[str, ...]]:
    """An image of the first tasks that the daemon has, "" without one; and those that were looked for.

    Raises:
        DockerError: the daemon cannot be asked.
        ValueError: the rows cannot be read.
    """
    python, name = interpreter(plan), next(iter(sizing.train_files(config) or ()), "")
    if python is None or not name or "://" in name:
        raise ValueError("the rows of the data are not known here")
    prompts = data_rows.prompts_of(config)
    answer = data_rows.ask(python, {"data.train_index": name}, (), config.agent.path, prompts)
    tasks = data_rows.harbor_tasks(config, answer.files["data.train_index"])
    folders = [Path(tasks_directory(config), task.path) for task in tasks[:_TASKS]]
    images = tuple(dict.fromkeys(image for folder in folders for image in images_of(folder)))
    return next((image for image in images if docker.has_image(image)), ""), images
