"""What is planned for a launch script: itself, and where to look for what it starts."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from liverl.config import load_config, resolved
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
    assert made.adopted_port == 8002 and made.expected_replicas == 0, "only the script knows its size"
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
    assert made.adopted_port is None and made.ray is None and made.script is None


def script(folder: Path, *sets: str) -> Plan:
    """The plan for a configuration in ``folder``, fixed as at the start of a run."""
    folder.mkdir(exist_ok=True)
    (folder / "my.yaml").write_text("harbor_agent: {agent_name: null}\n")
    loaded = load_config(folder / "my.yaml", sets=[*SCRIPT, "run.name=exp", *sets], env={})
    config = resolved(loaded.config, env={}, cwd=Path("/w"), now=0.0, file=folder / "my.yaml")
    return make_plan(replace(loaded, config=config), Path("/runs/project/exp"))


def test_the_script_runs_in_the_folder_of_the_configuration(tmp_path: Path) -> None:
    made = script(tmp_path)
    (service,) = made.services
    assert service.cwd == str(tmp_path)
    assert {name: service.env[name] for name in ("HARBOR_TRIALS_DIR", "EXP_NAME", "HARBOR_AGENT_NAME")} == {
        "HARBOR_TRIALS_DIR": "{run_dir}/trials",
        "EXP_NAME": "exp",
        "HARBOR_AGENT_NAME": "null",
    }
    assert "HARBOR_ENVIRONMENT_TYPE" not in service.env, "other nulls are the script's own default"
    assert script(tmp_path, "trainer.cwd=sub").services[0].cwd == str(tmp_path / "sub")
    assert script(tmp_path, "trainer.cwd=/abs").services[0].cwd == "/abs"
    other = resolved(load_config(None, sets=[], env={}).config, env={}, cwd=Path("/w"), now=0.0)
    assert other.trainer.cwd == "", "only a script has one"


def test_variables_of_the_users_override_liverls(tmp_path: Path) -> None:
    (service,) = script(tmp_path, "trainer.env={EXP_NAME: mine, N: 2, F: 0.5, B: true, E: ''}").services
    assert [service.env[name] for name in ("EXP_NAME", "N", "F", "B", "E")] == [
        "mine",
        "2",
        "0.5",
        "true",
        "",
    ]


def test_where_outputs_are_looked_for(tmp_path: Path) -> None:
    made = script(tmp_path, "infrastructure.nnodes=2", "trainer.logs=[a/*.log, /b.log]").script
    home, upstream = str(tmp_path), f"{tmp_path}/repos/harbor-verl-train"
    assert made is not None and made.nodes == 2
    assert made.trials == ("/runs/project/exp/trials",)
    assert made.trial_globs == (f"{home}/harbor_trials/*/exp", f"{upstream}/harbor_trials/*/exp")
    given = script(tmp_path, "experiment.project_name=mine").script
    assert given is not None and given.trial_globs == ()
    assert given.trials[1:] == (f"{home}/harbor_trials/mine/exp", f"{upstream}/harbor_trials/mine/exp")
    assert made.train_logs == (f"{home}/logs/exp.log", f"{upstream}/logs/exp.log")
    assert made.vllm_logs == (f"{home}/logs/exp_vllm.log", f"{upstream}/logs/exp_vllm.log")
    assert made.logs == (f"{home}/a/*.log", "/b.log")
    named = script(tmp_path, "trainer.env={EXP_NAME: e, PROJECT_NAME: p}", "experiment.trials_dir=t").script
    assert named is not None and named.trials[:2] == (f"{home}/t", f"{home}/harbor_trials/p/e")
    assert named.train_logs[0] == f"{home}/logs/e.log"
    assert script(tmp_path, "trainer.env={HARBOR_TRIALS_DIR: x}").script.trials[0] == f"{home}/x"  # type: ignore[union-attr]
