"""What a turn of the sessions costs at least: ``python tests/bench/session_floor.py [--agents N] [--turns N]``.

A relay of aiohttp, as the sessions are, that does nothing with the bytes of a turn: it reads the request, sends so many
requests to a stub, and answers. ``guard``: behind ``HttpServer``, as the sessions. CPU of the relay for each turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]

import aiohttp  # noqa: E402
from aiohttp import web  # noqa: E402
from processes import cpu_seconds  # noqa: E402
from yarl import URL  # noqa: E402

from liverl.util.http_server import Caller, HttpServer  # noqa: E402

IDS = list(range(64))
ENTRIES = [{"token_id": token, "logprob": -1.5, "rank": 1} for token in IDS]
GENERATED = {"index": 0, "token_ids": IDS, "finish_reason": "length", "logprobs": {"content": ENTRIES}}
ANSWER = json.dumps({"request_id": "g", "choices": [GENERATED]}).encode()


def answering(body: bytes) -> web.Response:
    """A response in JSON."""
    return web.Response(body=body, content_type="application/json")


async def serve(app: web.Application, listener: socket.socket, guard: bool) -> None:
    """Serve until the process is ended."""
    if guard:
        caller = lambda request: Caller(key=request.headers["X-Agent"])  # noqa: E731
        await HttpServer(app, caller, max_body=16 << 20).start(listener)
    else:
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.SockSite(runner, listener, backlog=2048).start()
    await asyncio.Event().wait()


async def stub(listener: socket.socket) -> None:
    """Answers each request with the reply of a replica."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return answering(ANSWER)

    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/", answer)
    await serve(app, listener, guard=False)


async def relay(listener: socket.socket, url: str, asked: int, size: int, guard: bool) -> None:
    """``asked``: requests for each turn, the first one of them with ``size`` ids."""
    first, next_ones, where = json.dumps([12345] * size).encode(), b"x" * 1500, URL(url)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def turn(request: web.Request) -> web.Response:
            await request.read()
            for number in range(asked):
                async with http.post(where, data=next_ones if number else first) as answer:
                    await answer.read()
            return answering(b"x" * 700)

        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/", turn)
        await serve(app, listener, guard)


async def driven(url: str, pid: int, size: int, args: argparse.Namespace) -> list[float]:
    """Milliseconds of the relay's CPU for a turn, of each of three rounds."""
    body, found = b"x" * (1500 + 4 * size), []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def turn(agent: int) -> None:
            async with http.post(url, data=body, headers={"X-Agent": str(agent)}) as answer:
                await answer.read()

        for number in range(4):
            began = cpu_seconds([pid])
            for _ in range(args.turns):
                await asyncio.gather(*map(turn, range(args.agents)))
            if number:
                found.append((cpu_seconds([pid]) - began) / args.agents / args.turns * 1e3)
    return found


def started(*words: object) -> tuple[subprocess.Popen[bytes], str]:
    """A process of this file on a socket that is listened on already, and its URL."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        argv = [sys.executable, __file__, "--part", *map(str, words), str(listener.fileno())]
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        return subprocess.Popen(argv, pass_fds=[listener.fileno()]), url


def part(what: str, *rest: str) -> None:
    """What a process does."""
    listener = socket.socket(fileno=int(rest[-1]))
    if what == "stub":
        asyncio.run(stub(listener))
    else:
        url, asked, size, guard, _ = rest
        asyncio.run(relay(listener, url, int(asked), int(size), guard == "True"))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=32)
    parser.add_argument("--turns", type=int, default=20)
    args = parser.parse_args()
    replica, where = started("stub")
    print("tokens of history  requests a turn  guard   ms of CPU, median (least - most)")
    try:
        for size in (200, 50_000):
            for asked in (0, 1, 2, 4):
                for guard in (False, True):
                    process, url = started("relay", where, asked, size, guard)
                    try:
                        found = asyncio.run(driven(url, process.pid, size, args))
                    finally:
                        process.kill()
                        process.wait()
                    words = f"{statistics.median(found):.2f} ({min(found):.2f} - {max(found):.2f})"
                    print(f"{size:17d}  {asked:15d}  {guard!s:5}   {words}", flush=True)
    finally:
        replica.kill()
        replica.wait()


if __name__ == "__main__":
    part(*sys.argv[2:]) if sys.argv[1:2] == ["--part"] else main()
