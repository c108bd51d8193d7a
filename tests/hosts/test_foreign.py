"""Runs on a Ray cluster of two hosts that somebody else has started: ``ray.address``, and a launch script that submits
its training there.

Ray, verl and the network are real; the hosts are namespaces of this machine, and the replicas are those for CPUs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.host_runs import nodes_told
from kit.net_hosts import Hosts
from kit.runs import ToyRun
from kit.verl_runs import RUN, Launch, finished, nothing_lives, result_of, verl_python
from kit.waiting import wait_until

from liverl.observe.metrics.steps import MetricsReader

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(2400)]
CPUS = 64  # as many as Ray is told: verl asks for that many, and uses two


class Ray:
    """A cluster by hand: ``ray start`` on each host, with a token."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts, self.folder = hosts, folder
        self.token = folder / "token"
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(32))
        self.address, self.dashboard = f"{hosts.address(0)}:6379", f"{hosts.address(0)}:8265"
        self.env = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "180",
            "RAY_agent_register_timeout_ms": "180000",
        }
        self._temp = [Path(f"/tmp/lv-{secrets.token_hex(4)}") for _ in range(2)]
        self.nodes: list[subprocess.Popen[bytes]] = []

    def start(self, number: int, gpus: int = 1) -> None:
        """Start Ray on a host; again where it did not start within its 30 s on a busy machine."""
        address = self.hosts.address(number)
        words = ["--head", "--port", "6379", "--dashboard-host", address, "--dashboard-port", "8265"]
        words = words if number == 0 else ["--address", self.address]
        log = self.folder / f"ray-{number}.log"
        for _ in range(3):
            with log.open("wb") as out:
                node = subprocess.Popen(
                    [
                        *(*self.hosts.on(number), str(verl_python()), "-m", "ray.scripts.scripts", "start"),
                        *("--block", *words, "--node-ip-address", address, "--num-cpus", str(CPUS)),
                        *("--num-gpus", str(gpus), "--object-store-memory", str(512 << 20)),
                        *("--min-worker-port", "0", "--max-worker-port", "0", "--disable-usage-stats"),
                        *("--temp-dir", str(self._temp[number])),
                    ],
                    env={name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
                    | self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            self.nodes.append(node)
            up = wait_until(
                lambda log=log, node=node: (
                    "Ray runtime started" in log.read_text() or node.poll() is not None
                ),  # type: ignore[misc]
                300,
                f"Ray on host {number}",
            )
            assert up
            if node.poll() is None:
                return
        raise AssertionError(log.read_text()[-2000:])

    def end(self) -> None:
        """End all that was started, and remove Ray's directories."""
        for node in reversed(self.nodes):
            node.terminate()
            node.wait(60)
        for folder in self._temp:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ray(hosts: Hosts, tmp_path: Path) -> Iterator[Ray]:
    made = Ray(hosts, tmp_path)
    yield made
    made.end()


def steps_of(run: ToyRun) -> list[int]:
    return [metrics.step for metrics in MetricsReader.of_run(run.run_dir).poll()]


def test_a_run_on_a_cluster_of_others_waits_for_its_hosts_and_shows_them(
    launch: Launch, hosts: Hosts, ray: Ray
) -> None:
    ray.start(0)
    run = ToyRun(launch.run_dir("theirs"))
    sets = ("infrastructure.nnodes=2", "infrastructure.ngpus_per_node=1", "run.topology=in_process")
    sets += (f"ray.address={ray.address}", f"ray.dashboard_address={ray.dashboard}")
    sets += (f"ray.auth_token_file={ray.token}", "training.total_steps=4")
    process = launch.up("theirs", *sets, before=hosts.on(0))
    line = f"RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={ray.token} ray start --address={ray.address}"
    waits = f"waiting for 1 host of 2; run on each: {line}"
    wait_until(lambda: waits in nodes_told(run), RUN, "the missing host")
    assert not (run.run_dir / "attempt_001" / "logs" / "trainer.1.log").exists()
    ray.start(1)
    wait_until(lambda: steps_of(run) or process.poll() is not None, RUN, "a step")
    assert process.poll() is None, launch.output("theirs").read_text()[-3000:]
    snapshot = run.snapshot()
    shown = sorted((node.name, node.ip, node.state, node.why) for node in snapshot.nodes)
    assert shown == [("n0", hosts.address(0), "ready", ""), ("n1", hosts.address(1), "ready", "")]
    assert sorted(replica.node for replica in snapshot.replicas.items) == ["n0", "n1"]
    assert finished(process) == 0, launch.output("theirs").read_text()[-3000:]
    result = result_of(run.run_dir)
    assert (result.state, result.exit_code, result.attempt) == ("done", 0, 1)
    assert steps_of(run) == [1, 2, 3, 4]
    nothing_lives(run.run_dir)
    assert all(node.poll() is None for node in ray.nodes), "the cluster of others goes on"


def test_what_a_host_lacks_is_said_before_verl_starts(
    launch: Launch, hosts: Hosts, ray: Ray, smoke: Path
) -> None:
    """One without the data and without a GPU: verl would count those of both together, and
    wait for ever."""
    ray.start(0, gpus=2)
    data = launch.state / "data"
    data.mkdir()
    for name in ("train", "val"):
        shutil.copy(smoke / f"{name}.parquet", data)
    there = hosts.on(1)
    subprocess.run([*there, "mount", "-t", "tmpfs", "tmpfs", str(data)], check=True)
    ray.start(1, gpus=0)
    run = ToyRun(launch.run_dir("lacks"))
    sets = ("infrastructure.nnodes=2", "infrastructure.ngpus_per_node=1", "run.topology=in_process")
    sets += (f"ray.address={ray.address}", f"ray.dashboard_address={ray.dashboard}", "ray.node_deadline=90")
    sets += (f"ray.auth_token_file={ray.token}", f"model.model_path={smoke}/model")
    sets += (f"data.train_index={data}/train.parquet", f"data.val_index={data}/val.parquet")
    process = launch.up("lacks", *sets, before=hosts.on(0))

    def told(words: str) -> bool:
        assert process.poll() is None, launch.output("lacks").read_text()[-3000:]
        return any(
            text.startswith(f"host n1 ({hosts.address(1)}) ") and words in text for text in nodes_told(run)
        )

    unseen = f"cannot use {data}/train.parquet (data.train_index): No such file or directory; mount or copy it there"
    wait_until(lambda: told(unseen), RUN, "the data that it does not see")
    wait_until(lambda: told("Ray has 0 GPUs there, and the run needs 1 on each host"), RUN, "the GPUs")
    subprocess.run([*there, "umount", str(data)], check=True)
    assert finished(process) == 1
    cause = result_of(run.run_dir).cause
    assert cause is not None
    assert cause.text.startswith(
        "1 host of 2 did not join within 90 s (ray.node_deadline): n1: Ray has 0 GPUs there"
    )
    assert not (run.run_dir / "attempt_001" / "logs" / "trainer.1.log").exists()
    nothing_lives(run.run_dir)
