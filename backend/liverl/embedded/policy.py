"""The policy: a table of logits over tool calls, by state of the conversation.

Shared by engine and trainer. A state is ``<family of the instruction>|<last tool>|<its outcome>``, derived
from the messages alone; arguments of calls are derived from instruction and observations. Missing logits are
0.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from liverl.agents.chat_api import text_of
from liverl.agents.tasks import Goal, read_goal
from liverl.agents.tools import TOOL_NAMES
from liverl.embedded.tokenizer import decision

Logits = dict[str, dict[str, float]]
Message = Mapping[str, Any]


class Policy:
    """``version`` counts optimiser steps: the trainer's global step."""

    def __init__(self, logits: Logits | None = None, version: int = 0) -> None:
        self.logits: Logits = logits or {}
        self.version = version

    def probabilities(self, state: str, actions: Sequence[str], temperature: float) -> list[float]:
        """Return the softmax of the logits of ``actions`` at ``temperature``; 0 = greedy."""
        row = self.logits.get(state, {})
        values = [row.get(action, 0.0) for action in actions]
        top = max(values)
        if temperature <= 0:
            best = values.index(top)
            return [float(i == best) for i in range(len(values))]
        weights = [math.exp((value - top) / temperature) for value in values]
        total = math.fsum(weights)
        return [weight / total for weight in weights]

    def token_logprobs(self, state: str, tokens: Sequence[int], temperature: float) -> list[float]:
        """Return the log-probability of each token of a turn: non-zero only for the tool's name, which is the
        choice."""
        logprobs = [0.0] * len(tokens)
        choice = decision(tokens)
        if choice is not None:
            position, name = choice
            probability = self.probabilities(state, TOOL_NAMES, temperature)[TOOL_NAMES.index(name)]
            logprobs[position] = math.log(max(probability, 1e-300))
        return logprobs

    def digest(self) -> str:
        """Return the SHA-256 of the logits: two policies that always act the same way have the same digest, and a
        policy that passed through JSON keeps it."""
        digest = hashlib.sha256()
        for state in sorted(self.logits):
            row = self.logits[state]
            for action in sorted(row):
                digest.update(json.dumps([state, action]).encode())
                digest.update(struct.pack(">d", row[action]))
        return digest.hexdigest()

    def parameters(self) -> int:
        """Number of logits."""
        return sum(len(row) for row in self.logits.values())


def goal_of(messages: Sequence[Message]) -> Goal:
    """Return the goal in the first user message."""
    for message in messages:
        if message.get("role") == "user":
            return read_goal(text_of(message.get("content")))
    return Goal(kind="other")


def calls_with_results(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """Yield (tool name, observation) of each answered call, in order."""
    names: dict[str, str] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            names[call.get("id", "")] = (call.get("function") or {}).get("name", "")
        if message.get("role") == "tool":
            yield names.get(message.get("tool_call_id", ""), ""), text_of(message.get("content"))


def state_of(messages: Sequence[Message]) -> str:
    """Return the key of the row of logits for the next call."""
    last, outcome = "start", "ok"
    for name, result in calls_with_results(messages):
        last, outcome = name, "error" if result.startswith("error") else "ok"
    return f"{goal_of(messages).kind}|{last}|{outcome}"


def arguments_for(
    name: str, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the arguments that the policy writes for a call of ``name``, as far as known from the messages."""
    goal = goal_of(messages)
    listed, content = "", ""
    for tool, result in calls_with_results(messages):
        if tool == "list_files" and goal.suffix:
            listed = next((f for f in result.splitlines() if f.endswith(goal.suffix)), "")
        elif tool == "read_file":
            content = result
    source = goal.path or listed or f"file{goal.suffix or '.txt'}"
    if name == "list_files":
        return {"path": "."}
    if name == "read_file":
        return {"path": source}
    if name == "write_file":
        if goal.kind == "total":
            total = sum(int(number) for number in re.findall(r"^\d+$", content, re.MULTILINE))
            return {"path": goal.target, "content": f"{total}\n"}
        return {"path": goal.target or source, "content": f"{goal.new}\n"}
    if name == "replace_text":
        return {"path": source, "old": goal.old, "new": goal.new}
    if name == "move_file":
        return {"source": source, "destination": f"{goal.target or 'archive'}/{source}"}
    return _blank_arguments(name, tools)


def _blank_arguments(name: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return empty values of the right types for the required arguments of an unknown tool."""
    empty: dict[str, Any] = {"integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
    for tool in tools:
        function = tool.get("function") or {}
        if function.get("name") == name:
            schema = function.get("parameters") or {}
            properties = schema.get("properties") or {}
            return {
                key: empty.get((properties.get(key) or {}).get("type", "string"), "")
                for key in schema.get("required") or ()
            }
    return {}


def dump_logits(logits: Logits) -> str:
    """Return the logits as JSON with floats in full precision, so that replicas have exactly the trainer's
    weights."""
    return json.dumps(logits)
