"""Trials of the real Harbor with real containers: what they leave while they run, at their end, and after SIGKILL of
Harbor's process. ``LIVERL_TEST_HARBOR_PYTHON``: the interpreter of an environment with Harbor."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.docker_kit import docker, of_project
from kit.harbor_settings import harbor_settings
from kit.harbor_tasks import write_task

from liverl.agents.harbor.config import HarborTrial, runner_environment, trial_config
from liverl.agents.harbor.owned import Ledger, identity, read_ledgers
from liverl.observe.trials.steps import head_at
from liverl.sandboxes.sweep import lost_trials, sweep
from liverl.verl_runtime.kinds.harbor_runner import HarborRunner, RunnerDied
from liverl_tui.text.trial_phases import phase_words

PYTHON = os.environ.get("LIVERL_TEST_HARBOR_PYTHON")
pytestmark = pytest.mark.skipif(
    PYTHON is None, reason="LIVERL_TEST_HARBOR_PYTHON names no interpreter with Harbor"
)
SLEEPS = """
from harbor.agents.base import BaseAgent
class Sleeps(BaseAgent):
    @staticmethod
    def name(): return "sleeps"
    def version(self): return "1"
    async def setup(self, environment): pass
    async def run(self, instruction, environment, context):
        await environment.exec("sleep SECONDS")
"""


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.1)


class Trials:
    """Trials of one run, begun as ``kinds.harbor`` begins them."""

    def __init__(self, folder: Path, image: str, seconds: int, *, delete: bool = True) -> None:
        (folder / "sleeps.py").write_text(SLEEPS.replace("SECONDS", str(seconds)))
        self.run = folder / "run"
        self.run.mkdir()
        self.task = Path(write_task(folder, "task", "sleep", "echo 1 > /logs/verifier/reward.txt"))
        (self.task / "environment" / "Dockerfile").write_text(f"FROM {image}\nWORKDIR /app\n")
        self.settings = harbor_settings(
            agent_name=None, agent_import_path="sleeps:Sleeps", environment_delete=delete,
            environment_override_cpus=1, environment_override_memory_mb=256,
        )  # fmt: skip
        env = {**runner_environment(self.settings), "PYTHONPATH": str(folder)}
        self.runner = HarborRunner(str(PYTHON), 2, folder / "log", env)
        self.ledger = Ledger(self.run, "worker-1", "attempt_001", os.environ)
        self.kept = not delete
        self.phases: list[str] = []  # as they began

    async def trial(self, name: str) -> None:
        overlay = self.ledger.begin(name, self.task, kept=self.kept)
        (self.run / "trials").mkdir(exist_ok=True)
        described = HarborTrial(
            task=str(self.task), name=name, trials_dir=str(self.run / "trials"), openai="http://h/v1",
            anthropic="http://h", key="k", model="m", turns=1, context=100, reply=10, overlay=str(overlay),
        )  # fmt: skip
        late = asyncio.get_running_loop().time() + 300
        config = trial_config(described, self.settings)
        try:
            ended = await self.runner.run(
                config, late, asyncio.Event(), lambda phase, at: self.phases.append(phase)
            )
        except RunnerDied:
            self.ledger.lost(name)
            raise
        assert ended.exception is None and ended.rewards == {"reward": 1.0}, ended
        self.ledger.over(name)


async def test_harbor_ends_its_own_within_seconds(tmp_path: Path, image: str) -> None:
    trials = Trials(tmp_path, image, 2)
    await trials.trial("t-1a2b3c4d")
    await trials.runner.close()
    head = head_at(trials.run, "trials/t-1a2b3c4d")
    assert head is not None and trials.phases == ["setup", "agent", "verifier"] == list(head.phases)
    assert 2.0 <= head.phases["agent"] < 60 and head.rewards == {"reward": 1.0}
    print(f"phases of a trial in Docker: {phase_words(head.phases, None, head.kind)}")
    assert of_project("t-1a2b3c4d") == {} and lost_trials(trials.run) == frozenset()
    assert [entry.event for entry in read_ledgers(trials.run)] == ["begun", "over"]


async def test_harbor_is_killed_in_mid_trial(tmp_path: Path, image: str) -> None:
    trials, names = Trials(tmp_path, image, 600), ["t-0000000a", "t-0000000b"]
    stranger = docker("run", "-d", image, "sleep", "infinity").strip()
    tasks = [asyncio.ensure_future(trials.trial(name)) for name in names]
    try:
        mine = ["ps", "-q", "--filter", f"label=liverl.run-id={identity(trials.run)}"]
        await until(lambda: len(docker(*mine).split()) == 2, "the containers")
        assert trials.runner._starting is not None
        os.killpg((await trials.runner._starting).pid, signal.SIGKILL)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, RunnerDied) for end in ends), ends
        assert lost_trials(trials.run) == set(names) and len(docker(*mine).split()) == 2
        end = sweep(trials.run, 30)
        assert end is not None and (end.containers, end.networks) == (2, 2) and not end.left
        assert not any(map(of_project, names))
        assert docker("inspect", "-f", "{{.State.Running}}", stranger).strip() == "true"
    finally:
        docker("rm", "-f", stranger)
        sweep(trials.run, 30)


async def test_a_kept_sandbox_stays_after_its_trial(tmp_path: Path, image: str) -> None:
    trials = Trials(tmp_path, image, 0, delete=False)
    await trials.trial("t-00000c0c")
    await trials.runner.close()
    end = sweep(trials.run, 30)
    assert end is not None and {one.kind for one in end.kept} == {"container", "network", "image"}
    end = sweep(trials.run, 30, kept=True)
    assert end is not None and end.containers == 1 and of_project("t-00000c0c") == {}
