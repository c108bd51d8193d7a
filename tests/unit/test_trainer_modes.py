"""verl's trainers other than sync: the keys that choose them, what they need, and what is planned for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from liverl.config import ConfigError, dump_yaml, liverl_environment, load_config
from liverl.config.sizing import cpus_needed, cpus_per_host, expected_replicas
from liverl.config.trainer_mode import trainer_mode
from liverl.plan import make_plan
from liverl.plan.spec import Plan
from liverl.plan.verl_trainer import MAIN, MAIN_ASYNC, READY_ASYNC

INDEX = "data.train_index=/d/t.parquet"
ASYNC = ("verl.trainer_mode=fully_async", "verl.rollout_gpus=4")
POOLS = ("infrastructure.nnodes=3", "verl.train_nodes=2", "verl.rollout_nodes=1", "vllm.gen_tp=4")
HOSTS = ("run.topology=in_process", "verl.trainer_mode=fully_async", *POOLS)
SCRIPT = ("trainer.kind=command", "trainer.command=[bash, x.sh]")


def plan_of(*sets: str) -> Plan:
    loaded = load_config(profile="liverl-gen1", sets=["run.name=n", INDEX, *sets], env={})
    return make_plan(loaded, Path("/r/p/n"))


def overrides_of(plan: Plan) -> dict[str, str]:
    (trainer,) = [service for service in plan.services if service.name == "trainer"]
    pairs = [text.lstrip("+").partition("=") for text in trainer.argv[3:]]
    return {key: value for key, _, value in pairs}


def problems(*sets: str) -> list[str]:
    """Key, message, and what was found and allowed of each problem."""
    try:
        load_config(profile="liverl-gen1", sets=[INDEX, *sets], env={})
    except ConfigError as error:
        return ["|".join((p.key, p.message, p.found, p.allowed, p.hint)) for p in error.problems]
    return []


@pytest.mark.parametrize(
    ("sets", "mode"),
    [
        ((), "sync"),
        (("verl.rollout_mode=standalone", "verl.rollout_gpus=4"), "separate_async"),
        (("verl.trainer_mode=sync",), "sync"),
        (("verl.trainer_mode=separate_async", "verl.rollout_gpus=4"), "separate_async"),
        (("verl.trainer_mode=separate_async", "verl.rollout_mode=standalone", "verl.rollout_gpus=4"), "separate_async"),
        (ASYNC, "fully_async"),
        ((*ASYNC, "verl.rollout_mode=standalone"), "fully_async"),
    ],
)  # fmt: skip
def test_the_mode_follows_its_key_or_else_that_of_the_replicas(sets: tuple[str, ...], mode: str) -> None:
    config = load_config(profile="liverl-gen1", sets=[INDEX, *sets], env={}).config
    assert trainer_mode(config) == mode
    assert (expected_replicas(config), problems(*sets)) == (2 if mode == "sync" else 1, [])


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (
            ("verl.trainer_mode=sync", "verl.rollout_mode=standalone"),
            ("verl.trainer_mode|verl.rollout_mode standalone (--set) means separate_async|sync|separate_async, or",),
        ),
        (
            ("verl.trainer_mode=separate_async", "verl.rollout_mode=hybrid", "verl.rollout_gpus=4"),
            ("verl.trainer_mode|verl.rollout_mode hybrid (--set) means sync|separate_async|sync, or null",),
        ),
        (
            ("verl.trainer_mode=fully_async",),
            ("verl.rollout_gpus|in verl.trainer_mode fully_async, the 8 GPUs of each host are split", "1 to 7"),
        ),
        (
            ("verl.trainer_mode=sync", "verl.rollout_gpus=2"),
            ("verl.rollout_gpus|in verl.trainer_mode sync, all GPUs alternate", "|2|0"),
        ),
        (
            (*HOSTS, "verl.rollout_nodes=2"),
            (
                "verl.rollout_nodes|verl.train_nodes 2 + verl.rollout_nodes 2 = 4, but infrastructure.nnodes is 3",
                "|2|1, or infrastructure.nnodes 4",
            ),
        ),
        (
            (*HOSTS, "infrastructure.nnodes=2"),
            ("verl.rollout_nodes 1 = 3, but infrastructure.nnodes is 2|1|infrastructure.nnodes 3",),
        ),
        (
            (*HOSTS, "verl.rollout_nodes=null"),
            ("verl.rollout_nodes|must be set together with verl.train_nodes (2): ", "|null|1"),
        ),
        (
            (*HOSTS, "verl.train_nodes=null"),
            ("verl.train_nodes|must be set together with verl.rollout_nodes (1): ", "|null|2"),
        ),
        (
            (*HOSTS, "verl.rollout_nodes=null", "infrastructure.nnodes=1"),
            ("(2): ", "|null|infrastructure.nnodes of at least 3, or verl.train_nodes null"),
        ),
        ((*HOSTS, "verl.rollout_gpus=1"), ("verl.rollout_gpus|must be 0 with verl.rollout_nodes", "|1|0")),
        (
            (*HOSTS, "verl.trainer_mode=null"),
            ("verl.rollout_nodes|verl.rollout_nodes needs an asynchronous trainer", "verl.rollout_mode hybrid"),
        ),
        (
            (*ASYNC, "verl.calculate_log_probs=false"),
            ("verl.calculate_log_probs|the fully asynchronous trainer trains with", "|false|true"),
        ),
        (
            (*ASYNC, "verl.fully_async.max_concurrent_samples=8", "verl.fully_async.concurrent_samples_per_replica=2"),
            ("verl.fully_async.max_concurrent_samples|conflicts with concurrent_samples_per_replica 2", "|8|null"),
        ),
        (
            (*ASYNC, "vllm.gen_tp=1", "verl.fully_async.max_concurrent_samples=3"),
            ("too small: each of the 4 replicas needs at least one prompt|3|at least 4",),
        ),
        (
            (*ASYNC, "verl.fully_async.total_rollout_steps=255"),
            ("verl.fully_async.total_rollout_steps|fewer prompts than one version", "|255|at least 256"),
        ),
        (
            (*ASYNC, "training.train_prompt_mini_batch_size=3", "training.n_resp_per_prompt=3"),
            ("training.train_prompt_mini_batch_size|the trials that the trainer takes at once (9)", "|3|4"),
        ),
        ((*ASYNC, "ray.num_cpus=43"), ("ray.num_cpus|too few", "alone take 23", "|43|at least 44")),
    ],
)  # fmt: skip
def test_what_cannot_be_started_is_refused_in_one_sentence(
    sets: tuple[str, ...], words: tuple[str, ...]
) -> None:
    (found,) = problems(*sets)
    assert all(part in found for part in words), found


def test_two_modes_that_differ_name_both_places(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "data: {train_index: /d/t}\nverl:\n  rollout_mode: hybrid\n  rollout_gpus: 4\n  trainer_mode: fully_async\n"
    )
    with pytest.raises(ConfigError) as told:
        load_config(file, profile="liverl-gen1", env={})
    (problem,) = told.value.problems
    first = f"{file}:5:17: verl.trainer_mode: verl.rollout_mode hybrid ({file}:3:17) means sync"
    assert problem.lines()[0] == first


@pytest.mark.parametrize("mode", ["sync", "separate_async", "fully_async"])
def test_a_configuration_that_was_written_can_be_read_again(mode: str, tmp_path: Path) -> None:
    """It has every key, and so both of the mode; a run's next attempt reads it."""
    gpus = 0 if mode == "sync" else 4
    sets = [INDEX, f"verl.trainer_mode={mode}", f"verl.rollout_gpus={gpus}"]
    config = load_config(profile="liverl-gen1", sets=sets, env={}).config
    (tmp_path / "c.yaml").write_text(dump_yaml(config))
    assert load_config(tmp_path / "c.yaml", env={}).config == config


def test_whole_hosts_generate_and_others_train() -> None:
    plan = plan_of(*HOSTS)
    found = overrides_of(plan)
    assert plan.expected_replicas == 2, "of the one host that generates, not 6 of all three"
    pools = {
        "trainer.nnodes": "2",
        "trainer.n_gpus_per_node": "8",
        "rollout.nnodes": "1",
        "rollout.n_gpus_per_node": "8",
    }
    assert pools.items() <= found.items()
    config = load_config(profile="liverl-gen1", sets=[INDEX, *HOSTS], env={}).config
    # 23 of verl's actors and one that is created; 3 for each of 16 training GPUs, 2 for each of 8 that generate
    assert (cpus_needed(config), cpus_per_host(config)) == (24 + 48 + 16, 24 + 24)


@pytest.mark.parametrize(
    ("sets", "replicas"),
    [
        (POOLS, 2),
        (("verl.train_nodes=1", "verl.rollout_nodes=2", "infrastructure.nnodes=3", "vllm.gen_tp=4"), 4),
        (("infrastructure.nnodes=3", "vllm.gen_tp=4"), 6),
        (("infrastructure.nnodes=3",), 0),
    ],
)
def test_a_scripts_hosts_say_how_many_replicas_it_starts(sets: tuple[str, ...], replicas: int) -> None:
    """``given``: only what its user has set counts for a script."""
    loaded = load_config(
        profile="liverl-gen1", sets=[*SCRIPT, "infrastructure.ngpus_per_node=8", *sets], env={}
    )
    given = {key: "--set" for key, _, _ in (text.partition("=") for text in sets)}
    given["infrastructure.ngpus_per_node"] = "--set"
    plan = make_plan(replace(loaded, given=given), Path("/r/p/n"))
    assert plan.expected_replicas == replicas
    (trainer,) = [service for service in plan.services if service.ends_run]
    nodes = {name: trainer.env.get(name) for name in ("N_NODES_TRAIN", "N_NODES_ROLLOUT")}
    assert nodes == {
        "N_NODES_TRAIN": given_value(sets, "train_nodes"),
        "N_NODES_ROLLOUT": given_value(sets, "rollout_nodes"),
    }


def given_value(sets: tuple[str, ...], name: str) -> str | None:
    return next((text.partition("=")[2] for text in sets if text.startswith(f"verl.{name}=")), None)


def test_the_command_line_of_the_fully_asynchronous_trainer() -> None:
    plan = plan_of(*ASYNC, "training.total_steps=10", "verl.fully_async.require_batches=2")
    (trainer,) = [service for service in plan.services if service.name == "trainer"]
    assert trainer.argv[:3] == ("{python:verl}", "-m", MAIN_ASYNC)
    assert trainer.probes.startup is not None and trainer.probes.startup.pattern == READY_ASYNC
    found = overrides_of(plan)
    asserted = {  # verl asserts each of these
        "actor_rollout_ref.hybrid_engine": "False",
        "data.train_batch_size": "0",
        "data.gen_batch_size": "1",
        "actor_rollout_ref.rollout.calculate_log_probs": "True",
    }
    ours = {
        "async_training.staleness_threshold": "0.1",
        "async_training.trigger_parameter_sync_step": "4",
        "async_training.require_batches": "2",
        "async_training.partial_rollout": "True",
        "async_training.concurrent_samples_per_replica": "16",
        "rollout.n": found["actor_rollout_ref.rollout.n"],
        "rollout.total_rollout_steps": str(10 * 64 * 2 * 4),
        "actor_rollout_ref.rollout.multi_turn.enable": "True",
        "actor_rollout_ref.rollout.checkpoint_engine.backend": "nccl",
    }
    assert asserted.items() <= found.items()
    assert ours.items() <= found.items()
    gone = (
        "transfer_queue",
        "trainer.v1",
        "trainer.total_training_steps",
        "actor_rollout_ref.rollout.nnodes",
    )
    assert not [key for key in found if key.startswith(gone)]
    assert (plan.total_steps, plan.steps_by, plan.trials_per_step) == (
        10,
        "training.total_steps",
        64 * 2 * 4 * 8,
    )


@pytest.mark.parametrize(
    ("sets", "steps"),
    [
        (("verl.fully_async.total_rollout_steps=1000",), 3),  # 256 prompts each
        (('trainer.overrides={"rollout.total_rollout_steps": 512}',), 2),
        (
            ('trainer.overrides={"async_training.trigger_parameter_sync_step": 1}', "training.total_steps=2"),
            8,
        ),
        (("training.total_steps=null",), None),
    ],
)
def test_the_steps_that_it_owes_are_versions(sets: tuple[str, ...], steps: int | None) -> None:
    assert plan_of(*ASYNC, *sets).total_steps == steps


def test_prompts_at_a_time_of_all_replicas_are_divided_and_said() -> None:
    plan = plan_of(*ASYNC, "vllm.gen_tp=2", "verl.fully_async.max_concurrent_samples=33")
    assert overrides_of(plan)["async_training.concurrent_samples_per_replica"] == "16"
    (said,) = [text for text in plan.warnings if "max_concurrent_samples" in text]
    assert "verl 0.9.1 has no such key; divided by 2 replicas" in said
    assert said.endswith("concurrent_samples_per_replica 16 (32 prompts at a time, not 33)")


def test_a_row_of_verls_own_single_turn_loop_stays_one() -> None:
    """Without ``multi_turn.enable`` verl gives every row to that loop, whatever is configured."""
    found = overrides_of(plan_of(*ASYNC, "verl.agent_loop=single_turn_agent"))
    assert "actor_rollout_ref.rollout.multi_turn.enable" not in found


def test_the_other_trainers_are_started_as_before() -> None:
    plan = plan_of("verl.rollout_mode=standalone", "verl.rollout_gpus=4")
    (trainer,) = [service for service in plan.services if service.name == "trainer"]
    assert trainer.argv[2] == MAIN
    assert overrides_of(plan)["actor_rollout_ref.rollout.nnodes"] == "1"
    assert not [key for key in overrides_of(plan) if key.startswith(("async_training", "rollout."))]


@pytest.mark.parametrize(
    ("env", "source"),
    [
        ({"NEW_VERL_DIR": "/v", "USE_NEW_VERL": "1"}, "/v"),
        ({"NEW_VERL_DIR": "/v", "USE_NEW_VERL": "0"}, ""),
        ({"NEW_VERL_DIR": "/v"}, ""),
        ({"USE_NEW_VERL": "1"}, ""),
    ],
)
def test_another_verl_of_the_environment_counts_where_it_is_switched_on(
    env: dict[str, str], source: str
) -> None:
    config = load_config(profile="liverl-gen1", sets=[INDEX], env=env).config
    assert config.verl.source == source
    exported = liverl_environment(config)
    assert (exported.get("NEW_VERL_DIR", ""), exported.get("USE_NEW_VERL", "")) == (
        source,
        "1" if source else "",
    )


def test_another_verl_is_first_on_the_path_of_all_its_processes() -> None:
    plan = plan_of("verl.source=/new/verl", "agent.path=[/mine]")
    for name in ("ray", "trainer"):
        (spec,) = [service for service in plan.services if service.name == name]
        first, *others = spec.env["PYTHONPATH"].split(":")
        assert (first, others[-1]) == ("/new/verl", "/mine")
