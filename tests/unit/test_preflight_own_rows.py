"""A run of the embedded trainer with rows, an agent or a reward of the user's own is refused: none would be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.config import load_config
from liverl.preflight.own_rows import checks
from liverl.preflight.registry import CHECKS

VERL = ("run.topology=verl", "run.engine=vllm", "trainer.kind=verl", "model.model_path=/m")


@pytest.mark.parametrize(
    "given",
    [
        "data.train_index=/rows/train.parquet",
        "data.val_index=/rows/val.parquet",
        "reward.function=reward.py:score",
        "agent.command=[./agent.sh]",
        "agent.python=mine:Agent",
        "agent.tools=/tools.yaml",
        "agent.functions=/functions.py",
    ],
)
def test_what_is_of_the_users_own_is_refused_by_its_key(given: str) -> None:
    found = checks(load_config(None, sets=[given]).config)
    key = given.partition("=")[0]
    assert found is not None and (found.name, found.status) == ("your rows", "fail")
    assert found.text == f"the embedded trainer trains on tasks of its own: {key} would not be used"
    assert "--profile cpu-verl" in found.fix and found.fix.endswith(f"take out {key}")


def test_all_keys_are_named_in_one_sentence() -> None:
    sets = ["data.train_index=/t.parquet", "data.val_index=/v.parquet", "reward.function=r.py:f"]
    found = checks(load_config(None, sets=sets).config)
    assert found is not None
    assert ": data.train_index, data.val_index and reward.function would not be used" in found.text


def test_the_default_run_and_runs_of_verl_are_not_refused() -> None:
    (entry,) = (one for one in CHECKS if one.id == "own-rows")
    default = load_config(None).config
    assert entry.when(default) and checks(default) is None
    assert not entry.when(load_config(None, sets=["data.train_index=/t.parquet", *VERL]).config)


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/config.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.parent.name)
def test_an_example_trains_what_it_shows(file: Path) -> None:
    """Its own lines name the trainer; those of gsm8k are used with the profile that its README says."""
    profile = "cpu-verl" if file.parent.name == "gsm8k" else None
    config = load_config(file, profile=profile).config
    assert config.trainer.kind in ("verl", "command")
