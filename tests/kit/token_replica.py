"""A scripted replica with vLLM's token routes: the embedded tokenizer and template, and a sampler that writes words in
other ids than the tokenizer would, as a real one now and then does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from liverl.agents.tool_calls import parse_qwen3_coder, render_qwen3_coder
from liverl.embedded.engine.chat import prompt_ids
from liverl.embedded.tokenizer import EOS_ID, decode, encode

OPENING = encode("<|im_start|>assistant\n")
(OTHER_END,) = encode("<|endoftext|>")  # ends a reply, too, but no turn of the template
_ENDS = (EOS_ID, OTHER_END)


def odd_ids(text: str) -> list[int]:
    """The bytes of a text, one id each: ids that no encoding gives."""
    return list(text.encode())


def call_text(name: str, **arguments: str) -> str:
    """A tool call as the model writes it, without the end of its last parameter: the parser reads it all the same."""
    return render_qwen3_coder(name, arguments).replace("\n</parameter>\n</function>", "</function>")


class TokenReplica:
    """``reply``: (decoded prompt, number of the assistant's turn from 0) -> what the model writes."""

    def __init__(self, reply: Callable[[str, int], str], context: int = 20_000) -> None:
        self.reply = reply
        self.context = context
        self.prompts: list[list[int]] = []  # of each sample
        self.replies: list[list[int]] = []
        self.sampling: list[dict[str, Any]] = []  # the parameters of each sample
        self.scored: list[list[int]] = []  # the prompts whose log-probabilities were asked for
        self.parsed: list[dict[str, Any]] = []  # the ``chat_request`` of each parse
        self.version = 1
        self.gate = asyncio.Event()  # samples wait for it
        self.gate.set()
        self.arrived = 0  # requests for a sample
        self.begun = asyncio.Event()  # a sample waits, or has run
        self.cut_at: list[int] = []  # numbers of ids after which the next samples are aborted
        self.failures: list[int] = []  # statuses that the next samples answer
        self.breaks = 0  # next samples whose connection breaks off, as when the process ends
        # Next parses that answer 500 and close the connection without saying so, as vLLM's
        self.parse_closes = 0
        self.parse_breaks = 0  # next parses whose connection breaks off
        self.render_failures: list[int] = []  # statuses that the next renderings answer
        self.parse_failures: list[int] = []  # statuses that the next parses answer
        self.rewrites = False  # the template changes earlier turns once there are later ones
        self.empty = False  # replies have no token
        self.end = EOS_ID  # the token that ends its replies
        self.names_tokens = True  # it has the route that says the text of ids
        self.forces_calls = True  # its renderer gives a constraint for a forced call
        self.numbers = False  # the template numbers the messages, so that they depend on what comes before
        self.kv_usage: float | None = 0.0  # of ``/metrics``; None: the page is missing
        self.capacity = 1000  # blocks of 16 tokens
        self.refusals: dict[str, tuple[int, Any]] = {}  # path -> (status, body) that it answers
        self.breaks_at: set[str] = set()  # paths at which each connection breaks off
        self.rendered = 0  # ids in all rendered prompts
        self._closed: set[int] = set()  # connections that take no further request
        self._server: TestServer | None = None

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=64 << 20, middlewares=[self._refuse])
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions/render", self._render)
        app.router.add_post("/inference/v1/generate", self._generate)
        app.router.add_post("/v1/chat/completions/derender", self._derender)
        app.router.add_post("/detokenize", self._detokenize)
        app.router.add_get("/metrics", self._metrics)
        return app

    @web.middleware
    async def _refuse(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if id(request.transport) in self._closed:
            assert request.transport is not None
            request.transport.abort()
        if request.path in self.breaks_at:
            assert request.transport is not None
            request.transport.abort()
        if request.path in self.refusals:
            status, body = self.refusals[request.path]
            return web.json_response(body, status=status)
        return await handler(request)

    async def start(self, port: int | None = None) -> str:
        """Listen; return the URL."""
        self._server = TestServer(self.app(), port=port)
        await self._server.start_server()
        return str(self._server.make_url("")).rstrip("/")

    async def stop(self) -> None:
        """Close the server and its connections."""
        if self._server is not None:
            await self._server.close()
            self._server = None

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "max_model_len": self.context}]})

    async def _metrics(self, _request: web.Request) -> web.Response:
        if self.kv_usage is None:
            return web.Response(status=404)
        config = f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{self.capacity}"}} 1.0'
        return web.Response(text=f'{config}\nvllm:kv_cache_usage_perc{{engine="0"}} {self.kv_usage}\n')

    async def _render(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.render_failures:
            status = self.render_failures.pop(0)
            return web.json_response({"error": {"message": f"scripted {status}"}}, status=status)
        messages = body["messages"]
        if self.rewrites and len(messages) > 4:
            messages = [{**m, "content": "(left out)"} if m["role"] == "assistant" else m for m in messages]
        if self.numbers:
            messages = [{**m, "content": f"{n}. {m['content']}"} for n, m in enumerate(messages)]
        ids = prompt_ids(messages, body.get("tools") or [], render_qwen3_coder)
        if not body.get("add_generation_prompt", True):
            ids = ids[: -len(OPENING)]
        self.rendered += len(ids)
        params: dict[str, Any] = {"max_tokens": self.context - len(ids)}
        if self.forces_calls and body.get("tool_choice") not in (None, "auto", "none"):
            params["structured_outputs"] = {"json": {"forced": body["tool_choice"]}, "_backend": None}
        answer = {"request_id": "r", "token_ids": ids, "model": "m", "sampling_params": params}
        return web.json_response(answer)

    async def _detokenize(self, request: web.Request) -> web.Response:
        if not self.names_tokens:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response({"prompt": decode((await request.json())["tokens"])})

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "token_ids" not in body:  # as vLLM
            return web.json_response({"error": {"message": "token_ids: Field required"}}, status=400)
        self.arrived += 1
        self.begun.set()
        await self.gate.wait()
        if self.breaks:
            self.breaks -= 1
            assert request.transport is not None
            request.transport.abort()
        if self.failures:
            status = self.failures.pop(0)
            return web.json_response({"error": {"message": f"scripted {status}"}}, status=status)
        prompt, parameters = body["token_ids"], body["sampling_params"]
        if "prompt_logprobs" in parameters:
            return self._score(prompt, parameters)
        assert parameters["logprobs"] == 0
        text = decode(prompt)
        before, partial = text.rsplit("<|im_start|>assistant\n", 1)
        whole = [*odd_ids(self.reply(before, before.count("<|im_start|>assistant\n"))), self.end]
        for word in parameters.get("stop") or ():  # its ids belong to the reply
            written, found, _ = bytes(token for token in whole if token not in _ENDS).partition(word.encode())
            whole = [*written, *found] if found else whole
        left = whole[len(partial.encode()) :]
        ids = left[: parameters["max_tokens"]]
        finish = "stop" if ids and ids == left else "length"
        if self.empty:
            ids, finish = [], "stop"
        if self.cut_at:
            ids, finish = ids[: self.cut_at.pop(0)], "abort"
        self.prompts.append(prompt)
        self.sampling.append(parameters)
        self.replies.append(ids)
        content = [{"token_id": token, "logprob": -token / 1000, "rank": 1} for token in ids]
        choice: dict[str, Any] = {
            "index": 0,
            "token_ids": ids,
            "finish_reason": finish,
            "logprobs": {"content": content},
        }
        choice["weight_versions"] = [{"version": str(self.version), "start": 0, "end": len(ids)}]
        return web.json_response({"request_id": "g", "choices": [choice]})

    def _score(self, prompt: list[int], parameters: dict[str, Any]) -> web.Response:
        """As vLLM: of each id behind the first one its own log-probability, which here tells its position."""
        assert parameters == {"prompt_logprobs": 0, "max_tokens": 1}
        self.scored.append(prompt)
        entries: list[Any] = [None]
        for position, token in enumerate(prompt[1:], 1):
            logprob = {"logprob": -position / 1000, "rank": 1, "decoded_token": "?"}
            entries.append({str(token): logprob})
        choice = {"index": 0, "token_ids": [1], "finish_reason": "length", "logprobs": None}
        choice["weight_versions"] = [{"version": str(self.version), "start": 0, "end": 1}]
        return web.json_response({"request_id": "g", "choices": [choice], "prompt_logprobs": entries})

    async def _derender(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.parse_closes and "chat_request" in body:
            self.parse_closes -= 1
            assert request.transport is not None
            self._closed.add(id(request.transport))
            asyncio.get_running_loop().call_later(0.05, request.transport.abort)
            return web.json_response({"error": {"message": "scripted 500"}}, status=500)
        if self.parse_breaks and "chat_request" in body:
            self.parse_breaks -= 1
            assert request.transport is not None
            request.transport.abort()
        if self.parse_failures and "chat_request" in body:
            status = self.parse_failures.pop(0)
            return web.json_response({"error": {"message": f"scripted {status}"}}, status=status)
        ids = body["generate_response"]["choices"][0]["token_ids"]
        if not ids:
            message = "choice 0 has empty or null token_ids"  # as vLLM
            return web.json_response({"error": {"message": message}}, status=400)
        if "chat_request" not in body:  # as vLLM: nothing is parsed, special tokens are left out
            plain = {"role": "assistant", "content": decode(token for token in ids if token not in _ENDS)}
            return web.json_response({"choices": [{"index": 0, "message": plain, "finish_reason": "stop"}]})
        chat = body["chat_request"]
        self.parsed.append(chat)
        message = {"role": "assistant", **self._parsed(decode(ids), chat)}
        return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    def _parsed(self, text: str, chat: dict[str, Any]) -> dict[str, Any]:
        """As vLLM 0.24: special tokens at the end of the text are a part of it; under a forced call it is JSON."""
        choice = chat.get("tool_choice")
        if choice == "none":
            return {"content": text, "tool_calls": []}
        if choice == "required":
            try:
                forced = [(call["name"], json.dumps(call["parameters"])) for call in json.loads(text)]
            except ValueError:
                forced = []
            return {"content": None, "tool_calls": self._calls(forced)}
        if isinstance(choice, dict):
            return {"content": None, "tool_calls": self._calls([(choice["function"]["name"], text)])}
        parsed = parse_qwen3_coder(text, chat.get("tools") or [])
        calls = self._calls((call.name, call.arguments) for call in parsed.calls)
        return {"content": parsed.content, "tool_calls": calls}

    def _calls(self, calls: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call-{len(self.replies)}-{index}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for index, (name, arguments) in enumerate(calls)
        ]
