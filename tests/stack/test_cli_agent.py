"""The example of mini-swe-agent: its package, as it is installed, against sessions in front of a scripted replica.

LIVERL_TEST_MINI_SWE_AGENT names the Python of an environment with ``mini-swe-agent`` and ``mcp``.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.own_runs import Trials
from kit.real import records
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica, call_text
from kit.trained import rows_of, sampled_parts

from liverl.embedded.tokenizer import EOS_ID, decode
from liverl.sessions.joined_turns import recorded_requests

PYTHON = os.environ.get("LIVERL_TEST_MINI_SWE_AGENT", "")
EXAMPLE = Path(__file__).parents[2] / "examples" / "mini_swe_agent"

pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="LIVERL_TEST_MINI_SWE_AGENT names no Python with mini-swe-agent"),
]


def script(prompt: str, _turn: int) -> str:
    """What the model writes: a file, with another word where it is asked for cedar; a reply without a call; the end."""
    if "No tool calls found" in prompt:
        return call_text("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    if "returncode 0" in prompt:
        return "I am done."
    return "I write it. " + call_text("bash", command="echo maple > notes.txt")


def asked_for(word: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages and the columns of a row."""
    message = {"role": "user", "content": f"Write the word {word} into the file notes.txt"}
    return [message], {"reward_model": {"style": "rule", "ground_truth": f"notes.txt {word}"}}


async def test_its_turns_are_in_its_trial_and_each_sampled_token_is_once_in_its_rows(tmp_path: Path) -> None:
    settings = yaml.safe_load((EXAMPLE / "config.yaml").read_text())["agent"]
    installed = {
        "MINI_SWE_AGENT": str(Path(PYTHON).with_name("mini")),
        "MINI_SWE_AGENT_CONFIG": str(EXAMPLE / "mini.yaml"),
        "MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path / "mini"),
    }
    agent = {
        "command": tuple(str(EXAMPLE / word) for word in settings["command"]),
        "verifier": tuple(str(EXAMPLE / word) for word in settings["verifier"]),
        "env": {**settings["env"], **installed},
    }
    replica = TokenReplica(script)
    host = SessionHost(tmp_path)
    host.urls = [await replica.start()]
    await host.start()
    try:
        trials = Trials(tmp_path, host, agent)
        words = ("maple", "cedar")
        runs = []
        for word in words:
            messages, columns = asked_for(word)
            runs.append(trials.run(messages, row=columns, trial_timeout=200.0))
        outcomes = await asyncio.gather(*runs)
    finally:
        await host.stop()
        await replica.stop()

    trained = []
    for word, outcome in zip(words, outcomes, strict=True):
        folder = outcome.files.directory
        told = trials.result(outcome)
        log = (folder / "agent" / "agent.log").read_text()
        assert told["exception_info"] is None, log
        assert told["verifier_result"]["rewards"]["reward"] == (1.0 if word == "maple" else 0.0)
        assert (folder / "work" / "notes.txt").read_text() == "maple\n"
        story = json.loads((folder / "agent" / "mini-swe-agent.traj.json").read_text())
        assert story["info"]["exit_status"] == "Submitted"

        turns = records(folder)
        assert [turn["success"] for turn in turns] == [True] * 3
        requests = [turn.request for turn in recorded_requests(folder / "litellm-trajectory.jsonl")]
        assert len(requests) == 3
        assert all(request and f"the word {word} into" in str(request.messages) for request in requests)
        # Its third request leaves the reply without a call out: a changed history, which is a row of its own.
        proxied = rows_of(folder)
        assert [row["kind"] for row in proxied] == ["main", "rewrite"]
        assert [len(sampled_parts(row)) for row in proxied] == [2, 1]
        assert told["turns_trained"] == 3
        trained += [part for row in proxied for part in sampled_parts(row)]
    assert sorted(trained) == sorted(replica.replies)
    texts = [decode(token for token in part if token != EOS_ID) for part in trained]
    assert texts.count("I am done.") == 2
