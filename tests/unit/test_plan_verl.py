"""RunConfig -> Plan for topology verl: pure, so everything is looked at as data."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kit.key_effects import candidates, changed
from kit.plans import RUN_DIR, plan_of, service
from msgspec.structs import replace

from liverl.config import load_config
from liverl.config.consumers import consumers
from liverl.config.sections.agent import AgentKind
from liverl.plan import PlanError, make_plan
from liverl.plan.hydra import Override, command_line, text
from liverl.plan.render import plan_json, plan_text
from liverl.plan.spec import Plan


def overrides_of(plan: Plan) -> dict[str, str]:
    """Hydra key without its sign -> the text of its value."""
    lines = service(plan, "trainer").argv[3:]
    pairs = [line.lstrip("+~").partition("=") for line in lines]
    found = {key: value for key, _, value in pairs}
    assert len(found) == len(lines), "a key stands twice"
    return found


# --- Hydra's text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"),
        (True, "True"),
        (8, "8"),
        (1e-6, "1e-06"),
        ("fsdp2", "fsdp2"),
        ("/a/b.parquet", "/a/b.parquet"),
        ("", "''"),
        ("007", "'007'"),
        ("null", "'null'"),
        ("a b,c", "'a b,c'"),
        ("it's", r"'it\'s'"),
        ("a\\'b", r"'a\\\'b'"),
        ("end\\", r"'end\\'"),
        ("a\\\n", "'a\\\n'"),
        (["console", "file"], "[console,file]"),
        ({"a": 1, "b": "x y"}, "{a:1,b:'x y'}"),
    ],
)
def test_values_in_hydras_grammar(value: Any, written: str) -> None:
    assert text(value) == written


def test_the_users_overrides_win_and_stand_once() -> None:
    ours = [Override("a.b", 1), Override("new.k", "x", new=True), Override("gone", 3), Override("kept", 4)]
    lines = command_line(ours, {"a.b": "[x,y]", "new.k": 2, "~gone": None, "+added": "", "++forced": True})
    assert lines == ("kept=4", "a.b=[x,y]", "+new.k=2", "~gone", "+added=''", "++forced=True")


@given(
    ours=st.lists(st.tuples(st.sampled_from("abcd"), st.integers()), unique_by=lambda pair: pair[0]),
    given_=st.dictionaries(st.sampled_from(["a", "+b", "++c", "e"]), st.integers()),
)
def test_no_key_is_written_twice(ours: list[tuple[str, int]], given_: dict[str, int]) -> None:
    lines = command_line([Override(key, value) for key, value in ours], given_)
    keys = [line.lstrip("+").partition("=")[0] for line in lines]
    assert len(keys) == len(set(keys))
    assert all(f"{key}={value}" in lines for key, value in given_.items() if not key.startswith("b"))


# --- overrides ----------------------------------------------------------------------------------------

_R, _A = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
LANDING = {
    "training.train_batch_size": (16, {"data.train_batch_size": "16"}),
    "training.val_batch_size": (7, {"data.val_batch_size": "7"}),
    "training.n_resp_per_prompt": (6, {f"{_R}.n": "6"}),
    "training.train_prompt_mini_batch_size": (4, {f"{_A}.ppo_mini_batch_size": "4"}),
    "training.max_prompt_length": (300, {"data.max_prompt_length": "300"}),
    "training.max_response_length": (400, {"data.max_response_length": "400"}),
    "training.sp_size": (2, {f"{_A}.ulysses_sequence_parallel_size": "2"}),
    "training.use_dynamic_bsz": (
        True,
        {f"{_A}.use_dynamic_bsz": "True", f"{_A}.ppo_max_token_len_per_gpu": "1024"},
    ),
    "training.ref_offload": (True, {"actor_rollout_ref.ref.fsdp_config.param_offload": "True"}),
    "training.actor_offload": (True, {f"{_A}.fsdp_config.optimizer_offload": "True"}),
    "training.total_epochs": (9, {"trainer.total_epochs": "9"}),
    "training.total_steps": (6, {"trainer.total_training_steps": "6"}),
    "training.save_freq": (3, {"trainer.save_freq": "3"}),
    "training.keep_checkpoints": (
        2,
        {"trainer.max_actor_ckpt_to_keep": "2", "trainer.max_critic_ckpt_to_keep": "2"},
    ),
    "training.test_freq": (3, {"trainer.test_freq": "3"}),
    "training.val_before_train": (True, {"trainer.val_before_train": "True"}),
    "algorithm.adv_estimator": ("rloo", {"algorithm.adv_estimator": "rloo"}),
    "algorithm.policy_loss_mode": ("gspo", {f"{_A}.policy_loss.loss_mode": "gspo"}),
    "algorithm.learning_rate": (2e-6, {f"{_A}.optim.lr": "2e-06"}),
    "algorithm.use_kl_loss": (True, {f"{_A}.use_kl_loss": "True"}),
    "algorithm.kl_loss_coef": (0.5, {f"{_A}.kl_loss_coef": "0.5"}),
    "algorithm.kl_loss_type": ("kl", {f"{_A}.kl_loss_type": "kl"}),
    "algorithm.clip_ratio_low": (0.1, {f"{_A}.clip_ratio_low": "0.1"}),
    "algorithm.clip_ratio_high": (0.4, {f"{_A}.clip_ratio_high": "0.4"}),
    "algorithm.entropy_coeff": (0.01, {f"{_A}.entropy_coeff": "0.01"}),
    "algorithm.loss_agg_mode": ("token-mean", {f"{_A}.loss_agg_mode": "token-mean"}),
    "algorithm.temperature": (0.7, {f"{_R}.temperature": "0.7"}),
    "algorithm.top_p": (0.9, {f"{_R}.top_p": "0.9"}),
    "algorithm.top_k": (50, {f"{_R}.top_k": "50"}),
    "algorithm.val_temperature": (
        0.3,
        {f"{_R}.val_kwargs.temperature": "0.3", f"{_R}.val_kwargs.do_sample": "True"},
    ),
    "algorithm.val_top_p": (0.8, {f"{_R}.val_kwargs.top_p": "0.8"}),
    "algorithm.val_top_k": (5, {f"{_R}.val_kwargs.top_k": "5"}),
    "vllm.max_model_length": (2048, {f"{_R}.max_model_len": "2048"}),
    "vllm.gpu_memory_utilization": (0.5, {f"{_R}.gpu_memory_utilization": "0.5"}),
    "vllm.max_num_seqs": (3, {f"{_R}.max_num_seqs": "3"}),
    "vllm.enforce_eager": (False, {f"{_R}.enforce_eager": "False"}),
    "vllm.dtype": ("float32", {f"{_R}.dtype": "float32"}),
    "vllm.enable_chunked_prefill": (
        False,
        {f"{_R}.enable_chunked_prefill": "False", f"{_R}.max_num_batched_tokens": "1024"},
    ),
    "verl.agent_loop": ("tool_agent", {f"{_R}.agent.default_agent_loop": "tool_agent"}),
    "verl.agent_workers": (3, {f"{_R}.agent.num_workers": "3"}),
    "verl.calculate_log_probs": (False, {f"{_R}.calculate_log_probs": "False"}),
    "verl.disable_cascade_attn": (True, {f"{_R}.engine_kwargs.vllm.disable_cascade_attn": "True"}),
    "verl.use_torch_compile": (
        True,
        {f"{_A}.use_torch_compile": "True", f"{_A}.fsdp_config.use_torch_compile": "True"},
    ),
    "verl.wandb_proxy": ("http://p:8", {"trainer.wandb_proxy": "'http://p:8'"}),
    "ray.timeline": (True, {"ray_kwargs.timeline_json_file": "'{attempt_dir}/ray_timeline.json'"}),
    "credentials.wandb_mode": ("offline", {"trainer.logger": "[console,file,wandb]"}),
    "experiment.project_name": ("proj", {"trainer.project_name": "proj"}),
    "model.served_model_name": ("served", {f"{_R}.engine_kwargs.vllm.served_model_name": "served"}),
    "model.tool_parser": (
        "hermes",
        {f"{_R}.multi_turn.format": "hermes", f"{_R}.engine_kwargs.vllm.tool_call_parser": "hermes"},
    ),
    "harbor_agent.max_iterations": (5, {f"{_R}.multi_turn.max_assistant_turns": "5"}),
    "data.train_index": ("/d/t.parquet", {"data.train_files": "/d/t.parquet"}),
    "data.val_index": ("/d/v.parquet", {"data.val_files": "/d/v.parquet"}),
}


@pytest.mark.parametrize("key", LANDING)
def test_every_key_lands_in_its_override(key: str) -> None:
    value, expected = LANDING[key]
    found = overrides_of(plan_of(f"{key}={json.dumps(value) if not isinstance(value, str) else value}"))
    assert expected.items() <= found.items()


def test_every_training_key_of_verl_changes_an_override() -> None:
    loaded = load_config(profile="cpu-verl", env={})
    planned = {key for key, modules in consumers(loaded.config).items() if "liverl.plan" in modules}
    sections = ("training.", "algorithm.", "vllm.", "verl.")
    elsewhere = {  # these make services, dependencies or files; other tests look at them
        *("vllm.gen_tp", "verl.device", "verl.rollout_mode", "verl.rollout_gpus"),
        *("verl.train_nodes", "verl.rollout_nodes", "verl.trainer_mode", "verl.source"),
        *("verl.actor_deadline", "verl.address_deadline", "verl.health_deadline"),
    }
    keys = {key for key in planned if key.startswith(sections) and "faults" not in key}
    before = overrides_of(make_plan(loaded, RUN_DIR))
    without = set()
    for key in keys - elsewhere:
        others = (changed(loaded.config, key, value) for value in candidates(loaded.config, key))
        plans = (make_plan(replace(loaded, config=config), RUN_DIR) for config in others)
        if all(overrides_of(plan) == before for plan in plans):
            without.add(key)
    assert len(keys) > len(elsewhere) and without == set()


def test_what_the_run_always_asks_of_verl() -> None:
    found = overrides_of(plan_of())
    always = {
        f"{_R}.disable_log_stats": "False",
        f"{_R}.engine_kwargs.vllm.enable_auto_tool_choice": "True",
        f"{_R}.agent.agent_loop_config_path": "'{run_dir}/trainer/agent_loop.yaml'",
        "trainer.default_local_dir": "'{run_dir}/checkpoints'",
        "trainer.rollout_data_dir": "'{run_dir}/rollouts'",
        "trainer.resume_mode": "auto",
        "ray_kwargs.ray_init.namespace": "liverl",
        "trainer.n_gpus_per_node": "2",
        f"{_R}.tensor_model_parallel_size": "1",
        "trainer.device": "cpu",
        f"{_A}.strategy": "fsdp2",
        "actor_rollout_ref.model.path": "/home/u/.cache/liverl/smoke/model",
    }
    found["actor_rollout_ref.model.path"] = found["actor_rollout_ref.model.path"].replace(
        str(Path("~/.cache").expanduser()), "/home/u/.cache"
    )
    assert always.items() <= found.items()
    assert not any(key.startswith("ray_kwargs.ray_init.num_cpus") for key in found)


def test_overrides_of_the_configuration_win() -> None:
    plan = plan_of('trainer.overrides={"trainer.save_freq": 7, "actor_rollout_ref.actor.strategy": fsdp}')
    assert overrides_of(plan)["trainer.save_freq"] == "7"
    assert overrides_of(plan)[f"{_A}.strategy"] == "fsdp"


def test_standalone_replicas() -> None:
    plan = plan_of(
        "verl.rollout_mode=standalone",
        "verl.rollout_gpus=2",
        "infrastructure.ngpus_per_node=4",
        "verl.device=cuda",
        "training.train_prompt_mini_batch_size=4",
    )
    found = overrides_of(plan)
    assert (plan.expected_replicas, found["trainer.n_gpus_per_node"], found[f"{_R}.n_gpus_per_node"]) == (
        2,
        "2",
        "2",
    )
    assert found["trainer.v1.trainer_mode"] == "separate_async"
    assert found["trainer.v1.separate_async.parameter_sync_step"] == "2"
    assert found["actor_rollout_ref.hybrid_engine"] == "False"
    assert service(plan, "ray").gpus == 4
    info = "trainer/path/liverl_standalone-1.dist-info"
    for name in ("ray", "trainer"):  # whichever of them starts again writes it again
        files = {file.path: file.text for file in service(plan, name).files}
        assert "standalone = liverl.verl_runtime.standalone" in files[f"{info}/entry_points.txt"]
        assert files.keys() >= {f"{info}/METADATA", "trainer/path/liverl/__init__.py"}
        assert "VERL_USE_EXTERNAL_MODULES" not in service(plan, name).env, "it is the user's"


# --- services -----------------------------------------------------------------------------------------


def test_the_services_of_a_run() -> None:
    plan = plan_of()
    assert [s.name for s in plan.services] == ["ray", "smoke", "proxy", "sessions", "trainer"]
    assert (plan.topology, plan.expected_replicas, plan.replica_template, plan.total_steps) == (
        "verl",
        2,
        None,
        4,
    )
    needs = {(d.condition, d.on) for d in service(plan, "trainer").depends_on}
    assert needs == {
        ("environment_ready", "verl"),
        ("ready", "ray"),
        ("listening", "proxy.http"),
        ("listening", "sessions.http"),
        ("exited_0", "smoke"),
    }
    (waits,) = [d for d in service(plan, "proxy").depends_on if d.condition == "discovered"]
    assert (waits.on, waits.count) == ("replica", 2)
    assert [s.name for s in plan.services if s.completes] == ["smoke", "trainer"]
    trainer = service(plan, "trainer")
    assert trainer.ends_run
    assert trainer.restart.mode == "never"
    # of the job, since workers inherit the cluster's environment: a later start must not empty an earlier file
    logger = overrides_of(plan)["ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH"]
    assert logger == "'{attempt_dir}/metrics.verl.{generation}.jsonl'"
    assert {
        "RAY_ADDRESS": "127.0.0.1:{port:ray.gcs}",
        "HARBOR_TOOL_PARSER": "qwen3_coder",
    }.items() <= trainer.env.items()
    again = service(plan_of("trainer.restart=from_checkpoint"), "trainer")
    assert (again.restart.mode, again.restart_needs) == (
        "on_failure",
        "checkpoints/latest_checkpointed_iteration.txt",
    )


def test_our_ray_head() -> None:
    spec = service(plan_of("infrastructure.ray_port=7001", "infrastructure.ray_dashboard_port=7002"), "ray")
    argv = spec.argv
    assert argv[:6] == ("{python:verl}", "-m", "ray.scripts.scripts", "start", "--head", "--block")
    flags = dict(itertools.pairwise(argv))
    assert flags["--num-cpus"] == "9"
    assert flags["--num-gpus"] == "2"
    assert flags["--dashboard-host"] == flags["--node-ip-address"] == "127.0.0.1"
    assert flags["--object-store-memory"] == "536870912"
    assert flags["--temp-dir"].startswith("/tmp/lv-")
    assert len(flags["--temp-dir"]) == len("/tmp/lv-") + 8
    assert {p.name: p.number for p in spec.ports if p.number} == {"gcs": 7001, "dashboard": 7002}
    # The raylet waits 15 s for the port of an agent that chooses its own.
    assert flags["--dashboard-agent-grpc-port"] == "{port:agent}"
    assert {text for text in argv if text.startswith("{port:")} == {f"{{port:{p.name}}}" for p in spec.ports}
    assert (spec.probes.startup.kind, spec.probes.startup.pattern) == ("log_line", "Ray runtime started")
    assert spec.probes.ready is not None
    assert (spec.probes.ready.path, spec.probes.ready.token_file) == ("/api/version", "secrets/ray_token")
    assert (spec.restart.mode, spec.gpus) == ("until_ready", 0)
    assert spec.env["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] == "0"
    # Its workers inherit its environment.
    assert spec.env["PYTHONPATH"] == "{run_dir}/trainer/path"
    assert spec.env["VERL_USE_EXTERNAL_MODULES"] == "liverl.verl_runtime.cpu"
    assert json.loads(spec.env["LIVERL_CPU_FAULTS"])["pending_replica"] is None
    stub, *plugin = spec.files
    assert {Path(file.path).parent.name for file in plugin} == {
        "liverl_endings-1.dist-info",
        "liverl_before_end-1.dist-info",
    }
    assert stub.path == "trainer/path/liverl/__init__.py"
    namespace: dict[str, Any] = {}
    exec(stub.text, namespace)
    assert (Path(namespace["__path__"][0]) / "plan" / "spec.py").is_file()


def test_where_the_replicas_are_looked_for() -> None:
    ray = plan_of("verl.actor_deadline=11", "verl.address_deadline=12", "verl.health_deadline=13").ray
    assert ray is not None
    assert (ray.owner, ray.service, ray.port) == ("ours", "ray", "dashboard")
    assert ray.address == ray.child_env["RAY_ADDRESS"] == "127.0.0.1:{port:ray.gcs}"
    assert (ray.namespace, ray.environment, ray.token_file) == ("liverl", "verl", "secrets/ray_token")
    assert (ray.expected, ray.actor_deadline, ray.address_deadline, ray.health_deadline) == (2, 11, 12, 13)
    assert ray.child_env["RAY_AUTH_TOKEN_PATH"] == "{run_dir}/secrets/ray_token"


def test_a_cluster_of_somebody_else() -> None:
    plan = plan_of(
        "ray.address=10.0.0.1:6000", "ray.auth_token_file=/t", "infrastructure.ray_dashboard_port=8300"
    )
    assert [s.name for s in plan.services] == ["smoke", "proxy", "sessions", "trainer"]
    ray = plan.ray
    assert ray is not None
    assert (ray.owner, ray.address, ray.dashboard, ray.service) == (
        "foreign",
        "10.0.0.1:6000",
        "10.0.0.1:8300",
        "",
    )
    assert ray.token_file == "/t"
    trainer = service(plan, "trainer")
    assert trainer.env["RAY_ADDRESS"] == "10.0.0.1:6000"
    assert trainer.env["RAY_AUTH_TOKEN_PATH"] == "/t"
    assert not any(d.on == "ray" for d in trainer.depends_on)
    job = overrides_of(plan)
    env = "ray_kwargs.ray_init.runtime_env.env_vars"
    assert job[f"{env}.PYTHONPATH"] == "'{run_dir}/trainer/path'"
    assert f"{env}.VERL_FILE_LOGGER_PATH" in job
    elsewhere = plan_of("ray.address=10.0.0.1:6000", "ray.dashboard_address=d:1").ray
    assert elsewhere is not None
    assert (elsewhere.dashboard, elsewhere.token_file) == ("d:1", "")


def test_ports_that_are_chosen_are_told_to_the_job_alone() -> None:
    any_port = (
        "infrastructure.ray_port=0",
        "infrastructure.ray_dashboard_port=0",
        "infrastructure.litellm_port=0",
    )
    told = {
        "LITELLM_PORT": "{port:proxy}",
        "RAY_PORT": "{port:ray.gcs}",
        "RAY_DASHBOARD_PORT": "{port:ray.dashboard}",
    }
    plan = plan_of(*any_port)
    assert told.items() <= service(plan, "trainer").env.items()
    assert not told.keys() & service(plan, "ray").env.keys()
    job = overrides_of(plan)
    assert {name: job[f"ray_kwargs.ray_init.runtime_env.env_vars.{name}"] for name in told} == {
        name: f"'{text}'" for name, text in told.items()
    }
    elsewhere = plan_of("ray.address=10.0.0.1:6000", "ray.dashboard_address=d:1", *any_port)
    assert not {"RAY_PORT", "RAY_DASHBOARD_PORT"} & service(elsewhere, "trainer").env.keys()
    assert "RAY_PORT" in service(plan_of("infrastructure.ray_port=7001"), "ray").env


def agent_loops(*sets: str) -> list[dict[str, Any]]:
    files = service(plan_of("harbor_agent.max_iterations=5", *sets), "trainer").files
    (file,) = [file for file in files if file.path == "trainer/agent_loop.yaml"]
    entries: list[dict[str, Any]] = yaml.safe_load(file.text)
    return entries


@pytest.mark.parametrize(
    ("sets", "target", "own"),
    [
        (
            ("proxy.trials_through=litellm",),
            "agent_loop.ProxyAgentLoop",
            {"proxy_url": "http://127.0.0.1:{port:proxy}", "run_key_file": "{run_dir}/secrets/run_key"},
        ),
        (
            (),
            "session_loop.ServiceAgentLoop",
            {"control_key_file": "{run_dir}/secrets/sessions_key"},
        ),
        (
            ("run.topology=in_process", "session_proxy.rewrite=mask", "proxy.max_body_bytes=1048576"),
            "session_loop.WorkerAgentLoop",
            {
                "advertise": "",
                "rewrite": "mask",
                "asides": "skip",
                "main_agent_prefix_match": 256,
                "models": [],
                "patience": 120.0,
                "max_replica_deaths": 2,
                "in_flight": 16,
                "rows_per_trial": 64,
                "max_body_bytes": 1048576,
            },
        ),
    ],
)
def test_the_agent_loops_file(sets: tuple[str, ...], target: str, own: dict[str, Any]) -> None:
    """A row may name any of our loops, and a kind of agent: what carries the trials is the run's."""
    entries = agent_loops(*sets)
    kinds = {entry.pop("name"): entry.pop("kind") for entry in entries}
    ours = {f"liverl_{kind}": kind for kind in get_args(AgentKind) if kind != "auto"}
    assert kinds == {"liverl_proxy": "auto", "liverl_session": "auto", **ours}
    assert all(entry == entries[0] for entry in entries)
    entry = entries[0]
    assert entry.pop("_target_") == f"liverl.verl_runtime.{target}"
    assert (entry["max_turns"], entry["trial_timeout"], entry["max_tokens"]) == (5, 120.0, 512)
    assert entry["max_retries"] == 2
    common = {
        "run_dir",
        "attempt_dir",
        "served_model",
        "max_turns",
        "trial_timeout",
        "max_retries",
        "temperature",
        "max_tokens",
        "agent_file",
    }
    assert {name: value for name, value in entry.items() if name not in common} == own


def test_no_file_tells_of_loops_that_are_not_ours() -> None:
    stock = service(plan_of("verl.agent_loop=tool_agent"), "trainer")
    names = {Path(file.path).parent.name for file in stock.files}
    assert names == {"liverl", "liverl_before_end-1.dist-info"}


def test_faults_reach_the_replicas() -> None:
    plan = plan_of("verl.faults.late_replica={index: 1, seconds: 60}", "verl.faults.crash_at_step=3")
    for name in ("ray", "trainer"):
        faults = json.loads(service(plan, name).env["LIVERL_CPU_FAULTS"])
        assert faults["late_replica"] == {"index": 1, "seconds": 60.0}
        assert faults["crash_at_step"] == 3


def test_a_launch_script_is_all_that_is_started() -> None:
    sizes = ("infrastructure.nnodes=1", "infrastructure.ngpus_per_node=8", "vllm.gen_tp=4")
    given = ("trainer.kind=command", "trainer.command=[bash, run.sh]", *sizes)
    plan = plan_of(*given, profile="liverl-gen1")
    (spec,) = plan.services
    assert (spec.name, spec.argv, plan.expected_replicas) == ("trainer", ("bash", "run.sh"), 2)
    assert "MODEL_PATH" not in spec.env, "a profile's value must not override the script's own"
    assert spec.env["NGPUS_PER_NODE"] == "8"
    assert spec.secret_env == {"ANTHROPIC_API_KEY": "/runs/p/n/secrets/run_key"}
    assert plan.environments == ()


def test_on_gpus() -> None:
    plan = plan_of(profile="h200-smoke")
    ray, trainer = service(plan, "ray"), service(plan, "trainer")
    assert (ray.gpus, plan.expected_replicas) == (2, 2)
    assert "VERL_USE_EXTERNAL_MODULES" not in {**ray.env, **trainer.env}
    assert ray.env["VLLM_LOGGING_LEVEL"] == "INFO"
    one = plan_of("infrastructure.ngpus_per_node=1", profile="h200-smoke")
    assert (one.expected_replicas, service(one, "ray").gpus) == (1, 1)


def test_secrets_are_in_no_plan(tmp_path: Path) -> None:
    key = tmp_path / "wandb"
    key.write_text("s3cr3t-value")
    key.chmod(0o600)
    sets = ["credentials.wandb_mode=online", f"credentials.wandb_api_key=file:{key}"]
    plan = plan_of(*sets, env={"MY_TOKEN": "t0ken"})
    assert (
        service(plan, "ray").secret_env == service(plan, "trainer").secret_env == {"WANDB_API_KEY": str(key)}
    )
    whole = msgspec.json.encode(plan).decode() + plan_json(plan) + plan_text(plan)
    assert "s3cr3t" not in whole
    with pytest.raises(PlanError, match="other users can read"):
        plan_of('trainer.overrides={"+x.api_key": abc}')


def test_paths_that_hydra_would_misread_are_refused() -> None:
    with pytest.raises(PlanError, match=r"run\.run_root"):
        plan_of(run_dir=Path("/it's/p/n"))


def test_in_process_starts_nothing_in_front_of_the_replicas() -> None:
    plan = plan_of("run.topology=in_process", "infrastructure.litellm_port=0")
    assert [spec.name for spec in plan.services] == ["ray", "smoke", "trainer"]
    assert (plan.carrier, plan.expected_replicas, plan.topology) == ("workers", 2, "in_process")
    assert {d.on for d in service(plan, "trainer").depends_on} == {"verl", "ray", "smoke"}
    assert "LITELLM_PORT" not in service(plan, "trainer").env
    assert not any("port:proxy" in file.text for spec in plan.services for file in spec.files)


def test_in_process_a_launch_script_brings_no_proxy_to_adopt() -> None:
    plan = plan_of(
        "run.topology=in_process", "trainer.kind=command", "trainer.command=[x]", profile="liverl-gen1"
    )
    assert [spec.name for spec in plan.services] == ["trainer"]
    assert (plan.adopted_port, plan.carrier, plan.expected_replicas) == (None, "workers", 2)


def test_the_page_names_everything_and_no_token() -> None:
    page = plan_text(plan_of())
    assert "topology   verl: 2 replicas, 4 steps" in page
    assert "after     replica: discovered (2)" in page
    assert "RAY_AUTH_TOKEN_PATH={run_dir}/secrets/ray_token" in page
