"""vLLM's token routes, as of vLLM 0.24: requests that are validated and worded as vLLM does, and the bodies of replies.

``POST /v1/chat/completions/render`` turns a chat request into ids, ``POST /inference/v1/generate`` samples from ids,
``POST /v1/chat/completions/derender`` turns sampled ids into a chat completion.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from liverl.agents.chat_api import ChatRequest, bad_request, decoded, read_chat, require_served
from liverl.agents.tool_calls import ToolCall


class SamplingParams(msgspec.Struct, frozen=True):
    """The sampling parameters that our engines use, and those that they refuse (``REFUSED``); all others are accepted
    and ignored. ``prompt_logprobs``: 0 for the log-probabilities of the prompt's own ids, None for none."""

    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: Any = None
    allowed_token_ids: Any = None
    bad_words: Any = None
    min_tokens: Any = None
    ignore_eos: Any = None
    stop_token_ids: Any = None
    structured_outputs: Any = None
    thinking_token_budget: Any = None
    repetition_detection: Any = None
    extra_args: Any = None


# What these change of a reply cannot be left out in silence.
REFUSED = SamplingParams.__struct_fields__[5:]


class GenerateRequest(msgspec.Struct, frozen=True):
    """The body of ``POST /inference/v1/generate``."""

    token_ids: list[int]
    model: str | None = None
    sampling_params: SamplingParams = SamplingParams()
    stream: bool = False


class _Choice(msgspec.Struct, frozen=True):
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class _Response(msgspec.Struct, frozen=True):
    choices: list[_Choice]


class DerenderRequest(msgspec.Struct, frozen=True):
    """The body of ``POST /v1/chat/completions/derender``. Without ``chat_request`` nothing is parsed."""

    generate_response: _Response
    chat_request: ChatRequest | None = None
    model: str | None = None

    @property
    def token_ids(self) -> list[int]:
        """The ids of the first choice, with the token that ends the reply."""
        return self.generate_response.choices[0].token_ids or []

    @property
    def finish(self) -> str:
        """Why the reply ended: stop, length or abort."""
        return self.generate_response.choices[0].finish_reason or "stop"

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools whose calls are parsed; none if the tool choice is none."""
        chat = self.chat_request
        return [] if chat is None or chat.tool_choice == "none" else chat.tools or []


class Span(msgspec.Struct):
    """``count`` sampled tokens in sequence, all from the weights with the number ``version``; None if these have
    none."""

    version: int | None
    count: int


class _Generation(msgspec.Struct, frozen=True):
    add_generation_prompt: bool = True


def read_render(body: bytes, served: Sequence[str], *, auto_tools: bool) -> tuple[ChatRequest, bool]:
    """Decode and validate a request to render: the chat request, and whether the ids go on up to where the reply
    begins. ``served``, ``auto_tools`` and errors as in ``read_chat``."""
    request = read_chat(body, list(served), auto_tools=auto_tools)
    return request, decoded(body, _Generation).add_generation_prompt


def render_body(ids: Sequence[int], model: str, context: int) -> dict[str, Any]:
    """The reply to a request to render. ``context``: of the model, in tokens."""
    left = {"max_tokens": context - len(ids)}
    return {
        "request_id": f"render-{uuid.uuid4().hex}",
        "token_ids": ids,
        "sampling_params": left,
        "model": model,
    }


def read_generate(body: bytes, served: Sequence[str]) -> GenerateRequest:
    """Decode and validate a request to sample from ids.

    Raises:
        ApiError: 404 if the model is not served, 400 for any other mistake.
    """
    request = decoded(body, GenerateRequest)
    require_served(request.model, served)
    if not request.token_ids:
        raise bad_request("token_ids must not be empty", "token_ids")
    if request.stream:
        raise bad_request("this engine does not stream sampled ids", "stream")
    wanted = request.sampling_params
    if wanted.max_tokens is not None and wanted.max_tokens < 1:
        raise bad_request(f"max_tokens must be at least 1, got {wanted.max_tokens}.", "max_tokens")
    if wanted.temperature is not None and wanted.temperature < 0:
        raise bad_request(f"temperature must be non-negative, got {wanted.temperature}.", "temperature")
    for name in REFUSED:
        if getattr(wanted, name):
            raise bad_request(f"this engine does not support {name}", name)
    if wanted.prompt_logprobs not in (None, 0):
        words = (
            "this engine gives log-probabilities of the prompt's own tokens only: prompt_logprobs must be 0"
        )
        raise bad_request(f"{words}, got {wanted.prompt_logprobs}.", "prompt_logprobs")
    return request


class DetokenizeRequest(msgspec.Struct, frozen=True):
    """The body of ``POST /detokenize``, which answers ``{"prompt": TEXT}``, with special tokens."""

    tokens: list[int]
    model: str | None = None


def read_detokenize(body: bytes, served: Sequence[str]) -> DetokenizeRequest:
    """Decode and validate a request for the text of ids.

    Raises:
        ApiError: 404 if the model is not served, 400 for any other mistake.
    """
    request = decoded(body, DetokenizeRequest)
    require_served(request.model, served)
    return request


def read_derender(body: bytes, served: Sequence[str]) -> DerenderRequest:
    """Decode and validate a request to turn sampled ids into a chat completion.

    Raises:
        ApiError: 404 if the model is not served, 400 for any other mistake.
    """
    request = decoded(body, DerenderRequest)
    require_served(request.model, served)
    if not request.generate_response.choices:
        raise bad_request("generate_response has no choices", "generate_response")
    if not request.token_ids:
        raise bad_request("choice 0 has empty or null token_ids", "generate_response")
    return request


def _spans(versions: Sequence[Span]) -> Iterator[dict[str, Any]]:
    """As vLLM 0.32 writes them: the label of the weights, and the tokens from ``start`` up to ``end``."""
    start = 0
    for span in versions:
        label = "default" if span.version is None else str(span.version)
        yield {"version": label, "start": start, "end": start + span.count}
        start += span.count


def generate_body(
    prompt: Sequence[int],
    ids: Sequence[int],
    logprobs: Sequence[float],
    names: Iterable[bytes],
    finish: str,
    versions: Sequence[Span],
    cached: int,
    scores: Sequence[float] | None = None,
) -> dict[str, Any]:
    """The reply to a request to sample.

    ``ids``, ``logprobs``, ``names``: one per sampled token, with the one that ends the reply; ``names`` are the bytes
    of its text. ``finish``: stop, length or abort. ``versions``: of the weights, in the order of the tokens.
    ``cached``: tokens of the prompt that were cached. ``scores``: log-probabilities of the prompt's ids behind the
    first one, each given those before it; None if there are none.
    """
    content = [
        {"token": f"token_id:{token}", "logprob": logprob, "bytes": list(name), "top_logprobs": []}
        for token, logprob, name in zip(ids, logprobs, names, strict=True)
    ]
    choice = {
        "index": 0,
        "logprobs": {"content": content},
        "finish_reason": finish,
        "token_ids": ids,
        "weight_versions": list(_spans(versions)),
    }
    usage = {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(ids),
        "total_tokens": len(prompt) + len(ids),
        "prompt_tokens_details": {"cached_tokens": cached} if cached else None,
    }
    return {
        "request_id": f"generate-tokens-{uuid.uuid4().hex}",
        "choices": [choice],
        "prompt_logprobs": None if scores is None else prompt_logprobs(prompt, scores),
        "usage": usage,
    }


def prompt_logprobs(prompt: Sequence[int], scores: Sequence[float]) -> list[dict[str, Any] | None]:
    """``prompt_logprobs`` of a reply: one entry per id of the prompt, by the id as text; null for the first one.

    ``scores``: of the ids behind the first one. ``rank`` and ``decoded_token``, which vLLM fills in, stay null.
    """
    entries: list[dict[str, Any] | None] = [None]
    for token, score in zip(prompt[1:], scores, strict=True):
        entries.append({str(token): {"logprob": score, "rank": None, "decoded_token": None}})
    return entries


def derender_body(
    model: str, content: str | None, calls: Sequence[ToolCall], finish: str, created: int
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
