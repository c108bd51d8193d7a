"""One object makes an engine known everywhere: configuration, plan, metrics, boot stages and LiteLLM's list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml
from kit.newest import lists_written

from liverl.config import ConfigError, LoadedConfig, leaves, load_config
from liverl.config.consumers import why_inert
from liverl.engines import ENGINES, Engine, boot_log, engine_names
from liverl.engines.adapter.argv import Key, Switch, render
from liverl.engines.adapter.boot import NUMBER, BootLog, FactRule, StageRule
from liverl.engines.adapter.metrics import ByLabel, MetricNames
from liverl.external import model_list
from liverl.model import EngineFacts
from liverl.observe.boot.facts import BootFacts
from liverl.observe.boot.stages import StageParser, stage_of
from liverl.plan import PlanError, make_plan
from liverl.plan.spec import Dependency, Plan
from liverl.serving.proxy_routes import ProxyRoutes
from liverl.serving.registry import ReplicaRegistry

TOY = Engine(
    token_variables=("TOY_TOKEN",),
    name="toy",
    title="Toy",
    trainers={"managed": ("none",)},
    argv=(
        *("{python:toy}", "-m", "toy.serve", "--model", Key("model.model_path")),
        *("--port", "{port:http}", "--memory", Key("vllm.gpu_memory_utilization")),
        Switch("vllm.enforce_eager", ("--eager={}",), ("--graphs",)),
    ),
    env={"TOY_LOG": Key("infrastructure.vllm_logging_level")},
    environment="toy",
    requirements=("toy-engine==1.0",),
    gpus="vllm.gen_tp",
    tool_parsers=("toy_xml", "toy_json"),
    metrics=MetricNames(
        values={"running": ("toy:busy",), "kv_cache_usage": ("toy:cache", "toy:old_cache"), "kv_tokens": ("toy:kv",)},
        by_label={"aborted_total": ByLabel(("toy:ended",), "how", "abort")},
        means=frozenset({"kv_cache_usage"}),
    ),
    boot=BootLog(
        name="toy",
        stages=((StageRule("toy reads weights", "loading weights"),), (StageRule("toy listens", "server up"),)),
        facts=(FactRule("toy read", ("load_seconds",), re.compile(rf"in {NUMBER} s")),),
    ),
    litellm_prefix="openai/",
)  # fmt: skip


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The engine is known for the time of a test: all that a new engine's line does."""
    monkeypatch.setitem(ENGINES, TOY.name, TOY)
    yield TOY


def loaded(*sets: str) -> LoadedConfig:
    first = ("model.tool_parser=toy_xml", "model.model_path=/m", "run.engine=toy")
    kept = [one for one in first if not one.startswith(tuple(f"{other.split('=')[0]}=" for other in sets))]
    return load_config(profile="vllm-managed", sets=(*kept, *sets), env={})


def refused(*sets: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(*sets)
    return str(caught.value)


def planned(*sets: str) -> Plan:
    return make_plan(loaded(*sets), Path("/runs/p/n"))


def test_an_engine_that_nobody_registered_is_refused() -> None:
    text = refused()
    assert "run.engine" in text and f"one of {', '.join(ENGINES)}" in text and "toy" not in ENGINES


def test_the_configuration_knows_it(toy: Engine) -> None:
    assert engine_names() == tuple(ENGINES) and engine_names()[-1] == "toy"
    assert loaded().config.run.engine == "toy"
    assert f"one of {', '.join(ENGINES)}" in refused("run.engine=toi")
    wrong = refused("model.tool_parser=toy_xm")
    assert "unknown parser for Toy" in wrong and "toy_xml, toy_json" in wrong
    assert "Toy cannot serve a built-in policy" in refused("model.model_path=builtin:hermes")
    assert "trainer.kind" in refused("trainer.kind=embedded")
    assert "(vllm.gen_tp) need 6 GPUs" in refused(
        "run.replicas=3", "vllm.gen_tp=2", "infrastructure.ngpus_per_node=4"
    )
    verl = refused("run.topology=verl", "trainer.kind=verl")
    assert "it supports only vLLM" in verl and verl.endswith("allowed: vllm")


def test_the_keys_that_it_does_not_read_have_no_effect(toy: Engine) -> None:
    config = loaded().config
    for key in ("gpu_memory_utilization", "enforce_eager", "gen_tp"):
        assert why_inert(config, f"vllm.{key}") is None
    for key in ("max_num_seqs", "dtype", "max_model_length"):
        assert why_inert(config, f"vllm.{key}") == "Toy is not vLLM"
    assert why_inert(config, "infrastructure.vllm_logging_level") is None
    assert why_inert(config, "infrastructure.ngpus_per_node") is None
    assert (
        why_inert(config, "embedded.turn_latency")
        == "only the embedded engine has this setting: run.engine is toy"
    )


def test_the_plan_starts_it(toy: Engine) -> None:
    plan = planned("vllm.gen_tp=2", "vllm.gpu_memory_utilization=0.5", "vllm.enforce_eager=true")
    spec = plan.replica_template
    assert spec is not None and plan.engine == "toy" and plan.replica_engine is TOY
    assert spec.argv == (
        *("{python:toy}", "-m", "toy.serve", "--model", "/m", "--port", "{port:http}"),
        *("--memory", "0.5", "--eager=True"),
    )
    assert spec.env == {"TOY_LOG": "INFO", "LIVERL_REPLICA_INDEX": "{index}"}
    assert (spec.environment, spec.gpus, spec.stage_parser) == ("toy", 2, "toy")
    assert spec.depends_on == (Dependency("environment_ready", "toy"),)
    (environment,) = [e for e in plan.environments if e.name == "toy"]
    assert environment.requirements == ("toy-engine==1.0",)
    (own,) = [e for e in planned("environments.toy.requirements=[toy==2]").environments if e.name == "toy"]
    assert own.requirements == ("toy==2",), "the configuration has the last word"


def test_two_engines_may_share_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan's own word decides; its template's environment only where an older version wrote the plan."""
    other = replace(TOY, environment=None)
    monkeypatch.setitem(ENGINES, "toy", other)
    assert planned().replica_engine is other
    assert msgspec.structs.replace(planned(), engine="").replica_engine is ENGINES["embedded"]


async def test_its_metrics_become_the_facts_of_a_replica(toy: Engine, tmp_path: Path) -> None:
    registry, supervisor = running(tmp_path)
    supervisor.answer = (
        'toy:busy{r="0"} 2\ntoy:busy{r="1"} 3\ntoy:cache{r="0"} 0.25\ntoy:cache{r="1"} 0.75\ntoy:old_cache 9\n'
        'toy:kv 4096.0\ntoy:ended{how="abort"} 4\ntoy:ended{how="stop"} 40\nvllm:num_requests_running 99\n'
    )
    await registry.look(SimpleNamespace(steps=()))  # type: ignore[arg-type]
    (shown,) = registry.status({}).items
    assert shown.engine == EngineFacts(running=5.0, kv_cache_usage=0.5, kv_tokens=4096, aborted_total=4.0)
    assert type(shown.engine.kv_tokens) is int and shown.kind == "managed"


def test_its_log_tells_the_boot_stages(toy: Engine) -> None:
    parser = StageParser("toy")
    assert parser.feed("toy reads weights\n") == ("loading weights", None) and not parser.done
    assert parser.feed("toy read 3 shards in 1.5 s\ntoy listens\n") == ("server up", None) and parser.done
    assert parser.facts == BootFacts(load_seconds=1.5)
    assert StageParser("toy").feed("Application startup complete") is None, "what vLLM says means nothing"


def test_a_log_that_no_engine_is_known_for_has_no_stages() -> None:
    assert boot_log("toy") is None and stage_of("toy", "toy listens\nApplication startup complete") is None


async def test_litellm_gets_its_prefix(toy: Engine, tmp_path: Path) -> None:
    _, supervisor = running(tmp_path)
    supervisor.slots["proxy"] = SimpleNamespace(instances=list)
    routes = ProxyRoutes(supervisor, planned(), 30.0)
    routes.publish(["http://127.0.0.1:80"], [])
    await lists_written(routes)
    models = yaml.safe_load((tmp_path / "proxy" / "litellm.yaml").read_text())["model_list"]
    name = planned().served_model
    assert {m["litellm_params"]["model"] for m in models} == {f"openai/{name}"}
    assert [m["model_name"] for m in models] == ["claude-*", f"openai/{name}", name]


async def test_litellm_gets_the_token_of_the_replicas_in_a_file_for_the_owner_only(
    toy: Engine, tmp_path: Path
) -> None:
    _, supervisor = running(tmp_path)
    supervisor.slots["proxy"] = SimpleNamespace(instances=list)
    path = tmp_path / "proxy" / "litellm.yaml"
    older = msgspec.structs.replace(planned(), replica_token_file="")
    for plan, keys in ((planned(), {"sk-right"}), (older, {None})):
        routes = ProxyRoutes(supervisor, plan, 30.0)
        routes.publish(["http://127.0.0.1:80"], [])
        await lists_written(routes)
        models = yaml.safe_load(path.read_text())["model_list"]
        assert {m["litellm_params"].get("api_key") for m in models} == keys
        assert path.stat().st_mode & 0o777 == 0o600


async def test_without_the_tokens_file_the_list_is_kept_and_the_reason_told(
    toy: Engine, tmp_path: Path
) -> None:
    _, supervisor = running(tmp_path)
    supervisor.slots["proxy"] = SimpleNamespace(instances=list)
    told: list[str] = []
    supervisor.records.write_failed = told.append
    (tmp_path / "secrets/replica_token").unlink()
    routes = ProxyRoutes(supervisor, planned(), 30.0)
    routes.publish(["http://127.0.0.1:80"], [])
    await lists_written(routes)
    assert not routes.unwritten and not (tmp_path / "proxy" / "litellm.yaml").exists()
    (line,) = told
    assert "cannot read" in line and line.endswith("replica_token: No such file or directory")


def test_a_list_that_is_not_ours_is_read_by_its_prefix_too(toy: Engine) -> None:
    params = {"model": "openai/policy", "api_base": "http://10.0.0.1:1/v1"}
    document = {"model_list": [{"model_name": "policy", "litellm_params": params}]}
    _, added = model_list.add(document, "http://10.0.0.2:1", [], prefix=toy.litellm_prefix)
    assert added == ("policy",)
    with pytest.raises(model_list.ListingError):
        model_list.add(document, "http://10.0.0.2:1", [])


def running(run_dir: Path, **changes: Any) -> tuple[ReplicaRegistry, Any]:
    """The replicas of a run with one ready replica of the toy engine, and its supervisor; nothing is started.
    ``changes``: of the plan."""
    process = SimpleNamespace(pid=5, generation=1, ports={"http": 80}, gpus=(), member=(5, 6))
    plan = msgspec.structs.replace(planned("run.replicas=1"), **changes)
    machine = SimpleNamespace(state="ready", generation=1, why="", since=1.0, leader_gone=False)
    slot = SimpleNamespace(
        name="replica-0",
        state="ready",
        spec=plan.replica_template,
        current=SimpleNamespace(machine=machine, process=process, port=lambda _: 80),
        restarts=0,
        instances=list,
    )
    supervisor: Any = SimpleNamespace(
        slots={"replica-0": slot},
        stopping=False,
        run_dir=run_dir,
        attempt=1,
        now=lambda: 1000.0,
        say=lambda *a, **k: None,
        kick=lambda: None,
        records=SimpleNamespace(write_failed=pytest.fail, warn=pytest.fail),
        answer="",
    )

    async def get(
        address: str, timeout: float, *, headers: dict[str, str], kept: bool = False
    ) -> tuple[int, str]:
        assert headers == ({"Authorization": "Bearer sk-right"} if plan.replica_token_file else {})
        return 200, supervisor.answer

    (run_dir / "secrets").mkdir(exist_ok=True)
    (run_dir / "secrets/replica_token").write_text("sk-right\n")
    supervisor.http = SimpleNamespace(poll=get)
    return ReplicaRegistry(supervisor, plan, 30.0, 1.0), supervisor


# --- the engines that are there ---------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
def test_an_adapter_names_only_what_exists(engine: Engine) -> None:
    assert ENGINES[engine.name] is engine
    assert engine.keys <= leaves().keys()
    facts, names = set(EngineFacts.__struct_fields__), engine.metrics
    assert {*names.values, *names.by_label, *names.cache_labels, *names.means, *names.least} <= facts
    assert {fact for rule in engine.boot.facts for fact in rule.facts} <= set(BootFacts.__struct_fields__)
    assert boot_log(engine.boot.name) is engine.boot
    assert engine.litellm_prefix.endswith("/") and engine.tool_parsers


def test_an_environment_that_is_not_configured_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(TOY, name="bare", environment="nowhere", requirements=())
    monkeypatch.setitem(ENGINES, "bare", other)
    with pytest.raises(PlanError, match=r"environments\.nowhere"):
        planned("run.engine=bare", "model.tool_parser=toy_xml")


def test_options_follow_the_values_of_keys() -> None:
    values = {"a": 0.90, "b": 3.0, "c": 7, "d": 0, "e": True, "f": "x y"}
    parts = ("go", Key("a"), Key("b"), Key("c"), Key("f"))
    assert render(parts, values.__getitem__) == ("go", "0.9", "3", "7", "x y")
    switches = (Switch("d", ("--d", "{}"), ("--no-d",)), Switch("c", ("--c", "{}")), Switch("d", ("--d",)))
    assert render(switches, values.__getitem__) == ("--no-d", "--c", "7")
