"""The trainer's part where the service has several processes: each request goes to the one that has its session.

All of them are safe to repeat: a session that is opened or ended again is the same one. So a request that meets a
process which has just ended is sent to the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from liverl.sessions.merging import merged_facts
from liverl.sessions.server import TRAINER_BODY, control_gate
from liverl.sessions.shares import owner
from liverl.util import clocks
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json

logger = logging.getLogger(__name__)

# Seconds, from its first failed try, for which a request waits for a process that is being started again: that takes a
# second or two, and more with many long sessions in the journals.
WAIT_S = 60.0
AGAIN_S = 0.1  # seconds between two tries
_PASSED = ("Authorization", "x-api-key", "Content-Type")  # headers


class _Named(msgspec.Struct, frozen=True):
    id: str


class Relayed(msgspec.Struct, frozen=True):
    """What a process has answered."""

    status: int
    body: bytes
    kind: str = "application/json"

    @property
    def ok(self) -> bool:
        """Whether it did what it was asked."""
        return self.status < 300


class Relay:
    """The trainer's requests to all processes."""

    def __init__(
        self,
        ways: Mapping[int, aiohttp.ClientSession],
        key: str,
        stops: Callable[[], bool],
        whole: Callable[[int, Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        """``ways``: to the socket of each process, by its number; ``key``: the control key; ``stops``: whether the
        service is being stopped, and no process will be started again; ``whole``: see ``Totals.take``."""
        self._ways, self._stops, self._whole = ways, stops, whole
        self.gate = control_gate(key)

    def app(self) -> web.Application:
        """The application for the trainer."""
        app = web.Application(client_max_size=TRAINER_BODY)
        app.router.add_route("*", "/{rest:.*}", self._pass)
        return app

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        parts = request.rel_url.parts[1:]
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}

        async def ask(number: int) -> Relayed:
            return await self._ask(number, request.method, request.rel_url, headers, body)

        if (request.method, parts) == ("GET", ("sessions",)):
            answer = self._merged(await asyncio.gather(*map(ask, self._ways)))
        elif (request.method, parts) == ("PUT", ("backends",)):
            answers = await asyncio.gather(*map(ask, self._ways))
            answer = next((each for each in answers if not each.ok), answers[0])
        else:
            answer = await ask(owner(_session(request.method, parts, body), len(self._ways)))
        return web.Response(body=answer.body, status=answer.status, content_type=answer.kind)

    async def _ask(
        self, number: int, method: str, path: URL, headers: Mapping[str, str], body: bytes
    ) -> Relayed:
        url = URL("http://sessions").join(path)
        end: float | None = None
        while True:
            try:
                async with self._ways[number].request(method, url, data=body, headers=headers) as response:
                    return Relayed(response.status, await response.read(), response.content_type)
            except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
                end = clocks.ran() + WAIT_S if end is None else end
                if self._stops() or clocks.ran() > end:
                    words = f"process {number + 1} of the sessions does not answer: {error}"
                    return _error(503, words)
            await asyncio.sleep(AGAIN_S)

    def _merged(self, answers: list[Relayed]) -> Relayed:
        failed = next((each for each in answers if not each.ok), None)
        if failed is not None:
            return failed
        every = [
            self._whole(number, decode_json(each.body))
            for number, each in zip(self._ways, answers, strict=True)
        ]
        return Relayed(200, msgspec.json.encode(merged_facts(every)))


def _session(method: str, parts: tuple[str, ...], body: bytes) -> str:
    """The session that a request is about; "" if it is about none: then any process says what is wrong with it."""
    if len(parts) > 1 and parts[0] == "sessions":
        return parts[1]
    if (method, parts) == ("POST", ("sessions",)):
        try:
            return decode_json(body, type=_Named).id
        except BAD_JSON:
            pass
    return ""


def _error(status: int, words: str) -> Relayed:
    error = {"message": words, "type": "api_error", "param": None, "code": str(status)}
    return Relayed(status, msgspec.json.encode({"error": error}))
