"""A launch script of LiveRL's shape (``tests/data/launch_script``) is run as it is: its steps, logs and trials are
found wherever it writes them. What it starts is simulated; the script, the backend and all files are real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.runs import ToyRun

from liverl.control.history import read_events
from liverl.model import Snapshot
from liverl.offline.run import OfflineRun
from liverl.rundir.layout import RunDir

SCRIPT = Path(__file__).parents[1] / "data" / "launch_script"
UPSTREAM = "repos/harbor-verl-train"
PATIENCE = 240.0  # seconds: three steps take seven, and a slow machine takes its time to start all
# A step of the script ends when the backend has seen it, not after a fixed time.
WAIT = """until grep -qs '"step":'$s "$LIVERL_RUN_DIR/events.jsonl"; do sleep 0.05; done"""


class Launch:
    """A copy of the script in a folder of its own, and the runs that are started with it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder / "mine", folder / "runs"
        shutil.copytree(SCRIPT, self.folder)
        self.inner = self.folder / UPSTREAM / "scripts" / "sync_1node_cc.sh"

    def edit(self, path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def quick(self) -> None:
        self.edit(self.inner, "sleep 2", WAIT)

    def before(self, command: str) -> None:
        self.edit(self.folder / "scripts" / "start.sh", "cd repos", f"{command}\ncd repos")

    def up(self, *words: str, name: str = "exp") -> subprocess.CompletedProcess[str]:
        """Start a run from a folder that is not the script's, and follow it to its end."""
        command = [sys.executable, "-m", "liverl_tui", "up", "--no-ui", "--yes", "--name", name]
        return subprocess.run(
            [*command, "--config", str(self.folder / "my.yaml"), *words],
            env={**os.environ, "LIVERL_RUN__RUN_ROOT": str(self.runs)},
            cwd=self.runs.parent,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def run(self, name: str = "exp") -> RunDir:
        return RunDir(self.runs / "liverl" / name)

    def report(self, name: str = "exp") -> str:
        return (self.run(name).path / "attempt_001" / "report.md").read_text()

    def ended(self, name: str = "exp") -> Snapshot:
        """The run as it ended, and as its files say it without a backend."""
        snapshot, offline = self.run(name).read_snapshot(), OfflineRun(self.run(name).path).poll()
        assert snapshot is not None and offline is not None
        assert offline.trials.steps == snapshot.trials.steps and offline.metrics == snapshot.metrics
        return snapshot


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    yield Launch(tmp_path)
    for record in (tmp_path / "runs").glob("*/*/backend.json"):
        ToyRun(record.parent).end()


def counted(snapshot: Snapshot) -> list[tuple[int, int, int]]:
    """(step, trials, trials without a tool call), oldest first."""
    return [(step.step, step.total, step.zero_tool_calls) for step in reversed(snapshot.trials.steps)]


ALL = [(1, 8, 8), (2, 8, 8), (3, 8, 8)]


def test_a_script_of_liverls_shape_runs_unchanged(launch: Launch) -> None:
    done = launch.up()
    assert done.returncode == 0, done.stdout + done.stderr
    snapshot, events = launch.ended(), list(read_events(launch.run().path))
    assert counted(snapshot) == ALL and (snapshot.step, snapshot.trials.total) == (3, 24)
    steps = [event for event in events if event.kind == "step"]
    assert [event.data["step"] for event in steps] == [1, 2, 3]
    assert all(0 <= event.data["after"] < event.data["by"] <= event.at + 0.1 for event in steps)
    log = launch.folder / UPSTREAM / "logs" / "exp"
    assert [event.text for event in events if event.kind == "outputs"] == [
        f"reading the log {log}.log as train-log",
        f"reading the log {log}_vllm.log as vllm-log",
    ]
    (alarm,) = [e for e in events if e.kind == "symptom" and e.data["id"] == "zero_tool_calls"][:1]
    assert "qwen3_coder" in alarm.text
    assert alarm.seq < next(e.seq for e in events if e.kind == "run_done"), "told while it trained"
    assert snapshot.result is not None and snapshot.result.summary.startswith(
        "done: 3 steps, mean reward 0.000"
    )
    assert (
        "agent: null trials: " + str(launch.run().trials)
        in (launch.run().logs(1) / "trainer.1.log").read_text()
    )
    assert "training.sp_size has no effect" in done.stderr


@pytest.mark.parametrize(
    ("prepare", "words", "root"),
    [
        ("unset HARBOR_TRIALS_DIR", (), f"{UPSTREAM}/harbor_trials/swe-lego-live-rl/exp"),
        (
            f"unset HARBOR_TRIALS_DIR; exec bash {UPSTREAM}/scripts/sync_1node_cc.sh",
            (),
            "harbor_trials/swe-lego-live-rl/exp",
        ),
        ("true", ("--set", "experiment.trials_dir=kept/trials"), "kept/trials"),
        (
            "export HARBOR_TRIALS_DIR=$PWD/$IN",
            ("--set", "trainer.env={HARBOR_TRIALS_DIR: x/y, IN: x/y}"),
            "x/y",
        ),
        (
            "export EXP_NAME=its-own HARBOR_TRIALS_DIR=$PWD/named",
            ("--set", "trainer.command=[bash, -e, scripts/start.sh]"),
            "named",
        ),
    ],
    ids=["repository", "folder", "trials_dir", "env", "printed"],
)
def test_trials_are_found_in_every_root(
    launch: Launch, prepare: str, words: tuple[str, ...], root: str
) -> None:
    launch.quick()
    launch.before(prepare)
    if root != "named":
        launch.edit(launch.inner, "trials: $HARBOR_TRIALS_DIR", "started")
    done = launch.up(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    snapshot = launch.ended()
    assert counted(snapshot) == ALL
    assert {os.path.dirname(head.path) for head in snapshot.trials.newest} == {"trials.2"}
    assert os.readlink(launch.run().path / "trials.2") == str(launch.folder / root)


def test_trials_of_several_hosts_are_added(launch: Launch) -> None:
    launch.quick()
    other = "harbor_trials/swe-lego-live-rl/exp-20260101-000030"
    launch.before("unset HARBOR_TRIALS_DIR")
    launch.edit(launch.inner, "for s in", f"mkdir -p {other}; for s in")
    launch.edit(launch.inner, "  echo 0 >", f'  cp -r "$d" {other}; echo 0 >')
    done = launch.up("--set", "infrastructure.nnodes=2", name="exp-20260101-000000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert launch.ended("exp-20260101-000000").trials.total == 48


def test_the_next_attempt_goes_on_in_the_same_log_and_folder(launch: Launch) -> None:
    """The script fails after step 2, and goes on behind the steps in its log when it is started again."""
    launch.quick()
    launch.before("unset HARBOR_TRIALS_DIR")
    launch.edit(
        launch.inner,
        "for s in 1 2 3",
        'begun=$(grep -c step: "$LOG" || true); for s in $(seq $((begun+1)) 3)',
    )
    launch.edit(launch.inner, WAIT, WAIT + '; [ "$s:${begun:-0}" != 2:0 ] || exit 4')
    assert launch.up().returncode == 1
    again = subprocess.run(
        [sys.executable, "-m", "liverl_tui", "up", "--no-ui", "--yes", "--resume", str(launch.run().path)],
        cwd=launch.runs.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert again.returncode == 0, again.stdout + again.stderr
    events = read_events(launch.run().path)
    assert [event.data["step"] for event in events if event.kind == "step"] == [1, 2, 3]
    assert counted(launch.ended()) == ALL and launch.run().more_trials().keys() == {2}


def test_what_an_earlier_run_has_left_is_not_this_runs(launch: Launch) -> None:
    """The script names its experiment by itself, and appends to nothing."""
    launch.quick()
    launch.before("unset HARBOR_TRIALS_DIR")
    assert launch.up(name="first").returncode == 0
    launch.edit(
        launch.folder / "scripts" / "start.sh", "unset", "export EXP_NAME=first; rm -f repos/*/logs/*; unset"
    )
    assert launch.up(name="second").returncode == 0
    snapshot = launch.ended("second")
    assert counted(snapshot) == ALL and os.readlink(launch.run("second").path / "trials.2").endswith("/first")


def test_the_cause_of_a_failure_is_found_in_the_log_that_the_script_writes(launch: Launch) -> None:
    launch.quick()
    traceback = "Traceback (most recent call last):\\nRuntimeError: CUDA error: no device\\n"
    launch.edit(
        launch.inner, "for s in", f"printf '{traceback}' >> $LOG; echo 'the trainer failed'; exit 3; for s in"
    )
    done = launch.up()
    assert done.returncode == 1
    result = launch.run().read_result()
    assert result is not None and result.cause is not None
    assert result.cause.evidence[0].text == "RuntimeError: CUDA error: no device"
    assert "RuntimeError: CUDA error: no device" in result.cause.text
    assert result.cause.log == "attempt_001/logs/train-log.1.log"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "trainer.cwd=nowhere"), "trainer.cwd: {folder}/nowhere does not exist"),
        (("--set", "trainer.cwd=my.yaml"), "trainer.cwd: {folder}/my.yaml is not a directory"),
        (("--set", "trainer.command=[bash, start.sh]"), "trainer.command: {folder}/start.sh does not exist"),
        (
            ("--set", "trainer.command=[bsh, scripts/start.sh]"),
            "trainer.command: there is no program bsh in PATH",
        ),
        (
            ("--set", "trainer.command=[./scripts/start.sh]"),
            "trainer.command: {folder}/./scripts/start.sh is not exec",
        ),
        (("--set", "trainer.env={HF_TOKEN: x}"), "trainer.env.HF_TOKEN: looks like a secret"),
        (("--set", "trainer.env={A-B: x}"), "trainer.env.A-B: not the name of an environment variable"),
        (
            ("--set", "trainer.env={LIVERL_RUN: x}"),
            "trainer.env.LIVERL_RUN: variables that begin with LIVERL_",
        ),
        (("--set", "trainer.env={A: [1]}"), "trainer.env.A: wrong value"),
        (("--set", "trainer.logs=logs"), "trainer.logs: wrong value"),
    ],
)
def test_bad_input_is_named_before_the_start(launch: Launch, words: tuple[str, ...], said: str) -> None:
    done = launch.up(*words)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert said.format(folder=launch.folder).replace("/./", "/") in done.stderr.replace("/./", "/"), (
        done.stderr
    )
    assert not launch.run().backend.exists()


FAILS = """python3 -c 'raise ValueError("rewards of group 17 are not finite")' 2>&1 | tee -a train.log"""


def test_a_failure_that_a_pipe_hides_fails_the_run(launch: Launch) -> None:
    """A shell returns the exit code of a pipe's last command: the script ends with 0."""
    launch.quick()
    launch.edit(launch.folder / "scripts" / "start.sh", "set -euo pipefail", "set -u")
    launch.edit(launch.inner, "set -euo pipefail", "set -u")
    launch.inner.write_text(launch.inner.read_text() + f"\n{FAILS}\n")
    failed = launch.up()
    assert failed.returncode == 1, failed.stdout + failed.stderr
    snapshot = launch.ended()
    assert snapshot.result is not None and snapshot.result.cause is not None
    assert snapshot.result.cause.text == (
        "it exited with 0, but its log ends with an error: ValueError: rewards of group 17 are not finite"
    )
    assert "set -o pipefail" in snapshot.result.cause.fix and "set -o pipefail" in launch.report()
    events = list(read_events(launch.run().path))
    kinds = [event.kind for event in events]
    assert "run_failed" in kinds and "run_done" not in kinds
    cause = snapshot.result.cause
    alert = next(symptom for symptom in snapshot.symptoms if symptom.id == "run_failed:trainer")
    assert alert.cause.startswith(f"trainer: {cause.text}") and alert.fix.startswith(cause.fix.rstrip("."))
    told = next(e for e in events if e.kind == "symptom" and e.data.get("id") == alert.id)
    assert told.service == "trainer" and told.data["fix"] == alert.fix
    assert cause.text in snapshot.result.summary and alert.title not in snapshot.result.summary
    assert "as told above" in launch.report()


def test_an_error_behind_the_last_step_does_not_fail_the_run(launch: Launch) -> None:
    """The script says how many steps there are, and all of them are done."""
    launch.quick()
    launch.edit(launch.inner, "for s in", 'echo "(TaskRunner pid=1) Total training steps: 3"; for s in')
    launch.inner.write_text(launch.inner.read_text() + f"\n{FAILS} || true\n")
    launch.edit(launch.inner, "set -euo pipefail", "set -u")
    done = launch.up()
    assert done.returncode == 0, done.stdout + done.stderr
