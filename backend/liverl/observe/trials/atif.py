"""``agent/trajectory.json`` in ATIF: what Harbor's agents, and ours, write of their conversation. Pure.

A step is a message of user, system or agent; results of tools are in the step that asked for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from liverl.observe.trials.moments import moment, whole
from liverl.observe.trials.preview import call_preview, text_preview
from liverl.observe.trials.records import ProxyTrajectory, count, parse_object
from liverl.observe.trials.turns import Turn, turns_of_messages

ATIF = "agent/trajectory.json"
_ROLES = {"agent": "assistant", "system": "system", "user": "user"}


def atif_counts(data: bytes) -> ProxyTrajectory | None:
    """Counts of the agent's steps; None if it is not of this format. Without a tool call and without tools it is not
    known whether the agent could have called one."""
    document = parse_object(data)
    if document is None or not isinstance(document.get("steps"), list):
        return None
    spoken = [step for step in _steps(document) if step.get("source") == "agent"]
    calls = [call for step in spoken for call in _objects(step.get("tool_calls"))]
    offered = _offered(document)
    last = spoken[-1] if spoken else {}
    last_calls = _objects(last.get("tool_calls"))
    return ProxyTrajectory(
        turns=len(spoken),
        tool_calls=len(calls) if calls or offered else None,
        completion_tokens=sum(count(_metrics(step).get("completion_tokens")) for step in spoken),
        written="" if calls else "\n".join(_text(step.get("message")) for step in spoken),
        preview=call_preview(last_calls[-1].get("function_name"), last_calls[-1].get("arguments"), len(last_calls))
        if last_calls
        else text_preview(_text(last.get("message"))),
        offered=offered,
    )  # fmt: skip


def atif_turns(document: dict[str, Any]) -> tuple[tuple[Turn, ...], str]:
    """(turns, what is missing in them)."""
    if not isinstance(document.get("steps"), list):
        return (), f"{ATIF} has an unknown shape"
    spoken = [step for step in _steps(document) if step.get("source") == "agent"]
    turns = turns_of_messages(list(_messages(document)))
    offered = _offered(document)
    judged = offered or any(turn.calls for turn in turns)
    told = [
        msgspec.structs.replace(
            turn,
            prompt_tokens=_number(_metrics(step).get("prompt_tokens")),
            completion_tokens=_number(_metrics(step).get("completion_tokens")),
            started_at=moment(step.get("timestamp")),
            model=step["model_name"] if isinstance(step.get("model_name"), str) else None,
            offered=offered,
            judged=turn.judged and judged,
        )
        for turn, step in zip(turns, spoken, strict=False)
    ]
    return (*told, *turns[len(told) :]), f"{ATIF} has no finish reasons"


def _messages(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The steps as messages of OpenAI's chat API."""
    for step in _steps(document):
        calls = _objects(step.get("tool_calls"))
        message = {"role": _ROLES.get(str(step.get("source")), "user"), "content": _text(step.get("message"))}
        if isinstance(step.get("reasoning_content"), str):
            message["reasoning_content"] = step["reasoning_content"]
        yield {**message, **({"tool_calls": [_call(call) for call in calls]} if calls else {})}
        observation = step.get("observation")
        results = observation.get("results") if isinstance(observation, dict) else None
        for result in _objects(results):
            if text := _text(result.get("content")):
                yield {"role": "tool", "tool_call_id": result.get("source_call_id") or "", "content": text}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
    function = {"name": str(call.get("function_name") or ""), "arguments": text}
    return {"id": call.get("tool_call_id") or "", "type": "function", "function": function}


def _steps(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _objects(document.get("steps"))


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _offered(document: Mapping[str, Any]) -> bool | None:
    """Whether the agent offers tools to the model; None: it does not say."""
    agent = document.get("agent")
    tools = agent.get("tool_definitions") if isinstance(agent, dict) else None
    return bool(tools) if isinstance(tools, list) else None


def _metrics(step: Mapping[str, Any]) -> Mapping[str, Any]:
    metrics = step.get("metrics")
    return metrics if isinstance(metrics, dict) else {}


def _number(value: object) -> int | None:
    return whole(value)


def _text(value: object) -> str:
    """A message: text, or the texts of its parts."""
    if isinstance(value, str):
        return value
    parts = (part.get("text") for part in _objects(value))
    return "\n".join(part for part in parts if isinstance(part, str))
