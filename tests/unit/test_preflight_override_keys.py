"""The keys of verl's command line against those of the installed verl (simulated: a package with verl's file only)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from liverl.causes.verdict.verl_keys import KEYS
from liverl.config import RunConfig, load_config, resolved
from liverl.preflight import override_keys


def config_of(*sets: str) -> RunConfig:
    config = load_config(profile="cpu-verl", sets=["run.name=n", *sets], env={}).config
    return resolved(config, env={}, cwd=Path("/w"), now=0.0)


def tree_of(keys: frozenset[str]) -> dict[str, object]:
    tree: dict[str, object] = {}
    for key in sorted(keys):
        inner = tree
        *sections, name = key.split(".")
        for section in sections:
            inner = inner.setdefault(section, {})  # type: ignore[assignment]
        inner[name] = {} if any(other.startswith(f"{key}.") for other in keys) else 1
    return tree


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter whose verl has the keys of verl 0.9.1."""
    file = tmp_path / "verl" / "trainer" / "config" / "_generated_ppo_trainer.yaml"
    file.parent.mkdir(parents=True)
    (tmp_path / "verl" / "__init__.py").write_text("")
    file.write_text(yaml.safe_dump(tree_of(frozenset(KEYS))))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Path(sys.executable)


def test_verl_has_every_key_that_we_set(python: Path) -> None:
    check = override_keys.check(python, config_of())
    assert check.status == "ok" and check.text.endswith(" keys")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            "trainer.max_ckpt_to_keep: 3",
            "no key trainer.max_ckpt_to_keep; did you mean trainer.max_actor_ckpt_to_keep?",
        ),
        ("trainer.totl_epochs: 3", "no key trainer.totl_epochs; did you mean trainer.total_epochs?"),
        ("data.zzzz: 3", "no key data.zzzz (+data.zzzz would add it as a new one)"),
    ],
)
def test_a_key_that_verl_does_not_have(python: Path, given: str, words: str) -> None:
    check = override_keys.check(python, config_of(f"trainer.overrides={{{given}}}"))
    assert (check.status, check.text) == ("fail", f"trainer.overrides: the installed verl has {words}")


@pytest.mark.parametrize(
    "key", ["+data.zzzz", "++data.zzzz", "~data.zzzz", "hydra.zzzz", "optim@actor.optim"]
)
def test_keys_that_are_added_or_hydras_own(python: Path, key: str) -> None:
    assert override_keys.check(python, config_of(f"trainer.overrides={{'{key}': 1}}")).status == "ok"


def test_another_configuration_of_verl_has_other_keys(python: Path) -> None:
    check = override_keys.check(python, config_of("trainer.overrides={model_engine: megatron, data.zzzz: 1}"))
    assert check.status == "skipped" and check.text.startswith("not checked")


def test_another_verl_lacks_a_key_of_ours(python: Path, tmp_path: Path) -> None:
    file = tmp_path / "verl/trainer/config/_generated_ppo_trainer.yaml"
    file.write_text(yaml.safe_dump(tree_of(frozenset(KEYS) - {"trainer.val_before_train"})))
    check = override_keys.check(python, config_of())
    assert check.status == "fail"
    assert check.text.startswith(
        "liverl sets trainer.val_before_train, which the installed verl does not have"
    )


@pytest.mark.parametrize("text", [None, "a: [", "3"])
def test_without_its_file_nothing_is_checked(python: Path, tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "verl/trainer/config/_generated_ppo_trainer.yaml"
    file.unlink() if text is None else file.write_text(text)
    check = override_keys.check(python, config_of("trainer.overrides={data.zzzz: 1}"))
    assert check.status == "skipped" and check.text.startswith("not checked: ")


def test_the_keys_of_the_fully_asynchronous_trainer_are_in_a_file_of_their_own(
    python: Path, tmp_path: Path
) -> None:
    config = config_of(
        "verl.trainer_mode=fully_async", "verl.rollout_gpus=1", "infrastructure.ngpus_per_node=2"
    )
    file = tmp_path / "verl" / override_keys._ASYNC
    file.parent.mkdir(parents=True)
    settings = dict.fromkeys(
        (
            *("staleness_threshold", "trigger_parameter_sync_step", "require_batches"),
            *("partial_rollout", "concurrent_samples_per_replica"),
        )
    )
    pool = dict.fromkeys(("nnodes", "n_gpus_per_node", "n", "total_rollout_steps"))
    tree = {"async_training": settings, "rollout": pool, "data": {"gen_batch_size": 1}}
    file.write_text(yaml.safe_dump(tree))
    assert override_keys.check(python, config).status == "ok"
    file.write_text(yaml.safe_dump({**tree, "async_training": {"staleness_threshold": 0.1}}))
    check = override_keys.check(python, config)
    assert check.status == "fail" and "async_training.partial_rollout" in check.text


def test_the_keys_of_another_checkout_count(python: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert override_keys.check(python, config_of(f"verl.source={other}")).status == "skipped"
    file = other / "verl" / override_keys._COMPOSED
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(tree_of(frozenset(KEYS) - {"trainer.save_freq"})))
    check = override_keys.check(python, config_of(f"verl.source={other}"))
    assert check.status == "fail" and "trainer.save_freq" in check.text


def test_a_program_that_does_not_exist_is_named_without_the_words_of_python(tmp_path: Path) -> None:
    absent = tmp_path / "bin" / "python"
    check = override_keys.check(absent, config_of())
    assert (check.status, check.text) == ("skipped", f"not checked: {absent}: No such file or directory")
