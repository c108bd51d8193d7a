"""Clients that keep a proxy busy and count every request that is not answered completely."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp

MESSAGES = [{"role": "user", "content": "hi"}]


@dataclass
class Load:
    """``errors``: what went wrong, by kind. ``longest``: seconds of the slowest answered request."""

    url: str
    key: str
    model: str
    answered: int = 0
    streamed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, plain: int, streaming: int, fresh: int, idle: int, pause: float = 6.5) -> None:
        """Closed loops. ``plain`` and ``streaming`` keep their connection, ``fresh`` opens one per request,
        ``idle`` keeps it and lets ``pause`` seconds pass between two requests."""
        kinds = [("plain", plain), ("stream", streaming), ("fresh", fresh), ("idle", idle)]
        for kind, count in kinds:
            for index in range(count):
                self._tasks.append(asyncio.create_task(self._client(kind, f"{kind}-{index}", pause)))

    async def stop(self) -> None:
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def _client(self, kind: str, trial: str, pause: float) -> None:
        if kind == "fresh":
            connector = aiohttp.TCPConnector(limit=1, force_close=True)
        else:
            connector = aiohttp.TCPConnector(limit=1, keepalive_timeout=60)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    await self._once(session, kind, trial)
                except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                    self.errors[f"{kind}: {type(error).__name__}: {error}"] += 1
                else:
                    self.longest = max(self.longest, time.monotonic() - began)
                if kind == "idle":
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await self._stopping.wait()

    async def _once(self, session: aiohttp.ClientSession, kind: str, trial: str) -> None:
        body: dict[str, Any] = {"model": self.model, "messages": MESSAGES}
        if kind == "stream":
            body["stream"] = True
        headers = {"authorization": f"Bearer {self.key}.{trial}"}
        async with session.post(f"{self.url}/v1/chat/completions", json=body, headers=headers) as response:
            text = await response.text()
        if response.status != 200:
            self.errors[f"{kind}: HTTP {response.status}: {text[:200]}"] += 1
        elif kind == "stream":
            if not text.rstrip().endswith("data: [DONE]"):
                self.errors["stream: cut"] += 1
            self.streamed += 1
        else:
            if not json.loads(text)["choices"]:
                self.errors[f"{kind}: no choice"] += 1
            self.answered += 1
