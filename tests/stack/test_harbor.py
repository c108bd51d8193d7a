"""Tasks of Harbor's with the real Harbor, in the environment without containers, through real sessions to a scripted
replica. ``LIVERL_TEST_HARBOR_PYTHON``: the interpreter of an environment with Harbor."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from kit.harbor_settings import harbor_settings
from kit.harbor_tasks import write_agent, write_task
from kit.own_runs import Trials
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica
from kit.waiting import PATIENCE_S

from liverl.model import TrialHead
from liverl.observe.trials.records import parse_result
from liverl.observe.trials.trajectory import read_trajectory
from liverl.observe.trials.trial import Add, Trial
from liverl.verl_runtime.kinds import harbor, harbor_runner
from liverl.verl_runtime.loop_trial import Outcome

PYTHON = os.environ.get("LIVERL_TEST_HARBOR_PYTHON")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="LIVERL_TEST_HARBOR_PYTHON names no interpreter with Harbor"),
]
pytest_plugins = ["kit.session_fixtures"]

DONE = json.dumps(
    {
        "analysis": "",
        "plan": "",
        "commands": [{"keystrokes": "echo hello > /app/hello.txt\n", "duration": 1.0}],
        "task_complete": True,
    }
)


def script(prompt: str, turn: int) -> str:
    """What the model writes: for terminus-2 a command, else the last word of the first message."""
    if "terminal" in prompt.lower():
        return DONE
    return prompt.rstrip().removesuffix("<|im_end|>").rsplit(None, 1)[-1]


class Runs:
    """Trials of Harbor's with keys of ``harbor_agent``."""

    def __init__(self, folder: Path, host: SessionHost) -> None:
        self.folder, self.host = folder, host
        self.tasks = folder / "tasks"
        self.agent = write_agent(folder)

    def task(self, name: str, *lines: str, verifier: str | None = None) -> str:
        return write_task(self.tasks, name, "\n".join(lines), verifier)

    def settings(self, *, runtime: dict[str, Any] | None = None, workers: int = 1, **keys: Any) -> Trials:
        agent = {"agent_name": None, "agent_import_path": self.agent, "environment_type": "local", **keys}
        found = harbor_settings(
            python=str(PYTHON), tasks=str(self.tasks), workers=workers, runtime=runtime or {}, **agent
        )
        return Trials(self.folder, self.host, {"harbor": found})

    @property
    def directories(self) -> list[Path]:
        """Those of the trials, by the time of their beginning."""
        return sorted((self.folder / "trials" / "step_0003").iterdir(), key=lambda one: facts(one)["_began"])


def facts(trial: Path) -> dict[str, Any]:
    told = json.loads((trial / "liverl.json").read_text())
    return {**told, "_began": told["result"]["started_at"]}


def result(trial: Path) -> dict[str, Any]:
    """Harbor's own."""
    return dict(json.loads((trial / "result.json").read_text()))


def exception(trial: Path) -> str | None:
    info = result(trial)["exception_info"]
    return None if info is None else info["exception_type"]


def head_of(folder: Path) -> TrialHead:
    trial = Trial(str(folder.parent), folder.name, 3)
    assert trial.check(read_lines, time.time())
    return trial.head()


def read_lines(path: str, offset: int, add: Add, inside: str) -> tuple[int, bool]:
    data = Path(path).read_bytes()
    for line in data.splitlines():
        add(line, 0, len(line))
    return len(data), False


async def run(trials: Trials, task: str, **settings: Any) -> Outcome:
    """Run a trial of the task. ``harbor_agent.max_retries`` is the trial's, as the plan says it."""
    assert trials.agent.harbor is not None
    settings = {"max_retries": trials.agent.harbor.agent["max_retries"], **settings}
    return await trials.run(row={"extra_info": {"task_path": task}}, **settings)


def living(tag: str) -> list[str]:
    """Command lines of processes that mention ``tag`` in their environment or their words."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words, env = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            if tag.encode() in words + env:
                found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


async def until(condition: Callable[[], Any], seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-user")
    monkeypatch.setenv("HOME", str(tmp_path))  # login shells read no profile of the user
    yield


@pytest.fixture
async def runs(tmp_path: Path, host: SessionHost) -> AsyncIterator[Runs]:
    yield Runs(tmp_path, host)
    await harbor.close()
    await until(lambda: not living(str(tmp_path / "trials")))


async def test_five_tasks_with_an_agent_of_the_users(runs: Runs, replica: TokenReplica) -> None:
    words = {"one": "hello", "two": "hello", "three": "bye", "four": "hello", "five": "no"}
    for name, word in words.items():
        runs.task(name, f"say answer with {word}", "shell env; ls /; touch /app/mine; sleep 1000 & sleep 0")
    trials = runs.settings()
    began = time.monotonic()
    outcomes = await asyncio.gather(*(run(trials, name) for name in words))
    assert time.monotonic() - began < 30
    for outcome, (name, word) in zip(outcomes, words.items(), strict=True):
        folder = outcome.files.directory
        assert outcome.exception is None and outcome.reward == (1.0 if word == "hello" else 0.0)
        assert folder.name.startswith(f"{name}-") and folder.parent.name == "step_0003"
        (row,) = outcome.rows
        assert row.prompt in replica.prompts and row.response in replica.replies
        # Harbor's files and ours.
        assert result(folder)["trial_name"] == folder.name and exception(folder) is None
        assert result(folder)["agent_info"]["name"] == "obedient"
        times = (result(folder)[name] for name in ("started_at", "finished_at"))
        began_at, ended_at = map(datetime.fromisoformat, times)
        assert (ended_at - began_at).total_seconds() < 9, "the environment ends at once"
        told = facts(folder)
        assert (told["step"], told["agent"], told["task"]) == (3, "harbor", name)
        assert told["result"]["verifier_result"] == {"rewards": {"reward": outcome.reward}}
        assert (told["result"]["turns_trained"], told["result"]["ended_by"]) == (1, "exit")
        shown = read_trajectory(folder)
        assert (shown.rewards, shown.step, len(shown.turns)) == ({"reward": outcome.reward}, 3, 1)
        assert shown.turns[0].written == word and shown.task == name
        # Its environment: own directories, and variables without those of the user.
        seen = (folder / "agent" / "shell.txt").read_text()
        assert "of-the-user" not in seen and "PYTHONPATH" not in seen and "TMPDIR=/tmp" in seen
        assert {"app", "logs", "tests", "solution", "usr"} <= set(seen.split())
        assert not (folder / "root").exists() and not Path("/app/mine").exists()
        # The key of the session is in none of its files.
        key = runs.host.store._finished.get(folder.name).key  # type: ignore[union-attr]
        for file in folder.rglob("*"):
            assert not file.is_file() or key not in file.read_text(errors="replace"), file
        assert folder.stat().st_mode & 0o022 == 0
    assert not living("sleep 1000")


async def test_mounts_of_the_host_and_files_that_stay(runs: Runs, tmp_path: Path) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "x").write_text("of the machine\n")
    mounts = [
        f"{tmp_path}/in:/opt/of-the-run/in:ro",
        f"{tmp_path}/out:/given/out",
        f"{tmp_path}/in/x:/etc/of-the-run",
    ]
    task = runs.task(
        "hello", "say answer with hello", "shell cat /opt/of-the-run/in/x /etc/of-the-run; touch /opt/of-the-run/in/y; "
        "touch /opt/of-the-run/z; echo made > /given/out/made; cat /etc/hostname /app/extra.txt; ls /opt",
    )  # fmt: skip
    (Path(task) / "environment" / "extra.txt").write_text("of the task\n")
    outcome = await run(runs.settings(host_path_mounts=mounts, environment_delete=False), task)
    assert outcome.reward == 1.0
    folder = outcome.files.directory
    seen = (folder / "agent" / "shell.txt").read_text()
    assert seen.count("of the machine\n") == 2 and "of the task\n" in seen
    assert Path("/etc/hostname").read_text() in seen and set(os.listdir("/opt")) < set(seen.split())
    assert "/opt/of-the-run/in/y': Read-only file system" in seen and os.listdir(tmp_path / "in") == ["x"]
    assert (tmp_path / "out" / "made").read_text() == "made\n"
    assert not Path("/opt/of-the-run").exists() and not Path("/given").exists()
    root = folder / "root" / "env"
    assert (root / "app" / "hello.txt").read_text() == "hello\n" and (
        root / "opt" / "of-the-run" / "z"
    ).is_file()
    assert not os.listdir(root / "usr"), "the machine's files are seen in the environment only"


async def test_terminus_2(runs: Runs) -> None:
    task = runs.task("hello", 'Create a file /app/hello.txt with the text "hello".')
    outcome = await run(
        runs.settings(agent_name="terminus-2", agent_import_path=None),
        task,
        prompt_length=9000,
        response_length=9000,
    )
    assert (outcome.exception, outcome.reward) == (None, 1.0)
    folder = outcome.files.directory
    assert result(folder)["agent_info"]["name"] == "terminus-2"
    assert (folder / "agent" / "trajectory.json").is_file()
    shown = read_trajectory(folder)
    # terminus-2 asks whether the task is really complete.
    assert len(shown.turns) == 2 == sum(row.turns for row in outcome.rows) and shown.rewards == {
        "reward": 1.0
    }
    key = runs.host.store._finished.get(folder.name).key  # type: ignore[union-attr]
    assert all(key not in file.read_text(errors="replace") for file in folder.rglob("*") if file.is_file())


async def test_a_time_out_ends_all_of_the_agents_processes(runs: Runs) -> None:
    task = runs.task("slow", "say answer with hello", "shell (setsid sleep 4321 &) ; sleep 4321")
    began = time.monotonic()
    outcome = await run(runs.settings(override_timeout_sec=3, max_retries=2), task)
    assert 3 <= time.monotonic() - began < 30
    assert exception(outcome.files.directory) == "AgentTimeoutError"
    assert (outcome.exception or "").startswith("AgentTimeoutError: ")
    assert (outcome.ending.cause, outcome.ending.outcome, outcome.ending.verified) == (
        "timeout",
        "trained",
        True,
    )
    # Harbor's verifier has run all the same: its reward is trained, and nothing is repeated.
    assert outcome.reward == 1.0 and len(outcome.rows) == 1 and len(runs.directories) == 1
    parsed = parse_result(
        (outcome.files.directory / "result.json").read_bytes(), facts(outcome.files.directory)
    )
    assert parsed is not None and (parsed.ended_by, parsed.reward) == ("AgentTimeoutError", 1.0)
    assert not living("sleep 4321")


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"max_timeout_sec": 1}, "AgentTimeoutError"),
        ({"agent_timeout_multiplier": 0.001}, "AgentTimeoutError"),  # of 600 s
        ({"agent_setup_timeout_multiplier": 0.001}, "AgentSetupTimeoutError"),  # of Harbor's 360 s
        ({"verifier_timeout_multiplier": 0.001}, "VerifierTimeoutError"),  # of the task's 600 s
        ({"environment_build_timeout_multiplier": 1e-6}, "EnvironmentStartTimeoutError"),
    ],
)
async def test_each_time_ends_what_it_is_for(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], kind: str
) -> None:
    setup, agent, verifier = (
        "30" if kind.startswith(name) else "0" for name in ("AgentSetup", "AgentT", "Verifier")
    )
    monkeypatch.setenv("SETUP_SECONDS", setup)
    task = runs.task(
        "hello",
        "say x",
        f"shell sleep {agent}",
        verifier=f"sleep {verifier}; echo 0 > /logs/verifier/reward.txt",
    )
    began = time.monotonic()
    await run(runs.settings(**keys, max_retries=0), task)
    assert time.monotonic() - began < 20
    assert exception(runs.directories[0]) == kind


@pytest.mark.parametrize(
    ("verifier", "kind"),
    [
        ("exit 1", "RewardFileNotFoundError"),
        ("echo good > /logs/verifier/reward.txt", "VerifierOutputParseError"),
        ('echo \'{"speed": 1, "style": 2}\' > /logs/verifier/reward.json', "RewardError"),
    ],
)
async def test_a_verifier_without_a_reward_fails_the_trial_by_name(
    runs: Runs, verifier: str, kind: str
) -> None:
    task = runs.task("hello", "say answer with hello", verifier=verifier)
    outcome = await run(runs.settings(max_retries=2), task)
    assert (outcome.exception or "").startswith(f"{kind}: ") and outcome.rows == []
    assert [folder.name for folder in runs.directories] == [outcome.name]
    shown = read_trajectory(outcome.files.directory)
    assert (shown.exception or "").startswith(kind) and shown.rewards["reward"] == 0.0


@pytest.mark.parametrize("rewards", ['{"reward": 0.25, "style": 2}', '{"score": 0.25}'])
async def test_the_reward_is_the_one_of_that_name_or_the_only_one(runs: Runs, rewards: str) -> None:
    task = runs.task("hello", "say x", verifier=f"echo '{rewards}' > /logs/verifier/reward.json")
    outcome = await run(runs.settings(), task)
    assert (outcome.exception, outcome.reward) == (None, 0.25)
    assert read_trajectory(outcome.files.directory).rewards == {**json.loads(rewards), "reward": 0.25}


async def test_without_a_verifier_verl_computes_the_reward(runs: Runs) -> None:
    outcome = await run(runs.settings(verifier_enabled=False), runs.task("hello", "say x"))
    assert outcome.reward is None and not outcome.recorded and len(outcome.rows) == 1
    outcome.record(0.5)
    folder = outcome.files.directory
    assert result(folder)["verifier_result"] is None
    assert read_trajectory(folder).rewards == {"reward": 0.5}


async def test_a_failed_trial_is_repeated_under_another_name(runs: Runs, tmp_path: Path) -> None:
    task = runs.task("hello", "say answer with hello", f"once {tmp_path}/marker")
    outcome = await run(runs.settings(max_retries=2), task)
    assert (outcome.exception, outcome.reward) == (None, 1.0)
    failed, repeated = runs.directories
    assert repeated.name == outcome.name and exception(repeated) is None
    assert exception(failed) == "RuntimeError" and (failed / "exception.txt").is_file()
    told = facts(failed)["result"]
    assert told["exception_info"]["exception_message"] == "the first time" and told["tokens_trained"] == 0
    assert (facts(repeated)["repeat"], facts(repeated)["repeat_of"]) == (1, failed.name)
    assert "repeat" not in facts(failed)
    assert told["repeated"] is True and "repeated" not in facts(repeated)["result"]
    assert [head_of(folder).earlier for folder in (failed, repeated)] == [True, False]
    keys = [runs.host.store._finished.get(folder.name).key for folder in (failed, repeated)]  # type: ignore[union-attr]
    assert keys[0] != keys[1]
    assert len(outcome.rows) == 1


async def test_a_trial_is_repeated_as_often_as_configured(runs: Runs) -> None:
    outcome = await run(runs.settings(max_retries=2), runs.task("hello", "say x", "raise no luck"))
    assert outcome.exception == "RuntimeError: no luck" and outcome.rows == []
    assert [exception(folder) for folder in runs.directories] == ["RuntimeError"] * 3


def check_limit(runs: Runs, outcome: Outcome, replica: TokenReplica, limit: str, turns: int) -> None:
    """Its agent raised because the session refused to go on. That is a limit and no failure: its replies are trained
    with what the task's tests say of the work, nothing is repeated, and the page says which limit it was."""
    assert [folder.name for folder in runs.directories] == [outcome.name]
    assert len(replica.replies) == turns == sum(row.turns for row in outcome.rows)
    ending = outcome.ending
    assert (ending.cause, ending.outcome, ending.verified) == ("limit", "trained", True)
    assert "HTTPError: HTTP Error 410" in ending.why
    assert (outcome.exception, outcome.ended_by) == (None, limit)
    folder = outcome.files.directory
    assert exception(folder) == "HTTPError" and (folder / "exception.txt").is_file()
    parsed = parse_result((folder / "result.json").read_bytes(), facts(folder))
    assert parsed is not None and (parsed.ended_by, parsed.failure, parsed.error) == (limit, "", "")
    assert (parsed.cause, parsed.outcome, parsed.reward) == ("limit", "trained", outcome.reward)
    shown = read_trajectory(folder)
    assert len(shown.turns) == turns and shown.exception is None


@pytest.mark.parametrize("rewarded", [True, False])
async def test_the_cap_of_turns_is_the_sessions_and_nothing_is_repeated(
    runs: Runs, replica: TokenReplica, rewarded: bool
) -> None:
    before = ["shell echo hello > /app/hello.txt"] if rewarded else []
    task = runs.task("hello", *before, "chat 5")
    outcome = await run(runs.settings(max_retries=2), task, max_turns=2)
    assert outcome.reward == float(rewarded)
    check_limit(runs, outcome, replica, "max_iterations", 2)


async def test_a_limit_without_a_verdict_of_the_tests_is_not_trained(runs: Runs) -> None:
    """Nothing else knows the reward: verl has no function for rows of Harbor's."""
    task = runs.task("hello", "chat 5", verifier="exit 1")
    outcome = await run(runs.settings(max_retries=2), task, max_turns=2)
    assert (outcome.ending.cause, outcome.ending.outcome, outcome.rows) == ("exit", "masked", [])
    assert (outcome.exception or "").startswith("RewardError: the task's tests gave no reward; ")
    assert outcome.recorded and len(runs.directories) == 1


async def test_a_limit_without_a_verifier_is_rewarded_by_verl(runs: Runs) -> None:
    task = runs.task("hello", "chat 5")
    outcome = await run(runs.settings(verifier_enabled=False), task, max_turns=2)
    assert (outcome.ending.cause, outcome.ending.outcome) == ("limit", "trained")
    assert outcome.reward is None and not outcome.recorded and outcome.rows


async def test_tools_are_withheld_from_the_model(runs: Runs, replica: TokenReplica) -> None:
    await run(runs.settings(), runs.task("with", "chat 1"))
    await run(runs.settings(disable_tool_calls=True), runs.task("without", "chat 1"))
    assert [bool(asked.get("tools")) for asked in replica.parsed] == [True, False]


async def test_replies_without_a_tool_call_end_the_trial(runs: Runs, replica: TokenReplica) -> None:
    outcome = await run(runs.settings(max_consecutive_no_tool=3, max_retries=2), runs.task("hello", "chat 6"))
    check_limit(runs, outcome, replica, "max_consecutive_no_tool", 3)


async def test_the_last_trials_of_a_step_are_cancelled(runs: Runs) -> None:
    runtime = {"tail_kill_target": 0.75, "tail_kill_grace_sec": 1, "tail_kill_min_tasks": 4}
    trials = runs.settings(runtime=runtime)
    for name in ("a", "b", "c"):
        runs.task(name, "say answer with hello")
    runs.task("late", "say x", "shell sleep 4322")
    began = time.monotonic()
    outcomes = await asyncio.gather(*(run(trials, name) for name in ("a", "b", "c", "late")))
    assert time.monotonic() - began < 30
    assert [outcome.reward for outcome in outcomes] == [1.0, 1.0, 1.0, 0.0]
    late = outcomes[3]
    assert (late.exception or "").startswith("TailKilledError: cancelled: most trials of its step were done")
    assert exception(late.files.directory) == "CancelledError"
    assert (read_trajectory(late.files.directory).exception or "").startswith("TailKilledError")
    assert not living("sleep 4322")


@pytest.mark.parametrize(("workers", "most"), [(1, 2), (2, 1)])
async def test_as_many_trials_run_at_once_as_configured(runs: Runs, workers: int, most: int) -> None:
    names = [f"t{number}" for number in range(5)]
    for name in names:
        runs.task(name, "say answer with hello", "shell sleep 0.5")
    trials = runs.settings(runtime={"num_workers": 2}, workers=workers)
    await asyncio.gather(*(run(trials, name) for name in names))
    told = [facts(one)["result"] for one in runs.directories]
    spans = [(one["started_at"], one["finished_at"]) for one in told]
    at_once = [sum(start <= begin < end for start, end in spans) for begin, _ in spans]
    assert len(spans) == 5 and max(at_once) == most


async def test_an_agent_that_ends_harbors_process_fails_the_trials_in_it_only(runs: Runs) -> None:
    runs.task("waits", "say x", "shell sleep 4323")
    runs.task("exits", "say x", "exit 7")
    runs.task("fine", "say answer with hello")
    trials = runs.settings()
    waits = asyncio.ensure_future(run(trials, "waits"))
    await until(lambda: living("sleep 4323"))
    exits = await run(trials, "exits")
    for outcome in (exits, await waits):
        assert (outcome.exception or "").startswith("HarborRunnerError: Harbor's process exited with 7: ")
        assert "the agent ends its process" in (outcome.exception or "")
        shown = read_trajectory(outcome.files.directory)
        assert not shown.running and (shown.exception or "").startswith("HarborRunnerError")
    await until(lambda: not living("sleep 4323"))
    assert (await run(trials, "fine")).reward == 1.0


async def test_an_agent_that_blocks_harbors_process_is_ended_with_it(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is to end once it blocks, however long Harbor took to begin it."""
    monkeypatch.setattr(harbor_runner, "CANCEL_S", 1.0)
    task = runs.task("hello", "say x", f"block {tmp_path}/blocks")
    ended = asyncio.ensure_future(run(runs.settings(max_retries=0), task))
    await until((tmp_path / "blocks").exists, 60.0)
    (tail,) = harbor._WORKERS[asyncio.get_running_loop()]._steps.values()
    tail.late.set()
    outcome = await ended
    assert (outcome.exception or "").startswith("HarborRunnerError: Harbor's process was ended by signal 9")
    assert (outcome.ending.cause, outcome.rows) == ("infrastructure", [])


async def test_a_trial_that_is_cancelled_leaves_nothing(runs: Runs) -> None:
    task = asyncio.ensure_future(run(runs.settings(), runs.task("hello", "say x", "shell sleep 4324")))
    await until(lambda: living("sleep 4324"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not living("sleep 4324"))


@pytest.mark.parametrize(
    ("keys", "said", "times"),
    [
        ({"agent_import_path": None}, "HarborConfigError: harbor_agent.agent_name: without it", 1),
        # Harbor says it, of which nobody knows whether it stays so: a file of a shared disk may come back.
        (
            {"agent_import_path": "no_such_module:X"},
            "ValueError: Failed to import module 'no_such_module'",
            3,
        ),
        ({"environment_import_path": "x:Y"}, "HarborConfigError: harbor_agent.environment_type", 1),
    ],
)
async def test_what_harbor_cannot_begin_fails_by_name(
    runs: Runs, keys: dict[str, Any], said: str, times: int
) -> None:
    outcome = await run(runs.settings(max_retries=2, **keys), runs.task("hello", "say x"))
    assert (outcome.exception or "").startswith(said) and len(runs.directories) == times
    assert result(outcome.files.directory)["ended_by"] == "exception"


async def test_a_task_that_is_none_fails_by_name(runs: Runs) -> None:
    outcome = await run(runs.settings(), "nowhere")
    assert (outcome.exception or "").startswith(
        "TaskNotFoundError: extra_info.task_path nowhere: there is no file"
    )


async def test_terminus_2_that_its_session_refuses(runs: Runs, replica: TokenReplica) -> None:
    """LiteLLM's own exception: the command of its first reply is rewarded by the task's tests."""
    task = runs.task("hello", 'Create a file /app/hello.txt with the text "hello".')
    settings = runs.settings(
        agent_name="terminus-2", agent_import_path=None, max_consecutive_no_tool=1, max_retries=2
    )
    outcome = await run(settings, task, prompt_length=9000, response_length=9000)
    assert (outcome.ending.cause, outcome.ending.outcome, outcome.reward) == ("limit", "trained", 1.0)
    assert (outcome.exception, outcome.ended_by) == (None, "max_consecutive_no_tool")
    assert [folder.name for folder in runs.directories] == [outcome.name] and len(replica.replies) == 1
