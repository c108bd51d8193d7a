"""Topology verl in the configuration: its size, its rules, and the smoke model."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.config import ConfigError, RunConfig, dump_yaml, load_config, resolved, sizing
from liverl.config.checks.verl import holds_secret
from liverl.plan.build import environment_spec


def verl(*sets: str, profile: str = "liverl-gen1") -> RunConfig:
    return load_config(profile=profile, sets=sets, env={}).config


def refused(*sets: str, profile: str = "liverl-gen1") -> str:
    with pytest.raises(ConfigError) as caught:
        verl(*sets, profile=profile)
    return str(caught.value)


@pytest.mark.parametrize(
    ("sets", "replicas", "cpus"),
    [
        ((), 2, 2 + 8 + 24),
        (("vllm.gen_tp=8",), 1, 2 + 8 + 24),
        (("infrastructure.ngpus_per_node=4", "vllm.gen_tp=2"), 2, 2 + 8 + 12),
        (("infrastructure.nnodes=2", "run.topology=in_process", "ray.address=h:6379"), 4, 2 + 8 + 48),
        (("verl.rollout_mode=standalone", "verl.rollout_gpus=4", "vllm.gen_tp=2"), 2, 2 + 8 + 24),
        (('trainer.overrides={"actor_rollout_ref.rollout.data_parallel_size": 2}',), 1, 2 + 8 + 24),
        (('trainer.overrides={"actor_rollout_ref.rollout.tensor_model_parallel_size": 1}',), 8, 2 + 8 + 24),
        (('trainer.overrides={"++trainer.n_gpus_per_node": 4}',), 1, 2 + 8 + 12),
        ((f"trainer.overrides={{{sizing.UNITS_KEY}: 1}}",), 2, 2 + 1 + 24),
    ],
)
def test_size_of_a_run(sets: tuple[str, ...], replicas: int, cpus: int) -> None:
    config = verl(*sets)
    assert (sizing.expected_replicas(config), sizing.cpus_needed(config)) == (replicas, cpus)


def test_prefill_and_decode_count_as_one_replica() -> None:
    split = "actor_rollout_ref.rollout.disaggregation"
    config = verl(f'trainer.overrides={{"{split}.enabled": true, "{split}.decode_replicas": 1}}')
    assert (sizing.replica_gpus(config), sizing.expected_replicas(config)) == (8, 1)


def test_the_cpu_profile_is_small() -> None:
    config = verl(profile="cpu-verl")
    assert (sizing.expected_replicas(config), sizing.cpus_needed(config)) == (2, 2 + 1 + 6)
    assert config.training.total_steps is not None
    assert config.training.total_steps >= 4


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (("ray.num_cpus=33",), "allowed: at least 34"),
        (("ray.address=http://h:6379",), "invalid address"),
        (("ray.address=h:70000",), "invalid address"),
        (("infrastructure.nnodes=2",), "the agent loops of the other host cannot reach"),
        (("verl.rollout_gpus=4",), "all GPUs alternate"),
        (("verl.rollout_mode=standalone",), "allowed: 1 to 7"),
        (
            ('trainer.overrides={"trainer.nnodes": x}',),
            "trainer.overrides.trainer.nnodes: this override determines the size",
        ),
        (("verl.device=cpu",), "each replica is one process"),
        (("verl.faults.dead_replica=2",), "allowed: 0 to 1"),
        (("verl.faults.late_replica={index: 5, seconds: 60}",), "no such replica"),
        (("verl.wandb_proxy=http://me:pw@proxy:80",), "other users can read"),
        (("verl.actr_deadline=1",), "did you mean verl.actor_deadline?"),
        (("ray.num_cpu=1",), "did you mean ray.num_cpus?"),
    ],
)
def test_rules(sets: tuple[str, ...], words: str) -> None:
    text = refused(*sets)
    assert words in text
    assert "pw" not in text


def test_a_running_cluster_brings_its_own_cpus_and_hosts() -> None:
    config = verl(
        "ray.address=10.0.0.1:6379", "ray.num_cpus=1", "infrastructure.nnodes=2", "run.topology=in_process"
    )
    assert config.ray.address == "10.0.0.1:6379"


@pytest.mark.parametrize(
    ("sets", "each"),
    [
        ((), 2 + 8 + 24),  # one host: all that the run needs
        (("infrastructure.nnodes=4",), 2 + 8 + 24),
        (("infrastructure.nnodes=2", "verl.rollout_mode=standalone", "verl.rollout_gpus=4"), 2 + 8 + 24),
        (("infrastructure.nnodes=2", 'trainer.overrides={"trainer.n_gpus_per_node": 4}'), 2 + 8 + 12),
    ],
)
def test_each_host_has_the_cpus_of_its_own_gpus(sets: tuple[str, ...], each: int) -> None:
    assert sizing.cpus_per_host(verl("run.topology=in_process", *sets)) == each


def test_the_smoke_model_lies_in_the_cache() -> None:
    config = load_config(profile="cpu-verl", env={}).config
    fixed = resolved(config, env={"LIVERL_CACHE_DIR": "/c"}, cwd=Path("/w"), now=0.0)
    assert fixed.model.model_path == "smoke:/c/smoke"
    assert resolved(fixed, env={}, cwd=Path("/w"), now=0.0).model == fixed.model
    assert sizing.model_path(fixed) == "/c/smoke/model"
    assert (sizing.train_file(fixed), sizing.val_file(fixed)) == (
        "/c/smoke/train.parquet",
        "/c/smoke/val.parquet",
    )
    given = load_config(
        profile="cpu-verl", sets=["model.model_path=smoke:d", "data.train_index=t"], env={}
    ).config
    fixed = resolved(given, env={}, cwd=Path("/w"), now=0.0)
    assert (sizing.model_path(fixed), sizing.train_file(fixed)) == ("/w/d/model", "/w/t")


def test_the_smoke_model_needs_verl() -> None:
    text = refused("model.model_path=smoke:", profile="vllm-managed")
    assert "make-smoke DIR" in text


def test_ray_paths_are_absolute() -> None:
    config = verl(
        "ray.temp_dir=~/r", "ray.auth_token_file=t", "environments.verl.find_links=[w, 'https://h/w']"
    )
    fixed = resolved(config, env={"HOME": "/home/u"}, cwd=Path("/w"), now=0.0)
    assert (fixed.ray.temp_dir, fixed.ray.auth_token_file) == ("/home/u/r", "/w/t")
    assert fixed.environments["verl"].find_links == ("/w/w", "https://h/w")


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("yes", "true"),
        ("TRUE", "true"),
        ("off", "false"),
        ("~/d", "/home/u/d"),
        ("./d", "/w/d"),
        ("/d", "/d"),
    ],
)
def test_a_local_copy_is_a_word_or_an_absolute_folder(given: str, means: str) -> None:
    config = verl(f"environments.verl.local_copy={given}")
    fixed = resolved(config, env={"HOME": "/home/u"}, cwd=Path("/w"), now=0.0)
    assert fixed.environments["verl"].local_copy == means
    assert environment_spec(fixed, "verl").local_copy == means


def test_a_cluster_that_runs_is_joined_with_this_users_token(tmp_path: Path) -> None:
    def token(*sets: str, **env: str) -> str:
        return resolved(
            verl(*sets), env={"HOME": str(tmp_path), **env}, cwd=tmp_path, now=0.0
        ).ray.auth_token_file

    there = "ray.address=10.0.0.1:6379"
    assert token(there) == "", "there is none"
    own = tmp_path / ".ray" / "auth_token"
    own.parent.mkdir()
    own.touch()
    assert token(there) == str(own)
    assert token() == "", "a Ray of the run's own gets a new one"
    assert token(there, "ray.auth_token_file=t") == str(tmp_path / "t")
    other = tmp_path / "other"
    other.touch()
    assert token(there, RAY_AUTH_TOKEN_PATH=str(other)) == str(other)
    assert token(there, RAY_AUTH_MODE="disabled") == ""
    assert token(there, RAY_AUTH_TOKEN="secret") == "", "Ray takes that before a file"
    assert token(there, "ray.auth_token_file=t", RAY_AUTH_TOKEN="secret") == str(tmp_path / "t")
    assert token(there, RAY_AUTH_TOKEN_PATH="/" + "x" * 5000) == "", "a name that no file can have"


def test_a_key_file_is_named_by_its_absolute_path(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("abc")
    key.chmod(0o600)
    env = {"HOME": str(tmp_path), "WANDB_API_KEY_FILE": "~/key"}
    config = load_config(profile="liverl-gen1", env=env).config
    assert resolved(config, env=env, cwd=Path("/w"), now=0.0).credentials.wandb_api_key == f"file:{key}"


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("", False),
        ("https://pypi.org/simple", False),
        ("/srv/wheels", False),
        ("https://u:p@h/simple", True),
        ("https://token@h/simple", True),
        ("https://${USER_NAME}:${TOKEN}@h/simple", False),
        ("https://u:${TOKEN}@h/simple", False),  # as the error about a password suggests
        ("https://u:${A}${B}@h/simple", False),
        ("https://u:x${TOKEN}@h/simple", True),
        ("https://u:${TOKEN}x@h/simple", True),
        ("https://u:@h/simple", True),
        ("https://u${TOKEN}@h/simple", True),
        ("https://u:$TOKEN@h/simple", True),
        ("https://h/simple?token=abc", True),
    ],
)
def test_addresses_with_passwords(address: str, secret: bool) -> None:
    assert holds_secret(address) is secret


@pytest.mark.parametrize("key", ["index_url", "find_links", "first.index_url"])
def test_passwords_of_an_index_are_refused_and_not_shown(key: str) -> None:
    value = "https://me:hunter2@pkg.example/simple"
    text = refused(f"environments.verl.{key}=" + (f"['{value}']" if key == "find_links" else value))
    assert f"environments.verl.{key}: a URL that contains a password" in text
    assert "hunter2" not in text


def test_installer_and_index_of_an_environment_are_kept() -> None:
    sets = ["environments.verl.installer=pip", "environments.verl.index_url=https://${T}@h/s"]
    config = verl(*sets)
    entry = config.environments["verl"]
    assert (entry.installer, entry.index_url, entry.first.requirements) == ("pip", "https://${T}@h/s", ())
    assert "https://${T}@h/s" in dump_yaml(config)
    cpu = verl(profile="cpu-verl").environments["verl"]
    assert (cpu.installer, cpu.first.installer, cpu.first.requirements) == (
        "uv",
        "pip",
        ("torch==2.13.0+cpu",),
    )


def test_self_is_no_folder() -> None:
    """The interpreter that runs us; a folder of that name is ./self."""
    sets = [
        "environments.verl.venv_path=self",
        "environments.vllm.venv_path=./self",
        "environment.venv_path=self",
    ]
    loaded = load_config(sets=sets, env={})
    config = resolved(loaded.config, env={}, cwd=Path("/w"), now=0.0)
    assert config.environments["verl"].venv_path == config.environment.venv_path == "self"
    assert config.environments["vllm"].venv_path == "/w/self"
    assert environment_spec(config, "verl").venv_path == "self"
