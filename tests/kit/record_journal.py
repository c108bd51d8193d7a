"""Record ``tests/data/journal``: the journal of a run with restarts, a swap and a scaling, and what lived at its end.

PYTHONPATH=tests python tests/kit/record_journal.py
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from kit.runs import WEB, make_run, toy
from liverl.plan.spec import PortSpec, StopStage
from liverl.rundir.layout import RunDir

OUT = Path(__file__).parents[1] / "data" / "journal"


def main() -> None:
    """Run, kill the backend while a replaced generation drains, and write what it left."""
    with tempfile.TemporaryDirectory() as folder:
        door = toy(
            "door",
            argv=(
                sys.executable,
                "-c",
                f"import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n{WEB}",
            ),
            ports=(PortSpec("http", held=True),),
            drain=(StopStage("USR1", "leader", 600.0), StopStage("KILL", "tree", 5.0)),
        )
        run = make_run(
            Path(folder),
            [toy("a", "sleep"), door, toy("over", "exit", "0"), toy("work", "sleep", ends_run=True)],
            replica=toy("replica-{index}", "sleep", kind="replica"),
            replicas=2,
        )
        try:
            run.start()
            for name in ("a", "door", "work", "replica-0", "replica-1"):
                run.until(name, "ready")
            run.until("over", "stopped")
            run.command("restart", service="a")
            os.kill(run.service("work").pid or 0, 9)
            run.until("work", lambda s: s.state == "ready" and s.generation == 2)
            run.command("restart", service="door")
            run.until("door", lambda s: s.state == "ready" and s.generation == 2)
            snapshot = run.snapshot()
            run.kill_backend()
            living = {f"{s.name}.{s.generation}": s.pid for s in snapshot.services if s.pid}
            (old,) = snapshot.service("door").retiring_pids  # type: ignore[union-attr]
            living["door.1"] = old
            OUT.mkdir(exist_ok=True)
            (OUT / "journal.jsonl").write_bytes(RunDir(run.run_dir).journal.read_bytes())
            (OUT / "living.json").write_text(json.dumps(living, indent=1, sort_keys=True) + "\n")
        finally:
            run.end()


if __name__ == "__main__":
    main()
