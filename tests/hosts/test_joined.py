"""Runs of profile cpu-verl on two hosts: a Ray head of their own on the first, and ``liverl-tui join`` on the second.

Ray, verl and the network between the hosts are real; the hosts are namespaces of this machine (``kit.net_hosts``), and
the replicas are those for CPUs. The environment with verl is that of ``kit.verl_runs``. A run takes two to five minutes
on two cores: ``pytest -m slow tests/hosts``.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from kit.host_runs import PROGRAM, Join, nodes_told
from kit.net_hosts import Hosts
from kit.real import trial_dirs
from kit.runs import ToyRun
from kit.verl_runs import RUN, Launch, directory_is_gone, finished, nothing_lives, result_of
from kit.waiting import wait_until

from liverl.observe.metrics.steps import MetricsReader

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(2400)]

TWO = ("infrastructure.nnodes=2", "infrastructure.ngpus_per_node=1", "run.topology=in_process")


def steps_of(run: ToyRun) -> list[int]:
    return [metrics.step for metrics in MetricsReader.of_run(run.run_dir).poll()]


def test_a_host_is_lost_and_the_run_goes_on_from_its_checkpoint(launch: Launch, hosts: Hosts) -> None:
    run = ToyRun(launch.run_dir("two"))
    sets = (*TWO, "training.total_steps=6", "training.save_freq=2")
    process = launch.up("two", *sets, before=hosts.on(0))
    Join(launch, hosts, 1, run.run_dir)  # may be started before the run

    busy: set[str] = set()

    def trained(count: int) -> bool:
        assert process.poll() is None, launch.output("two").read_text()[-3000:]
        if (run.run_dir / "control.sock").exists():
            busy.update(one.node for one in run.snapshot().replicas.items if one.engine.running)
        return len(steps_of(run)) >= count

    wait_until(lambda: trained(2), RUN, "two steps")
    assert busy == {"n0", "n1"}, "agents' calls reach the replica of each host"
    assert f"host n1 ({hosts.address(1)}) has joined: 2 of 2" in nodes_told(run)
    saved = run.run_dir / "checkpoints" / "latest_checkpointed_iteration.txt"
    wait_until(saved.exists, what="a checkpoint")
    hosts.kill(1)
    assert finished(process) == 1, launch.output("two").read_text()[-3000:]
    first = result_of(run.run_dir)
    assert (first.state, first.attempt) == ("failed", 1)
    assert first.cause is not None
    assert first.cause.text.startswith(f"host n1 ({hosts.address(1)}) is gone: "), first.cause
    assert first.cause.command == f"liverl-tui join {run.run_dir}"
    nothing_lives(run.run_dir)

    hosts.boot(1)
    second = Join(launch, hosts, 1, run.run_dir, "--next")
    process = launch.resume("two", before=hosts.on(0))
    assert finished(process) == 0, launch.output("two").read_text()[-3000:]
    result = result_of(run.run_dir)
    assert (result.state, result.exit_code, result.attempt) == ("done", 0, 2)
    assert steps_of(run) == [1, 2, 3, 4, 5, 6]
    (own,) = (run.run_dir / "attempt_002").glob("metrics.verl*.jsonl")
    assert [json.loads(line)["step"] for line in own.read_text().splitlines()][-1] == 6
    code, said = second.ended(60)
    assert code == 0 and "run liverl/two has ended" in said, said
    nothing_lives(run.run_dir)
    directory_is_gone(run.run_dir)
    assert trial_dirs(run.run_dir)


def test_a_trainer_that_restarts_waits_for_the_lost_host(launch: Launch, hosts: Hosts) -> None:
    """One attempt: the host is powered off and boots again, and the trainer goes on from its checkpoint."""
    run = ToyRun(launch.run_dir("again"))
    sets = (*TWO, "training.total_steps=4", "training.save_freq=1", "trainer.restart=from_checkpoint")
    process = launch.up("again", *sets, before=hosts.on(0))
    Join(launch, hosts, 1, run.run_dir)

    def trained(count: int) -> bool:
        assert process.poll() is None, launch.output("again").read_text()[-3000:]
        return len(steps_of(run)) >= count

    wait_until(lambda: trained(2), RUN, "two steps")
    hosts.kill(1)
    waits = f"host n1 ({hosts.address(1)}) is gone: "
    wait_until(lambda: any(text.startswith(waits) for text in nodes_told(run)), RUN, "the loss to be told")
    assert not any(text == "all 2 hosts have joined again" for text in nodes_told(run))
    starts = (run.run_dir / "attempt_001" / "logs").glob("trainer.*.log")
    assert [path.name for path in starts] == ["trainer.1.log"], "the trainer waits for the host"
    hosts.boot(1)
    second = Join(launch, hosts, 1, run.run_dir)
    assert finished(process) == 0, launch.output("again").read_text()[-3000:]
    result = result_of(run.run_dir)
    assert (result.state, result.exit_code, result.attempt) == ("done", 0, 1)
    assert steps_of(run) == [1, 2, 3, 4]
    told = nodes_told(run)
    held = next(n for n, text in enumerate(told) if text.startswith("trainer has failed; it restarts once"))
    assert told.index("all 2 hosts have joined again") > held
    assert second.ended(60)[0] == 0
    nothing_lives(run.run_dir)


def test_a_host_whose_cable_is_cut_is_named(launch: Launch, hosts: Hosts) -> None:
    run = ToyRun(launch.run_dir("cut"))
    process = launch.up("cut", *TWO, before=hosts.on(0))
    second = Join(launch, hosts, 1, run.run_dir)
    joined = f"host n1 ({hosts.address(1)}) has joined: 2 of 2"
    wait_until(lambda: joined in nodes_told(run), RUN, "the second host")
    hosts.cut(1)  # nothing is closed: Ray notices after a minute without heartbeats
    assert finished(process) == 1, launch.output("cut").read_text()[-3000:]
    result = result_of(run.run_dir)
    assert result.cause is not None
    assert result.cause.text.startswith(f"host n1 ({hosts.address(1)}) is gone: "), result.cause
    second.ended(60)
    nothing_lives(run.run_dir)


def test_a_host_that_never_joins_is_waited_for_with_a_deadline(launch: Launch, hosts: Hosts) -> None:
    run = ToyRun(launch.run_dir("alone"))
    process = launch.up("alone", *TWO, "ray.node_deadline=15", before=hosts.on(0))
    line = f"liverl-tui join {run.run_dir}"
    wait_until(lambda: nodes_told(run), RUN, "the first look at the hosts")
    words = [*hosts.on(0), PROGRAM, "nodes", "--run", str(run.run_dir)]
    env = {**os.environ, "XDG_STATE_HOME": str(launch.state)}
    listed = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    assert "(none)  -                missing   no host has joined yet" in listed, listed
    assert f"run there: {line}" in listed
    assert finished(process) == 1, launch.output("alone").read_text()[-3000:]
    cause = result_of(run.run_dir).cause
    assert cause is not None
    assert (cause.text, cause.command) == ("1 host of 2 did not join within 15 s (ray.node_deadline)", line)
    assert line in launch.output("alone").read_text()
    nothing_lives(run.run_dir)
