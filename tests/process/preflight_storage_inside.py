"""``check`` with one place on storage that hangs: ``python preflight_storage_inside.py CASE FOLDER``. Run by
test_preflight_storage.py. FUSE is real; its server is stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kit import checked_runs
from kit.cli import MAIN
from kit.inside import UNAVAILABLE
from kit.mounts import own_mounts
from kit.processes import stop_process
from kit.slow_files import slow_files

SECONDS = 120  # no check has more than 75
# Case -> topology, what is moved to the storage, and the key that names it.
CASES = {
    "model": ("managed", "models/Toy-1B", "model.model_path"),
    "data": ("in_process", "data/val.parquet", "data.val_index"),
    "kubeconfig": ("script", "kubeconfig", "k8s.kubeconfig"),
    "run": ("embedded", "", "run.run_root"),
    "config": ("embedded", "my.yaml", ""),
}


def main(case: str, folder: Path) -> None:
    topology, moved, key = CASES[case]
    try:
        own_mounts()
        place = slow_files(folder, folder / "disk")
        files = place.__enter__()
    except OSError:
        sys.exit(UNAVAILABLE)
    try:
        config = checked_runs.configured(folder, topology)
        target = folder / "disk" / "moved"
        if moved:
            shutil.move(folder / moved, target)
        sets = ["--set", f"{key}={target}"] if key else []
        argv = [*MAIN, "check", "--json", "--config", str(config if key else target), *sets]
        stop_process(files.process.pid)
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
        finally:
            os.kill(files.process.pid, signal.SIGCONT)
        if not key:
            assert done.returncode == 2 and "Traceback" not in done.stderr, done
            assert (
                f"{target}: no answer within 10 s from fuse.slow, mounted at {target.parent}" in done.stderr
            )
            return
        checks = [one for one in json.loads(done.stdout)["checks"] if one["id"] == "storage"]
        assert [one["status"] for one in checks] == ["fail"] and done.returncode == 3, done.stdout
        assert checks[0]["text"].startswith(
            f"fuse.slow, mounted at {target.parent}: no answer within 6 s for "
        )
        assert str(target) in checks[0]["text"] and checks[0]["fix"]
        assert ("the run's directory" if case == "run" else key) in checks[0]["text"]
    finally:
        place.__exit__(None, None, None)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
