"""A run on a small disk that is filled before its trainer starts: ``unshare --mount python second_look_inside.py
FOLDER``, run by test_second_look.py. Prints what the run told, as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kit.looked_at import gated, open_gate
from kit.mounts import keep_mounts_in, mount

MIB = 1 << 20


def main(base: Path) -> None:
    os.environ["XDG_STATE_HOME"] = str(base / "state")
    keep_mounts_in()
    root = base / "disk"
    root.mkdir()
    mount("tmpfs", str(root), "tmpfs", 0, f"size={128 * MIB}")
    run = gated(root)
    try:
        run.start()
        run.until("trainer", "waiting")
        with open(run.run_dir.parent / "stranger.bin", "wb") as file:  # 16 MiB stay free
            for _ in range(int(os.statvfs(root).f_bavail * os.statvfs(root).f_frsize / MIB) - 16):
                file.write(bytes(MIB))
        open_gate(run)
        result = run.result()
        trainers = list((run.run_dir / "attempt_001" / "logs").glob("trainer*"))
        cause = result.cause
        assert cause is not None
        print(json.dumps([result.state, result.exit_code, cause.service, cause.text, len(trainers)]))
    finally:
        run.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
