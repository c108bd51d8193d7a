"""Two runs of one name in two directories do not know of each other."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from kit.runs import make_run, toy

from liverl.procs import procfs


def test_a_run_leaves_its_namesake_in_another_directory_alone(tmp_path: Path) -> None:
    one, other = (make_run(tmp_path / where, [toy("a", "sleep")]) for where in ("one", "other"))
    try:
        one.start()
        other.start()
        mine, theirs = one.until("a", "ready"), other.until("a", "ready")
        assert mine.pid is not None and theirs.pid is not None
        one.command("restart", service="a")
        assert set(one.service("a").members) & set(theirs.members) == set()
        os.kill(one.service("a").pid or 0, signal.SIGKILL)
        one.until("a", lambda s: s.state == "ready" and s.generation == 3)
        one.command("stop")
        assert one.result().exit_code == 0
        assert procfs.alive(theirs.pid, None)
        now = other.service("a")
        assert (now.pid, now.generation, now.state) == (theirs.pid, 1, "ready")
    finally:
        one.end()
        other.end()
