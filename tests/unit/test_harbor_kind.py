"""A trial of Harbor's in a worker: its place, what Harbor is asked for, and what its answer means. Harbor's process is
simulated."""

from __future__ import annotations

import asyncio
import errno
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.harbor_settings import harbor_settings

from liverl.agents.harbor.config import runner_environment
from liverl.agents.kinds import AgentSettings
from liverl.agents.loop import Conversation, TrialFailed
from liverl.util import clocks
from liverl.verl_runtime.carriers import Endpoints, Lengths, Line
from liverl.verl_runtime.kinds import harbor
from liverl.verl_runtime.kinds.base import Result, Rules, Trial, Where
from liverl.verl_runtime.kinds.harbor import Place, admit, close, failure, rules
from liverl.verl_runtime.kinds.harbor_runner import Begins, Ended, RunnerDied

NO_LIMITS = dict.fromkeys(
    (
        "agent_timeout_multiplier",
        "agent_setup_timeout_multiplier",
        "verifier_timeout_multiplier",
        "environment_build_timeout_multiplier",
    ),
    1.0,
)


class Runner:
    """Stands for the worker's side of Harbor's process. ``answer``: what each trial ends with."""

    answer: Callable[[Path], Ended] = staticmethod(lambda _: Ended())

    phases: tuple[tuple[str, float], ...] = ()  # that each trial begins

    def __init__(self, *how: Any) -> None:
        self.how = how
        self.asked: list[tuple[dict[str, Any], float, asyncio.Event]] = []
        self.closed = False

    async def run(
        self, config: dict[str, Any], deadline: float, late: asyncio.Event, begins: Begins
    ) -> Ended:
        for phase, at in self.phases:
            begins(phase, at)
        self.asked.append((config, deadline, late))
        return self.answer(Path(config["trials_dir"]) / config["trial_name"])

    async def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories for temporary files of workers that no test closes go with the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> type[Runner]:
    class Own(Runner):
        pass

    monkeypatch.setattr(harbor, "HarborRunner", Own)
    return Own


def agent(
    *, runtime: Mapping[str, Any] = {}, workers: int = 1, tasks: str = "/t", **keys: Any
) -> AgentSettings:
    return AgentSettings(
        harbor=harbor_settings(python="py", tasks=tasks, workers=workers, runtime=runtime, **keys)
    )


def where(folder: Path, step: str = "step_0003") -> Where:
    return Where(folder, "attempt_002", "worker-a", step)


async def is_late(place: Place, seconds: float) -> bool:
    """Whether a trial becomes late within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await place.late.wait()
    except TimeoutError:
        return False
    return True


# --- its place
# ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("multipliers", "seconds"),
    [
        ({}, 100 + 7200),
        ({"agent_timeout_multiplier": 2.0}, 200 + 2 * 7200),
        ({"agent_timeout_multiplier": 0.5}, 50 + 7200),
        ({"verifier_timeout_multiplier": 3.0}, 100 + 3 * 7200),
        (dict.fromkeys(NO_LIMITS, 0.5), 50 + 7200),
    ],
)
def test_harbor_has_two_hours_beside_the_agents_time(
    multipliers: Mapping[str, float], seconds: float
) -> None:
    keys = {**NO_LIMITS, **multipliers}
    found = rules(agent(**keys, disable_tool_calls=True, max_consecutive_no_tool=4), 100.0)
    assert found == Rules(seconds=seconds, disable_tools=True, max_consecutive_no_tool=4)
    assert rules(agent(disable_tool_calls=False), 100.0).disable_tools is False


@pytest.mark.parametrize(
    ("at_once", "workers", "concurrent"), [(6, 2, 3), (7, 2, 3), (6, 1, 6), (1, 4, 1), (0, 1, 1), (6, 0, 6)]
)
async def test_a_worker_has_one_process_and_its_share_of_the_trials(
    tmp_path: Path, runner: type[Runner], at_once: int, workers: int, concurrent: int
) -> None:
    given = agent(runtime={"num_workers": at_once}, workers=workers, docker_host="tcp://d:1")
    assert given.harbor is not None
    places: list[Place] = []
    left = asyncio.Event()

    async def one() -> None:
        async with admit(given, where(tmp_path)) as place:
            places.append(place)
            await left.wait()

    trials = [asyncio.ensure_future(one()) for _ in range(concurrent + 1)]
    for _ in range(5 * len(trials)):
        await asyncio.sleep(0)
    assert len(places) == concurrent, "one trial waits"
    left.set()
    await asyncio.gather(*trials)
    (only,) = {id(place.runner) for place in places}
    made = places[0].runner
    assert isinstance(made, runner) and id(made) == only and len(places) == concurrent + 1
    log = tmp_path / "harbor" / "worker-a.log"
    assert places[0].ledger is not None
    temp = Path(places[0].ledger.make_temp())
    assert made.how == ("py", concurrent, log, {**runner_environment(given.harbor), "TMPDIR": str(temp)})
    assert temp.name.startswith("liverl-harbor-") and temp.is_dir()
    (temp / "compose.yaml").touch()
    await close()
    assert made.closed and not temp.exists()
    await close()  # there is none any more
    async with admit(given, where(tmp_path)) as place:
        assert place.runner is not made
    await close()


async def test_the_rest_of_a_step_is_late_and_never_that_of_a_validation(
    tmp_path: Path, runner: type[Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVERL_GENERATION", "5")
    tail = {"tail_kill_target": 0.5, "tail_kill_grace_sec": 0.0, "tail_kill_min_tasks": 2, "num_workers": 8}
    given = agent(runtime=tail)
    for step in ("step_0003", ""):
        async with admit(given, where(tmp_path, step)) as last:
            async with admit(given, where(tmp_path, step)) as first:
                assert first.late is last.late and not last.late.is_set()
            if step:
                assert await is_late(last, 20.0)
            async with admit(given, where(tmp_path, "step_0004")) as other:
                assert not other.late.is_set(), "each step has its own"
        assert last.late.is_set() is bool(step)
    folders = sorted(path.name for path in (tmp_path / "harbor").iterdir())
    assert folders == ["attempt_002-5-step_0003", "attempt_002-5-step_0004"]
    counts = json.loads((tmp_path / "harbor" / folders[0] / "worker-a.json").read_text())
    assert counts == {"begun": 2, "done": 2}
    await close()


@pytest.mark.parametrize(
    ("changes", "late"),
    [
        ({}, True),
        ({"tail_kill_min_tasks": 3}, False),
        ({"tail_kill_grace_sec": 300.0}, False),
        ({"tail_kill_target": 1.0}, False),
        ({"tail_kill_target": 0.6}, False),
    ],
)
async def test_each_key_of_the_tail_counts(
    tmp_path: Path, runner: type[Runner], changes: Mapping[str, Any], late: bool
) -> None:
    tail = {"tail_kill_target": 0.5, "tail_kill_grace_sec": 0.0, "tail_kill_min_tasks": 2, "num_workers": 8}
    given = agent(runtime={**tail, **changes})
    async with admit(given, where(tmp_path)) as last:
        async with admit(given, where(tmp_path)):
            pass
        assert await is_late(last, 20.0 if late else 0.3) is late
    await close()


# --- one trial
# ------------------------------------------------------------------------------------------------------

NOW = clocks.ran()


def trial(folder: Path, place: Place, **changes: Any) -> Trial:
    """A trial of the task ``folder/tasks/sum``."""
    (folder / "tasks" / "sum").mkdir(parents=True, exist_ok=True)
    (folder / "tasks" / "sum" / "task.toml").touch()
    directory = folder / "trials" / "step_0003" / "sum-1"
    directory.mkdir(parents=True, exist_ok=True)
    known: dict[str, Any] = {
        "name": "sum-1",
        "directory": directory,
        "messages": [],
        "row": {"extra_info": {"task_path": "sum"}},
        "line": Line("http://h", {}, endpoints=Endpoints("http://h/v1", "http://h", "sk")),
        "request": {"model": "policy"},
        "max_turns": 5,
        "began": NOW,
        "deadline": NOW + 90,
        "agent": agent(tasks=str(folder / "tasks")),
        "lengths": Lengths(4000, 600, 70),
        "place": place,
    }
    return Trial(**{**known, **changes})


async def ran(
    runner: type[Runner], folder: Path, answer: Any = None, late: bool = False, **changes: Any
) -> tuple[Result | TrialFailed, Conversation, Runner]:
    """What a trial gave back or failed with. ``answer``: Harbor's end, an exception, or what makes one of the trial's
    directory."""

    def told(directory: Path) -> Ended:
        if isinstance(answer, Exception):
            raise answer
        return answer(directory) if callable(answer) else answer or Ended()

    runner.answer = staticmethod(told)
    made, event, conversation = runner(), asyncio.Event(), Conversation([])
    if late:
        event.set()
    place = Place(made, event)  # type: ignore[arg-type]
    try:
        found = await harbor.harbor(trial(folder, place, **changes), None, conversation)  # type: ignore[arg-type]
    except TrialFailed as error:
        return error, conversation, made
    return found, conversation, made


async def test_harbor_is_asked_for_the_rows_task(tmp_path: Path, runner: type[Runner]) -> None:
    found, conversation, made = await ran(runner, tmp_path, Ended(rewards={"reward": 0.5}))
    assert found == Result(0.5, True) and conversation.ended_by == "exit"
    assert 0 <= conversation.tool_seconds < 60 and conversation.waited_seconds == 0
    ((config, deadline, _),) = made.asked
    assert config["task"] == {"path": str(tmp_path / "tasks" / "sum")}
    assert (config["trial_name"], config["trials_dir"]) == ("sum-1", str(tmp_path / "trials" / "step_0003"))
    asked, info = config["agent"], config["agent"]["kwargs"]["model_info"]
    assert (asked["model_name"], asked["kwargs"]["max_turns"]) == ("openai/policy", 5)
    assert (info["max_input_tokens"], info["max_output_tokens"]) == (4600, 70)
    assert (asked["env"]["OPENAI_BASE_URL"], asked["env"]["ANTHROPIC_BASE_URL"]) == (
        "http://h/v1",
        "http://h",
    )
    assert asked["env"]["OPENAI_API_KEY"] == "sk"
    left = deadline - asyncio.get_running_loop().time()
    assert left == pytest.approx(NOW + 90 - clocks.ran(), abs=5)


STYLES = {"style": 1.0, "speed": 2.0}


@pytest.mark.parametrize(
    ("ended", "reward", "verified", "failed", "by"),
    [
        (Ended(), None, False, None, "exit"),
        (Ended(rewards={}), None, False, None, "exit"),
        (Ended(rewards={"score": 0.25}), 0.25, True, None, "exit"),
        (Ended(rewards={"reward": float("nan")}), None, False, "RewardError", "exit"),
        (Ended(rewards=STYLES), None, False, "RewardError", "exit"),
        (Ended(exception=("KeyError", "x")), None, False, "KeyError", "KeyError"),
        (Ended(rewards={"reward": 1}, exception=("KeyError", "x")), 1.0, True, "KeyError", "KeyError"),
        (Ended(rewards=STYLES, exception=("KeyError", "x")), None, False, "KeyError", "KeyError"),
    ],
)
async def test_a_reward_counts_whatever_ended_the_agent(
    tmp_path: Path,
    runner: type[Runner],
    ended: Ended,
    reward: float | None,
    verified: bool,
    failed: str | None,
    by: str,
) -> None:
    for verifies in (True, False):
        given = agent(tasks=str(tmp_path / "tasks"), verifier_enabled=verifies)
        found, conversation, _ = await ran(runner, tmp_path, ended, agent=given)
        assert isinstance(found, Result)
        assert (found.reward, found.verified, conversation.ended_by) == (reward, verified, by)
        assert (found.failed.kind if found.failed else None) == failed
        # Without a verifier verl is asked for a reward, but not instead of one that gave none.
        assert (found.unverified is not None) is (not verified and (verifies or bool(ended.rewards)))


@pytest.mark.parametrize(
    ("how", "kind", "words", "cause"),
    [
        ({"answer": RunnerDied("it is gone")}, "HarborRunnerError", "it is gone", "infrastructure"),
        (
            {"answer": Ended(cancelled=True)},
            "TrialTimeoutError",
            "Harbor did not end the trial within 90 s",
            "timeout",
        ),
        (
            {"late": True},
            "TailKilledError",
            "cancelled: most trials of its step were done (harbor_runtime.tail_kill_target)",
            "infrastructure",
        ),
        (
            {"line": Line("http://h", {})},
            "AgentNotCarriedError",
            "agents of Harbor need sessions: set proxy.trials_through: sessions",
            "infrastructure",
        ),
        (
            {"agent": AgentSettings()},
            "HarborConfigError",
            "a row has a task of Harbor's, but the run has no settings for it",
            "infrastructure",
        ),
        (
            {"row": {"extra_info": {"task_path": "/none"}}},
            "TaskNotFoundError",
            "extra_info.task_path /none: there is no file /none/task.toml",
            "infrastructure",
        ),
    ],
)
async def test_why_there_is_no_answer(
    tmp_path: Path, runner: type[Runner], how: dict[str, Any], kind: str, words: str, cause: str
) -> None:
    found, _, made = await ran(runner, tmp_path, **how)
    assert isinstance(found, TrialFailed)
    assert (found.kind, str(found), found.cause) == (kind, words, cause)
    never = (
        "TailKilledError",
        "AgentNotCarriedError",
        "HarborConfigError",
    )  # they depend on the settings alone
    assert found.again is (kind not in never)
    assert len(made.asked) == ("answer" in how), "Harbor is not asked for what cannot be"


async def test_settings_that_harbor_would_not_take_are_named(tmp_path: Path, runner: type[Runner]) -> None:
    found, _, made = await ran(runner, tmp_path, agent=agent(tasks=str(tmp_path / "tasks"), agent_name="nop"))
    assert isinstance(found, TrialFailed) and not made.asked
    assert (found.kind, found.again) == ("HarborConfigError", False)
    assert str(found).startswith("harbor_agent.agent_name: ")


async def test_a_trial_that_becomes_late_while_it_runs(tmp_path: Path, runner: type[Runner]) -> None:
    made, late = runner(), asyncio.Event()

    def cancel(_: Path) -> Ended:
        late.set()
        return Ended(cancelled=True)

    runner.answer = staticmethod(cancel)
    given = trial(tmp_path, Place(made, late))  # type: ignore[arg-type]
    with pytest.raises(TrialFailed) as raised:
        await harbor.harbor(given, None, Conversation([]))  # type: ignore[arg-type]
    assert (raised.value.kind, raised.value.again) == ("TailKilledError", False)


@pytest.mark.parametrize(
    ("ended", "cause", "same"),
    [
        (Ended(exception=("AgentTimeoutError", "60 s")), "timeout", "timeout"),
        (Ended(exception=("KeyError", "x")), "exit", "KeyError"),
        (Ended(exception=("KeyError", "x"), retry=True), "infrastructure", "KeyError"),
        (Ended(exception=("ValueError", "no task"), begun=False), "infrastructure", "ValueError"),
        *(
            (Ended(exception=("NonZeroAgentExitCodeError", text), retry=True), cause, same)
            for text, cause, same in (
                ("exited with code 1", "exit", "exit 1"),
                ("Exit code: 137", "infrastructure", "exit 137"),
                ("exit status=2\nlong output", "exit", "exit 2"),
                ("it failed", "exit", "NonZeroAgentExitCodeError"),
                ("exit code 1370", "exit", "NonZeroAgentExitCodeError"),
            )
        ),
    ],
)
def test_who_caused_an_exception_of_harbors(ended: Ended, cause: str, same: str) -> None:
    assert ended.exception is not None
    found = failure(ended)
    assert (found.kind, str(found)) == ended.exception
    assert (found.cause, found.same, found.again) == (cause, same, True)


def phase(begin: str | None, end: str | None) -> dict[str, str]:
    times = {"started_at": begin, "finished_at": end}
    return {name: f"2026-01-01T00:00:{at}" for name, at in times.items() if at is not None}


@pytest.mark.parametrize(
    ("result", "seconds"),
    [
        ({}, 0.0),
        ({"environment_setup": phase("01Z", "09Z")}, 8.0),
        ({"environment_setup": phase("01Z", "09Z"), "agent_setup": phase("10Z", "12.5Z")}, 10.5),
        ({"environment_setup": phase("01Z", None), "agent_setup": phase("10Z", "12Z")}, 2.0),
        ({"environment_setup": phase(None, "01Z"), "agent_setup": None}, 0.0),
        ({"agent_setup": phase(None, None)}, 0.0),
        ({"agent_setup": phase("01Z", "02")}, 0.0),  # times of two kinds
        ({"agent_setup": phase("soon", "later")}, 0.0),
        ([], 0.0),
    ],
)
async def test_a_sandbox_that_is_being_made_is_waited_for(
    tmp_path: Path, runner: type[Runner], result: Any, seconds: float
) -> None:
    def write(directory: Path) -> Ended:
        (directory / "result.json").write_text(json.dumps(result))
        return Ended()

    _, conversation, _ = await ran(runner, tmp_path, write)
    assert conversation.waited_seconds == seconds


@pytest.mark.parametrize(("beyond", "seconds"), [(0, 8.0), (1, 0.0)])
async def test_a_result_of_more_than_16_mib_is_not_read(
    tmp_path: Path, runner: type[Runner], beyond: int, seconds: float
) -> None:
    def write(directory: Path) -> Ended:
        text = msgspec.json.encode({"environment_setup": phase("01Z", "09Z")})
        (directory / "result.json").write_bytes(text.ljust((16 << 20) + beyond))
        return Ended()

    _, conversation, _ = await ran(runner, tmp_path, write)
    assert conversation.waited_seconds == seconds


async def test_when_its_phases_began_is_written_while_it_runs(tmp_path: Path, runner: type[Runner]) -> None:
    def seen(directory: Path) -> Ended:
        assert json.loads((directory / "phases.json").read_text()) == {"setup": 5.0, "agent": 9.5}
        return Ended(rewards={"reward": 1.0})

    runner.phases = (("setup", 5.0), ("agent", 9.5), ("agent", 20.0))  # a task may have several steps
    found, _, _ = await ran(runner, tmp_path, seen)
    assert found == Result(1.0, True)


async def test_a_trial_goes_on_whose_phases_cannot_be_written(
    tmp_path: Path, runner: type[Runner], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(harbor, "write_json", full)
    runner.phases = (("setup", 5.0),)
    found, _, _ = await ran(runner, tmp_path, Ended(rewards={"reward": 1.0}))
    assert found == Result(1.0, True)
    assert "phases.json: No space left on device" in caplog.text
