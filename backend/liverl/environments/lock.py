"""Locks: every package of an environment by version and sha256, written once and checked at every build.

A lock is a requirements file of pip and uv with a few comments in front, which say what it is for. ``locks/NAME.lock``
comes with liverl-tui; ``liverl-tui envs --upgrade`` writes another one below the cache, which goes first. No lock names
an index or a folder: a hash holds wherever the file comes from.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from liverl.environments.index import has_default_index
from liverl.plan.spec import EnvironmentSpec
from liverl.util.late_pattern import late_pattern
from liverl.util.regular_file import read_regular

FORMAT = "# liverl lock 1"
SHIPPED = Path(__file__).parent / "locks"
MOST = 8 << 20  # bytes of a lock; that of LiteLLM has 250,000
_PYTHON = late_pattern(r"(?:>=)?3\.(\d+)")
_PIN = late_pattern(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)\s*(?:;\s*([^\\]*?)\s*)?\\?")
_HASH = late_pattern(r"\s+--hash=sha256:[0-9a-f]{64}\s*\\?")

Source = Literal["default", "configured"]


class LockError(ValueError):
    """A lock cannot be read; the text says which line, and what is wrong with it."""


class Lock(msgspec.Struct, frozen=True):
    """A lock that was read. ``requirements``: what it was made from. ``pythons``: minor versions of Python 3.
    ``index``: "default" if it was made from the public index alone. ``pins``: a line of pip for each package, without
    hashes. ``text``: the whole file; ``digest``: its sha256. ``own``: written by this user, below the cache."""

    path: Path
    requirements: tuple[str, ...]
    pythons: tuple[int, ...]
    machines: tuple[str, ...]
    glibc: tuple[int, int]
    index: Source
    pins: tuple[str, ...]
    text: str
    digest: str
    own: bool = False


def read(path: Path, *, own: bool = False) -> Lock:
    """The lock in a file. Raises OSError, LockError."""
    data = read_regular(path, MOST)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise LockError(f"{path}: not UTF-8") from None
    lines = text.splitlines()
    if not lines or lines[0] != FORMAT:
        raise LockError(f"{path}:1: found {lines[0][:60] if lines else 'nothing'!r}, expected {FORMAT!r}")
    head: dict[str, str] = {}
    pins: list[str] = []
    hashes = 1
    for number, line in enumerate(lines[1:], 2):
        if line.startswith("#"):
            key, _, value = line[1:].partition(":")
            head[key.strip()] = value.strip()
        elif pin := _PIN.fullmatch(line):
            if not hashes:
                break
            pins.append(f"{pin[1]}=={pin[2]}" + (f" ; {pin[3]}" if pin[3] else ""))
            hashes = 0
        elif pins and _HASH.fullmatch(line):
            hashes += 1
        elif line.strip():
            raise LockError(f"{path}:{number}: found {line[:60]!r}, expected NAME==VERSION or a sha256")
    if not pins or not hashes:
        raise LockError(f"{path}: {pins[-1] if pins else 'no package'} has no hash")
    try:
        major, minor = map(int, head["glibc"].split("."))
        return Lock(
            path=path,
            requirements=tuple(text.strip() for text in head["requirements"].split(" | ")),
            pythons=tuple(int(text.removeprefix("3.")) for text in head["python"].split()),
            machines=tuple(head["machine"].split()),
            glibc=(major, minor),
            index="default" if head["index"] == "default" else "configured",
            pins=tuple(pins),
            text=text,
            digest=hashlib.sha256(data).hexdigest(),
            own=own,
        )
    except (KeyError, ValueError) as error:
        raise LockError(f"{path}: its head is incomplete: {error}") from None


def own_path(name: str, cache_dir: Path) -> Path:
    """Where ``envs --upgrade`` writes the lock of an environment."""
    return cache_dir.expanduser().absolute() / "locks" / f"{name}.lock"


class Choice(msgspec.Struct, frozen=True):
    """The lock of an environment, or None and the reason in words."""

    lock: Lock | None
    why: str = ""


def choose(spec: EnvironmentSpec, requirements: Sequence[str], cache_dir: Path) -> Choice:
    """The lock of the environment ``spec``, whose normalised requirements are given. Reads at most two files."""
    if not spec.lock:
        return Choice(None, f"environments.{spec.name}.lock is false")
    if spec.first.requirements:
        return Choice(None, f"environments.{spec.name}.first installs packages before the others")
    if spec.index_url or spec.find_links:
        key = "index_url" if spec.index_url else "find_links"
        return Choice(None, f"environments.{spec.name}.{key} names another source of packages")
    reasons = []
    for path, own in ((own_path(spec.name, cache_dir), True), (SHIPPED / f"{spec.name}.lock", False)):
        try:
            lock = read(path, own=own)
        except FileNotFoundError:
            continue
        except (OSError, LockError) as error:
            reasons.append(f"its lock cannot be used: {error}")
            continue
        why = unfit(lock, requirements, spec.python)
        if not why:
            return Choice(lock)
        reasons.append(why)
    return Choice(None, reasons[0] if reasons else "no lock is shipped for it")


def unfit(lock: Lock, requirements: Sequence[str], python: str | None) -> str:
    """Why a lock is not for these requirements on this machine; "" if it is."""
    if tuple(requirements) != lock.requirements:
        return f"its lock is for other requirements: {', '.join(lock.requirements)}"
    minor = _minor(python)
    if minor not in lock.pythons:
        found = f"Python 3.{minor}" if minor is not None else f"Python {python!r}"
        return f"its lock is not for {found}, only for 3.{min(lock.pythons)} to 3.{max(lock.pythons)}"
    machine, libc = platform.machine(), glibc()
    if sys.platform != "linux" or machine not in lock.machines or libc is None or libc < lock.glibc:
        found = f"glibc {libc[0]}.{libc[1]}" if libc else "a libc other than glibc"
        wanted = f"glibc {lock.glibc[0]}.{lock.glibc[1]}"
        return (
            f"its lock is not for {machine} with {found}, only for {', '.join(lock.machines)} with {wanted}"
        )
    return ""


def glibc() -> tuple[int, int] | None:
    """The version of this interpreter's glibc; None with another libc."""
    name, version = platform.libc_ver()
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if name == "glibc" and match else None


def _minor(python: str | None) -> int | None:
    if python is None:
        return sys.version_info.minor
    match = _PYTHON.fullmatch(python.replace(" ", ""))
    return int(match[1]) if match else None


def checks_hashes(lock: Lock, env: Mapping[str, str] = os.environ) -> bool:
    """Whether the index for which pip and uv are configured has the files that the lock names: another one may have
    builds of its own under the same versions."""
    return lock.index == "configured" or has_default_index(env)
