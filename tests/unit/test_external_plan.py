"""What is planned for a launch script: itself, and where to look for what it starts."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from liverl.config import load_config
from liverl.plan import make_plan
from liverl.plan.spec import Plan

SCRIPT = (
    *("run.topology=verl", "trainer.kind=command", "trainer.command=[bash, start.sh]", "run.engine=vllm"),
    *("model.model_path=org/model", "infrastructure.litellm_port=8002"),
)


def plan(*sets: str) -> Plan:
    return make_plan(load_config(None, sets=[*SCRIPT, *sets], env={}), Path("/runs/project/name"))


def test_only_the_script_is_a_service_and_ray_and_proxy_are_looked_for() -> None:
    made = plan()
    assert [service.name for service in made.services] == ["trainer"]
    assert all(not service.ports for service in made.services)  # nothing is bound
    assert made.adopted_port == 8002 and made.expected_replicas == 2
    ray = made.ray
    assert ray is not None and (ray.owner, ray.address, ray.service, ray.earlier) == (
        "foreign",
        "",
        "",
        False,
    )
    assert ray.dashboard == "127.0.0.1:8265" and ray.namespace == ""
    assert msgspec.json.decode(msgspec.json.encode(made), type=Plan) == made


def test_a_ray_that_the_configuration_names() -> None:
    ray = plan("ray.address=192.0.2.1:6379", "ray.auth_token_file=/secrets/token").ray
    assert ray is not None and ray.earlier
    assert (ray.address, ray.dashboard) == ("192.0.2.1:6379", "192.0.2.1:8265")
    assert ray.token_file == "/secrets/token"
    assert ray.child_env["RAY_AUTH_TOKEN_PATH"] == "/secrets/token"
    other = plan("ray.dashboard_address=192.0.2.1:9999", "environment.venv_path=/env").ray
    assert other is not None and other.earlier and other.dashboard == "192.0.2.1:9999"
    assert other.python == "/env/bin/python"
    own = plan("environment.venv_path=self").ray
    assert own is not None and own.python == sys.executable


def test_what_is_used_is_not_called_inert() -> None:
    inert = {item.key for item in plan("ray.address=h:1", "verl.actor_deadline=60").inert}
    assert not inert & {"ray.address", "ray.dashboard_address", "ray.auth_token_file", "verl.actor_deadline"}


def test_other_runs_adopt_nothing() -> None:
    made = make_plan(load_config(None, sets=[], env={}), Path("/runs/project/name"))
    assert made.adopted_port is None and made.ray is None
