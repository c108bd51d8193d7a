"""What ``sessions.py`` starts as processes of their own: a scripted replica, and the sessions of a run.

``session_process.py replica FD[,FD...]`` and ``session_process.py sessions FOLDER FD``: FD is a listening socket. With
several of them the replica answers as many.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]

CONTROL = "control-key-of-the-benchmark"
CONTEXT = 200_000  # tokens
BODY_LIMIT = 64 << 20  # bytes


def script(_prompt: str, turn: int) -> str:
    """A tool call in every turn, in a spelling that text would not keep."""
    from kit.token_replica import call_text

    return f"Step {turn}: I look. " + call_text("read_file", path=f"src/module_{turn}.py")


async def replica(*listeners: socket.socket) -> None:
    """Serve the token routes and the chat route of one script, and ``/stats``: what was asked of it."""
    from aiohttp import web
    from kit.token_replica import TokenReplica, odd_ids

    from liverl.agents.tool_calls import parse_qwen3_coder, render_qwen3_coder
    from liverl.embedded.engine.chat import prompt_ids
    from liverl.embedded.tokenizer import EOS_ID, encode

    opening = encode("<|im_start|>assistant\n")[-1]

    class Instant(TokenReplica):
        """Counts the turns in the ids, without decoding them: what a turn costs is then the route's part."""

        async def _generate(self, request: web.Request) -> web.Response:
            ids = [*odd_ids(script("", (await request.json())["token_ids"].count(opening) - 1)), EOS_ID]
            choice = {
                "index": 0,
                "token_ids": ids,
                "finish_reason": "stop",
                "logprobs": {"content": [{"token_id": i, "logprob": -i / 1000} for i in ids]},
            }
            return web.json_response({"request_id": "g", "choices": [choice]})

    scripted = Instant(script, context=CONTEXT)
    received: dict[str, list[int]] = {}  # path -> [requests, bytes]

    async def chat(request: web.Request) -> web.Response:
        body = await request.json()
        prompt = prompt_ids(body["messages"], body.get("tools") or [], render_qwen3_coder)
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        text = script("", turn)
        ids = [*odd_ids(text), EOS_ID]
        parsed = parse_qwen3_coder(text, body.get("tools") or [])
        calls = [
            {"id": f"call-{index}", "type": "function", "function": call._asdict()}
            for index, call in enumerate(parsed.calls)
        ]
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": parsed.content, "tool_calls": calls},
            "finish_reason": "tool_calls",
            "token_ids": ids,
            "logprobs": {
                "content": [
                    {"token": f"token_id:{i}", "logprob": -i / 1000, "bytes": None, "top_logprobs": []}
                    for i in ids
                ]
            },
        }
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(ids),
            "total_tokens": len(prompt) + len(ids),
        }
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"]}
        return web.json_response(
            {**head, "choices": [choice], "usage": usage, "prompt_token_ids": prompt}, dumps=json.dumps
        )

    async def stats(_request: web.Request) -> web.Response:
        return web.json_response({"received": received, "rendered": scripted.rendered})

    @web.middleware
    async def count(request: web.Request, handler: Any) -> Any:
        one = received.setdefault(request.path, [0, 0])
        size = len(await request.read())
        one[0] += 1
        one[1] += size
        scripted.parsed.clear()
        return await handler(request)

    app = scripted.app()
    app.middlewares.append(count)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/stats", stats)
    await _serve([(app, listeners)])


async def sessions(folder: Path, listener: socket.socket) -> None:
    """Serve the sessions of ``folder``, as the service of a run does: the agents' part on the listener, the trainer's
    on a Unix socket."""
    import aiohttp

    from liverl.sessions.replicas import ReplicaList
    from liverl.sessions.server import AgentRoutes, TrainerRoutes
    from liverl.sessions.store import Store

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        replicas = ReplicaList(http)
        store = Store(folder / "sessions", (folder / "trials",), replicas)
        store.restore()
        control = socket.socket(socket.AF_UNIX)
        (folder / "control").unlink(missing_ok=True)
        control.bind(str(folder / "control"))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        trainer = TrainerRoutes(store, replicas, CONTROL, lambda: address)
        try:
            await _serve([(AgentRoutes(store).app(BODY_LIMIT), (listener,)), (trainer.app(), (control,))])
        finally:
            await store.close()


async def _serve(apps: list[tuple[Any, Sequence[socket.socket]]]) -> None:
    from aiohttp import web

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    runners = [(web.AppRunner(app, access_log=None), listeners) for app, listeners in apps]
    for runner, listeners in runners:
        await runner.setup()
        for listener in listeners:
            await web.SockSite(runner, listener, backlog=2048).start()
    await stop.wait()
    for runner, _ in runners:
        await runner.cleanup()


def main() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    what, *rest = sys.argv[1:]
    listeners = [socket.socket(fileno=int(fd)) for fd in rest[-1].split(",")]
    work = replica(*listeners) if what == "replica" else sessions(Path(rest[0]), *listeners)
    where = os.environ.get("LIVERL_BENCH_PROFILE")
    if not where or what == "replica":
        asyncio.run(work)
        return
    import cProfile

    profile = cProfile.Profile()
    profile.runcall(asyncio.run, work)
    profile.dump_stats(where)


if __name__ == "__main__":
    main()
