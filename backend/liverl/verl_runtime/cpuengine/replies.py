"""Converts between vLLM's chat API and the engine: messages to prompts, generations to responses."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from liverl.agents.chat_api import ChatRequest, arguments_of, bad_request, text_of
from liverl.agents.tool_calls import Parsed, Parser
from liverl.verl_runtime.cpuengine.request import Request


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a message for chat templates: text content, tool arguments as an object."""
    plain = {**message, "content": text_of(message.get("content"))}
    if message.get("tool_calls"):
        plain["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": arguments_of(call["function"])}}
            for call in message["tool_calls"]
        ]
    return plain


def prompt_of(
    tokenizer: PreTrainedTokenizerBase, request: ChatRequest, *, generation: bool = True
) -> list[int]:
    """Return the token ids of the conversation, with ``generation`` plus the header of the next turn.

    Raises:
        ApiError: 400 if the template cannot render the messages.
    """
    try:
        ids: list[int] = tokenizer.apply_chat_template(
            [_message(message) for message in request.messages],
            tools=(None if request.tool_choice == "none" else request.tools) or None,
            add_generation_prompt=generation,
            return_dict=False,
        )
    # Templates are programs and may raise any exception; it is caused by the request.
    except Exception as error:
        raise bad_request(
            f"messages cannot be rendered: {type(error).__name__}: {error}", "messages"
        ) from error
    return ids


def parsed_reply(
    tokenizer: PreTrainedTokenizerBase, parser: Parser, ids: Sequence[int], tools: Sequence[Mapping[str, Any]]
) -> Parsed:
    """Return text and tool calls of sampled ids. Without ``tools`` nothing is parsed, as in vLLM."""
    text: str = tokenizer.decode(ids, skip_special_tokens=True)
    parsed = parser(text, tools) if tools else Parsed(text, ())
    return parsed if parsed.calls else Parsed(text, ())


def token_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Return the text of each token by itself."""
    return [tokenizer.decode([token]) for token in ids]


class Reply:
    """Formats one finished generation as bodies of vLLM's chat API."""

    def __init__(
        self,
        chat: ChatRequest,
        generation: Request,
        model: str,
        tokenizer: PreTrainedTokenizerBase,
        parser: Parser,
    ) -> None:
        self._chat, self._generation, self._tokenizer = chat, generation, tokenizer
        self._head = {"id": f"chatcmpl-{generation.id}", "created": int(time.time()), "model": model}
        tools = [] if chat.tool_choice == "none" else chat.tools or []
        self._content, calls = parsed_reply(tokenizer, parser, generation.tokens, tools)
        self._calls: list[dict[str, Any]] = [
            {
                "id": f"chatcmpl-tool-{uuid.uuid4().hex[:16]}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ]
        self._reason = "tool_calls" if calls and generation.finish == "stop" else generation.finish

    def usage(self) -> dict[str, Any]:
        """Return the ``usage`` object (token counts)."""
        prompt, completion = len(self._generation.prompt), len(self._generation.tokens)
        cached = self._generation.cached
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": cached} if cached else None,
        }

    def body(self) -> dict[str, Any]:
        """Return the body of a response without streaming."""
        ids = bool(self._chat.return_token_ids)
        message = {
            "role": "assistant",
            "content": self._content,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "tool_calls": self._calls,
            "reasoning": None,
        }
        choice = {
            "index": 0,
            "message": message,
            "logprobs": self._logprobs(),
            "finish_reason": self._reason,
            "stop_reason": None,
            "token_ids": self._generation.tokens if ids else None,
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": None,
            "usage": self.usage(),
            "prompt_logprobs": None,
            "prompt_token_ids": self._generation.prompt if ids else None,
            "kv_transfer_params": None,
        }

    def chunks(self) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a stream: the whole turn in one, as it is short."""
        opening = self._chunk({"role": "assistant", "content": ""})
        turn = self._chunk(
            {
                **({"content": self._content} if self._content else {}),
                **(
                    {"tool_calls": [{"index": i, **c} for i, c in enumerate(self._calls)]}
                    if self._calls
                    else {}
                ),
            }
        )
        turn["choices"][0]["logprobs"] = self._logprobs()
        if self._chat.return_token_ids:
            opening["prompt_token_ids"] = self._generation.prompt
            turn["choices"][0]["token_ids"] = self._generation.tokens
        last = self._chunk({})
        last["choices"][0].update(finish_reason=self._reason, stop_reason=None)
        yield from (opening, turn, last)
        if self._chat.stream_options is not None and self._chat.stream_options.include_usage:
            yield {**self._chunk({}), "choices": [], "usage": self.usage()}

    def _chunk(self, delta: Mapping[str, Any]) -> dict[str, Any]:
        choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": None}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def _logprobs(self) -> dict[str, Any] | None:
        if not self._chat.logprobs:
            return None
        names = token_texts(self._tokenizer, self._generation.tokens)
        content = []
        for name, logprob in zip(names, self._generation.logprobs, strict=True):
            entry = {"token": name, "logprob": logprob, "bytes": list(name.encode())}
            content.append({**entry, "top_logprobs": [dict(entry)] if self._chat.top_logprobs else []})
        return {"content": content}
