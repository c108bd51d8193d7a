"""Environments without a network: which wheels of a folder are missing."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from liverl.environments.errors import BuildError
from liverl.environments.index import from_wheels, uv_environment
from liverl.environments.interpreters import find
from liverl.environments.resolve import EnvPlan
from liverl.environments.uv import Progress, find_uv, run_installer
from liverl.util.plural import quantity

_AT_ONCE = 4  # processes of uv: each takes some 20 ms


def require_wheels(folder: Path) -> int:
    """How many packages a folder holds.

    Raises:
        BuildError: it is none, cannot be read, or has no package.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise BuildError(f"--wheels {folder}: {error.strerror}") from None
    packages = [name for name in names if name.endswith((".whl", ".tar.gz", ".zip"))]
    if packages:
        return len(packages)
    held = (
        f"it has {quantity(len(names), 'other file')}, such as {names[0]}" if names else "the folder is empty"
    )
    raise BuildError(
        f"--wheels {folder}: {held}; expected wheels (*.whl). On a host with a network, fill it with: "
        f"pip download -d {folder} PACKAGE..., for the Python and the platform of this host"
    )


async def missing(plan: EnvPlan, python: str | None, wheels: Path, progress: Progress) -> list[str]:
    """The packages of an environment's lock of which ``wheels`` has no file that fits this host, as ``NAME==VERSION``.
    ``python``: the interpreter or version that the environment asks for; None: ours.

    Raises:
        BuildError: uv cannot be run, or there is no lock, so that the list is not known.
    """
    if plan.lock is None:
        raise BuildError(
            f"environment {plan.name!r}: which wheels are missing is known only with a lock: {plan.why_no_lock}"
        )
    with tempfile.TemporaryDirectory(prefix="liverl-wheels-") as place:
        folder = Path(place)
        interpreter = str(await asyncio.to_thread(find, python) or python) if python else None
        uv, env = find_uv(), from_wheels(uv_environment(os.environ), wheels)
        venv = [*uv, "venv", "--no-project", *(["--python", interpreter] if interpreter else [])]
        await run_installer([*venv, str(folder / "venv")], env, folder, progress)
        asked = [*uv, "pip", "install", "--dry-run", "--no-deps", "--no-index", "--python"]
        asked += [str(folder / "venv" / "bin" / "python")]
        pins = plan.lock.pins
        if await _fits(asked, pins, env, folder):
            return []
        gate = asyncio.Semaphore(_AT_ONCE)

        async def fits(pin: str) -> bool:
            async with gate:
                progress(f"looking for {pin.partition(' ')[0]}", None)
                return await _fits(asked, [pin], env, folder)

        found = await asyncio.gather(*(fits(pin) for pin in pins))
        return [pin.partition(" ")[0] for pin, there in zip(pins, found, strict=True) if not there]


async def _fits(argv: Sequence[str], pins: Sequence[str], env: dict[str, str], folder: Path) -> bool:
    """Whether the folder has files of these packages. A pin for another platform asks for nothing.

    Raises:
        BuildError: uv failed for another reason than a package that is not there.
    """
    try:
        await run_installer([*argv, *pins], env, folder, lambda text, share: None)
    except BuildError as error:
        if "satisfy" in error.text:
            return False
        raise
    return True
