"""What the Docker of the trials' sandboxes needs beside an answer: Compose 2, networks, disk, and the right daemon."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping

from liverl.agents.harbor.docker_endpoint import DAEMON_VARIABLES
from liverl.config.schema import RunConfig
from liverl.config.trainer_mode import step_prompts
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.harbor import no_docker
from liverl.preflight.sandbox_address import docker_variables
from liverl.procs.asking import NotEndedError, ask_program
from liverl.sandboxes.bridge import other_host
from liverl.sandboxes.docker import Docker, DockerError
from liverl.sandboxes.networks import LARGER, Networks
from liverl.util.plural import plural, quantity

COMPOSE, NETWORKS, DISK, DAEMON = "docker compose", "docker networks", "docker disk", "docker daemon"
_SECONDS = 12.0  # for all questions together
_SHOWN = 4  # networks that are named
# GiB on the disk of the daemon: below the first no image of a usual task can be built (a base image with tools has 1 to
# 2), below the second a step of different tasks may fill it.
_LEAST_GIB, _LITTLE_GIB = 2, 10
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Asked with the variables that the trainer gets. Nothing where the daemon does not answer: that is told by the
    check of ``harbor_agent.environment_type``."""
    variables = docker_variables(plan, config, env)
    yield from _other_daemon(config, variables, env)
    if no_docker("", variables):
        return
    yield _compose(variables)
    host = other_host(variables)
    docker = Docker(
        {k: v for k, v in variables.items() if k.startswith("DOCKER_")}, time.monotonic() + _SECONDS
    )
    try:
        yield networks_check(docker.networks(local=not host), wanted(config))
    except DockerError as error:
        yield Check(NETWORKS, "skipped", f"it is not known how many networks are free: {error}")
    try:
        yield _disk(docker.root(), host)
    except DockerError as error:
        yield Check(DISK, "skipped", f"it is not known where the daemon has its images: {error}")


def wanted(config: RunConfig) -> int:
    """Trials that run at the same time; each has a network."""
    trials = step_prompts(config) * config.training.n_resp_per_prompt
    return max(1, min(config.harbor_runtime.num_workers, trials))


def networks_check(found: Networks, trials: int) -> Check:
    """Whether each of ``trials`` gets a network. Pure."""
    if found.free is None:
        return Check(NETWORKS, "skipped", "the daemon has only address ranges of which nothing is known here")
    values = {"networks_free": float(found.free), "networks_total": float(found.total)}
    have = f"{found.free} of {found.total} networks of the daemon are free"
    if found.free >= trials:
        return Check(NETWORKS, "ok", f"{have}, {trials} are needed at a time", values=values)
    text = (
        f"{have}, and {quantity(trials, 'trial')} at a time {plural(trials, 'needs', 'need')} one each "
        "(harbor_runtime.num_workers): the others fail in their setup"
    )
    fix = f"give the daemon more ranges: dockerd --default-address-pool {LARGER}"
    if found.idle:
        names = shlex.join(one.name for one in found.idle[:_SHOWN])
        more = f" (and {len(found.idle) - _SHOWN} more)" if len(found.idle) > _SHOWN else ""
        fix = (
            f"remove networks of our runs that no running container is in: docker network rm {names}{more}, "
            f"or liverl-tui clean --sandboxes; or {fix}"
        )
    patch = {"harbor_runtime.num_workers": str(found.free)} if found.free else {}
    return Check(NETWORKS, "warn" if found.free else "fail", text, fix=fix, patch=patch, values=values)


def compose_check(said: str, why: str) -> Check:
    """Whether Compose can be used. ``said``: what ``docker compose version --short`` printed; ``why``: why it failed,
    "" if it did not. Pure."""
    fix = (
        "install the package docker-compose-plugin (Debian: docker-compose), or put the plugin into "
        "/usr/local/lib/docker/cli-plugins; docker compose version must work"
    )
    if why:
        return Check(
            COMPOSE, "fail", f"Harbor makes each sandbox with it, and it does not work: {why}", fix=fix
        )
    match = _VERSION.match(said.strip())
    if match is None:
        return Check(COMPOSE, "skipped", f"its version is not known: {said.strip()[:80]!r}")
    number = f"{match[1]}.{match[2]}"
    if int(match[1]) < 2:
        return Check(COMPOSE, "fail", f"it is {number}, and Harbor needs version 2 or newer", fix=fix)
    return Check(COMPOSE, "ok", f"version {number}")


def _compose(variables: Mapping[str, str]) -> Check:
    words = ["docker", "compose", "version", "--short"]
    try:
        done = ask_program(words, _SECONDS, env=variables)
    except NotEndedError:
        return Check(COMPOSE, "skipped", f"no answer within {_SECONDS:g} s")
    except OSError as error:
        return compose_check("", error.strerror or str(error))
    lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
    return compose_check(done.stdout, lines[0] if done.returncode else "")


def _disk(root: str, host: str) -> Check:
    if host:
        return Check(DISK, "skipped", f"the daemon runs on {host}: look there how much {root} has free")
    try:
        free = shutil.disk_usage(root).free / (1 << 30)
    except OSError as error:
        return Check(DISK, "skipped", f"{root}: {error.strerror or error}")
    text = f"{root} (images and containers of the daemon) has {free:.1f} GiB free"
    if free >= _LITTLE_GIB:
        return Check(DISK, "ok", text)
    fix = (
        "remove images that nobody needs (docker image ls, docker image rm), or move it: dockerd --data-root"
    )
    return Check(
        DISK,
        "fail" if free < _LEAST_GIB else "warn",
        f"{text}: builds of images fail when it is full",
        fix=fix,
    )


def _other_daemon(config: RunConfig, variables: Mapping[str, str], env: Mapping[str, str]) -> Iterator[Check]:
    """A variable of the caller's by which the shell's docker finds another daemon than the trials."""
    for name in DAEMON_VARIABLES:
        theirs = env.get(name, "")
        if (
            not theirs
            or theirs == variables.get(name)
            or (name == "DOCKER_HOST" and config.harbor_agent.docker_host)
        ):
            continue
        where = variables.get("DOCKER_HOST") or variables.get("DOCKER_CONTEXT") or "that of this host"
        text = f"{name} is set here, and trials do not get it: their daemon is {where}"
        fix = f"add {name} to supervise.pass_env"
        if name == "DOCKER_CONTEXT":
            fix += ", or set harbor_agent.docker_host to the address that docker context inspect tells"
        yield Check(DAEMON, "warn", text, fix=fix)
