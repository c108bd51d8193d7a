"""Which of LiveRL's variables a launch script gets: those that its user has given, from wherever, and no default."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from liverl.config import ConfigError, dump_yaml, load_config, resolved
from liverl.config.env_vars import VARIABLES
from liverl.config.load import load_over
from liverl.daemon.script_event import variables_told
from liverl.plan import make_plan
from liverl.plan.render import plan_text
from liverl.plan.spec import Plan
from liverl.preflight import launch_script
from liverl.rundir.layout import RunDir

BASE = "run: {topology: verl, engine: vllm}\ntrainer: {kind: command, command: [bash, start.sh]}\n"
ALWAYS = {
    "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP",
    "HARBOR_TRIALS_DIR",
}  # so that the trials belong to the run


def plan(
    folder: Path, text: str = "", *sets: str, env: dict[str, str] | None = None, profile: str = ""
) -> Plan:
    """The plan of a launch script in ``folder`` with the file BASE + ``text``."""
    file = folder / "my.yaml"
    file.write_text(BASE + text)
    env = env or {}
    loaded = load_config(file, profile=profile or None, sets=sets, env=env)
    config = resolved(loaded.config, env=env, cwd=folder, now=0.0, file=file)
    return make_plan(replace(loaded, config=config), folder / "runs" / "p" / "n")


def exported(made: Plan) -> dict[str, str]:
    return {name: value for name, value in made.services[0].env.items() if name not in ALWAYS}


# (variable, section of its key, key, value, the variable's text); each value is once the default and once another.
CASES = [
    ("NNODES", "infrastructure", "nnodes", "1", "1"),
    ("NNODES", "infrastructure", "nnodes", "16", "16"),
    ("NGPUS_PER_NODE", "infrastructure", "ngpus_per_node", "8", "8"),
    ("MODEL_PATH", "model", "model_path", "org/model", "org/model"),
    ("HARBOR_TOOL_PARSER", "model", "tool_parser", "hermes", "hermes"),
    ("PROJECT_NAME", "experiment", "project_name", "liverl", "liverl"),
    ("PROJECT_NAME", "experiment", "project_name", "mine", "mine"),
    ("EXP_NAME", "experiment", "exp_name", "e", "e"),
    ("WANDB_MODE", "credentials", "wandb_mode", "disabled", "disabled"),
    ("WANDB_MODE", "credentials", "wandb_mode", "online", "online"),
    ("RAY_PORT", "infrastructure", "ray_port", "6380", "6380"),
    ("HARBOR_VERIFIER_ENABLED", "harbor_agent", "verifier_enabled", "true", "True"),
    ("NUM_WORKERS", "harbor_runtime", "num_workers", "3", "3"),
    ("TRAIN_INDEX", "data", "train_index", "/d/t.parquet", "/d/t.parquet"),
]


@pytest.mark.parametrize(("name", "section", "key", "value", "text"), CASES)
@pytest.mark.parametrize("given_by", ["file", "--set", "environment", "LIVERL_", "default"])
def test_who_gave_a_variable(
    tmp_path: Path, given_by: str, name: str, section: str, key: str, value: str, text: str
) -> None:
    file = f"{section}: {{{key}: {value}}}\n" if given_by == "file" else ""
    sets = [f"{section}.{key}={value}"] if given_by == "--set" else []
    env = {"environment": {name: value}, "LIVERL_": {f"LIVERL_{section}__{key}".upper(): value}}.get(
        given_by, {}
    )
    found = exported(plan(tmp_path, file, *sets, env=env))
    pair = {"TOOL_CALL_PARSER", "HARBOR_TOOL_PARSER"}
    names = set() if given_by == "default" else pair if name in pair else {name}
    assert found == dict.fromkeys(names, text)


@pytest.mark.parametrize("profile", ["", "embedded", "liverl-gen1", "vllm-managed", "hermes"])
def test_no_default_of_ours_overrides_one_of_the_script(tmp_path: Path, profile: str) -> None:
    assert exported(plan(tmp_path, profile=profile)) == {}


def test_a_model_that_only_the_script_knows_is_not_checked(tmp_path: Path) -> None:
    assert plan(tmp_path).expected_replicas == 0
    assert exported(plan(tmp_path, "model: {model_path: 'builtin:digits'}\n")) == {
        "MODEL_PATH": "builtin:digits"
    }
    with pytest.raises(ConfigError, match="did you mean hermes"):
        plan(tmp_path, "model: {tool_parser: hermess}\n")  # the user's own word is


@pytest.mark.parametrize("mode", ["", "wandb_mode: online, ", "wandb_mode: disabled, "])
def test_a_key_for_wandb_reaches_the_script_whatever_our_default_is(tmp_path: Path, mode: str) -> None:
    (tmp_path / "key").write_text("k" * 40)
    (tmp_path / "key").chmod(0o600)
    made = plan(tmp_path, f"credentials: {{{mode}wandb_api_key: 'file:{tmp_path}/key'}}\n")
    assert "WANDB_API_KEY" in made.services[0].secret_env
    assert not [inert for inert in made.inert if inert.key == "credentials.wandb_api_key"]


@pytest.mark.parametrize(
    ("sets", "replicas"),
    [
        ((), 0),
        (("infrastructure.nnodes=2",), 0),
        (("infrastructure.nnodes=2", "infrastructure.ngpus_per_node=8", "vllm.gen_tp=4"), 4),
        (
            (
                *("infrastructure.nnodes=2", "infrastructure.ngpus_per_node=8"),
                'trainer.overrides={"actor_rollout_ref.rollout.tensor_model_parallel_size": 8}',
            ),
            2,
        ),
    ],
)
def test_the_number_of_replicas_is_known_only_if_its_keys_are_given(
    tmp_path: Path, sets: tuple[str, ...], replicas: int
) -> None:
    made = plan(tmp_path, "", *sets)
    assert made.ray is not None and made.expected_replicas == made.ray.expected == replicas


def test_the_first_event_and_the_plan_say_what_was_set_and_what_was_not(tmp_path: Path) -> None:
    (tmp_path / "start.sh").write_text(
        "NNODES=${NNODES:-16}\nexport MODEL_PATH=${MODEL_PATH:-org/m}\nMY_NNODES_2=1\n"
    )
    made = plan(
        tmp_path, "experiment: {project_name: swe}\n", "trainer.env={OTHER: x}", env={"NUM_WORKERS": "7"}
    )
    told = variables_told(made)
    file = f"{tmp_path}/my.yaml"
    for words in (
        f"PROJECT_NAME=swe ({file}:3)",
        "NUM_WORKERS=7 (env NUM_WORKERS)",
        "OTHER=x (--set)",
        f"HARBOR_TRIALS_DIR={tmp_path}/runs/p/n/trials (liverl-tui)",
        "ANTHROPIC_API_KEY=*** (liverl-tui)",
        "its own values apply: MODEL_PATH, NNODES (",
    ):
        assert words in told
    (tmp_path / "start.sh").unlink()
    assert "WANDB_MODE" in variables_told(made), "a script that cannot be read may use any"
    page = plan_text(made)
    assert f"  PROJECT_NAME=swe  [{file}:3]" in page
    left = page.split("own values apply)\n")[1].split("\n\n")[0].replace("\n", " ").replace(",", " ").split()
    secrets = {"WANDB_API_KEY"}
    assert sorted(left) == sorted(
        {name for name, _ in VARIABLES} - {"PROJECT_NAME", "NUM_WORKERS", "HARBOR_TRIALS_DIR"} - secrets
    )
    assert variables_told(replace(made, script=None)) == ""


@pytest.mark.parametrize(
    ("script", "warned"),
    [
        ("ray start --port $RAY_PORT", "$RAY_PORT (infrastructure.ray_port)"),
        ('echo "${RAY_PORT}"', "$RAY_PORT (infrastructure.ray_port)"),
        ("echo ${RAY_PORT:-6379}", ""),
        ("RAY_PORT=6379; echo $RAY_PORT", ""),
        (': "${RAY_PORT:=6379}"; echo $RAY_PORT', ""),
        ("echo $RAY_PORT_OF_MINE $PROJECT_NAME", ""),
        ("echo $NUM_WORKERS", ""),  # in the shell
    ],
)
def test_a_script_that_needs_what_nobody_has_set_is_told_before_the_start(
    tmp_path: Path, script: str, warned: str
) -> None:
    (tmp_path / "start.sh").write_text(script)
    made = plan(tmp_path, "experiment: {project_name: swe}\n")
    found = {c.name: c for c in launch_script.checks(made, {"PATH": os.environ["PATH"], "NUM_WORKERS": "3"})}
    assert ("variables" in found) == bool(warned)
    if warned:
        assert found["variables"].status == "warn" and warned in found["variables"].text


def test_what_was_given_is_known_to_later_attempts(tmp_path: Path) -> None:
    """A saved configuration holds every key; the next attempt must not take all of them for the user's."""
    from liverl.daemon.launch import create_run
    from liverl.daemon.next_attempt import changed_run

    file, run = tmp_path / "my.yaml", RunDir(tmp_path / "runs" / "p" / "n")
    file.write_text(BASE + "experiment: {project_name: p}\n")
    loaded = load_config(file, sets=["run.name=n", f"run.run_root={tmp_path}/runs"], env={})
    loaded = replace(loaded, config=resolved(loaded.config, env={}, cwd=tmp_path, now=0.0, file=file))
    create_run(loaded, make_plan(loaded, run.path), run.path)
    changed = changed_run(run, sets=["harbor_agent.max_iterations=9"])
    assert changed is not None
    assert exported(changed[1].plan) == {
        "PROJECT_NAME": "p",
        "EXP_NAME": "n",
        "HARBOR_AGENT_MAX_ITERATIONS": "9",
    }

    saved = tmp_path / "saved.yaml"
    saved.write_text(dump_yaml(loaded.config))
    older = load_over(saved, env={})  # the run of a version that did not note it
    assert older.given is None and exported(make_plan(older, run.path))["NNODES"] == "1"
