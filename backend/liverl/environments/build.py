"""Builds an environment once: under a lock, in a temporary folder beside its final path, published by one rename."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from liverl.config.trusted_roots import ROOTS_VARIABLE, trusted_roots
from liverl.environments.errors import BuildError
from liverl.environments.index import pip_environment, uv_environment, with_index
from liverl.environments.interpreters import find
from liverl.environments.lock import Lock, checks_hashes
from liverl.environments.resolve import MARKER, EnvPlan, resolve
from liverl.environments.uv import Progress, find_uv, run_installer
from liverl.plan.spec import EnvironmentSpec, InstallStep
from liverl.rundir.path_facts import facts_of, present_caller
from liverl.rundir.trust import assess
from liverl.util.append import write_all
from liverl.util.atomic_file import write_atomic
from liverl.util.decode import decode_loose_json
from liverl.util.lock_file import open_lock
from liverl.util.modes import make_directory
from liverl.util.plural import quantity
from liverl.util.remove_tree import remove_tree

PYTHON_STARTS_WITHIN = 60.0  # seconds; a cold network disk is slow
_LOCK_POLL = 0.2  # seconds


async def ensure(spec: EnvironmentSpec, cache_dir: Path, progress: Progress) -> Path:
    """The interpreter of ``spec``, built below ``cache_dir`` when it is not there yet.

    A built one is used at once, without network and without writing. ``progress(text, share)`` is called in
    the event loop while something is built; ``share`` is 0..1 or None. Raises BuildError.
    """
    plan = resolve(spec, cache_dir)
    if plan.kind == "own":
        return plan.python
    if plan.kind == "existing":
        await _check_python(plan.python, f"environment {plan.name!r} (venv_path)")
        return plan.python
    if not plan.published:
        try:
            async with _lock(plan, progress):
                if not plan.published:  # whoever held the lock may have built it
                    await _build(spec, plan, progress)
        except OSError as error:
            where = error.filename or plan.folder
            raise BuildError(
                f"cannot build environment {plan.name!r}: {where}: {error.strerror}; "
                "set LIVERL_CACHE_DIR to a writable folder"
            ) from None
    return plan.python


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


@contextlib.asynccontextmanager
async def _lock(plan: EnvPlan, progress: Progress) -> AsyncIterator[None]:
    """Hold the build lock of an environment, over all runs with this cache. While another process holds it,
    ``progress`` says which."""
    assert plan.folder is not None
    make_directory(plan.folder.parent)
    path = plan.folder.with_name(f".{plan.folder.name}.lock")
    _require_own(plan.name, plan.folder.parent, path)
    fd = open_lock(path)
    try:
        announced = ""
        while not _try_lock(fd):
            holder = _holder(fd)
            if holder != announced:
                announced = holder
                progress(f"waiting for {holder}, which is building the same environment", None)
            await asyncio.sleep(_LOCK_POLL)
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": round(time.time(), 1)}
        os.ftruncate(fd, 0)
        write_all(fd, json.dumps(note).encode())
        yield
    finally:
        os.close(fd)  # which unlocks; the file stays, since removing it would let two builders in


def _require_own(name: str, folder: Path, lock: Path) -> None:
    """Check that nobody but the user and root could put files into ``folder``, which are executed later.

    Raises:
        BuildError: another user could.
    """
    try:
        verdict = assess(facts_of([folder, lock]), present_caller(), trusted_roots(os.environ))
    except ValueError as error:
        raise BuildError(f"environment {name!r}: {error}") from None
    if verdict.refused:
        found = verdict.refused[0]
        cure = f"; to mend it: {found.cure}" if found.cure else ""
        raise BuildError(
            f"environment {name!r} is not built in {folder}, since another user could change it: {found.path}: "
            f"{found.problem}{cure}. Set LIVERL_CACHE_DIR to a folder of yours, or trust this one: "
            f"{ROOTS_VARIABLE}=[DIR]"
        )


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(fd: int) -> str:
    try:
        note = decode_loose_json(os.pread(fd, 4096, 0))
        return f"process {int(note['pid'])} on {note['host']}"
    except (ValueError, KeyError, TypeError, OverflowError):
        return "another process"


async def _build(spec: EnvironmentSpec, plan: EnvPlan, progress: Progress) -> None:
    """Build in a temporary folder and publish by rename. A failure or a cancellation leaves no files behind."""
    assert plan.folder is not None
    parent, prefix = plan.folder.parent, f".build-{plan.folder.name}-"
    for stale in parent.glob(f"{prefix}*"):  # of builders that were killed: we hold their lock
        await asyncio.to_thread(remove_tree, stale)
    draft = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        await _fill(spec, plan, draft, progress)
        if plan.folder.exists():  # its interpreter was removed, or it was never completed
            broken = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)) / "broken"
            plan.folder.rename(broken)
            await asyncio.to_thread(remove_tree, broken.parent)
        draft.rename(plan.folder)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(remove_tree, draft))
        raise


async def _fill(spec: EnvironmentSpec, plan: EnvPlan, draft: Path, progress: Progress) -> None:
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
            locked = _locked(plan.lock, hashes, draft) if plan.lock is not None else ()
            await _install(step, spec.find_links, interpreter, uv, progress, locked)
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
    locked: Sequence[str],
) -> None:
    """One step. Addresses of indexes are given in the environment: a command line can be read by others."""
    if step.installer == "uv":
        env = with_index(uv_environment(os.environ), step.index_url, links)
        # As pip does. Else the first start of Ray or LiteLLM compiles everything, in each of its processes at once,
        # and again at every start where PYTHONDONTWRITEBYTECODE is set: Ray's raylet then gives up on its agents.
        argv = [*uv, "pip", "install", "--compile-bytecode", "--python", str(interpreter)]
        argv += ["--no-index"] if env.get("UV_NO_INDEX") == "1" else []
    else:
        env = with_index(pip_environment(os.environ), step.index_url, links)
        argv = [str(interpreter), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        argv += ["--progress-bar", "off"]
    # With hashes every package is in the lock, the requirements among them.
    asked = () if "--require-hashes" in locked else ("--", *step.requirements)
    await run_installer([*argv, *locked, *asked], env, interpreter.parent, progress, step.installer)
