"""Sessions with their servers, in this process."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import aiohttp

from liverl.sessions.admission import Rules
from liverl.sessions.local_engine import Tokenizers
from liverl.sessions.replica_file import Replica
from liverl.sessions.replicas import KEEPALIVE_S, ReplicaList
from liverl.sessions.scheduler import Scheduler
from liverl.sessions.segments import Rewrite
from liverl.sessions.server import AgentRoutes, TrainerRoutes
from liverl.sessions.store import Store
from liverl.util.http_server import HttpServer

POLL_S = 0.05
CONTROL = "control-key"


class SessionHost:
    """The sessions of one run, with their servers. ``urls``: of the replicas, set before ``start``."""

    def __init__(self, folder: Path, body_limit: int = 1 << 20) -> None:
        self.folder = folder
        self.body_limit = body_limit
        self.address = ""
        self.listens = "127.0.0.1"  # where agents reach it, set before ``start``
        (folder / "trials").mkdir(exist_ok=True)
        self.urls: list[str] = []
        self.rules: Rules | None = None  # set before ``start``: samples wait for room in the KV cache
        self.most_waiting = 1000
        self.rewrite: Rewrite = "split"
        self.settings: dict[str, Any] = {}  # further ones of the store
        self.tokenizers: Tokenizers | None = None  # set before ``start``: they make the ids of prompts
        self.models: tuple[str, ...] = ()  # names that are the policy, beside "m"

    async def start(self) -> None:
        """Read the journals again, then listen."""
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)
        )
        self.replicas = replicas = ReplicaList(self.http, tokenizers=self.tokenizers)
        scheduler = None
        if self.rules is not None:
            read = functools.partial(replicas.kv_cache, seconds=5.0)
            scheduler = Scheduler(self.rules, POLL_S, read, self.most_waiting)
        self.store = Store(
            self.folder / "sessions",
            (self.folder / "trials",),
            replicas,
            rewrite=self.rewrite,
            scheduler=scheduler,
            **self.settings,
        )
        if self.tokenizers is not None:
            self.tokenizers.doubt = self.store.doubt
        self.store.restore()
        self.replicas.put([Replica(url, "m") for url in self.urls])
        agents = AgentRoutes(self.store, self.models)
        self.agents = HttpServer(
            agents.app(self.body_limit), agents.gate, max_body=self.body_limit, shutdown_timeout=1.0
        )
        self.address = f"http://{self.listens}:{await self.agents.listen(self.listens)}"
        trainer = TrainerRoutes(self.store, self.replicas, CONTROL, lambda: self.address)
        self.trainer = HttpServer(trainer.app(), trainer.gate, max_body=64 << 20, shutdown_timeout=1.0)
        self.control_address = f"http://127.0.0.1:{await self.trainer.listen('127.0.0.1')}"

    async def stop(self) -> None:
        """Close everything; the journals stay."""
        await self.agents.close()
        await self.trainer.close()
        await self.store.close()
        self.replicas.close()
        await self.http.close()

    async def control(self, method: str, path: str, body: Any = None, key: str = CONTROL) -> tuple[int, Any]:
        """A request of the trainer: its status and its body."""
        headers = {"Authorization": f"Bearer {key}"}
        async with self.http.request(
            method, self.control_address + path, json=body, headers=headers
        ) as response:
            return response.status, await response.json()

    async def open(self, name: str = "task-00000001", **limits: Any) -> dict[str, Any]:
        """Open a session, with a directory for its trial."""
        folder = self.folder / "trials" / name
        folder.mkdir(exist_ok=True)
        status, opened = await self.control(
            "POST", "/sessions", {"id": name, "trial_dir": str(folder), "limits": limits}
        )
        assert status == 201
        return opened

    async def finish(self, name: str = "task-00000001") -> list[dict[str, Any]]:
        """End a session; its rows."""
        status, body = await self.control("POST", f"/sessions/{name}/finish")
        assert status == 200
        return body["rows"]

    async def chat(self, opened: dict[str, Any], *messages: dict[str, Any], **fields: Any) -> tuple[int, Any]:
        """One request of an agent in OpenAI's form: its status and its body."""
        body = {"model": "m", "messages": list(messages), **fields}
        headers = {"Authorization": f"Bearer {opened['key']}"}
        url = f"{opened['openai_url']}/chat/completions"
        async with self.http.post(url, json=body, headers=headers) as response:
            return response.status, await response.json()
