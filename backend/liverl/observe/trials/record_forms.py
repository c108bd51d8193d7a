"""Records of a trajectory file in other forms than that of LiteLLM's recorder, brought into that form. Pure.

- LiteLLM's ``StandardLoggingPayload``, which its own loggers write (litellm/types/utils.py): ``messages``,
  ``response``, ``status``, ``startTime``.
- A streamed response that was kept as its chunks, of OpenAI's or Anthropic's API: a list, or the text of the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from liverl.observe.trials.message_parts import loads
from liverl.observe.trials.records import RecordedTurn, parse_turn
from liverl.observe.trials.repeated import Repeated

# What a payload says of its request beside the messages.
_ASKED = ("tools", "functions", "temperature", "top_p")


def parse_record(
    data: bytes | bytearray, start: int, end: int, repeated: Repeated | None = None
) -> tuple[RecordedTurn | None, bytes | bytearray, int, int]:
    """(the turn of the record in ``data[start:end]``, None if it is no record; where it stands in the usual form).
    ``repeated``: of the file's records before this one; without the messages that it repeats where that is given."""
    if repeated is None:
        turn = parse_turn(data, start, end)
    else:
        data, start, end = repeated.without(data, start, end)
        turn = parse_turn(data, start, end)
        repeated.take(turn.messages if turn is not None else None)
    if turn is None or (turn.success and _no_answer(turn)):
        usual = usual_form(bytes(data[start:end]))
        if usual is not None:
            data, start, end = usual, 0, len(usual)
            turn = parse_turn(data)
    return turn, data, start, end


def _no_answer(turn: RecordedTurn) -> bool:
    """Whether a turn may have an answer in a form that was not understood."""
    return turn.answer is None or turn.tool_calls is None


def usual_form(line: bytes) -> bytes | None:
    """A record as LiteLLM's recorder writes it; None if it is in this form already, or in none that is known."""
    record = loads(line)
    if not isinstance(record, dict):
        return None
    if "success" not in record:
        record = _of_payload(record)
    if record is None:
        return None
    whole = joined_chunks(record.get("response_body"))
    if whole is not None:
        record = {**record, "response_body": whole}
    elif not record.get("_payload"):
        return None
    record.pop("_payload", None)
    return json.dumps(record).encode()


def _of_payload(payload: dict[str, Any]) -> dict[str, Any] | None:
    """The record of a ``StandardLoggingPayload``; None if it is none."""
    if payload.get("status") not in ("success", "failure") or "response" not in payload:
        return None
    success = payload["status"] == "success"
    asked = _dict(payload.get("model_parameters"))
    messages = payload.get("messages")
    request = {
        "model": payload.get("model_group") or payload.get("model"),
        **{name: asked[name] for name in _ASKED if name in asked},
        "messages": messages if isinstance(messages, list) else [{"role": "user", "content": messages}],
    }
    began, ended = payload.get("startTime"), payload.get("endTime")
    seconds: Any = payload.get("response_time")
    if not _is_number(seconds) and isinstance(began, int | float) and isinstance(ended, int | float):
        seconds = ended - began
    tokens = {name: payload.get(name) for name in ("prompt_tokens", "completion_tokens")}
    return {
        "_payload": True,
        "success": success,
        "request_time": began,
        "duration_ms": seconds * 1000 if _is_number(seconds) else None,
        "stream": payload.get("stream") is True,
        "request_body": request,
        "response_body": payload["response"] if success else None,
        "usage": {name: value for name, value in tokens.items() if _is_number(value)} or None,
        "replica": payload.get("api_base") if isinstance(payload.get("api_base"), str) else None,
        "failure": None if success else _failure(payload),
    }


def _failure(payload: Mapping[str, Any]) -> dict[str, Any]:
    told = _dict(payload.get("error_information"))
    return {
        "error_type": told.get("error_class") or "error",
        "status_code": told.get("error_code"),
        "message": told.get("error_message") or payload.get("error_str") or "no message",
    }


def joined_chunks(body: object) -> dict[str, Any] | None:
    """The response that the chunks of a stream make up; None if ``body`` holds none. A stream that was cut has no
    finish reason."""
    chunks = list(_chunks(body))
    if any(isinstance(chunk.get("choices"), list) for chunk in chunks):
        return _of_openai(chunks)
    if any(
        chunk.get("type") in ("message_start", "content_block_start", "content_block_delta")
        for chunk in chunks
    ):
        return _of_anthropic(chunks)
    return None


def _chunks(body: object) -> Iterator[dict[str, Any]]:
    """The JSON objects in a list of chunks, or in the text of a stream of server-sent events."""
    if isinstance(body, str):
        lines: Iterable[object] = (
            body.splitlines() if body.lstrip().startswith(("data:", "event:", ":")) else ()
        )
    else:
        lines = body if isinstance(body, list) else ()
    for line in lines:
        if isinstance(line, dict):
            yield line
        elif isinstance(line, str):
            for event in line.splitlines():
                value = loads(event.removeprefix("data:").strip().encode("utf-8", "replace"))
                if isinstance(value, dict):
                    yield value


def _of_openai(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant"}
    calls: dict[int, dict[str, Any]] = {}
    finish, usage = None, None
    for chunk in chunks:
        usage = chunk["usage"] if isinstance(chunk.get("usage"), dict) else usage
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict) or choice.get("index") not in (0, None):
            continue
        finish = choice.get("finish_reason") or finish
        delta = _dict(choice.get("delta"))
        if isinstance(choice.get("text"), str):  # of the API without messages
            delta = {"content": choice["text"]}
        for name in ("content", "reasoning_content", "reasoning", "refusal"):
            if isinstance(delta.get(name), str):
                message[name] = message.get(name, "") + delta[name]
        for place, part in enumerate(delta.get("tool_calls") or ()):
            if isinstance(part, dict):
                index = part["index"] if isinstance(part.get("index"), int) else place
                _add_call(calls.setdefault(index, {"type": "function", "function": {}}), part)
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    first = chunks[0]
    return {
        "id": first.get("id"),
        "object": "chat.completion",
        "model": first.get("model"),
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": usage,
    }


def _add_call(call: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add a chunk of a tool call: name and id come once, arguments in pieces."""
    if isinstance(part.get("id"), str):
        call["id"] = part["id"]
    function = part.get("function")
    for name in ("name", "arguments"):
        piece = function.get(name) if isinstance(function, dict) else None
        if isinstance(piece, str):
            call["function"][name] = call["function"].get(name, "") + piece


def _of_anthropic(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {"type": "message", "role": "assistant", "stop_reason": None, "usage": {}}
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    for chunk in chunks:
        index = chunk["index"] if isinstance(chunk.get("index"), int) else 0
        delta = _dict(chunk.get("delta"))
        match chunk.get("type"):
            case "message_start" if isinstance(started := chunk.get("message"), dict):
                whole |= {name: value for name, value in started.items() if name != "content"}
            case "content_block_start" if isinstance(block := chunk.get("content_block"), dict):
                blocks[index] = dict(block)
            case "content_block_delta":
                block = blocks.setdefault(index, {"type": "text", "text": ""})
                for name in ("text", "thinking", "signature"):
                    if isinstance(delta.get(name), str):
                        block[name] = str(block.get(name) or "") + delta[name]
                if isinstance(delta.get("partial_json"), str):
                    inputs[index] = inputs.get(index, "") + delta["partial_json"]
            case "message_delta":
                whole["stop_reason"] = delta.get("stop_reason") or whole.get("stop_reason")
                if isinstance(chunk.get("usage"), dict):
                    whole["usage"] = {**(whole.get("usage") or {}), **chunk["usage"]}
    for index, text in inputs.items():
        if index in blocks:  # one that was cut stays text, which is shown as it is
            decoded = loads(text.encode("utf-8", "replace"))
            blocks[index]["input"] = text if decoded is None else decoded
    return {**whole, "content": [blocks[index] for index in sorted(blocks)]}


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
