"""What is to be watched, checked before anything is shown."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import msgspec

from liverl.exit_codes import ExitCode
from liverl.rundir.layout import RunDir
from liverl.watch.http import Refused, get

_ADDRESS = re.compile(r"(?:https?://)?(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]+):(?P<port>\d{1,5})/?")
ANSWER_S = 5.0  # seconds in which a server that the user named has to answer at the start


class WatchError(Exception):
    """The target cannot be watched; the text says why, and what to do. ``exit_code``: of the command."""

    def __init__(self, text: str, exit_code: int = ExitCode.NO_RUN) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Target(msgspec.Struct, frozen=True):
    """``folder``, ``logs``, ``trials``: directories, None if not given; ``ray``: host:port of Ray's dashboard;
    ``litellm_port``: of LiteLLM on this host. Without any of them, everything that this user runs here."""

    folder: Path | None = None
    ray: str | None = None
    litellm_port: int | None = None
    logs: Path | None = None
    trials: Path | None = None

    @property
    def named(self) -> bool:
        """Whether the user named anything."""
        return any(value is not None for value in msgspec.structs.astuple(self))

    @property
    def folders(self) -> tuple[Path, ...]:
        """The directories that are searched for logs, metrics and trials."""
        return tuple(path for path in (self.folder, self.logs) if path is not None)


def checked(target: Target) -> Target:
    """The target with absolute paths, after its servers have answered.

    Raises:
        WatchError: a directory does not exist or cannot be read, an address is malformed, or nothing answers there.
    """
    for option, path in (("DIR", target.folder), ("--logs", target.logs), ("--trials", target.trials)):
        if path is not None:
            _check_folder(option, path)
    if target.folder is not None and RunDir(target.folder).is_run():
        raise WatchError(
            f"{target.folder} is a run of liverl-tui; to show it: liverl-tui attach --readonly {target.folder}",
            ExitCode.USAGE,
        )
    ray = None if target.ray is None else _address(target.ray)
    if ray is not None:
        _check_ray(ray)
    if target.litellm_port is not None:
        _check_litellm(target.litellm_port)
    return Target(
        _absolute(target.folder), ray, target.litellm_port, _absolute(target.logs), _absolute(target.trials)
    )


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else Path(os.path.abspath(path))


def _check_folder(option: str, path: Path) -> None:
    try:
        os.scandir(path).close()
    except FileNotFoundError:
        raise WatchError(f"{option}: there is no folder {path}") from None
    except NotADirectoryError:
        raise WatchError(
            f"{option}: {path} is a file, not a folder; to read one log: liverl-tui doctor {shlex.quote(str(path))}",
            ExitCode.USAGE,
        ) from None
    except OSError as error:
        raise WatchError(f"{option}: cannot read {path}: {error.strerror}") from None


def _address(text: str) -> str:
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise WatchError(
            f"--ray: {text!r} is not HOST:PORT of Ray's dashboard, such as 127.0.0.1:8265", ExitCode.USAGE
        )
    return f"{match['host']}:{match['port']}"


def _check_ray(address: str) -> None:
    try:
        status, text = get(f"http://{address}/api/version", ANSWER_S)
    except Refused as error:
        raise WatchError(
            f"--ray: no Ray dashboard answers at {address}: {error}. Its address is in the output of `ray start`; the "
            "port of the GCS (6379) is another one"
        ) from None
    if status not in (401, 403) and "ray_version" not in text:
        raise WatchError(f"--ray: what answers at {address} is no Ray dashboard (GET /api/version: {status})")


def _check_litellm(port: int) -> None:
    try:
        get(f"http://127.0.0.1:{port}/health/liveliness", ANSWER_S)
    except Refused as error:
        raise WatchError(f"--litellm-port: no proxy answers on port {port} of this host: {error}") from None
