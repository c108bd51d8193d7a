"""Formats a generation as a body of vLLM's chat API: one object, or the chunks of a stream."""

from __future__ import annotations

import codecs
import time
import uuid
from collections.abc import Iterator
from typing import Any

from liverl.agents.chat_api import ChatRequest
from liverl.embedded.engine.core import Generation
from liverl.embedded.tokenizer import EOS_ID, token_bytes


class Reply:
    """Formats one generation. ``cached``: prompt tokens that were in the prefix cache."""

    def __init__(self, request: ChatRequest, generation: Generation, model: str, cached: int) -> None:
        self.request, self.generation, self.model, self.cached = request, generation, model, cached
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self.created = int(time.time())
        calls = generation.parsed.calls
        self._calls: list[dict[str, Any]] = [
            {
                "id": f"chatcmpl-tool-{uuid.uuid4().hex[:16]}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ]

    def usage(self) -> dict[str, Any]:
        """Return the ``usage`` object (token counts)."""
        prompt, completion = len(self.generation.prompt), len(self.generation.tokens)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached} if self.cached else None,
        }

    def body(self) -> dict[str, Any]:
        """Return the body of a response without streaming."""
        generation = self.generation
        choice = {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": generation.parsed.content,
                "refusal": None,
                "tool_calls": self._calls,
            },
            "logprobs": self._logprobs(0, len(generation.tokens)),
            "finish_reason": generation.finish_reason,
            "stop_reason": None,
            "token_ids": generation.tokens if self.request.return_token_ids else None,
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": self.usage(),
            "prompt_logprobs": None,
            "prompt_token_ids": generation.prompt if self.request.return_token_ids else None,
        }

    def opening(self) -> dict[str, Any]:
        """Return the first chunk of a stream, which holds the prompt's token ids."""
        chunk = self._chunk({"role": "assistant", "content": ""}, None)
        if self.request.return_token_ids:
            chunk["prompt_token_ids"] = self.generation.prompt
        return chunk

    def chunks(self) -> Iterator[dict[str, Any] | None]:
        """Yield one item per generated token, then the rest: a chunk, or None if a token shows nothing yet.

        Parts of a tool call are held back until the call is complete; their ids are sent with the next chunk.
        """
        generation = self.generation
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        left = len(generation.parsed.content or "")
        sent = 0
        for position, token in enumerate(generation.tokens):
            text = "" if token == EOS_ID else decoder.decode(token_bytes(token))
            visible, left = text[:left], left - len(text[:left])
            if visible:
                yield self._chunk({"content": visible}, (sent, position + 1))
                sent = position + 1
            else:
                yield None
        for index, call in enumerate(self._calls):
            function = call["function"]
            opened = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
            yield self._chunk({"tool_calls": [opened]}, (sent, len(generation.tokens)))
            sent = len(generation.tokens)
            grown = {"index": index, "function": {"arguments": function["arguments"]}}
            yield self._chunk({"tool_calls": [grown]}, None)
        last = self._chunk({}, (sent, len(generation.tokens)) if sent < len(generation.tokens) else None)
        last["choices"][0]["finish_reason"] = generation.finish_reason
        last["choices"][0]["stop_reason"] = None
        yield last

    def usage_chunk(self) -> dict[str, Any]:
        """Return the last chunk of a stream that asked for its usage."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": self.usage()}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, delta: dict[str, Any], span: tuple[int, int] | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        if span is not None:
            choice["logprobs"] = self._logprobs(*span)
            if self.request.return_token_ids:
                choice["token_ids"] = self.generation.tokens[slice(*span)]
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _logprobs(self, start: int, end: int) -> dict[str, Any] | None:
        if not self.request.logprobs:
            return None
        generation, wanted = self.generation, self.request.top_logprobs or 0
        content = []
        for position in range(start, end):
            data = token_bytes(generation.tokens[position])
            entry = _entry(data.decode(errors="replace"), generation.logprobs[position], data)
            others = generation.top.get(position)
            if not wanted:
                top = []
            elif others is None:
                top = [dict(entry)]
            else:
                top = [_entry(name, logprob, name.encode()) for name, logprob in others[:wanted]]
            content.append({**entry, "top_logprobs": top})
        return {"content": content}


def _entry(token: str, logprob: float, data: bytes) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(data)}
