"""What is said of a user's program or class that failed, and how long it may take, with real programs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from liverl.agents.kinds import AgentSettings
from liverl.agents.loop import Conversation, TrialFailed
from liverl.util import clocks
from liverl.verl_runtime.carriers import Endpoints, Lengths, Line
from liverl.verl_runtime.kinds import command
from liverl.verl_runtime.kinds.base import Trial
from liverl.verl_runtime.kinds.command import verify
from liverl.verl_runtime.kinds.python import python
from liverl.verl_runtime.kinds.rewards import read_reward
from liverl.verl_runtime.kinds.talking import talk_of


def trial(folder: Path, seconds: float = 60.0, **agent: Any) -> Trial:
    """``seconds``: until its time is over."""
    (folder / "agent").mkdir(exist_ok=True)
    now = clocks.ran()
    return Trial(
        name="t",
        directory=folder,
        messages=[],
        row={},
        line=Line("http://h", {}, endpoints=Endpoints("http://h/v1", "http://h", "sk")),
        request={"model": "policy"},
        max_turns=5,
        began=now,
        deadline=now + seconds,
        agent=AgentSettings(**agent),
        lengths=Lengths(40, 60, 7),
    )


@pytest.mark.parametrize(
    ("script", "words", "cause", "same"),
    [
        ("exit 3", "exited with 3; it printed nothing", "exit", "exit 3"),
        ("echo; echo ' a '; echo b; echo; exit 1", "exited with 1: a | b", "exit", "exit 1"),
        ("for n in 1 2 3 4 5; do echo $n; done; exit 1", "exited with 1: 3 | 4 | 5", "exit", "exit 1"),
        ("echo out; echo err >&2; exit 2", "exited with 2: out | err", "exit", "exit 2"),
        ("kill -15 $$", "was ended by signal 15; it printed nothing", "exit", "exit 143"),
        ("echo x; kill -9 $$", "was ended by signal 9: x", "infrastructure", "exit 137"),
        ("exit 127", "exited with 127; it printed nothing", "infrastructure", "exit 127"),
    ],
)
async def test_how_a_verifier_failed(tmp_path: Path, script: str, words: str, cause: str, same: str) -> None:
    with pytest.raises(TrialFailed) as raised:
        await verify(trial(tmp_path, verifier=("sh", "-c", script)), Conversation([]))
    found = raised.value
    assert (found.kind, str(found)) == ("VerifierFailedError", f"the verifier {words}")
    assert (found.cause, found.same) == (cause, f"verifier {same}")


async def test_a_verifier_has_ten_minutes_whatever_the_agent_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    async def hang(*args: Any) -> int:
        given.append(args[5])
        raise TimeoutError

    monkeypatch.setattr(command, "run_program", hang)
    with pytest.raises(TrialFailed, match=r"^the verifier took longer than 600 s$") as raised:
        await verify(trial(tmp_path, seconds=-5.0, verifier=("true",)), Conversation([]))
    assert given == [600.0]
    assert (raised.value.kind, raised.value.cause) == ("VerifierTimeoutError", "exit")
    assert raised.value.same == "verifier timeout"


class Agent:
    """A user's class that needs a moment for its reward."""

    async def run(self, task: Any, chat: Any, work: Path) -> float:
        await asyncio.sleep(0.05)
        return 0.5


async def test_an_agent_whose_time_was_over_before_it_began(tmp_path: Path) -> None:
    for name in ("in_time", "late"):
        (tmp_path / name).mkdir()
    own = {"python": f"{__name__}:Agent"}
    result = await python(trial(tmp_path / "in_time", **own), None, Conversation([]))  # type: ignore[arg-type]
    assert result.reward == 0.5
    with pytest.raises(TrialFailed, match=r"^the agent took longer than 0 s$") as raised:
        await python(trial(tmp_path / "late", seconds=-5.0, **own), None, Conversation([]))  # type: ignore[arg-type]
    assert (raised.value.kind, raised.value.cause) == ("AgentTimeoutError", "timeout")


def test_a_conversation_has_the_time_that_is_left(tmp_path: Path) -> None:
    talk = talk_of(trial(tmp_path, seconds=90.0))
    assert 60 < talk.timeout <= 90 and talk_of(trial(tmp_path, seconds=-5.0)).timeout == 0.0
    assert (talk.chat_url, talk.request, talk.max_turns, talk.tokens) == (
        "http://h",
        {"model": "policy"},
        5,
        True,
    )


def test_a_file_that_is_longer_than_a_number_is_no_reward(tmp_path: Path) -> None:
    """The end that is not read could say something else."""
    file = tmp_path / "reward.txt"
    file.write_text("0.5".ljust(4096))
    assert read_reward(file) == 0.5
    for text in ("0.5".ljust(4097), "0.5".ljust(5000) + "0.7", "0." + "0" * 4094 + "9", "é" * 2049):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(
            TrialFailed, match=r"^the reward in reward\.txt is longer than 4096 bytes"
        ) as raised:
            read_reward(file)
        assert raised.value.kind == "RewardError"
