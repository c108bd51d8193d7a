"""Writes a lock: uv resolves for every platform at once, and each supported one is tried before the lock is kept."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from liverl.environments.errors import BuildError
from liverl.environments.index import has_default_index, uv_environment
from liverl.environments.lock import FORMAT
from liverl.environments.resolve import normalise_requirement
from liverl.environments.uv import Progress, find_uv, run_installer
from liverl.util.atomic_file import write_atomic
from liverl.util.modes import make_directory
from liverl.util.regular_file import read_text

PYTHONS = (11, 12, 13, 14)  # minor versions of Python 3 that are tried
MACHINES = ("x86_64", "aarch64")
GLIBC = (2, 28)  # the oldest for which LiteLLM 1.106 has wheels: Debian 10, RHEL 8
_OPTION = re.compile(r"^--?(?!hash)[a-z-]+", re.MULTILINE)


async def write_lock(
    requirements: Sequence[str], path: Path, progress: Progress, *, oldest: int = PYTHONS[0]
) -> int:
    """Resolve ``requirements`` anew with the configured index and write ``path``; returns how many packages it names.

    ``oldest``: the lowest minor version of Python 3. Only wheels are named: building a package from source would run
    code that no hash covers. Raises BuildError; the old lock then stays.
    """
    asked = tuple(sorted({normalise_requirement(text) for text in requirements}))
    uv, env = find_uv(), uv_environment(os.environ)
    with tempfile.TemporaryDirectory(prefix="liverl-lock-") as place:
        folder = Path(place)
        source, result, pins = folder / "in.txt", folder / "out.txt", folder / "pins.txt"
        write_atomic(source, ("\n".join(asked) + "\n").encode())
        common = [*uv, "pip", "compile", "--no-annotate", "--no-header", "--quiet", "--only-binary", ":all:"]
        common += ["--no-index"] if env.get("UV_NO_INDEX") == "1" else []
        progress(f"resolving {', '.join(asked)} for all platforms", None)
        universal = ["--universal", "--generate-hashes", "--python-version", f"3.{oldest}"]
        await run_installer([*common, *universal, "-o", str(result), str(source)], env, folder, progress)
        text = read_text(result)
        if _OPTION.search(text) or "://" in text:
            raise BuildError("uv wrote the address of an index into the lock; it was not kept")
        packages = re.findall(r"^[A-Za-z0-9][^\s;\\]*==.*?(?= \\$)", text, re.MULTILINE)
        write_atomic(pins, ("\n".join(packages) + "\n").encode())
        good: dict[int, list[str]] = {}
        for minor in (minor for minor in PYTHONS if minor >= oldest):
            for machine in MACHINES:
                progress(f"checking that Python 3.{minor} on {machine} finds all wheels", None)
                wanted = ["--python-version", f"3.{minor}", "-c", str(pins), "-o", os.devnull]
                wanted += ["--python-platform", f"{machine}-manylinux_{GLIBC[0]}_{GLIBC[1]}"]
                if await _works([*common, *wanted, str(source)], env, folder):
                    good.setdefault(minor, []).append(machine)
    machines = [m for m in MACHINES if any(m in found for found in good.values())]
    pythons = [minor for minor, found in good.items() if found == machines]
    if not pythons:
        raise BuildError(
            "no version of Python finds wheels of all packages; set the environment's lock: false"
        )
    head = [
        FORMAT,
        f"# requirements: {' | '.join(asked)}",
        f"# python: {' '.join(f'3.{minor}' for minor in pythons)}",
        f"# machine: {' '.join(machines)}",
        f"# glibc: {GLIBC[0]}.{GLIBC[1]}",
        f"# index: {'default' if has_default_index(os.environ) else 'configured'}",
    ]
    make_directory(path.parent)
    write_atomic(path, ("\n".join(head) + "\n" + text).encode())
    return len(packages)


async def _works(argv: list[str], env: dict[str, str], folder: Path) -> bool:
    try:
        await run_installer(argv, env, folder, lambda text, share: None)
    except BuildError as error:
        if "satisfy" in error.text:
            return False
        raise
    return True
