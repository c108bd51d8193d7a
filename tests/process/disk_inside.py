"""A run on a small disk that another program fills: ``unshare --mount python disk_inside.py FOLDER``, run by
test_number_drills.py."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kit.mounts import keep_mounts_in, mount
from kit.runs import make_run, toy
from kit.waiting import wait_until

MIB = 1 << 20
SIZE, RATE = 128, 2  # MiB, and MiB per second: full after a minute
FILL = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.write(bytes(1 << 18))
        time.sleep(0.125)
"""


def main(base: Path) -> None:
    os.environ["XDG_STATE_HOME"] = str(base / "state")
    keep_mounts_in()
    root = base / "disk"
    root.mkdir()
    mount("tmpfs", str(root), "tmpfs", 0, f"size={SIZE}m")
    run = make_run(root, [toy("a", "sleep")])
    filler = None
    try:
        run.start()
        run.until("a", "ready")
        began = time.time()
        filler = subprocess.Popen([sys.executable, "-c", FILL, str(run.run_dir / "leak.bin")])

        def told() -> tuple[str, tuple[str, ...], str] | None:
            found = next((s for s in run.snapshot().symptoms if s.id == "disk_low"), None)
            if found is None or "full in about" not in found.title:
                return None
            return found.severity, tuple(e.text for e in found.evidence), found.title

        severity, evidence, title = wait_until(told, what="the time until the disk is full") or ("", (), "")
        # Evidence: a steady rate, measured for half of the time that is left: a third of the whole minute.
        late = time.time() - began - SIZE / RATE / 3
        assert late < 10.0, late
        left = int(title.split("about ")[1].split()[0])
        truly = SIZE / RATE - (time.time() - began)
        assert abs(left - truly) < 12, (title, truly)
        assert severity == "critical", severity
        wait_until(lambda: "leak.bin" in str(run.snapshot().symptoms), what="the file that grows")
        print(title, evidence, f"{late:.1f} s late", flush=True)
    finally:
        if filler is not None:
            filler.kill()
            filler.wait()
        run.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
