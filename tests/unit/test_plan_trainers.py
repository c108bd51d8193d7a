"""What is planned for trainers: the embedded one, verl with its Ray, a launch script, and the smoke model."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.plans import RUN_DIR, flags, plan_of, service
from msgspec.structs import replace

from liverl.agents.settings import TrainerConfig
from liverl.config import load_config
from liverl.plan import PlanError, make_plan
from liverl.plan.hydra import Override, command_line, text
from liverl.plan.render import plan_json
from liverl.plan.spec import Dependency, FileSpec, Plan, PortSpec, Probe, RayPlan

_PATH = "trainer/path"
_JOB = "ray_kwargs.ray_init.runtime_env.env_vars"
_CLUSTER = ("ray.address=10.0.0.1:6000", "ray.dashboard_address=10.0.0.1:8300")


def ray_of(plan: Plan) -> RayPlan:
    assert plan.ray is not None
    return plan.ray


def overrides_of(plan: Plan) -> dict[str, str]:
    """Hydra key, with its sign -> the text of its value."""
    return dict(line.split("=", 1) for line in service(plan, "trainer").argv[3:])


# --- the embedded trainer ---------------------------------------------------------------------------------


def embedded_settings(*sets: str) -> dict[str, Any]:
    (file,) = service(plan_of(*sets, profile="embedded"), "trainer").files
    assert file.path == "trainer/settings.json"
    found: dict[str, Any] = json.loads(file.text)
    return found


def test_the_embedded_trainer() -> None:
    spec = service(plan_of(profile="embedded"), "trainer")
    start = ("{python:self}", "-P", "-m", "liverl.embedded.trainer")
    assert spec.argv == (*start, "--config", "{run_dir}/trainer/settings.json")
    assert spec.depends_on == (Dependency("ready", "proxy"), Dependency("all_ready", "replica", 2))
    assert replace(spec.probes.startup, waits_for="") == Probe(
        "log_line", pattern=r"Total training steps: \d+", interval=0.5
    )
    assert spec.probes.startup.waits_for
    assert (spec.probes.ready, spec.probes.live) == (None, None), "a step may take as long as it likes"
    assert (spec.kind, spec.ends_run, spec.stage_parser, spec.gpus) == ("trainer", True, "trainer", 0)


def test_the_embedded_trainers_settings_are_read_by_it() -> None:
    settings = embedded_settings()
    read = msgspec.convert(settings, TrainerConfig)  # refuses what it does not know
    assert (read.mini_batch_size, read.faults.leak_worker) == (settings["mini_batch_size"], False)
    assert settings["proxy_url"] == "http://127.0.0.1:{port:proxy}"
    assert settings["run_key_file"] == "{run_dir}/secrets/run_key"
    assert settings["checkpoint_dir"] == "{run_dir}/checkpoints", "of the run, not of the attempt"
    assert settings["resume"] is True
    assert embedded_settings("proxy.host=10.0.0.7")["proxy_url"] == "http://10.0.0.7:{port:proxy}"


@pytest.mark.parametrize(
    ("key", "value", "lands", "as_"),
    [
        ("model.served_model_name", "m", "served_model", "m"),
        ("training.train_batch_size", "6", "train_batch_size", 6),
        ("training.n_resp_per_prompt", "5", "n_resp_per_prompt", 5),
        ("training.train_prompt_mini_batch_size", "4", "mini_batch_size", 4),
        ("training.total_steps", "7", "total_steps", 7),
        ("training.save_freq", "1", "save_freq", 1),
        ("training.save_freq", "-1", "save_freq", 0),  # the trainer's word for: only at the end
        ("algorithm.learning_rate", "0.5", "learning_rate", 0.5),
        ("algorithm.clip_ratio_low", "0.1", "clip_ratio_low", 0.1),
        ("algorithm.clip_ratio_high", "0.4", "clip_ratio_high", 0.4),
        ("algorithm.temperature", "0.7", "temperature", 0.7),
        ("run.seed", "9", "seed", 9),
        ("harbor_agent.max_iterations", "3", "max_iterations", 3),
        ("harbor_agent.max_timeout_sec", "500", "trial_timeout", 500.0),
        ("harbor_agent.override_timeout_sec", "400", "trial_timeout", 400.0),
        ("harbor_runtime.num_workers", "2", "num_workers", 2),
        ("embedded.faults.tool_executor", "empty", "tool_executor", "empty"),
    ],
)
def test_a_key_changes_its_setting_of_the_trainer_and_no_other(
    key: str, value: str, lands: str, as_: Any
) -> None:
    assert embedded_settings(f"{key}={value}") == {**embedded_settings(), lands: as_}


@pytest.mark.parametrize(
    ("sets", "lands"),
    [
        ("crash_at_step=3", {"crash_at_step": 3}),
        ("hang_at_step=4", {"hang_at_step": 4}),
        ("nan_at_step=4", {"nan_at_step": 4}),
        ("ignore_sigterm=[trainer]", {"ignore_sigterm": True}),
        ("ignore_sigterm=[replica-0]", {}),
        ("slow_tool=0.5", {"slow_tool": 0.5}),
        ("slow_sandbox=1", {"slow_sandbox": 1.0}),
        ("slow_last=2", {"slow_last": 2.0}),
        ("slow_update=3", {"slow_update": 3.0}),
        ("slow_replica=3", {}),
    ],
)
def test_faults_of_the_embedded_trainer(sets: str, lands: dict[str, Any]) -> None:
    off = {
        "crash_at_step": 0,
        "hang_at_step": 0,
        "nan_at_step": 0,
        "ignore_sigterm": False,
        "leak_worker": False,
        **dict.fromkeys(("slow_tool", "slow_sandbox", "slow_last", "slow_update"), 0.0),
    }
    assert embedded_settings()["faults"] == off
    assert embedded_settings(f"embedded.faults.{sets}")["faults"] == {**off, **lands}


@pytest.mark.parametrize("profile", ["embedded", "cpu-verl"])
def test_a_trainer_comes_back_only_where_that_was_asked_and_a_checkpoint_is_new(profile: str) -> None:
    never = service(plan_of(profile=profile), "trainer")
    assert (never.restart.mode, never.restart_needs) == ("never", "")
    again = service(plan_of("trainer.restart=from_checkpoint", profile=profile), "trainer")
    assert again.restart.mode == "on_failure"
    assert again.restart_needs == "checkpoints/latest_checkpointed_iteration.txt"


# --- verl -------------------------------------------------------------------------------------------------


def test_verl_is_started_as_a_module_with_its_job_last() -> None:
    spec = service(plan_of(), "trainer")
    assert spec.argv[:3] == ("{python:verl}", "-m", "verl.trainer.main_ppo")
    assert all("=" in line or line.startswith("~") for line in spec.argv[3:])
    assert spec.argv[-1].startswith("data.filter_overlong_prompts="), "the user's overrides end it"
    assert (spec.environment, spec.ends_run, spec.kind) == ("verl", True, "trainer")
    assert "RAY_ADDRESS" not in spec.unset_env, "the trainer is told its cluster in it"
    assert "RAY_NAMESPACE" in spec.unset_env
    assert (spec.env["HYDRA_FULL_ERROR"], spec.env["RAY_DEDUP_LOGS"]) == ("1", "0")
    assert "RAY_DEBUG" not in spec.env


def test_breakpoints_wait_for_ray_debug_in_every_process_of_verl() -> None:
    plan = plan_of("ray.debug=true")
    assert service(plan, "trainer").env["RAY_DEBUG"] == "legacy"
    assert service(plan, "ray").env["RAY_DEBUG"] == "legacy"


@pytest.mark.parametrize(
    ("sets", "deadline"),
    [
        (("supervise.startup_deadline=10",), 3900.0),
        (("supervise.startup_deadline=10", "verl.actor_deadline=1", "verl.address_deadline=2"), 303.0),
        (("supervise.startup_deadline=9999",), 9999.0),
    ],
)
def test_verl_may_take_as_long_as_its_replicas(sets: tuple[str, ...], deadline: float) -> None:
    probes = service(plan_of(*sets), "trainer").probes
    assert probes.startup_deadline == deadline
    assert replace(probes.startup, waits_for="") == Probe(
        "log_line", pattern="all initialize finished, ready to fit", interval=0.5
    )
    assert probes.startup.waits_for


def test_hydra_gets_texts_quoted_and_words_as_words() -> None:
    lines = overrides_of(plan_of("experiment.project_name=a-b", "model.served_model_name=org/m:1"))
    assert lines["trainer.project_name"] == "a-b"
    assert lines["+actor_rollout_ref.rollout.engine_kwargs.vllm.served_model_name"] == "'org/m:1'"
    assert lines["hydra.run.dir"] == "'{attempt_dir}/hydra'"
    assert lines["trainer.logger"] == "[console,file]"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (False, "False"),
        (-1, "-1"),
        (0.0, "0.0"),
        ("None", "None"),
        ("TRUE", "'TRUE'"),
        ("inf", "'inf'"),
        ("NaN", "'NaN'"),
        ("a\nb", "'a\nb'"),
        ("-x", "'-x'"),
        ("a=b", "'a=b'"),
        ("\\\\'", "'\\\\\\\\\\''"),
        ("x$a{b}", "'x$a{b}'"),
        ((), "[]"),
        ({}, "{}"),
        ([None, [1, "a b"], {"k": "$v"}], "[null,[1,'a b'],{k:'$v'}]"),
    ],
)
def test_more_values_in_hydras_grammar(value: Any, written: str) -> None:
    assert text(value) == written


def test_a_sign_of_the_users_replaces_ours_and_a_missing_one_keeps_it() -> None:
    ours = [Override("old", 1), Override("new", 2, new=True)]
    assert command_line(ours, {}) == ("old=1", "+new=2")
    assert command_line(ours, {"new": 3}) == ("old=1", "+new=3"), "verl's configuration still lacks the key"
    assert command_line(ours, {"++old": 3}) == ("+new=2", "++old=3")
    assert command_line(ours, {"~new": "whatever"}) == ("old=1", "~new")
    assert command_line(ours, {"text": "[a,b]", "null": None, "empty": ""})[2:] == (
        "text=[a,b]",
        "null=null",
        "empty=''",
    )


def test_micro_batches_by_tokens_hold_the_longest_sample() -> None:
    longest = ("training.max_prompt_length=100", "training.max_response_length=101")
    found = overrides_of(plan_of(*longest, "training.sp_size=2", profile="liverl-gen1"))
    assert found["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"] == "101", "rounded up"
    by_count = (
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
    )
    assert not set(by_count) & found.keys()
    fixed = overrides_of(plan_of("training.use_dynamic_bsz=false", profile="liverl-gen1"))
    assert [fixed[key] for key in by_count] == ["1", "1", "1"]
    assert "actor_rollout_ref.actor.ppo_max_token_len_per_gpu" not in fixed


def test_what_only_a_machine_without_gpus_needs() -> None:
    cpu, gpu = (
        overrides_of(plan_of()),
        overrides_of(plan_of("environments.verl.venv_path=/v", profile="liverl-gen1")),
    )
    only = {
        "actor_rollout_ref.actor.strategy": "fsdp2",
        "actor_rollout_ref.model.use_remove_padding": "False",
        "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": "1",
        "data.dataloader_num_workers": "0",
    }
    assert only.items() <= cpu.items()
    assert not only.keys() & gpu.keys()
    assert (cpu["trainer.device"], gpu["trainer.device"]) == ("cpu", "cuda")


def test_hybrid_replicas_share_the_trainers_gpus() -> None:
    gpu = overrides_of(plan_of(profile="liverl-gen1"))
    assert (gpu["trainer.n_gpus_per_node"], gpu["trainer.nnodes"]) == ("8", "1")
    assert not any(key.startswith(("trainer.v1", "actor_rollout_ref.hybrid")) for key in gpu)


def test_standalone_replicas_have_nodes_and_gpus_of_their_own_and_get_the_weights_by_nccl() -> None:
    sets = ("verl.rollout_mode=standalone", "verl.rollout_gpus=4", "training.train_prompt_mini_batch_size=16")
    hybrid = overrides_of(plan_of(profile="liverl-gen1"))
    apart = overrides_of(plan_of(*sets, profile="liverl-gen1"))
    rollout = "actor_rollout_ref.rollout"
    assert dict(apart.items() - hybrid.items()) == {
        "actor_rollout_ref.hybrid_engine": "False",
        f"{rollout}.nnodes": "1",
        f"{rollout}.n_gpus_per_node": "4",
        f"{rollout}.checkpoint_engine.backend": "nccl",
        "trainer.v1.trainer_mode": "separate_async",
        "trainer.v1.separate_async.parameter_sync_step": "4",  # mini batches in a batch of 64
        "actor_rollout_ref.actor.ppo_mini_batch_size": "16",
        "trainer.n_gpus_per_node": "4",
    }


def test_standalone_replicas_on_a_cpu_get_the_weights_by_a_checkpoint_engine_of_ours() -> None:
    key = "actor_rollout_ref.rollout.checkpoint_engine.backend"
    sets = ("verl.rollout_mode=standalone", "verl.rollout_gpus=1")
    assert overrides_of(plan_of(*sets, profile="cpu-verl"))[key] == "liverl_cpu"
    assert key not in overrides_of(plan_of(profile="cpu-verl"))


@pytest.mark.parametrize(("profile", "many"), [("cpu-verl", 32), ("liverl-gen1", 512), ("h200-smoke", 64)])
def test_trials_per_step_are_prompts_times_answers(profile: str, many: int) -> None:
    assert plan_of(profile=profile).trials_per_step == many


def test_the_trainer_waits_for_what_it_needs_and_the_proxys_socket() -> None:
    ours = service(plan_of(), "trainer").depends_on
    assert ours == (
        Dependency("environment_ready", "verl"),
        Dependency("listening", "proxy.http"),  # the first step's requests wait there until it serves
        Dependency("listening", "sessions.http"),
        Dependency("ready", "ray"),
        Dependency("exited_0", "smoke"),
    )
    assert service(plan_of(*_CLUSTER, profile="liverl-gen1"), "trainer").depends_on == ours[:3]


def test_a_number_of_gpus_that_is_no_whole_number_of_replicas_is_refused() -> None:
    sets = ("infrastructure.ngpus_per_node=8", "trainer.overrides={}")
    for tensor, expected in ((4, 2), (8, 1)):
        assert plan_of(*sets, f"vllm.gen_tp={tensor}", profile="liverl-gen1").expected_replicas == expected
    for tensor in (3, 16):
        loaded = load_config(profile="liverl-gen1", env={})
        vllm = msgspec.structs.replace(loaded.config.vllm, gen_tp=tensor)
        config = msgspec.structs.replace(loaded.config, vllm=vllm)
        with pytest.raises(PlanError, match=rf"vllm\.gen_tp: 8 GPUs .* replicas of {tensor} GPUs"):
            make_plan(msgspec.structs.replace(loaded, config=config), RUN_DIR)


def test_a_size_that_is_no_number_is_refused() -> None:
    loaded = load_config(profile="liverl-gen1", env={})
    trainer = msgspec.structs.replace(loaded.config.trainer, overrides={"trainer.nnodes": "two"})
    config = msgspec.structs.replace(loaded.config, trainer=trainer)
    with pytest.raises(PlanError, match=r"trainer\.overrides\.trainer\.nnodes: 'two' is not a whole number"):
        make_plan(msgspec.structs.replace(loaded, config=config), RUN_DIR)


@pytest.mark.parametrize("path", ["/it's/p/n", "/a\\b/p/n", "/${x}/p/n", "/a\nb/p/n"])
def test_paths_in_hydras_grammar_are_refused(path: str) -> None:
    with pytest.raises(PlanError, match=r"run\.run_root: verl cannot use the path"):
        plan_of(run_dir=Path(path))
    assert plan_of(run_dir=Path(path), profile="embedded").run_dir == path, "nobody else minds"


@pytest.mark.parametrize("path", ["/a b/p/n", "/$x/p/n", '/"/p/n', "/{x}/p/n"])
def test_other_paths_are_quoted(path: str) -> None:
    assert plan_of(run_dir=Path(path)).run_dir == path


# --- secrets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ('{"+x.api_key": s3cr3t}', "+x.api_key"),
        ('{"+x": {"api_key": s3cr3t}}', "+x.api_key"),
        ('{"+x": [1, {"y": {"password": s3cr3t}}]}', "+x.1.y.password"),
    ],
)
def test_a_secret_does_not_get_onto_verls_command_line(given: str, named: str) -> None:
    with pytest.raises(PlanError) as refused:
        plan_of(f"trainer.overrides={given}")
    assert str(refused.value).startswith(f"trainer.overrides.{named}: looks like a secret")
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize("given", ['{"+x.api_key": ""}', '{"~x.api_key": null}', '{"+x": {"eos_token": 3}}'])
def test_what_holds_no_secret_is_planned(given: str) -> None:
    assert service(plan_of(f"trainer.overrides={given}"), "trainer").argv


def test_a_key_without_effect_does_not_bring_a_secret_into_the_plan() -> None:
    plan = plan_of(
        'trainer.overrides={"x.api_key": s3cr3t, "y": {"password": s3cr3t, "z": 2}}', profile="embedded"
    )
    (inert,) = [item for item in plan.inert if item.key == "trainer.overrides"]
    assert inert.value == {"y": {"z": 2}}
    assert "s3cr3t" not in msgspec.json.encode(plan).decode() + plan_json(plan)


@pytest.mark.parametrize(
    ("sets", "given"),
    [
        (("credentials.wandb_mode=online", "credentials.wandb_api_key=file:{key}"), True),
        (("credentials.wandb_mode=offline", "credentials.wandb_api_key=file:{key}"), True),
        (("credentials.wandb_mode=disabled", "credentials.wandb_api_key=file:{key}"), False),
        (("credentials.wandb_mode=online",), False),
    ],
)
def test_wandbs_key_is_named_by_its_file_where_wandb_is_used(
    tmp_path: Path, sets: tuple[str, ...], given: bool
) -> None:
    key = tmp_path / "key"
    key.write_text("s3cr3t")
    key.chmod(0o600)
    plan = plan_of(*(text.format(key=key) for text in sets))
    expected = {"WANDB_API_KEY": str(key)} if given else {}
    assert service(plan, "trainer").secret_env == service(plan, "ray").secret_env == expected
    assert ("wandb" in overrides_of(plan)["trainer.logger"]) == ("disabled" not in sets[0])


# --- what verl's processes find on their path ---------------------------------------------------------------


def test_verls_environment_gets_our_modules_alone() -> None:
    """The package's ``__init__`` would import what verl's environment does not have."""
    for name in ("ray", "smoke", "trainer"):
        files = {f.path: f for f in service(plan_of(), name).files}
        stub = files[f"{_PATH}/liverl/__init__.py"]
        scope: dict[str, Any] = {}
        exec(stub.text, scope)
        assert (Path(scope["__path__"][0]) / "verl_runtime" / "smoke.py").is_file()
        assert stub.mode == 0o644
        assert service(plan_of(), name).env["PYTHONPATH"] == "{run_dir}/trainer/path"


def test_only_standalone_replicas_need_a_plug_in_and_our_loops() -> None:
    paths = {f.path for f in service(plan_of(), "trainer").files}
    endings, always = (
        {f"{_PATH}/liverl_{plugin}-1.dist-info/{name}" for name in ("METADATA", "entry_points.txt")}
        for plugin in ("endings", "before_end")
    )
    always.add(f"{_PATH}/liverl/__init__.py")
    assert paths == {"trainer/agent_loop.yaml", "trainer/agent.json"} | endings | always
    assert {f.path for f in service(plan_of("verl.agent_loop=tool_agent"), "trainer").files} == always


def test_verls_processes_are_told_where_the_endings_of_trials_are_counted() -> None:
    """The trainer's and the workers': both get it from the trainer's job, as it differs between starts."""
    name = f"+{_JOB}.LIVERL_ENDINGS"
    assert overrides_of(plan_of())[name] == "'{attempt_dir}/endings/{generation}'"
    assert name not in overrides_of(plan_of("verl.agent_loop=tool_agent"))


# --- ports ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "name", "placeholder"),
    [
        ("infrastructure.litellm_port", "LITELLM_PORT", "{port:proxy}"),
        ("infrastructure.ray_port", "RAY_PORT", "{port:ray.gcs}"),
        ("infrastructure.ray_dashboard_port", "RAY_DASHBOARD_PORT", "{port:ray.dashboard}"),
    ],
)
def test_a_port_is_told_by_its_number_or_once_it_is_chosen(key: str, name: str, placeholder: str) -> None:
    fixed, chosen = plan_of(f"{key}=7001"), plan_of(f"{key}=0")
    assert service(fixed, "trainer").env[name] == service(fixed, "ray").env[name] == "7001"
    assert f"+{_JOB}.{name}" not in overrides_of(fixed)
    assert service(chosen, "trainer").env[name] == placeholder
    assert overrides_of(chosen)[f"+{_JOB}.{name}"] == f"'{placeholder}'"
    assert name not in service(chosen, "ray").env, "it is started before the port is known"


# --- Ray --------------------------------------------------------------------------------------------------


def ray_flags(*sets: str, **others: Any) -> dict[str, str | None]:
    argv = service(plan_of(*sets, **others), "ray").argv
    assert argv[:4] == ("{python:verl}", "-m", "ray.scripts.scripts", "start")
    return flags(argv, 4)


def test_our_ray_head_is_asked_for_exactly_this() -> None:
    assert ray_flags("ray.temp_dir=/t") == {
        "--head": None,
        "--block": None,  # it stays our child, and its end is seen
        "--node-ip-address": "127.0.0.1",
        "--port": "{port:gcs}",
        "--include-dashboard": "true",  # replicas are looked up there
        "--dashboard-host": "127.0.0.1",
        "--dashboard-port": "{port:dashboard}",
        "--temp-dir": "/t",
        "--num-cpus": "9",
        "--num-gpus": "2",
        "--ray-client-server-port": "{port:client}",
        "--dashboard-agent-grpc-port": "{port:agent}",
        "--dashboard-agent-listen-port": "{port:agent_http}",
        "--runtime-env-agent-port": "{port:runtime_env}",
        "--metrics-export-port": "{port:metrics}",
        "--min-worker-port": "0",
        "--max-worker-port": "0",
        "--disable-usage-stats": None,
        "--object-store-memory": "536870912",
    }


def test_keys_of_our_ray_head() -> None:
    assert ray_flags("ray.num_cpus=50")["--num-cpus"] == "50"
    assert ray_flags("infrastructure.ngpus_per_node=4")["--num-gpus"] == "4"
    assert "--object-store-memory" not in ray_flags("ray.object_store_memory=null")
    given = ray_of(plan_of("ray.temp_dir=/t"))
    assert given.temp_dir == "", "the user's directory is not removed with the run"


def test_a_rays_temporary_directory_is_short_and_the_runs_own() -> None:
    first, second = plan_of(), plan_of(run_dir=Path("/runs/p/m"))
    names = [ray_of(plan).temp_dir for plan in (first, second, plan_of())]
    assert names[0] == names[2] != names[1]
    assert all(len(name) <= len("/tmp/lv-12345678") and name.startswith("/tmp/lv-") for name in names)
    assert flags(service(first, "ray").argv, 4)["--temp-dir"] == names[0]


def test_our_ray_head_as_a_service() -> None:
    spec = service(plan_of("infrastructure.ray_port=7001"), "ray")
    assert spec.ports == (
        PortSpec("gcs", 7001, "127.0.0.1", key="infrastructure.ray_port"),
        PortSpec("dashboard", 0, "127.0.0.1", key="infrastructure.ray_dashboard_port"),
        *(PortSpec(n, 0, "127.0.0.1") for n in ("client", "agent", "agent_http", "runtime_env", "metrics")),
    )
    version = Probe("http", "dashboard", "/api/version", interval=1.0, timeout=10.0, failures=6)
    version = msgspec.structs.replace(version, token_file="secrets/ray_token")
    # The dashboard responds before Ray has started, or has failed to.
    started = Probe("log_line", pattern="Ray runtime started", interval=0.5)
    assert (spec.probes.startup, spec.probes.ready, spec.probes.live) == (started, version, None)
    assert spec.probes.startup_deadline == 300.0
    assert spec.env["RAY_DASHBOARD_STARTUP_TIMEOUT_S"] == "180"
    assert spec.env["RAY_agent_register_timeout_ms"] == "180000"
    assert spec.env["RAY_AUTH_MODE"] == "token"
    assert "RAY_ADDRESS" in spec.unset_env, "ray start would join that cluster"
    assert "RAY_ADDRESS" not in spec.env
    assert spec.restart.mode == "until_ready", "the run's actors end with their cluster"
    assert spec.depends_on == (Dependency("environment_ready", "verl"),)


def test_where_the_replicas_of_our_ray_are_looked_for() -> None:
    deadlines = ("verl.actor_deadline=11", "verl.address_deadline=12", "verl.health_deadline=13")
    ray = ray_of(plan_of(*deadlines, "infrastructure.ray_dashboard_port=7002"))
    assert (ray.owner, ray.address, ray.dashboard) == ("ours", "127.0.0.1:{port:ray.gcs}", "127.0.0.1:7002")
    assert (ray.service, ray.port, ray.namespace, ray.token_file) == (
        "ray",
        "dashboard",
        "liverl",
        "secrets/ray_token",
    )
    assert (ray.actor_deadline, ray.address_deadline, ray.health_deadline) == (11.0, 12.0, 13.0)
    assert (ray.expected, ray.environment, ray.python, ray.earlier) == (2, "verl", "", False)
    assert ray.child_env["RAY_ADDRESS"] == ray.address


@pytest.mark.parametrize(
    ("sets", "dashboard"),
    [
        (("ray.address=h:6000",), "h:8265"),
        (("ray.address=h:6000", "infrastructure.ray_dashboard_port=9"), "h:9"),
        (("ray.address=h:6000", "infrastructure.ray_dashboard_port=0"), "h:8265"),
        (("ray.address=h:6000", "ray.dashboard_address=d:1"), "d:1"),
    ],
)
def test_the_dashboard_of_somebody_elses_ray(sets: tuple[str, ...], dashboard: str) -> None:
    ray = ray_of(plan_of(*sets, profile="liverl-gen1"))
    assert (ray.owner, ray.dashboard, ray.service, ray.port, ray.temp_dir) == (
        "foreign",
        dashboard,
        "",
        "",
        "",
    )


def test_on_somebody_elses_ray_the_job_brings_its_environment() -> None:
    """Its raylets were not started by us: their workers inherit nothing of ours."""
    plan = plan_of(*_CLUSTER, "ray.auth_token_file=/t", profile="liverl-gen1")
    assert not [s for s in plan.services if s.kind == "ray"]
    job = overrides_of(plan)
    worker = {k: v for k, v in service(plan, "trainer").env.items() if not k.startswith("RAY_")}
    missing = {name for name in worker if f"+{_JOB}.{name}" not in job}
    assert missing <= {"HYDRA_FULL_ERROR"}, "the driver's alone"
    env = service(plan, "trainer").env
    assert (env["RAY_ADDRESS"], env["RAY_AUTH_MODE"]) == ("10.0.0.1:6000", "token")
    assert env["RAY_AUTH_TOKEN_PATH"] == "/t"
    without = service(plan_of(*_CLUSTER, profile="liverl-gen1"), "trainer").env
    assert not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"} & without.keys()
    variable = "RAY_AUTH_TOKEN"  # goes before a file, so it is inherited only where no other token is meant
    by_variable = plan_of(*_CLUSTER, profile="liverl-gen1")
    assert variable not in service(by_variable, "trainer").unset_env
    assert variable in service(plan, "trainer").unset_env
    assert all(variable in service(plan_of(), name).unset_env for name in ("ray", "trainer"))
    ours = overrides_of(plan_of())
    assert f"+{_JOB}.PYTHONPATH" not in ours, "our raylet's workers inherit it"


def test_faults_are_told_where_the_replicas_are_ours() -> None:
    faults = ("pending_replica=0", "mute_replica=1", "dead_replica=1", "crash_at_step=2")
    sets = [f"verl.faults.{fault}" for fault in faults]
    told = json.loads(service(plan_of(*sets), "ray").env["LIVERL_CPU_FAULTS"])
    assert told == {
        "late_replica": {"index": 1, "seconds": 0.0},
        "pending_replica": 0,
        "mute_replica": 1,
        "dead_replica": 1,
        "crash_at_step": 2,
    }
    assert "LIVERL_CPU_FAULTS" not in service(plan_of(profile="h200-smoke"), "ray").env


# --- a launch script ----------------------------------------------------------------------------------------

_SCRIPT = ("trainer.kind=command", "trainer.command=[bash, run.sh]")


def test_a_launch_script_as_a_service() -> None:
    plan = plan_of(*_SCRIPT, "supervise.startup_deadline=77", profile="liverl-gen1")
    spec = service(plan, "trainer")
    assert (spec.kind, spec.ends_run, spec.restart.mode, spec.environment) == ("trainer", True, "never", None)
    assert (spec.probes.startup, spec.probes.startup_deadline) == (Probe("process"), 77.0)
    assert (plan.total_steps, plan.trials_per_step) == (None, None), "the script says how many"
    assert plan.adopted_port == 8002


def test_a_launch_script_is_told_the_ports_that_its_user_gives() -> None:
    """Zero, any free one, is refused for it by the configuration."""
    ports = {"litellm_port": "8012", "ray_port": "6380", "ray_dashboard_port": "8266"}
    sets = [f"infrastructure.{key}={port}" for key, port in ports.items()]
    told = service(plan_of(*_SCRIPT, *sets, profile="liverl-gen1"), "trainer").env
    assert (told["LITELLM_PORT"], told["RAY_PORT"], told["RAY_DASHBOARD_PORT"]) == tuple(ports.values())
    unset = service(plan_of(*_SCRIPT, profile="liverl-gen1"), "trainer").env
    assert not [name for name in unset if name.endswith("_PORT")], "the script's own hold"


# --- the smoke model ----------------------------------------------------------------------------------------


def test_the_smoke_model_is_made_before_training_and_named_to_everybody() -> None:
    plan = plan_of("model.model_path=smoke:/m")
    spec = service(plan, "smoke")
    assert spec.argv[:2] == ("/bin/sh", "-c")
    assert spec.argv[3:] == ("{python:verl}", "/m")
    assert (spec.kind, spec.restart.mode, spec.ends_run) == ("task", "never", False)
    assert (spec.probes.startup, spec.probes.startup_deadline) == (Probe("process"), 900.0)
    assert spec.depends_on == (Dependency("environment_ready", "verl"),)
    named = {"MODEL_PATH": "/m/model", "TRAIN_INDEX": "/m/train.parquet", "VAL_INDEX": "/m/val.parquet"}
    for name in ("ray", "trainer"):
        assert named.items() <= service(plan, name).env.items()
    assert not [s for s in plan_of(profile="liverl-gen1").services if s.name == "smoke"]


def make_smoke(folder: Path, made: str) -> subprocess.CompletedProcess[str]:
    """Runs the planned script with a command in place of the interpreter: it makes what it is told to."""
    maker = folder.parent / "maker"
    maker.write_text(f'#!/bin/sh\n[ "$1 $2" = "-m liverl.verl_runtime.smoke" ] || exit 9\n{made}\n')
    maker.chmod(0o755)
    script = service(plan_of(), "smoke").argv[2]
    return subprocess.run(
        ["/bin/sh", "-c", script, str(maker), str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_smoke_model_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "smoke"
    folder.parent.mkdir()
    half = make_smoke(folder, 'mkdir "$3" && touch "$3/model"; exit 3')
    assert half.returncode == 1
    assert [p.name for p in folder.parent.iterdir()] == ["maker"], "a half made one is removed"
    whole = make_smoke(folder, 'mkdir "$3" && touch "$3/val.parquet"')
    assert (whole.returncode, [p.name for p in folder.iterdir()]) == (0, ["val.parquet"])
    again = make_smoke(folder, "exit 3")
    assert (again.returncode, again.stdout) == (0, f"the smoke model is already in {folder}\n")


def test_another_run_that_was_quicker_is_welcome_and_a_stranger_is_not(tmp_path: Path) -> None:
    quicker, stranger = tmp_path / "quicker", tmp_path / "stranger"
    made = 'mkdir "$3" && touch "$3/val.parquet"'
    both = make_smoke(
        quicker, f"{made}; mkdir {shlex.quote(str(quicker))}; touch {shlex.quote(str(quicker))}/val.parquet"
    )
    assert both.returncode == 0
    stranger.mkdir()
    (stranger / "thesis.txt").write_text("mine")
    refused = make_smoke(stranger, made)
    assert refused.returncode == 1
    assert "is not a smoke model" in refused.stderr
    assert (stranger / "thesis.txt").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["maker", "quicker", "stranger"], "no draft is left"


def test_files_are_readable_by_all_unless_said_otherwise() -> None:
    assert FileSpec("a", "b").mode == 0o644
