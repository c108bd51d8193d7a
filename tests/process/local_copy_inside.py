"""Copies an environment from a slow mount: ``python local_copy_inside.py FOLDER``. Run by test_local_copy.py."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kit.mounts import own_mounts
from kit.slow_files import slow_files
from kit.venvs import says

from liverl.environments import ensure
from liverl.plan.spec import EnvironmentSpec
from liverl.util.file_systems import file_system

UNAVAILABLE = 77  # exit code: no mounts or no FUSE here


def main(folder: Path) -> None:
    """``folder``/real/venv is shown at ``folder``/mount/venv, where each request for the module waits 20 ms."""
    (folder / "real").rename(folder / "slow-source")
    try:
        own_mounts()
        mounted = slow_files(folder, folder / "mount")
        files = mounted.__enter__()
    except OSError:
        sys.exit(UNAVAILABLE)
    try:
        venv = files.place / "venv"
        for script in (venv / "bin").iterdir():  # installed where it is mounted
            if not script.is_symlink():
                script.write_text(script.read_text().replace("/real/", "/mount/"))
        found = file_system(venv)
        assert found is not None and found.network and found.kind == "fuse.slow", found
        files.slow({"lookup": 0.02, "open": 0.02, "read": 0.02}, "/heavy")
        argv = [sys.executable, "-m", "liverl_tui", "envs", "localize", str(venv)]
        argv += ["--to", str(folder / "local"), "--import", "heavy", "--json"]
        first, second = (json.loads(subprocess.check_output(argv))[0] for _ in range(2))
        print(first, second)
        assert first["new"] and not second["new"] and second["read_files"] == 0
        assert first["seconds_after"] < first["seconds_before"] / 2, first
        # A run takes the copy, which asks the mount for nothing once it is made.
        spec = EnvironmentSpec("venv", venv_path=str(venv), local_copy=str(folder / "local"))
        python = asyncio.run(ensure(spec, folder / "cache", lambda *_: None))
        assert python == Path(first["folder"], "bin", "python")
        files.end()
        assert says(python, "import heavy, mine; print(mine.WHO)") == "checkout"
        assert not os.path.exists(venv)
    finally:
        mounted.__exit__(None, None, None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
