"""The files of a trial: liverl.json, agent/trajectory.json, verifier/reward.txt, result.json.

The directory of a trial is given by its resolved path: one that an agent has replaced by a link is not written.
Shared by the embedded trainer and verl's agent loop; imports no more than ``liverl.agents.loop`` does.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from liverl.agents.loop import Conversation, Reply, TrialFailed
from liverl.util.atomic_file import write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.checked_path import RESOLVED
from liverl.util.decode import decode_json
from liverl.util.json_file import write_json
from liverl.util.modes import make_directory
from liverl.version import __version__

FACTS, RESULT = "liverl.json", "result.json"
# ATIF's sources, by the role of a message; every other role is the user's.
_SOURCES = {"assistant": "agent", "system": "system", "developer": "system"}


def exception_info(error: TrialFailed, told: str = "", at: float | None = None) -> dict[str, str]:
    """Return the exception part of result.json for a failed trial. ``told``: the traceback; "": that of the exception
    which is being handled; ``at``: Unix seconds of the failure, None: now."""
    return {
        "exception_type": error.kind,
        "exception_message": str(error),
        "exception_traceback": told or traceback.format_exc(),
        "occurred_at": _iso(time.time() if at is None else at),
    }


def write_facts(directory: Path, facts: Mapping[str, Any]) -> None:
    """Write ``liverl.json``: task, step and position in the batch. config.json is Harbor's.

    Raises:
        OSError: it cannot be written.
    """
    write_json(directory / FACTS, facts, inside=RESOLVED)


def write_outcome(
    directory: Path,
    conversation: Conversation,
    *,
    agent: str,
    model: str,
    tools: Sequence[Mapping[str, Any]] | None,
    reward: float | None,
    started: float,
    finished: float,
    exception: Mapping[str, str] | None,
    facts: Mapping[str, Any],
    harbor: Mapping[str, Any] | None = None,
) -> None:
    """Write the files of a finished trial; result.json comes last and marks it as finished.

    ``tools``: the schemas that the model was offered; None: the conversation is not known, and not written. Times are
    Unix seconds; ``reward``: None if it is not known; ``facts`` are further keys of result.json, and replace those from
    the conversation; ``harbor``: of a trial that Harbor ran, what its liverl.json says, which gets the result too:
    result.json is Harbor's, unless it has written none.

    Raises:
        OSError: a file cannot be written.
    """
    if tools is not None:
        _write_story(directory, conversation, agent, model, tools)
    result = {
        "trial_name": directory.name,
        "verifier_result": None if reward is None else {"rewards": {"reward": reward}},
        "exception_info": exception,
        "started_at": _iso(started),
        "finished_at": _iso(finished),
        "turns": len(conversation.replies),
        "tool_calls": conversation.tool_calls,
        "ended_by": "exception" if exception else conversation.ended_by,
        "retries": conversation.retries,
        **({"overridden": conversation.overridden} if conversation.overridden else {}),
        **facts,
    }
    if harbor is not None:
        write_facts(directory, {**harbor, "result": result})
        if os.path.lexists(directory / RESULT):
            return
    elif reward is not None:
        make_directory(directory / "verifier", inside=RESOLVED)
        reward_file = directory / "verifier" / "reward.txt"
        write_atomic(reward_file, f"{reward}\n".encode(), sync=False, inside=RESOLVED)
    write_json(directory / RESULT, result, inside=RESOLVED)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat()  # noqa: UP017 (datetime.UTC is 3.11's)


def _write_story(
    directory: Path, conversation: Conversation, agent: str, model: str, tools: Sequence[Mapping[str, Any]]
) -> None:
    """Write ``agent/trajectory.json`` in ATIF: one step per message, observations within the turn that caused
    them."""
    steps: list[dict[str, Any]] = []
    for message, reply in zip(conversation.messages, _replies(conversation), strict=True):
        role = message.get("role")
        if role == "tool" and steps and steps[-1]["source"] == "agent":
            observation = steps[-1].setdefault("observation", {"results": []})
            observation["results"].append(
                {"source_call_id": message.get("tool_call_id", ""), "content": message.get("content") or ""}
            )
            continue
        step: dict[str, Any] = {
            "step_id": len(steps) + 1,
            "source": _SOURCES.get(str(role), "user"),
            "message": message.get("content") or "",
        }
        if role == "assistant":
            _add_turn(step, message, reply, model)
        steps.append(step)
    make_directory(directory / "agent", inside=RESOLVED)
    write_json(
        directory / "agent" / "trajectory.json",
        {
            "schema_version": "ATIF-v1.8",
            "session_id": directory.name,
            "agent": {
                "name": agent,
                "version": __version__,
                "model_name": model,
                "tool_definitions": list(tools),
            },
            "steps": steps,
        },
        inside=RESOLVED,
    )


def _replies(conversation: Conversation) -> list[Reply | None]:
    """The reply that each message is; None for one that the model has not written in this trial."""
    left = list(conversation.replies)
    found: list[Reply | None] = []
    # From the end: an agent may have dropped earlier turns, and a row may begin with examples of replies.
    for message in reversed(conversation.messages):
        words = _said(message)
        at = next((n for n in reversed(range(len(left))) if _said(left[n].message) == words), None)
        found.append(None if at is None else left[at])
        del left[len(left) if at is None else at :]
    return found[::-1]


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    """What a message says, without fields that an agent may have left out or added."""
    return {key: message[key] for key in ("role", "content", "tool_calls") if message.get(key)}


def _add_turn(step: dict[str, Any], message: dict[str, Any], reply: Reply | None, model: str) -> None:
    calls = [
        {
            "tool_call_id": call.get("id", ""),
            "function_name": str(function.get("name")),
            "arguments": _arguments(function.get("arguments")),
        }
        for call in message.get("tool_calls") or ()
        for function in (call.get("function") or {},)
    ]
    if calls:
        step["tool_calls"] = calls
    if reply is None:
        return
    step["model_name"] = model
    step["llm_call_count"] = 1
    step["metrics"] = {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": len(reply.token_ids),
        "completion_token_ids": reply.token_ids,
        "logprobs": reply.logprobs,
        "extra": {"finish_reason": reply.finish_reason},
    }


def _arguments(text: str | None) -> Any:
    try:
        return decode_json(text or "{}")
    except BAD_JSON:
        return {"unreadable": text}
