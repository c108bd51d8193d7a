"""How a LiteLLM that we did not start was started: its command line, directory, environment, log and configuration.

``tell`` judges what was read (pure); ``capture`` reads it, before anything is ended.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from liverl.external.port_holders import HolderProcess, PortHolders
from liverl.procs import procfs
from liverl.util import redact

_NAMES = ("litellm", "litellm-proxy")
_WORKER = "multiprocessing.spawn"
_WORKER_CONFIG = "WORKER_CONFIG"  # by which LiteLLM hands its options to its workers: JSON


class NotLiteLLM(Exception):
    """What listens is none that can be started again; the text says what it is and why not."""


@dataclass(frozen=True)
class LiteLLMLaunch:
    """What it takes to start it again. ``env`` holds secrets: it goes to the new process and nowhere else. ``log``:
    the file that its output is appended to; None = it went to no file."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    config: Path
    log: Path | None

    def words(self) -> str:
        return " ".join(redact.command(self.argv))


def usual_files(port: int) -> tuple[Path, Path]:
    """LiveRL's names for configuration and pid file of the proxy on ``port``."""
    return Path(f"/tmp/litellm_cc_{port}.yaml"), Path(f"/tmp/litellm_cc_{port}.pid")


def is_litellm(argv: Sequence[str]) -> bool:
    """Whether this is LiteLLM's own command: the script, or Python with the script or the module."""
    if not argv:
        return False
    if os.path.basename(argv[0]) in _NAMES:
        return True
    if not os.path.basename(argv[0]).startswith("python"):
        return False
    rest = list(argv[1:])
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
        rest = rest[2:] if rest[0] in ("-X", "-W") else rest[1:]
    if rest[:1] == ["-m"]:
        return rest[1:2] != [] and rest[1].partition(".")[0] == "litellm"
    return bool(rest) and os.path.basename(rest[0]) in _NAMES


def worker_config(argv: Sequence[str], env: Mapping[str, str]) -> dict[str, object] | None:
    """The options of a process that is a worker of LiteLLM; None if it is none."""
    if not any(_WORKER in word for word in argv):
        return None
    try:
        options = json.loads(env.get(_WORKER_CONFIG, ""))
    except ValueError:
        return None
    return options if isinstance(options, dict) and options.get("config") else None


def option(argv: Sequence[str], *names: str) -> str | None:
    """The value of the last of these options, in either spelling."""
    found = None
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else next(iter(argv[index + 1 : index + 2]), found)
    return found


def tell(
    held: PortHolders, envs: Mapping[int, Mapping[str, str]], port: int
) -> tuple[HolderProcess, tuple[str, ...], str | None]:
    """The process that stands for the whole proxy, the command line that starts it again, and the configuration
    file that it names. ``envs``: environments of the roots, by pid. Pure.

    Raises:
        NotLiteLLM: a root is something else.
    """
    if held.unseen:
        raise NotLiteLLM(f"port {port} is held by a process that is not visible from here")
    leaders = [root for root in held.roots if is_litellm(root.argv)]
    orphans = {
        root: options
        for root in held.roots
        if (options := worker_config(root.argv, envs.get(root.pid, {}))) is not None
    }
    others = [root for root in held.roots if root not in leaders and root not in orphans]
    if others or len(leaders) > 1:
        who = "; ".join(words(root) for root in others or leaders)
        raise NotLiteLLM(
            f"port {port} is held by {who}: "
            + ("not a LiteLLM process" if others else "more than one LiteLLM process")
        )
    if leaders:
        leader = leaders[0]
        return leader, leader.argv, option(leader.argv, "--config", "-c")
    # Its parent was killed and its workers go on: the options that they were given start it again.
    orphan, options = next(iter(orphans.items()))
    config = str(options["config"])
    script = os.path.join(os.path.dirname(orphan.argv[0]), "litellm")
    argv = [orphan.argv[0], script, "--config", config, "--host", held.address, "--port", str(port)]
    return orphan, (*argv, "--num_workers", str(len(orphans))), config


def words(process: HolderProcess) -> str:
    """A process as people look for it."""
    command = " ".join(redact.command(process.argv))[:200] or "[no command line]"
    return f"pid {process.pid} (user {procfs.user_of(process.pid)}): {command}"


def capture(held: PortHolders, port: int) -> tuple[HolderProcess, LiteLLMLaunch]:
    """How the proxy that holds ``port`` was started.

    Raises:
        NotLiteLLM: it is something else, or cannot be started again as it was.
    """
    envs = {root.pid: procfs.whole_environment(root.pid) or {} for root in held.roots}
    process, argv, named = tell(held, envs, port)
    env = envs[process.pid]
    if not env:
        raise NotLiteLLM(f"cannot read the environment of {words(process)}")
    try:
        cwd = os.readlink(f"/proc/{process.pid}/cwd")
    except OSError as error:
        raise NotLiteLLM(
            f"cannot read the working directory of {words(process)}: {os.strerror(error.errno or 0)}"
        ) from None
    config = Path(cwd, named) if named else usual_files(port)[0]
    if not config.is_file():
        raise NotLiteLLM(f"{words(process)}: its configuration {config} does not exist")
    if process.argv != argv and not os.path.isfile(argv[1]):
        raise NotLiteLLM(
            f"the parent of {words(process)} has exited, and {argv[1]}, which is needed to "
            f"restart it, does not exist"
        )
    if procfs.start_tick(process.pid) != process.tick:
        raise NotLiteLLM(f"pid {process.pid} has just exited")
    return process, LiteLLMLaunch(argv, cwd, env, config, _log(process.pid))


def _log(pid: int) -> Path | None:
    """The file that its output goes to."""
    try:
        path = Path(os.readlink(f"/proc/{pid}/fd/1"))
        opened, named = os.stat(f"/proc/{pid}/fd/1"), path.stat()
    except OSError:
        return None
    same = (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)
    return path if same and stat.S_ISREG(opened.st_mode) else None
