"""What is planned for topology managed: the argv, probes, ports and needs of each service, and why."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import msgspec
import pytest
from kit.plans import flags, plan_of, replica, service
from msgspec.structs import replace

from liverl.agents.settings import TrainerConfig
from liverl.config import load_config
from liverl.plan import PlanError, make_plan
from liverl.plan.policies import client_host
from liverl.plan.spec import (
    Dependency,
    InstallStep,
    Plan,
    PortSpec,
    Probe,
    RestartPolicy,
    ServiceSpec,
    Settings,
    StopStage,
)
from liverl.sessions.settings import Settings as SessionSettings

OPTIONS = Path(__file__).parents[1] / "data" / "recordings" / "vllm_serve_options.txt"
_VLLM_START = ("{python:vllm}", "-m", "vllm.entrypoints.cli.main", "serve")
_EMBEDDED_START = ("{python:self}", "-P", "-m", "liverl.embedded.engine")


def vllm_argv(*sets: str) -> dict[str, str | None]:
    """The options of `vllm serve` behind the model."""
    argv = replica(plan_of(*sets, profile="vllm-managed")).argv
    assert argv[:4] == _VLLM_START
    return flags(argv, 5)


def embedded_argv(*sets: str) -> dict[str, str | None]:
    argv = replica(plan_of(*sets, profile="embedded")).argv
    assert argv[:4] == _EMBEDDED_START
    return flags(argv, 4)


# --- vllm serve -------------------------------------------------------------------------------------------


def test_vllm_is_asked_for_exactly_this() -> None:
    assert replica(plan_of(profile="vllm-managed")).argv[4] == "Qwen/Qwen3-30B-A3B-Instruct-2507"
    assert (
        vllm_argv()
        == {
            "--served-model-name": "policy",  # the proxy routes to this name
            "--host": "127.0.0.1",  # the proxy is beside it
            "--middleware": "liverl.util.token_guard.TokenGuard",  # other users of the host do not get at the policy
            "--port": "{port:http}",
            "--tensor-parallel-size": "4",
            "--enable-auto-tool-choice": None,  # agents send tools without naming a choice
            "--tool-call-parser": "qwen3_coder",
            "--max-model-len": "128000",
            "--gpu-memory-utilization": "0.85",
            "--max-num-seqs": "96",
            "--dtype": "bfloat16",
            "--enable-chunked-prefill": None,
        }
    )


@pytest.mark.parametrize(
    ("key", "value", "flag", "text"),
    [
        ("model.served_model_name", "m", "--served-model-name", "m"),
        ("model.tool_parser", "hermes", "--tool-call-parser", "hermes"),
        ("vllm.gen_tp", "2", "--tensor-parallel-size", "2"),
        ("vllm.max_model_length", "4096", "--max-model-len", "4096"),
        ("vllm.gpu_memory_utilization", "0.5", "--gpu-memory-utilization", "0.5"),
        ("vllm.gpu_memory_utilization", "1", "--gpu-memory-utilization", "1"),
        ("vllm.max_num_seqs", "7", "--max-num-seqs", "7"),
        ("vllm.dtype", "float16", "--dtype", "float16"),
        ("vllm.enforce_eager", "true", "--enforce-eager", None),
    ],
)
def test_a_key_changes_its_option_of_vllm_and_no_other(
    key: str, value: str, flag: str, text: str | None
) -> None:
    assert vllm_argv(f"{key}={value}") == {**vllm_argv(), flag: text}


def test_the_model_of_vllm_is_the_configured_one() -> None:
    plan = plan_of("model.model_path=/models/a b", profile="vllm-managed")
    assert replica(plan).argv[:5] == (*_VLLM_START, "/models/a b")


def test_chunked_prefill_is_switched_off_by_name() -> None:
    """vLLM switches it on by itself where nothing is said."""
    off = vllm_argv("vllm.enable_chunked_prefill=false")
    assert off["--no-enable-chunked-prefill"] is None
    assert "--enable-chunked-prefill" not in off
    assert "--no-enable-chunked-prefill" not in vllm_argv()


def test_vllm_0_24_has_every_option() -> None:
    known = {
        word for line in OPTIONS.read_text().splitlines() for word in re.findall(r"--[a-z][a-z0-9-]*", line)
    }
    asked = {*vllm_argv(), *vllm_argv("vllm.enable_chunked_prefill=false", "vllm.enforce_eager=true")}
    assert asked <= known


def test_a_replica_of_vllm() -> None:
    spec = replica(
        plan_of("vllm.gen_tp=2", "infrastructure.vllm_logging_level=DEBUG", profile="vllm-managed")
    )
    assert (spec.environment, spec.gpus) == ("vllm", 2)
    assert spec.depends_on == (Dependency("environment_ready", "vllm"),)
    assert spec.env == {
        "VLLM_LOGGING_LEVEL": "DEBUG",
        "PYTHONPATH": "{run_dir}/replica/path",
        "LIVERL_REPLICA_INDEX": "{index}",
    }
    assert plan_of(profile="vllm-managed").replica_arguments == {}


def test_vllm_can_import_the_class_that_guards_its_routes() -> None:
    """From a directory on its PYTHONPATH that holds nothing but the way to our package."""
    spec = replica(plan_of(profile="vllm-managed"))
    (file,) = spec.files
    assert file.path == "replica/path/liverl/__init__.py"
    assert spec.env["PYTHONPATH"] == "{run_dir}/" + file.path.removesuffix("/liverl/__init__.py")
    module, _, name = vllm_argv()["--middleware"].rpartition(".")  # type: ignore[union-attr]
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize(
    ("profile", "variables"),
    [("embedded", {"LIVERL_REPLICA_TOKEN"}), ("vllm-managed", {"LIVERL_REPLICA_TOKEN", "VLLM_API_KEY"})],
)
def test_each_port_of_a_replica_requires_the_runs_token(profile: str, variables: set[str]) -> None:
    plan = plan_of(profile=profile)
    spec = replica(plan)
    token = f"{plan.run_dir}/secrets/replica_token"
    assert plan.replica_token_file == "secrets/replica_token"
    assert spec.secret_env == dict.fromkeys(variables, token), "by a file, so that it is in no plan"
    assert not variables & spec.env.keys()
    for probe in (spec.probes.startup, spec.probes.ready, spec.probes.live):
        assert probe is not None
        assert probe.token_file == plan.replica_token_file


# --- the embedded engine ----------------------------------------------------------------------------------


def test_the_embedded_engine_is_asked_for_exactly_this() -> None:
    assert embedded_argv() == {
        "--model": "builtin:qwen3_coder",
        "--served-model-name": "policy",
        "--host": "127.0.0.1",
        "--port": "{port:http}",
        "--tensor-parallel-size": "1",
        "--enable-auto-tool-choice": None,
        "--tool-call-parser": "qwen3_coder",
        "--max-num-seqs": "96",
        "--seed": "0",
        "--turn-latency": "0.15",
    }


@pytest.mark.parametrize(
    ("key", "value", "flag", "text"),
    [
        ("model.model_path", "builtin:hermes", "--model", "builtin:hermes"),
        ("model.served_model_name", "m", "--served-model-name", "m"),
        ("model.tool_parser", "hermes", "--tool-call-parser", "hermes"),
        ("vllm.max_num_seqs", "7", "--max-num-seqs", "7"),
        ("run.seed", "5", "--seed", "5"),
        ("embedded.turn_latency", "0", "--turn-latency", "0"),
        ("embedded.faults.slow_start", "2.5", "--fault-load-time", "2.5"),
        ("embedded.faults.stream_chunk_delay", "0.5", "--stream-chunk-delay", "0.5"),
        ("embedded.faults.parsable_every", "3", "--parsable-every", "3"),
        ("embedded.faults.leak_worker", "true", "--fault-leak-worker", None),
    ],
)
def test_a_key_changes_its_option_of_the_engine_and_no_other(
    key: str, value: str, flag: str, text: str | None
) -> None:
    assert embedded_argv(f"{key}={value}") == {**embedded_argv(), flag: text}


def test_an_embedded_replica_needs_neither_environment_nor_gpus() -> None:
    spec = replica(plan_of(profile="embedded"))
    assert (spec.environment, spec.gpus, spec.depends_on) == (None, 0, ())
    assert spec.env["LIVERL_REPLICA_INDEX"] == "{index}"


def test_faults_of_single_replicas() -> None:
    late = "embedded.faults.late_replica={index: 1, seconds: 20}"
    deaf = "embedded.faults.ignore_sigterm=[replica-1, replica-0, trainer]"
    assert plan_of(late, deaf, profile="embedded").replica_arguments == {
        "1": ("--fault-start-delay", "20", "--fault-ignore-sigterm"),
        "0": ("--fault-ignore-sigterm",),
    }
    assert plan_of(late, profile="embedded").replica_arguments == {"1": ("--fault-start-delay", "20")}
    slow = ("embedded.faults.slow_replica=0.5", "embedded.turn_latency=0.25")
    assert plan_of(*slow, profile="embedded").replica_arguments == {"0": ("--turn-latency", "0.75")}
    assert plan_of(profile="embedded").replica_arguments == {}
    assert plan_of(late, deaf, profile="vllm-managed").replica_arguments == {}, "vLLM knows no such options"


# --- every replica ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["embedded", "vllm-managed"])
def test_a_replica_is_ready_after_one_real_completion(profile: str) -> None:
    spec = replica(plan_of("model.served_model_name=m", "supervise.startup_deadline=99", profile=profile))
    assert (spec.name, spec.kind, spec.stage_parser) == ("replica-{index}", "replica", "vllm")
    startup, ready, live = spec.probes.startup, spec.probes.ready, spec.probes.live
    assert (startup.kind, startup.port, startup.model) == ("completion", "http", "m")
    assert startup.timeout == 60.0, "the first completion compiles kernels"
    assert startup.interval == 1.0
    assert spec.probes.startup_deadline == 99.0
    health = Probe("http", port="http", path="/health", token_file="secrets/replica_token")
    assert ready == replace(health, interval=2.0, timeout=5.0, failures=3)
    assert live == replace(health, interval=5.0, timeout=10.0, failures=6)
    assert ready is not None and live is not None
    # it leaves the proxy's list well before it is ended
    assert live.failures * live.interval > 2 * ready.failures * ready.interval


@pytest.mark.parametrize("profile", ["embedded", "vllm-managed"])
def test_a_replica_gets_a_new_port_at_each_start(profile: str) -> None:
    """Nobody who knew the old process reaches the new one before it has the current weights."""
    assert replica(plan_of(profile=profile)).ports == (PortSpec("http", 0, "127.0.0.1", held=False),)


def test_as_many_replicas_as_configured_are_expected() -> None:
    plan = plan_of("run.replicas=3", profile="embedded")
    assert plan.expected_replicas == 3
    for name in ("proxy", "trainer"):
        (need,) = [d for d in service(plan, name).depends_on if d.condition == "all_ready"]
        assert (need.on, need.count) == ("replica", 3)


# --- the proxy --------------------------------------------------------------------------------------------


def test_the_proxy() -> None:
    sets = ("infrastructure.litellm_port=9000", "proxy.host=0.0.0.0", "proxy.drain_timeout=90")
    spec = service(plan_of(*sets, profile="embedded"), "proxy")
    python, runner = spec.argv
    assert (python, Path(runner).parts[-4:]) == (
        "{python:proxy}",
        ("liverl", "proxy", "runtime", "runner.py"),
    )
    assert Path(runner).is_file()
    assert (spec.kind, spec.environment, spec.stage_parser) == ("proxy", "proxy", "litellm")
    assert spec.ports == (PortSpec("http", 9000, "0.0.0.0", held=True, key="infrastructure.litellm_port"),)
    assert spec.env == {
        "LIVERL_PROXY_CONFIG": "{run_dir}/proxy/litellm.yaml",
        "LIVERL_DRAIN_TIMEOUT": "90",
        "LIVERL_MAX_BODY_BYTES": "16777216",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LIVERL_SAMPLING": "{run_dir}/proxy/sampling.json",
    }
    assert {"DATABASE_URL", "LITELLM_MASTER_KEY", "PYTHONPATH"} <= set(spec.unset_env)
    assert spec.depends_on[0] == Dependency("environment_ready", "proxy")
    assert len(spec.depends_on) == 2


def test_the_proxy_reports_its_own_start() -> None:
    """During a swap two generations share the socket: a request may be answered by either."""
    probes = service(plan_of(profile="embedded"), "proxy").probes
    assert probes.startup == Probe(
        "status_file", path="proxy/status.{generation}.json", pattern="serving", interval=0.3
    )
    assert probes.ready == Probe(
        "http", port="http", path="/health/liveliness", interval=2.0, timeout=10.0, failures=3
    )
    assert probes.live == Probe(
        "http", port="http", path="/health/liveliness", interval=5.0, timeout=20.0, failures=6
    )


@pytest.mark.parametrize(("configured", "planned"), [("2700", 300.0), ("300", 300.0), ("60", 60.0)])
def test_the_proxy_is_given_less_time_to_start_than_a_model(configured: str, planned: float) -> None:
    plan = plan_of(f"supervise.startup_deadline={configured}", profile="embedded")
    assert service(plan, "proxy").probes.startup_deadline == planned
    assert replica(plan).probes.startup_deadline == float(configured)


def test_a_replaced_proxy_drains_for_twice_its_time_and_then_stops_as_always() -> None:
    spec = service(plan_of("proxy.drain_timeout=100", profile="embedded"), "proxy")
    assert spec.drain == (StopStage("USR1", "leader", 215.0), *spec.stop)
    others = (replica(plan_of(profile="embedded")), service(plan_of(profile="embedded"), "trainer"))
    assert all(other.drain == () for other in others), "only the proxy's socket can be handed over"


# --- stopping and restarting ------------------------------------------------------------------------------


def test_stop_stages_and_restarts_come_from_the_configuration() -> None:
    sets = (
        *("supervise.stop_grace=1", "supervise.tree_grace=2", "supervise.kill_grace=3"),
        *("supervise.restart_base=4", "supervise.restart_cap=50", "supervise.restart_jitter=0.5"),
        *("supervise.storm_window=7", "supervise.storm_failures=8", "supervise.stable_after=9"),
    )
    plan = plan_of(*sets, "trainer.restart=from_checkpoint", profile="embedded")
    for spec in (replica(plan), *plan.services):
        assert spec.stop == (
            StopStage("TERM", "leader", 1.0),
            StopStage("TERM", "tree", 2.0),
            StopStage("KILL", "tree", 3.0),
        )
        assert spec.restart == RestartPolicy("on_failure", 4.0, 50.0, 0.5, 7.0, 8, 9.0)
    assert plan.settings.stuck_after == 9.0, "three times what SIGKILL is given"


@pytest.mark.parametrize("profile", ["embedded", "vllm-managed", "cpu-verl", "liverl-gen1"])
def test_every_stop_ends_with_sigkill_to_the_tree(profile: str) -> None:
    plan = plan_of(profile=profile)
    for spec in (*plan.services, *([plan.replica_template] if plan.replica_template else [])):
        for sequence in filter(None, (spec.stop, spec.drain)):
            assert (sequence[-1].signal, sequence[-1].target) == ("KILL", "tree")
            assert sequence[0].target == "leader"
            assert all(stage.grace > 0 for stage in sequence)


@pytest.mark.parametrize(
    ("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("", "127.0.0.1"), ("h", "h")]
)
def test_where_a_client_reaches_a_service(host: str, reached: str) -> None:
    assert client_host(host) == reached


# --- the plan as a whole ----------------------------------------------------------------------------------


def test_a_managed_plan() -> None:
    plan = plan_of("training.train_batch_size=6", "training.n_resp_per_prompt=5", profile="embedded")
    assert [s.name for s in plan.services] == ["proxy", "trainer"]
    assert (plan.run, plan.run_dir, plan.topology) == ("p/n", "/runs/p/n", "managed")
    assert (plan.total_steps, plan.trials_per_step) == (20, 30)
    assert [e.name for e in plan.environments] == ["proxy"]
    assert (plan.served_model, plan.ray, plan.adopted_port) == ("policy", None, None)


def test_serving_alone_has_no_trainer_and_no_steps() -> None:
    plan = plan_of(profile="vllm-managed")
    assert [s.name for s in plan.services] == ["proxy"]
    assert (plan.total_steps, plan.trials_per_step) == (None, None)
    assert [e.name for e in plan.environments] == ["proxy", "vllm"]


def test_a_trial_takes_as_long_as_the_proxy_waits() -> None:
    assert plan_of("proxy.request_timeout=700", profile="embedded").trial_timeout == 700.0


def test_managed_refuses_a_trainer_of_another_topology() -> None:
    loaded = load_config(profile="embedded", env={})
    wrong = replace(
        loaded, config=replace(loaded.config, trainer=replace(loaded.config.trainer, kind="verl"))
    )
    with pytest.raises(PlanError, match=r"trainer\.kind: 'verl' requires run\.topology verl"):
        make_plan(wrong, Path("/runs/p/n"))


def test_settings_come_from_the_configuration() -> None:
    sets = (
        *("supervise.scan_interval=1.5", "observe.host_interval=2.5", "observe.gpus_interval=3.5"),
        *("observe.replicas_interval=4.5", "observe.trials_interval=5.5", "proxy.cooldown_time=6.5"),
        *("supervise.replica_stagger=7.5", "supervise.max_replicas=9", "supervise.kill_grace=8.5"),
        *("batch.end_time=1796000000", "batch.margin=9.5", "training.save_freq=-1"),
    )
    assert plan_of(*sets, profile="embedded").settings == Settings(
        scan_interval=1.5,
        host_interval=2.5,
        gpus_interval=3.5,
        replicas_interval=4.5,
        trials_interval=5.5,
        snapshot_interval=0.5,
        cooldown=6.5,
        replica_stagger=7.5,
        max_replicas=9,
        stuck_after=25.5,
        batch_end_time="1796000000",
        batch_margin=9.5,
        batch_unsaved="training.save_freq is -1, so none is ever saved",
    )


def test_an_environment_is_planned_as_configured() -> None:
    sets = (
        'environments.proxy={requirements: [a==1, b], python: "3.12", installer: pip, index_url: "https://i/${T}",'
        ' find_links: [/wheels], first: {requirements: [c], installer: uv, index_url: "https://j"}}'
    )
    (spec,) = plan_of(sets, profile="embedded").environments
    assert (spec.name, spec.requirements, spec.venv_path, spec.python) == (
        "proxy",
        ("a==1", "b"),
        None,
        "3.12",
    )
    assert (spec.installer, spec.index_url, spec.find_links) == ("pip", "https://i/${T}", ("/wheels",))
    assert spec.first == InstallStep(("c",), "uv", "https://j")


def test_liverls_venv_is_verls_and_an_entry_of_its_own_wins() -> None:
    def venvs(*sets: str) -> dict[str, str | None]:
        return {e.name: e.venv_path for e in plan_of(*sets, profile="cpu-verl").environments}

    assert venvs() == {"proxy": None, "verl": None}
    assert venvs("environment.venv_path=/v") == {"proxy": None, "verl": "/v"}
    own = "environments.verl={venv_path: /own, requirements: []}"
    assert venvs("environment.venv_path=/v", own) == {"proxy": None, "verl": "/own"}
    proxy = "environments.proxy={venv_path: /p, requirements: []}"
    assert venvs("environment.venv_path=/v", proxy) == {"proxy": "/p", "verl": "/v"}


def test_the_defaults_of_what_a_plan_is_made_of() -> None:
    """They are in no configuration: tests and older plan files rely on them."""
    spec = ServiceSpec("s", "task", ("a",))
    assert [(s.signal, s.target, s.grace) for s in spec.stop] == [
        ("TERM", "leader", 10.0),
        ("TERM", "tree", 5.0),
        ("KILL", "tree", 5.0),
    ]
    assert (spec.gpus, spec.ends_run, spec.fatal, spec.owner, spec.drain) == (0, False, True, "ours", ())
    assert spec.probes.startup == Probe("process", "", "/health", "", "", 1.0, 5.0, 3, "")
    assert (spec.probes.startup_deadline, spec.probes.ready, spec.probes.live) == (2700.0, None, None)
    assert spec.restart == RestartPolicy("on_failure", 1.0, 60.0, 0.2, 300.0, 5, 60.0)
    assert Settings() == Settings(2.0, 2.0, 2.0, 1.0, 1.0, 0.5, 30.0, 0.0, 15.0)
    assert (PortSpec("p").number, PortSpec("p").held) == (0, False)
    plan = Plan("p/n", "/r", "managed", (), (), None, 1)
    assert (plan.trial_timeout, plan.total_steps, plan.trials_per_step) == (2400.0, None, None)


# --- sessions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["embedded", "vllm-managed"])
def test_sessions_are_planned_where_they_carry_the_trials(profile: str) -> None:
    through = "proxy.trials_through=sessions"
    for sets in ((), ("proxy.trials_through=litellm",)):
        assert "sessions" not in {spec.name for spec in plan_of(*sets, profile=profile).services}
    spec = service(
        plan_of(through, "session_proxy.port=9100", "proxy.host=0.0.0.0", profile=profile), "sessions"
    )
    assert spec.kind == "sessions" and spec.depends_on == (), "requests wait until it knows a replica"
    assert spec.argv[:4] == ("{python:self}", "-P", "-m", "liverl.sessions")
    assert spec.ports == (PortSpec("http", 9100, "0.0.0.0", held=True, key="session_proxy.port"),)
    assert spec.probes.startup.kind == "status_file" and spec.probes.live is not None
    assert spec.drain == (), "two processes must not write the same journals"
    (file,) = spec.files
    settings = msgspec.json.decode(file.text, type=SessionSettings)
    assert settings.host == ""  # proxy.host is 0.0.0.0: the service finds its address
    assert settings.control_key_file == "{run_dir}/secrets/sessions_key"
    assert not spec.secret_env and "key" not in str(spec.env).lower()


def test_the_trainer_waits_for_what_carries_its_trials() -> None:
    for value, carrier in (("auto", "proxy"), ("litellm", "proxy"), ("sessions", "sessions")):
        spec = service(plan_of(f"proxy.trials_through={value}", profile="embedded"), "trainer")
        assert Dependency("ready", carrier) in spec.depends_on
        settings = msgspec.json.decode(spec.files[0].text, type=TrainerConfig)
        assert (settings.sessions_key_file is not None) == (carrier == "sessions")
        assert (settings.run_key_file is not None) == (carrier == "proxy"), "no key that it does not need"


@pytest.mark.parametrize(
    ("sets", "host"),
    [
        ((), "127.0.0.1"),
        (("proxy.host=10.0.0.5",), "10.0.0.5"),
        (("proxy.host=0.0.0.0",), ""),  # the service finds it
        (("proxy.host=0.0.0.0", "infrastructure.node0_ip=10.0.0.7"), "10.0.0.7"),
        (("proxy.host=127.0.0.1", "infrastructure.node0_ip=10.0.0.7"), "127.0.0.1"),
        (("proxy.host=0.0.0.0", "infrastructure.node0_ip=10.0.0.7", "proxy.advertise=head"), "head"),
    ],
)
def test_the_host_by_which_agents_reach_their_sessions(sets: tuple[str, ...], host: str) -> None:
    plan = plan_of(*sets, "proxy.trials_through=sessions", profile="embedded")
    (settings,) = [file.text for file in service(plan, "sessions").files]
    assert json.loads(settings)["host"] == host
