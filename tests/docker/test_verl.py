"""Whole runs of profile cpu-verl whose trials have sandboxes in Docker: real verl, real Harbor, a real daemon. The
agent asks the model from inside its container, so the address that it is given is proven by each trial.

Needs ``LIVERL_TEST_VERL_PYTHON`` (a Python with verl) and ``LIVERL_TEST_HARBOR_PYTHON`` (one with Harbor) beside the
daemon; a run takes two to four minutes on two cores: ``pytest -m slow tests/docker/test_verl.py -s``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.docker_kit import docker
from kit.harbor_tasks import write_task
from kit.real import trial_dirs
from kit.trained import read, trained_scores
from kit.verl_runs import (
    NEEDS_VERL,
    PYTHON,
    Launch,
    finished,
    nothing_lives,
    remains,
    result_of,
    smoke_directory,
)

from liverl.agents.harbor.owned import known_identity, read_ledgers
from liverl.control import blocking
from liverl.model import Symptom
from liverl.observe.trials.steps import head_at
from liverl.procs import procfs
from liverl.rundir.layout import read_backend
from liverl.sandboxes.sweep import look

HARBOR = os.environ.get("LIVERL_TEST_HARBOR_PYTHON")
pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    NEEDS_VERL,
    pytest.mark.skipif(HARBOR is None, reason="LIVERL_TEST_HARBOR_PYTHON names no interpreter with Harbor"),
]
STEPS, PROMPTS, TRIALS = 3, 4, 2
# In Harbor's interpreter. The container has bash and nothing that speaks HTTP.
AGENT = r"""
import json
from urllib.parse import urlsplit
from harbor.agents.base import BaseAgent

ASK = r'''
exec 3<>/dev/tcp/HOST/PORT || exit 7
printf 'POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n' "$1" "$2" >&3
printf 'Content-Length: %d\r\nConnection: close\r\n\r\n%s' "${#3}" "$3" >&3
cat <&3 > /app/reply.txt
read -r _ status _ < /app/reply.txt
[ "$status" = 200 ] || { cat /app/reply.txt; exit 8; }
'''


class Inside(BaseAgent):
    @staticmethod
    def name():
        return "inside"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        import shlex
        env = self.extra_env
        url = urlsplit(env["OPENAI_BASE_URL"])
        body = {"model": env["OPENAI_MODEL"], "max_tokens": 40,
                "messages": [{"role": "user", "content": instruction.strip()}]}
        script = ASK.replace("HOST", url.hostname).replace("PORT", str(url.port))
        words = [url.path + "/chat/completions", env["OPENAI_API_KEY"], json.dumps(body)]
        done = await environment.exec(f"bash -c {shlex.quote(script)} ask {shlex.join(words)}")
        (self.logs_dir / "asked.txt").write_text(f"{url.hostname} {done.return_code}\n{done.stdout}{done.stderr}")
        if done.return_code:
            raise RuntimeError(f"the sandbox did not reach {url.netloc}: {done.stdout}{done.stderr}")
        await environment.exec("sleep SECONDS")
"""
# A reward that differs from reply to reply.
VERIFIER = 'text=$(cat /app/reply.txt); echo "0.$(( ${#text} % 10 ))" > /logs/verifier/reward.txt'
WRITE = """
import json, sys
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.Table.from_pylist(json.load(sys.stdin)), sys.argv[1])
"""


def write_run(folder: Path, image: str, seconds: float, build: str = "") -> Path:
    """The user's files; the configuration. ``seconds``: for which each agent works; ``build``: further lines of the
    task's Dockerfile."""
    folder.mkdir()
    (folder / "inside.py").write_text(AGENT.replace("SECONDS", str(seconds)))
    task = Path(write_task(folder / "tasks", "say", "How many apples has Tom?", VERIFIER))
    (task / "environment" / "Dockerfile").write_text(f"FROM {image}\n{build}WORKDIR /app\n")
    rows: list[dict[str, Any]] = [
        {
            "data_source": "apples", "agent_name": "liverl_harbor",
            "prompt": [{"role": "user", "content": f"Tom has {index} apples and buys 3."}],
            "ability": "math", "reward_model": {"style": "rule", "ground_truth": str(index + 3)},
            "extra_info": {"split": "train", "index": index, "task_path": "tasks/say"},
        }
        for index in range(STEPS * PROMPTS)
    ]  # fmt: skip
    for name in ("train", "test"):
        subprocess.run(
            [PYTHON, "-c", WRITE, folder / f"{name}.parquet"], input=json.dumps(rows), text=True, check=True
        )
    settings: dict[str, Any] = {
        "data": {"train_index": "train.parquet", "val_index": "test.parquet"},
        "agent": {"kind": "harbor", "path": ["."]},
        "environments": {"harbor": {"venv_path": str(Path(str(HARBOR)).parent.parent)}},
        "harbor_agent": {
            "agent_name": None, "agent_import_path": "inside:Inside", "environment_type": "docker",
            "environment_override_cpus": 1, "environment_override_memory_mb": 256,
        },
        "harbor_runtime": {"num_workers": 8},
        "training": {
            "train_batch_size": PROMPTS, "n_resp_per_prompt": TRIALS, "train_prompt_mini_batch_size": PROMPTS,
            "use_dynamic_bsz": True, "total_steps": STEPS,
        },
    }  # fmt: skip
    path = folder / "config.yaml"
    path.write_text(json.dumps(settings))
    return path


class Runs:
    """Runs side by side, each with a state directory, tasks and a directory for temporary files of its own."""

    def __init__(self, folder: Path, smoke: Path, image: str) -> None:
        self.folder, self.smoke, self.image = folder, smoke, image
        self.launches: dict[str, Launch] = {}

    def up(self, name: str, seconds: float, *sets: str, build: str = "") -> subprocess.Popen[bytes]:
        state = self.folder / name
        state.mkdir()
        self.temp(name).mkdir()
        launch = self.launches[name] = Launch(state, self.smoke)
        config = write_run(state / "own", self.image, seconds, build)
        return launch.up(name, *sets, config=config, env={"TMPDIR": str(self.temp(name))})

    def temp(self, name: str) -> Path:
        return self.folder / f"tmp-{name}"

    def dir(self, name: str) -> Path:
        return self.launches[name].run_dir(name)

    def told(self, name: str) -> str:
        return self.launches[name].output(name).read_text()[-3000:]

    def cli(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("liverl-tui")), *words],
            env={**os.environ, "XDG_STATE_HOME": str(self.launches[name].state)},
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip

    def until_trials(self, name: str) -> None:
        """Until agents of the run's are at work in containers."""
        process = self.launches[name].processes[0]

        def at_work() -> bool:
            assert process.poll() is None, self.told(name)
            return len(of_run(self.dir(name))["container"]) >= 2 and working(self.dir(name))

        until(at_work, self.told, name)


def until(
    condition: Callable[[], Any], told: Callable[[str], str], name: str, seconds: float = 900.0
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, told(name)
        time.sleep(0.3)


def of_run(run_dir: Path) -> dict[str, list[str]]:
    """What the daemon has of a run, by a way of its own: the label, and the exact names of its projects."""
    run_id = known_identity(run_dir)
    if not run_id:
        return {"container": [], "network": [], "image": []}
    label = ["--filter", f"label=liverl.run-id={run_id}"]
    images = docker("images", "--format", "{{.Repository}}").split()
    projects = {entry.project for entry in read_ledgers(run_dir) if entry.event == "begun"}
    return {
        "container": sorted(docker("ps", "-aq", *label).split()),
        "network": sorted(docker("network", "ls", "-q", *label).split()),
        "image": sorted(name for name in images if name.removesuffix("-main") in projects),
    }


def working(run_dir: Path) -> bool:
    return any(path.stat().st_size for path in run_dir.glob("trials/*/*/agent/asked.txt"))


def is_clean(runs: Runs, name: str) -> None:
    """Nothing of the run is in Docker, and no temporary directory of a trial is left."""
    assert of_run(runs.dir(name)) == {"container": [], "network": [], "image": []}
    left = look(runs.dir(name))
    assert left is not None and not left.left and not left.unknown
    assert sorted(path.name for path in runs.temp(name).glob("liverl-harbor-*")) == []


@pytest.fixture
def runs(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Runs]:
    found = Runs(tmp_path, smoke_directory(tmp_path_factory), image)
    yield found
    for launch in found.launches.values():
        launch.end()


def test_three_steps_of_grpo_with_rewards_of_real_containers(runs: Runs) -> None:
    process = runs.up("steps", 0.2)
    assert finished(process) == 0, runs.told("steps")
    run_dir = runs.dir("steps")
    result = result_of(run_dir)
    assert (result.state, result.exit_code, result.steps, result.cause) == ("done", 0, STEPS, None)
    assert result.sandboxes is not None and not result.sandboxes.left and not result.sandboxes.unknown
    scores, phases = trained_scores(run_dir), dict[str, list[float]]()
    trials = trial_dirs(run_dir)
    assert len(trials) == STEPS * PROMPTS * TRIALS == len(scores)
    rewards = []
    for trial in trials:
        facts = read(trial / "liverl.json")
        told = facts.get("result") or read(trial / "result.json")
        assert told["exception_info"] is None and told["divergences"] == []
        reward = told["verifier_result"]["rewards"]["reward"]
        assert [reward] == pytest.approx(scores[f"{facts['uid']}_{facts['session']}"], abs=1e-6)
        rewards.append(reward)
        assert not (trial / "agent" / "asked.txt").read_text().startswith("127.")
        head = head_at(run_dir, str(trial.relative_to(run_dir)))
        assert head is not None and head.phases.keys() >= {"setup", "agent", "verifier"}
        for phase, seconds in head.phases.items():
            phases.setdefault(phase, []).append(seconds)
    assert len(set(rewards)) > 1, "rewards that are all equal would prove nothing"
    print(f"\n{len(trials)} trials, {STEPS} steps; seconds of a phase (median, most):")
    for phase, seconds in phases.items():
        print(f"  {phase}: {statistics.median(seconds):.1f}, {max(seconds):.1f}")
    nothing_lives(run_dir)
    is_clean(runs, "steps")


def killed(run_dir: Path, words: str) -> list[int]:
    """SIGKILL to the run's processes with ``words`` in their command line; their pids."""
    lines = {pid: procfs.command_line(pid) for pid in remains(run_dir)}
    pids = [pid for pid, line in lines.items() if words in line]
    assert pids, (words, sorted(lines.values()))
    for pid in pids:
        kill(pid)
    return pids


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def backend_pid(run_dir: Path) -> int:
    record = read_backend(run_dir)
    assert record is not None
    return record.pid


@pytest.mark.parametrize("what", ["nothing", "runner", "trainer", "backend", "keeper", "everything"])
def test_a_stop_in_mid_trial_leaves_nothing_whatever_was_killed(runs: Runs, what: str) -> None:
    """Agents are at work in their containers for ten minutes when it happens; beside it runs a container of somebody
    else's. ``nothing``: an ordinary stop."""
    process = runs.up("mid", 600)
    runs.until_trials("mid")
    run_dir = runs.dir("mid")
    before = of_run(run_dir)
    temps = list(runs.temp("mid").glob("liverl-harbor-*"))
    assert before["network"] and before["image"] and temps
    stranger = docker("run", "-d", runs.image, "sleep", "infinity").strip()
    try:
        if what == "runner":
            killed(run_dir, "harbor/runner.py")
            until(
                lambda: not set(of_run(run_dir)["container"]) & set(before["container"]), runs.told, "mid", 60
            )
        elif what == "trainer":
            killed(run_dir, "main_ppo")
        elif what == "backend":
            kill(backend_pid(run_dir))
        elif what == "keeper":
            killed(run_dir, "keeper/process")
        elif what == "everything":
            kill(backend_pid(run_dir))
            while left := remains(run_dir):
                for pid in left:
                    kill(pid)
            assert of_run(run_dir)["container"], "containers outlive all processes of their run"
        began = time.monotonic()
        done = runs.cli("mid", "stop", "--run", str(run_dir))
        assert done.returncode == 0, done.stdout + done.stderr
        print(f"\n{what} killed: the end took {time.monotonic() - began:.1f} s")
        process.wait(120)
        nothing_lives(run_dir)
        is_clean(runs, "mid")
        assert docker("inspect", "-f", "{{.State.Running}}", stranger).strip() == "true"
        end = result_of(run_dir).sandboxes
        assert end is not None and not end.left and not end.unknown
    finally:
        docker("rm", "-f", stranger)


def test_of_two_runs_side_by_side_each_removes_only_its_own(runs: Runs) -> None:
    for name in ("one", "two"):
        runs.up(name, 600)
    for name in ("one", "two"):
        runs.until_trials(name)
    # Until no trial of the other run is still getting its container: what it has changes by the stop only.
    until(lambda: len(of_run(runs.dir("two"))["container"]) == PROMPTS * TRIALS, runs.told, "two")
    theirs = of_run(runs.dir("two"))
    assert runs.cli("one", "stop", "--run", str(runs.dir("one"))).returncode == 0
    is_clean(runs, "one")
    assert of_run(runs.dir("two")) == theirs
    assert runs.cli("two", "stop", "--run", str(runs.dir("two"))).returncode == 0
    is_clean(runs, "two")


def test_an_image_that_cannot_be_built_is_named_within_seconds(runs: Runs) -> None:
    """While the trainer still repeats the trials: a build that fails after minutes would cost their number of times."""
    process = runs.up("bad", 0.2, build="RUN echo the disk of the builder is a teapot >&2 && exit 42\n")
    run_dir = runs.dir("bad")

    def failed() -> bool:
        assert process.poll() is None, runs.told("bad")
        return any(run_dir.glob("trials/*/*/exception.txt"))

    def alert() -> Symptom | None:
        told = blocking.snapshot(run_dir).symptoms
        return next((one for one in told if one.id == "sandbox_build_failed"), None)

    until(failed, runs.told, "bad")
    began = time.monotonic()
    until(alert, runs.told, "bad", 10.0)
    print(f"\nthe alert came {time.monotonic() - began:.1f} s after the first build had failed")
    found = alert()
    assert found is not None and "a teapot (exit code 42)" in found.cause and "say" in found.cause
    shown = runs.cli("bad", "trials", "ls", "--run", str(run_dir), "--json")
    heads = json.loads(shown.stdout)["trials"]
    ended = [one for one in heads if one["error"]]
    assert ended and all(one["error"] == "SandboxBuildError" for one in ended), heads
    assert all("a teapot (exit code 42)" in one["sandbox_error"] for one in ended)
    assert runs.cli("bad", "stop", "--run", str(run_dir)).returncode in (0, 1)
    process.wait(120)
    nothing_lives(run_dir)
    is_clean(runs, "bad")
    told = runs.cli("bad", "doctor", str(run_dir))
    said = " ".join(told.stdout.split())
    assert "the image of a sandbox cannot be built" in said and "a teapot (exit code 42)" in said, told.stdout
    assert "cause unknown" not in said, told.stdout
