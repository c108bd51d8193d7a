"""Replacing the proxy under load: no request is refused, none is cut, none is lost from the records."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from kit.components import LITELLM
from proxykit import MODEL, START_DEADLINE, Proxy, replicas, say, wait_for
from swapload import MESSAGES, Load

from liverl.environments import default_cache_dir, ensure

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    python = await ensure(LITELLM, default_cache_dir(), lambda text, share: say(text))
    proxy = Proxy(python, tmp_path / "run")
    try:
        yield proxy
    finally:
        await asyncio.to_thread(proxy.close)


def long_stream(proxy: Proxy) -> tuple[dict[str, str], dict[str, Any]]:
    """Headers and body of a streaming request of the trial ``long``."""
    headers = {"authorization": f"Bearer {proxy.keys.run}.long"}
    return headers, {"model": MODEL, "messages": MESSAGES, "stream": True}


@pytest.mark.slow
async def test_two_swaps_under_load(proxy: Proxy) -> None:
    """16 clients: kept-alive, streaming, a new connection per request, and idle between requests."""
    async with replicas("a", "b") as pair:
        for replica in pair:
            replica.chunk_gap = 0.3
        proxy.write_config(*(replica.url for replica in pair))
        proxy.start(1)
        await proxy.serving(1)
        load = Load(proxy.url, proxy.keys.run, MODEL)
        load.start(plain=6, streaming=4, fresh=3, idle=3)
        await wait_for(lambda: load.answered > 50, 60, "the load runs")
        for generation in (2, 3):
            proxy.start(generation)
            await proxy.serving(generation)
            proxy.signal(generation - 1, signal.SIGUSR1)
            assert await proxy.ended(generation - 1, 120) == 0
            assert proxy.status(generation - 1)["connections"] == 0
            reached = load.answered
            await wait_for(lambda: load.answered > reached + 30, 60, "the new one answers")  # noqa: B023
        await load.stop()
        proxy.signal(3, signal.SIGTERM)
        assert await proxy.ended(3) == 0
        assert load.errors == {}
        assert load.streamed > 10
        trials = [path.name for path in (proxy.run_dir / "trials").iterdir()]
        records = [record for trial in trials for record in proxy.trajectory(trial)]
        assert len(records) == load.answered + load.streamed
        assert {record["moved_from"] for record in records} == {None}
        assert len({(record["session_id"], record["replica"]) for record in records}) == 16
        say(f"answered {load.answered}, streams {load.streamed}, slowest {load.longest:.2f} s, errors 0")


@pytest.mark.slow
async def test_a_drain_waits_for_a_long_stream(proxy: Proxy) -> None:
    async with replicas("a") as (replica,):
        replica.hold_stream = asyncio.Event()
        proxy.write_config(replica.url)
        proxy.extra_env = {"LIVERL_DRAIN_IDLE_GRACE": "0.2"}
        proxy.start(1)
        await proxy.serving(1)
        headers, body = long_stream(proxy)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{proxy.url}/health/liveliness") as idle:
                assert idle.status == 200
            async with aiohttp.ClientSession() as other:
                response = await other.post(f"{proxy.url}/v1/chat/completions", json=body, headers=headers)
                proxy.signal(1, signal.SIGUSR1)
                await wait_for(
                    lambda: (proxy.status(1)["state"], proxy.status(1)["connections"]) == ("draining", 1),
                    60,
                    "the idle connection is closed, the one that is busy is not",
                )
                replica.hold_stream.set()
                assert (await response.text()).rstrip().endswith("data: [DONE]")
        assert await proxy.ended(1) == 0
        assert [record["success"] for record in proxy.trajectory("long")] == [True]


@pytest.mark.slow
async def test_the_limit_of_a_drain_cuts_what_still_runs(proxy: Proxy) -> None:
    async with replicas("a") as (replica,):
        replica.hold = asyncio.Event()
        proxy.write_config(replica.url)
        proxy.extra_env = {"LIVERL_DRAIN_TIMEOUT": "0.5"}
        proxy.start(1)
        await proxy.serving(1)
        headers, body = long_stream(proxy)
        async with aiohttp.ClientSession() as session:
            stuck = asyncio.create_task(
                session.post(f"{proxy.url}/v1/chat/completions", json=body, headers=headers)
            )
            await wait_for(lambda: replica.in_flight == 1, 60, "it is in flight")
            proxy.signal(1, signal.SIGUSR1)
            assert await proxy.ended(1) == 4
            assert "1 requests were cut off" in proxy.status(1)["error"]
            with contextlib.suppress(aiohttp.ClientError):
                answer = await stuck
                assert answer.status >= 500
        assert [record["success"] for record in proxy.trajectory("long")] == [False]


@pytest.mark.slow
async def test_signals_while_it_starts_are_kept(proxy: Proxy) -> None:
    async with replicas("a") as (replica,):
        proxy.write_config()
        proxy.start(1)
        await wait_for(lambda: proxy.status(1).get("state") == "starting", 60, "it has begun")
        sha = proxy.write_config(replica.url)
        proxy.signal(1, signal.SIGHUP)
        await proxy.serving(1)
        await wait_for(lambda: proxy.status(1)["config_sha"] == sha, 60, "the newer list is taken")
        proxy.start(2)
        await wait_for(lambda: proxy.status(2).get("state") == "starting", 60, "it has begun")
        proxy.signal(2, signal.SIGUSR1)
        assert await proxy.ended(2, START_DEADLINE) == 0
        assert proxy.status(1)["state"] == "serving"
