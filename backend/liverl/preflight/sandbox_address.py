"""Whether the sandboxes of trials can reach the sessions: inside a container 127.0.0.1 is the container itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from liverl.agents.harbor.config import IN_PROCESS
from liverl.config import conditions as when
from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.sessions import agents_host
from liverl.plan.spec import Plan
from liverl.preflight.harbor import DOCKER, LOCAL
from liverl.preflight.subject import trainer_variables
from liverl.sandboxes.bridge import is_of_a_bridge, other_host, way
from liverl.util.loopback import is_loopback
from liverl.util.primary_address import primary_address

NAME = "address for sandboxes"


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Nothing where no trial has a sandbox beside this machine's own network. ``env``: of the caller; the daemon is
    asked with the variables that the trainer gets."""
    agent = config.harbor_agent
    if agent.environment_type == LOCAL or not when.through_sessions(config):
        return
    if when.bridged(config):
        yield _bridged(plan, config, env)
        return
    # Sessions in verl's workers listen on their host's network address.
    given = agents_host(config) if when.session_service(config) else config.proxy.advertise
    host = given or primary_address()
    key = "proxy.advertise" if config.proxy.advertise else "proxy.host"
    if not is_loopback(host):
        if wrong := _of_another_docker(plan, config, env, host, key):
            yield wrong
            return
        yield Check(
            NAME, "ok", f"sandboxes get {host}{'' if given else ', the primary address of this machine'}"
        )
        return
    named = config.proxy.host if key == "proxy.host" else host
    where = f"{key} is {named}" if given else f"this machine has no address but {host}"
    text = f"sandboxes cannot reach {host}: inside a container that is the container itself ({where})"
    fix, patch = _way_out(plan, config, env, key)
    if in_process(config):
        text += f"; {agent.agent_name} itself runs beside Harbor and can, programs that it starts in the sandbox cannot"
        yield Check(NAME, "warn", f"{text}; {fix}", patch=patch)
    elif agent.environment_import_path:  # its sandboxes may share this machine's network
        text = f"{text}, unless the class {agent.environment_import_path} makes no containers"
        yield Check(NAME, "warn", f"{text}; {fix}", patch=patch)
    else:
        yield Check(NAME, "fail", f"{text}; {fix}", patch=patch)


def _bridged(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Check:
    """``proxy.host: auto``: which gateway sandboxes get."""
    found = way(docker_variables(plan, config, env))
    if found.address:
        what = "the gateway of Docker's bridge"
        if found.host:
            what = f"this machine's address towards {found.host}, where Docker runs"
        told = f"sandboxes get {found.address}, {what} (proxy.host is auto)"
        if config.proxy.advertise:
            told = f"sandboxes get {config.proxy.advertise} (proxy.advertise); the sessions listen at {found.address}"
        return Check(NAME, "ok", told)
    text = f"proxy.host is auto, and there is no address at which sandboxes reach this machine: {found.why}"
    fix = "set proxy.host to an address of this machine that they reach, or to 0.0.0.0, which serves all networks"
    if in_process(config):
        text += f"; {config.harbor_agent.agent_name} itself runs beside Harbor and needs none"
    return Check(NAME, "warn" if in_process(config) else "fail", f"{text}; {fix}")


def in_process(config: RunConfig) -> bool:
    """Whether the agent itself runs beside Harbor, not in the sandbox."""
    return config.harbor_agent.agent_name in IN_PROCESS and not config.harbor_agent.agent_import_path


def docker_variables(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> dict[str, str]:
    """The variables with which Harbor asks its daemon. ``env``: of the caller."""
    own = trainer_variables(plan, env)
    if config.harbor_agent.docker_host:
        own["DOCKER_HOST"] = config.harbor_agent.docker_host
    return own


def _way_out(plan: Plan, config: RunConfig, env: Mapping[str, str], key: str) -> tuple[str, dict[str, str]]:
    """What to do, and the values that do it. The gateway is preferred: 0.0.0.0 serves the whole network."""
    everywhere = "set proxy.host to 0.0.0.0, which serves all networks of this machine"
    if (config.harbor_agent.environment_type or DOCKER) != DOCKER:
        return f"{everywhere}, or to an address of this machine that the sandboxes reach", {}
    found = way(docker_variables(plan, config, env))
    if not found.address:
        return f"{everywhere}, or to an address of this machine that the sandboxes reach ({found.why})", {}
    patch = {"proxy.host": found.address} | ({"proxy.advertise": ""} if key == "proxy.advertise" else {})
    cleared = " and proxy.advertise to nothing" if key == "proxy.advertise" else ""
    what = "the gateway of this daemon's bridge"
    if found.host:
        what = f"this machine's address towards {found.host}, where Docker runs"
    return f"set proxy.host to {found.address}{cleared}, {what}", patch


def _of_another_docker(
    plan: Plan, config: RunConfig, env: Mapping[str, str], host: str, key: str
) -> Check | None:
    """The address of a bridge of this machine, of which containers on another one know nothing."""
    if (config.harbor_agent.environment_type or DOCKER) != DOCKER or not is_of_a_bridge(host):
        return None
    elsewhere = other_host(docker_variables(plan, config, env))
    if not elsewhere:
        return None
    text = (
        f"sandboxes cannot reach {host} ({key}): it is the address of a bridge of this machine, and Docker runs on "
        f"{elsewhere}, whose containers find another machine there, or none"
    )
    fix, patch = _way_out(plan, config, env, key)
    return Check(NAME, "warn" if in_process(config) else "fail", f"{text}; {fix}", patch=patch)
