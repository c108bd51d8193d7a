"""The worker's side of Harbor's process, with a double of that process: what is sent, and what its end means."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from liverl.agents.loop import TrialFailed
from liverl.verl_runtime.kinds import harbor_runner
from liverl.verl_runtime.kinds.harbor import reward_of
from liverl.verl_runtime.kinds.harbor_runner import Ended, HarborRunner, RunnerDied

# Answers by the name of the trial; what it gets goes to the file ``got``.
DOUBLE = """
import json, os, sys, time

def tell(**event):
    print(json.dumps(event), flush=True)

def ended(trial, **more):
    tell(**{"event": "ended", "trial": trial, "rewards": None, "exception": None, "retry": False, "cancelled": False,
            **more})

got = open(os.environ["GOT"], "a")
got.write(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ)}) + "\\n")
tell(event="ready", harbor="0")
for line in sys.stdin:
    got.write(line)
    got.flush()
    request = json.loads(line)
    trial = request.get("trial") or request["config"]["trial_name"]
    if request["do"] == "cancel":
        if trial != "deaf":
            ended(trial, cancelled=True)
    elif trial == "phases":
        tell(event="phase", trial="another", phase="setup", at=1.0)
        tell(event="phase", trial=trial, phase="setup", at=2.5)
        tell(event="phase", trial=trial, phase="agent", at=7)
        ended(trial, rewards={"reward": 0.5})
    elif trial == "good":
        tell(event="ended", trial="another", rewards={"reward": 9})
        ended(trial, rewards={"reward": 0.5})
    elif trial == "bad":
        ended(trial, exception=["KeyError", "x"], retry=True)
    elif trial == "unmade":
        tell(event="failed", trial=trial, exception=["ValueError", "no task"])
    elif trial == "dies":
        print("first\\nlast words", file=sys.stderr, flush=True)
        os._exit(5)
"""


@pytest.fixture
def got(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """What the double was started with and sent."""
    file = tmp_path / "got"
    monkeypatch.setenv("GOT", str(file))
    return lambda: [json.loads(line) for line in file.read_text().splitlines()]


def program(folder: Path, text: str) -> str:
    """An interpreter that does the same whatever it is to run."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
async def runner(tmp_path: Path, got: Any) -> AsyncIterator[HarborRunner]:
    made = HarborRunner(program(tmp_path, DOUBLE), 3, tmp_path / "log", {"MINE": "1"})
    yield made
    await made.close()


def run(
    runner: HarborRunner, name: str, seconds: float = 60.0, late: asyncio.Event | None = None
) -> asyncio.Future[Ended]:
    deadline = asyncio.get_running_loop().time() + seconds
    return asyncio.ensure_future(runner.run({"trial_name": name}, deadline, late or asyncio.Event()))


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_trials_end_as_the_process_says(runner: HarborRunner) -> None:
    good, bad, unmade = await asyncio.gather(*(run(runner, name) for name in ("good", "bad", "unmade")))
    assert good == Ended(rewards={"reward": 0.5})
    assert bad == Ended(exception=("KeyError", "x"), retry=True)
    assert unmade == Ended(exception=("ValueError", "no task"), begun=False)


async def test_a_trial_is_told_its_phases_as_they_begin(runner: HarborRunner) -> None:
    told: list[tuple[str, float]] = []
    late = asyncio.get_running_loop().time() + 60
    ended = await runner.run(
        {"trial_name": "phases"}, late, asyncio.Event(), lambda phase, at: told.append((phase, at))
    )
    assert told == [("setup", 2.5), ("agent", 7.0)] and ended == Ended(rewards={"reward": 0.5})
    assert await run(runner, "phases") == ended, "nobody has to listen"


async def test_how_the_process_is_started(
    runner: HarborRunner, got: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-user")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "of-the-user")
    monkeypatch.setenv("PYTHONPATH", "/modules")
    await asyncio.gather(run(runner, "good"), run(runner, "bad"))
    started, *sent = got()
    assert [request["config"]["trial_name"] for request in sent] == ["good", "bad"]  # one process for both
    words, env = started["argv"], started["env"]
    assert words[0] == "-P" and Path(words[1]).name == "runner.py" and Path(words[1]).is_file()
    assert words[2:4] == ["--concurrent", "3"] and words[4] == "--module"
    name, _, file = words[5].partition("=")
    assert name == "liverl_local_environment" and Path(file).is_file()
    assert (env["MINE"], env["PYTHONPATH"], env["HARBOR_TELEMETRY"]) == ("1", "/modules", "0")
    assert env["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert not {"OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN"} & env.keys()


async def test_a_trial_whose_time_is_over_is_cancelled(
    runner: HarborRunner, got: Callable[[], list[dict[str, Any]]]
) -> None:
    assert await run(runner, "waits", seconds=0.2) == Ended(cancelled=True)
    assert got()[-1] == {"do": "cancel", "trial": "waits"}


async def test_a_late_trial_is_cancelled(runner: HarborRunner) -> None:
    late = asyncio.Event()
    waits = run(runner, "waits", late=late)
    await run(runner, "good")
    assert not waits.done()
    late.set()
    assert await waits == Ended(cancelled=True)


async def test_a_cancelled_caller_cancels_its_trial(
    runner: HarborRunner, got: Callable[[], list[dict[str, Any]]]
) -> None:
    waits = run(runner, "waits")
    await run(runner, "good")
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    await until(lambda: got()[-1] == {"do": "cancel", "trial": "waits"})


async def test_the_end_of_the_process_fails_its_trials_and_the_next_one_has_another(
    runner: HarborRunner,
) -> None:
    waits = run(runner, "waits")
    await run(runner, "good")
    dies = run(runner, "dies")
    for one in (waits, dies):
        with pytest.raises(RunnerDied, match=r"^Harbor's process exited with 5: first \| last words$"):
            await one
    assert (await run(runner, "good")).rewards == {"reward": 0.5}


async def test_a_process_that_does_not_cancel_is_killed(
    runner: HarborRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harbor_runner, "CANCEL_S", 0.2)
    with pytest.raises(RunnerDied, match=r"was ended by signal 9; it printed nothing$"):
        await run(runner, "deaf", seconds=0.1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import sys; sys.exit('no module named harbor')", r"exited with 1: no module named harbor$"),
        ("import os; os.kill(os.getpid(), 15)", r"was ended by signal 15; it printed nothing$"),
    ],
)
async def test_a_process_that_cannot_begin(tmp_path: Path, text: str, why: str) -> None:
    runner = HarborRunner(program(tmp_path, text), 1, tmp_path / "log", {})
    for _ in range(2):  # the second one shows its own words only
        with pytest.raises(RunnerDied, match=f"^Harbor's process {why}"):
            await run(runner, "good")
    await runner.close()


async def test_a_process_that_never_says_that_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harbor_runner, "_READY_S", 0.2)
    runner = HarborRunner(program(tmp_path, "import time; time.sleep(60)"), 1, tmp_path / "log", {})
    with pytest.raises(RunnerDied, match="was ended by signal 9"):
        await run(runner, "good")


async def test_an_interpreter_that_is_none(tmp_path: Path) -> None:
    runner = HarborRunner(str(tmp_path / "none"), 1, tmp_path / "log", {})
    with pytest.raises(RunnerDied, match="none cannot be started: No such file or directory"):
        await run(runner, "good")
    await runner.close()


# --- rewards ----------------------------------------------------------------------------------------------------------


def test_the_reward_that_is_trained() -> None:
    assert reward_of({"reward": 0.5, "style": 2}) == 0.5 and reward_of({"score": 0.25}) == 0.25
    with pytest.raises(TrialFailed, match="the rewards speed, style; expected one of the name reward"):
        reward_of({"style": 1, "speed": 2})
