"""``trials`` on a live run and after its end, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.cli import MAIN, run_cli
from kit.runs import ToyRun, make_run, toy
from kit.trial_folders import FILE, call, lines
from kit.waiting import wait_until

from liverl.plan.spec import RestartPolicy


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ToyRun]:
    never = RestartPolicy(mode="never")
    made = make_run(tmp_path, [toy("trainer", "sleep", kind="trainer", ends_run=True, restart=never)])
    try:
        made.start()
        made.until("trainer", "ready")
        yield made
    finally:
        made.end()


def put(run: ToyRun, name: str, *, ended: bool, **result: Any) -> None:
    folder = run.run_dir / "trials" / "step_0001" / name
    folder.mkdir(parents=True, exist_ok=True)
    now = time.time()
    (folder / FILE).write_text(lines(call(request_time=now, duration_ms=500, calls=1)))
    if ended:
        told = {"started_at": now, "finished_at": now + 10, "ended_by": "submit", **result}
        (folder / "new").write_text(json.dumps(told))
        os.rename(folder / "new", folder / "result.json")


def test_trials_of_a_live_run_and_of_one_that_has_ended(run: ToyRun) -> None:
    rewards = {"verifier_result": {"rewards": {"reward": 1, "style": 0.5}}}
    put(run, "one-0a1b2c", ended=True, **rewards)
    put(run, "two-0a1b2c", ended=False)
    wait_until(lambda: run.snapshot().trials.total == 2, what="two trials")
    which = ("--run", run.run_dir)
    told = json.loads(run_cli("trials", "ls", "--json", *which).stdout)
    assert (told["live"], told["step"], told["total"], told["matched"]) == (True, None, 2, 2)
    one = next(each for each in told["trials"] if each["name"] == "one-0a1b2c")
    assert one["rewards"] == {"reward": 1.0, "style": 0.5} and one["model_seconds"] == 0.5
    assert one["phases"] == {"agent": 10.0} and one["spent_on"] == "tool"
    listed = run_cli("trials", "ls", "--state", "running", *which)
    assert listed.returncode == 0, listed.stderr
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["NAME", "two-0a1b2c"]
    assert listed.stderr == "1 of 1 matching trial of the run (2 searched)\n"
    assert run_cli("trials", "ls", "-n", "1", *which).stderr == "1 of 2 trials of the run; -n 2 shows all\n"
    assert (
        run_cli("trials", "ls", "--task", "none", *which).stderr
        == "no trial of the run matches (2 searched)\n"
    )
    # From now on a third command prints what ends.
    tail = subprocess.Popen(
        [*MAIN, "trials", "tail", "--json", *map(str, which)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["name"] == "one-0a1b2c"
        put(run, "two-0a1b2c", ended=True)
        assert json.loads(tail.stdout.readline())["name"] == "two-0a1b2c"
        put(run, "cut-0a1b2c", ended=False)
        wait_until(lambda: run.snapshot().trials.total == 3, what="three trials")
        run.command("stop")
        last = json.loads(tail.stdout.readline())
        assert (last["name"], last["state"]) == ("cut-0a1b2c", "cut_off")
        assert tail.stdout.read() == "" and tail.wait(60) == 0
    finally:
        tail.kill()
        tail.wait()
    run.result()
    shown = run_cli("trials", "show", "cut-0a1b2c", *which)
    assert shown.returncode == 0 and "state:      cut off\n" in shown.stdout
    steps = run_cli("trials", "steps", *which).stdout
    assert steps.startswith(
        "step 1: 2 of 3 trials finished, 1 cut off, mean reward 1.000\n  ended by: submitted 2, cut off 1\n"
    )
    again = run_cli("trials", "tail", "-n", "9", *which)
    names = sorted(line.split()[0] for line in again.stdout.splitlines())
    assert names == ["NAME", "cut-0a1b2c", "one-0a1b2c", "two-0a1b2c"]


MISTAKES = [
    (("show", "on-0a1b2c"), 4, "has no trial 'on-0a1b2c': did you mean one-0a1b2c?"),
    (("ls", "--step", "9"), 4, "step 9 of run"),
    (("steps", "--step", "9"), 4, "there are trials of step 1"),
    (("ls", "--flag", "zero-tool"), 2, "did you mean zero_tool_calls?"),
    (("ls", "--flag", "x"), 2, "no flag 'x': one of zero_tool_calls, not_recorded, failed_turns"),
    (("ls", "--step", "-1"), 2, "--step"),
    (("lst",), 2, "trials has no 'lst': did you mean ls?"),
    (("show",), 2, "TRIAL"),
]


def test_mistakes_are_named(run: ToyRun) -> None:
    put(run, "one-0a1b2c", ended=True)
    wait_until(lambda: run.snapshot().trials.total == 1, what="a trial")
    for words, code, said in MISTAKES:
        which = () if words == ("lst",) else ("--run", run.run_dir)
        done = run_cli("trials", *words, *which)
        assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert done.stdout == "", words
