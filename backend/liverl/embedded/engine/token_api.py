"""vLLM's token routes: a chat request to ids and back, and sampling from ids, as of vLLM 0.24.

The embedded policy decides by messages, so the conversation is read from the ids of a prompt again: they are ChatML.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from liverl.agents.chat_api import ApiError, ChatRequest, bad_request
from liverl.agents.tool_calls import PARSERS
from liverl.embedded.engine.chat import TOOLS_HEADING
from liverl.embedded.engine.core import Generation
from liverl.embedded.tokenizer import EOS_ID, decode, token_bytes

_BEGIN, _END = "<|im_start|>", "<|im_end|>"
_OBSERVATION = ("<tool_response>\n", "\n</tool_response>")


class SamplingParams(msgspec.Struct, frozen=True):
    """The sampling parameters that the engine uses; all others are accepted and ignored."""

    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    logprobs: int | None = None


class GenerateRequest(msgspec.Struct, frozen=True):
    """The body of ``POST /inference/v1/generate``."""

    token_ids: list[int]
    model: str | None = None
    sampling_params: SamplingParams = SamplingParams()
    stream: bool = False


class DerenderRequest(msgspec.Struct, frozen=True):
    """The body of ``POST /v1/chat/completions/derender``."""

    generate_response: dict[str, Any]
    chat_request: dict[str, Any]
    model: str | None = None


def read_generate(body: bytes, served: Sequence[str]) -> GenerateRequest:
    """Decode and validate a request to sample from ids.

    Raises:
        ApiError: 404 if the model is not served, 400 for any other mistake.
    """
    try:
        request = msgspec.json.decode(body, type=GenerateRequest)
    except msgspec.DecodeError as error:
        raise bad_request(str(error)) from error
    if request.model is not None and request.model not in served:
        raise ApiError(404, "NotFoundError", f"The model `{request.model}` does not exist.", "model")
    if not request.token_ids:
        raise bad_request("token_ids must not be empty", "token_ids")
    if request.stream:
        raise bad_request("this engine does not stream sampled ids", "stream")
    if request.sampling_params.max_tokens is not None and request.sampling_params.max_tokens < 1:
        raise bad_request(
            f"max_tokens must be at least 1, got {request.sampling_params.max_tokens}.", "max_tokens"
        )
    return request


def chat_of(request: GenerateRequest) -> ChatRequest:
    """The conversation that the ids of a prompt are, as a chat request with the same parameters.

    Raises:
        ApiError: 400 if they are no conversation that ends where the assistant's turn begins.
    """
    try:
        text = decode(request.token_ids)
    except ValueError as error:
        raise bad_request(str(error), "token_ids") from error
    messages, tools = _read(text)
    wanted = request.sampling_params
    return ChatRequest(
        messages=messages,
        model=request.model,
        tools=tools or None,
        max_tokens=wanted.max_tokens,
        temperature=wanted.temperature,
        seed=wanted.seed,
    )


def _read(text: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The messages and the tools of a prompt."""
    turns = text.split(_BEGIN)[1:]
    if not turns or turns[-1] != "assistant\n":
        raise bad_request("the prompt does not end where a turn of the assistant begins", "token_ids")
    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    waiting: list[str] = []  # ids of calls without an observation
    for number, turn in enumerate(turns[:-1]):
        role, _, content = turn.partition("\n")
        content = content.removesuffix("\n").removesuffix(_END)
        if role == "system" and number == 0:
            content, _, listed = (
                content.rpartition(TOOLS_HEADING) if TOOLS_HEADING in content else (content, "", "")
            )
            tools = [{"type": "function", "function": json.loads(line)} for line in listed.splitlines()]
            if content.strip():
                messages.append({"role": "system", "content": content.removesuffix("\n\n")})
        elif role == "user" and content.startswith(_OBSERVATION[0]) and content.endswith(_OBSERVATION[1]):
            result = content[len(_OBSERVATION[0]) : -len(_OBSERVATION[1])]
            messages.append(
                {"role": "tool", "content": result, "tool_call_id": waiting.pop(0) if waiting else ""}
            )
        elif role == "assistant":
            calls = list(_calls(content, tools, number))
            waiting = [call["id"] for call in calls]
            messages.append(
                {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
            )
        else:
            messages.append({"role": role, "content": content})
    return messages, tools


def _calls(text: str, tools: Sequence[Mapping[str, Any]], turn: int) -> Iterator[dict[str, Any]]:
    """The tool calls in a turn of the assistant, whichever of the formats it has."""
    name = "qwen3_coder" if "<function=" in text else "hermes"
    for number, call in enumerate(PARSERS[name](text, tools).calls):
        yield {"id": f"{turn}.{number}", "type": "function", "function": call._asdict()}


def generate_body(generation: Generation, version: int, cached: int) -> dict[str, Any]:
    """The response to a request to sample. ``version``: of the weights; ``cached``: prompt tokens that were cached."""
    content = [
        {
            "token": f"token_id:{token}",
            "logprob": logprob,
            "bytes": list(token_bytes(token)),
            "top_logprobs": [],
        }
        for token, logprob in zip(generation.tokens, generation.logprobs, strict=True)
    ]
    count = len(generation.tokens)
    choice = {
        "index": 0,
        "logprobs": {"content": content},
        "finish_reason": "length" if generation.finish_reason == "length" else "stop",
        "token_ids": generation.tokens,
        "weight_versions": [{"version": version, "count": count}],
    }
    prompt = len(generation.prompt)
    usage = {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}
    details = {"cached_tokens": cached} if cached else None
    return {
        "request_id": f"generate-tokens-{uuid.uuid4().hex}",
        "choices": [choice],
        "prompt_logprobs": None,
        "usage": {**usage, "prompt_tokens_details": details},
    }


def reply_text(response: Mapping[str, Any]) -> tuple[str, str]:
    """(text without the token that ends a turn, finish reason) of a response of ``generate_body``.

    Raises:
        ApiError: 400 if it has no ids.
    """
    try:
        choice = response["choices"][0]
        text = decode(token for token in choice["token_ids"] if token != EOS_ID)
        return text, str(choice.get("finish_reason") or "stop")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise bad_request(
            f"generate_response has no choice with token_ids: {error!r}", "generate_response"
        ) from error


def derender_body(
    model: str, content: str | None, calls: Sequence[Any], finish: str, created: int
) -> dict[str, Any]:
    """A chat completion made of sampled ids. ``calls``: parsed calls; ``created``: Unix seconds."""
    tool_calls = [
        {"id": f"chatcmpl-tool-{uuid.uuid4().hex[:16]}", "type": "function", "function": call._asdict()}
        for call in calls
    ]
    message = {"role": "assistant", "content": content, "refusal": None, "tool_calls": tool_calls}
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": "tool_calls" if calls else finish,
    }
    head = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": created,
        "model": model,
    }
    return {**head, "choices": [choice]}
