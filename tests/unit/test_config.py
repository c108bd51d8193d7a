"""Layers of configuration: which one wins, where a value came from, what LiveRL's own file becomes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml

from liverl.config import (
    ConfigError,
    dump_yaml,
    leaves,
    list_profiles,
    liverl_environment,
    load_config,
    profiles,
    resolved,
    run_directory,
    value_of,
)
from liverl.config.profiles import default_text
from liverl.config.schema import flatten
from liverl.config.sections.run import TrainerKind

LIVERL_FILE = """
meta_info:
  name: rl
  repos: {verl: {name: verl, pinned_commit: 1234567e8}}
  resources: {gpu: "8 per node", apikey: abcdef}
runtime_info:
  input:
    model: {model_path: /models/Qwen3-30B, served_model_name: vllm_model}
    data: {data_dir: /data, train_index: /data/train.parquet, val_index: /data/val.parquet}
    infrastructure:
      node0_ip: ""
      nnodes: 1
      ngpus_per_node: 8
      litellm_port: 8002
      anthropic_api_key: sk-dummy   # placeholder
    environment: {venv_path: ""}
    k8s: {kubeconfig: kube.yaml, namespace: default, pod_startup_timeout: 1200}
    vllm: {gen_tp: 4, max_model_length: 128000, gpu_memory_utilization: 0.85}
    training: {train_batch_size: 64, train_prompt_mini_batch_size: 64, test_freq: 10, val_before_train: false}
    algorithm: {learning_rate: 1.0e-6, clip_ratio_low: 3.0e-4, val_temperature: 0}
    harbor_agent: {agent_name: claude-code, environment_type: null, host_path_mounts: null, max_timeout_sec: 2400}
    harbor_runtime: {num_workers: 32}
    experiment: {project_name: swe-lego-live-rl, exp_name: "", trials_dir: ""}
    credentials: {wandb_api_key: "", wandb_mode: offline}
  output:
    checkpoint_path: {path: repos/harbor-verl-train/checkpoints/, value: null}
status: {phase: running}
"""


PORT = {"infrastructure.litellm_port": "trainer embedded:4"}  # of every run with the embedded trainer


def write(tmp_path: Path, text: str, name: str = "config.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_default_is_the_embedded_run() -> None:
    loaded = load_config(env={})
    config = loaded.config
    assert (config.run.topology, config.run.engine, config.trainer.kind) == (
        "managed",
        "embedded",
        "embedded",
    )
    assert config.model.model_path == "builtin:qwen3_coder"
    assert config.model.tool_parser == "qwen3_coder"
    assert (config.run.replicas, config.training.total_steps) == (2, 20)
    assert config.environments["proxy"].requirements == ("litellm[proxy]==1.106.2", "py-spy>=0.4,<0.5")
    assert config.infrastructure.litellm_port == 0, "any free one"
    assert loaded.origins == PORT
    assert loaded.warnings == ()


def test_default_yaml_names_and_explains_every_key() -> None:
    text = default_text()
    assert set(flatten(yaml.safe_load(text))) == set(leaves())
    assert yaml.safe_load(text)["trainer"]["overrides"] == {}


def test_the_top_level_config_is_the_packaged_default() -> None:
    link = Path(__file__).parents[2] / "config.yaml"
    assert link.is_symlink()
    assert link.read_text() == default_text()
    assert load_config(link, env={}).origins == {}


def test_layers_in_their_order(tmp_path: Path) -> None:
    path = write(tmp_path, "training:\n  train_batch_size: 6\nrun: {replicas: 3}\n")
    env = {"LIVERL_RUN__REPLICAS": "4", "liverl_algorithm__learning_rate": "1e-6"}
    loaded = load_config(path, sets=["run.replicas=5", "run.seed=7"], env=env)
    assert loaded.config.training.train_batch_size == 6
    assert loaded.config.run.replicas == 5
    assert loaded.config.algorithm.learning_rate == 1e-6
    assert loaded.origins == {
        "training.train_batch_size": f"{path}:2",
        "run.replicas": "--set",
        "run.seed": "--set",
        "algorithm.learning_rate": "env liverl_algorithm__learning_rate",
        **PORT,
    }
    assert load_config(path, env=env).config.run.replicas == 4
    assert load_config(path, env={}).config.run.replicas == 3


PORT_OF_OTHERS = [
    (("trainer.kind=none",), 8002),
    (("run.topology=verl", "run.engine=vllm", "trainer.kind=command", "trainer.command=[bash, x.sh]"), 8002),
    (("infrastructure.litellm_port=8002",), 8002),
    (("infrastructure.litellm_port=9000",), 9000),
    (("run.replicas=3",), 0),
]


@pytest.mark.parametrize(("sets", "port"), PORT_OF_OTHERS)
def test_any_port_is_taken_only_where_the_trainer_is_embedded_and_nobody_set_one(
    sets: tuple[str, ...], port: int
) -> None:
    """A file that makes another run of it need not name a profile; a launch script refuses 0."""
    for profile in (None, "embedded"):
        assert (
            load_config(None, profile=profile, sets=sets, env={}).config.infrastructure.litellm_port == port
        )
    assert load_config(env={"LITELLM_PORT": "8002"}).config.infrastructure.litellm_port == 8002


def test_a_profile_that_says_nothing_of_a_key_leaves_it_as_the_trainer_has_it() -> None:
    sets = ["trainer.kind=embedded", "run.engine=embedded", "model.model_path=builtin:hermes"]
    loaded = load_config(None, profile="vllm-managed", sets=sets, env={})
    assert loaded.config.infrastructure.litellm_port == 0
    assert loaded.origins["infrastructure.litellm_port"] == PORT["infrastructure.litellm_port"]


def test_only_trainers_that_exist_have_defaults_of_their_own() -> None:
    folder = Path(profiles.__file__).parent / "trainers"
    kinds = {path.stem for path in folder.iterdir()}
    assert kinds and kinds <= set(get_args(TrainerKind))
    assert profiles.trainer_text("none") == ""


def test_a_value_equal_to_the_default_has_no_origin(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "run: {replicas: 2}"), env={}).origins == PORT


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "---\n", "run:\n", "null", "\ufeffrun: {seed: 0}"])
def test_files_that_say_nothing(tmp_path: Path, text: str) -> None:
    assert load_config(write(tmp_path, text), env={}).config == load_config(env={}).config


def test_the_type_of_the_key_decides_what_a_scalar_means(tmp_path: Path) -> None:
    text = """
    algorithm: {learning_rate: 1e-6, kl_loss_coef: 0, use_kl_loss: on, temperature: 1}
    ui: {mouse: "false"}
    experiment: {project_name: 007, exp_name: 2026-01-01}
    vllm: {max_model_length: 128_000, dtype: off}
    trainer: {overrides: {a.b: 1e-5, c: "on", d: on, e: 007, f: [1, x, null], g: 1:30}}
    """
    with pytest.raises(ConfigError, match="remove the quotes"):
        load_config(write(tmp_path, text), env={})
    config = load_config(write(tmp_path, text.replace('"false"', "off")), env={}).config
    assert (config.algorithm.learning_rate, config.algorithm.use_kl_loss, config.algorithm.temperature) == (
        1e-6,
        True,
        1,
    )
    assert isinstance(config.algorithm.temperature, float)
    assert config.ui.mouse is False
    assert (config.experiment.project_name, config.experiment.exp_name) == ("007", "2026-01-01")
    assert (config.vllm.max_model_length, config.vllm.dtype) == (128_000, "off")
    want = {"a.b": 1e-5, "c": "on", "d": "on", "e": "007", "f": [1, "x", None], "g": "1:30"}
    assert config.trainer.overrides == want
    assert load_config(write(tmp_path, dump_yaml(config)), env={}).config == config


def test_anchors_and_merge_keys(tmp_path: Path) -> None:
    text = """
    proxy: &base {drain_timeout: 7, cooldown_time: 8}
    environments:
      a: &env {requirements: [x]}
      b: {<<: *env, python: "3.12"}
      c: {<<: [{venv_path: /v}, *env], venv_path: /w}
    """
    config = load_config(write(tmp_path, text), env={}).config
    assert (config.environments["b"].requirements, config.environments["b"].python) == (("x",), "3.12")
    assert config.environments["c"].venv_path == "/w"
    assert set(config.environments) == {"proxy", "vllm", "verl", "a", "b", "c"}


def test_environments_and_overrides_are_merged_key_by_key(tmp_path: Path) -> None:
    path = write(tmp_path, "environments: {proxy: {python: '3.12'}}\ntrainer: {overrides: {a: 1, b: 2}}")
    loaded = load_config(
        path,
        profile="liverl-gen1",
        sets=["trainer.overrides.b=3", "trainer.overrides.actor.lr=1e-6", "environments.proxy.venv_path=/v"],
        env={"LIVERL_ENVIRONMENTS__VLLM__PYTHON": "3.13"},
    )
    proxy = loaded.config.environments["proxy"]
    assert (proxy.python, proxy.venv_path, proxy.requirements) == (
        "3.12",
        "/v",
        ("litellm[proxy]==1.106.2", "py-spy>=0.4,<0.5"),
    )
    assert loaded.config.environments["vllm"].python == "3.13"
    assert loaded.config.trainer.overrides == {"a": 1, "b": 3, "actor.lr": 1e-6}
    assert loaded.origins["trainer.overrides.a"] == f"{path}:2"


def test_set_takes_text_as_it_is_and_the_last_one_wins() -> None:
    sets = [
        "model.served_model_name=a#b",
        "run.name=1e5",
        "run.name='x'",
        "embedded.faults={crash_at_step: 3}",
    ]
    with pytest.raises(ConfigError, match="served_model_name"):
        load_config(sets=sets, env={})
    config = load_config(sets=sets[1:], env={}).config
    assert config.run.name == "x"
    assert config.embedded.faults.crash_at_step == 3
    assert load_config(sets=["training.total_steps=5", "embedded.faults.ignore_sigterm=[trainer]"], env={})


def test_liverls_variables(tmp_path: Path) -> None:
    path = write(tmp_path, "model:\n  tool_parser: qwen3_coder\n")
    env = {
        "HARBOR_TOOL_PARSER": "hermes",
        "TOOL_CALL_PARSER": "qwen3_coder",
        "NUM_WORKERS": "4",
        "MODEL_PATH": "",
    }
    loaded = load_config(path, env=env)
    assert loaded.config.model.tool_parser == "hermes"
    assert loaded.config.harbor_runtime.num_workers == 4
    assert loaded.config.model.model_path == "builtin:qwen3_coder"
    assert loaded.origins["model.tool_parser"] == "env HARBOR_TOOL_PARSER"
    assert loaded.warnings == (f"env HARBOR_TOOL_PARSER overrides model.tool_parser of {path}:2",)
    ours = load_config(env={**env, "LIVERL_MODEL__TOOL_PARSER": "qwen3_coder"})
    assert ours.config.model.tool_parser == "qwen3_coder"


def test_variables_of_a_running_service_are_not_configuration() -> None:
    env = {
        "LIVERL_RUN": "p/n/trainer/1",
        "LIVERL_RUN_DIR": "/x",
        "LIVERL_LISTEN_FD": "3",
        "LIVERL_RUN__SEED": "9",
    }
    loaded = load_config(env=env)
    assert loaded.config.run.seed == 9
    assert loaded.warnings == ()


def test_a_variable_with_one_underscore_too_few_is_named() -> None:
    (warning,) = load_config(env={"LIVERL_RUN_SEED": "9"}).warnings
    assert "LIVERL_RUN__SEED" in warning


def test_a_liverl_file_loads_unchanged(tmp_path: Path) -> None:
    path = write(tmp_path, LIVERL_FILE)
    loaded = load_config(path, env={})
    config = loaded.config
    assert loaded.profile == "liverl-gen1"
    assert (config.run.topology, config.run.engine, config.trainer.kind) == ("verl", "vllm", "verl")
    assert config.model.model_path == "/models/Qwen3-30B"
    assert config.training.test_freq == 10
    assert loaded.origins["harbor_runtime.num_workers"] == f"{path}:{line_of(path, 'num_workers')}"
    no_harbor = "no row is run by Harbor: agent.kind is auto, and environments.harbor is not set"
    assert [w for w in loaded.warnings if "LiveRL configuration" not in w] == [
        f"{path}:{line_of(path, 'data_dir')}: data.data_dir has no effect: exported as DATA_DIR; "
        "nothing under trainer.kind verl reads it",
        f"{path}:{line_of(path, 'kubeconfig')}: k8s.kubeconfig has no effect: {no_harbor}",
        f"{path}:{line_of(path, 'num_workers')}: harbor_runtime.num_workers has no effect: {no_harbor}",
    ]
    assert loaded.kept["meta_info"]["repos"]["verl"]["pinned_commit"] == 1234567e8
    assert loaded.kept["output"]["checkpoint_path"]["value"] is None
    saved = dump_yaml(config, loaded.kept)
    assert "abcdef" not in saved
    again = load_config(write(tmp_path, saved, "saved.yaml"), env={})
    assert again.config == config
    assert again.kept["output"] == loaded.kept["output"]


def test_our_sections_may_stand_beside_liverls_wrapper(tmp_path: Path) -> None:
    path = write(tmp_path, LIVERL_FILE + "trainer: {kind: command, command: [bash, start.sh]}\n")
    loaded = load_config(path, env={})
    assert loaded.config.trainer.command == ("bash", "start.sh")
    variables = liverl_environment(loaded.config)
    assert variables["MODEL_PATH"] == "/models/Qwen3-30B"
    assert variables["HARBOR_AGENT_MAX_TIMEOUT_SEC"] == "2400"
    assert variables["HARBOR_VERIFIER_ENABLED"] == "True"
    assert variables["test_freq"] == "10"
    assert "NODE0_IP" not in variables
    assert not any("KEY" in name for name in variables)


@pytest.mark.parametrize(
    ("given", "rewrite"), [("1", "recompute"), ("0", "mask"), ("", "split"), ("split", "split")]
)
def test_liverls_switch_for_changed_histories(given: str, rewrite: str) -> None:
    name = "HARBOR_RECOMPUTE_MISMATCH_LOGPROBS"
    loaded = load_config(sets=["proxy.trials_through=sessions"], env={name: given})
    assert loaded.config.session_proxy.rewrite == rewrite
    exported = liverl_environment(loaded.config).get(name)
    assert exported == {"recompute": "1", "mask": "0", "split": None}[rewrite]


def test_a_wrong_value_of_that_switch_is_refused() -> None:
    with pytest.raises(ConfigError, match="env HARBOR_RECOMPUTE_MISMATCH_LOGPROBS: session_proxy"):
        load_config(env={"HARBOR_RECOMPUTE_MISMATCH_LOGPROBS": "yes"})


def test_an_edited_mirror_of_a_launch_script_is_reported(tmp_path: Path) -> None:
    text = LIVERL_FILE.replace("gen_tp: 4", "gen_tp: 2").replace(
        "max_model_length: 128000", "max_model_length: 150000"
    )
    path = write(tmp_path, text + "trainer: {kind: command, command: [bash, start.sh]}\n")
    inert = [w for w in load_config(path, env={}).warnings if "no effect" in w]
    line = line_of(path, "max_model_length")
    assert inert == [
        f"{path}:{line}: vllm.max_model_length has no effect: your launch script sets it; the "
        "configuration only mirrors it"
    ]


def line_of(path: Path, word: str) -> int:
    return next(n for n, line in enumerate(path.read_text().splitlines(), 1) if word in line)


@pytest.mark.parametrize("name", list_profiles())
def test_every_profile_is_complete_and_quiet(name: str, tmp_path: Path) -> None:
    loaded = load_config(profile=name, env={})
    assert loaded.warnings == ()
    saved = write(tmp_path, dump_yaml(loaded.config))
    assert load_config(saved, env={}).config == loaded.config


def test_the_shipped_profiles() -> None:
    assert list_profiles() == (
        "cpu-verl",
        "embedded",
        "h200-smoke",
        "hermes",
        "liverl-gen1",
        "vllm-managed",
    )
    assert load_config(profile="embedded", env={}).config == load_config(env={}).config
    hermes = load_config(profile="hermes", env={}).config.model
    assert (hermes.model_path, hermes.tool_parser) == ("builtin:hermes", "hermes")
    vllm = load_config(profile="vllm-managed", env={})
    assert (vllm.config.run.engine, vllm.config.vllm.gen_tp, vllm.config.infrastructure.ngpus_per_node) == (
        "vllm",
        4,
        8,
    )
    assert vllm.origins["run.engine"].startswith("profile vllm-managed:")


def test_name_and_paths_are_fixed_once(tmp_path: Path) -> None:
    env = {"HOME": "/home/u"}
    config = load_config(
        sets=["experiment.project_name=p", "data.data_dir=d", "k8s.kubeconfig=~/k"], env=env
    ).config
    fixed = resolved(config, env=env, cwd=Path("/w"), now=0.0, file=Path("sub/config.yaml"))
    assert fixed.run.name == fixed.experiment.exp_name == "19700101-000000"
    assert run_directory(fixed) == Path("/home/u/.local/state/liverl/runs/p/19700101-000000")
    assert (fixed.data.data_dir, fixed.k8s.kubeconfig) == ("/w/sub/d", "/home/u/k")
    assert fixed.data.val_index == ""
    assert resolved(fixed, env={}, cwd=Path("/elsewhere"), now=9e8) == fixed
    with pytest.raises(ValueError, match="resolve"):
        run_directory(config)
    state = resolved(config, env={"XDG_STATE_HOME": "/s"}, cwd=Path("/w"), now=0.0)
    assert state.run.run_root == "/s/liverl/runs"


def test_run_name_wins_over_exp_name(tmp_path: Path) -> None:
    path = write(tmp_path, "experiment: {exp_name: a}\n")
    loaded = load_config(path, sets=["run.name=b"], env={})
    assert resolved(loaded.config, env={}, cwd=tmp_path, now=0.0).experiment.exp_name == "b"
    assert loaded.warnings == ()
    both = write(tmp_path, "run: {name: b}\nexperiment: {exp_name: a}\n")
    assert load_config(both, env={}).warnings == (
        f"{both}:2: experiment.exp_name has no effect: run.name is 'b'",
    )


def test_values_by_dotted_key() -> None:
    config = load_config(env={}).config
    assert value_of(config, "embedded.faults.late_replica.index") == 1
    assert value_of(config, "environments")["verl"]["venv_path"] is None


def test_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, liverl.config; liverl.config.load_config(env={}); "
        "print(sorted({'asyncio','aiohttp','textual','rich','ray','litellm'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
