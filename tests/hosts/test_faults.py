"""Every fault of a node that real clusters have had, made for real on hosts of namespaces: with which words a run, or
the ``join`` of the host, names it, and after how many seconds.

Only Ray runs (the run's own head, and what ``join`` starts): the run waits for a host more than there is, so verl is
not started. ``python -m pytest -n0 -m slow -rP tests/hosts/test_faults.py`` prints the table.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.host_runs import PROGRAM, Join, nodes_told
from kit.net_hosts import Hosts
from kit.runs import ToyRun
from kit.verl_runs import RUN, Launch, nothing_lives, result_of
from kit.waiting import wait_until

from liverl.hosts.states import JoinedHost, write_state

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(2400)]

# One host more than there is: the run waits for it, and starts no trainer.
SETS = ("infrastructure.nnodes=4", "infrastructure.ngpus_per_node=1", "run.topology=in_process")


class Cluster:
    """A run whose head is on host 0, and what joins it."""

    def __init__(self, launch: Launch, hosts: Hosts) -> None:
        self.launch, self.hosts = launch, hosts
        self.run = ToyRun(launch.run_dir("faults"))
        self.process = launch.up("faults", *SETS, before=hosts.on(0))
        self.file = self.run.run_dir / "cluster.json"
        wait_until(lambda: nodes_told(self.run), RUN, "the head")

    def join(self, number: int, *options: str, run_dir: Path | None = None) -> Join:
        """``join`` on a host."""
        return Join(self.launch, self.hosts, number, run_dir or self.run.run_dir, *options)

    def altered(self, name: str, **changes: object) -> Path:
        """A copy of the run's directory for ``join`` whose ``cluster.json`` says something else."""
        copy = self.launch.state / name
        copy.mkdir(mode=0o700)
        told = json.loads(self.file.read_text()) | changes
        path = copy / "cluster.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(told))
        return copy

    def states(self) -> dict[str, tuple[str, str]]:
        """Host name -> state and reason, as ``liverl-tui nodes`` prints them."""
        words = [*self.hosts.on(0), PROGRAM, "nodes", "--json", "--run", str(self.run.run_dir)]
        env = {**os.environ, "XDG_STATE_HOME": str(self.launch.state)}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
        return {node["name"]: (node["state"], node["why"]) for node in json.loads(done)}


def named(fault: str, began: float, look: Callable[[], str]) -> str:
    """Wait for the sentence that names a fault, and print it with its time."""
    found = wait_until(look, RUN, fault)
    print(f"{fault} | {time.time() - began:.0f} s | {found}")
    return found


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts, each on two nets."""
    made = Hosts(tmp_path, 3, nets=2)
    yield made
    made.end()


def test_each_fault_is_named(launch: Launch, hosts: Hosts, tmp_path: Path) -> None:
    cluster = Cluster(launch, hosts)
    told = json.loads(cluster.file.read_text())

    def line(joined: Join, words: str) -> Callable[[], str]:
        return lambda: next((one for one in joined.said().splitlines() if words in one), "")

    # No host is refused by what it lacks, so that each start of Ray is tried.
    def refused(fault: str, words: str, code: int | None, *options: str, **changes: object) -> None:
        began, copy = time.time(), cluster.altered(fault.replace(" ", "-"), **changes)
        joined = cluster.join(1, *options, run_dir=copy)
        named(fault, began, line(joined, words))
        if code is None:
            joined.process.terminate()
            joined.process.wait(120)
        else:
            assert joined.process.wait(120) == code

    wrong = tmp_path / "wrong"
    wrong.touch(mode=0o600)
    wrong.write_text("0" * 64)
    env = {**told["env"], "RAY_AUTH_TOKEN_PATH": str(wrong)}
    refused("wrong token", f"the head refused the token in {wrong}", 3, env=env, token_file=str(wrong))
    none = {**told["env"], "RAY_AUTH_MODE": "disabled"}
    refused("no token", "the head refused the token in", 3, env=none)
    nothing = f"{hosts.address(0)}:9"
    words = f"gave up after 20 s waiting for the Ray head at {nothing}: Connection refused"
    refused("nothing listens", words, 3, "--timeout", "20", address=nothing)
    clash = [
        *told["flags"],
        "--ray-client-server-port",
        told["flags"][told["flags"].index("--min-worker-port") + 1],
    ]
    refused("a port in the range of the workers", "ray.worker_ports: Ray component", 3, flags=clash)
    old = os.environ.get("LIVERL_TEST_OTHER_RAY_PYTHON", "")
    if old:
        # Where the head's host has told no versions: those of verl would be refused first.
        attempt = tmp_path / "attempt"
        (attempt / "logs").mkdir(parents=True)
        write_state(attempt, JoinedHost("n0", hosts.address(0), 1, "joined", ""))
        refused("another Ray", "both need the same versions", 3, python=old, attempt_dir=str(attempt))

    def event(words: str, begin: int) -> str:
        return next((one for one in nodes_told(cluster.run)[begin:] if words in one), "")

    began = time.time()
    hosts.cut(0, net=1)  # the head is on the first net alone
    joined = cluster.join(2, "--node-ip", hosts.address(2, 1))
    named(
        "wrong interface",
        began,
        lambda: next(iter(w for w in nodes_told(cluster.run) if "wrong interface" in w), ""),
    )
    named("wrong interface, its join", began, line(joined, "wrong interface"))
    assert joined.process.wait(120) == 3

    began = time.time()
    cluster.join(1)
    ready = f"host n1 ({hosts.address(1)}) has joined: 2 of 4"
    named("(joins)", began, lambda: event(ready, 0))
    twice = cluster.join(1)
    named("two joins from one host", time.time(), line(twice, "has already joined run"))
    assert twice.process.wait(120) == 2

    began = time.time()
    hosts.cut(1)
    named("cable cut", began, lambda: event("host n1 is gone: ", 0))
    hosts.mend(1)
    before = len(nodes_told(cluster.run))
    named("(joins again by itself once the cable is mended)", time.time(), lambda: event(ready, before))
    began, later = time.time(), len(nodes_told(cluster.run))
    hosts.kill(1)
    named("powered off", began, lambda: event("host n1 is gone: ", later))
    assert cluster.states()["n1"][0] == "lost"
    words = [*hosts.on(0), PROGRAM, "stop", "--run", str(cluster.run.run_dir)]
    subprocess.run(words, env={**os.environ, "XDG_STATE_HOME": str(launch.state)}, check=True)
    cluster.process.wait(300)
    assert result_of(cluster.run.run_dir).exit_code == 5
    nothing_lives(cluster.run.run_dir)
