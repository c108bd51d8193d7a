"""Targets of notifications: their names in texts, and the request that reaches them, read at each delivery."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from liverl.notify.message import Message
from liverl.notify.sender import NETWORK
from liverl.plan.spec import NotifyTarget
from liverl.util.private_file import NotPrivate, read_private
from liverl.version import __version__

LARGEST = 64 << 10  # bytes of a file with an address
_ADDRESS = re.compile(r"https?://[!-~]+")
_MODULE = "apprise"
_PROGRAM = "from apprise.cli import main; main(prog_name='apprise')"  # it cannot be run as a module


class Unusable(Exception):
    """Why a target cannot be used, in words without an address."""


def identity(target: NotifyTarget) -> str:
    """The id of a target in the journal, independent of its place in the configuration: 12 hexadecimal digits."""
    return hashlib.sha256(msgspec.json.encode(target)).hexdigest()[:12]


def problem(target: NotifyTarget, env: Mapping[str, str]) -> str | None:
    """Why a target cannot be used now, as far as this can be checked without a delivery; None if nothing is wrong."""
    try:
        if target.kind == "command":
            program = target.words[0]
            if shutil.which(program, path=surroundings(env)["PATH"]) is None:
                return (
                    f"there is no program {program} in PATH"
                    if "/" not in program
                    else f"{program} is not an executable file"
                )
        elif target.kind == "webhook":
            address(Path(target.file))
        else:
            _configuration(Path(target.file))
    except Unusable as error:
        return str(error)
    return None


def surroundings(env: Mapping[str, str]) -> dict[str, str]:
    """All variables that a command gets: PATH and HOME."""
    home = env.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    return {"PATH": env.get("PATH") or os.defpath, "HOME": home}


def request(
    target: NotifyTarget, message: Message, env: Mapping[str, str], timeout: float, claim: Path
) -> tuple[bytes, dict[str, str]]:
    """The request to ``sender.py`` for one delivery, and the variables of that process.

    Raises:
        Unusable: the target's file cannot be used.
    """
    body = msgspec.json.encode(message).decode()
    found: dict[str, object] = {"path": str(claim), "timeout": timeout, "body": body}
    network = {name: env[name] for name in NETWORK if env.get(name)}
    if target.kind == "webhook":
        found |= {"url": address(Path(target.file)), "agent": f"liverl-tui/{__version__}"}
    elif target.kind == "command":
        found |= {"words": target.words, "env": surroundings(env)}
    else:
        _configuration(Path(target.file))
        argv = [sys.executable, "-I", "-c", _PROGRAM, "--config", target.file, "--input-format", "text"]
        found |= {"words": argv, "env": surroundings(env) | network, "body": f"{message.text}\n"}
    return msgspec.json.encode(found), surroundings(env) | network


def address(path: Path) -> str:
    """The address in a file.

    Raises:
        Unusable: the file cannot be read, others could read it, or it holds no address.
    """
    try:
        text = _secret(path).decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if not _ADDRESS.fullmatch(text):
        raise Unusable(f"{path} does not hold an address: expected one line, https://...")
    try:
        parts = urlsplit(text)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise Unusable(f"the address in {path} has no valid host or port")
    if "@" in parts.netloc:
        raise Unusable(
            f"the address in {path} has a user name, which is not supported: use a command as target"
        )
    return text


def _configuration(path: Path) -> None:
    if find_spec(_MODULE) is None:
        raise Unusable("apprise is not installed: pip install 'liverl-tui[notify]'")
    _secret(path)


def _secret(path: Path) -> bytes:
    """The content of a file that nobody but its owner, who is the caller, may read.

    Raises:
        Unusable: it cannot be read, others could read it, or it is another user's.
    """
    try:
        return read_private(path, LARGEST)
    except NotPrivate as error:
        raise Unusable(str(error)) from None
