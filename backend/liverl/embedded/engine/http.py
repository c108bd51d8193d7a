"""The engine's HTTP server: vLLM's routes, plus two routes for weight updates by the trainer."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from liverl.agents.chat_api import (
    ApiError,
    ChatRequest,
    WeightsUpdate,
    bad_request,
    decoded,
    model_list,
    read_chat,
    require_short,
)
from liverl.agents.token_api import (
    derender_body,
    read_derender,
    read_detokenize,
    read_generate,
    read_render,
    render_body,
)
from liverl.agents.tool_calls import Parsed
from liverl.embedded.engine.cache import Scheduler, Slot
from liverl.embedded.engine.core import Core, Generation
from liverl.embedded.engine.metrics import EngineMetrics
from liverl.embedded.engine.replies import Reply
from liverl.embedded.engine.token_api import chat_of, generation_body, prompt_scores, reply_text
from liverl.embedded.startup_log import api_log, core_log, engine_version, uvicorn_log
from liverl.embedded.tokenizer import decode
from liverl.sessions.routes import DERENDER, DETOKENIZE, GENERATE, RENDER
from liverl.util.aiohttp_guard import token_gate
from liverl.util.http_server import HttpServer
from liverl.util.log_path import log_path
from liverl.util.poll_filter import hide_polls
from liverl.util.token_guard import Token

_STATS_INTERVAL = 10.0  # seconds; vLLM's VLLM_LOG_STATS_INTERVAL
_BODY_LIMIT = 64 * 2**20  # maximum bytes of a request
LONG = 1 << 15  # letters from which on a prompt is rendered beside the event loop
_JSON = "application/json"


class _AccessLogger(AbstractAccessLogger):
    """Writes uvicorn's format: ``127.0.0.1:54046 - "GET /health HTTP/1.1" 200 OK``."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        peer = request.transport.get_extra_info("peername") if request.transport else None
        address = f"{peer[0]}:{peer[1]}" if peer else "-"
        phrase = HTTPStatus(response.status).phrase
        version = f"{request.version.major}.{request.version.minor}"
        uvicorn_log.info(
            '%s - "%s %s HTTP/%s" %d %s',
            address,
            request.method,
            log_path(request.raw_path),
            version,
            response.status,
            phrase,
        )


class EngineServer:
    """Serves one ``Core`` under the names in ``served``."""

    def __init__(
        self,
        args: argparse.Namespace,
        core: Core,
        scheduler: Scheduler,
        metrics: EngineMetrics,
        served: list[str],
        token: Token | None = None,
    ) -> None:
        """``token``: required for every route; None = nobody is refused."""
        self._token = token
        self.args, self.core, self.scheduler, self.metrics, self.served = (
            args,
            core,
            scheduler,
            metrics,
            served,
        )
        self._started = int(time.time())
        self._completions = 0
        self._digest = core.policy.digest()  # of the weights that are loaded

    async def run(self, sock: socket.socket, stop: asyncio.Event) -> None:
        """Serve on ``sock`` until ``stop``, then let open requests finish within the grace period."""
        app = self._app()
        host, port = sock.getsockname()[:2]
        api_log.info("Supported tasks: ['generate']")
        if self.args.enable_auto_tool_choice:
            api_log.info('"auto" tool choice has been enabled.')
        api_log.info("Starting vLLM server on http://%s:%d", host, port)
        api_log.info("Available routes are:")
        methods: dict[str, list[str]] = {}
        for route in app.router.routes():
            methods.setdefault(route.resource.canonical if route.resource else "?", []).append(route.method)
        for path, names in methods.items():
            api_log.info("Route: %s, Methods: %s", path, ", ".join(names))
        uvicorn_log.info("Started server process [%d]", os.getpid())
        uvicorn_log.info("Waiting for application startup.")
        if self._token is not None:  # in a run, whose backend asks all the time
            hide_polls(uvicorn_log.name)
        server = HttpServer(
            app,
            token_gate(self._token),
            max_body=_BODY_LIMIT,
            access_log=None if self.args.disable_uvicorn_access_log else uvicorn_log,
            access_log_class=_AccessLogger,
            shutdown_timeout=self.args.shutdown_grace,
            handler_cancellation=True,  # a client that disconnects frees its slot
        )
        await server.start(sock)
        uvicorn_log.info("Application startup complete.")
        stats = asyncio.create_task(self._log_stats())
        await stop.wait()
        uvicorn_log.info("Shutting down")
        stats.cancel()
        await server.close()
        uvicorn_log.info("Application shutdown complete.")
        uvicorn_log.info("Finished server process [%d]", os.getpid())

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=_BODY_LIMIT, middlewares=[self._count])
        routes: tuple[tuple[str, str, Callable[[web.Request], Awaitable[web.StreamResponse]]], ...] = (
            ("GET", "/health", self._health),
            ("GET", "/ping", self._health),
            ("POST", "/ping", self._health),
            ("GET", "/version", self._version),
            ("GET", "/metrics", self._metrics),
            ("GET", "/v1/models", self._models),
            ("POST", "/v1/chat/completions", self._chat),
            ("POST", RENDER, self._render),
            ("POST", DERENDER, self._derender),
            ("POST", DETOKENIZE, self._detokenize),
            ("POST", GENERATE, self._generate),
            ("POST", "/update_weights", self._update_weights),
            ("GET", "/policy_version", self._policy_version),
        )
        for method, path, handler in routes:
            if method == "GET":
                app.router.add_get(path, handler, allow_head=False)
            else:
                app.router.add_route(method, path, handler)
        return app

    @web.middleware
    async def _count(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            response = await handler(request)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                api_log.error("Error with model error=%s", error.message)
            response = _json(error.body(), error.status)
        except web.HTTPException as error:
            response = _json({"detail": error.reason}, error.status)
        path = request.match_info.route.resource.canonical if request.match_info.route.resource else "none"
        self.metrics.count_response(path, request.method, response.status)
        return response

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, request: web.Request) -> web.Response:
        return _json({"version": engine_version()})

    async def _metrics(self, request: web.Request) -> web.Response:
        self._gauge()
        return web.Response(text=self.metrics.render(), content_type="text/plain")

    async def _models(self, request: web.Request) -> web.Response:
        length = self.core.max_model_len
        body = model_list(self.served, created=self._started, root=self.args.model, max_model_len=length)
        return _json(body)

    async def _policy_version(self, request: web.Request) -> web.Response:
        return _json(self._weights())

    def _weights(self) -> dict[str, Any]:
        return {"version": self.core.policy.version, "digest": self._digest}

    async def _update_weights(self, request: web.Request) -> web.Response:
        update = decoded(await request.read(), WeightsUpdate)
        policy = self.core.policy
        policy.logits, policy.version = update.logits, update.version
        self._digest = policy.digest()
        self.scheduler.reset()
        core_log.info("Weights updated to version %d; successfully reset prefix cache", update.version)
        return _json(self._weights())

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        arrived = time.monotonic()
        request = read_chat(await http.read(), self.served, auto_tools=self.args.enable_auto_tool_choice)
        self._completions += 1
        if self._completions == self.args.fault_crash_after:
            core_log.error("fault: crash at completion %d", self._completions)
            os._exit(1)
        prompt = await self._rendered(request, lambda: self.core.prompt(request))
        async with self._place_in_batch(request, prompt) as (slot, generation):
            queued = slot.admitted - arrived
            reply = Reply(request, generation, request.model or self.served[0], slot.cached_tokens)
            if request.stream:
                return await self._stream(http, reply, arrived, queued)
            await asyncio.sleep(self.args.turn_latency)
            first = time.monotonic()
            if generation.plain and self.args.stream_chunk_delay:
                await asyncio.sleep(self.args.stream_chunk_delay * (len(generation.tokens) - 1))
            self._finished(generation, arrived, queued, first)
            return _json(reply.body())

    # -- token routes

    async def _render(self, http: web.Request) -> web.Response:
        request, generation = read_render(
            await http.read(), self.served, auto_tools=self.args.enable_auto_tool_choice
        )
        ids = await self._rendered(request, lambda: self.core.render(request, generation=generation))
        return _json(render_body(ids, request.model or self.served[0], self.core.max_model_len))

    async def _rendered(self, request: ChatRequest, render: Callable[[], list[int]]) -> list[int]:
        """What ``render`` makes of a request; of a long one beside the event loop, which serves others meanwhile."""
        if require_short(request, self.core.max_model_len) < LONG:
            return render()
        return await asyncio.to_thread(render)

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        arrived = time.monotonic()
        asked = read_generate(await http.read(), self.served)
        request, prompt = chat_of(asked), asked.token_ids
        self.core.check_room(request, prompt)
        self._completions += 1
        async with self._place_in_batch(request, prompt) as (slot, generation):
            queued = slot.admitted - arrived
            await asyncio.sleep(self.args.turn_latency)
            first = time.monotonic()
            self._finished(generation, arrived, queued, first)
            policy, scores = self.core.policy, None
            if asked.sampling_params.prompt_logprobs is not None:
                scores = prompt_scores(prompt, request, policy)
            return _json(generation_body(generation, policy.version, slot.cached_tokens, scores))

    async def _derender(self, http: web.Request) -> web.Response:
        asked = read_derender(await http.read(), self.served)
        text = reply_text(asked)
        parsed = self.core.parse(text, asked.tools) if asked.tools else Parsed(text, ())
        model = asked.model or self.served[0]
        return _json(derender_body(model, parsed.content, parsed.calls, asked.finish, int(time.time())))

    async def _detokenize(self, http: web.Request) -> web.Response:
        asked = read_detokenize(await http.read(), self.served)
        try:
            return _json({"prompt": decode(asked.tokens)})
        except ValueError as error:
            raise bad_request(str(error), "tokens") from None

    @contextlib.asynccontextmanager
    async def _place_in_batch(
        self, request: ChatRequest, prompt: list[int]
    ) -> AsyncIterator[tuple[Slot, Generation]]:
        """Wait for a slot, then sample the reply; counts requests that are cancelled."""
        slot = await self.scheduler.admit(prompt, self._expected(request, prompt))
        tokens: list[int] | None = None
        try:
            self.metrics.prompt_tokens += len(prompt)
            generation = self.core.generate(request, prompt)
            yield slot, generation
            tokens = [*prompt, *generation.tokens]
        except (asyncio.CancelledError, ConnectionError):
            self.metrics.finished["abort"] += 1
            raise
        finally:
            self.scheduler.release(slot, tokens)

    def _expected(self, request: ChatRequest, prompt: list[int]) -> int:
        # Reserve room for the requested length, or for a typical turn.
        asked = request.max_completion_tokens or request.max_tokens or 128
        return min(asked, self.core.budget(request, prompt))

    async def _stream(
        self, http: web.Request, reply: Reply, arrived: float, queued: float
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        )
        await response.prepare(http)
        await asyncio.sleep(self.args.turn_latency)
        first = time.monotonic()
        delay = self.args.stream_chunk_delay
        total = len(reply.generation.tokens)
        await _event(response, reply.opening())
        for generated, chunk in enumerate(reply.chunks(), 1):
            if chunk is not None:
                await _event(response, chunk)
            if generated < total and delay:
                await asyncio.sleep(delay)
        options = reply.request.stream_options
        if options is not None and options.include_usage:
            await _event(response, reply.usage_chunk())
        await response.write(b"data: [DONE]\n\n")
        self._finished(reply.generation, arrived, queued, first)
        await response.write_eof()
        return response

    def _finished(self, generation: Generation, arrived: float, queued: float, first: float) -> None:
        metrics, now, count = self.metrics, time.monotonic(), len(generation.tokens)
        # vLLM's engine metrics do not distinguish tool calls; only the parser does.
        reason = "length" if generation.finish_reason == "length" else "stop"
        metrics.finished[reason] += 1
        metrics.generation_tokens += count
        metrics.prompt_sizes.observe(len(generation.prompt))
        metrics.generation_sizes.observe(count)
        metrics.queue.observe(queued)
        metrics.first_token.observe(first - arrived)
        metrics.latency.observe(now - arrived)
        if count > 1:
            metrics.between_tokens.observe((now - first) / (count - 1), count - 1)

    def _gauge(self) -> None:
        metrics, scheduler = self.metrics, self.scheduler
        metrics.running, metrics.waiting, metrics.kv_usage = (
            scheduler.running,
            scheduler.waiting,
            scheduler.usage,
        )
        metrics.prefix_queries, metrics.prefix_hits = scheduler.queries, scheduler.hits
        metrics.policy_version, metrics.policy_digest = self.core.policy.version, self._digest

    async def _log_stats(self) -> None:
        """Log vLLM's throughput line every 10 s while requests run, and once afterwards."""
        prompt, generated, quiet = 0, 0, True
        while True:
            await asyncio.sleep(_STATS_INTERVAL)
            new_prompt, new_generated = (
                self.metrics.prompt_tokens - prompt,
                self.metrics.generation_tokens - generated,
            )
            prompt, generated = self.metrics.prompt_tokens, self.metrics.generation_tokens
            busy = bool(new_prompt or new_generated or self.scheduler.running)
            if busy or not quiet:
                scheduler = self.scheduler
                rate = scheduler.hits / scheduler.queries if scheduler.queries else 0.0
                api_log.info(
                    "Engine 000: Avg prompt throughput: %.1f tokens/s, "
                    "Avg generation throughput: %.1f tokens/s, Running: %d reqs, Waiting: %d reqs, "
                    "CPU KV cache usage: %.1f%%, Prefix cache hit rate: %.1f%%",
                    new_prompt / _STATS_INTERVAL, new_generated / _STATS_INTERVAL,
                    scheduler.running, scheduler.waiting, scheduler.usage * 100, rate * 100,
                )  # fmt: skip
            quiet = not busy


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type=_JSON)


async def _event(response: web.StreamResponse, chunk: dict[str, Any]) -> None:
    await response.write(b"data: " + msgspec.json.encode(chunk) + b"\n\n")
