"""A user who may start no process or thread: the limit is named, no traceback is shown, and nothing is left."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.cli import run_cli
from kit.runs import ToyRun, make_run, toy

from liverl.exit_codes import ExitCode

CAPS = "-all,+dac_read_search"  # the interpreter may lie where only root can read


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to act as another user"
)
def test_a_limit_of_processes_is_named(limit: int, ending: Callable[[ToyRun], ToyRun]) -> None:
    uid = 61_000 + os.getpid() % 1000  # of which nothing else runs
    folder = Path(tempfile.mkdtemp(prefix="liverl-limit-"))
    try:
        run = ending(make_run(folder, [toy("a", "sleep")]))
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, uid, uid)
        user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        user += [f"--inh-caps={CAPS}", f"--ambient-caps={CAPS}", "prlimit", f"--nproc={limit}:4096"]
        command = (*user, sys.executable, "-m", "liverl_tui.cli.main")
        place = {"HOME": str(folder), "XDG_STATE_HOME": str(folder)}
        refused = run_cli("up", "--detach", "--run", run.run_dir, command=command, **place)
        assert refused.returncode == ExitCode.PREFLIGHT, refused.stderr
        words = f"the limit of processes and threads is reached (ulimit -u is {limit})"
        assert words in refused.stderr and "Traceback" not in refused.stderr, refused.stderr
        assert not run.tagged()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
