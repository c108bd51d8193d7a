"""The estimate of memory: its parts by hand, beside what vLLM has logged on GPUs, and what the checks make of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from kit import checked_runs
from kit.checked_runs import TwoGpus, tree

from liverl.engines.vllm.memory import GIB, Settings, Shape, batched_tokens, kv_memory, token_bytes
from liverl.observe.gpu import sampler
from liverl.preflight.modelshape import Tensor, of_shape, parameters, shape_of, tensors, weight_bytes
from liverl_tui.cli import main as cli

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"


def config(**changes: Any) -> dict[str, Any]:
    """The config.json of a model of 8.2 billion parameters."""
    given = {
        "architectures": ["Qwen3ForCausalLM"],
        "num_hidden_layers": 36,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": False,
    } | changes
    return {name: value for name, value in given.items() if value is not None}


SMALL = {"num_hidden_layers": 4, "hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8}
SMALL |= {"num_key_value_heads": 4, "head_dim": 64, "vocab_size": 4096, "tie_word_embeddings": True}
# vLLM's logs of models that were made for these tests. GPU: what CUDA reports of an H200.
H200 = 139.81
LOGS = {
    "h200/vllm0.log": Settings(
        total=int(H200 * GIB), utilization=0.2, tensor=1, sequences=1024, context=2048
    ),
    "h200/vllm_enginecore_killed_exit0.log": Settings(
        total=int(H200 * GIB), utilization=0.3, tensor=1, sequences=96, context=1024, eager=True
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_beside_what_vllm_has_logged(name: str) -> None:
    """SIMULATED is nothing: the numbers are of runs on GPUs."""
    log = (RECORDINGS / name).read_text()
    measured = float(re.findall(r"Available KV cache memory: ([\d.]+) GiB", log)[0])
    tokens = int(re.findall(r"GPU KV cache size: ([\d,]+) tokens", log)[0].replace(",", ""))
    loaded = float(re.findall(r"Model loading took ([\d.]+) GiB", log)[0])
    shape = shape_of(config(**SMALL))
    weights = weight_bytes(of_shape(shape), shape, 1, 2)
    found = kv_memory(shape, weights, LOGS[name])
    assert weights / GIB == pytest.approx(loaded, abs=0.01)
    assert found.kv_cache / GIB == pytest.approx(measured, rel=0.01)
    assert found.tokens == pytest.approx(tokens, rel=0.01)


QWEN_HALF = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
}
QWEN_HALF |= {"head_dim": 64, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True}
QWEN_3 = {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16}
QWEN_3 |= {"num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True}
QWEN_7 = {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28}
QWEN_7 |= {"num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False}


class Measured(NamedTuple):
    """A start of vLLM 0.24 on one H200, with random weights in bf16. ``loaded``, ``available``: GiB, as its log has
    them; ``tokens``: of its KV cache."""

    model: Mapping[str, Any]
    eager: bool
    utilization: float
    context: int
    sequences: int
    loaded: float
    available: float
    tokens: int


@pytest.mark.parametrize(
    "seen",
    [
        Measured(QWEN_HALF, True, 0.3, 4096, 256, 0.93, 40.15, 3507968),
        Measured(QWEN_HALF, False, 0.3, 4096, 256, 0.93, 39.82, 3479120),
        Measured(QWEN_3, True, 0.5, 8192, 128, 5.79, 62.59, 1823184),
        Measured(QWEN_3, False, 0.5, 32768, 512, 5.79, 62.22, 1812208),
        Measured(QWEN_7, True, 0.6, 16384, 64, 14.29, 67.16, 1257568),
        Measured(QWEN_7, False, 0.6, 16384, 256, 14.29, 66.84, 1251616),
    ],
)
def test_beside_what_was_measured_on_a_gpu(seen: Measured) -> None:
    """Through vLLM's class LLM, which takes 16,384 tokens at once on such a GPU."""
    shape = shape_of(config(**seen.model, model_type="qwen2", architectures=["Qwen2ForCausalLM"]))
    weights = weight_bytes(of_shape(shape), shape, 1, 2)
    settings = Settings(
        total=int(H200 * GIB),
        utilization=seen.utilization,
        tensor=1,
        sequences=seen.sequences,
        context=seen.context,
        eager=seen.eager,
        batched_tokens=16384,
    )
    found = kv_memory(shape, weights, settings)
    assert weights / GIB == pytest.approx(seen.loaded, rel=0.01, abs=0.02)
    assert found.kv_cache / GIB == pytest.approx(seen.available, rel=0.02)
    assert found.tokens == pytest.approx(seen.tokens, rel=0.02)


class Case(NamedTuple):
    """``changes`` of config.json: weights of a GPU in bytes with tensor parallel ``tensor``, and of a token."""

    changes: Mapping[str, Any]
    tensor: int
    weights: float
    token: int


_LAYER = 4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 12288  # q and o, k and v, the MLP
_NORMS = 36 * 2 * 4096
_EMBEDDING = 151936 * 4096


@pytest.mark.parametrize(
    "case",
    [
        Case({}, 1, 2 * (36 * _LAYER + 2 * _EMBEDDING + _NORMS), 2 * 36 * 8 * 128 * 2),
        Case({}, 2, 36 * _LAYER + 2 * _EMBEDDING + 2 * _NORMS, 2 * 36 * 4 * 128 * 2),
        Case({"tie_word_embeddings": True}, 1, 2 * (36 * _LAYER + _EMBEDDING + _NORMS), 2 * 36 * 8 * 128 * 2),
        # Fewer key-value heads than GPUs: each GPU has one, and its weights.
        Case(
            {"num_key_value_heads": 2}, 4,
            2 * ((36 * (_LAYER - 2 * 4096 * 1024) + 2 * _EMBEDDING) / 4 + 36 * 4096 * 256 + _NORMS),
            2 * 36 * 128 * 2,
        ),
        # Layers of linear attention keep no keys.
        Case(
            {"layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 9}, 1,
            2 * (36 * _LAYER + 2 * _EMBEDDING + _NORMS), 2 * 9 * 8 * 128 * 2,
        ),
        # Multi-head latent attention: 512 + 64 numbers, on each GPU.
        Case(
            {"kv_lora_rank": 512, "qk_rope_head_dim": 64}, 2, 36 * _LAYER + 2 * _EMBEDDING + 2 * _NORMS,
            36 * 576 * 2,
        ),
    ],
)  # fmt: skip
def test_weights_and_tokens_by_hand(case: Case) -> None:
    shape = shape_of(config(**case.changes))
    assert weight_bytes(of_shape(shape), shape, case.tensor, 2) == pytest.approx(case.weights, rel=1e-6)
    assert token_bytes(shape, case.tensor, 2) == case.token


def test_experts_are_counted_once_each() -> None:
    shape = shape_of(config(num_experts=64, num_experts_per_tok=8, moe_intermediate_size=768))
    assert (shape.experts, shape.experts_per_token, shape.expert_intermediate) == (64, 8, 768)
    dense = shape_of(config())
    own = 36 * (64 * 3 * 768 * 4096 + 64 * 4096)
    mlp = 36 * 3 * 12288 * 4096
    assert parameters(of_shape(shape), shape) - parameters(of_shape(dense), dense) == own - mlp


@pytest.mark.parametrize("part", ["text_config", "llm_config"])
def test_the_sizes_of_the_text_part_count(part: str) -> None:
    whole = config()
    assert shape_of({"architectures": ["VL"], "hidden_size": 7, part: whole}).hidden == 4096
    assert shape_of({"architectures": ["VL"], part: {}, **whole}).hidden == 4096


@pytest.mark.parametrize("missing", ["num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads"])
def test_a_size_that_is_not_said_is_not_guessed(missing: str) -> None:
    with pytest.raises(ValueError, match="it names no"):
        shape_of(config(**{missing: None}))


def test_headers_say_more_than_the_form(tmp_path: Path) -> None:
    """A quantized weight stays as it is; a floating-point one gets the type of vllm.dtype."""
    header = {
        "__metadata__": {"format": "pt"},
        "model.layers.0.mlp.down_proj.weight": {"dtype": "I8", "shape": [10, 20], "data_offsets": [0, 200]},
        "model.layers.0.mlp.up_proj.weight": {"dtype": "F32", "shape": [10, 20], "data_offsets": [200, 1000]},
        "model.norm.weight": {"dtype": "BF16", "shape": [20], "data_offsets": [1000, 1040]},
        "lm_head.weight": {"dtype": "BF16", "shape": [20, 20], "data_offsets": [1040, 1840]},
    }
    text = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    parts = tensors(tmp_path)
    assert [part.dtype for part in parts] == ["I8", "F32", "BF16", "BF16"]
    shape = shape_of(config(tie_word_embeddings=True))
    assert weight_bytes(parts, shape, 2, 2) == (200 + 400) / 2 + 40
    assert parameters(parts, shape) == 420
    assert weight_bytes([*parts, Tensor("a.k_proj.weight", "BF16", (8, 8))], shape, 16, 2) == pytest.approx(
        600 / 16 + 40 + 128 / 8, abs=1
    )


def settings(**changes: Any) -> Settings:
    given = {"total": int(79.18 * GIB), "utilization": 0.9, "tensor": 1, "sequences": 96, "context": 40960}
    return Settings(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({}, 8192),
        ({"a100": True}, 2048),
        ({"total": 40 * GIB}, 2048),
        ({"chunked": False}, 40960),
        ({"batched_tokens": 123}, 123),
    ],
)
def test_tokens_of_vllms_own_run(changes: dict[str, Any], tokens: int) -> None:
    assert batched_tokens(settings(**changes)) == tokens


def test_what_changes_the_cache_and_what_does_not() -> None:
    shape = shape_of(config())
    weights = weight_bytes(of_shape(shape), shape, 1, 2)

    def left(shape: Shape = shape, **changes: Any) -> int:
        return kv_memory(shape, weights, settings(**changes)).kv_cache

    usual = left()
    assert left(utilization=0.8) == pytest.approx(usual - 0.1 * 79.18 * GIB, abs=2)
    assert left(eager=True) == usual, "Model Runner V2 captures graphs beside its share"
    other = shape_of(config(architectures=["Qwen2ForCausalLM"]))
    v1 = kv_memory(other, weights, settings())
    assert v1.graphs_counted and left(other, eager=True) == v1.kv_cache + v1.graphs
    assert left(batched_tokens=16384) < usual < left(batched_tokens=2048)
    assert left(sequences=1024) < usual, "each sample has the logits of the vocabulary"
    parts = kv_memory(shape, weights, settings())
    assert parts.requested == parts.weights + parts.activations + parts.beside + parts.kv_cache


# --- the checks


class Fault(NamedTuple):
    """``sets`` and ``changes`` of config.json, with a GPU of ``gpu`` GiB: the check ``name`` has ``status``."""

    topology: str
    gpu: float
    sets: tuple[str, ...]
    name: str
    status: str
    words: str
    patch: Mapping[str, str] = MappingProxyType({})
    changes: Mapping[str, Any] = MappingProxyType({})


ONE = ("vllm.gen_tp=1", "vllm.max_model_length=32768")
FAULTS = {
    "fits": Fault("managed", 79.18, ONE, "memory", "ok", "sequences of full length (32,768); the run wants 96 at once"),
    "no memory": Fault("managed", 16, ONE, "memory", "fail", "no memory is left for the KV cache: -"),
    "one sequence is too long": Fault(
        "managed", 22, ONE, "memory", "fail", "but one sequence may have 32,768", {"vllm.max_model_length": "21504"},
    ),
    "one sequence is too long, for verl": Fault(
        "verl", 22, (*ONE, "training.max_prompt_length=16384", "training.max_response_length=16384"), "memory", "fail",
        "vLLM does not start",
    ),
    "an optimizer that fits in no way": Fault(
        "verl", 40, ONE, "memory of training", "fail", "take 61.03 GiB of 40.0 in each GPU"),
    "an optimizer that fits, without activations": Fault(
        "verl", 62, ("vllm.gen_tp=1", "vllm.max_model_length=4096"), "memory of training", "warn", "about 6"),
    "an optimizer that fits": Fault("verl", 139.8, ONE, "memory of training", "ok", "of 139.8 in each GPU"),
    "no offload": Fault(
        "verl", 100, (*ONE, "training.actor_offload=false"), "memory of training", "fail",
        "the trainer keeps 45.77 GiB in each GPU", {"training.actor_offload": "true"}),
    "longer than the model's context": Fault(
        "managed", 79.18, ("vllm.max_model_length=131072",), "context", "fail",
        "131,072, but the model has a context of 40,960 tokens", {"vllm.max_model_length": "40960"}),
    "a context that is stretched": Fault(
        "managed", 79.18, ("vllm.max_model_length=131072",), "context", "skipped", "does not say", {},
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
    "longer than the context, for verl": Fault(
        "verl", 79.18,
        ("vllm.max_model_length=65536", "training.max_prompt_length=32768", "training.max_response_length=32768"),
        "context", "fail", "a context of 40,960",
        {"vllm.max_model_length": "40960", "training.max_response_length": "8192"}),
    "a prompt as long as the context": Fault(
        "verl", 79.18,
        ("vllm.max_model_length=65536", "training.max_prompt_length=40960", "training.max_response_length=1024"),
        "context", "fail", "a context of 40,960"),
}  # fmt: skip


@pytest.fixture
def checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[dict[str, Any]]]:
    """``checked(topology, gpu, sets, changes)``: what the checks find of a model of 8.2 billion parameters."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("LIVERL_CACHE_DIR", "XDG_CACHE_HOME", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sampler, "open_nvml", lambda given=None: (TwoGpus(), ""))

    def check(
        topology: str, gpu: float | None, sets: tuple[str, ...] = (), changes: Mapping[str, Any] = config()
    ) -> list[dict[str, Any]]:
        checked_runs.configured(tmp_path, topology)
        model = tmp_path / "models" / "Toy-1B"
        for path in model.glob("model*"):
            path.unlink()  # the form says the sizes
        (model / "config.json").write_text(json.dumps(config(**changes)))
        before = tree(tmp_path)
        words = [word for text in sets for word in ("--set", text)]
        words += [] if gpu is None else ["--gpu-memory", str(gpu)]
        cli.run(["check", "--json", "--config", str(tmp_path / "my.yaml"), *words])
        captured = capsys.readouterr()
        assert captured.out, captured.err
        assert tree(tmp_path) == before
        found: list[dict[str, Any]] = json.loads(captured.out)["checks"]
        return found

    return check


@pytest.mark.parametrize("name", FAULTS)
def test_what_the_checks_make_of_it(checked: Callable[..., list[dict[str, Any]]], name: str) -> None:
    fault = FAULTS[name]
    found = checked(fault.topology, fault.gpu, fault.sets, fault.changes)
    (told,) = [check for check in found if check["name"] == fault.name]
    assert (told["status"], told["patch"]) == (fault.status, dict(fault.patch)), told["text"]
    assert fault.words in told["text"] and bool(told["fix"]) == (fault.status in ("warn", "fail")), told


def test_the_advice_for_an_update_is_no_value_that_is_refused(
    checked: Callable[..., list[dict[str, Any]]],
) -> None:
    """The environment that is built has no flash-attn, without which training.sp_size cannot be raised."""
    sets = ("vllm.gen_tp=1", "vllm.max_model_length=4096")
    (told,) = [check for check in checked("verl", 62, sets) if check["name"] == "memory of training"]
    assert "training.max_response_length" in told["fix"] and "sp_size" not in told["fix"]


def test_the_numbers_are_for_programs_too(checked: Callable[..., list[dict[str, Any]]]) -> None:
    (told,) = [check for check in checked("managed", 79.18, ONE) if check["id"] == "memory"]
    values = told["values"]
    parts = ("weights_gib", "activations_gib", "beside_gib", "kv_cache_gib")
    assert sum(values[name] for name in parts) == pytest.approx(values["requested_gib"], abs=0.03)
    assert values["requested_gib"] == pytest.approx(0.85 * 79.18, abs=0.01)
    assert f"{values['kv_cache_gib']} KV cache" in told["evidence"][0]["text"]
    assert values["kv_wanted_gib"] == pytest.approx(96 * 32768 * 147456 / GIB, abs=0.01)


def test_the_gpus_of_this_host_are_taken_if_none_is_named(
    checked: Callable[..., list[dict[str, Any]]],
) -> None:
    (told,) = [check for check in checked("managed", None, ONE) if check["id"] == "memory"]
    assert told["values"]["gpu_gib"] == pytest.approx(80 * 0.995, abs=0.01), "SIMULATED GPUs of 80 GiB"


@pytest.mark.parametrize(("name", "value"), [("0", "0"), ("negative", "-1"), ("nan", "nan"), ("word", "big")])
def test_a_wrong_size_is_refused(name: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check", "--gpu-memory", value]) == 2
    assert "--gpu-memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("Tesla V100-SXM2-32GB", True),
        ("Tesla T4", True),
        ("NVIDIA GeForce RTX 2080 Ti", True),
        ("NVIDIA A100-PCIE-40GB", False),
        ("NVIDIA H100 80GB HBM3", False),
        ("NVIDIA GeForce RTX 4090", False),
        ("NVIDIA RTX PRO 4000 Blackwell", False),
    ],
)
def test_bfloat16_on_old_gpus(
    checked: Callable[..., list[dict[str, Any]]], name: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TwoGpus, "nvmlDeviceGetName", lambda self, index: name.encode())
    told = [check for check in checked("managed", None, ONE) if check["id"] == "gpu-dtype"]
    assert [check["status"] for check in told] == ["fail"] * refused
    if refused:
        assert name in told[0]["text"] and told[0]["patch"] == {"vllm.dtype": "float16"}
