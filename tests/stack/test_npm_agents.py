"""The examples of Claude Code and qwen-code: their packages against sessions in front of a scripted replica.

npm installs them at the first use, beside the environments of the components.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.npm import installed
from kit.own_runs import Trials
from kit.real import records
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica, call_text
from kit.trained import rows_of, sampled_parts

from liverl.embedded.tokenizer import EOS_ID, decode

pytestmark = [pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"
LAST = "The word is written."
# tokens of the context: their own prompts and tools have up to 40,000 of this small tokenizer's
ROOM = 200_000


def script(tool: str, prompt: str) -> str:
    """What the model writes: a file by its shell, then a word; asked beside the task (a title, memories), the word."""
    if "into the file notes.txt" not in prompt or "done-and-seen" in prompt or LAST in prompt:
        return LAST
    words = {"command": "echo maple > notes.txt; echo done-and-s''een", "description": "Write the word"}
    return "I write it. " + call_text(tool, **words)


@pytest.mark.parametrize(
    ("example", "folder", "package", "program", "variable", "tool"),
    [
        ("claude_code", "claude-code", "@anthropic-ai/claude-code", "claude", "CLAUDE_CODE", "Bash"),
        ("qwen_code", "qwen-code", "@qwen-code/qwen-code", "qwen", "QWEN_CODE", "run_shell_command"),
    ],
    ids=["Claude Code", "qwen-code"],
)
async def test_its_turns_are_in_its_trial_and_its_reward_is_the_verifier_s(
    example: str, folder: str, package: str, program: str, variable: str, tool: str, tmp_path: Path
) -> None:
    place = EXAMPLES / example
    settings = yaml.safe_load((place / "config.yaml").read_text())["agent"]
    assert settings["env"][variable].endswith(f"/node_modules/.bin/{program}")
    own: dict[str, Any] = {
        "command": tuple(str(place / word) for word in settings["command"]),
        "verifier": tuple(str(place / word) for word in settings["verifier"]),
        "env": {**settings["env"], variable: str(installed(folder, package) / ".bin" / program)},
    }
    replica = TokenReplica(lambda prompt, _turn: script(tool, prompt), context=ROOM)
    host = SessionHost(tmp_path, body_limit=32 << 20)
    host.urls = [await replica.start()]
    await host.start()
    try:
        trials = Trials(tmp_path, host, own)
        for word, reward in (("maple", 1.0), ("cedar", 0.0)):
            outcome = await trials.run(
                [{"role": "user", "content": f"Write the word {word} into the file notes.txt"}],
                row={"reward_model": {"style": "rule", "ground_truth": f"notes.txt {word}"}},
                trial_timeout=200.0,
                prompt_length=ROOM // 2,
                response_length=ROOM // 2,
            )
            log = (outcome.files.directory / "agent" / "agent.log").read_text()
            told = trials.result(outcome)
            assert told["exception_info"] is None, log
            assert LAST in log
            assert (outcome.files.directory / "work" / "notes.txt").read_text() == "maple\n"
            assert told["verifier_result"]["rewards"]["reward"] == reward
            assert [turn for turn in records(outcome.files.directory) if not turn["success"]] == []
            texts = [
                decode(token for token in part if token != EOS_ID)
                for row in rows_of(outcome.files.directory)
                for part in sampled_parts(row)
            ]
            assert LAST in texts and any(tool in text and "notes.txt" in text for text in texts)
    finally:
        await host.stop()
        await replica.stop()
