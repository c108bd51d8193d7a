"""Runs an installer (uv or pip), reads its progress, and stops it with all processes that it started."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from liverl.environments.errors import BuildError
from liverl.environments.index import Redactor
from liverl.util.plural import quantity

Progress = Callable[[str, float | None], None]

_TAIL = 12  # lines of uv's output that an error quotes
COMPILING = "compiling them"
_LOOK_S = 2.0  # seconds between two looks at what is compiled, of which uv says nothing until the end
_KILL_AFTER = 5.0  # seconds between TERM and KILL
# Shares of a build's time, measured for LiteLLM (117 packages): preparing is the download.
_RESOLVED, _PREPARED, _INSTALLED = 0.15, 0.8, 0.85


def find_uv() -> list[str]:
    """The command line prefix that runs uv. Raises BuildError when there is none."""
    if importlib.util.find_spec("uv") is not None:
        try:
            from uv import find_uv_bin

            return [os.fspath(find_uv_bin())]
        except (ImportError, FileNotFoundError):
            return [sys.executable, "-m", "uv"]
    path = shutil.which("uv")
    if path is None:
        raise BuildError(
            "uv not found: install it (pip install uv), or set venv_path to an existing environment"
        )
    return [path]


class UvProgress:
    """Turns uv's lines into (text, share of the whole (0..1) or None). Pure."""

    def __init__(self) -> None:
        self._total = 0
        self._done = 0

    def take(self, line: str) -> tuple[str, float | None] | None:
        """What ``line`` says about the progress, or None for a line that says nothing about it."""
        text = line.strip()
        if match := re.match(r"Resolved (\d+) packages?", text):
            self._total = int(match[1])
            return f"resolved {match[1]} packages", _RESOLVED
        if match := re.match(r"(Downloading|Building|Updating) (\S+)(.*)", text):
            size = match[3].strip()
            return f"{match[1].lower()} {match[2]}{' ' + size if size.startswith('(') else ''}", self._share()
        if match := re.match(r"(Downloaded|Built|Updated) (\S+)", text):
            self._done += 1
            return f"{match[1].lower()} {match[2]}", self._share()
        if match := re.match(r"Prepared (\d+) packages?", text):
            return f"prepared {match[1]} packages", _PREPARED
        if match := re.match(r"Installed (\d+) packages?", text):
            return f"installed {quantity(int(match[1]), 'package')}, {COMPILING}", _INSTALLED
        if match := re.match(r"Bytecode compiled (\d+) files?", text):
            return f"compiled {match[1]} files", 1.0
        return None

    def _share(self) -> float | None:
        """Only large packages are announced one by one, so this is a lower bound."""
        if not self._total:
            return None
        return _RESOLVED + (_PREPARED - _RESOLVED) * min(1.0, self._done / self._total)


class PipProgress:
    """The same for pip, which does not say beforehand how much there is. Pure."""

    def take(self, line: str) -> tuple[str, float | None] | None:
        """As in ``UvProgress``; the share is always None."""
        text = line.strip()
        if match := re.match(r"(Collecting|Downloading|Building wheel for) (\S+)(.*)", text):
            size = match[3].strip()
            name = match[2].rsplit("/", 1)[-1]
            return (
                f"{match[1].lower()} {name}{' ' + size if size.startswith('(') and size[1:2].isdigit() else ''}",
                None,
            )
        if text.startswith("Installing collected packages"):
            return f"installing {quantity(text.count(',') + 1, 'package')}", None
        return None


def compiled(folder: Path) -> tuple[int, int]:
    """How many Python files below ``folder`` are compiled, and how many there are."""
    done = total = 0
    for place, _, names in os.walk(folder):
        if place.endswith("__pycache__"):
            done += sum(name.endswith(".pyc") for name in names)
        else:
            total += sum(name.endswith(".py") for name in names)
    return min(done, total), total


async def _tell_compiled(folder: Path, progress: Progress) -> None:
    """Say every ``_LOOK_S`` seconds how far the compiling of an environment has come, until cancelled."""
    while True:
        done, total = await asyncio.to_thread(compiled, folder)
        if done:
            share = _INSTALLED + (1 - _INSTALLED) * done / total
            progress(f"compiled {done:,} of {quantity(total, 'file')}", min(0.99, share))
        await asyncio.sleep(_LOOK_S)


async def run_installer(
    argv: Sequence[str],
    env: dict[str, str],
    cwd: Path,
    progress: Progress,
    tool: Literal["uv", "pip"] = "uv",
    compiles: Path | None = None,
) -> None:
    """Run one command of uv or pip to its end. Raises BuildError with its last lines when it fails.

    A cancelled run leaves no process behind. ``compiles``: the directory below which uv compiles at the end.
    """
    redact = Redactor(env)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=env,
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=1 << 20,
        )
    except OSError as error:
        raise BuildError(f"cannot start {tool}: {error.strerror}") from None
    tail: deque[str] = deque(maxlen=_TAIL)
    looks: asyncio.Task[None] | None = None
    try:
        assert process.stdout is not None
        parser = UvProgress() if tool == "uv" else PipProgress()
        async for raw in process.stdout:
            line = redact(raw.decode("utf-8", "replace").rstrip())
            if line:
                tail.append(line)
            step = parser.take(line)
            if step is not None:
                progress(*step)
            if looks is not None and step is not None:
                looks.cancel()
            elif compiles is not None and step is not None and step[0].endswith(COMPILING):
                looks = asyncio.create_task(_tell_compiled(compiles, progress))
        code = await process.wait()
    except BaseException:
        await asyncio.shield(_end(process))
        raise
    finally:
        if looks is not None:
            looks.cancel()
    if code != 0:
        raise BuildError(_explain(argv, code, "\n".join(tail), tool), tuple(tail), tool)


def _explain(argv: Sequence[str], code: int, output: str, tool: str) -> str:
    lower = output.lower()
    if "no space left" in lower or "os error 28" in lower or "disk quota" in lower:
        return "the disk is full: free some space, or set LIVERL_CACHE_DIR and UV_CACHE_DIR to another disk"
    if "read-only file system" in lower or "permission denied" in lower:
        return "a cache folder is not writable: set LIVERL_CACHE_DIR and UV_CACHE_DIR to writable folders"
    unreachable = (
        "error sending request",
        "dns error",
        "failed to lookup",
        "failed to fetch",
        "connection refused",
        "failed to establish a new connection",
    )
    if any(sign in lower for sign in unreachable):
        return (
            "cannot reach the package index; to use another one, set UV_DEFAULT_INDEX, pip's index-url or the "
            "environment's index_url; to install nothing, set its venv_path"
        )
    if "hash mismatch" in lower or "do not match the hashes" in lower or "computed: " in lower:
        return (
            "a package does not have the hash that the lock names, and was not installed. If your package index has "
            "builds of its own, write a lock for it (liverl-tui envs --upgrade), or set the environment's lock: false"
        )
    unmet = ("no solution found", "not found in the package registry", "no matching distribution found")
    if any(sign in lower for sign in unmet) or "resolutionimpossible" in lower:
        words = "the package index has no versions that satisfy the requirements"
        locked = "-c" in argv or "--require-hashes" in argv
        return f"{words}, in the versions of the lock; lock: false leaves it aside" if locked else words
    if "no interpreter found" in lower or "no virtual environment or system python" in lower:
        return "the requested Python version is not installed on this machine"
    step = ("pip install" if tool == "uv" else "install") if "install" in argv else "venv"
    ending = f"exit {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
    return f"{tool} {step} failed ({ending})"


async def _end(process: asyncio.subprocess.Process) -> None:
    """End uv and the build processes of its session, and reap it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        if number is signal.SIGTERM:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILL_AFTER):
                    await process.wait()
    await process.wait()
