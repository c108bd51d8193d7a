"""The files of a trial that has ended, compared as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from liverl.agents.loop import Conversation, Reply
from liverl.agents.trial_files import write_outcome
from liverl.version import __version__

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
BROKEN = {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{"}}
TOOLS = [{"type": "function", "function": {"name": "look"}}]
STARTED, FINISHED = "2023-11-14T22:13:20+00:00", "2023-11-14T22:13:21.500000+00:00"


def said(text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {})}


def result(name: str) -> dict[str, Any]:
    return {"source_call_id": name, "content": f"result of {name}"}


def write(folder: Path, conversation: Conversation, **more: Any) -> None:
    write_outcome(
        folder,
        conversation,
        **{
            "agent": "mine",
            "model": "policy",
            "tools": TOOLS,
            "reward": 0.5,
            "started": 1_700_000_000.0,
            "finished": 1_700_000_001.5,
            "exception": None,
            "facts": {"step": 3},
            **more,
        },
    )


def read(file: Path) -> Any:
    return json.loads(file.read_text())


def test_a_trajectory_has_one_step_for_each_message(tmp_path: Path) -> None:
    """Results of tools belong to the turn that called them; an example of a reply has no figures of a model's."""
    replies = [
        Reply(said("first", CALL, BROKEN), "tool_calls", [7, 8, 9], [-0.1, -0.2, -0.3], 11),
        Reply(said("second"), "stop", [5], [-0.5], 20),
    ]
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": "2 + 3?"},
        said("an example"),
        {"role": "user", "content": None},
        replies[0].message,
        {"role": "tool", "tool_call_id": "c1", "content": "result of c1"},
        {"role": "tool", "tool_call_id": "c2", "content": "result of c2"},
        replies[1].message,
    ]
    write(tmp_path, Conversation(messages, replies, tool_calls=2))

    def turn(reply: Reply) -> dict[str, Any]:
        return {
            "model_name": "policy",
            "llm_call_count": 1,
            "metrics": {
                "prompt_tokens": reply.prompt_tokens,
                "completion_tokens": len(reply.token_ids),
                "completion_token_ids": reply.token_ids,
                "logprobs": reply.logprobs,
                "extra": {"finish_reason": reply.finish_reason},
            },
        }

    called = [
        {"tool_call_id": "c1", "function_name": "look", "arguments": {"at": 1}},
        {"tool_call_id": "c2", "function_name": "look", "arguments": {"unreadable": "{"}},
    ]
    assert read(tmp_path / "agent" / "trajectory.json") == {
        "schema_version": "ATIF-v1.8",
        "session_id": tmp_path.name,
        "agent": {
            "name": "mine",
            "version": __version__,
            "model_name": "policy",
            "tool_definitions": TOOLS,
        },
        "steps": [
            {"step_id": 1, "source": "system", "message": "be brief"},
            {"step_id": 2, "source": "user", "message": "2 + 3?"},
            {"step_id": 3, "source": "agent", "message": "an example"},
            {"step_id": 4, "source": "user", "message": ""},
            {
                "step_id": 5,
                "source": "agent",
                "message": "first",
                "tool_calls": called,
                "observation": {"results": [result("c1"), result("c2")]},
                **turn(replies[0]),
            },
            {"step_id": 6, "source": "agent", "message": "second", **turn(replies[1])},
        ],
    }


def test_the_result_of_a_trial(tmp_path: Path) -> None:
    conversation = Conversation([], [], tool_calls=2, retries=3, ended_by="submit", overridden={"top_k": 5})
    write(tmp_path, conversation)
    expected = {
        "trial_name": tmp_path.name,
        "verifier_result": {"rewards": {"reward": 0.5}},
        "exception_info": None,
        "started_at": STARTED,
        "finished_at": FINISHED,
        "turns": 0,
        "tool_calls": 2,
        "ended_by": "submit",
        "retries": 3,
        "overridden": {"top_k": 5},
        "step": 3,
    }
    assert read(tmp_path / "result.json") == expected
    assert (tmp_path / "verifier" / "reward.txt").read_text() == "0.5\n"
    info = {"exception_type": "X"}
    write(tmp_path, Conversation([], ended_by="submit"), exception=info, reward=None, facts={"turns": 4})
    found = read(tmp_path / "result.json")
    assert (found["ended_by"], found["exception_info"]) == ("exception", info)
    assert (found["verifier_result"], found["turns"], "overridden" in found) == (None, 4, False)


def test_a_conversation_that_is_not_known_is_not_written(tmp_path: Path) -> None:
    write(tmp_path, Conversation([said("x")]), tools=None, reward=None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.json"]


def test_the_result_of_a_trial_that_harbor_ran_stays_harbors(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    write(tmp_path, Conversation([]), tools=None, harbor={"task": "t"})
    assert read(tmp_path / "result.json") == {} and not (tmp_path / "verifier").exists()
    facts = read(tmp_path / "liverl.json")
    assert (facts["task"], facts["result"]["step"]) == ("t", 3)
    (tmp_path / "result.json").unlink()
    write(tmp_path, Conversation([]), tools=None, harbor={"task": "t"})
    assert read(tmp_path / "result.json") == facts["result"]
