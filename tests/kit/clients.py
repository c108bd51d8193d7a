"""Clients of a run's proxy, in a thread of their own: every request that is not answered whole is counted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import aiohttp

from kit.runs import ToyRun
from kit.waiting import wait_until

MODEL = "policy"
PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)


@dataclass(frozen=True)
class Kind:
    """A sort of client: a closed loop of requests over one kept-alive connection, without retries.

    ``tokens`` of one answer; ``pause`` seconds between two requests, ``fresh`` = a connection for each.
    """

    name: str
    tokens: int
    stream: bool = False
    pause: float = 0.0
    fresh: bool = False


@dataclass
class Counts:
    """``refused``: no connection. ``cut``: a connection that ended before its answer. ``bad``: any answer that
    is not whole or not 200."""

    answered: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    slowest: Counter[str] = field(default_factory=Counter)  # seconds, by kind
    by_trial: Counter[str] = field(default_factory=Counter)

    @property
    def faults(self) -> dict[str, list[str]]:
        found = {"refused": self.refused, "cut": self.cut, "bad": self.bad}
        return {name: errors for name, errors in found.items() if errors}

    @property
    def requests(self) -> int:
        return sum(self.answered.values()) + sum(len(errors) for errors in self.faults.values())

    def words(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.answered.items()))
        slowest = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in sorted(self.slowest.items()))
        return (
            f"{self.requests} requests ({kinds}): {len(self.refused)} refused, {len(self.cut)} cut, "
            f"{len(self.bad)} bad; slowest: {slowest}"
        )


class Clients:
    """``with Clients(run, {kind: how many}) as clients: ...``; the end waits for what is in flight."""

    def __init__(self, run: ToyRun, kinds: dict[Kind, int]) -> None:
        address = run.service("proxy").address
        assert address is not None
        self.url = f"{address}/v1/chat/completions"
        self.key = (run.run_dir / "secrets" / "run_key").read_text().strip()
        self.counts = Counts()
        self.open: Counter[str] = Counter()  # requests in flight, by kind
        self._kinds = kinds
        self._ending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()), daemon=True)

    def __enter__(self) -> Clients:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if kind is None:
            self.join(200)

    def end(self) -> None:
        """Begin no further request."""
        self._ending.set()

    def join(self, seconds: float) -> None:
        """Begin no further request, and wait until the last one has its answer."""
        self.end()
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"still open after {seconds:g} s: {dict(self.open)}"

    def wait(self, more: int, seconds: float = 60.0) -> None:
        """Wait for so many further answers."""
        reached = sum(self.counts.answered.values())
        wait_until(lambda: sum(self.counts.answered.values()) >= reached + more, seconds, f"{more} answers")

    async def _all(self) -> None:
        clients = [
            self._client(kind, f"{kind.name}-{number}")
            for kind, count in self._kinds.items()
            for number in range(count)
        ]
        await asyncio.gather(*clients)

    async def _client(self, kind: Kind, trial: str) -> None:
        connector = aiohttp.TCPConnector(
            limit=1, force_close=kind.fresh, **({} if kind.fresh else {"keepalive_timeout": 600})
        )
        async with aiohttp.ClientSession(connector=connector, timeout=PATIENCE) as session:
            while not self._ending.is_set():
                await self._counted(session, kind, trial)
                if kind.pause:
                    await asyncio.to_thread(self._ending.wait, kind.pause)

    async def _counted(self, session: aiohttp.ClientSession, kind: Kind, trial: str) -> None:
        began, counts = time.monotonic(), self.counts
        self.open[kind.name] += 1
        try:
            problem = await self._once(session, kind, trial)
        except aiohttp.ClientConnectorError as error:
            counts.refused.append(f"{trial}: {error}")
            return
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            took = time.monotonic() - began
            counts.cut.append(f"{trial} after {took:.1f} s: {type(error).__name__}: {error}")
            return
        finally:
            self.open[kind.name] -= 1
        if problem is not None:
            counts.bad.append(f"{trial}: {problem}")
            return
        counts.answered[kind.name] += 1
        counts.by_trial[trial] += 1
        counts.slowest[kind.name] = max(counts.slowest[kind.name], time.monotonic() - began)

    async def _once(self, session: aiohttp.ClientSession, kind: Kind, trial: str) -> str | None:
        body: dict[str, Any] = {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"Tell me about {trial}."}],
            "max_tokens": kind.tokens,
        }
        if kind.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = {"Authorization": f"Bearer {self.key}.{trial}"}
        async with session.post(self.url, json=body, headers=headers) as response:
            if response.status != 200:
                return f"HTTP {response.status}: {(await response.text())[:300]}"
            if not kind.stream:
                return _whole(json.loads(await response.read()), kind.tokens)
            return await _stream_whole(response, kind.tokens)


def _whole(answer: dict[str, Any], tokens: int) -> str | None:
    got = answer["usage"]["completion_tokens"]
    if got != tokens:
        return f"{got} of {tokens} tokens"
    return None if answer["choices"][0]["message"]["content"] else "no content"


async def _stream_whole(response: aiohttp.ClientResponse, tokens: int) -> str | None:
    pieces, usage, done = 0, None, False
    async for raw in response.content:
        line = raw.strip()
        if not line.startswith(b"data: "):
            continue
        if line == b"data: [DONE]":
            done = True
            continue
        chunk = json.loads(line.removeprefix(b"data: "))
        if "error" in chunk:
            return f"an error within the stream: {str(chunk['error'])[:300]}"
        with contextlib.suppress(KeyError, TypeError):
            usage = chunk["usage"]["completion_tokens"]
        pieces += any(choice["delta"].get("content") for choice in chunk["choices"])
    if not done or pieces != tokens or usage != tokens:
        return f"{pieces} of {tokens} tokens (usage says {usage}), {'with' if done else 'without'} [DONE]"
    return None
