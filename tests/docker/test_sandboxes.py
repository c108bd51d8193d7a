"""What a run's trials create in Docker is the run's, and a sweep removes exactly that. With a real daemon."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.docker_kit import Sandboxes, docker, of_project

from liverl.agents.harbor.owned import identity
from liverl.sandboxes.bridge import bridge_gateway, is_here
from liverl.sandboxes.sweep import look, lost_trials, sweep

MORE = (
    "services: {db: {image: IMAGE, command: [sleep, infinity], volumes: ['data:/d']}}\nvolumes: {data: {}}\n"
)


def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def stranger(image: str) -> Iterator[Callable[[], bool]]:
    """A container, a network and an image of somebody else's; tells whether they are untouched."""
    mark = f"stranger-{uuid.uuid4().hex[:8]}"
    docker("network", "create", mark)
    docker("tag", image, f"{mark}-main")
    labels = ["--label", "liverl.run-id=" + "0" * 32, "--label", "com.docker.compose.project=other__env"]
    docker("run", "-d", "--name", mark, "--network", mark, *labels, image, "sleep", "infinity")

    def lives() -> bool:
        running = docker("inspect", "-f", "{{.State.Running}}", mark, check=False).strip()
        networks = docker("network", "ls", "-q", "--filter", f"name={mark}").split()
        return running == "true" and bool(networks) and bool(docker("images", "-q", f"{mark}-main").split())

    yield lives
    docker("rm", "-f", mark, check=False)
    docker("network", "rm", mark, check=False)
    docker("image", "rm", f"{mark}-main", check=False)


def test_everything_of_a_trial_has_the_labels(tmp_path: Path, image: str) -> None:
    ours, trial = Sandboxes(tmp_path / "run", image), name()
    ours.up(trial, extra=MORE.replace("IMAGE", image))
    try:
        found = of_project(trial)
        assert {kind: len(ids) for kind, ids in found.items()} == {
            "container": 2,
            "network": 1,
            "volume": 1,
            "image": 1,
        }
        for kind in ("container", "network", "volume"):
            for one in json.loads(docker(kind, "inspect", *found[kind])):
                labels = one["Config"]["Labels"] if kind == "container" else one["Labels"]
                assert labels["liverl.run-id"] == identity(ours.run_dir) and labels["liverl.trial"] == trial
                assert {"liverl.attempt", "liverl.user", "liverl.host"} < labels.keys()
    finally:
        end = sweep(ours.run_dir, 30)
    assert end is not None and (end.containers, end.networks, end.volumes, end.images) == (2, 1, 1, 1)
    assert end.left == () and end.unknown == () and of_project(trial) == {}


def test_the_worker_is_killed_in_mid_trial(tmp_path: Path, image: str, stranger: Callable[[], bool]) -> None:
    """What begins and holds the trials dies by SIGKILL, and the program of Compose with it."""
    names = [name(), name()]
    program = (
        "import sys, signal; from pathlib import Path; from kit.docker_kit import Sandboxes\n"
        "ours = Sandboxes(Path(sys.argv[1]), sys.argv[2])\n"
        "[ours.up(trial) for trial in sys.argv[3:]]\n"
        "print('up', flush=True); signal.pause()"
    )

    run = tmp_path / "run"
    words = [sys.executable, "-c", program, str(run), image, *names]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=_paths()) as worker:
        assert worker.stdout is not None and worker.stdout.readline() == "up\n"
        assert lost_trials(run) == frozenset()
        worker.kill()
    assert lost_trials(run) == frozenset(names)
    assert all(of_project(one).keys() == {"container", "network", "image"} for one in names)
    before = look(run)
    assert before is not None and len(before.left) == 6
    end = sweep(run, 30)
    assert end is not None and (end.containers, end.networks, end.images) == (2, 2, 2)
    assert not end.left and not any(map(of_project, names)) and stranger()


def test_compose_is_killed_while_it_builds_and_starts(tmp_path: Path, image: str) -> None:
    ours, trial = Sandboxes(tmp_path / "run", image), name()
    with subprocess.Popen(["docker", *ours.files(trial), "up", "-d"], stderr=subprocess.DEVNULL) as compose:
        while not of_project(trial) and compose.poll() is None:
            pass
        compose.kill()
    end = sweep(ours.run_dir, 30)
    assert end is not None and not end.left and of_project(trial) == {}


def test_two_runs_of_one_name_sweep_only_their_own(
    tmp_path: Path, image: str, stranger: Callable[[], bool]
) -> None:
    one, other = Sandboxes(tmp_path / "a" / "run", image), Sandboxes(tmp_path / "b" / "run", image)
    mine, theirs = name(), name()
    one.up(mine)
    other.up(theirs)
    try:
        end = sweep(one.run_dir, 30)
        assert end is not None and (end.containers, end.networks, end.images) == (1, 1, 1)
        assert of_project(mine) == {} and of_project(theirs).keys() == {"container", "network", "image"}
        assert stranger()
    finally:
        sweep(other.run_dir, 30)
    assert of_project(theirs) == {} and stranger()


def test_only_the_trials_that_are_named(tmp_path: Path, image: str) -> None:
    ours, lost, living = Sandboxes(tmp_path / "run", image), name(), name()
    ours.up(lost)
    ours.up(living)
    try:
        ours.ledger.lost(lost)
        assert lost_trials(ours.run_dir) == {lost}
        sweep(ours.run_dir, 30, only={lost})
        assert of_project(lost) == {} and of_project(living).keys() == {"container", "network", "image"}
    finally:
        sweep(ours.run_dir, 30)
    assert of_project(living) == {}


def test_what_is_kept_is_stopped_and_goes_on_request(tmp_path: Path, image: str) -> None:
    ours, kept, other = Sandboxes(tmp_path / "run", image), name(), name()
    ours.up(kept, kept=True)
    ours.up(other)
    end = sweep(ours.run_dir, 30)
    assert end is not None and (end.containers, end.networks, end.images) == (1, 1, 1) and not end.left
    assert {one.kind for one in end.kept} == {"container", "network", "image"}
    assert {one.trial for one in end.kept} == {kept}
    (container,) = of_project(kept)["container"]
    assert docker("inspect", "-f", "{{.State.Running}}", container).strip() == "false"
    end = sweep(ours.run_dir, 30, kept=True)
    assert end is not None and end.containers == 1 and not end.kept and of_project(kept) == {}


def test_without_labels_the_exact_project_counts(tmp_path: Path, image: str) -> None:
    """A container that Compose made without our overlay, beside one whose project only begins like it."""
    ours, trial = Sandboxes(tmp_path / "run", image), name()
    words = ours.files(trial)
    plain = words[: words.index("-f")] + ["-f", str(ours.run_dir / "base.json")]
    near = [word if word != f"{trial}__env" else f"{trial}__env2" for word in plain]
    docker(*plain, "up", "-d", "--wait")
    docker(*near, "up", "-d", "--wait")
    try:
        end = sweep(ours.run_dir, 30)
        assert end is not None and (end.containers, end.networks, end.images) == (1, 1, 1)
        label = f"label=com.docker.compose.project={trial}__env2"
        assert of_project(trial) == {} and len(docker("ps", "-q", "--filter", label).split()) == 1
    finally:
        docker(*near, "down", "-t", "0", "--rmi", "local")


def test_an_image_that_a_stranger_uses_is_told(tmp_path: Path, image: str) -> None:
    ours, trial = Sandboxes(tmp_path / "run", image), name()
    ours.up(trial)
    used = docker("run", "-d", f"{trial}__env-main", "sleep", "infinity").strip()
    try:
        end = sweep(ours.run_dir, 30)
        assert end is not None and (end.containers, end.networks, end.images) == (1, 1, 0)
        (left,) = end.left
        assert left.kind == "image" and left.trial == trial and "container" in left.why
        assert docker("inspect", "-f", "{{.State.Running}}", used).strip() == "true"
    finally:
        docker("rm", "-f", used)
        sweep(ours.run_dir, 30)


def test_no_daemon_is_told_and_not_called_clean(tmp_path: Path, image: str) -> None:
    ours, trial = Sandboxes(tmp_path / "run", image), name()
    ours.ledger._daemon = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    ours.files(trial)
    end = sweep(ours.run_dir, 10)
    assert end is not None and not end.left
    (unknown,) = end.unknown
    assert "none.sock" in unknown and "1 trial" in unknown


def test_containers_reach_the_gateway_that_preflight_proposes(tmp_path: Path, image: str) -> None:
    """From the network that Compose makes for a trial; 127.0.0.1 is not reached from there."""
    gateway, why = bridge_gateway(os.environ)
    assert why == "" and is_here(gateway)
    ours, trial = Sandboxes(tmp_path / "run", image), name()
    ours.up(trial)
    try:
        (container,) = of_project(trial)["container"]
        for host, reached in ((gateway, True), ("127.0.0.1", False)):
            with socket.create_server((host, 0)) as server:
                ask = f"exec 3<>/dev/tcp/{host}/{server.getsockname()[1]}"
                words = ["docker", "exec", container, "bash", "-c", ask]
                assert (subprocess.run(words, capture_output=True, check=False).returncode == 0) is reached, (
                    host
                )
    finally:
        sweep(ours.run_dir, 30)


def _paths() -> dict[str, str]:

    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
