"""``watch`` on a real Ray and a real LiteLLM that somebody started by hand (``foreign_launch.py``). Simulated: the
engines in Ray's actors."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit import raykit
from kit.cli import run_cli
from kit.components import LITELLM
from kit.ports import free_ports
from kit.waiting import wait_until

from liverl.environments import default_cache_dir, ensure
from liverl.procs import procfs
from liverl.watch.http import Refused, get
from liverl.watch.target import Target, checked
from liverl.watch.watcher import Watcher

pytestmark = pytest.mark.stack
SCRIPT = Path(__file__).with_name("foreign_launch.py")
START = 300.0  # seconds


@dataclass
class Launch:
    process: subprocess.Popen[bytes]
    folder: Path
    port: int
    dashboard: int

    @property
    def addresses(self) -> list[str]:
        found: list[str] = json.loads((self.folder / "addresses.json").read_bytes())
        return found


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    python = asyncio.run(ensure(LITELLM, default_cache_dir(), lambda text, share: None))
    port, dashboard = free_ports(2)
    folder, temp = tmp_path / "launch", Path(f"/tmp/lv-{secrets.token_hex(4)}")
    folder.mkdir()
    (folder / "key").write_text(f"sk-{secrets.token_hex(32)}")
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    env = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "RAY_"))} | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DASHBOARD_PORT": str(dashboard),
    }
    command = [raykit.python(), SCRIPT, python.with_name("litellm"), str(port), folder, temp]
    with (folder / "launch.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
    one = Launch(process, folder, port, dashboard)
    try:
        yield one
    finally:
        table = procfs.scan()
        tree = [pid for pid, proc in table.items() if proc.session == process.pid]
        proxy = Path(f"/tmp/litellm_cc_{port}.pid")
        if proxy.exists():
            leader = int(proxy.read_text())
            tree += [pid for pid, proc in table.items() if proc.session == leader]
        process.terminate()
        process.wait(60)
        for pid in tree:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for path in Path("/tmp").glob(f"litellm_cc_{port}.*"):
            path.unlink()
        shutil.rmtree(temp, ignore_errors=True)


@pytest.mark.slow
def test_ray_and_a_proxy_that_lacks_a_replica(launch: Launch, tmp_path: Path) -> None:
    wait_until((launch.folder / "addresses.json").exists, START, "the launch")
    (tmp_path / "private").mkdir()
    health = f"http://127.0.0.1:{launch.port}/health/liveliness"
    wait_until(lambda: _answers(health), START, "the proxy")
    target = checked(Target(ray=f"127.0.0.1:{launch.dashboard}", litellm_port=launch.port))
    watcher = Watcher(target, tmp_path / "private")
    watcher.start()
    try:
        snapshot = wait_until(
            lambda: (s := watcher.poll()).replicas.ready == 2 and _state(s, "proxy") == "ready" and s,
            START,
            "two replicas and the proxy",
        )
        replicas = {item.name: item for item in snapshot.replicas.items}
        assert {name: item.address for name, item in replicas.items()} == {
            f"vllm_server_{rank}_0": f"http://{address}" for rank, address in enumerate(launch.addresses)
        }
        assert [replicas[f"vllm_server_{rank}_0"].listed for rank in range(2)] == [True, False]
        assert replicas["vllm_server_1_0"].pid is not None
        assert snapshot.proxy.backends == (f"http://{launch.addresses[0]}",)
        assert snapshot.proxy.config == f"/tmp/litellm_cc_{launch.port}.yaml"
        assert _state(snapshot, "ray") == "ready" and snapshot.topology == "verl"
        wait_until(lambda: any(s.id == "replica_unlisted:vllm_server_1_0" for s in watcher.poll().symptoms))
        proxy = snapshot.service("proxy")
        assert proxy is not None and proxy.pid is not None
        os.kill(proxy.pid, signal.SIGKILL)
        for pid in proxy.members:
            os.kill(pid, signal.SIGKILL) if pid != proxy.pid and procfs.alive(pid, None) else None
        down = wait_until(lambda: (s := watcher.poll()).service("proxy").state == "failed" and s)  # type: ignore[union-attr]
        assert "process_ended:proxy" in [one.id for one in down.symptoms]
    finally:
        watcher.close()
    done = run_cli("watch", "--ray", f"127.0.0.1:{launch.dashboard}", "--once", "--json")
    assert done.returncode == 0, done.stderr
    assert [item["state"] for item in json.loads(done.stdout)["replicas"]["items"]] == ["ready", "ready"]
    assert launch.process.poll() is None


def _answers(url: str) -> bool:
    try:
        return get(url, 5.0)[0] == 200
    except Refused:
        return False


def _state(snapshot: object, name: str) -> str:
    service = snapshot.service(name)  # type: ignore[attr-defined]
    return service.state if service is not None else ""
