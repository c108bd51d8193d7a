"""Requests and errors of the OpenAI chat API, validated and worded as vLLM does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json, decode_loose_json
from liverl.util.http_limits import too_many_letters
from liverl.util.json_limits import MAX_TOKEN_VALUES, JsonRefused, check_json, letters_of

T = TypeVar("T")


class StreamOptions(msgspec.Struct, frozen=True):
    """The request field ``stream_options``."""

    include_usage: bool = False


class ChatRequest(msgspec.Struct, frozen=True):
    """The fields that the engine uses; all others are accepted and ignored (including ``stop``)."""

    messages: list[dict[str, Any]]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    n: int | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    return_token_ids: bool | None = None


class WeightsUpdate(msgspec.Struct, frozen=True):
    """Body of a weight update: policy version and logits (state -> action -> logit)."""

    version: int
    logits: dict[str, dict[str, float]]


class ApiError(Exception):
    """An error response in OpenAI's format."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.param = status, kind, message, param

    def body(self) -> dict[str, Any]:
        """Return the JSON body of the response."""
        return {
            "error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        }


def bad_request(message: str, param: str | None = None) -> ApiError:
    """Return an error with status 400; ``param`` names the offending field."""
    return ApiError(400, "BadRequestError", message, param)


def decoded(body: bytes, kind: type[T]) -> T:
    """A request's body as a ``kind``.

    Raises:
        ApiError: 400, it is none.
    """
    try:
        check_json(body, MAX_TOKEN_VALUES)
        return decode_json(body, type=kind)
    except (JsonRefused, *BAD_JSON) as error:
        raise bad_request(str(error)) from error


def require_served(model: str | None, served: Sequence[str]) -> None:
    """Raises:
    ApiError: 404, ``model`` is not one of ``served``; None stands for any.
    """
    if model is not None and model not in served:
        raise ApiError(404, "NotFoundError", f"The model `{model}` does not exist.", "model")


def read_chat(body: bytes, served: list[str], *, auto_tools: bool) -> ChatRequest:
    """Decode and validate a request.

    Raises:
        ApiError: 404 if the model is not served, 400 for any other mistake.
    """
    request = decoded(body, ChatRequest)
    require_served(request.model, served)
    if not request.messages:
        raise bad_request("messages must not be empty", "messages")
    if request.n not in (None, 1):
        raise bad_request(f"n must be 1, not {request.n}: this engine samples one reply per request", "n")
    if request.temperature is not None and request.temperature < 0:
        raise bad_request(f"temperature must be non-negative, got {request.temperature}.", "temperature")
    limit = max_tokens(request)
    if limit is not None and limit < 1:
        raise bad_request(f"max_tokens must be at least 1, got {limit}.", "max_tokens")
    if request.top_logprobs and not request.logprobs:
        raise bad_request("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
    if request.tools:
        if request.tool_choice not in (None, "auto", "none"):
            raise bad_request("this engine supports only the tool choices auto and none", "tool_choice")
        if request.tool_choice != "none" and not auto_tools:
            raise bad_request(
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            )
        if not all(tool_names(request)):
            raise bad_request("every tool needs a function with a name", "tools")
    return request


def require_short(request: ChatRequest, context: int) -> int:
    """Check the letters of a request before its prompt is rendered; return how many they are. ``context``: tokens.

    Raises:
        ApiError: 400, it cannot fit into the context.
    """
    letters = letters_of({"messages": request.messages, "tools": request.tools})
    why = too_many_letters(letters, context)
    if why is not None:
        raise bad_request(f"This model's maximum context length is {context} tokens. {why}", "messages")
    return letters


def max_tokens(request: ChatRequest) -> int | None:
    """Return the requested limit of reply tokens; None if the request sets none."""
    return request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens


def tool_names(request: ChatRequest) -> list[str]:
    """Return the names of the tools offered in the request."""
    return [str((tool.get("function") or {}).get("name") or "") for tool in request.tools or ()]


def text_of(content: Any) -> str:
    """Return the text of a message's content: a string, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return ""


def arguments_of(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a tool call, given as an object or as JSON text.

    Raises:
        ValueError: they are neither.
    """
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        arguments = decode_loose_json(arguments)
    if not isinstance(arguments, dict):
        raise ValueError(f"arguments of {function.get('name')} are not a JSON object")
    return arguments


def model_list(served: Iterable[str], *, created: int, root: str, max_model_len: int) -> dict[str, Any]:
    """Return the body of ``/v1/models``. ``created``: Unix seconds; ``root``: the checkpoint behind all
    names."""
    cards = [
        {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": root,
            "parent": None,
            "max_model_len": max_model_len,
        }
        for name in served
    ]
    return {"object": "list", "data": cards}
