"""What is read of launches of verl's fully asynchronous trainer, in verl's and in LiveRL's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.config import LoadedConfig, load_config
from liverl.config.errors import ConfigError
from liverl.config.schema import leaves, value_of
from liverl.importing import asynchronous, read_path
from liverl.importing.outcome import Imported
from liverl.importing.targets import KEYS, VERL_VARIABLES
from liverl.plan.verl_overrides import divided, overrides

START = (
    "python -m verl.experimental.fully_async_policy.fully_async_main actor_rollout_ref.model.path=/m "
    "algorithm.adv_estimator=grpo actor_rollout_ref.actor.ppo_mini_batch_size=32 data.train_batch_size=0 "
    "rollout.total_rollout_steps=51200 "
)
ENV = "TEMPLATE_MODULES=()\nTRAIN_MODE=async\nENGINE=fsdp\nMODEL_PATH=/m\nNGPUS_PER_NODE=8\nNNODES=3\n"
ENV += "N_NODES_TRAIN=2\nN_NODES_ROLLOUT=1\n"


def script(text: str, folder: Path) -> tuple[Imported, LoadedConfig]:
    (folder / "s.sh").write_text(START + text + "\n")
    return _loaded(read_path(folder / "s.sh"), folder)


def _loaded(found: Imported, folder: Path) -> tuple[Imported, LoadedConfig]:
    (folder / "config.yaml").write_text(found.text)
    return found, load_config(folder / "config.yaml", env={})


SAME = {
    "async_training.staleness_threshold": ("0.5", 0.5),
    "async_training.trigger_parameter_sync_step": ("2", 2),
    "async_training.require_batches": ("3", 3),
    "async_training.partial_rollout": ("False", False),
    "async_training.concurrent_samples_per_replica": ("8", 8),
    "async_training.max_concurrent_samples": ("64", 64),
    "rollout.total_rollout_steps": ("51200", 51200),
}


@pytest.mark.parametrize("key", asynchronous.KEYS)
def test_each_key_of_a_script_is_one_of_ours_and_comes_back_in_the_plan(key: str, tmp_path: Path) -> None:
    text, value = SAME[key]
    found, loaded = script(f"trainer.nnodes=2 rollout.nnodes=1 {key}={text}", tmp_path)
    ours = asynchronous.KEYS[key]
    assert ours in leaves() and value_of(loaded.config, ours) == value
    assert [note.what for note in found.not_taken] == ["data.train_batch_size=0"] and not found.overrides
    planned = dict(word.partition("=")[::2] for word in overrides(loaded.config))
    if key == "async_training.max_concurrent_samples":  # no key of verl's: 8 GPUs, tp 2: 4 replicas
        key, text = "async_training.concurrent_samples_per_replica", "16"
        assert "verl 0.9.1 has no such key; divided by 4 replicas" in divided(loaded.config)[0]
    assert planned[key].lower() == text.lower()


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize(
    "name", ["STALENESS_THRESHOLD", "TRIGGER_PARAMETER_SYNC_STEP", "REQUIRE_BATCHES", "PARTIAL_ROLLOUT"]
    + ["MAX_CONCURRENT_SAMPLES", "TOTAL_ROLLOUT_STEPS"],
)  # fmt: skip
def test_each_variable_of_a_generation_3_env(name: str, lower: bool, tmp_path: Path) -> None:
    text, value = SAME[VERL_VARIABLES[name]]
    (tmp_path / "r.env").write_text(f"{ENV}{name.lower() if lower else name}={text}\n")
    _, loaded = _loaded(read_path(tmp_path / "r.env"), tmp_path)
    config = loaded.config
    assert config.verl.trainer_mode == "fully_async" and config.run.topology == "in_process"
    assert (config.verl.train_nodes, config.verl.rollout_nodes) == (2, 1)
    assert value_of(config, asynchronous.KEYS[VERL_VARIABLES[name]]) == value


@pytest.mark.parametrize(
    ("text", "expected", "said"),
    [  # nnodes, GPUs of each, train_nodes, rollout_nodes, rollout_gpus
        ("trainer.nnodes=2 rollout.nnodes=1", (3, 8, 2, 1, 0), ""),
        ("", (2, 8, 1, 1, 0), ""),  # verl's defaults
        ("trainer.n_gpus_per_node=4 rollout.n_gpus_per_node=4", (1, 8, None, None, 4), "of the same hosts"),
        ("trainer.n_gpus_per_node=4 rollout.n_gpus_per_node=2", (1, 6, None, None, 2), "of the same hosts"),
        (
            "trainer.nnodes=2 trainer.n_gpus_per_node=8 rollout.n_gpus_per_node=4",
            (3, 8, 2, 1, 0),
            "must have the same number of GPUs: set infrastructure.ngpus_per_node",
        ),
    ],
)
def test_the_two_pools(text: str, expected: tuple[object, ...], said: str, tmp_path: Path) -> None:
    found, loaded = script(text, tmp_path)
    config = loaded.config
    verl, hosts = config.verl, config.infrastructure
    got = (hosts.nnodes, hosts.ngpus_per_node, verl.train_nodes, verl.rollout_nodes, verl.rollout_gpus)
    assert got == expected
    assert not any("GPUs train" in note.what for note in found.not_taken)  # they are in the file
    whys = [note.why for note in found.notices if "GPUs train" in note.what]
    assert (any(said in why for why in whys)) if said else not whys


def test_what_the_script_leaves_out_has_the_defaults_of_this_trainer(tmp_path: Path) -> None:
    (tmp_path / "s.sh").write_text(
        START.replace("rollout.total_rollout_steps=51200", "actor_rollout_ref.actor.ppo_mini_batch_size=8")
    )
    _, loaded = _loaded(read_path(tmp_path / "s.sh"), tmp_path)
    for key, text in asynchronous.DEFAULTS.items():
        assert str(value_of(loaded.config, key)).lower() == text
    assert loaded.config.training.total_steps is None, "rollout.total_rollout_steps says when it ends"


def test_a_script_of_the_other_trainer_has_no_such_keys(tmp_path: Path) -> None:
    (tmp_path / "s.sh").write_text(START.replace(
        "verl.experimental.fully_async_policy.fully_async_main", "verl.trainer.main_ppo"
    ).replace("train_batch_size=0", "train_batch_size=32") + "+async_training.staleness_threshold=0.5\n")  # fmt: skip
    found, loaded = _loaded(read_path(tmp_path / "s.sh"), tmp_path)
    kept = {note.what.lstrip("+") for note in found.overrides}
    assert {"async_training.staleness_threshold=0.5", "rollout.total_rollout_steps=51200"} <= kept
    assert loaded.config.verl.trainer_mode is None
    assert not asynchronous.KEYS.keys() & KEYS.keys()


@pytest.mark.parametrize(
    ("given", "meant"),
    [(f"{key}=1", ours) for key, ours in asynchronous.KEYS.items()]
    + [(f"verl.{key}=1", ours) for key, ours in asynchronous.KEYS.items()]
    + [(f"{key.rpartition('.')[2]}=1", ours) for key, ours in asynchronous.KEYS.items()]
    + [
        ("async_training.stalenes_threshold=1", "verl.fully_async.staleness_threshold"),
        ("async_training.max_concurent_samples=1", "verl.fully_async.max_concurrent_samples"),
        ("verl.fully_async.max_concurrent=1", "verl.fully_async.max_concurrent_samples"),
    ],
)
def test_another_spelling_is_answered_with_the_key_that_was_meant(given: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, sets=[given], env={})
    assert f"did you mean {meant}?" in str(caught.value)


def test_another_spelling_in_a_file(tmp_path: Path) -> None:
    for text in ("async_training: {staleness_threshold: 1}", "verl: {async_training: {require_batches: 2}}"):
        (tmp_path / "c.yaml").write_text(text)
        with pytest.raises(ConfigError, match=r"did you mean verl\.fully_async\.(staleness|require)"):
            load_config(tmp_path / "c.yaml", env={})


@pytest.mark.parametrize("mode", ["TRAIN_MODE=async", "TRAINING_MODE=fully_async"])
@pytest.mark.parametrize(
    "hosts",
    ["", "NNODES=1", "N_NODES_ROLLOUT=0", "N_NODES_ROLLOUT=1", "NNODES=3\nN_NODES_TRAIN=2"]
    + ["NNODES=3\nN_NODES_ROLLOUT=1", "NNODES=3\nN_NODES_TRAIN=2\nN_NODES_ROLLOUT=2", "N_NODES_ROLLOUT=$(x)"],
)  # fmt: skip
def test_a_mode_without_hosts_that_generate_is_left_and_the_rest_is_taken(
    mode: str, hosts: str, tmp_path: Path
) -> None:
    text = (
        f"TEMPLATE_MODULES=()\n{mode}\nMODEL_PATH=/m\nTRAIN_PROMPT_BSZ=48\nSTALENESS_THRESHOLD=0.5\n{hosts}\n"
    )
    (tmp_path / "r.env").write_text(text)
    found, loaded = _loaded(read_path(tmp_path / "r.env"), tmp_path)
    config = loaded.config
    assert config.verl.trainer_mode is None and config.model.model_path == "/m"
    assert config.training.train_batch_size == 48 and config.verl.fully_async.staleness_threshold == 0.5
    assert not found.overrides, "the other trainer of verl's has no such keys"
    (left,) = [note for note in found.not_taken if note.what == mode]
    assert left.place == f"{tmp_path / 'r.env'}:2"
    assert "N_NODES_ROLLOUT" in left.why and "verl.rollout_gpus" in left.why


@pytest.mark.parametrize(
    ("text", "words", "default"),
    [
        ("trainer.nnodes=$NN rollout.nnodes=1", "1{0} x 8{0} GPUs train, 1 x 8{0} generate", False),
        ("", "1{0} x 8{0} GPUs train, 1{0} x 8{0} generate", True),
        (
            "trainer.nnodes=2 trainer.n_gpus_per_node=4 rollout.nnodes=1 rollout.n_gpus_per_node=4",
            "2 x 4 GPUs train, 1 x 4 generate",
            False,
        ),
    ],
)
def test_a_number_that_is_verls_default_is_called_so(
    text: str, words: str, default: bool, tmp_path: Path
) -> None:
    found, _ = script(text, tmp_path)
    (key,) = [key for key in found.taken if key.key == "infrastructure.nnodes"]
    assert (key.source, key.default) == (words.format(" (verl's default)"), default)


@pytest.mark.parametrize("mode", ["", "TRAIN_MODE=sync\n", "TRAIN_MODE=separate_async\n"])
@pytest.mark.parametrize(
    ("hosts", "taken"),
    [((1, 0, 1), True), ((3, 0, 3), True), ((2, 1, 3), False), ((2, None, 3), False), ((None, 1, 3), False)]
    + [((1, 1, 1), False), ((1, None, None), False), ((1, 0, None), True)],
)  # fmt: skip
def test_hosts_that_this_mode_does_not_split_are_left(
    mode: str, hosts: tuple[int | None, ...], taken: bool, tmp_path: Path
) -> None:
    names = ("N_NODES_TRAIN", "N_NODES_ROLLOUT", "NNODES")
    words = [f"{name}={number}" for name, number in zip(names, hosts, strict=True) if number is not None]
    text = "\n".join(["TEMPLATE_MODULES=()", "MODEL_PATH=/m", "TRAIN_PROMPT_BSZ=48", *words])
    (tmp_path / "r.env").write_text(f"{mode}{text}\n")
    found, loaded = _loaded(read_path(tmp_path / "r.env"), tmp_path)
    assert loaded.config.infrastructure.nnodes == (hosts[2] or 1)
    left = [note.what for note in found.not_taken if note.what.startswith("N_NODES")]
    assert left == ([] if taken else [word for word in words if word.startswith("N_NODES")])


@pytest.mark.parametrize(
    ("words", "batch", "mini", "refused"),
    [
        ("NNODES=1", 64, 64, ""),
        ("NNODES=2", 64, 64, ""),
        ("NNODES=3", 66, 66, ""),
        ("NNODES=3 N_NODES_TRAIN=2 N_NODES_ROLLOUT=1", 66, 66, ""),
        ("NNODES=3 N_RESP=4 TRAIN_MINI_BSZ=16", 96, 16, ""),
        ("NNODES=3 TRAIN_MINI_BSZ=22", 66, 22, ""),
        ("NNODES=3 TRAIN_PROMPT_BSZ=50", 66, 66, "training.train_batch_size: 50"),
        ("NNODES=3 TRAIN_PROMPT_BSZ=48", 48, 2, ""),
        ("NNODES=3 TRAINER_N_GPUS_PER_NODE=4 N_RESP=5", 72, 72, ""),
        ("NNODES=4 TRAIN_MODE=async N_NODES_TRAIN=3 N_NODES_ROLLOUT=1", 4, 66, ""),
        (
            "NNODES=4 TRAIN_MODE=async N_NODES_TRAIN=3 N_NODES_ROLLOUT=1 TRAIN_MINI_BSZ=5",
            4,
            66,
            "training.train_prompt_mini_batch_size: 5",
        ),
        ("NNODES=4 TRAIN_MODE=async N_NODES_TRAIN=3 N_NODES_ROLLOUT=1 TRAIN_MINI_BSZ=6", 4, 6, ""),
    ],
)
def test_a_batch_that_is_not_told_is_liverls_or_what_the_gpus_divide(
    words: str, batch: int, mini: int, refused: str, tmp_path: Path
) -> None:
    text = "\n".join(["TEMPLATE_MODULES=()", "MODEL_PATH=/m", *words.split()])
    (tmp_path / "r.env").write_text(f"{text}\n")
    found, loaded = _loaded(read_path(tmp_path / "r.env"), tmp_path)
    training = loaded.config.training
    assert (training.train_batch_size, training.train_prompt_mini_batch_size) == (batch, mini)
    (hosts,) = [key for key in found.taken if key.key == "infrastructure.nnodes"]
    assert hosts.source == "NNODES"
    left = [note.what for note in found.not_taken if note.what.startswith("training.")]
    assert left == ([refused] if refused else [])


def test_a_script_whose_batch_is_refused_is_imported_without_it(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=/m trainer.nnodes=3 trainer.n_gpus_per_node=8 "
        "data.train_batch_size=50 actor_rollout_ref.rollout.n=8 actor_rollout_ref.actor.ppo_mini_batch_size=2\n"
    )
    found, loaded = _loaded(read_path(tmp_path / "run.sh"), tmp_path)
    assert loaded.config.training.train_batch_size == 66
    assert [note.what for note in found.not_taken] == ["training.train_batch_size: 50"]
    assert loaded.config.algorithm.adv_estimator == "gae", "verl's default"
