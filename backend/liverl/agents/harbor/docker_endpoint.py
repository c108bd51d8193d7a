"""Which daemon the docker program asks: by its variables, and by the contexts in its configuration. Nothing is started.
For Python 3.10 with few packages."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.loopback import is_loopback
from liverl.util.regular_file import read_regular

# Variables by which the docker program finds its daemon, as of Docker 28.
DAEMON_VARIABLES = (
    "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_TLS", "DOCKER_CERT_PATH",
    "DOCKER_API_VERSION",
)  # fmt: skip
SOCKET = "unix:///var/run/docker.sock"  # without any of them, and in the context ``default``
_DEFAULT = "default"
_LARGEST = 1 << 20  # bytes of a configuration file


class Endpoint(NamedTuple):
    """A daemon. ``address``: such as ``unix:///var/run/docker.sock`` or ``tcp://host:2376``, "" if its context cannot
    be read; ``context``: "" where none decides; ``certificates``: the folder with ca.pem, cert.pem and key.pem that
    are shown to it, "" if none are."""

    address: str
    context: str = ""
    certificates: str = ""

    @property
    def host(self) -> str:
        """The name or address of its machine; "" for a socket of this one."""
        try:
            return urlsplit(self.address).hostname or ""
        except ValueError:
            return ""

    @property
    def is_local(self) -> bool:
        """Whether the same address is another daemon on another machine: a socket, or a loopback address."""
        scheme = self.address.partition("://")[0]
        return scheme in ("unix", "npipe", "fd") or (scheme != "ssh" and is_loopback(self.host))


def endpoint(env: Mapping[str, str]) -> Endpoint:
    """The daemon that the docker program asks with these variables: DOCKER_HOST before DOCKER_CONTEXT before the
    current context (ran with 28.2: ``docker context use``)."""
    folder = _folder(env)
    if address := env.get("DOCKER_HOST", ""):
        tls = env.get("DOCKER_TLS_VERIFY") or env.get("DOCKER_TLS")
        return Endpoint(address, "", (env.get("DOCKER_CERT_PATH") or str(folder)) if tls else "")
    name = env.get("DOCKER_CONTEXT", "") or _current(folder)
    if name in ("", _DEFAULT):
        return Endpoint(SOCKET)
    key = hashlib.sha256(name.encode()).hexdigest()
    docker = _part(_part(_json(folder / "contexts" / "meta" / key / "meta.json"), "Endpoints"), "docker")
    told = docker.get("Host")
    tls_folder = folder / "contexts" / "tls" / key / "docker"
    has_tls = any((tls_folder / file).is_file() for file in ("ca.pem", "cert.pem"))
    return Endpoint(told if isinstance(told, str) else "", name, str(tls_folder) if has_tls else "")


def daemon_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Those of ``env`` that name the daemon, with the context that is current now: ``docker context use`` may choose
    another one while a run goes on."""
    found = {name: env[name] for name in DAEMON_VARIABLES if env.get(name)}
    if "DOCKER_HOST" not in found and "DOCKER_CONTEXT" not in found and (name := _current(_folder(env))):
        found["DOCKER_CONTEXT"] = name
    return found


def _folder(env: Mapping[str, str]) -> Path:
    """Where the program has its configuration."""
    return Path(env.get("DOCKER_CONFIG") or Path(env.get("HOME") or os.path.expanduser("~"), ".docker"))


def _current(folder: Path) -> str:
    name = _json(folder / "config.json").get("currentContext")
    return name if isinstance(name, str) else ""


def _json(path: Path) -> Mapping[str, Any]:
    """The object in a file; empty if there is none: the program then says what is wrong with it."""
    try:
        found = decode_json(read_regular(path, _LARGEST))
    except (OSError, *BAD_JSON):
        return {}
    return found if isinstance(found, Mapping) else {}


def _part(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = found.get(name)
    return part if isinstance(part, Mapping) else {}
