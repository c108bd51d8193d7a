"""Programs and libraries of npm, installed at their first use beside the environments of the components."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from liverl.environments import default_cache_dir


def installed(folder: str, *packages: str) -> Path:
    """``node_modules`` with ``packages``; ``folder`` names the place that they share. Skips where there is no npm.

    Raises:
        subprocess.CalledProcessError: npm cannot install them.
    """
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"npm is not installed: it installs {', '.join(packages)} for this test")
    place = default_cache_dir() / "npm" / folder
    modules = place / "node_modules"
    if not all((modules / package).is_dir() for package in packages):
        place.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--prefix", str(place), "--no-audit", "--no-fund", *packages]
        subprocess.run(command, cwd=place, check=True)
    return modules
