"""Whether a container reaches an address of this machine: asked by one of the run's own image in a network of its own,
as trials have them. It has the run's labels and is removed at once; if this process dies, a sweep finds it. Blocking.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from liverl.agents.harbor.owned import Ledger
from liverl.sandboxes.docker import Docker, DockerError
from liverl.sandboxes.sweep import sweep
from liverl.util.decode import Undecodable, decode_toml
from liverl.util.regular_file import read_regular

WORKER = "probe"  # whose ledger names these containers
SECONDS = 20.0  # for starting a container and the connection
# For the connection: on this machine it takes none, and a firewall that drops packets answers never
_CONNECT_S = 5
_SWEEP_S = 10.0  # for removing container and network
_LARGEST = 1 << 20  # bytes of a Dockerfile
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE | re.MULTILINE)
# The program of the image that can make a connection is not known: the first of these does.
_SCRIPT = """
limit=; command -v timeout >/dev/null 2>&1 && limit="timeout SECONDS"
if command -v bash >/dev/null 2>&1; then $limit bash -c "exec 3<>/dev/tcp/HOST/PORT" 2>/dev/null
elif command -v python3 >/dev/null 2>&1; then
  $limit python3 -c "import socket; socket.create_connection(('HOST', PORT), SECONDS)" 2>/dev/null
elif command -v nc >/dev/null 2>&1; then $limit nc -z -w SECONDS HOST PORT 2>/dev/null
elif command -v curl >/dev/null 2>&1; then
  curl -s --connect-timeout SECONDS telnet://HOST:PORT </dev/null >/dev/null 2>&1
else echo without; exit 0; fi
if [ $? = 0 ]; then echo reached; else echo unreached; fi
"""


class Probed(msgspec.Struct, frozen=True):
    """``reached``: None if it could not be found out; ``text``: why, "" if it was reached."""

    reached: bool | None
    text: str = ""


def probe(
    run_dir: Path, attempt: str, env: Mapping[str, str], image: str, host: str, port: int, until: float
) -> Probed:
    """Connect from a container of ``image``, which the daemon has. ``env``: by which the docker program finds it;
    ``until``: on ``time.monotonic``, when it has to be known."""
    name = f"liverl-probe-{secrets.token_hex(6)}"
    docker = Docker({key: value for key, value in env.items() if key.startswith("DOCKER_")}, until)
    try:
        ledger = Ledger(run_dir, WORKER, attempt, env)
        labels = ledger.begin_probe(name)
    except OSError as error:
        return Probed(None, f"the ledger of sandboxes cannot be written: {error}")
    try:
        docker.create_network(name, labels)
        values = {"HOST": host, "PORT": str(port), "SECONDS": str(_CONNECT_S)}
        script = re.sub("|".join(values), lambda match: values[match[0]], _SCRIPT)
        told = docker.run_script(image, script, name, labels).split()
    except DockerError as error:
        return Probed(None, str(error))
    finally:
        end = sweep(run_dir, _SWEEP_S, only={name})
        if end is not None and not end.left and not end.unknown:
            ledger.over(name)
    if told == ["reached"]:
        return Probed(True)
    if told == ["unreached"]:
        return Probed(False, f"a container of {image} cannot connect to {host}:{port}")
    return Probed(None, f"the image {image} has none of bash, python3, nc and curl")


def images_of(task: Path) -> tuple[str, ...]:
    """The images that a task of Harbor's begins with: the one in its task.toml, and that of the last stage of its
    Dockerfile. Names with variables are left out."""
    return tuple(dict.fromkeys(name for name in _images_of(task) if "$" not in name))


def _images_of(task: Path) -> Iterator[str]:
    try:
        table = decode_toml(read_regular(task / "task.toml", _LARGEST)).get("environment")
    except (OSError, Undecodable, ValueError):
        table = None
    if isinstance(table, Mapping) and isinstance(table.get("docker_image"), str):
        yield table["docker_image"]
    try:
        text = read_regular(task / "environment" / "Dockerfile", _LARGEST).decode(errors="replace")
    except OSError:
        return
    stages: dict[str, str] = {}
    last = ""
    for image, stage in _FROM.findall(text):
        last = stages.get(image.lower(), image)
        if stage:
            stages[stage.lower()] = last
    if last:
        yield last
