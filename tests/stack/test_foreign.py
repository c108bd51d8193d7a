"""The repair of a launch that is not ours: real Ray, real LiteLLM with two spawned workers; the engines behind it are
simulated."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from kit import raykit
from kit.components import LITELLM
from kit.ports import free_ports
from kit.processes import command_lines
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.config import load_config
from liverl.control.messages import CommandError
from liverl.daemon.launch import create_run
from liverl.environments import default_cache_dir, ensure
from liverl.external import port_holders
from liverl.plan import make_plan
from liverl.procs import procfs

pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

SCRIPT = Path(__file__).with_name("foreign_launch.py")
START = 300.0  # seconds: Ray and LiteLLM with two workers, on two cores that others use too


@dataclass
class Launch:
    """A run whose trainer is the script, and two processes of the host that have nothing to do with it."""

    run: ToyRun
    port: int
    folder: Path
    temp: Path  # Ray's
    bystanders: list[tuple[subprocess.Popen[bytes], int, int | None]] = field(default_factory=list)

    @property
    def config(self) -> Path:
        return Path(f"/tmp/litellm_cc_{self.port}.yaml")

    @property
    def key(self) -> str:
        return (self.folder / "key").read_text()

    @property
    def addresses(self) -> list[str]:
        found: list[str] = json.loads((self.folder / "addresses.json").read_bytes())
        return found

    def counts(self) -> list[int]:
        """How many chat requests each server has had."""
        found = []
        for address in self.addresses:
            with urllib.request.urlopen(f"http://{address}/count", timeout=60) as reply:
                found.append(int(json.load(reply)["count"]))
        return found

    def chat(self, model: str = "policy") -> str:
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "ping"}]}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            body,
            {"content-type": "application/json", "authorization": f"Bearer {self.key}"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return str(json.load(reply)["choices"][0]["message"]["content"])

    def bystander(self, name: str) -> None:
        """A web server under this name of argv[0]."""
        port = free_ports(1)[0]
        process = subprocess.Popen(
            [name, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
            executable=sys.executable,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
        )
        self.bystanders.append((process, port, procfs.start_tick(process.pid)))

    def untouched(self) -> None:
        """The bystanders are the same processes, and answer."""
        for process, port, tick in self.bystanders:
            assert process.poll() is None and procfs.start_tick(process.pid) == tick
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as reply:
                assert reply.status == 200

    def said(self, kind: str) -> list[str]:
        return [event.text for event in self.run.events() if event.kind == kind]


@pytest.fixture
def started() -> Iterator[list[Launch]]:
    """Of these nothing is left, once their runs have ended."""
    made: list[Launch] = []
    yield made
    for one in made:
        for process, _, _ in one.bystanders:
            process.kill()
            process.wait()
        for path in Path("/tmp").glob(f"litellm_cc_{one.port}.*"):
            path.unlink()
        shutil.rmtree(one.temp, ignore_errors=True)


@pytest.fixture
async def launch(tmp_path: Path, started: list[Launch], ending: Callable[[ToyRun], ToyRun]) -> Launch:
    python = await ensure(LITELLM, default_cache_dir(), lambda text, share: None)
    started.append(await asyncio.to_thread(start, tmp_path, python, ending))
    return started[-1]


def start(tmp_path: Path, python: Path, ending: Callable[[ToyRun], ToyRun]) -> Launch:
    port, dashboard = free_ports(2)
    folder, temp = tmp_path / "launch", Path(f"/tmp/lv-{secrets.token_hex(4)}")
    folder.mkdir()
    (folder / "key").write_text(f"sk-{secrets.token_hex(32)}")
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    command = [
        raykit.python(),
        str(SCRIPT),
        str(python.with_name("litellm")),
        str(port),
        str(folder),
        str(temp),
    ]
    sets = (
        "run.topology=verl",
        "trainer.kind=command",
        f"trainer.command={json.dumps(command)}",
        f"infrastructure.litellm_port={port}",
        f"infrastructure.ray_dashboard_port={dashboard}",
        "infrastructure.nnodes=1",
        "infrastructure.ngpus_per_node=2",
        "vllm.gen_tp=1",
        "run.engine=vllm",
        "model.model_path=org/model",
        "training.sp_size=1",
        "supervise.scan_interval=0.5",
    )
    loaded = load_config(None, sets=list(sets), env={})
    run_dir = tmp_path / "tests" / "foreign"
    create_run(loaded, make_plan(loaded, run_dir), run_dir)
    made = Launch(ending(ToyRun(run_dir)), port, folder, temp)
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    made.run.start(env=env)
    return made


def test_a_left_out_replica_is_listed_and_the_proxy_restarted(launch: Launch) -> None:
    launch.bystander("litellm")
    launch.bystander("python")
    run = launch.run
    proxy = run.until("proxy", "ready", START)
    ray = run.until("ray", "ready", START)
    assert (proxy.owner, ray.owner) == ("adopted", "adopted")
    first, second = (f"http://{address}" for address in launch.addresses)
    wait_until(lambda: run.snapshot().replicas.ready == 2, START, "both replicas")
    wait_until(lambda: [r.listed for r in run.snapshot().replicas.items] == [True, False], what="the list")
    shown = run.snapshot()
    assert [(r.name, r.address) for r in shown.replicas.items] == [
        ("vllm_server_0_0", first),
        ("vllm_server_1_0", second),
    ]
    assert shown.proxy.backends == (f"{first}/v1",) and shown.proxy.config == str(launch.config)
    assert launch.said("unlisted") == [
        f"replica vllm_server_1_0 is up at {second}, but the proxy's configuration does not list this replica; "
        "add it (scale +1), then restart the proxy"
    ]
    for _ in range(10):
        assert launch.chat() == "server 0"
    assert launch.counts() == [10, 0]

    # restart: the true holders, workers included, and nobody else
    before = port_holders.look(launch.port)
    assert before is not None and len(before.holders) == 3 and len(before.roots) == 1
    assert "multiprocessing.spawn" in " ".join(before.holders[-1].argv)
    assert set(proxy.members) == {process.pid for process in before.holders}

    old = launch.config.read_text()
    added = run.command("scale", delta=1)
    assert added["added"] == ["vllm_server_1_0"]
    backup = Path(added["backup"])
    assert backup.read_text() == old and backup.name.startswith(f"{launch.config.name}.bak-")
    listed = Counter(
        (model["model_name"], model["litellm_params"]["api_base"])
        for model in yaml.safe_load(launch.config.read_text())["model_list"]
    )
    names = ("claude-*", "hosted_vllm/policy", "policy")
    assert listed == {(name, f"{url}/v1"): 1 for name in names for url in (first, second)}
    run.until("proxy", lambda status: status.why.startswith("restart the proxy to load"))
    with pytest.raises(CommandError, match="all 2 replicas are listed; restart the proxy"):
        run.command("scale", delta=1)
    assert launch.chat() == "server 0"  # until it is restarted nothing has changed

    told = run.command("restart", service="proxy")
    after = port_holders.look(launch.port)
    assert after is not None and len(after.holders) == 3
    assert not any(procfs.alive(*process.member) for process in before.holders)
    assert after.roots[0].pid == told["pid"] and after.roots[0].argv == before.roots[0].argv
    assert Path(f"/tmp/litellm_cc_{launch.port}.pid").read_text() == f"{told['pid']}\n"
    env = procfs.whole_environment(told["pid"]) or {}
    assert env["LITELLM_MASTER_KEY"] == launch.key and os.readlink(f"/proc/{told['pid']}/cwd") == str(
        launch.folder
    )
    assert run.until("proxy", "ready", 60).owner == "adopted"
    wait_until(lambda: all(r.listed for r in run.snapshot().replicas.items), what="both are listed")
    launch.untouched()

    def both() -> bool:
        for name in names[1:]:
            launch.chat(name)
        return min(launch.counts()) > 0

    wait_until(both, what="requests at both servers")
    launch.chat("claude-3")
    commands = launch.said("command")
    assert [text.partition(": ")[2] for text in commands] == ["scale +1", "scale +1", "restart proxy"]

    # its parent is killed, as by `pkill -f litellm`: the workers still hold the port, and are found by it
    os.kill(told["pid"], signal.SIGKILL)
    wait_until(lambda: not procfs.alive(told["pid"], None), what="the parent's end")
    assert launch.chat() in ("server 0", "server 1")
    orphans = port_holders.look(launch.port)
    assert orphans is not None and len(orphans.roots) == 2
    again = run.command("restart", service="proxy")
    assert not any(procfs.alive(*process.member) for process in orphans.holders)
    found = port_holders.look(launch.port)
    assert found is not None and [root.pid for root in found.roots] == [again["pid"]]
    launch.chat()
    actor = run.snapshot().replicas.items[1]
    shown = run.command("inspect", service=actor.name)
    assert actor.pid in shown["members"] and shown["kind"] == "replica"
    for service in ("ray", "vllm_server_1_0"):
        with pytest.raises(CommandError, match="managed by"):
            run.command("restart", service=service)
    launch.untouched()

    run.command("stop")
    assert run.result(60).state == "stopped"
    # The kernel closes what the dead have left a moment later.
    wait_until(lambda: port_holders.look(launch.port) is None, what="a free port")
    assert not run.tagged()
    assert not [line for line in command_lines() if str(launch.folder) in line or f" {launch.port}" in line]
    launch.untouched()
