"""The table of what a change of each key means for a run, and the changes between a run's configuration and another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.key_effects import base, candidates, changed, components, effects
from msgspec.structs import replace

from liverl.config import ConfigError, changes, dump_yaml, load_config
from liverl.config.load import load_over
from liverl.config.schema import leaves
from liverl.engines import ENGINES

COMBINATIONS = [
    (topology, engine.name, kind)
    for engine in ENGINES.values()
    for topology, kinds in engine.trainers.items()
    for kind in kinds
    if topology != "in_process"
]
# What a process gets when it is started. The rest of a service is the backend's: probes, restarts, stop.
OF_A_PROCESS = (
    "argv",
    "env",
    "unset_env",
    "pass_env",
    "secret_env",
    "cwd",
    "files",
    "ports",
    "environment",
    "gpus",
)


def started(effect: dict[str, Any]) -> dict[str, Any]:
    """Service -> what its process is started with."""
    return {
        name: {part: spec.get(part) for part in OF_A_PROCESS}
        for name, spec in components(effect).items()
        if isinstance(spec, dict) and "argv" in spec
    }


def test_each_key_has_its_meaning_and_a_key_without_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(changes.table()) == list(leaves())
    less = tuple((meaning, names.replace("training: *; ", "")) for meaning, names in changes._TABLE)
    monkeypatch.setattr(changes, "_TABLE", less)
    changes.table.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"training\.train_batch_size.*not in the table"):
            changes.table()
    finally:
        changes.table.cache_clear()


@pytest.mark.parametrize(
    ("combination", "further"),
    [
        *((c, ()) for c in COMBINATIONS),
        (("managed", "embedded", "embedded"), ("proxy.trials_through=sessions",)),
    ],
)
def test_processes_get_what_the_table_says(
    combination: tuple[str, str, str], further: tuple[str, ...]
) -> None:
    """``live``: no process is started otherwise. ``restart of X``: only X is."""
    loaded = base(combination, *further)
    replicas = "replica" if combination[0] == "managed" else "trainer"
    names = {"replicas": replicas, "proxy": "proxy", "sessions": "sessions", "trainer": "trainer"}
    before, wrong = started(effects(loaded, loaded.config)), []
    for key, meaning in changes.table().items():
        if meaning.kind not in ("live", "restart"):
            continue
        allowed = {names[service] for service in meaning.services}
        for value in candidates(loaded.config, key):
            after = started(effects(loaded, changed(loaded.config, key, value)))
            others = {name for name in before if name in after and before[name] != after[name]} - allowed
            if others:
                wrong.append(f"{key}: {meaning.words}, but {value!r} changes the start of {sorted(others)}")
    assert wrong == []


def test_a_meaning_in_words() -> None:
    words = {key: meaning.words for key, meaning in changes.table().items()}
    assert words["training.total_steps"] == "restart of trainer"
    assert (
        words["run.replicas"] == words["ui.theme"] == "live"
    )  # the interface takes these over, and no others
    assert {key for key, said in words.items() if said == "live"} == {
        "run.replicas",
        *(key for key in words if key.startswith("ui.")),
    }
    assert words["observe.host_interval"] == words["trainer.restart"] == "next attempt"
    assert words["environments"] == words["ray.num_cpus"] == "next attempt"
    assert words["run.name"] == "never: it names the run's directory"
    assert words["run.seed"] == "restart of replicas and trainer"
    assert words["batch.margin"] == "at once"
    assert changes.on_change("environments.proxy.python") is changes.on_change("environments")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The configuration of a run, as its directory has it."""
    loaded = load_config(
        sets=["run.name=r", "training.total_steps=20", "algorithm.learning_rate=0.5"], env={}
    )
    path = tmp_path / "config.yaml"
    path.write_text(dump_yaml(loaded.config))
    return path


def differences(saved: Path, *args: Any, **more: Any) -> list[str]:
    before = load_over(saved, env={}).config
    return [f"{c.words} ({c.where})" for c in changes.changes(before, load_over(saved, *args, **more))]


def test_only_what_is_given_changes(saved: Path, tmp_path: Path) -> None:
    assert differences(saved, env={"LIVERL_TRAINING__TOTAL_STEPS": "9", "MODEL_PATH": "/m"}) == []
    assert differences(saved, sets=["training.total_steps=20"], env={}) == []
    assert differences(saved, sets=["training.total_steps=8"], env={}) == [
        "training.total_steps: 20 -> 8 (--set)"
    ]
    own = tmp_path / "own.yaml"
    own.write_text("training: {save_freq: 2}\nenvironments: {proxy: {python: '3.12'}}\n")
    assert differences(saved, own, env={"LIVERL_TRAINING__SAVE_FREQ": "3"}) == [
        f"environments.proxy.python: null -> 3.12 ({own}:2)",
        "training.save_freq: 5 -> 3 (env LIVERL_TRAINING__SAVE_FREQ)",
    ], "variables override the file, as when the run was created"
    assert differences(saved, profile="hermes", env={}), "a profile is what it sets"


def test_a_key_with_which_a_mapping_is_extended_stands_alone(saved: Path) -> None:
    loaded = load_over(saved, env={})
    more = replace(loaded.config.trainer, overrides={"a.b": 1, "x.api_key": "k"})
    after = replace(loaded, config=replace(loaded.config, trainer=more))
    found = changes.changes(loaded.config, after)
    assert [(c.key, c.before, c.after) for c in found] == [
        ("trainer.overrides.a.b", None, 1),
        ("trainer.overrides.x.api_key", changes.HIDDEN, changes.HIDDEN),
    ]


def test_what_is_wrong_is_told_and_only_new_keys_are_warned_about(saved: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean training\.total_steps"):
        load_over(saved, sets=["training.total_step=8"], env={})
    with pytest.raises(ConfigError, match="profile"):
        load_over(saved, profile="h100", env={})
    with pytest.raises(ConfigError, match="verl"):
        load_over(saved, sets=["run.topology=verl"], env={})
    assert load_over(saved, sets=["run.topology=verl"], env={}, checked=False).config.run.topology == "verl"
    assert load_over(saved, env={}).warnings == ()
    (warning,) = load_over(saved, sets=["ray.num_cpus=4"], env={}).warnings
    assert warning.startswith("--set: ray.num_cpus has no effect")


def test_a_profile_on_a_later_attempt_frees_the_port_only_for_the_embedded_trainer(tmp_path: Path) -> None:
    for kind, port in (("none", 8002), ("embedded", 0)):
        path = tmp_path / f"{kind}.yaml"
        set_then = [f"trainer.kind={kind}", "infrastructure.litellm_port=8002"]
        path.write_text(dump_yaml(load_config(sets=set_then, env={}).config))
        assert load_over(path, env={}).config.infrastructure.litellm_port == 8002
        assert load_over(path, profile="embedded", env={}).config.infrastructure.litellm_port == port
