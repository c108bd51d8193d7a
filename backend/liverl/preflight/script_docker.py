"""The Docker of a launch script whose sandboxes are containers: as LiveRL's dryrun.sh, by address, by its command, and
by the SDK of the script's own environment."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.interpreter import ask_python
from liverl.preflight.liverl_repo import TRAIN, tree_of
from liverl.preflight.script_paths import elsewhere
from liverl.preflight.subject import main_folder, main_service, variables_of
from liverl.procs.asking import NotEndedError, ask_program, last_words
from liverl.sandboxes.daemon_faults import told

NAME, SDK = "docker of the script", "docker SDK of the script"
_SANDBOXES = "HARBOR_ENVIRONMENT_IMPORT_PATH"
_CONNECT = 2.0  # seconds, as in dryrun.sh
_DAEMON = 10.0  # seconds for docker's own answer
_PLAIN = 2375  # Docker's port without TLS
_ASK = (
    "import json\n"
    "from docker import from_env\n"
    "print(json.dumps(str(from_env(timeout=10).version()['Version'])))"
)
_FIX = "start its daemon, or correct harbor_agent.docker_host (DOCKER_HOST)"


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Iterator[Check]:
    """Nothing where the script is given no class of Docker's: then its sandboxes are Kubernetes', or its own choice."""
    variables = variables_of(main_service(plan), env)
    if "docker" not in variables.get(_SANDBOXES, "").lower():
        return
    if elsewhere(config):
        yield Check(NAME, "skipped", "the command runs on another host")
        return
    first = _daemon(variables)
    yield first
    if first.status != "fail":
        yield _sdk(plan, variables)


def _daemon(env: Mapping[str, str]) -> Check:
    host = env.get("DOCKER_HOST", "")
    address = urllib.parse.urlsplit(host)
    if address.scheme == "tcp":
        return _remote(host, address)
    if address.scheme == "unix" and not _is_socket(address.path):
        return Check(NAME, "fail", f"{address.path} is no socket (DOCKER_HOST)", fix=_FIX)
    if shutil.which("docker", path=env.get("PATH", os.defpath)) is None:
        return Check(NAME, "fail", "there is no program docker on PATH", fix="install it, or correct PATH")
    argv = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        done = ask_program(argv, _DAEMON, env=env)
    except NotEndedError:
        return Check(NAME, "fail", f"no answer within {_DAEMON:g} s: {' '.join(argv[:2])}", fix=_FIX)
    except OSError as error:
        return Check(
            NAME, "fail", f"docker cannot be run: {error.strerror}", fix="install it, or correct PATH"
        )
    if done.returncode:
        sentence = told(last_words(done), env)
        if sentence != last_words(done):
            return Check(NAME, "fail", sentence)
        return Check(NAME, "fail", f"its daemon does not answer: {last_words(done)}", fix=_FIX)
    return Check(NAME, "ok", f"{host or 'the local daemon'} answers, version {done.stdout.strip()}")


def _remote(host: str, address: urllib.parse.SplitResult) -> Check:
    try:
        port = address.port or _PLAIN
        socket.create_connection((address.hostname or "", port), _CONNECT).close()
    except (OSError, ValueError) as error:
        return Check(NAME, "fail", f"{host} (DOCKER_HOST) cannot be reached: {error}", fix=_FIX)
    if port == _PLAIN:
        text = (
            f"{host} (DOCKER_HOST) answers, on the port without TLS: whoever reaches it is root of that host"
        )
        return Check(NAME, "warn", text, fix="use port 2376 with TLS, or a unix socket through ssh")
    return Check(NAME, "ok", f"{host} (DOCKER_HOST) can be reached; whether it is Docker is told by the SDK")


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _sdk(plan: Plan, env: Mapping[str, str]) -> Check:
    """Whether Python's SDK, by which LiveRL makes its containers, reaches the daemon from the script's environment."""
    tree, given = tree_of(plan), env.get("VENV_PATH")
    root = tree.root if tree is not None else main_folder(plan)
    python = (Path(given) if given else root / TRAIN / ".venv") / "bin" / "python"
    if not python.exists():
        return Check(SDK, "skipped", f"{python} does not exist yet")
    try:
        version = ask_python(python, _ASK, [], str, env=env, cwd="/")
    except ValueError as error:
        return Check(SDK, "fail", f"{python}: {error}", fix=f"{python} -m pip install docker, or {_FIX}")
    return Check(SDK, "ok", f"{python} reaches version {version}")
