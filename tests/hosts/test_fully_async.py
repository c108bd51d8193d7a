"""verl's fully asynchronous trainer on two hosts, one that trains and one that generates: weights go from one to the
other by the checkpoint engine for CPUs.

Ray, verl and the network are real; the hosts are namespaces of this machine, and the replicas are those for CPUs.
"""

from __future__ import annotations

import pytest
from kit.host_runs import Join, nodes_told
from kit.net_hosts import Hosts
from kit.runs import ToyRun
from kit.verl_runs import RUN, Launch, finished, nothing_lives, result_of
from kit.waiting import wait_until

from liverl.observe.metrics.steps import MetricsReader

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(2400)]

POOLS = (
    *("infrastructure.nnodes=2", "infrastructure.ngpus_per_node=1", "run.topology=in_process"),
    *("verl.trainer_mode=fully_async", "verl.train_nodes=1", "verl.rollout_nodes=1"),
    *("verl.fully_async.trigger_parameter_sync_step=2", "verl.fully_async.staleness_threshold=0.5"),
    *("training.train_prompt_mini_batch_size=4", "training.save_freq=1"),
)


def versions(run: ToyRun) -> list[int]:
    """The versions of the parameters that the metrics tell, each once: verl writes two rows for each."""
    return sorted({metrics.step for metrics in MetricsReader.of_run(run.run_dir).poll()})


def test_versions_of_the_parameters_are_trained_and_resumed(launch: Launch, hosts: Hosts) -> None:
    run = ToyRun(launch.run_dir("streams"))
    process = launch.up("streams", *POOLS, "training.total_steps=4", before=hosts.on(0))
    joined = Join(launch, hosts, 1, run.run_dir)
    stages: set[str] = set()

    def saved(version: int) -> bool:
        assert process.poll() is None, launch.output("streams").read_text()[-3000:]
        if nodes_told(run) and (run.run_dir / "control.sock").exists():
            stages.add(run.service("trainer").stage or "")
        mark = run.run_dir / "checkpoints" / "latest_checkpointed_iteration.txt"
        return mark.exists() and int(mark.read_text()) >= version

    wait_until(lambda: saved(2), RUN, "two versions")
    print("\n".join(sorted(stages)))
    snapshot = run.snapshot()
    assert [replica.node in ("n0", "n1") for replica in snapshot.replicas.items] == [True]
    assert len(stages) > 2, "the stages of its start"
    assert snapshot.total_steps == 4, "versions, not prompts"
    trained = {key for metrics in MetricsReader.of_run(run.run_dir).poll() for key in metrics.values}
    assert {"fully_async/monitor/queue/mq_queue_size", "fully_async/trainer/idle_ratio"} <= trained
    run.command("stop")  # a signal would end nsenter only
    finished(process)
    first = result_of(run.run_dir)
    assert (first.state, first.attempt) == ("stopped", 1)
    joined.ended(60)
    nothing_lives(run.run_dir)
    before = versions(run)

    second = Join(launch, hosts, 1, run.run_dir, "--next")
    process = launch.resume("streams", before=hosts.on(0))
    assert finished(process) == 0, launch.output("streams").read_text()[-3000:]
    result = result_of(run.run_dir)
    assert (result.state, result.exit_code, result.attempt) == ("done", 0, 2)
    log = (run.run_dir / "attempt_002" / "logs" / "trainer.2.log").read_text(errors="replace")
    assert "Setting global_steps to" in log and "Training from scratch" not in log
    assert [one for one in versions(run) if one] == [1, 2, 3, 4], before
    assert second.ended(60)[0] == 0
    nothing_lives(run.run_dir)


def test_a_sample_that_raises_is_named_though_verl_exits_with_0(launch: Launch, hosts: Hosts) -> None:
    """verl's own loop has no reward for the data of the smoke model."""
    run = ToyRun(launch.run_dir("raises"))
    sets = (*POOLS, "verl.agent_loop=single_turn_agent", "training.total_steps=2")
    process = launch.up("raises", *sets, before=hosts.on(0))
    joined = Join(launch, hosts, 1, run.run_dir)
    assert finished(process) == 1, launch.output("raises").read_text()[-3000:]
    result = result_of(run.run_dir)
    assert result.state == "failed" and result.cause is not None
    trainer = run.run_dir / "attempt_001" / "logs" / "trainer.1.log"
    assert "Streaming process exception" in trainer.read_text(errors="replace")
    named = "There is no reward function for the data source liverl/smoke"
    assert result.cause.text == f"it exited with 0, but its log ends with an error: {named}"
    joined.ended(60)
    nothing_lives(run.run_dir)
