"""The plan of a run on several hosts: what its Ray head listens on, and what the other hosts are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from liverl.config import LoadedConfig, load_config
from liverl.config.errors import ConfigError
from liverl.config.resolve import resolved
from liverl.plan.build import make_plan
from liverl.plan.spec import Plan, ServiceSpec

HEAD = "10.1.2.3"
HOSTS = ("run.topology=in_process", "infrastructure.nnodes=2", "infrastructure.ngpus_per_node=1")


def planned(*sets: str) -> Plan:
    loaded: LoadedConfig = load_config(profile="cpu-verl", sets=sets, env={})
    fixed = resolved(loaded.config, env={"LIVERL_CACHE_DIR": "/c"}, cwd=Path("/w"), now=0.0)
    return make_plan(replace(loaded, config=fixed), Path("/runs/p/r"))


def head(plan: Plan) -> ServiceSpec:
    return next(spec for spec in plan.services if spec.kind == "ray")


def option(argv: tuple[str, ...] | list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_the_head_of_several_hosts_listens_where_they_reach_it() -> None:
    plan = planned(*HOSTS, f"infrastructure.node0_ip={HEAD}", "ray.worker_ports=30000-30099")
    spec = head(plan)
    assert option(spec.argv, "--node-ip-address") == option(spec.argv, "--dashboard-host") == HEAD
    assert {port.host for port in spec.ports} == {HEAD}
    ports = {port.name: port.number for port in spec.ports if port.name not in ("gcs", "dashboard")}
    assert sorted(ports.values()) == list(range(30000, 30007))
    assert (option(spec.argv, "--min-worker-port"), option(spec.argv, "--max-worker-port")) == (
        "30007",
        "30099",
    )
    assert spec.env["RAY_AUTH_MODE"] == "token"
    assert plan.ray is not None
    assert plan.ray.address == f"{HEAD}:{{port:ray.gcs}}"
    assert plan.ray.dashboard.startswith(f"{HEAD}:")


def test_the_other_hosts_are_told_all_that_a_node_of_this_run_needs() -> None:
    spec = head(planned(*HOSTS, f"infrastructure.node0_ip={HEAD}"))
    (file,) = (file for file in spec.files if file.path == "cluster.json")
    told = json.loads(file.text)
    assert file.mode == 0o600
    assert told["address"] == f"{HEAD}:{{port:gcs}}"
    assert told["env"] == spec.env
    assert "VERL_USE_EXTERNAL_MODULES" in told["env"]  # the workers on another host get it from their node
    for flag in (
        "--num-cpus",
        "--num-gpus",
        "--object-store-memory",
        "--min-worker-port",
        "--node-manager-port",
    ):
        argv = [*spec.argv]
        at = argv.index(flag) + 1
        same = (
            argv[at]
            if not argv[at].startswith("{port:")
            else str(next(p.number for p in spec.ports if argv[at] == f"{{port:{p.name}}}"))
        )
        assert option(told["flags"], flag) == same, flag


def test_the_other_hosts_are_told_what_they_must_see() -> None:
    sets = ("model.model_path=/m", "data.train_index=/d/t.parquet", "reward.function=/r.py:score")
    more = ("agent.tools=/tools.json", "agent.path=[/mine]")
    spec = head(planned(*HOSTS, f"infrastructure.node0_ip={HEAD}", *sets, *more))
    (file,) = (file for file in spec.files if file.path == "cluster.json")
    told = json.loads(file.text)
    assert told["paths"] == {
        "model.model_path": "/m",
        "data.train_index": "/d/t.parquet",
        "data.val_index": "/d/t.parquet",
        "reward.function": "/r.py",
        "agent.tools": "/tools.json",
        "agent.path[0]": "/mine",
    }
    assert told["gpus"] == 0  # of verl.device cpu
    of_hub = head(planned(*HOSTS, f"infrastructure.node0_ip={HEAD}", *sets, "model.model_path=Qwen/Qwen3-4B"))
    (file,) = (file for file in of_hub.files if file.path == "cluster.json")
    assert "model.model_path" not in json.loads(file.text)["paths"]


@pytest.mark.parametrize("sets", [(), ("infrastructure.node0_ip=10.1.2.3",)])
def test_one_host_stays_on_loopback(sets: tuple[str, ...]) -> None:
    spec = head(planned(*sets))
    assert {port.host for port in spec.ports} == {"127.0.0.1"}
    assert option(spec.argv, "--node-ip-address") == option(spec.argv, "--dashboard-host") == "127.0.0.1"
    assert (option(spec.argv, "--min-worker-port"), option(spec.argv, "--max-worker-port")) == ("0", "0")
    assert not [file for file in spec.files if file.path == "cluster.json"]
    assert {port.number for port in spec.ports} == {0}


def test_a_proxy_on_all_addresses_is_called_at_the_heads() -> None:
    sets = ("proxy.host=0.0.0.0", "proxy.trials_through=litellm", "infrastructure.nnodes=2")
    plan = planned(*sets, "infrastructure.ngpus_per_node=1", f"infrastructure.node0_ip={HEAD}")
    trainer = next(spec for spec in plan.services if spec.kind == "trainer")
    loops = next(file for file in trainer.files if file.path == "trainer/agent_loop.yaml")
    assert {loop["proxy_url"] for loop in json.loads(loops.text)} == {f"http://{HEAD}:{{port:proxy}}"}


@pytest.mark.parametrize("ports", ["20000", "20999-20000", "a-b", "20000-20010", "80-999", "65000-66000"])
def test_ports_that_are_no_range(ports: str) -> None:
    with pytest.raises(ConfigError, match=r"ray\.worker_ports: no such range of ports"):
        planned(*HOSTS, f"ray.worker_ports={ports}")


def test_ports_that_the_run_uses_otherwise() -> None:
    with pytest.raises(ConfigError, match=r"ray\.worker_ports: contains infrastructure\.ray_port \(20500\)"):
        planned(*HOSTS, "infrastructure.ray_port=20500")
