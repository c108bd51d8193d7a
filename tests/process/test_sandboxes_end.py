"""The end of what trials have in Docker, by the real backend: as a stage of stop, after a crash, before a new attempt,
while the run goes on. SIMULATED: the docker program is scripted (``kit.fake_docker``); with a real daemon:
``tests/docker``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.fake_docker import FakeDocker, begin
from kit.harbor_tasks import write_task
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.agents.harbor.owned import Ledger
from liverl.daemon.launch import StopRequest, start_backend
from liverl.exit_codes import ExitCode
from liverl.model import SandboxesEnd
from liverl.plan.spec import Settings
from liverl.sandboxes.sweep import sweep

SETTINGS = Settings(scan_interval=0.3, stuck_after=5.0, sweep_sandboxes=20.0)
GONE = SandboxesEnd(1, 1, 0, 1)
Ending = Callable[[ToyRun], ToyRun]


@pytest.fixture
def ending() -> Iterator[Ending]:
    runs: list[ToyRun] = []

    def keep(run: ToyRun) -> ToyRun:
        runs.append(run)
        return run

    yield keep
    for run in runs:
        run.end()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    found = FakeDocker(tmp_path / "docker")
    monkeypatch.setenv("PATH", found.env["PATH"])
    return found


@pytest.fixture
def run(tmp_path: Path, ending: Ending) -> ToyRun:
    return ending(make_run(tmp_path / "runs", [toy("a", "sleep")], settings=SETTINGS))


def words(run: ToyRun) -> list[str]:
    return [event.text for event in run.events() if event.kind == "sandboxes"]


def stopped(run: ToyRun) -> SandboxesEnd | None:
    run.command("stop", now=False)
    return run.result().sandboxes


def test_a_stop_ends_with_the_sandboxes(tmp_path: Path, run: ToyRun, fake: FakeDocker) -> None:
    run.start()
    run.until("a", "ready")
    begin(run.run_dir, tmp_path, ["t-1"])
    fake.sandbox(run.run_dir, "t-1")
    fake.stranger("t-2")
    assert stopped(run) == GONE
    result = run.result()
    assert (result.state, result.exit_code) == ("stopped", ExitCode.OK) and "Docker" not in result.summary
    assert fake.there == {"container": ["c-t-2"], "network": ["n-t-2"], "image": ["t-2__env-main"]}
    assert "removed from Docker what trials had left: 1 container, 1 network, 1 image" in words(run)


def test_a_run_without_sandboxes_asks_docker_nothing(run: ToyRun, fake: FakeDocker) -> None:
    fake.stranger("t-2")
    run.start()
    run.until("a", "ready")
    assert stopped(run) is None and fake.calls == [] and words(run) == []


def test_what_stays_is_told_and_the_exit_code_says_so(tmp_path: Path, run: ToyRun, fake: FakeDocker) -> None:
    run.start()
    run.until("a", "ready")
    begin(run.run_dir, tmp_path, ["t-1"])
    fake.sandbox(run.run_dir, "t-1")
    fake.set(refuse=["n-t-1"])
    end = stopped(run)
    assert end is not None and (end.containers, end.networks, end.images) == (1, 0, 1)
    (left,) = end.left
    assert (left.kind, left.name, left.trial) == (
        "network",
        "t-1__env_default",
        "t-1",
    ) and "in use" in left.why
    result = run.result()
    assert result.exit_code == ExitCode.LEFT_OVER and result.state == "stopped"
    assert "left in Docker: network t-1__env_default" in result.summary
    assert f"liverl-tui clean --sandboxes {run.run_dir}" in result.summary


@pytest.mark.parametrize("trouble", ["hangs", "absent"])
def test_what_nobody_can_ask_is_not_called_gone(
    tmp_path: Path, ending: Ending, fake: FakeDocker, trouble: str
) -> None:
    settings = Settings(scan_interval=0.3, stuck_after=5.0, sweep_sandboxes=1.0)
    run = ending(make_run(tmp_path / "runs", [toy("a", "sleep")], settings=settings))
    begin(run.run_dir, tmp_path, ["t-1"])
    fake.sandbox(run.run_dir, "t-1")
    if trouble == "hangs":
        fake.set(hang=600)
    else:
        (fake.bin / "docker").write_text(
            "#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n"
        )
    run.start()
    run.until("a", "ready")
    end = stopped(run)
    assert end is not None and end.left == ()
    (why,) = end.unknown
    assert "1 trial" in why and ("did not return" in why if trouble == "hangs" else "Cannot connect" in why)
    result = run.result()
    assert result.exit_code == ExitCode.LEFT_OVER
    assert "it is not known what trials have left" in result.summary


def test_trials_that_harbor_has_ended_need_no_daemon(tmp_path: Path, run: ToyRun, fake: FakeDocker) -> None:
    begin(run.run_dir, tmp_path, ["t-1"]).over("t-1")
    (fake.bin / "docker").write_text("#!/bin/sh\nexit 1\n")
    run.start()
    run.until("a", "ready")
    assert stopped(run) == SandboxesEnd() and run.result().exit_code == ExitCode.OK


def test_the_backend_after_a_crash_ends_them(tmp_path: Path, run: ToyRun, fake: FakeDocker) -> None:
    run.start()
    run.until("a", "ready")
    begin(run.run_dir, tmp_path, ["t-1"])
    fake.sandbox(run.run_dir, "t-1")
    run.kill_backend()
    run.backends.append(start_backend(run.run_dir, stop=StopRequest(False, "a test", False)))
    assert run.result().sandboxes == GONE and fake.there == {}


def test_a_stop_without_a_plan_ends_them(tmp_path: Path, run: ToyRun, fake: FakeDocker) -> None:
    run.start()
    run.until("a", "ready")
    begin(run.run_dir, tmp_path, ["t-1"])
    fake.sandbox(run.run_dir, "t-1")
    run.kill_backend()
    (run.run_dir / "plan.json").unlink()
    run.backends.append(start_backend(run.run_dir, stop=StopRequest(False, "a test", False)))
    assert run.result().sandboxes == GONE and fake.there == {}


def test_a_new_attempt_begins_without_those_of_the_last(
    tmp_path: Path, run: ToyRun, fake: FakeDocker
) -> None:
    run.start()
    run.until("a", "ready")
    stopped(run)
    begin(run.run_dir, tmp_path, ["t-1"])
    fake.sandbox(run.run_dir, "t-1")
    run.start(resume=True)
    run.until("a", "ready")
    assert fake.there == {}
    kinds = [
        event.kind for event in run.events() if event.data.get("attempt") == 2 or event.kind == "sandboxes"
    ]
    assert "removed from Docker what an earlier attempt had left: 1 container, 1 network, 1 image" in words(
        run
    )
    assert kinds.index("run_started") < kinds.index("sandboxes")


@pytest.mark.parametrize("how", ["runner", "worker"])
def test_a_dead_runner_or_worker_costs_no_sandbox_of_the_living(
    tmp_path: Path, run: ToyRun, fake: FakeDocker, how: str
) -> None:
    run.start()
    run.until("a", "ready")
    for trial in ("t-1", "t-2"):
        fake.sandbox(run.run_dir, trial)
    begin(run.run_dir, tmp_path / "living", ["t-2"], worker="worker-2")
    if how == "runner":
        begin(run.run_dir, tmp_path, ["t-1"]).lost("t-1")
    else:
        program = (
            "import sys; from pathlib import Path; from kit.fake_docker import begin\n"
            "begin(Path(sys.argv[1]), Path(sys.argv[2]), ['t-1'])"
        )
        path = ":".join(one for one in sys.path if one)
        words_ = [sys.executable, "-c", program, str(run.run_dir), str(tmp_path)]
        subprocess.run(words_, env={"PYTHONPATH": path, **fake.env}, check=True, timeout=60)
    wait_until(lambda: fake.there.get("image") == ["t-2__env-main"], what="the end of the dead one's")
    assert fake.there == {"container": ["c-t-2"], "network": ["n-t-2"], "image": ["t-2__env-main"]}
    assert run.service("a").state == "ready"
    assert stopped(run) == GONE and fake.there == {}


def test_kept_sandboxes_survive_and_are_listed(tmp_path: Path, run: ToyRun, fake: FakeDocker) -> None:
    begin(run.run_dir, tmp_path, ["t-1"], kept=True)
    fake.sandbox(run.run_dir, "t-1", kept=True)
    run.start()
    run.until("a", "ready")
    end = stopped(run)
    assert end is not None and not end.left and end.containers == 0
    assert {(one.kind, one.trial) for one in end.kept} == {
        ("container", "t-1"),
        ("network", "t-1"),
        ("image", "t-1"),
    }
    assert run.result().exit_code == ExitCode.OK and len(fake.there) == 3
    assert ["stop", "--time", "1", "c-t-1"] in fake.calls
    assert any(
        "1 container is kept in Docker" in text and "--sandboxes --kept" in text for text in words(run)
    )


def test_sweep_false_removes_nothing(tmp_path: Path, ending: Ending, fake: FakeDocker) -> None:
    run = ending(make_run(tmp_path / "runs", [toy("a", "sleep")], settings=Settings(scan_interval=0.3)))
    begin(run.run_dir, tmp_path, ["t-1"])
    fake.sandbox(run.run_dir, "t-1")
    run.start()
    run.until("a", "ready")
    assert stopped(run) is None and len(fake.there) == 3
    asked = {tuple(words[:2]) for words in fake.calls}
    assert asked <= {
        ("network", "ls"),
        ("ps", "--all"),
        ("container", "inspect"),
        ("events", "--since"),
        ("info", "--format"),
        ("network", "inspect"),
    }


def test_temporary_files_of_harbors_go_with_their_worker(tmp_path: Path, fake: FakeDocker) -> None:
    """Those of a worker that lives, and what no worker can have made, stay."""
    run = tmp_path / "run"
    made = (
        "import sys; from pathlib import Path; from kit.harbor_tasks import write_task\n"
        "from liverl.agents.harbor.owned import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]), sys.argv[2], 'attempt_001', {})\n"
        "print(ledger.make_temp() if sys.argv[3] == 'real' else setattr(ledger, '_temp', sys.argv[3]) or sys.argv[3])\n"
        "ledger.begin('t-' + sys.argv[2], Path(write_task(Path(sys.argv[1]), sys.argv[2], 'say')), kept=False)\n"
    )
    env = {**fake.env, "TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(path for path in sys.path if path)}
    (tmp_path / "precious").mkdir()
    temps = []
    for worker, what in (("dead", "real"), ("lying", str(tmp_path / "precious"))):
        words = [sys.executable, "-c", made, str(run), worker, what]
        temps.append(
            Path(subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout.strip())
        )
    ours = Ledger(run, "living", "attempt_001", {})
    temps.append(Path(ours.make_temp()))
    ours.begin("t-living", Path(write_task(run, "task", "say")), kept=False)
    for temp in temps:
        (temp / "deep").mkdir()
    assert sweep(run, 20.0, only={"t-dead"}) is not None and all(temp.exists() for temp in temps)
    end = sweep(run, 20.0)
    assert end is not None and not end.unknown
    assert [temp.exists() for temp in temps] == [False, True, True]
    ours.remove_temp()
    assert not temps[2].exists()
