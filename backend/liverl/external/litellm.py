"""How a LiteLLM that we did not start was started: its command line, directory, environment, log and configuration.

``capture`` reads this from the running processes, before any of them is stopped; ``tell`` evaluates it (pure).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from liverl.external.port_holders import HolderProcess, PortHolders
from liverl.procs import procfs
from liverl.util import redact
from liverl.util.decode import decode_loose_json

_NAMES = ("litellm", "litellm-proxy")
_WORKER = "multiprocessing.spawn"
_WORKER_CONFIG = "WORKER_CONFIG"  # environment variable with LiteLLM's options for its workers: JSON


class NotLiteLLM(Exception):
    """The process on the port is not a LiteLLM that can be started again; the text says what it is, and why not."""


@dataclass(frozen=True)
class LiteLLMLaunch:
    """What is needed to start the proxy again. ``env`` holds secrets and may only go to the new process. ``log``: the
    file to which its output is appended; None = its output is not in a file."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    config: Path
    log: Path | None

    def words(self) -> str:
        """The command line for messages, with secrets redacted."""
        return " ".join(redact.command(self.argv))


def usual_files(port: int) -> tuple[Path, Path]:
    """LiveRL's default paths of the configuration and the pid file of the proxy on ``port``."""
    return Path(f"/tmp/litellm_cc_{port}.yaml"), Path(f"/tmp/litellm_cc_{port}.pid")


def usual_log(port: int) -> Path:
    """LiveRL's default path of the log of the proxy on ``port``."""
    return usual_files(port)[0].with_suffix(".log")


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
    """LiteLLM's options in the environment of one of its worker processes; None if this is not such a process."""
    if not any(_WORKER in word for word in argv):
        return None
    try:
        options = decode_loose_json(env.get(_WORKER_CONFIG, ""))
    except (ValueError, RecursionError):
        return None
    return options if isinstance(options, dict) and options.get("config") else None


def option(argv: Sequence[str], *names: str) -> str | None:
    """The value of the last of these options, written as ``--name value`` or ``--name=value``; None without one."""
    chosen = None
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in names:
            chosen = value if equals else next(iter(argv[index + 1 : index + 2]), chosen)
    return chosen


def tell(
    held: PortHolders, envs: Mapping[int, Mapping[str, str]], port: int
) -> tuple[HolderProcess, tuple[str, ...], str | None]:
    """The main process of the proxy, the command line that starts the proxy again, and the configuration file in that
    command line. ``envs``: environments of the roots, by pid. Pure.

    Raises:
        NotLiteLLM: a root is not a LiteLLM process, or there are several.
    """
    if held.unseen:
        raise NotLiteLLM(
            f"port {port} is held by a process that is not visible from here (another user's, or in another container)"
        )
    leaders = [root for root in held.roots if is_litellm(root.argv)]
    orphans = {
        root: options
        for root in held.roots
        if (options := worker_config(root.argv, envs.get(root.pid, {}))) is not None
    }
    others = [root for root in held.roots if root not in leaders and root not in orphans]
    if others or len(leaders) > 1:
        who = "; ".join(words(root) for root in others or leaders)
        what = "which is not a LiteLLM process" if len(others) == 1 else "which are not LiteLLM processes"
        problem = what if others else "more than one LiteLLM process"
        raise NotLiteLLM(f"port {port} is held by {who}, {problem}")
    if leaders:
        leader = leaders[0]
        return leader, leader.argv, option(leader.argv, "--config", "-c")
    # The parent was killed and its workers still run: the options in their environment start the proxy again.
    orphan, options = next(iter(orphans.items()))
    config = str(options["config"])
    script = os.path.join(os.path.dirname(orphan.argv[0]), "litellm")
    argv = [orphan.argv[0], script, "--config", config, "--host", held.address, "--port", str(port)]
    return orphan, (*argv, "--num_workers", str(len(orphans))), config


def words(process: HolderProcess) -> str:
    """A process for messages: pid, user and command line, which is redacted and cut at 200 characters."""
    command = " ".join(redact.command(process.argv))[:200] or "[no command line]"
    return f"pid {process.pid} (user {procfs.user_of(process.pid)}, {command})"


def capture(held: PortHolders, port: int) -> tuple[HolderProcess, LiteLLMLaunch]:
    """The main process of the proxy that holds ``port``, and how it was started.

    Raises:
        NotLiteLLM: the port is held by something else, or the proxy cannot be started again as it was.
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
        raise NotLiteLLM(f"the configuration {config} of {words(process)} does not exist")
    if process.argv != argv and not os.path.isfile(argv[1]):
        raise NotLiteLLM(
            f"the parent of {words(process)} has exited, and {argv[1]}, which is needed to "
            "restart the proxy, does not exist"
        )
    if procfs.start_tick(process.pid) != process.tick:
        raise NotLiteLLM(f"pid {process.pid} has just exited; try again")
    return process, LiteLLMLaunch(argv, cwd, env, config, _log(process.pid))


def _log(pid: int) -> Path | None:
    """The regular file that is the process's stdout; None if there is none, or it was deleted."""
    try:
        path = Path(os.readlink(f"/proc/{pid}/fd/1"))
        opened, named = os.stat(f"/proc/{pid}/fd/1"), path.stat()
    except OSError:
        return None
    same = (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)
    return path if same and stat.S_ISREG(opened.st_mode) else None
