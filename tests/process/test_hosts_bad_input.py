"""What people get wrong with several hosts: each in one sentence that names the key or the host, what was found and
what to do. One table; the other tests of these parts are about how they work."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from kit.joining_host import Host, finish
from kit.joining_host import host as host
from kit.waiting import wait_until

from liverl.config import load_config
from liverl.config.errors import ConfigError
from liverl.hosts.checks import NodeFacts, lacks, question
from liverl.model import Check
from liverl.observe.batch_end import NoEnd
from liverl.plan.spec import NodeChecks
from liverl.preflight import batch_end, head_address
from liverl.util.json_file import write_json

SEVERAL = ("infrastructure.nnodes=3", "infrastructure.ngpus_per_node=8", "run.topology=in_process")
CHECKS = NodeChecks(paths={"model.model_path": "/models/m"}, gpus=8)
FACTS = NodeFacts("n1", "3.11.7", at=1.0, asked=(1.0, 1.0), origins={"verl": "/verl/__init__.py"})


def checked(found: Check | None) -> str:
    assert found is not None and found.status == "fail"
    return f"{found.text}. {found.fix}".rstrip(". ")


def other_address(host: Host) -> str:
    return checked(head_address.check("10.77.0.99", frozenset({"127.0.0.1", "10.77.0.10"})))


def pools(host: Host) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(profile="cpu-verl", env={}, sets=(*SEVERAL, "verl.train_nodes=2", "verl.rollout_nodes=2",
                                                      "verl.trainer_mode=separate_async"))  # fmt: skip
    return str(refused.value)


def path_of_a_node(host: Host) -> str:
    unseen = {"model.model_path": "No such file or directory"}
    facts = NodeFacts("n1", "3.11.7", at=1.0, asked=(1.0, 1.0), unseen=unseen, origins=FACTS.origins)
    return lacks(CHECKS, question(CHECKS, {}), {"GPU": 8.0}, facts, FACTS).words


def path_of_a_host_that_joins(host: Host) -> str:
    host.tell("serve", paths={"model.model_path": str(host.folder / "none")})
    return finish(host.join("--timeout", "1"))[1]


def gpus_of_a_node(host: Host) -> str:
    return lacks(CHECKS, question(CHECKS, {}), {"GPU": 4.0}, FACTS, FACTS).words


def gpus_of_a_host_that_joins(host: Host) -> str:
    host.tell("serve", gpus=65)
    return finish(host.join())[1]


def twice(host: Host) -> str:
    host.tell("serve")
    host.join()
    wait_until(host.joined)
    return finish(host.join())[1]


def ended(host: Host) -> str:
    host.tell("serve")
    result = {"state": "done", "exit_code": 0, "cause": None, "steps": 4, "started_at": 1.0, "ended_at": 2.0}
    write_json(host.run / "result.json", result | {"summary": "all steps done"})
    return finish(host.join())[1]


def readable_token(host: Host) -> str:
    host.tell("serve")
    host.token.chmod(0o644)
    return finish(host.join())[1]


def past(host: Host) -> str:
    config = load_config(profile="cpu-verl", env={}, sets=("batch.end_time=1000000000",)).config

    def ask(_job: str) -> str | None:
        raise NoEnd("is not there")

    return checked(batch_end.check(config, {}, 1000003600.0, ask))


TABLE = {
    other_address: r"infrastructure.node0_ip 10.77.0.99 is not an address of this host, which has 10.77.0.10. "
    r"set it to one of these, or start the run on the host that has it",
    pools: r"verl.train_nodes 2 \+ verl.rollout_nodes 2 = 4, but infrastructure.nnodes is 3\s+found:\s+2\s+"
    r"allowed: 1, or infrastructure.nnodes 4",
    path_of_a_node: r"cannot use /models/m \(model.model_path\): No such file or directory; mount or copy it there, "
    r"under the same path as on the other hosts",
    path_of_a_host_that_joins: r"this host does not see \S+/none \(model.model_path\): No such file or directory; "
    r"looking again until they are there",
    gpus_of_a_node: r"Ray has 4 GPUs there, and the run needs 8 on each host \(infrastructure.ngpus_per_node\); "
    r"start Ray there with --num-gpus, or lower that key",
    gpus_of_a_host_that_joins: r"this host cannot join: infrastructure.ngpus_per_node is 65, and this host has "
    r"\d+ GPUs? that it may use",
    twice: r"this host \(\S+\) has already joined run p/r",
    ended: r"run p/r has ended: all steps done. Continue it with `up --resume`, then join, or join with --next",
    readable_token: r"other users can read \S+/token.*chmod",
    past: r"batch.end_time is .* in the past; set it to the end of the present job",
}


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.__name__)
def test_each_is_one_sentence_that_says_what_to_do(case: Callable[[Host], str], host: Host) -> None:
    said = case(host)
    assert re.search(TABLE[case], said, re.DOTALL), said
    assert "Traceback" not in said
