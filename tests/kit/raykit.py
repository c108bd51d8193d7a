"""A real Ray head with token authentication, started and ended by the tests, never by ``ray stop``."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import secrets
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from kit.components import RAY
from kit.ports import free_ports
from kit.waiting import wait_until
from liverl.environments import default_cache_dir, ensure


@functools.cache
def python() -> str:
    """An interpreter that has Ray: the one that LIVERL_TEST_RAY_PYTHON names, else that of an environment which is
    built once into the cache (400 MB)."""
    given = os.environ.get("LIVERL_TEST_RAY_PYTHON")
    return given or str(asyncio.run(ensure(RAY, default_cache_dir(), lambda text, share: None)))


class Cluster:
    """``ray start --head --block`` with a temporary directory whose path is short enough for Ray's sockets.

    ``ray``: the Python of its head and of its workers; ``store``: bytes of the object store.
    """

    def __init__(
        self, folder: Path, ray: str = "", *, cpus: int = 4, gpus: int = 0, store: int = 100 << 20
    ) -> None:
        self.folder = folder
        self.token = folder / "token"
        self.token.touch(0o600)
        self.token.write_text(secrets.token_hex(32))
        gcs, dashboard, agent, client = free_ports(4)
        self.address = f"127.0.0.1:{gcs}"
        self.api = f"http://127.0.0.1:{dashboard}"
        self.temp = Path(f"/tmp/lv-{secrets.token_hex(4)}")
        self.env = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")} | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "180",  # Ray gives up after 60, too few on a machine at work
        }
        self.began = time.monotonic()
        with (folder / "ray.log").open("ab") as log:
            self._head = subprocess.Popen(
                [
                    *(ray or python(), "-m", "ray.scripts.scripts"),
                    *("start", "--head", "--block", "--disable-usage-stats"),
                    *("--num-cpus", str(cpus), "--num-gpus", str(gpus)),
                    *("--port", str(gcs), "--node-ip-address", "127.0.0.1"),
                    *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(dashboard)),
                    *("--dashboard-agent-listen-port", str(agent), "--ray-client-server-port", str(client)),
                    *("--temp-dir", str(self.temp), "--object-store-memory", str(store)),
                ],
                env=self.env,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._toys: subprocess.Popen[str] | None = None

    def wait(self) -> None:
        """Until the dashboard answers, and Ray has said that it runs."""

        def up() -> bool:
            assert self._head.poll() is None, (self.folder / "ray.log").read_text()[-2000:]
            headers = {"Authorization": f"Bearer {self.token.read_text()}"}
            try:
                request = urllib.request.Request(f"{self.api}/api/v0/nodes", headers=headers)
                with urllib.request.urlopen(request, timeout=60) as reply:
                    rows = json.load(reply)["data"]["result"]["result"]
            except (OSError, ValueError):
                return False
            return any(row["state"] == "ALIVE" for row in rows)

        wait_until(up, 170, "Ray's head")

    def order(self, **what: Any) -> None:
        """Have an actor made or killed, see ``ray_toys``."""
        if self._toys is None:
            script = Path(__file__).with_name("ray_toys.py")
            with (self.folder / "toys.log").open("ab") as log:
                self._toys = subprocess.Popen(
                    [python(), str(script), self.address],
                    env=self.env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            assert self._answer() == "ready"
        assert self._toys.stdin is not None
        self._toys.stdin.write(json.dumps(what) + "\n")
        self._toys.stdin.flush()
        assert self._answer() == "done"

    def _answer(self) -> str:
        assert self._toys is not None and self._toys.stdout is not None
        line = self._toys.stdout.readline().strip()
        return line or (self.folder / "toys.log").read_text()[-2000:]

    def end(self) -> None:
        """End everything of it, by pid."""
        tree = [self._head.pid] + ([] if self._toys is None else [self._toys.pid])
        processes = []
        for pid in tree:
            try:
                leader = psutil.Process(pid)
                processes += [*leader.children(recursive=True), leader]
            except psutil.NoSuchProcess:
                continue
        if self._toys is not None:
            self._toys.kill()
            self._toys.wait()
        if self._head.poll() is None:
            self._head.terminate()
            try:
                self._head.wait(60)
            except subprocess.TimeoutExpired:
                pass
        for process in processes:
            if process.is_running():
                process.kill()
        self._head.wait()
        psutil.wait_procs(processes, timeout=60)
        shutil.rmtree(self.temp, ignore_errors=True)
