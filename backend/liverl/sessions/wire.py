"""Replies and errors in the forms of OpenAI's and Anthropic's chat API, whole or as the events of a stream. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from liverl.sessions.messages import Api, Message, shortened
from liverl.util.decode import decode_loose_json

PING = {"openai": b": wait\n\n", "anthropic": b'event: ping\ndata: {"type": "ping"}\n\n'}
_STOP_REASON = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
LEAST_LOGPROB = -9999.0  # what vLLM writes for less, such as minus infinity, which JSON does not have
# HTTP status -> (OpenAI's type, Anthropic's type); others are server errors.
_TYPES = {
    400: ("invalid_request_error", "invalid_request_error"),
    401: ("invalid_api_key", "authentication_error"),
    404: ("not_found_error", "not_found_error"),
    410: ("session_finished", "invalid_request_error"),
    413: ("request_too_large", "request_too_large"),
    429: ("rate_limit_exceeded", "rate_limit_error"),
    503: ("service_unavailable", "overloaded_error"),
}


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """A sampled token and its log-probability. ``token``: its text, ``token_id:N`` where the engine gives ids only."""

    token: str
    logprob: float


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One recorded reply. ``id``: unique; ``created``: Unix seconds; ``prompt`` and ``completion``: token counts;
    ``stopped``: the client's stop text that ended it, which ``message`` does not have; ``logprobs``: of all sampled
    tokens, None if the client did not ask for them."""

    id: str
    created: int
    model: str
    message: Message
    finish: str
    prompt: int
    completion: int
    stopped: str = ""
    logprobs: tuple[TokenLogprob, ...] | None = None


def token_logprobs(ids: Sequence[int], logprobs: Sequence[float]) -> tuple[TokenLogprob, ...]:
    """The entries of sampled ids, as vLLM writes them."""
    pairs = zip(ids, logprobs)  # noqa: B905 (3.10)
    return tuple(TokenLogprob(f"token_id:{token}", max(value, LEAST_LOGPROB)) for token, value in pairs)


class Refusal(Exception):
    """A request that gets an error. ``retry_after``: seconds, for the header of that name; ``code``: OpenAI's word for
    what is wrong, None for the status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        code: str | None = None,
    ) -> None:
        message = shortened(message)
        super().__init__(message)
        self.status, self.message, self.param, self.retry_after = status, message, param, retry_after
        self.code: str | int = status if code is None else code


def error_body(api: Api, refusal: Refusal) -> dict[str, Any]:
    """The body of an error response."""
    openai, anthropic = _TYPES.get(refusal.status, ("server_error", "api_error"))
    if api == "anthropic":
        named = {} if refusal.param is None else {"param": refusal.param}
        return {"type": "error", "error": {"type": anthropic, "message": refusal.message, **named}}
    error = {"message": refusal.message, "type": openai, "param": refusal.param, "code": refusal.code}
    return {"error": error}


def error_event(api: Api, refusal: Refusal) -> bytes:
    """An error in a stream that has begun."""
    body = error_body(api, refusal)
    return _event("error", body) if api == "anthropic" else _data(body)


def body(api: Api, answer: Answer) -> dict[str, Any]:
    """The body of a response without streaming."""
    return _anthropic_body(answer) if api == "anthropic" else _openai_body(answer)


def events(api: Api, answer: Answer, *, usage: bool = True) -> Iterator[bytes]:
    """The events of a streamed response. ``usage``: with OpenAI's last chunk of token counts."""
    return _anthropic_events(answer) if api == "anthropic" else _openai_events(answer, usage)


# -- OpenAI


def _openai_usage(answer: Answer) -> dict[str, int]:
    total = answer.prompt + answer.completion
    return {"prompt_tokens": answer.prompt, "completion_tokens": answer.completion, "total_tokens": total}


def _openai_calls(message: Message) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.calls
    ]


def _openai_body(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.message.text or None}
    if answer.message.reasoning:
        message["reasoning_content"] = answer.message.reasoning
    if answer.message.calls:
        message["tool_calls"] = _openai_calls(answer.message)
    choice = {"index": 0, "message": message, "logprobs": _logprobs(answer), "finish_reason": _finish(answer)}
    return {**_openai_head(answer, "chat.completion"), "choices": [choice], "usage": _openai_usage(answer)}


def _finish(answer: Answer) -> str:
    return "stop" if answer.stopped else answer.finish


def _logprobs(answer: Answer) -> dict[str, Any] | None:
    if answer.logprobs is None:
        return None
    content: list[dict[str, Any]] = [
        {"token": each.token, "logprob": each.logprob, "bytes": None, "top_logprobs": []}
        for each in answer.logprobs
    ]
    return {"content": content, "refusal": None}


def _openai_head(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": answer.created, "model": answer.model}


def _openai_events(answer: Answer, usage: bool) -> Iterator[bytes]:
    head = _openai_head(answer, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None, logprobs: Any = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return _data({**head, "choices": [choice]})

    logprobs, text = _logprobs(answer), answer.message.text

    yield chunk({"role": "assistant", "content": ""})
    if answer.message.reasoning:
        yield chunk({"reasoning_content": answer.message.reasoning})
    if text:
        yield chunk({"content": text}, logprobs=logprobs)
    for index, call in enumerate(_openai_calls(answer.message)):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, _finish(answer), None if text else logprobs)
    if usage:
        yield _data({**head, "choices": [], "usage": _openai_usage(answer)})
    yield b"data: [DONE]\n\n"


# -- Anthropic


def _anthropic_blocks(message: Message) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if message.reasoning:
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": ""})
    if message.text:
        blocks.append({"type": "text", "text": message.text})
    for call in message.calls:
        blocks.append(
            {"type": "tool_use", "id": call.id, "name": call.name, "input": decode_loose_json(call.arguments)}
        )
    return blocks


def _anthropic_body(answer: Answer) -> dict[str, Any]:
    return {
        **_anthropic_head(answer),
        "content": _anthropic_blocks(answer.message),
        **_anthropic_end(answer),
        "usage": {"input_tokens": answer.prompt, "output_tokens": answer.completion},
    }


def _anthropic_end(answer: Answer) -> dict[str, Any]:
    """Why the reply ended."""
    if answer.stopped:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stopped}
    return {"stop_reason": _STOP_REASON.get(answer.finish, "end_turn"), "stop_sequence": None}


def _anthropic_head(answer: Answer) -> dict[str, Any]:
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": answer.prompt, "output_tokens": 0},
    }


def _anthropic_events(answer: Answer) -> Iterator[bytes]:
    yield _event("message_start", {"type": "message_start", "message": _anthropic_head(answer)})
    for index, block in enumerate(_anthropic_blocks(answer.message)):
        kind = block["type"]
        if kind == "text":
            begin, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        elif kind == "thinking":
            begin = {**block, "thinking": ""}
            delta = {"type": "thinking_delta", "thinking": block["thinking"]}
        else:
            begin = {**block, "input": {}}
            delta = {
                "type": "input_json_delta",
                "partial_json": json.dumps(block["input"], ensure_ascii=False),
            }
        start = {"type": "content_block_start", "index": index, "content_block": begin}
        yield _event("content_block_start", start)
        yield _event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
        yield _event("content_block_stop", {"type": "content_block_stop", "index": index})
    end = {
        "type": "message_delta",
        "delta": _anthropic_end(answer),
        "usage": {"input_tokens": answer.prompt, "output_tokens": answer.completion},
    }
    yield _event("message_delta", end)
    yield _event("message_stop", {"type": "message_stop"})


def _data(value: Any) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _event(name: str, value: Any) -> bytes:
    return b"event: " + name.encode() + b"\n" + _data(value)
