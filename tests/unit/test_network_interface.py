"""The interface over which the hosts of a run talk: who is told, and on which host it is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil
import pytest

from liverl.config import ConfigError, load_config
from liverl.external.port_holders import interface_of, own_interfaces
from liverl.hosts.cluster import Cluster
from liverl.hosts.join import CannotJoin, Joiner
from liverl.hosts.lacks import no_interface
from liverl.hosts.states import read_states
from liverl.plan import make_plan
from liverl.plan.verl_trainer import INTERFACE_VARIABLES
from liverl.preflight.network import check
from liverl.util.decode import decode_json

OWN = {"lo": True, "eth0": True, "eth1": False}
TWO = (
    *("infrastructure.nnodes=2", "infrastructure.ngpus_per_node=1", "run.topology=in_process"),
    "infrastructure.node0_ip=10.0.0.1",
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", ""),
        ("eth0", ""),
        ("eth1", "network.interface is eth1, and that interface is down here"),
        ("ib0", "network.interface is ib0, which this host does not have: it has eth0, eth1"),
    ],
)
def test_what_a_host_lacks(name: str, words: str) -> None:
    assert no_interface(name, OWN) == words


def test_a_host_with_loopback_alone() -> None:
    assert no_interface("eth0", {"lo": True}).endswith("it has none but lo")


@pytest.mark.parametrize(
    ("name", "head", "of_head", "status", "words"),
    [
        ("", "10.0.0.1", "eth0", None, ""),
        ("eth0", "", "", "ok", "eth0, for NCCL, gloo and TensorPipe"),
        ("eth0", "10.0.0.1", "eth0", "ok", ""),
        ("eth0", "10.0.0.1", "", "ok", ""),
        ("eth0", "10.0.0.1", "ib0", "warn", "reach Ray at 10.0.0.1, which is an address of ib0"),
        ("ib0", "10.0.0.1", "eth0", "fail", "which this host does not have"),
        ("eth1", "", "", "fail", "is down here"),
    ],
)
def test_the_check_before_the_start(
    name: str, head: str, of_head: str, status: str | None, words: str
) -> None:
    found = check(name, OWN, head, of_head)
    assert (found and found.status) == status
    assert found is None or words in found.text


def test_the_interfaces_of_this_host() -> None:
    assert own_interfaces()["lo"] and interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") == ""
    assert own_interfaces().keys() == psutil.net_if_stats().keys()


@pytest.mark.parametrize("name", ["eth0,eth1", "eth0 ", "=eth0", "a" * 16, "^docker0", "-x"])
def test_a_name_is_one_interface(name: str) -> None:
    with pytest.raises(ConfigError, match=r"(?s)network\.interface.*one name, such as eth0"):
        load_config(profile="cpu-verl", sets=[f'network.interface="{name}"'], env={})
    assert load_config(profile="cpu-verl", sets=["network.interface=bond0.12"], env={})


def test_verls_processes_on_every_host_are_told() -> None:
    sets = (*TWO, "network.interface=eth7")
    plan = make_plan(load_config(profile="cpu-verl", sets=sets, env={}), Path("/r"))
    expected = dict.fromkeys(INTERFACE_VARIABLES, "eth7")
    for service in plan.services:
        if service.name in ("ray", "trainer"):
            assert {name: service.env[name] for name in INTERFACE_VARIABLES} == expected
    (file,) = (file for service in plan.services for file in service.files if file.path == "cluster.json")
    cluster = decode_json(file.text.replace("{port:", "{").encode(), type=Cluster)
    assert cluster.interface == "eth7" and expected.items() <= cluster.env.items()
    assert json.loads(file.text)["interface"] == "eth7"


def test_without_the_key_nobody_is_told() -> None:
    plan = make_plan(load_config(profile="cpu-verl", sets=TWO, env={}), Path("/r"))
    assert not any(name in service.env for service in plan.services for name in INTERFACE_VARIABLES)


def test_a_launch_script_is_told_unless_its_own_variables_say_otherwise() -> None:
    sets = ["run.topology=verl", "run.engine=vllm", "trainer.kind=command", "trainer.command=[bash, x.sh]"]
    more = ["network.interface=eth7", "trainer.env={GLOO_SOCKET_IFNAME: lo}"]
    plan = make_plan(load_config(sets=[*sets, *more], env={}), Path("/r"))
    (script,) = (service for service in plan.services if service.ends_run)
    assert [script.env[name] for name in INTERFACE_VARIABLES] == ["eth7", "lo", "eth7"]


@pytest.mark.parametrize(("name", "refused"), [("none7", True), ("lo", False)])
def test_a_host_that_joins_is_refused_without_it(name: str, refused: bool, tmp_path: Path) -> None:
    cluster = Cluster(
        "127.0.0.2:1", "127.0.0.2:2", sys.executable, "token", str(tmp_path), (), interface=name
    )
    joiner = Joiner(tmp_path, print, lambda: None)
    if not refused:
        assert joiner._lacks(cluster, "127.0.0.1") == ""
        return
    words = "network.interface is none7, which this host does not have"
    with pytest.raises(CannotJoin, match=f"^this host cannot join: {words}"):
        joiner._lacks(cluster, "127.0.0.1")
    (state,) = read_states(tmp_path)
    assert state.state == "refused" and state.why.startswith(words), "the run's nodes tell it"
