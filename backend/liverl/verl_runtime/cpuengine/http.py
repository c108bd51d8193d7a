"""The replica's HTTP server, with vLLM's routes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from liverl.agents.chat_api import ApiError, bad_request, max_tokens, model_list, read_chat
from liverl.agents.tool_calls import PARSERS
from liverl.util.aiohttp_guard import guard
from liverl.util.token_guard import Token
from liverl.verl_runtime.cpuengine.core import Core
from liverl.verl_runtime.cpuengine.engine import EngineDeadError
from liverl.verl_runtime.cpuengine.replies import Reply, prompt_of

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
        self._runner: web.AppRunner | None = None

    async def listen(self, host: str) -> int:
        """Listen on a free port of ``host`` and return the port."""
        self._runner = web.AppRunner(self._app(), access_log=None, handle_signals=False,
                                     shutdown_timeout=_STOP_GRACE, handler_cancellation=True)  # fmt: skip
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, 0, backlog=1024)
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    async def close(self) -> None:
        """Stop the server."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(
            client_max_size=_BODY_LIMIT, middlewares=[self._answer_errors, guard(self._token)]
        )
        app.router.add_get("/health", self._health, allow_head=False)
        app.router.add_get("/metrics", self._metrics, allow_head=False)
        app.router.add_get("/v1/models", self._models, allow_head=False)
        app.router.add_post("/v1/chat/completions", self._chat)
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
        prompt = prompt_of(self._core.tokenizer, chat)
        room = self._settings.max_model_len - len(prompt)
        asked = max_tokens(chat)
        if room < (asked or 1):
            raise bad_request(
                f"This model's maximum context length is {self._settings.max_model_len} tokens. However, you "
                f"requested {asked or 1} output tokens and your prompt contains {len(prompt)} input tokens."
            )
        generation = await self._core.generate(
            prompt,
            # As in verl's vLLM: a request without a limit gets the configured response length.
            max_tokens=asked or min(self._settings.response_length, room),
            temperature=1.0 if chat.temperature is None else chat.temperature,
            seed=chat.seed,
        )
        model = chat.model or self._settings.served[0]
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


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
