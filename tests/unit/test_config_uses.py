"""Every key is used by somebody or said to be without effect."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from liverl.config import RunConfig, inert_keys, leaves, load_config, value_of
from liverl.config import conditions as when
from liverl.config.consumers import KeyRule, consumers, expand, rules, why_inert
from liverl.config.inert import never
from liverl.embedded.modeldir import builtin_names
from liverl.engines import ENGINES
from liverl.plan import make_plan
from liverl.plan.render import plan_json, plan_text

COMBINATIONS = [(t, e.name, k) for e in ENGINES.values() for t, kinds in e.trainers.items() for k in kinds]


# What some keys need beside that: a cluster that runs already, other hosts, replicas without GPUs, a fault with its
# index.
VARIANTS: list[list[str]] = [
    [],
    ["ray.address=h:6379"],
    ["infrastructure.nnodes=2", "verl.agent_loop=mine"],
    ["verl.device=cpu", "vllm.gen_tp=1"],
    ["verl.trainer_mode=fully_async", "verl.rollout_gpus=4"],
    ["embedded.faults.late_replica.seconds=1"],
    ["agent.command=[agent]", "reward.function=/r.py:f"],
    ["notify.targets=[{command: [tell]}]"],
    ["observe.metrics_port=9464"],
    ["agent.kind=harbor", "harbor_agent.environment_import_path=null"],
]
SESSIONS = [
    "proxy.trials_through=sessions",
    "session_proxy.scheduler.enabled=true",
]  # refused in other topologies than managed


def config_for(topology: str, engine: str, kind: str, further: list[str] | None = None) -> RunConfig:
    profile = (
        "liverl-gen1" if topology != "managed" else "embedded" if engine == "embedded" else "vllm-managed"
    )
    sets = [f"run.topology={topology}", f"run.engine={engine}", f"trainer.kind={kind}"]
    if kind == "command":
        sets.append("trainer.command=[bash, x.sh]")
    return load_config(profile=profile, sets=[*sets, *(further or [])], env={}).config


def test_the_table_names_every_key_exactly_once() -> None:
    assert set(rules()) == set(leaves())


def test_a_key_without_an_entry_of_its_own_has_that_of_its_innermost_section() -> None:
    own, inner, outer = (KeyRule({name: when.always}, never) for name in ("own", "inner", "outer"))
    entries = [("a.*", outer), ("a.b.x", own), ("a.b.*", inner)]
    keys = ["a.b.x", "a.b.new", "a.new", "other.b"]
    assert expand(entries, keys) == {"a.b.x": own, "a.b.new": inner, "a.new": outer}
    with pytest.raises(ValueError, match=r"a\.b\.x is listed twice"):
        expand([*entries, ("a.b.x", own)], keys)
    for no_key in ("a.y", "c.*", "a.b.x.*"):
        with pytest.raises(ValueError, match=f"{re.escape(no_key)} .* not a key"):
            expand([*entries, (no_key, own)], keys)


@pytest.mark.parametrize(("topology", "engine", "kind"), COMBINATIONS)
def test_no_key_is_neither_used_nor_explained(topology: str, engine: str, kind: str) -> None:
    config = config_for(topology, engine, kind)
    used = consumers(config)
    inert = {item.key: item for item in inert_keys(config)}
    assert used.keys() | inert.keys() == set(leaves())
    assert not used.keys() & inert.keys()
    assert all(item.why and item.where is None for item in inert.values())


def test_every_key_is_used_in_some_combination() -> None:
    used = {
        key
        for combination in COMBINATIONS
        for variant in [*VARIANTS, *([SESSIONS] if combination[0] == "managed" else [])]
        if combination[0] != "managed" or "infrastructure.nnodes=2" not in variant  # replicas of one host
        for key in consumers(config_for(*combination, variant))
    }
    assert used == set(leaves())


@pytest.mark.parametrize(("topology", "engine", "kind"), COMBINATIONS)
def test_what_harbors_agent_would_sample_with_is_told_as_inert(topology: str, engine: str, kind: str) -> None:
    """Only a launch script reads it: in every other run the trainer decides, whoever runs the trials."""
    key = "harbor_agent.temperature"
    variants: list[list[str]] = [[], ["agent.kind=harbor"]] if kind == "verl" else [[]]
    for variant in variants:
        why = why_inert(config_for(topology, engine, kind, variant), key)
        if kind == "command":
            assert why is None
        elif kind == "none":
            assert why == "trainer.kind is none: no trainer runs"
        else:
            assert why is not None and why.startswith("the trainer decides how replies are sampled")
            assert ("algorithm.val_temperature" in why) == (kind == "verl")
    if kind == "verl":
        own = config_for(topology, engine, kind, ["verl.agent_loop=mine"]) if topology == "verl" else None
        assert own is None or why_inert(own, key) is None, "an agent loop of the user's gets the variable"


def test_inert_keys_say_where_they_were_set(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("k8s:\n  namespace: mine\ntrainer:\n  overrides: {a: 1}\nvllm: {gen_tp: 4}\n")
    loaded = load_config(path, env={})
    inert = {item.key: item for item in inert_keys(loaded.config, loaded)}
    assert inert["k8s.namespace"].where == f"{path}:2"
    assert inert["k8s.namespace"].value == "mine"
    assert "not in pods" in inert["k8s.namespace"].why
    assert inert["trainer.overrides"].where == f"{path}:4"
    assert inert["vllm.gen_tp"].where is None
    assert loaded.warnings == (
        f"{path}:2: k8s.namespace has no effect: embedded trials run in local directories, not in pods",
        f"{path}:4: trainer.overrides.a has no effect: only trainer.kind verl takes overrides",
    )


def inert_page(text: str) -> list[str]:
    """The part of a plan's page that lists inert keys, up to the first reason for keys that the user did not set."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("inert here"))
    end = next(n for n, line in enumerate(lines) if n > start and line.endswith(":"))
    return lines[start:end]


def test_a_plan_counts_the_inert_keys_that_the_user_set_with_their_places(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "k8s:\n  namespace: mine\n  kubeconfig: ''\n"
        "harbor_agent:\n  pod_name_prefix: liverl\n  agent_name: claude-code\n"
    )
    sets = ["data.data_dir=/d", "training.save_freq=7"]
    loaded = load_config(path, profile="liverl-gen1", sets=sets, env={"DOCKER_HOST": "tcp://h:1"})
    plan = make_plan(loaded, Path("/runs/p/n"))
    no_harbor = "no row is run by Harbor: agent.kind is auto, and environments.harbor is not set"
    expected = {
        "data.data_dir": ("exported as DATA_DIR; nothing under trainer.kind verl reads it", "--set"),
        "k8s.namespace": (no_harbor, f"{path}:2"),
        # The profile says something else, and the default the same.
        "harbor_agent.pod_name_prefix": (no_harbor, f"{path}:5"),
        "harbor_agent.docker_host": (no_harbor, "env DOCKER_HOST"),
    }
    assert inert_page(plan_text(plan)) == [
        f"inert here ({len(plan.inert)} keys; 4 of them set by you)",
        *(f"  {key}: inert here: {why}  [{where}]" for key, (why, where) in expected.items()),
    ]
    document = json.loads(plan_json(plan))
    assert document["inert_set_by_user"] == 4
    listed = {i["key"]: (i["why"], i["where"]) for i in document["inert"] if i["where"] is not None}
    assert listed == expected
    warned = [
        f"{where}: {key} has no effect: {why}" for key, (why, where) in expected.items() if "env" not in where
    ]
    assert sorted(w for w in loaded.warnings if "no effect" in w) == sorted(warned)


def test_what_a_profile_says_is_not_set_by_the_user() -> None:
    plan = make_plan(load_config(profile="liverl-gen1", env={}), Path("/runs/p/n"))
    assert inert_page(plan_text(plan)) == [f"inert here ({len(plan.inert)} keys; 0 of them set by you)"]
    assert json.loads(plan_json(plan))["inert_set_by_user"] == 0
    assert len(plan.inert) > 50


def test_keys_that_are_inert_for_one_reason_stand_under_it() -> None:
    page = plan_text(make_plan(load_config(profile="cpu-verl", env={}), Path("/runs/p/n")))
    reason = "  no row is run by Harbor: agent.kind is auto, and environments.harbor is not set:\n"
    assert page.count(reason) == 1
    group = page.split(reason)[1].splitlines()
    assert group[0].startswith("    k8s.kubeconfig, k8s.namespace, ")


def test_in_process_says_that_there_is_no_proxy(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("run:\n  topology: in_process\nproxy: {drain_timeout: 9}\nsession_proxy: {port: 4000}\n")
    loaded = load_config(path, profile="liverl-gen1", env={})
    words = "in topology in_process verl's agent-loop workers host the sessions, each on a free port"
    assert loaded.warnings == (
        f"{path}:3: proxy.drain_timeout has no effect: {words}",
        f"{path}:4: session_proxy.port has no effect: {words}",
    )
    assert why_inert(loaded.config, "session_proxy.rewrite") is None
    assert why_inert(loaded.config, "proxy.max_body_bytes") is None
    assert "ray.num_cpus" in consumers(loaded.config)


def test_overrides_of_a_launch_script_count_replicas_and_do_nothing_else() -> None:
    counted = config_for("verl", "vllm", "command", ["trainer.overrides.trainer.n_gpus_per_node=4"])
    assert why_inert(counted, "trainer.overrides") is None
    other = config_for("verl", "vllm", "command", ["trainer.overrides.trainer.save_freq=4"])
    assert why_inert(other, "trainer.overrides") == "only trainer.kind verl takes overrides"


def test_ambient_variables_do_not_warn_about_inert_keys() -> None:
    assert load_config(env={"DOCKER_HOST": "tcp://h:2376", "NNODES": "2"}).warnings == ()
    (warning,) = load_config(env={"LIVERL_K8S__NAMESPACE": "x"}).warnings
    assert warning.startswith("env LIVERL_K8S__NAMESPACE: k8s.namespace has no effect")


def test_what_is_inert_depends_on_the_run() -> None:
    embedded = config_for("managed", "embedded", "embedded")
    assert why_inert(embedded, "vllm.gen_tp") == "the embedded engine is not vLLM"
    assert why_inert(config_for("managed", "vllm", "none"), "vllm.gen_tp") is None
    serving = config_for("managed", "vllm", "none")
    assert why_inert(serving, "training.train_batch_size") == "trainer.kind is none: no trainer runs"
    assert why_inert(config_for("verl", "vllm", "verl"), "run.replicas") is not None
    assert why_inert(config_for("in_process", "vllm", "verl"), "infrastructure.litellm_port") is not None


def test_the_policies_that_the_configuration_knows_are_those_that_exist() -> None:
    assert sorted(ENGINES["embedded"].policies) == builtin_names()


def test_values_are_plain_data() -> None:
    config = load_config(env={}).config
    for key in leaves():
        assert isinstance(value_of(config, key), str | int | float | bool | list | dict | None)
