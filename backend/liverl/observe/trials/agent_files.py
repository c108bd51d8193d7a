"""What agents write of their conversation in formats of their own, read as messages of OpenAI's chat API. Pure.

- SWE-agent's ``<instance>.traj``: ``trajectory`` has the steps, ``history`` the messages.
- mini-swe-agent's ``*.traj.json``: ``messages``; a command stands in the text, or in ``extra.actions``.
- OpenHands' ``output.jsonl``: one object per instance, whose ``history`` is the stream of events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from liverl.observe.trials.message_parts import content_text, loads
from liverl.observe.trials.records import ProxyTrajectory, parse_messages
from liverl.observe.trials.turns import Turn, turns_of_messages

Message = dict[str, Any]
Messages = Callable[[Mapping[str, Any]], "list[Message] | None"]

# mini-swe-agent runs the one block of a reply (agents/default.py and its configurations).
_COMMAND = re.compile(r"```(?:mswea_bash_command|bash)\s*\n(.*?)\n```", re.DOTALL)
# Events of OpenHands that are no action of the model, and what its actions have beside their arguments.
_NO_ACTIONS = (
    "null",
    "recall",
    "change_agent_state",
    "condensation",
    "condensation_request",
    "system",
    "start",
)
_BESIDE = ("thought", "hidden", "confirmation_state", "security_risk", "is_input", "blocking", "metadata")


def sweagent_messages(document: Mapping[str, Any]) -> list[Message] | None:
    """The conversation of a ``.traj`` file; None if it is none."""
    steps, history = document.get("trajectory"), _objects(document.get("history"))
    if not isinstance(steps, list):
        return [_plain(one) for one in history] if history else None
    begin: list[Message] = []
    for message in history:
        if message.get("role") == "assistant":
            break
        begin.append(_plain(message))
    return [*begin, *(part for step in _objects(steps) for part in _step(step))]


def _step(step: Mapping[str, Any]) -> Iterator[Message]:
    action = step.get("action")
    calls = _objects(step.get("tool_calls"))
    if not calls and isinstance(action, str) and action.strip():
        calls = [_call("bash", {"command": action.rstrip("\n")})]
    text = step.get("thought") if calls and step.get("thought") else step.get("response")
    message: Message = {"role": "assistant", "content": text if isinstance(text, str) else ""}
    yield {**message, "tool_calls": calls} if calls else message
    if isinstance(step.get("observation"), str) and step["observation"]:
        yield {"role": "tool", "content": step["observation"]}


def mini_messages(document: Mapping[str, Any]) -> list[Message] | None:
    """The conversation of a ``.traj.json`` file; None if it is none."""
    if not str(document.get("trajectory_format", "")).startswith("mini-swe-agent"):
        return None
    return [_with_command(message) for message in _objects(document.get("messages"))]


def _with_command(message: Message) -> Message:
    """A reply with its command as a tool call."""
    if message.get("role") != "assistant" or message.get("tool_calls"):
        return message
    extra = message.get("extra")
    actions = _objects(extra.get("actions")) if isinstance(extra, dict) else []
    commands = [action["command"] for action in actions if isinstance(action.get("command"), str)]
    commands = commands or _COMMAND.findall(content_text(message.get("content")))
    return (
        {**message, "tool_calls": [_call("bash", {"command": one}) for one in commands]}
        if commands
        else message
    )


def openhands_messages(document: Mapping[str, Any]) -> list[Message] | None:
    """The conversation in a line of ``output.jsonl``; None if it is none."""
    events = document.get("history")
    if not isinstance(events, list):
        return None
    # Earlier versions keep pairs of an action and what was observed.
    flat = [one for item in events for one in (item if isinstance(item, list) else [item])]
    messages: list[Message] = []
    response: object = None  # the model's reply that the newest action is part of
    for event in _objects(flat):
        if isinstance(event.get("observation"), str):
            if event["observation"] not in _NO_ACTIONS and isinstance(event.get("content"), str):
                messages.append(_observed(event))
            continue
        action = event.get("action")
        if action == "system":
            messages.append({"role": "system", "content": _text(event)})
        elif not isinstance(action, str) or action in _NO_ACTIONS:
            continue
        elif event.get("source") != "agent":
            messages.append({"role": "user", "content": _text(event)})
        else:
            reply = _reply(event)
            if reply is not None and reply == response:  # a further call of the same reply
                messages[_last_reply(messages)]["tool_calls"].append(_action(event))
                continue
            response = reply
            text = _text(event)
            call = [] if action == "message" else [_action(event)]
            messages.append({"role": "assistant", "content": text, **({"tool_calls": call} if call else {})})
    return messages


def _last_reply(messages: list[Message]) -> int:
    return max(number for number, message in enumerate(messages) if message.get("tool_calls"))


def _reply(event: Mapping[str, Any]) -> object:
    """The id of the model's reply that an action is part of; None if it is not told."""
    metadata = event.get("tool_call_metadata")
    response = metadata.get("model_response") if isinstance(metadata, dict) else None
    return response.get("id") if isinstance(response, dict) else None


def _action(event: Mapping[str, Any]) -> Message:
    metadata = event.get("tool_call_metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    arguments = event.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    kept = {name: value for name, value in arguments.items() if name not in _BESIDE}
    return _call(metadata.get("function_name") or event["action"], kept, metadata.get("tool_call_id"))


def _observed(event: Mapping[str, Any]) -> Message:
    metadata = event.get("tool_call_metadata")
    call_id = metadata.get("tool_call_id") if isinstance(metadata, dict) else None
    return {"role": "tool", "tool_call_id": call_id or "", "content": event["content"]}


def _text(event: Mapping[str, Any]) -> str:
    arguments = event.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    texts = [arguments.get("thought")]
    if event.get("action") in ("message", "system"):
        texts += [arguments.get("content"), event.get("message")]
    return next((text for text in texts if isinstance(text, str) and text), "")


def first_line(data: bytes) -> Any:
    """The JSON value of the first line that has one."""
    for line in data.splitlines():
        if line.strip():
            return loads(line)
    return None


def counts(
    messages: Messages, load: Callable[[bytes], Any] = loads
) -> Callable[[bytes], ProxyTrajectory | None]:
    """A function from the bytes of a file to the counts of its conversation; None if it is not of the format.
    Agents whose calls are text offer no tools to the model: without a call it is not known whether one was missing."""

    def read(data: bytes) -> ProxyTrajectory | None:
        document = load(data)
        found = messages(document) if isinstance(document, dict) else None
        counted = parse_messages(found) if found else None
        if counted is None or counted.tool_calls:
            return counted
        return ProxyTrajectory(counted.turns, None, 0, counted.written, counted.preview)

    return read


def turns(messages: Messages, what: str) -> Callable[[dict[str, Any]], tuple[tuple[Turn, ...], str]]:
    """A function from a document to (its turns, what is missing in them). ``what``: the format, in words."""

    def read(document: dict[str, Any]) -> tuple[tuple[Turn, ...], str]:
        found = messages(document)
        if not found:
            return (), f"not a file of {what}, although its name says so"
        info = document.get("info")
        status = info.get("exit_status") if isinstance(info, dict) else document.get("error")
        ended = f"; it says: {status}" if isinstance(status, str) and status else ""
        return tuple(turns_of_messages(found)), f"{what}: no finish reasons, tokens or times{ended}"

    return read


def _call(name: object, arguments: Mapping[str, Any], call_id: object = None) -> Message:
    function = {"name": str(name), "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": call_id if isinstance(call_id, str) else "", "type": "function", "function": function}


def _plain(message: Message) -> Message:
    return {
        name: message[name] for name in ("role", "content", "tool_calls", "tool_call_id") if message.get(name)
    }


def _objects(value: object) -> list[dict[str, Any]]:
    items: Iterable[object] = value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict)]
