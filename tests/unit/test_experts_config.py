"""What trains a mixture of experts under verl: the engine, routing replay, and importance weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from liverl.config import ConfigError, load_config
from liverl.plan import make_plan
from liverl.preflight.experts import checks

INDEX, VENV = "data.train_index=/d/t.parquet", "environments.verl.venv_path=/v"
VEOMNI, MEGATRON = (VENV, "training.engine=veomni"), (VENV, "training.engine=megatron")
ASYNC = ("verl.trainer_mode=fully_async", "verl.rollout_gpus=4")
PADDED = "actor_rollout_ref.model.use_remove_padding"
BYPASS = "algorithm.rollout_correction.bypass_mode"
_A, _R = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def overrides_of(*sets: str) -> dict[str, str]:
    loaded = load_config(profile="liverl-gen1", sets=["run.name=n", INDEX, *sets], env={})
    (trainer,) = [s for s in make_plan(loaded, Path("/r/p/n")).services if s.name == "trainer"]
    pairs = [text.lstrip("+").partition("=") for text in trainer.argv[3:]]
    return {key: value for key, _, value in pairs}


@pytest.mark.parametrize(
    ("sets", "expected", "gone"),
    [
        (
            (*VEOMNI, "training.router_replay=R3", "training.rollout_is=token"),
            {
                "model_engine": "veomni",
                f"{_A}.veomni.router_replay.mode": "R3",
                f"{_R}.enable_rollout_routing_replay": "True",
                "algorithm.rollout_correction.rollout_is": "token",
                f"{_A}.veomni.ulysses_parallel_size": "4",
                f"{_A}.veomni.param_offload": "True",
                "actor_rollout_ref.ref.veomni.param_offload": "True",
            },
            ("fsdp_config", "ulysses_sequence"),
        ),
        (
            (*MEGATRON, "training.router_replay=R2", "training.rollout_is=sequence"),
            {
                "model_engine": "megatron",
                f"{_A}.megatron.router_replay.mode": "R2",
                "algorithm.rollout_correction.rollout_is": "sequence",
            },
            ("fsdp_config", "ulysses", "enable_rollout_routing_replay"),
        ),
        (
            (VENV,),
            {f"{_A}.fsdp_config.param_offload": "True", f"{_A}.ulysses_sequence_parallel_size": "4"},
            ("model_engine", "router_replay", "routing_replay", "rollout_correction", "veomni", "megatron"),
        ),
    ],
)
def test_what_verl_is_told(sets: tuple[str, ...], expected: dict[str, str], gone: tuple[str, ...]) -> None:
    found = overrides_of(*sets)
    assert expected.items() <= found.items()
    assert not [key for key in found if any(part in key for part in gone)]


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (
            ("training.router_replay=R3",),
            "training.router_replay|verl's FSDP engine cannot replay routes|R3|disabled, or",
        ),
        (
            ("training.router_replay=R2",),
            "training.router_replay|verl's FSDP engine cannot replay routes|R2|",
        ),
        (
            ("training.engine=veomni", "training.router_replay=R3"),
            f"{PADDED} is off, because environment verl has no flash-attn|R3|disabled",
        ),
        (
            (*VEOMNI, "training.router_replay=R3", f'trainer.overrides={{"{PADDED}": false}}'),
            f"works only without padding, but {PADDED} is off|R3|disabled",
        ),
        (
            (*VEOMNI, "training.router_replay=R2", f'trainer.overrides={{"{BYPASS}": true}}'),
            "bypass_mode skips it|R2|R3 or disabled|or set algorithm.rollout_correction.bypass_mode: false",
        ),
        (
            (*VEOMNI, *ASYNC, "training.router_replay=R2"),
            "(verl.trainer_mode fully_async turns it on)|R2|R3 or disabled",
        ),
        (
            (*VEOMNI, "algorithm.adv_estimator=gae"),
            "training.engine|algorithm.adv_estimator gae needs a critic",
        ),
        (
            (*VEOMNI, "verl.device=cpu", "vllm.gen_tp=1"),
            "training.engine|verl.device cpu supports only the engine fsdp|veomni|fsdp",
        ),
        ((*VEOMNI, "training.router_replay=R3"), ""),
        ((*MEGATRON, "training.router_replay=R2"), ""),
        ((*VEOMNI, *ASYNC, "training.router_replay=R3"), ""),
        ((*VEOMNI, *ASYNC, "training.router_replay=R2", f'trainer.overrides={{"{BYPASS}": false}}'), ""),
    ],
)
def test_what_cannot_work_is_refused(sets: tuple[str, ...], words: str) -> None:
    found = []
    try:
        load_config(profile="liverl-gen1", sets=[INDEX, *sets], env={})
    except ConfigError as error:
        found = ["|".join((p.key, p.message, p.found, p.allowed, p.hint)) for p in error.problems]
    assert len(found) == bool(words), found
    assert all(words in text for text in found), found


@pytest.mark.parametrize(
    ("shape", "status", "words"),
    [
        ({"num_experts": 8, "moe_intermediate_size": 64, "num_experts_per_tok": 2}, "ok", "8 experts"),
        ({}, "fail", "is a dense model: it has no routes to replay"),
        (None, "skipped", "whether the model has experts is unknown"),
    ],
)
def test_a_dense_model_has_no_routes_to_replay(
    tmp_path: Path, shape: dict[str, int] | None, status: str, words: str
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    if shape is not None:
        dense = {
            "model_type": "qwen3",
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "intermediate_size": 128,
            "vocab_size": 100,
            "max_position_embeddings": 4096,
        }
        (model / "config.json").write_text(json.dumps(dense | shape))
    sets = [
        "run.name=n",
        INDEX,
        *VEOMNI,
        "training.router_replay=R3",
        f"model.model_path={model}",
        "vllm.gen_tp=4",
    ]
    loaded = load_config(profile="liverl-gen1", sets=sets, env={})
    plan = make_plan(loaded, tmp_path / "p" / "n")
    (check,) = checks(plan, loaded.config, {})
    assert (check.status, words in check.text) == (status, True), check
