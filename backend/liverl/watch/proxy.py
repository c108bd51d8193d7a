"""A LiteLLM that somebody else started: what holds its port, whether it answers, and to which replicas it routes."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import msgspec

from liverl.external import litellm, model_list, port_holders
from liverl.external.litellm import NotLiteLLM
from liverl.external.model_list import Document, ListingError
from liverl.util.regular_file import read_text
from liverl.watch.http import Refused, get
from liverl.watch.replicas import ENGINE, root

HEALTH = "/health/liveliness"  # needs no key, and sends nothing to replicas, as /health would
TIMEOUT = 3.0  # seconds


class ProxyFacts(msgspec.Struct, frozen=True):
    """``problem``: why it does not answer, None if it does; ``backends``: all URLs of its configuration; ``replicas``:
    those of them that are engines of ours or on this network, not other providers; ``config_problem``: why the
    configuration cannot be read."""

    port: int
    address: str
    problem: str | None
    pid: int | None = None
    members: tuple[int, ...] = ()
    config: Path | None = None
    log: Path | None = None
    backends: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    config_problem: str = ""
    answered: bool = True
    engine: str = "vllm"  # of its replicas: a key of ``engines.WATCHED``


def look(port: int) -> ProxyFacts:
    """The proxy on ``port`` of this host. Scans ``/proc`` for the holders of the port."""
    address = f"http://127.0.0.1:{port}"
    answered, problem = True, None
    try:
        status, _ = get(f"{address}{HEALTH}", TIMEOUT)
        problem = None if status == 200 else f"GET {HEALTH} returned {status}"
    except Refused as error:
        answered, problem = False, f"GET {HEALTH}: {error}"
    facts = ProxyFacts(port, address, problem, answered=answered)
    held = port_holders.look(port)
    if held is None:
        return facts
    facts = msgspec.structs.replace(facts, members=tuple(one.pid for one in held.holders))
    try:
        process, launch = litellm.capture(held, port)
    except NotLiteLLM as error:
        config = litellm.usual_files(port)[0]
        unknown = "" if config.is_file() else str(error)
        facts = msgspec.structs.replace(facts, config_problem=unknown)
        return _with_config(facts, config, {}) if config.is_file() else facts
    facts = msgspec.structs.replace(facts, pid=process.pid, log=launch.log)
    return _with_config(facts, launch.config, dict(launch.env))


def _with_config(facts: ProxyFacts, config: Path, env: dict[str, str]) -> ProxyFacts:
    facts = msgspec.structs.replace(facts, config=config)
    try:
        document = model_list.read(read_text(config))
    except (OSError, ValueError, ListingError) as error:
        return msgspec.structs.replace(facts, config_problem=f"cannot read {config}: {error}")
    backends = tuple(dict.fromkeys(root(url) for url in model_list.backends(document, env)))
    return msgspec.structs.replace(facts, backends=backends, replicas=replicas_of(document, env))


def replicas_of(document: Document, env: dict[str, str]) -> tuple[str, ...]:
    """The engines in a configuration: entries with the engine's prefix, or at an address that is no public one. Another
    provider, such as a judge's, is none. Pure."""
    found = []
    for model in document["model_list"]:
        for url in model_list.backends({"model_list": [model]}, env):
            own = str(model["litellm_params"].get("model", "")).startswith(ENGINE.litellm_prefix)
            if own or _is_private(url):
                found.append(root(url))
    return tuple(dict.fromkeys(found))


def _is_private(url: str) -> bool:
    spot = model_list.place(url)
    if spot is None:
        return False
    if spot[0] == "localhost":
        return True
    try:
        return ipaddress.ip_address(spot[0]).is_private
    except ValueError:
        return False  # a host name: only the prefix tells
