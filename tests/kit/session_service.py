"""The sessions of a run as processes of their own, in a directory like that of a run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp

from kit.token_replica import TokenReplica, call_text
from kit.waiting import PATIENCE_S
from liverl.sessions.replica_file import file_digest, replica_file

TOOL = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "Look."}


class Service:
    """The directory of a run with its listening socket, and the processes that serve it one after another."""

    def __init__(self, folder: Path) -> None:
        self.dir = folder / ("run-" + "x" * 90)  # longer than the address of a socket can be
        for name in ("secrets", "sessions", "trials/step_0001"):
            (self.dir / name).mkdir(parents=True)
        (self.dir / "secrets" / "sessions_key").write_text("sk-control\n")
        (self.dir / "secrets" / "replica_token").write_text("sk-replica\n")
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(64)
        self.settings: dict[str, Any] = {
            "run_dir": str(self.dir),
            "host": "127.0.0.1",
            "control_key_file": str(self.dir / "secrets" / "sessions_key"),
            "replica_token_file": str(self.dir / "secrets" / "replica_token"),
            "max_body_bytes": 1 << 20,
            "rewrite": "split",
            "main_agent_prefix_match": 256,
            "request_timeout": 60.0,
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self.more: list[int] = []  # further descriptors that the process inherits

    def list_replicas(self, *urls: str, draining: tuple[str, ...] = ()) -> str:
        """Write the list; return what the service reports once it has read it."""
        data = replica_file(urls, draining, "m")
        (self.dir / "sessions" / "replicas.json").write_bytes(data)
        return file_digest(data)

    def start(self, **env: str) -> subprocess.Popen[bytes]:
        path = self.dir / "sessions" / "settings.json"
        path.write_text(json.dumps(self.settings))
        number = len(self.processes) + 1
        given = {"LIVERL_LISTEN_FD": str(self.listener.fileno()), "LIVERL_GENERATION": str(number), **env}
        with open(self.dir / f"log.{number}", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "liverl.sessions", "--config", str(path)],
                env={**os.environ, **given},
                pass_fds=[self.listener.fileno(), *self.more],
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def text(self) -> str:
        return (self.dir / f"log.{len(self.processes)}").read_text()

    def report(self) -> dict[str, Any]:
        path = self.dir / "sessions" / f"status.{len(self.processes)}.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    async def until(self, condition: Callable[[], Any], seconds: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.text()
            await asyncio.sleep(0.02)

    async def serving(self) -> None:
        await self.until(lambda: self.report().get("state") == "serving")

    async def ended(self) -> int:
        return await asyncio.to_thread(self.processes[-1].wait, PATIENCE_S)

    async def control(
        self, method: str, path: str, body: Any = None, key: str = "sk-control"
    ) -> tuple[int, Any]:
        folder = os.open(self.dir / "sessions", os.O_PATH)
        try:
            connector = aiohttp.UnixConnector(f"/proc/self/fd/{folder}/control.sock")
            headers = {"Authorization": f"Bearer {key}"}
            async with (
                aiohttp.ClientSession(connector=connector) as http,
                http.request(method, f"http://run{path}", json=body, headers=headers) as response,
            ):
                return response.status, await response.json()
        finally:
            os.close(folder)

    async def open(self, name: str = "task-00000001") -> dict[str, Any]:
        folder = self.dir / "trials" / "step_0001" / name
        folder.mkdir(exist_ok=True)
        status, opened = await self.control("POST", "/sessions", {"id": name, "trial_dir": str(folder)})
        assert status == 201, opened
        return dict(opened)

    async def chat(self, opened: dict[str, Any], *messages: Any) -> dict[str, Any]:
        body = {"model": "m", "messages": [USER, *messages], "tools": [TOOL]}
        headers = {"x-api-key": opened["key"]}
        url = f"{opened['openai_url']}/chat/completions"
        async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            return dict((await response.json())["choices"][0]["message"])


@contextlib.asynccontextmanager
async def reading_replica() -> AsyncIterator[TokenReplica]:
    """A replica that reads a file in each turn, named by the turn; not started yet."""
    made = TokenReplica(lambda _prompt, turn: call_text("read_file", path=f"{turn}.txt"))
    yield made
    await made.stop()


@contextlib.asynccontextmanager
async def service_of(folder: Path, replica: TokenReplica, **settings: Any) -> AsyncIterator[Service]:
    """The sessions before ``replica``, which is started; no process yet. All that were started are killed at the end.
    ``settings``: further ones."""
    made = Service(folder)
    made.settings |= settings
    made.list_replicas(await replica.start())
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
    made.listener.close()
