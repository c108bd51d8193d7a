"""The table of uses says the same as the plans: a key is used if, and only if, it changes what a component gets."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from kit import key_effects, variable_reads
from kit.key_effects import base, disagreements, reached
from kit.variable_reads import THIRD_PARTY, own_reads, reads

from liverl.agents.settings import TrainerConfig, TrainerFaults
from liverl.config import ConfigError, LoadedConfig, dump_yaml, load_config
from liverl.config.consumers import KeyRule, rules, why_inert
from liverl.config.env_vars import VARIABLES
from liverl.config.inert import sentence
from liverl.config.schema import leaves
from liverl.daemon.launch import create_run
from liverl.daemon.trusted_run import ROOTS_VARIABLE, UntrustedRun
from liverl.engines import ENGINES
from liverl.observe.trials.script_sampling import script_sampling
from liverl.plan import PlanError, make_plan, spec, verl_overrides, verl_trainer
from liverl.plan.spec import Plan
from liverl.plan.verl_trainer import INTERFACE_VARIABLES
from liverl.rundir.layout import RunDir
from liverl_tui.cli.options import UpOptions
from liverl_tui.cli.target import require_trusted

pytestmark = pytest.mark.drill

VERL, COMMAND = ("verl", "vllm", "verl"), ("verl", "vllm", "command")
COMBINATIONS = [(t, e.name, k) for e in ENGINES.values() for t, kinds in e.trainers.items() for k in kinds]
# What changes which keys are used, beside topology, engine and trainer.
VARIANTS: dict[tuple[str, str, str], list[tuple[str, ...]]] = {
    VERL: [
        ("ray.address=h:6379",),
        ("ray.address=h:6379", "ray.dashboard_address=h:8265"),
        ("verl.device=cpu", "vllm.gen_tp=1"),
        ("verl.device=cpu", "vllm.gen_tp=1", "ray.address=h:6379"),
        ("verl.agent_loop=tool_agent",),
        ("verl.agent_loop=my_own",),
        ("verl.rollout_mode=standalone", "verl.rollout_gpus=4"),
        ("verl.trainer_mode=fully_async", "verl.rollout_gpus=4"),
        ("agent.command=[agent]", "reward.function=/r.py:f"),
        ("agent.kind=harbor",),
        ("agent.kind=harbor", "harbor_agent.environment_import_path=null"),
        (
            "agent.kind=harbor",
            "harbor_agent.environment_import_path=null",
            "harbor_agent.environment_type=ack",
            "harbor_agent.runtime_image=i",
        ),
        (
            "environments.harbor.venv_path=/h",
            "harbor_agent.environment_import_path=null",
            "harbor_agent.environment_type=local",
        ),
        ("training.use_dynamic_bsz=false", "vllm.enable_chunked_prefill=false"),
        ("credentials.wandb_mode=disabled",),
        ("environments.verl.venv_path=/v",),
        ("trainer.restart=from_checkpoint", "model.model_path=smoke:/s"),
    ],
    COMMAND: [
        ("ray.address=h:6379", "ray.dashboard_address=h:8265"),
        ("verl.rollout_mode=standalone", "verl.rollout_gpus=2", "vllm.gen_tp=2", "training.sp_size=2"),
        ("credentials.wandb_mode=disabled",),
        ("environments.verl.venv_path=/v",),
    ],
    ("managed", "embedded", "embedded"): [
        ("embedded.faults.late_replica.seconds=3",),
        ("notify.targets=[{command: [tell]}]",),
        ("notify.targets=[{command: [tell]}]", "notify.events=[done]"),
        ("trainer.restart=from_checkpoint",),
        ("proxy.trials_through=sessions",),
        ("proxy.trials_through=sessions", "session_proxy.scheduler.enabled=true"),
    ],
    ("managed", "vllm", "none"): [("proxy.trials_through=sessions",)],
}
CASES = [(c, further) for c in COMBINATIONS for further in [(), *VARIANTS.get(c, [])]]

# --- keys whose use no plan shows -------------------------------------------------------------------------------------


def is_refused(loaded: LoadedConfig, setting: str, tmp_path: Path) -> None:
    """The configuration refuses the value: it can have no effect on a component, and no warning is needed."""
    run, kind = loaded.config.run, loaded.config.trainer.kind
    sets = [f"run.topology={run.topology}", f"run.engine={run.engine}", f"trainer.kind={kind}"]
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        load_config(profile=loaded.profile, sets=[*sets, "trainer.command=[x]", setting], env={})


def becomes_the_runs_key(loaded: LoadedConfig, setting: str, tmp_path: Path) -> None:
    """The run's directory holds it as the key of the proxy."""
    section = msgspec.structs.replace(loaded.config.infrastructure, anthropic_api_key="sk-dummy")
    config = msgspec.structs.replace(loaded.config, infrastructure=section)
    loaded = msgspec.structs.replace(loaded, config=config)
    create_run(loaded, make_plan(loaded, tmp_path / "p" / "n"), tmp_path / "p" / "n")
    assert (tmp_path / "p" / "n" / "secrets" / "run_key").read_text().strip() == "sk-dummy"


def vouches_for_a_run(loaded: LoadedConfig, setting: str, tmp_path: Path) -> None:
    """The command line acts on a run that others can change, where the user's configuration says so."""
    run = RunDir(tmp_path / "p" / "n")
    run.path.mkdir(parents=True)
    run.path.chmod(0o777)
    with pytest.raises(UntrustedRun):
        require_trusted(run, (), UpOptions())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ROOTS_VARIABLE, "")
        require_trusted(run, (), UpOptions(profile=loaded.profile, sets=(f"{setting}[{tmp_path}]",)))


def is_what_agents_are_compared_with(loaded: LoadedConfig, setting: str, tmp_path: Path) -> None:
    """The alert on what a launch script's agents ask for has it."""
    key, _, value = setting.partition("=")
    name = key.removeprefix("algorithm.")
    run, kind = loaded.config.run, loaded.config.trainer.kind
    sets = [f"run.topology={run.topology}", f"run.engine={run.engine}", f"trainer.kind={kind}", setting]
    other = load_config(profile=loaded.profile, sets=["run.name=n", "trainer.command=[x]", *sets], env={})
    (tmp_path / "config.yaml").write_text(dump_yaml(other.config))
    meant = script_sampling(tmp_path)
    assert meant is not None
    of = meant.validation if name.startswith("val_") else meant.training
    assert of[name.removeprefix("val_")] == float(value)


Proof = Callable[[LoadedConfig, str, Path], None]
# Key -> (combinations in which no plan shows it, the use, a value for the proof, the proof).
UNSEEN: dict[str, tuple[list[tuple[str, str, str]], str, str, Proof]] = {
    "infrastructure.anthropic_api_key": (
        [c for c in COMBINATIONS if (c[0], c[2]) != ("in_process", "verl")],
        "a secret: it goes into a file of the run's directory, never into a plan",
        "",
        becomes_the_runs_key,
    ),
    "supervise.trusted_roots": (
        COMBINATIONS,
        "the directories whose runs commands act on; a plan says nothing about commands",
        "supervise.trusted_roots=",
        vouches_for_a_run,
    ),
    "infrastructure.ngpus_per_node": (
        [c for c in COMBINATIONS if c[0] == "managed" and ENGINES[c[1]].gpus],
        "the limit of run.replicas x vllm.gen_tp: what does not fit is refused",
        "infrastructure.ngpus_per_node=7",
        is_refused,
    ),
    **{
        f"algorithm.{name}": (
            [c for c in COMBINATIONS if c[2] == "command"],
            "what the requests of a launch script's trials are compared with; no plan says what alerts compare",
            f"algorithm.{name}=0.25",
            is_what_agents_are_compared_with,
        )
        for name in ("temperature", "top_p", "val_temperature", "val_top_p")
    },
}


def unseen(combination: tuple[str, str, str]) -> dict[str, str]:
    """Keys that are used in this combination although no plan shows it, and how."""
    return {key: use for key, (where, use, *_) in UNSEEN.items() if combination in where}


@pytest.mark.parametrize(
    ("key", "combination"), [(key, c) for key, (combinations, *_) in UNSEEN.items() for c in combinations]
)
def test_a_use_that_no_plan_shows_is_proven(
    key: str, combination: tuple[str, str, str], tmp_path: Path
) -> None:
    _, _, setting, proof = UNSEEN[key]
    proof(base(combination), setting, tmp_path)


# --- the comparison ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("combination", "further"),
    [
        pytest.param(c, f, marks=pytest.mark.slow if f[1:] or "environments" in str(f) else ())
        for c, f in CASES
    ],
)
def test_a_key_is_used_if_and_only_if_a_component_gets_something_else(
    combination: tuple[str, str, str], further: tuple[str, ...]
) -> None:
    assert disagreements(base(combination, *further), unseen(combination)) == []


EMBEDDED, SERVING = ("managed", "embedded", "embedded"), ("managed", "vllm", "none")
# These decide what there is at all: components come and go with them, or are elsewhere.
SWITCHES = {
    *("run.topology", "run.engine", "trainer.kind", "trainer.overrides", "proxy.trials_through"),
    *("run.name", "run.run_root", "experiment.project_name", "experiment.exp_name"),
}
RESTARTS = (
    "supervise.restart_base supervise.restart_cap supervise.restart_jitter "
    "supervise.storm_window supervise.storm_failures supervise.stable_after"
)
# Components -> the keys that all of them get. That one of several no longer gets it does not make a key inert.
SEVERAL = {
    EMBEDDED: {
        "replica trainer": "run.seed supervise.startup_deadline",
        "backend proxy trainer": "run.replicas",
        "backend proxy-list replica trainer": "model.served_model_name",
        "backend trainer": "training.train_batch_size training.n_resp_per_prompt training.total_steps "
        "embedded.faults.ignore_sigterm",
        "proxy trainer": "proxy.host algorithm.temperature",
        "backend proxy-list": "proxy.request_timeout",
        "proxy replica trainer": "supervise.stop_grace supervise.tree_grace supervise.pass_env",
        "backend proxy replica trainer": "supervise.kill_grace",
        "proxy replica": RESTARTS,
    },
    SERVING: {
        "backend proxy": "run.replicas",
        "backend proxy-list replica": "model.served_model_name",
        "backend proxy-list": "proxy.request_timeout",
        "proxy replica": f"supervise.stop_grace supervise.tree_grace supervise.pass_env {RESTARTS}",
        "backend proxy replica": "supervise.kill_grace",
    },
    VERL: {
        "backend proxy-list trainer": "model.served_model_name",
        "backend cluster proxy ray trainer": "infrastructure.nnodes infrastructure.ngpus_per_node verl.train_nodes",
        "backend cluster proxy ray": "verl.rollout_nodes",  # the trainer, too, once its mode has such hosts
        "cluster ray": "infrastructure.ray_dashboard_port ray.temp_dir",
        "backend ray trainer": "verl.device",
        "ray trainer": "agent.path infrastructure.vllm_logging_level credentials.wandb_api_key credentials.wandb_mode "
        "network.interface ray.debug verl.source",
        "backend cluster proxy trainer": "vllm.gen_tp",
        "backend trainer": "training.train_batch_size training.n_resp_per_prompt training.total_steps",
        "cluster ray trainer": "ray.address",
        "cluster trainer": "verl.actor_deadline verl.address_deadline verl.health_deadline",
        "proxy sessions": f"proxy.host proxy.max_body_bytes {RESTARTS}",
        "proxy-list sessions": "proxy.request_timeout",
        "sessions trainer": "model.model_path",  # its tokenizer and chat template
        "proxy ray sessions trainer": "supervise.stop_grace supervise.tree_grace supervise.pass_env",
        # what carries the trials follows the agent loop
        "backend proxy ray sessions trainer": "supervise.kill_grace verl.agent_loop",
        # how attention is computed follows what is installed
        "environments trainer": "environments environment.venv_path",
    },
    COMMAND: {
        "backend trainer": "model.served_model_name infrastructure.litellm_port supervise.kill_grace "
        "experiment.trials_dir trainer.cwd",
        "backend cluster trainer": "infrastructure.nnodes infrastructure.ngpus_per_node verl.train_nodes "
        "verl.rollout_nodes",
        "cluster trainer": "infrastructure.ray_dashboard_port environment.venv_path",
        "backend cluster": "vllm.gen_tp verl.rollout_mode verl.rollout_gpus verl.trainer_mode",
    },
}


@pytest.mark.parametrize("combination", SEVERAL)
def test_a_key_of_several_components_reaches_each_of_them(combination: tuple[str, str, str]) -> None:
    loaded = base(combination)
    found = {key: reached(loaded, key) for key in leaves() if key not in SWITCHES}
    expected = {key: set(who.split()) for who, keys in SEVERAL[combination].items() for key in keys.split()}
    assert {key: who for key, who in found.items() if len(who) > 1} == expected


def wrong(combination: tuple[str, str, str], *further: str) -> dict[str, str]:
    """Key -> what is wrong with what the table says about it."""
    found = disagreements(base(combination, *further), unseen(combination))
    return dict(line.split(": ", 1) for line in found)


def test_it_sees_a_consumer_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verl_overrides, "sampling", lambda c: iter(()))
    assert wrong(VERL).keys() == {
        *("algorithm.temperature", "algorithm.top_p", "algorithm.top_k"),
        *("algorithm.val_temperature", "algorithm.val_top_p", "algorithm.val_top_k"),
    } - {"algorithm.temperature"}  # our agent loop gets it, too
    assert "algorithm.temperature" in wrong(VERL, "verl.agent_loop=tool_agent")


def test_it_sees_a_variable_that_is_no_longer_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verl_trainer, "_faults", lambda config: {})
    found = wrong(VERL, "verl.device=cpu", "vllm.gen_tp=1")
    assert found.keys() == {key for key in rules() if key.startswith("verl.faults.")}


def test_it_sees_a_variable_that_is_no_longer_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(package: str) -> frozenset[str]:
        return own_reads(package) - {"LIVERL_CPU_FAULTS"}

    monkeypatch.setattr(key_effects, "own_reads", without)
    found = wrong(VERL, "verl.device=cpu", "vllm.gen_tp=1")
    assert found.keys() == {key for key in rules() if key.startswith("verl.faults.")}


def test_it_sees_a_dead_key_that_is_called_used(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = KeyRule({"liverl.plan": lambda c: True}, sentence(""))
    monkeypatch.setitem(rules(), "k8s.namespace", rule)
    assert wrong(VERL) == {"k8s.namespace": "said to be used by liverl.plan, but ['other'] change nothing"}
    assert wrong(COMMAND) == {}


def test_it_sees_a_used_key_that_is_called_inert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules(), "verl.agent_workers", KeyRule({}, sentence("nothing does")))
    found = wrong(VERL)["verl.agent_workers"]
    assert found.startswith("said to be inert (nothing does), but 3 changes /liverl.plan/services/")


def test_it_sees_that_our_code_begins_to_read_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def more(package: str) -> frozenset[str]:
        return own_reads(package) | ({"K8S_NAMESPACE"} if package == "liverl.verl_runtime" else set())

    monkeypatch.setattr(key_effects, "own_reads", more)
    assert wrong(VERL).keys() == {"k8s.namespace"}


def test_it_sees_the_wrong_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules(), "ui.theme", KeyRule({"liverl.plan": lambda c: True}, sentence("")))
    assert wrong(VERL) == {"ui.theme": "liverl.plan does not hand it on"}


# --- what is only exported --------------------------------------------------------------------------------------------


def test_what_is_only_exported_is_inert_under_verl_and_used_by_a_launch_script() -> None:
    under_verl, script = base(VERL, "data.data_dir=/d").config, base(COMMAND, "data.data_dir=/d").config
    reasons = {key: why for key in rules() if "reads it" in (why := why_inert(under_verl, key) or "")}
    assert len(reasons) == 4
    assert reasons["data.data_dir"] == "exported as DATA_DIR; nothing under trainer.kind verl reads it"
    assert (
        reasons["infrastructure.node0_ip"] == "nothing under trainer.kind verl reads it"
    )  # empty: not exported
    assert reasons.keys() <= {key for _, key in VARIABLES}
    assert {why_inert(script, key) for key in reasons} == {None}
    # An agent loop of the user's own runs in a process that has the variables.
    assert {why_inert(base(VERL, "verl.agent_loop=my_own").config, key) for key in reasons} == {None}


def plans() -> Iterator[Plan]:
    for combination, further in CASES:
        loaded = base(combination, *further)
        try:
            yield make_plan(loaded, Path("/runs/p/n"))
        except PlanError:
            assert combination[0] == "in_process"


def test_of_every_variable_that_a_plan_sets_it_is_known_who_reads_it() -> None:
    job = key_effects.JOB_VARIABLE
    names: set[str] = set()
    for plan in plans():
        services = [*plan.services, *([plan.replica_template] if plan.replica_template else [])]
        for service in services:
            brought = {w.removeprefix(job).partition("=")[0] for w in service.argv if w.startswith(job)}
            names |= service.env.keys() | service.secret_env.keys() | brought
        names |= plan.ray.child_env.keys() if plan.ray is not None else set()
    liverls = {name for name, _ in VARIABLES} | {"ANTHROPIC_API_KEY"}
    programs = {name for table in THIRD_PARTY.values() for name in table}
    ours = {
        name
        for package in ("verl_runtime", "agents", "embedded", "proxy.runtime", "util")
        for name in own_reads(f"liverl.{package}")
    }
    # A mark of the process, for people: LIVERL_RUN, which the supervisor reads, names the replica as well.
    assert names - liverls - programs - ours == {"LIVERL_REPLICA_INDEX"}
    # Set where the file of a key, an interface, or ray.debug is given.
    assert programs - names == {"WANDB_API_KEY", "RAY_DEBUG", *INTERFACE_VARIABLES}


def test_the_reads_of_our_own_code_are_found() -> None:
    assert own_reads("liverl.verl_runtime") >= {
        "LIVERL_CPU_FAULTS",
        "RANK",
        "VERL_LOGGING_LEVEL",
        "DIST_INIT_METHOD",
    }
    assert own_reads("liverl.proxy.runtime") >= {"LIVERL_RUN_DIR", "LIVERL_DRAIN_TIMEOUT", "LIVERL_LISTEN_FD"}
    assert "LITELLM_MODE" not in own_reads("liverl.proxy.runtime")  # written, for LiteLLM


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("os.environ['A']", {"A"}),
        ("os.environ.get('A', 'B')", {"A"}),
        ("os.environ.setdefault('A', 'B')", {"A"}),
        ("os.getenv('A', 'B')", {"A"}),
        ("getenv = 1", set()),
        ("NAME = 'A'\nos.environ.get(NAME)", {"A"}),
        ("env['A']", {"A"}),
        ("'A' in os.environ", {"A"}),
        ("_number(env, 'A')", {"A"}),
        ("env['A'] = '1'", set()),
        ("env.pop('A')", set()),
        ("other['A']", set()),
    ],
)
def test_what_counts_as_reading_a_variable(source: str, names: set[str]) -> None:
    assert reads(source) == names


# --- what is handed over is read --------------------------------------------------------------------------------------


def attributes(package: str, *without: str) -> set[str]:
    """The names of all attributes that the modules of a package read."""
    found = find_spec(package)
    assert found is not None
    assert found.submodule_search_locations
    root = Path(found.submodule_search_locations[0])
    return {
        node.attr
        for file in root.rglob("*.py")
        if not file.is_relative_to(root / "config") and file.relative_to(root).as_posix() not in without
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_every_field_of_a_plan_is_read_by_somebody() -> None:
    makers = [
        f"plan/{path.name}" for path in Path(spec.__file__).parent.glob("*.py") if path.name != "render.py"
    ]
    read = attributes("liverl", *makers) | attributes("liverl_tui")
    parts = (
        *(spec.Plan, spec.Settings, spec.RayPlan, spec.ServiceSpec, spec.Dependency, spec.Probes, spec.Probe),
        *(spec.RestartPolicy, spec.StopStage, spec.PortSpec, spec.FileSpec, spec.EnvironmentSpec),
        *(spec.InstallStep, spec.Inert, spec.ScriptOutputs),
    )
    assert {
        f"{part.__name__}.{name}" for part in parts for name in part.__struct_fields__ if name not in read
    } == set()
    trainer = attributes("liverl.embedded") | attributes("liverl.agents")
    assert {*TrainerConfig.__struct_fields__, *TrainerFaults.__struct_fields__} <= trainer


def test_the_table_of_other_programs_gives_a_source_for_each_variable() -> None:
    assert all(source for table in variable_reads.THIRD_PARTY.values() for source in table.values())
