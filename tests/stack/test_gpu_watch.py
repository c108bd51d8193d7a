"""``watch`` on the real verl 0.9.1 and vLLM 0.24 on one GPU, started by hand and by ``up``: the same replicas as
``attach``, and an EngineCore that is killed is named within seconds.

``kit.gpu_runs`` says what they need. The runs take two to four minutes each:
``pytest -m slow -n0 tests/stack/test_gpu_watch.py``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from kit.beside import attached, told, watched
from kit.gpu_fixtures import smoke as smoke
from kit.gpu_runs import FREED, GIB, LOADED, NEEDS_GPU, PYTHON, VENV, training, used_memory
from kit.plain_verl import DATA, REWARD, overrides
from kit.runs import ToyRun
from kit.verl_runs import Launch
from kit.waiting import wait_until

from liverl.model import Snapshot
from liverl.procs import procfs
from liverl.watch.target import Target
from liverl.watch.watcher import Watcher

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1200), NEEDS_GPU]

NAMED_S = 30.0  # seconds from a kill until the alert; a trainer's log comes through Ray
ENDED = "EngineCore process ended without an error of its own"
ON_GPU = (
    *("trainer.device=cuda", "trainer.n_gpus_per_node=1"),
    *("actor_rollout_ref.rollout.gpu_memory_utilization=0.2", "actor_rollout_ref.rollout.enforce_eager=True"),
    *("+ray_kwargs.ray_init.include_dashboard=False",),  # so that its processes alone tell
)


@contextmanager
def by_hand(folder: Path, smoke: Path, steps: int) -> Iterator[subprocess.Popen[bytes]]:
    """verl as a user starts it, without anything of ours; its whole tree ends with it."""
    folder.mkdir()
    (folder / "reward.py").write_text(REWARD)
    subprocess.run([PYTHON, "-c", DATA, smoke / "train.parquet", folder / "train.parquet"], check=True)
    taken = {word.split("=")[0] for word in ON_GPU}
    words = [word for word in overrides(folder, smoke, steps) if word.split("=")[0] not in taken]
    env = {
        name: text
        for name, text in os.environ.items()
        if name != "RAY_ADDRESS" and not name.startswith("LIVERL_")
    }
    with (folder / "train.log").open("wb") as log:
        process = subprocess.Popen(
            [PYTHON, "-m", "verl.trainer.main_ppo", *words, *ON_GPU],
            stdout=log,
            stderr=log,
            cwd=folder,
            env=env | {"VERL_FILE_LOGGER_ROOT": str(folder / "metrics")},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        tree = (
            [process, *psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []
        )
        for one in tree:
            try:
                os.kill(one.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait(60)


def engines(process: subprocess.Popen[bytes]) -> list[int]:
    below = psutil.Process(process.pid).children(recursive=True)
    return [one.pid for one in below if procfs.command_line(one.pid).startswith("VLLM::EngineCore")]


def test_verl_by_hand_whose_engine_is_killed(tmp_path: Path, smoke: Path) -> None:
    before = used_memory()
    (tmp_path / "private").mkdir()
    with by_hand(tmp_path / "hand", smoke, 200) as process:
        watcher = Watcher(Target(tmp_path / "hand"), tmp_path / "private", wait=True)
        watcher.start()
        try:

            def poll() -> Snapshot:
                assert process.poll() is None, (tmp_path / "hand/train.log").read_text()[-3000:]
                return watcher.poll()

            seen = wait_until(
                lambda: ((s := poll()).step or 0) >= 2 and s.replicas.ready and s, LOADED, "steps"
            )
            (replica,) = seen.replicas.items
            assert replica.kind == "verl" and replica.pid is not None and replica.address
            assert replica.engine.generation_tokens_total, "its load is known"
            assert not seen.symptoms, [one.title for one in seen.symptoms]
            (engine,) = engines(process)
            at = time.monotonic()
            os.kill(engine, signal.SIGKILL)
            dead = f"replica_ended:{replica.name}"
            wait_until(lambda: dead in [one.id for one in poll().symptoms], NAMED_S, "the replica's end")
            print(f"the replica's end: {time.monotonic() - at:.1f} s after the kill")
            wait_until(
                lambda: any(ENDED in one.title for one in poll().symptoms), NAMED_S, "its words in the log"
            )
            print(f"the log's words: {time.monotonic() - at:.1f} s after the kill")
            assert [one.state for one in poll().replicas.items] == ["failed"]
        finally:
            watcher.close()
    wait_until(lambda: used_memory() < before + GIB // 2, FREED, "the memory of the GPU")


@pytest.fixture
def launch(tmp_path: Path, smoke: Path) -> Iterator[Launch]:
    launch = Launch(tmp_path, smoke, Path(VENV))
    before = used_memory()
    yield launch
    launch.end()
    wait_until(lambda: used_memory() < before + GIB // 2, FREED, "the memory of the GPU")


def test_a_run_of_up_seen_by_both(launch: Launch, smoke: Path) -> None:
    run: ToyRun = training(launch, "both", f"smoke:{smoke}", "training.total_steps=200")
    wait_until(lambda: (attached(run.run_dir)["step"] or 0) >= 2, LOADED, "two steps")
    theirs = watched(run.run_dir.parent)
    ours = attached(run.run_dir)  # a moment later: what is over has not changed
    at = lambda d: {(one["pid"], one["address"], one["state"]) for one in d["replicas"]["items"]}  # noqa: E731
    assert at(theirs) == at(ours) and at(ours)
    before, now = told(theirs), told(ours)
    done = [step for step in before["steps"] if step["step"] < theirs["step"]]
    assert done and all(step in now["steps"] for step in done)
    assert before["alerts"] == now["alerts"]
