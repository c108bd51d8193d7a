"""Whether the sandboxes of trials can reach the sessions: inside a container 127.0.0.1 is the container itself."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping

from liverl.agents.harbor.config import IN_PROCESS
from liverl.config import conditions as when
from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.sessions import agents_host
from liverl.plan.spec import Plan
from liverl.preflight.harbor import DOCKER, LOCAL
from liverl.preflight.subject import variables_of
from liverl.util.primary_address import primary_address

NAME = "address for sandboxes"
_SECONDS = 8.0  # for the daemon's answer
# A daemon that has never been restarted tells the subnet only (20.10): the bridge has its first address then.
_GATEWAY = "{{range .IPAM.Config}}{{println .Gateway .Subnet}}{{end}}"


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Nothing where no trial has a sandbox beside this machine's own network. ``env``: of the caller; the daemon is
    asked with the variables that the trainer gets."""
    agent = config.harbor_agent
    if agent.environment_type == LOCAL or not when.through_sessions(config):
        return
    # Sessions in verl's workers listen on their host's network address.
    given = agents_host(config) if when.session_service(config) else config.proxy.advertise
    host = given or primary_address()
    key = "proxy.advertise" if config.proxy.advertise else "proxy.host"
    if not is_loopback(host):
        yield Check(
            NAME, "ok", f"sandboxes get {host}{'' if given else ', the primary address of this machine'}"
        )
        return
    where = f"{key} is {host}" if given else f"this machine has no address but {host}"
    text = f"sandboxes cannot reach {host}: inside a container that is the container itself ({where})"
    fix, patch = _way_out(plan, config, env, key)
    if agent.agent_name in IN_PROCESS and not agent.agent_import_path:
        text += f"; {agent.agent_name} itself runs beside Harbor and can, programs that it starts in the sandbox cannot"
        yield Check(NAME, "warn", f"{text}; {fix}", patch=patch)
    elif agent.environment_import_path:  # its sandboxes may share this machine's network
        text = f"{text}, unless the class {agent.environment_import_path} makes no containers"
        yield Check(NAME, "warn", f"{text}; {fix}", patch=patch)
    else:
        yield Check(NAME, "fail", f"{text}; {fix}", patch=patch)


def _way_out(plan: Plan, config: RunConfig, env: Mapping[str, str], key: str) -> tuple[str, dict[str, str]]:
    """What to do, and the values that do it. The gateway is preferred: 0.0.0.0 serves the whole network."""
    everywhere = "set proxy.host to 0.0.0.0, which serves all networks of this machine"
    if (config.harbor_agent.environment_type or DOCKER) != DOCKER:
        return f"{everywhere}, or to an address of this machine that the sandboxes reach", {}
    trainer = next((service for service in plan.services if service.ends_run), None)
    own = dict(variables_of(trainer, env) if trainer is not None else env)
    if config.harbor_agent.docker_host:
        own["DOCKER_HOST"] = config.harbor_agent.docker_host
    gateway, why = bridge_gateway(own)
    if not gateway:
        return f"{everywhere} (the gateway of Docker's bridge would be better, and is not known: {why})", {}
    if not is_here(gateway):
        text = f"the gateway of Docker's bridge, {gateway}, is no address of this machine: the daemon runs elsewhere"
        return f"{everywhere}, or to an address of this machine that the sandboxes reach ({text})", {}
    patch = {"proxy.host": gateway} | ({"proxy.advertise": ""} if key == "proxy.advertise" else {})
    cleared = " and proxy.advertise to nothing" if key == "proxy.advertise" else ""
    return f"set proxy.host to {gateway}{cleared}, the gateway of this daemon's bridge", patch


def bridge_gateway(env: Mapping[str, str]) -> tuple[str, str]:
    """The IPv4 address at which containers find this machine, and "", or else "" and why it is not known."""
    words = ["docker", "network", "inspect", "bridge", "--format", _GATEWAY]
    try:
        done = subprocess.run(
            words,
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError:
        return "", "there is no program docker on PATH"
    except subprocess.TimeoutExpired:
        return "", f"docker did not answer within {_SECONDS:g} s"
    except OSError as error:
        return "", error.strerror or str(error)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return "", lines[-1] if lines else f"docker exited with {done.returncode}"
    found = next(filter(None, map(_gateway_of, done.stdout.splitlines())), "")
    return found, "" if found else "its network bridge has no IPv4 gateway"


def is_loopback(host: str) -> bool:
    """Whether a host's name or address stands for the machine that asks."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_here(address: str) -> bool:
    """Whether this machine has an IPv4 address: only then can a socket be bound to it."""
    with socket.socket() as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
    return True


def _gateway_of(line: str) -> str:
    """The IPv4 gateway in a line ``GATEWAY SUBNET``, either of which may be missing; "" if there is none."""
    for word in line.split():
        try:
            if "/" in word:
                return str(next(ipaddress.IPv4Network(word, strict=False).hosts()))
            return str(ipaddress.IPv4Address(word))
        except (ValueError, StopIteration):
            continue
    return ""
