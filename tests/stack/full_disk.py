"""A real run whose disk fills up: ``unshare --mount python full_disk.py FOLDER``, run by test_kills.py."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kit.real import metrics, real_run
from kit.waiting import wait_until

_spec = importlib.util.spec_from_file_location(
    "inside", Path(__file__).parents[1] / "process" / "faults_inside.py"
)
assert _spec is not None and _spec.loader is not None
inside = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(inside)


def main(base: Path) -> None:
    os.environ["XDG_STATE_HOME"] = str(base / "state")
    root = inside.disk(base / "disk", "128m")
    run = real_run(root, "training.total_steps=30", "training.save_freq=2")
    try:
        run.start()
        wait_until(lambda: (run.snapshot().step or 0) >= 3, what="step 3")
        filler = inside.fill(root)
        # The trainer cannot write its history: the run ends in order, and says why in room that was kept for it.
        result = run.result(90)
        filler.unlink()
        assert (result.state, result.exit_code) == ("failed", 1), result
        assert result.cause is not None and result.cause.service == "trainer", result
        assert "No space left on device" in result.cause.text, result
        inside.whole_lines(run)
        inside.no_traceback(run)
        wait_until(lambda: run.tagged() == {}, what="the last process")
        run.start(resume=True)
        wait_until(lambda: (run.snapshot().step or 0) >= 8, what="step 8")
        steps = [line["step"] for line in metrics(run.run_dir)]
        assert steps == list(range(1, len(steps) + 1)), steps
        run.command("stop")
        assert run.result(60).exit_code == 5
    finally:
        run.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
