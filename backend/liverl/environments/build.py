"""Builds an environment once: under a lock, in a temporary folder beside its final path, published by one rename."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from liverl.environments.errors import BuildError
from liverl.environments.index import from_wheels, pip_environment, uv_environment, with_index
from liverl.environments.interpreters import find
from liverl.environments.local_copy import localized
from liverl.environments.lock import Lock, checks_hashes
from liverl.environments.locking import locked
from liverl.environments.resolve import MARKER, EnvPlan, resolve
from liverl.environments.uv import Progress, find_uv, run_installer
from liverl.plan.spec import EnvironmentSpec, InstallStep
from liverl.util.atomic_file import write_atomic
from liverl.util.plural import quantity
from liverl.util.remove_tree import remove_tree

PYTHON_STARTS_WITHIN = 60.0  # seconds; a cold network disk is slow


async def ensure(
    spec: EnvironmentSpec, cache_dir: Path, progress: Progress, *, wheels: Path | None = None
) -> Path:
    """The interpreter with which ``spec`` is started: built below ``cache_dir`` when it is not there yet, and copied to
    a local disk where ``spec.local_copy`` says so.

    A built one is used at once, without network and without writing. ``progress(text, share)`` is called in
    the event loop while something is built; ``share`` is 0..1 or None. ``wheels``: a folder with all packages, which
    are then taken from nowhere else. Raises BuildError.
    """
    plan = resolve(spec, cache_dir)
    if plan.kind == "own":
        return plan.python
    if plan.kind == "existing":
        await _check_python(plan.python, f"environment {plan.name!r} (venv_path)")
    else:
        await build(spec, cache_dir, progress, wheels=wheels)
    return await localized(plan.name, plan.python, spec.local_copy, progress)


async def build(
    spec: EnvironmentSpec, cache_dir: Path, progress: Progress, *, wheels: Path | None = None
) -> EnvPlan:
    """Install an environment that is described by requirements, unless it is there. As ``ensure``, without the copy."""
    plan = resolve(spec, cache_dir)
    if plan.published:
        await asyncio.to_thread(note_use, plan)
    else:
        try:
            async with locked(plan.name, _folder(plan), progress, "is building the same environment"):
                if not plan.published:  # whoever held the lock may have built it
                    await _build(spec, plan, progress, wheels)
        except OSError as error:
            where = error.filename or plan.folder
            raise BuildError(
                f"cannot build environment {plan.name!r}: {where}: {error.strerror}; "
                "set LIVERL_CACHE_DIR to a writable folder"
            ) from None
    return plan


def note_use(plan: EnvPlan) -> None:
    """Note that an environment is used now: ``envs gc`` removes what nobody has used for long. In a cache that is
    read-only nothing can be noted, and nothing can be removed from here."""
    if plan.folder is not None:
        with contextlib.suppress(OSError):
            os.utime(plan.folder / MARKER)


def _folder(plan: EnvPlan) -> Path:
    assert plan.folder is not None
    return plan.folder


async def _check_python(python: Path, what: str) -> None:
    if not python.exists():
        raise BuildError(f"{what}: {python} does not exist")
    try:
        process = await asyncio.create_subprocess_exec(
            str(python),
            "-c",
            "import sys; sys.exit(sys.version_info < (3, 10))",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise BuildError(f"{what}: cannot start {python}: {error.strerror}") from None
    try:
        async with asyncio.timeout(PYTHON_STARTS_WITHIN):
            _, output = await process.communicate()
    except TimeoutError:
        raise BuildError(f"{what}: {python} did not start within {PYTHON_STARTS_WITHIN:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
    if process.returncode:
        last = output.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it is older than Python 3.10"]
        raise BuildError(f"{what}: {python} does not work: {last[0]}")


async def _build(spec: EnvironmentSpec, plan: EnvPlan, progress: Progress, wheels: Path | None) -> None:
    """Build in a temporary folder and publish by rename. A failure or a cancellation leaves no files behind."""
    assert plan.folder is not None
    parent, prefix = plan.folder.parent, f".build-{plan.folder.name}-"
    for stale in parent.glob(f"{prefix}*"):  # of builders that were killed: we hold their lock
        await asyncio.to_thread(remove_tree, stale)
    draft = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        await _fill(spec, plan, draft, progress, wheels)
        if plan.folder.exists():  # its interpreter was removed, or it was never completed
            broken = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)) / "broken"
            plan.folder.rename(broken)
            await asyncio.to_thread(remove_tree, broken.parent)
        draft.rename(plan.folder)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(remove_tree, draft))
        raise


async def _fill(
    spec: EnvironmentSpec, plan: EnvPlan, draft: Path, progress: Progress, wheels: Path | None
) -> None:
    uv = find_uv()
    began = time.monotonic()
    python = spec.python or sys.executable
    if spec.python:  # uv looks for what we do not find, and says what it could not find
        python = str(await asyncio.to_thread(find, spec.python) or spec.python)
    first = InstallStep(plan.first, spec.first.installer, spec.first.index_url or spec.index_url)
    # The first step's requirements are given again, so that the second step keeps them installed.
    rest = InstallStep((*plan.first, *plan.requirements), spec.installer, spec.index_url)
    steps = [step for step in (first, rest) if step.requirements]
    try:
        progress(f"creating an environment for {plan.name}", 0.0)
        venv = ["venv", "--relocatable", "--allow-existing", "--no-project", "--python", python]
        if any(step.installer == "pip" for step in steps):
            venv.append("--seed")
        env = uv_environment(os.environ)
        await run_installer([*uv, *venv, str(draft)], env, draft, progress)
        interpreter = draft / "bin" / "python"
        hashes = plan.lock is not None and checks_hashes(plan.lock)
        progress(_how(plan, hashes), 0.02)
        for step in steps:
            progress(f"resolving {', '.join(step.requirements)}", 0.02)
            pinned = _locked(plan.lock, hashes, draft) if plan.lock is not None else ()
            await _install(step, spec.find_links, interpreter, uv, progress, pinned, wheels)
    except BuildError as error:
        raise BuildError(f"environment {plan.name!r}: {error.text}", error.output, error.tool) from None
    await _check_python(interpreter, f"environment {plan.name!r} (just built)")
    marker = {
        "name": plan.name,
        "key": plan.key,
        "requirements": [*plan.first, *plan.requirements],
        "lock": "none" if plan.lock is None else "hashes" if hashes else "versions",
        "built_at": round(time.time(), 1),
        "seconds": round(time.monotonic() - began, 1),
    }
    write_atomic(draft / MARKER, (json.dumps(marker, indent=1) + "\n").encode())


def _how(plan: EnvPlan, hashes: bool) -> str:
    """What decides about the packages, in one line."""
    if plan.lock is None:
        return f"only the versions in its requirements are pinned, and no hash is checked: {plan.why_no_lock}"
    count = f"{quantity(len(plan.lock.pins), 'package')} pinned by its lock"
    if hashes:
        return f"{count}, with hashes"
    return f"{count} without hashes: another package index is configured than the one that the lock was made from"


def _locked(lock: Lock, hashes: bool, draft: Path) -> tuple[str, ...]:
    """The options by which an installer takes what a lock names: with its hashes, from wheels alone, or by version."""
    if hashes:
        kept = draft / "liverl.lock"
        write_atomic(kept, lock.text.encode())
        return ("--require-hashes", "--only-binary", ":all:", "-r", str(kept))
    pins = draft / "liverl-pins.txt"
    write_atomic(pins, ("\n".join(lock.pins) + "\n").encode())
    return ("-c", str(pins))


async def _install(
    step: InstallStep,
    links: Sequence[str],
    interpreter: Path,
    uv: list[str],
    progress: Progress,
    pinned: Sequence[str],
    wheels: Path | None,
) -> None:
    """One step. Addresses of indexes are given in the environment: a command line can be read by others."""
    if step.installer == "uv":
        env = with_index(uv_environment(os.environ), step.index_url, links)
        # As pip does. Else the first start of Ray or LiteLLM compiles everything, in each of its processes at once,
        # and again at every start where PYTHONDONTWRITEBYTECODE is set: Ray's raylet then gives up on its agents.
        argv = [*uv, "pip", "install", "--compile-bytecode", "--python", str(interpreter)]
        argv += ["--no-index"] if env.get("UV_NO_INDEX") == "1" and wheels is None else []
    else:
        env = with_index(pip_environment(os.environ), step.index_url, links)
        argv = [str(interpreter), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        argv += ["--progress-bar", "off"]
    if wheels is not None:
        env = from_wheels(env, wheels)
        argv += ["--no-index"]
    # With hashes every package is in the lock, the requirements among them.
    asked = () if "--require-hashes" in pinned else ("--", *step.requirements)
    folder = interpreter.parent
    await run_installer([*argv, *pinned, *asked], env, folder, progress, step.installer, folder.parent)
