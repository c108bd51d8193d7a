"""The ledger at the end of runs, and ``liverl-tui archive``: real backends with toy services."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml
from kit.cli import MAIN, run_cli
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.config import load_config
from liverl.daemon.launch import create_run
from liverl.model import Result
from liverl.offline import archive as archives
from liverl.plan import make_plan
from liverl.plan.spec import RestartPolicy
from liverl.rundir.layout import RunDir
from liverl.rundir.ledger import Ledger

Make = Callable[..., ToyRun]
NEVER = RestartPolicy("never")
UNPLANNED = "a link to {}, which the run's plan does not name: a line in the script's output did"


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *services, **options: ending(make_run(tmp_path, services, **options))


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


def ended(make: Make, *argv: str) -> ToyRun:
    run = make(toy("trainer", *(argv or ("exit", "0")), kind="trainer", ends_run=True, restart=NEVER))
    run.start()
    run.result(60)
    return run


def test_a_run_that_ends_is_entered(make: Make, artifacts: Path) -> None:
    run = ended(make)
    ledger = Ledger(artifacts)
    (row,) = wait_until(lambda: _rows(ledger), what="its row")
    result = RunDir(run.run_dir).read_result()
    assert result is not None
    assert (row["id"], row["status"], row["archive"]) == (
        "run_001",
        {"done": "completed"}[result.state],
        None,
    )
    assert (row["run"], row["attempt"], row["run_dir"]) == ("tests/toy", 1, str(run.run_dir))
    assert row["steps"] == result.steps and row["exit_code"] == result.exit_code


def test_each_attempt_has_a_row_with_its_cause(make: Make, artifacts: Path) -> None:
    run = ended(make, "exit", "3")
    run.start(resume=True)
    wait_until(lambda: len(_rows(Ledger(artifacts))) == 2, what="two rows")
    first, second = _rows(Ledger(artifacts))
    assert [first["attempt"], second["attempt"]] == [1, 2]
    assert first["status"] == second["status"] == "failed"


def test_a_ledger_that_cannot_be_written_does_not_keep_the_run_from_ending(
    make: Make, artifacts: Path
) -> None:
    artifacts.mkdir()
    (artifacts / "index.yaml").write_text("no list\n")
    run = ended(make)
    assert run.result().state == "done"
    found = wait_until(lambda: [e for e in run.events() if e.kind == "ledger"], what="why there is no row")
    assert "expected a list of rows" in found[0].text and found[0].level == "warning"
    assert (artifacts / "index.yaml").read_text() == "no list\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")
def test_another_user_cannot_have_a_ledger_or_an_archive_written_elsewhere(
    make: Make, artifacts: Path, tmp_path: Path
) -> None:
    """In a run root that all can write; a second user was there first."""
    home = tmp_path / "home"
    home.mkdir()
    tmp_path.chmod(0o1777)
    plant = "umask 0; mkdir -m 777 artifacts artifacts/archives; ln -s ../home/.profile artifacts/index.yaml"
    subprocess.run(["/bin/sh", "-c", plant], cwd=tmp_path, user=64321, group=64321, check=True, timeout=60)
    run = ended(make)
    assert run.result().state == "done"
    found = wait_until(lambda: [e for e in run.events() if e.kind == "ledger"], what="why there is no row")
    assert found[0].level == "warning" and "belongs to uid 64321" in found[0].text
    refused = run_cli("archive", run.run_dir)
    assert (
        refused.returncode == 2 and "nothing was archived: another user could have changed" in refused.stderr
    )
    assert os.listdir(home) == [] and os.listdir(artifacts / "archives") == []
    own = run_cli("archive", run.run_dir, "--artifacts", tmp_path / "own")
    assert own.returncode == 0 and (tmp_path / "own/archives/run_001").is_dir()


def test_an_archive_holds_what_is_worth_keeping(make: Make, artifacts: Path) -> None:
    run = ended(make, "exit", "3")
    wait_until(lambda: _rows(Ledger(artifacts)), what="its row")
    (run.run_dir / "checkpoints/global_step_1").mkdir(parents=True)
    (run.run_dir / "checkpoints/global_step_1/model.pt").write_text("weights")
    (run.run_dir / "metrics.jsonl").write_text('{"step": 1, "data": {"critic/rewards/mean": 0.5}}\n')
    (run.run_dir / "attempt_001/metrics.verl.2.jsonl").write_text("{}\n")
    trial = run.run_dir / "trials/step_0001/task-1"
    trial.mkdir(parents=True)
    (trial / "litellm-trajectory.jsonl").write_text('{"session_id": "x"}\n')
    (trial / "sandbox").mkdir()
    (trial / "sandbox/large.bin").write_text("x")
    log = run.run_dir / "attempt_001/logs/trainer.1.log"
    log.write_text("old line\n" * 100_000 + "Authorization: Bearer sk-abcdefghijkl\nlast line\n")
    before = sorted(str(path) for path in run.run_dir.rglob("*"))
    done = run_cli("archive", run.run_dir)
    assert done.returncode == 0, done.stderr
    folder = artifacts / "archives/run_001"
    assert done.stdout == f"{folder}\n"
    kept = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {
        *(
            "metadata.yaml",
            "result.json",
            "report.md",
            "metrics/metrics.jsonl",
            "metrics/attempt_001/metrics.verl.2.jsonl",
            "logs/trainer.1.log",
        ),
        "trajectories/trials/step_0001/task-1/litellm-trajectory.jsonl",
    } <= kept
    assert not any("checkpoint" in name or "sandbox" in name for name in kept)
    tail = (folder / "logs/trainer.1.log").read_text()
    assert len(tail) <= archives.LOG_TAIL + 100 and tail.endswith("Bearer ***\nlast line\n")
    assert tail.startswith("[the first ") and tail.splitlines()[1] == "old line"
    metadata = yaml.safe_load((folder / "metadata.yaml").read_text())
    assert (metadata["id"], metadata["run"], metadata["status"]) == ("run_001", "tests/toy", "failed")
    assert (
        metadata["trials"] == {"total": 1, "finished": 0, "kept": 1, "steps": [1]}
        and metadata["left_out"] == []
    )
    (row,) = Ledger(artifacts).rows()
    assert row["archive"] == "artifacts/archives/run_001"
    assert sorted(str(path) for path in run.run_dir.rglob("*")) == before
    assert folder.stat().st_mode & 0o077 == 0

    marker = folder / "marker"
    marker.touch()
    again = run_cli("archive", run.run_dir)
    assert (again.returncode, again.stdout) == (0, f"{folder}\n") and "archived before" in again.stderr
    assert marker.exists() and os.listdir(artifacts / "archives") == ["run_001"]


def test_an_archive_has_nothing_that_a_link_in_a_trial_or_a_printed_line_names(
    make: Make, artifacts: Path, tmp_path: Path
) -> None:
    run = ended(make)
    private = tmp_path / "private"
    for name in ("file", "reward.txt", "step_0001/other/litellm-trajectory.jsonl"):
        (private / name).parent.mkdir(parents=True, exist_ok=True)
        (private / name).write_text('{"session_id": "private words"}\n')
    trial = run.run_dir / "trials/step_0001/task-1"
    (trial / "agent").mkdir(parents=True)
    (trial / "litellm-trajectory.jsonl").write_text('{"session_id": "x"}\n')
    (trial / "agent/trajectory.json").symlink_to(private / "file")
    (trial / "verifier").symlink_to(private)
    os.mkfifo(trial / "result.json")
    (run.run_dir / "trials.2").symlink_to(private)
    (run.run_dir / "attempt_001/logs/train-log.1.log").symlink_to(private / "file")
    done = run_cli("archive", run.run_dir)
    assert done.returncode == 0, done.stderr
    folder = artifacts / "archives/run_001"
    for path in folder.rglob("*"):
        assert path.is_dir() or b"private words" not in path.read_bytes(), path
    left_out = yaml.safe_load((folder / "metadata.yaml").read_text())["left_out"]
    assert {
        line.partition(": ")[0].removeprefix(f"{run.run_dir}/"): line.partition(": ")[2] for line in left_out
    } == {
        "trials/step_0001/task-1/agent/trajectory.json": "a symbolic link, which is not followed here",
        "trials/step_0001/task-1/verifier/reward.txt": "verifier is a symbolic link, which is not followed here",
        "trials/step_0001/task-1/result.json": "not a regular file but a FIFO",
        "trials.2/step_0001/other/litellm-trajectory.jsonl": UNPLANNED.format(private),
        "attempt_001/logs/train-log.1.log": UNPLANNED.format(private / "file"),
    }
    assert all(f"left out: {line}\n" in done.stderr for line in left_out)
    assert "trajectories/trials/step_0001/task-1/litellm-trajectory.jsonl" in {
        str(path.relative_to(folder)) for path in folder.rglob("*")
    }


def test_a_run_without_a_row_gets_one(make: Make, artifacts: Path, tmp_path: Path) -> None:
    run = ended(make)
    wait_until(lambda: _rows(Ledger(artifacts)), what="its row")
    own = tmp_path / "elsewhere"
    done = run_cli("archive", run.run_dir, "--artifacts", own)
    assert done.returncode == 0, done.stderr
    (row,) = Ledger(own).rows()
    assert (row["id"], row["archive"], row["status"]) == (
        "run_001",
        "elsewhere/archives/run_001",
        "completed",
    )
    assert Ledger(artifacts).rows()[0]["archive"] is None


def test_a_killed_backend_leaves_an_interrupted_run(make: Make, artifacts: Path) -> None:
    run = make(toy("trainer", "sleep", kind="trainer", ends_run=True, restart=NEVER))
    run.start()
    run.until("trainer", "ready")
    refused = run_cli("archive", run.run_dir)
    assert refused.returncode == 2 and "is live" in refused.stderr and not artifacts.exists()
    pids = list(run.tagged())
    run.kill_backend()
    assert "has died" in run_cli("archive", run.run_dir).stderr
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    assert run_cli("stop", "--now", "--run", run.run_dir).returncode in (0, 4, 5)
    done = run_cli("archive", run.run_dir)
    assert done.returncode == 0, done.stderr
    assert Ledger(artifacts).rows()[0]["status"] == "interrupted"


def test_nothing_is_ever_overwritten(make: Make, artifacts: Path) -> None:
    run = ended(make)
    wait_until(lambda: _rows(Ledger(artifacts)), what="its row")
    other = artifacts / "archives/run_001"
    other.mkdir(parents=True)
    (other / "metadata.yaml").write_text("run_dir: /another\nattempt: 1\n")
    done = run_cli("archive", run.run_dir)
    assert done.returncode == 2 and "nothing was overwritten" in done.stderr
    assert os.listdir(other) == ["metadata.yaml"] and os.listdir(artifacts / "archives") == ["run_001"]


def test_an_interrupted_archive_leaves_no_part(make: Make, artifacts: Path) -> None:
    """The command is killed while it copies; what it has left is no archive, and is removed by the next one."""
    run = ended(make)
    wait_until(lambda: _rows(Ledger(artifacts)), what="its row")
    code = (
        "import os, signal, sys\n"
        "from liverl.offline import archive\n"
        "def die(*_):\n"
        "    os.kill(os.getpid(), int(sys.argv.pop()))\n"
        "archive._metadata = die\n"
        "from liverl_tui.cli.main import run\n"
        "number = sys.argv.pop()\n"
        "arguments = sys.argv[1:]\n"
        "sys.argv.append(number)\n"
        "sys.exit(run(arguments))\n"
    )
    for number, left in ((signal.SIGKILL, 1), (signal.SIGINT, 0)):
        done = subprocess.run(
            [MAIN[0], "-c", code, "archive", str(run.run_dir), str(int(number))],
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.returncode in (-number, 130)
        names = os.listdir(artifacts / "archives")
        assert len(names) == left and all(name.startswith(".") for name in names)
        assert Ledger(artifacts).rows()[0]["archive"] is None
    assert run_cli("archive", run.run_dir).returncode == 0
    assert os.listdir(artifacts / "archives") == ["run_001"]


def test_a_command_that_was_killed_before_the_ledger_was_changed(make: Make, artifacts: Path) -> None:
    run = ended(make)
    wait_until(lambda: _rows(Ledger(artifacts)), what="its row")
    assert run_cli("archive", run.run_dir).returncode == 0
    index = artifacts / "index.yaml"
    index.write_text(index.read_text().replace("archive: artifacts/archives/run_001", "archive: null"))
    done = run_cli("archive", run.run_dir)
    assert done.returncode == 0 and "archived before" in done.stderr
    assert Ledger(artifacts).rows()[0]["archive"] == "artifacts/archives/run_001"


def test_errors(tmp_path: Path, make: Make, artifacts: Path) -> None:
    assert run_cli("archive", "/nowhere", "--run-root", tmp_path).returncode == 4
    none = run_cli("archive", "--run-root", tmp_path)
    assert none.returncode == 4 and "no run has ended here" in none.stderr
    run = ended(make)
    wait_until(lambda: _rows(Ledger(artifacts)), what="its row")
    assert run_cli("archive", "--run-root", tmp_path).stdout.endswith("run_001\n")
    (artifacts / "index.yaml").write_text("{")
    bad = run_cli("archive", run.run_dir)
    assert bad.returncode == 2 and "index.yaml" in bad.stderr and "not valid YAML" in bad.stderr
    file = tmp_path / "file"
    file.touch()
    refused = run_cli("archive", run.run_dir, "--artifacts", file / "x")
    assert refused.returncode == 1 and "Traceback" not in refused.stderr


def _rows(ledger: Ledger) -> list[dict[str, object]]:
    return ledger.rows()


def test_a_launch_script_and_its_commit_are_kept(tmp_path: Path) -> None:
    scripts = tmp_path / "repo/scripts"
    scripts.mkdir(parents=True)
    (tmp_path / "repo/.git").mkdir()
    (tmp_path / "repo/.git/HEAD").write_text(f"{'c' * 40}\n")
    (scripts / "launch.sh").write_text("#!/bin/sh\nexit 0\n")
    sets = [
        *("run.topology=verl", "trainer.kind=command", "run.engine=vllm", "model.model_path=org/model"),
        *("infrastructure.ngpus_per_node=2", "vllm.gen_tp=1", "training.sp_size=1"),
        f"trainer.command=[/bin/sh, {scripts}/launch.sh]",
    ]
    loaded = load_config(None, sets=sets, env={})
    run_dir = tmp_path / "runs/p/n"
    create_run(loaded, make_plan(loaded, run_dir), run_dir)
    ended_at = Result("stopped", 5, None, 0, 1.0, 2.0)
    (run_dir / "result.json").write_bytes(msgspec.json.encode(ended_at))
    done = run_cli("archive", run_dir)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs/artifacts/archives/run_001"
    assert (folder / "scripts/launch.sh").read_text() == "#!/bin/sh\nexit 0\n"
    assert yaml.safe_load((folder / "metadata.yaml").read_text())["repos"] == {str(scripts): "c" * 40}
