"""A run whose trials have real containers: its stop, and the crash of its backend, leave none. With a real daemon; the
services are toys, and the trials are begun as a worker and Harbor begin them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.docker_kit import Sandboxes, docker, of_project
from kit.runs import ToyRun, make_run, toy

from liverl.daemon.launch import StopRequest, start_backend
from liverl.exit_codes import ExitCode
from liverl.plan.spec import Settings

SETTINGS = Settings(scan_interval=0.3, stuck_after=5.0, sweep_sandboxes=30.0)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[list[ToyRun]]:
    made = [make_run(tmp_path / side, [toy("a", "sleep")], settings=SETTINGS) for side in ("a", "b")]
    yield made
    for run in made:
        run.end()


@pytest.mark.parametrize("how", ["stop", "stop --now", "kill -9 of the backend"])
def test_two_runs_side_by_side_each_end_only_their_own(runs: list[ToyRun], image: str, how: str) -> None:
    run, other = runs
    trials = [[f"t-{uuid.uuid4().hex[:8]}" for _ in range(2)] for _ in runs]
    for one, names in zip(runs, trials, strict=True):
        one.start()
        one.until("a", "ready")
        ours = Sandboxes(one.run_dir, image)
        for name in names:
            ours.up(name)
    stranger = docker("run", "-d", image, "sleep", "infinity").strip()
    try:
        if how.startswith("kill"):
            run.kill_backend()
            run.backends.append(start_backend(run.run_dir, stop=StopRequest(False, "a test", False)))
        else:
            run.command("stop", now="--now" in how)
        result = run.result()
        end = result.sandboxes
        assert end is not None and (end.containers, end.networks, end.images) == (2, 2, 2)
        assert result.exit_code == ExitCode.OK and not end.left and not any(map(of_project, trials[0]))
        assert all(of_project(name).keys() == {"container", "network", "image"} for name in trials[1])
        other.command("stop", now=False)
        assert other.result().exit_code == ExitCode.OK and not any(map(of_project, trials[1]))
        assert docker("inspect", "-f", "{{.State.Running}}", stranger).strip() == "true"
    finally:
        docker("rm", "-f", stranger)
