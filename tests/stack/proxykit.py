"""Toy replicas and the real proxy runner for the tests of this folder."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from kit.real import whole_lines

from liverl.proxy import config as proxy_config
from liverl.proxy import keys as proxy_keys

RUNNER = Path(proxy_config.__file__).parent / "runtime" / "runner.py"
MODEL = "policy"
START_DEADLINE = 240.0  # seconds; LiteLLM needs 6 to 12 on a quiet machine, and over a minute on a busy one


async def wait_for(condition: Callable[[], Any], deadline: float, what: str) -> Any:
    """The first true value of ``condition``; fails the test after ``deadline`` seconds."""
    until = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"not within {deadline:g} s: {what}")
        await asyncio.sleep(0.02)


@dataclass
class ToyReplica:
    """Answers like vLLM. ``chunk_gap``: seconds between two chunks of a stream."""

    name: str
    port: int = 0
    chunk_gap: float = 0.0
    seen: list[dict[str, Any]] = field(default_factory=list)
    in_flight: int = 0
    hold: asyncio.Event | None = None  # while set to an unset event, answers wait
    hold_stream: asyncio.Event | None = None  # the same for the rest of a stream, after its first chunk
    fail_with: int | None = None
    die_in_stream: bool = False
    words: Iterable[str] | None = None  # the chunks of a stream; None: a greeting
    endless: bool = False  # a stream ends when its reader has gone
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completions)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _enter(self, request: web.Request) -> dict[str, Any]:
        body = await request.json()
        self.seen.append({"body": body, "headers": dict(request.headers)})
        if self.hold is not None:
            await self.hold.wait()
        return dict(body)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.in_flight += 1
        try:
            body = await self._enter(request)
            if self.fail_with:
                error = {"message": "engine trouble", "type": "InternalServerError", "code": self.fail_with}
                return web.json_response({"error": error}, status=self.fail_with)
            if body.get("stream"):
                return await self._stream(request, body)
            return web.json_response(self._answer(body))
        finally:
            self.in_flight -= 1

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": f"hello from {self.name}"}
        finish = "stop"
        if body.get("tools"):
            call = {
                "id": "call_1",
                "type": "function",
                "function": {"name": "run", "arguments": '{"cmd":"ls"}'},
            }
            message, finish = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish}
        answer: dict[str, Any] = {
            "id": f"chatcmpl-{self.name}-{len(self.seen)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
            "choices": [choice],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
        if body.get("return_token_ids"):
            answer["prompt_token_ids"] = [1, 2, 3]
            choice["token_ids"] = [4, 5, 6]
        if body.get("logprobs"):
            content = [{"token": "hello", "logprob": -0.5, "bytes": None, "top_logprobs": []}]
            choice["logprobs"] = {"content": content}
        return answer

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = await self._enter(request)
        choice = {"index": 0, "text": f"hello from {self.name}", "finish_reason": "stop", "logprobs": None}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        answer = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": body["model"]}
        return web.json_response({**answer, "choices": [choice], "usage": usage})

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        words: Iterable[str] = self.words or ["hello ", "from ", self.name]
        if self.endless:
            words = (f"{number} " + "x" * 1000 for number in itertools.count())
        base = {"id": f"chatcmpl-{self.name}-{len(self.seen)}", "object": "chat.completion.chunk"}
        base |= {"created": int(time.time()), "model": body["model"]}
        for index, word in enumerate(words):
            delta = {"role": "assistant", "content": word} if index == 0 else {"content": word}
            choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
            chunk: dict[str, Any] = {**base, "choices": [choice]}
            if body.get("return_token_ids"):
                choice["token_ids"] = [4 + index]
                if index == 0:
                    chunk["prompt_token_ids"] = [1, 2, 3]
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            await asyncio.sleep(self.chunk_gap)
            if self.hold_stream is not None:
                await self.hold_stream.wait()
            if self.die_in_stream and request.transport is not None:
                request.transport.abort()
                raise ConnectionResetError
        last = {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        await response.write(b"data: " + json.dumps(last).encode() + b"\n\n")
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        await response.write(
            b"data: " + json.dumps({**base, "choices": [], "usage": usage}).encode() + b"\n\n"
        )
        await response.write(b"data: [DONE]\n\n")
        return response


class Proxy:
    """One run's proxy: its held socket, its keys, and the generations started on it."""

    def __init__(self, python: Path, run_dir: Path) -> None:
        self.python = python
        self.run_dir = run_dir
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(2048)  # as the keeper does
        self.port = self.listener.getsockname()[1]
        self.keys = proxy_keys.ensure_keys(run_dir)
        self.config = run_dir / "proxy" / "litellm.yaml"
        self.config.parent.mkdir(parents=True)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.extra_env: dict[str, str] = {}
        self.open_files: int | None = None  # the limit of its processes

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def write_config(self, *backends: str, cooldown: float = 60.0, timeout: float = 120.0) -> str:
        text = proxy_config.render_litellm_config(backends, MODEL, timeout, cooldown, prefix="hosted_vllm/")
        self.write_text(text)
        return proxy_config.config_sha(text)

    def write_text(self, text: str) -> None:
        draft = self.config.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self.config)

    def start(self, generation: int) -> None:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LIVERL_"))}
        env |= {
            "LIVERL_RUN_DIR": str(self.run_dir),
            "LIVERL_PROXY_CONFIG": str(self.config),
            "LIVERL_LISTEN_FD": str(self.listener.fileno()),
            "LIVERL_GENERATION": str(generation),
            "LIVERL_DRAIN_TIMEOUT": "120",
            **self.extra_env,
        }
        with open(self.log(generation), "ab") as log:
            self.processes[generation] = subprocess.Popen(
                [str(self.python), str(RUNNER)],
                env=env,
                cwd=self.run_dir,
                pass_fds=[self.listener.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        if self.open_files is not None:  # it reads its limit later: an interpreter starts first
            limit = (self.open_files, self.open_files)
            resource.prlimit(self.processes[generation].pid, resource.RLIMIT_NOFILE, limit)

    def log(self, generation: int) -> Path:
        return self.run_dir / f"proxy.{generation}.log"

    def status(self, generation: int) -> dict[str, Any]:
        try:
            return dict(json.loads((self.run_dir / "proxy" / f"status.{generation}.json").read_text()))
        except FileNotFoundError:
            return {}

    def signal(self, generation: int, number: signal.Signals) -> None:
        self.processes[generation].send_signal(number)

    def alive(self, generation: int) -> None:
        """Fail the test with the end of the log if this generation has ended."""
        code = self.processes[generation].poll()
        if code is not None:
            raise AssertionError(f"the runner ended with {code}:\n{self.log(generation).read_text()[-4000:]}")

    async def serving(self, generation: int) -> dict[str, Any]:
        def ready() -> dict[str, Any] | None:
            self.alive(generation)
            status = self.status(generation)
            return status if status.get("state") == "serving" else None

        return dict(await wait_for(ready, START_DEADLINE, f"generation {generation} serves"))

    async def reload(self, generation: int, *backends: str, **options: float) -> None:
        sha = self.write_config(*backends, **options)
        self.signal(generation, signal.SIGHUP)

        def taken_over() -> bool:
            self.alive(generation)
            return bool(self.status(generation).get("config_sha") == sha)

        await wait_for(taken_over, 60, "the list is taken over")

    async def ended(self, generation: int, deadline: float = 60.0) -> int:
        process = self.processes[generation]
        await wait_for(lambda: process.poll() is not None, deadline, f"generation {generation} ends")
        return int(process.returncode)

    def trajectory(self, *parts: str) -> list[dict[str, Any]]:
        path = self.run_dir.joinpath("trials", *parts, "litellm-trajectory.jsonl")
        if not path.exists():
            return []
        return [json.loads(line) for line in whole_lines(path)]

    async def records(self, *parts: str, count: int, deadline: float = 60.0) -> list[dict[str, Any]]:
        return list(
            await wait_for(
                lambda: (found := self.trajectory(*parts)) and len(found) >= count and found,
                deadline,
                f"{count} records in {'/'.join(parts)} (there are {len(self.trajectory(*parts))})",
            )
        )

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            if process.poll() is None:
                process.kill()
                process.wait()
        self.listener.close()


@contextlib.contextmanager
def served(proxy: Proxy, *replicas: str) -> Iterator[Proxy]:
    """Start generation 1 of a proxy in front of the replicas; at the end it must drain and exit 0."""
    proxy.write_config(*replicas)
    proxy.start(1)
    try:
        asyncio.run(proxy.serving(1))
        yield proxy
        proxy.signal(1, signal.SIGTERM)
        assert asyncio.run(proxy.ended(1)) == 0
    finally:
        proxy.close()


@contextlib.asynccontextmanager
async def replicas(*names: str) -> AsyncIterator[list[ToyReplica]]:
    started = [ToyReplica(name) for name in names]
    for replica in started:
        await replica.start()
    try:
        yield started
    finally:
        for replica in started:
            for event in (replica.hold, replica.hold_stream):
                if event is not None:
                    event.set()
            await replica.stop()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
