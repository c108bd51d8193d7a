"""docs/guides/your-agent.md: its program runs as a trial's agent against real sessions; its configuration names it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kit.mentions import ROOT
from kit.own_runs import Trials
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from liverl.config import ConfigError, load_config
from liverl.verl_runtime.kinds.command import environment

PAGE = (ROOT / "docs" / "guides" / "your-agent.md").read_text("utf-8")


def script(_prompt: str, turn: int) -> str:
    return "FINAL 5" if turn == 2 else f"I think of 7, step {turn}"


def block(language: str, holds: str = "") -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (one,) = (str(text) for text in found if holds in text)
    return one


@pytest.mark.parametrize(("truth", "reward"), [("5", 1.0), ("7", 0.0)])
async def test_its_program_is_an_agent_whose_replies_are_trained_with_the_reward_that_it_writes(
    truth: str, reward: float, tmp_path: Path, host: SessionHost, replica: TokenReplica
) -> None:
    run = Trials(tmp_path, host, {})
    run.agent = type(run.agent)(command=run.script("my_agent", block("python")))
    outcome = await run.run(row={"reward_model": {"ground_truth": truth}})
    assert (outcome.exception, outcome.reward) == (None, reward)
    (only,) = outcome.rows
    sampled = [token for token, bit in zip(only.response, only.mask, strict=True) if bit]
    assert only.turns == 3 and sampled == [token for reply in replica.replies for token in reply]


def test_its_configuration_names_the_program_beside_it(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(block("yaml", "train_index"), "utf-8")
    found = load_config(tmp_path / "agent.yaml", profile="cpu-verl", env={})
    assert found.config.agent.command == ("./my_agent.py",) and found.config.trainer.kind == "verl"
    assert f"save this as `{found.config.agent.command[0].removeprefix('./')}`" in PAGE.lower()


def test_a_key_reaches_the_program_by_a_file_and_not_by_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(block("yaml", "JUDGE_KEY_FILE"), "utf-8")
    env = load_config(file, profile="cpu-verl", env={}).config.agent.env
    assert f'os.environ["{next(name for name in env if "KEY" in name)}"]' in PAGE
    file.write_text(file.read_text("utf-8").replace("JUDGE_KEY_FILE", "JUDGE_API_KEY"), "utf-8")
    with pytest.raises(ConfigError) as refused:
        load_config(file, profile="cpu-verl", env={})
    told = str(refused.value)
    assert "agent.env.JUDGE_API_KEY: a secret would be saved with the run" in told
    assert [line for line in told.splitlines()[2:] if line not in PAGE] == []


def test_the_variables_that_it_names_are_those_of_a_trial() -> None:
    source = Path(environment.__code__.co_filename).read_text("utf-8")
    named = set(re.findall(r"(?:OPENAI|ANTHROPIC|LIVERL)_[A-Z_]+", PAGE))
    assert len(named) > 8 and [name for name in named if f'"{name}"' not in source] == []
