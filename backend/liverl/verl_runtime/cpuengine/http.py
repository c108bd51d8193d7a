"""The replica's HTTP server, with vLLM's routes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from liverl.agents.chat_api import ApiError, bad_request, max_tokens, model_list, read_chat, require_short
from liverl.agents.token_api import (
    derender_body,
    generate_body,
    read_derender,
    read_detokenize,
    read_generate,
    read_render,
    render_body,
)
from liverl.agents.tool_calls import PARSERS
from liverl.sessions.routes import DERENDER, DETOKENIZE, GENERATE, RENDER
from liverl.util.aiohttp_guard import token_gate
from liverl.util.http_server import HttpServer
from liverl.util.token_guard import Token
from liverl.verl_runtime.cpuengine.core import Core
from liverl.verl_runtime.cpuengine.engine import EngineDeadError
from liverl.verl_runtime.cpuengine.replies import Reply, parsed_reply, prompt_of, token_texts
from liverl.verl_runtime.cpuengine.request import Request

_BODY_LIMIT = 64 * 2**20  # maximum bytes of a request
_STOP_GRACE = 1.0  # seconds that open requests get when the server stops


class Api:
    """Serves one ``Core``. ``token``: required for every route; None = nobody is refused."""

    def __init__(self, core: Core, token: Token | None = None) -> None:
        self._token = token
        self._core = core
        self._settings = core.settings
        self._parser = PARSERS[core.settings.tool_parser]
        self._started = int(time.time())
        self._server: HttpServer | None = None

    async def listen(self, host: str) -> int:
        """Listen on a free port of ``host`` and return the port."""
        self._server = HttpServer(
            self._app(),
            token_gate(self._token),
            max_body=_BODY_LIMIT,
            shutdown_timeout=_STOP_GRACE,
            handler_cancellation=True,
        )
        return await self._server.listen(host)

    async def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            await self._server.close()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=_BODY_LIMIT, middlewares=[self._answer_errors])
        app.router.add_get("/health", self._health, allow_head=False)
        app.router.add_get("/metrics", self._metrics, allow_head=False)
        app.router.add_get("/v1/models", self._models, allow_head=False)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post(RENDER, self._render)
        app.router.add_post(GENERATE, self._generate)
        app.router.add_post(DERENDER, self._derender)
        app.router.add_post(DETOKENIZE, self._detokenize)
        return app

    @web.middleware
    async def _answer_errors(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            response = await handler(request)
        except ApiError as error:
            response = _json(error.body(), error.status)
        except EngineDeadError as error:
            body = ApiError(500, "InternalServerError", f"EngineCore encountered an issue: {error}").body()
            response = _json(body, 500)
        except web.HTTPException as error:
            response = _json({"detail": error.reason}, error.status)
        route = request.match_info.route.resource
        self._core.metrics.count_response(
            route.canonical if route else "none", request.method, response.status
        )
        return response

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=503 if self._core.engine.failure else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self._core.metrics.page(self._core.engine), content_type="text/plain")

    async def _models(self, request: web.Request) -> web.Response:
        settings = self._settings
        body = model_list(
            settings.served, created=self._started, root=settings.model, max_model_len=settings.max_model_len
        )
        return _json(body)

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        chat = read_chat(await http.read(), list(self._settings.served), auto_tools=True)
        require_short(chat, self._settings.max_model_len)
        prompt = prompt_of(self._core.tokenizer, chat)
        generation = await self._sample(prompt, max_tokens(chat), chat.temperature, chat.seed)
        model = self._model(chat.model)
        reply = Reply(chat, generation, model, self._core.tokenizer, self._parser)
        if not chat.stream:
            return _json(reply.body())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        for chunk in reply.chunks():
            await response.write(b"data: " + msgspec.json.encode(chunk) + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _render(self, http: web.Request) -> web.Response:
        chat, generation = read_render(await http.read(), self._settings.served, auto_tools=True)
        require_short(chat, self._settings.max_model_len)
        ids = prompt_of(self._core.tokenizer, chat, generation=generation)
        return _json(render_body(ids, self._model(chat.model), self._settings.max_model_len))

    async def _generate(self, http: web.Request) -> web.Response:
        asked = read_generate(await http.read(), self._settings.served)
        wanted = asked.sampling_params
        self._check_ids(asked.token_ids, "token_ids")
        scored = wanted.prompt_logprobs is not None
        done = await self._sample(
            asked.token_ids, wanted.max_tokens, wanted.temperature, wanted.seed, scored=scored
        )
        names = (text.encode() for text in token_texts(self._core.tokenizer, done.tokens))
        return _json(
            generate_body(
                done.prompt,
                done.tokens,
                done.logprobs,
                names,
                done.finish,
                done.versions,
                done.cached,
                done.scores,
            )
        )

    async def _derender(self, http: web.Request) -> web.Response:
        asked = read_derender(await http.read(), self._settings.served)
        self._check_ids(asked.token_ids, "generate_response")
        content, calls = parsed_reply(self._core.tokenizer, self._parser, asked.token_ids, asked.tools)
        return _json(derender_body(self._model(asked.model), content, calls, asked.finish, int(time.time())))

    async def _detokenize(self, http: web.Request) -> web.Response:
        asked = read_detokenize(await http.read(), self._settings.served)
        self._check_ids(asked.tokens, "tokens")
        return _json({"prompt": self._core.tokenizer.decode(asked.tokens, skip_special_tokens=False)})

    async def _sample(
        self,
        prompt: list[int],
        limit: int | None,
        temperature: float | None,
        seed: int | None,
        *,
        scored: bool = False,
    ) -> Request:
        """Sample one reply of at most ``limit`` tokens. ``scored``: see ``Request``.

        Raises:
            ApiError: 400 if the context does not hold the prompt and such a reply.
            EngineDeadError: the engine's thread has failed.
        """
        room = self._settings.max_model_len - len(prompt)
        if room < (limit or 1):
            raise bad_request(
                f"This model's maximum context length is {self._settings.max_model_len} tokens. However, you "
                f"requested {limit or 1} output tokens and your prompt contains {len(prompt)} input tokens."
            )
        return await self._core.generate(
            prompt,
            # As in verl's vLLM: a request without a limit gets the configured response length.
            max_tokens=limit or min(self._settings.response_length, room),
            temperature=1.0 if temperature is None else temperature,
            seed=seed,
            scored=scored,
        )

    def _check_ids(self, ids: list[int], param: str) -> None:
        """Refuse ids that the model does not know: the engine's thread would fail, and with it every request."""
        known = self._core.engine.vocabulary
        unknown = next((token for token in ids if not 0 <= token < known), None)
        if unknown is not None:
            raise bad_request(f"token id {unknown} is not in the vocabulary of {known} tokens", param)

    def _model(self, asked: str | None) -> str:
        return asked or self._settings.served[0]


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
