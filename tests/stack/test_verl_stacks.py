"""A real verl trainer that hangs: its reward function waits for ever for a lock. Its stacks, taken by py-spy from
verl's environment, say so in the alert, in the report and in what the doctor finds.

LIVERL_TEST_VERL_PYTHON names a Python with verl. The run takes four to eight minutes on two cores:
``pytest -m slow tests/stack/test_verl_stacks.py``.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from kit.verl_runs import NEEDS_VERL, Launch, nothing_lives, result_of, smoke_directory
from kit.waiting import wait_until

from liverl.control import blocking
from liverl.control.messages import ControlError
from liverl.model import Symptom
from liverl.offline.doctor.examine import examine
from liverl.rundir.layout import RunDir

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1800), NEEDS_VERL]
HANGS = 1300.0  # seconds until the alert: the start, a step, and three times as long as that
REWARD = """
import pathlib, threading

ATTEMPT = pathlib.Path({attempt!r})
LOCK = threading.Lock()
LOCK.acquire()


def wait_for_the_lock():
    LOCK.acquire()


def score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    if any(path.stat().st_size for path in ATTEMPT.glob("metrics.verl*.jsonl")):
        wait_for_the_lock()
    return len(solution_str) % 7 / 7
"""


def test_where_a_reward_function_hangs_is_in_alert_report_and_doctor(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    launch = Launch(tmp_path, smoke_directory(tmp_path_factory))
    run_dir = launch.run_dir("hung")
    reward = tmp_path / "reward.py"
    reward.write_text(REWARD.format(attempt=str(run_dir / "attempt_001")))
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"reward": {"function": f"{reward}:score"}, "agent": {"kind": "chat"}}))

    def stalled() -> Symptom | None:
        assert process.poll() is None, launch.output("hung").read_text()[-3000:]
        try:
            symptoms = blocking.snapshot(run_dir).symptoms
        except (ControlError, OSError):
            return None
        found = next((one for one in symptoms if one.id.startswith("trainer_stalled")), None)
        return found if found is not None and "stacks" in found.fix else None  # they may come a little later

    try:
        process = launch.up("hung", "training.total_steps=4", "proxy.request_timeout=120", config=config)
        alert = wait_until(stalled, HANGS, "the alert")
        assert alert is not None
        process.send_signal(signal.SIGTERM)
        process.wait(180)
    finally:
        launch.end()
    nothing_lives(run_dir)
    assert result_of(run_dir).state == "stopped"
    where = "wait_for_the_lock (reward.py:10) < score (reward.py:15)"
    assert where in alert.evidence[0].text, alert.evidence
    assert "in attempt_001/stacks; then" in alert.fix
    files = sorted((run_dir / "attempt_001/stacks").glob("trainer.1.stalled.*.txt"))
    assert 3 <= len(files) <= 20
    texts = [path.read_text() for path in files]
    assert all("# by: py-spy\n" in text and "# why: it makes no progress\n" in text for text in texts)
    assert any("ray::" in text and "TaskRunner" in text for text in texts), "the driver's are there too"
    report = RunDir(run_dir).report(1).read_text()
    assert "## Where it hung" in report
    assert "      wait_for_the_lock (reward.py:10)\n      score (reward.py:15)\n" in report
    hung = next(one for one in examine([run_dir]).verdict.symptoms if one.id == "hung")
    assert hung.title.endswith(" hung in wait_for_the_lock (reward.py:10)")
