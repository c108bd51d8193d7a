"""An image that cannot be built, in a run that goes on: real Harbor, a real daemon; sessions, a scripted replica, and a
backend whose services are toys. ``LIVERL_TEST_HARBOR_PYTHON``: the interpreter of an environment with Harbor."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kit.docker_kit import of_project
from kit.harbor_settings import harbor_settings
from kit.harbor_tasks import write_task
from kit.own_runs import Trials
from kit.runs import ToyRun, make_run, toy
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica
from kit.waiting import wait_until

from liverl.model import Symptom
from liverl.observe.trials.steps import head_at
from liverl.observe.trials.trajectory import TrajectoryReader
from liverl.offline.doctor.examine import examine
from liverl.sandboxes.sweep import look

HARBOR = os.environ.get("LIVERL_TEST_HARBOR_PYTHON")
pytestmark = pytest.mark.skipif(
    HARBOR is None, reason="LIVERL_TEST_HARBOR_PYTHON names no interpreter with Harbor"
)
SOON_S = 10.0  # in which a failed build is to be named
# The Dockerfile behind its first line; what is told; what doctor says of it.
BAD = {
    "step": ("RUN echo the reason is this >&2 && exit 3",
             "the reason is this (exit code 3)", "A step of an image's build failed with exit code 3"),
    "copy": ("COPY nowhere.txt /x", 'COPY nowhere.txt /x: failed to c', "An image's build misses /nowhere.txt"),
    "syntax": ("RUNN true", "nknown instruction: RUNN", "A Dockerfile has an error in line 2"),
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ToyRun]:
    made = make_run(tmp_path / "side", [toy("trainer", "sleep")])
    made.start()
    made.until("trainer", "ready")
    yield made
    made.end()


@pytest.fixture
async def host(run: ToyRun) -> AsyncIterator[SessionHost]:
    replica = TokenReplica(lambda prompt, turn: "never asked", context=4000)
    sessions = SessionHost(run.run_dir)
    sessions.urls = [await replica.start()]
    await sessions.start()
    yield sessions
    await sessions.stop()
    await replica.stop()


@pytest.mark.parametrize("kind", BAD)
async def test_the_step_of_the_build_is_named_while_the_trial_is_run_again(
    tmp_path: Path, run: ToyRun, host: SessionHost, image: str, kind: str
) -> None:
    line, words, title = BAD[kind]
    task = Path(write_task(tmp_path / "tasks", "bad-image", "never read"))
    (task / "environment" / "Dockerfile").write_text(f"FROM {image}\n{line}\n")
    settings = harbor_settings(
        python=str(HARBOR), tasks=str(tmp_path / "tasks"), environment_type="docker",
        environment_override_cpus=1, environment_override_memory_mb=256,
    )  # fmt: skip
    trials = Trials(run.run_dir, host, {"harbor": settings})
    row = {"extra_info": {"task_path": str(task)}}
    ends = asyncio.ensure_future(trials.run(row=row, trial_timeout=240.0, max_retries=1))

    def failed() -> list[Path]:
        assert not ends.done(), "it ended before a build failed"
        return exceptions()

    def exceptions() -> list[Path]:
        return list((run.run_dir / "trials" / "step_0003").glob("bad-image-*/exception.txt"))

    def alert() -> Symptom | None:
        return next((one for one in run.snapshot().symptoms if one.id == "sandbox_build_failed"), None)

    await asyncio.to_thread(wait_until, failed, 240.0, "the end of the first build")
    found = await asyncio.to_thread(wait_until, alert, SOON_S, "the alert")
    assert found is not None and words in found.cause and "bad-image" in found.cause
    assert "environment/Dockerfile" in found.fix
    outcome = await ends
    assert len(exceptions()) == 2, "it was run again"
    assert outcome.exception is not None and outcome.exception.startswith("SandboxBuildError: ")
    assert words in outcome.exception.partition("; ")[0] and "\n" not in outcome.exception
    assert outcome.ending.cause == "infrastructure" and not outcome.rows
    for path in exceptions():
        trial = path.parent
        head = head_at(run.run_dir, str(trial.relative_to(run.run_dir)))
        assert head is not None and words in head.sandbox_error and head.error == "SandboxBuildError"
        assert head.phase == "setup" and not head.turns
        told = TrajectoryReader(trial).read()
        assert told.exception is not None and words in told.exception.partition("\n")[0]
        info = json.loads((trial / "result.json").read_text())["exception_info"]
        assert words.rpartition(" (exit")[0] in info["exception_message"], (
            "the whole output stays in Harbor's own file"
        )
        cause = examine([trial]).verdict.cause
        assert cause is not None and cause.title == title
        assert of_project(trial.name) == {}
    left = look(run.run_dir)
    assert left is not None and not left.left and not left.unknown


async def test_an_image_that_is_built_raises_no_alert(
    tmp_path: Path, run: ToyRun, host: SessionHost, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent fails, for which its sandbox was made."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "fails.py").write_text(
        "from harbor.agents.base import BaseAgent\n"
        "class Fails(BaseAgent):\n"
        "    @staticmethod\n"
        "    def name(): return 'fails'\n"
        "    def version(self): return '1'\n"
        "    async def setup(self, environment): pass\n"
        "    async def run(self, instruction, environment, context): raise RuntimeError('failed to solve: nothing')\n"
    )
    task = Path(write_task(tmp_path / "tasks", "good-image", "never read"))
    (task / "environment" / "Dockerfile").write_text(f"FROM {image}\nWORKDIR /app\n")
    settings = harbor_settings(
        python=str(HARBOR), tasks=str(tmp_path / "tasks"), environment_type="docker", agent_name=None,
        agent_import_path="fails:Fails", environment_override_cpus=1, environment_override_memory_mb=256,
    )  # fmt: skip
    trials = Trials(run.run_dir, host, {"harbor": settings})
    outcome = await trials.run(row={"extra_info": {"task_path": str(task)}}, trial_timeout=240.0)
    assert outcome.exception is not None and "failed to solve: nothing" in outcome.exception
    head = head_at(run.run_dir, str(outcome.files.directory.relative_to(run.run_dir)))
    assert head is not None and head.sandbox_error == "" and head.error == "RuntimeError"

    def listed() -> bool:
        return any(one.path == head.path and one.failure for one in run.snapshot().trials.newest)

    await asyncio.to_thread(wait_until, listed, 30.0, "the trial in the snapshot")
    assert not [one for one in run.snapshot().symptoms if one.id == "sandbox_build_failed"]
