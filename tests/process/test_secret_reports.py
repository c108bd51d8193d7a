"""What is written about an error of our own: the words of an exception can quote an address or a header."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.rundir.layout import RunDir
from liverl_tui.app.crash import report

SECRET = "sk-marked0123456789"
WORDS = f"cannot reach http://me:{SECRET}@127.0.0.1:9/ with Bearer {SECRET}"
BREAK = f"""
import liverl.daemon.sampler as sampler

async def broken(self):
    raise RuntimeError({WORDS!r})

assert hasattr(sampler.Sampler, "_look_at_host")
sampler.Sampler._look_at_host = broken
"""


def test_an_error_in_the_backend_is_reported_without_secrets(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(BREAK)
    run = ending(make_run(tmp_path / "run", [toy("a", "sleep")]))
    run.start(env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"})
    log, events = run.run_dir / "backend.log", run.run_dir / "events.jsonl"
    for file in (log, events):
        wait_until(
            lambda file=file: "cannot reach http" in file.read_text(), what=f"the error in {file.name}"
        )  # type: ignore[misc]
        assert SECRET not in file.read_text()
    assert "Traceback" in log.read_text()


def test_a_crash_of_the_interface_is_reported_without_secrets(tmp_path: Path) -> None:
    printed = report(RuntimeError(WORDS), RunDir(tmp_path), in_run=True)
    saved = (tmp_path / "interface-crash.log").read_text()
    assert "cannot reach http" in saved and SECRET not in saved + printed
    assert (tmp_path / "interface-crash.log").stat().st_mode & 0o777 == 0o600
