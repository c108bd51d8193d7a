"""``trainer.overrides`` as a list of Hydra's words, copied out of a launch script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from liverl.config import ConfigError, dump_yaml, load_config
from liverl.config.load import load_over
from liverl.plan.hydra import command_line

BASE = "run: {topology: verl, engine: vllm}\nmodel: {model_path: org/m}\n"


def overrides(folder: Path, text: str, *sets: str) -> dict[str, Any]:
    file = folder / "my.yaml"
    file.write_text(f"{BASE}trainer:\n  kind: verl\n{text}")
    return load_config(file, sets=sets, env={}).config.trainer.overrides


LIST = r"""  overrides:
    - algorithm.adv_estimator=grpo
    - data.truncation='error'
    - +reward_model.reward_kwargs.overlong_buffer_cfg.enable=True
    - ++actor_rollout_ref.actor.x=[1,2]
    - ~actor_rollout_ref.ref.entropy_checkpointing
    - 'trainer.logger=["console","wandb"]'
    - "data.train_files=['/d/a.parquet', '/d/b=c.parquet']"
    - hydra.run.dir=outputs/x
    - actor_rollout_ref.actor.optim.total_training_steps=${trainer.total_training_steps}
    - algorithm.norm={a:1,b:two}
    - trainer.val_before_train=False \
    - trainer.resume_from_path=null
"""


def test_the_words_of_a_script_reach_verl_as_they_are(tmp_path: Path) -> None:
    given = overrides(tmp_path, LIST)
    assert command_line((), given) == (
        "algorithm.adv_estimator=grpo",
        "data.truncation='error'",
        "+reward_model.reward_kwargs.overlong_buffer_cfg.enable=True",
        "++actor_rollout_ref.actor.x=[1,2]",
        "~actor_rollout_ref.ref.entropy_checkpointing",
        'trainer.logger=["console","wandb"]',
        "data.train_files=['/d/a.parquet', '/d/b=c.parquet']",
        "hydra.run.dir=outputs/x",
        "actor_rollout_ref.actor.optim.total_training_steps=${trainer.total_training_steps}",
        "algorithm.norm={a:1,b:two}",
        "trainer.val_before_train=False",
        "trainer.resume_from_path=null",
    )


def test_the_mapping_says_the_same_and_a_saved_run_reads_it_again(tmp_path: Path) -> None:
    as_list = overrides(tmp_path, "  overrides: [trainer.save_freq=5, +a.b=text, ~c.d]\n")
    as_map = overrides(tmp_path, "  overrides: {trainer.save_freq: '5', +a.b: text, ~c.d: null}\n")
    assert as_list == as_map
    mixed = overrides(tmp_path, "  overrides:\n    - trainer.save_freq=5\n    - a.b: 3\n")
    assert mixed == {"trainer.save_freq": "5", "a.b": 3}
    saved = tmp_path / "saved.yaml"
    saved.write_text(dump_yaml(load_config(tmp_path / "my.yaml", env={}).config))
    assert load_over(saved, env={}).config.trainer.overrides == mixed


def test_by_set_and_over_a_file(tmp_path: Path) -> None:
    file = "  overrides: [trainer.save_freq=5, a.b=1]\n"
    assert overrides(tmp_path, file, "trainer.overrides=[trainer.save_freq=7, ++x=2]") == {
        "trainer.save_freq": "7",
        "a.b": "1",
        "++x": "2",
    }
    assert overrides(tmp_path, file, "trainer.overrides.a.b=4")["a.b"] == 4


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("- trainer.save_freq", ["my.yaml:6:7: trainer.overrides: wrong value", "'trainer.save_freq'"]),
        ("- =5", ["allowed: key=value, +key=value, ++key=value or ~key"]),
        ("- trainer.save_freq=", ["write key=''"]),
        ('- data.train_files="$TRAIN"', ["without a shell", "$TRAIN"]),
        ("- data.x=$HOME/d", ["$HOME"]),
        ("- a.b=1 c.d=2", ["several overrides"]),
        ("- [a.b=1]", ["a list of 1"]),
        ("- {a: 1, b: 2}", ["a mapping"]),
        ("- a.b=1\n    - a.b=2", ["given twice", "first at", "my.yaml:6"]),
        ("- 5", ["'5'"]),
    ],
)
def test_what_is_no_such_word_is_told_with_its_line(tmp_path: Path, item: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        overrides(tmp_path, f"  overrides:\n    {item}\n")
    for word in words:
        assert word in str(caught.value)


def test_a_single_text_is_told_both_forms(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a mapping of names to values, or a list of key=value"):
        overrides(tmp_path, "  overrides: a.b=1\n")
