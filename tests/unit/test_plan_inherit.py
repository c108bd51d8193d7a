"""Which variables of the caller a service inherits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from liverl.config import ConfigError, load_config
from liverl.plan.build import make_plan
from liverl.plan.inherit import Inherit, inherited, passes, withheld
from liverl.plan.render import plan_json, plan_text
from liverl.plan.spec import Plan, ServiceSpec
from liverl.supervise.services.prepare import Placeholders, environment

SECRETS = {
    "HF_TOKEN": "1",
    "HUGGING_FACE_HUB_TOKEN": "1",
    "WANDB_API_KEY": "1",
    "AWS_SECRET_ACCESS_KEY": "1",
    "AWS_SESSION_TOKEN": "1",
    "OPENAI_API_KEY": "1",
    "VLLM_API_KEY": "1",
    "GITHUB_TOKEN": "1",
    "SSH_AUTH_SOCK": "1",
    "DB_PASSWORD": "1",
    "KUBECONFIG": "1",
}
COMMON = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "XDG_RUNTIME_DIR",
    "REQUESTS_CA_BUNDLE",
    "TZ",
)
GPUS = (
    *(
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "NCCL_DEBUG",
        "NVSHMEM_DISABLE_NVLS",
        "GLOO_SOCKET_IFNAME",
        "UCX_TLS",
        "SLURM_JOB_ID",
    ),
    *(
        "TORCHINDUCTOR_CACHE_DIR",
        "PYTORCH_CUDA_ALLOC_CONF",
        "TORCH_HOME",
        "TRITON_CACHE_DIR",
        "OMP_NUM_THREADS",
    ),
    *(
        "VLLM_USE_V1",
        "RAY_DEDUP_LOGS",
        "HF_HOME",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_CACHE",
        "TOKENIZERS_PARALLELISM",
    ),
    *("HYDRA_FULL_ERROR", "http_proxy", "HTTPS_PROXY", "no_proxy", "RAY_AUTH_TOKEN_PATH", "HF_TOKEN_PATH"),
)


def plan_of(profile: str, *sets: str) -> Plan:
    return make_plan(load_config(profile=profile, sets=list(sets), env={}), Path("/runs/p/n"))


def services(plan: Plan) -> dict[str, ServiceSpec]:
    every = (*plan.services, plan.replica_template) if plan.replica_template else plan.services
    return {spec.name.partition("-")[0]: spec for spec in every}


@pytest.mark.parametrize("kind", ["base", "proxy", "embedded", "engine"])
def test_no_secret_is_inherited(kind: Inherit) -> None:
    assert inherited(SECRETS, kind) == {}
    assert withheld(SECRETS, kind) == tuple(sorted(SECRETS))


def test_the_trainer_inherits_the_secrets_that_it_needs() -> None:
    assert set(inherited(SECRETS, "trainer")) == {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY"}


@pytest.mark.parametrize("kind", ["base", "proxy", "embedded", "engine", "trainer", "all"])
def test_every_process_inherits_what_programs_need(kind: Inherit) -> None:
    assert withheld(dict.fromkeys(COMMON, "1"), kind) == ()


@pytest.mark.parametrize("kind", ["engine", "trainer"])
def test_engines_and_trainers_inherit_the_settings_of_their_libraries(kind: Inherit) -> None:
    assert withheld(dict.fromkeys(GPUS, "1"), kind) == ()


@pytest.mark.parametrize("kind", ["proxy", "embedded"])
def test_the_others_do_not(kind: Inherit) -> None:
    assert set(inherited(dict.fromkeys(GPUS, "1"), kind)) == {"OMP_NUM_THREADS"}


def test_only_our_own_interpreter_and_verl_inherit_pythonpath() -> None:
    kinds: tuple[Inherit, ...] = ("base", "proxy", "embedded", "engine", "trainer", "all")
    assert [kind for kind in kinds if passes("PYTHONPATH", kind)] == ["embedded", "trainer", "all"]


@pytest.mark.parametrize(
    ("given", "path"),
    [({"PYTHONPATH": "/mine:/other"}, "/r/trainer/path:/tools:/mine:/other"), ({}, "/r/trainer/path:/tools")],
)
def test_the_callers_modules_come_behind_ours(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], path: str
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    spec = ServiceSpec(
        name="x",
        kind="trainer",
        argv=("x",),
        inherits="trainer",
        env={"PYTHONPATH": "{run_dir}/trainer/path:/tools"},
    )
    values = Placeholders(Path("/r"), Path("/r/a"), 1, {}, {})
    assert environment(spec, values, "p/n/x/1", ())["PYTHONPATH"] == path


def test_a_launch_script_inherits_everything_but_our_own_variables() -> None:
    env = {**SECRETS, "MINE": "1", "LIVERL_UI__THEME": "dark"}
    assert inherited(env, "all") == {**SECRETS, "MINE": "1"}
    assert withheld(env, "all") == ()


def test_pass_env_adds_names_and_beginnings_but_secrets_only_in_full() -> None:
    env = {"MINE_A": "1", "MINE_API_KEY": "1", "OTHER": "1", "HF_TOKEN": "1", "LIVERL_X": "1"}
    assert set(inherited(env, "proxy", ("MINE_*", "HF_TOKEN"))) == {"MINE_A", "HF_TOKEN"}
    assert set(inherited(env, "proxy", ("*",))) == {"MINE_A", "OTHER"}
    assert withheld(env, "proxy", ("MINE_*",), ("MINE_A",)) == ("HF_TOKEN", "MINE_A", "MINE_API_KEY", "OTHER")


@pytest.mark.parametrize(
    ("profile", "kinds"),
    [
        ("embedded", {"replica": "embedded", "proxy": "proxy", "trainer": "embedded"}),
        ("vllm-managed", {"replica": "engine", "proxy": "proxy"}),
        (
            "cpu-verl",
            {
                "ray": "trainer",
                "smoke": "engine",
                "proxy": "proxy",
                "sessions": "embedded",
                "trainer": "trainer",
            },
        ),
    ],
)
def test_the_kind_of_each_service(profile: str, kinds: dict[str, str]) -> None:
    plan = plan_of(profile, 'supervise.pass_env=["MINE_*"]')
    found = services(plan)
    assert {name: spec.inherits for name, spec in found.items()} == kinds
    assert {spec.pass_env for spec in found.values()} == {("MINE_*",)}


def test_the_plan_names_what_is_withheld_and_never_its_value() -> None:
    env = {"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "hunter2", "HF_TOKEN": "hunter3"}
    plan = plan_of("cpu-verl")
    shown, text = json.loads(plan_json(plan, env)), plan_text(plan, env)
    assert shown["withheld"]["proxy"] == ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN"]
    assert shown["withheld"]["trainer"] == ["AWS_SECRET_ACCESS_KEY"]
    assert "supervise.pass_env" in text and "  proxy:\n    AWS_SECRET_ACCESS_KEY, HF_TOKEN\n" not in text
    assert "  smoke, proxy, sessions:\n    AWS_SECRET_ACCESS_KEY, HF_TOKEN\n" in text
    assert "  ray, trainer:\n    AWS_SECRET_ACCESS_KEY\n" in text
    assert "hunter" not in text + json.dumps(shown)


@pytest.mark.parametrize("pattern", ["A=B", "*_KEY", "", "1A", "LIVERL_X", "LIVERL_*"])
def test_a_pattern_that_names_no_variable_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"supervise\.pass_env"):
        load_config(sets=[f'supervise.pass_env=["{pattern}"]'], env={})


def test_pass_env_reaches_every_service_but_a_launch_script() -> None:
    added = ("MY_ONE", "MY_*")
    plan = plan_of("embedded", 'supervise.pass_env=["MY_ONE", "MY_*"]')
    assert {spec.pass_env for spec in services(plan).values()} == {added}
    sets = (
        "trainer.kind=command",
        "trainer.command=[/bin/true]",
        "infrastructure.ray_port=6379",
        "infrastructure.ray_dashboard_port=8265",
        'supervise.pass_env=["MY_ONE"]',
    )
    script = services(plan_of("cpu-verl", *sets))["trainer"]
    assert (script.inherits, script.pass_env) == ("all", ())


def test_the_page_says_what_is_withheld_under_a_heading_of_its_own() -> None:
    lines = plan_text(plan_of("embedded"), {"AWS_SECRET_ACCESS_KEY": "x", "PATH": "/bin"}).split("\n")
    heading = next(
        i for i, line in enumerate(lines) if line.startswith("variables of this shell that services")
    )
    assert lines[heading - 1] == "" and lines[heading + 1].strip().endswith(":")
    assert "AWS_SECRET_ACCESS_KEY" in lines[heading + 2]
    assert "variables of this shell" not in plan_text(plan_of("embedded"), {"PATH": "/bin"})
