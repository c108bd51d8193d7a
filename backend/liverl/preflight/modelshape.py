"""The sizes of a model: from its config.json, and from the headers of its weights."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from liverl.engines.vllm.memory import Shape
from liverl.preflight.modeldir import sections
from liverl.util.decode import decode_loose_json
from liverl.util.regular_file import open_binary, read_regular

_LARGEST_CONFIG = 4 << 20
_LARGEST_HEADER = 100 << 20
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_FLOATS = (
    "F64",
    "F32",
    "F16",
    "BF16",
)  # converted to vllm.dtype; others are a quantization, and stay as they are
# Weights that vLLM keeps whole on each GPU: the router of experts, and the way into multi-head latent attention.
_WHOLE = (".gate.weight", ".q_a_proj.weight", ".kv_a_proj_with_mqa.weight", ".shared_expert_gate.weight")
_KV = (".k_proj.weight", ".v_proj.weight")
_HEAD = "lm_head.weight"


class Tensor(NamedTuple):
    """A tensor of a file of weights."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


def read_shape(config: Path) -> Shape:
    """The sizes in a config.json; of a model for text and something else, those of its text part.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no mapping, or does not say a size; the text names what is missing.
    """
    with open_binary(config) as file:
        data: Any = decode_loose_json(file.read(_LARGEST_CONFIG))
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    return shape_of(data)


def scaled(config: Path) -> bool:
    """Whether a config.json stretches the positions with which the model was trained (``rope_scaling``).

    Raises:
        OSError, ValueError: as ``read_shape``.
    """
    with open_binary(config) as file:
        data: Any = decode_loose_json(file.read(_LARGEST_CONFIG))
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    return any(isinstance(one.get("rope_scaling"), dict) for one in sections(data))


def shape_of(data: Mapping[str, Any]) -> Shape:
    """As ``read_shape``, from the mapping.

    Raises:
        ValueError: it does not say a size.
    """
    part = next((one for one in sections(data) if _number(one, *_NAMES["layers"]) is not None), None)
    if part is None:
        raise ValueError("it names no number of layers")
    numbers = {}
    for key, names in _NAMES.items():
        value = _number(part, *names)
        if value is None:
            raise ValueError(f"it names no {names[0]}")
        numbers[key] = value
    heads = numbers["heads"]
    types = part.get("layer_types")
    kinds = [str(kind) for kind in types] if isinstance(types, list) else []
    latent = _number(part, "kv_lora_rank")
    classes = data.get("architectures")
    experts = _number(part, "num_experts", "n_routed_experts", "num_local_experts") or 0
    inner = _number(part, "moe_intermediate_size") or (numbers["intermediate"] if experts else 0)
    shared = _number(part, "shared_expert_intermediate_size") or inner * (
        _number(part, "n_shared_experts") or 0
    )
    return Shape(
        architecture=str(classes[0]) if isinstance(classes, list) and classes else "",
        **numbers,
        kv_heads=_number(part, "num_key_value_heads", "num_kv_heads") or heads,
        head_dim=_number(part, "head_dim") or numbers["hidden"] // heads,
        tied=bool(part.get("tie_word_embeddings", data.get("tie_word_embeddings", False))),
        experts=experts,
        experts_per_token=(_number(part, "num_experts_per_tok", "moe_top_k") or 1) if experts else 0,
        expert_intermediate=inner,
        shared_intermediate=shared,
        kv_width=latent + (_number(part, "qk_rope_head_dim") or 0) if latent else None,
        kv_layers=sum("linear" not in kind and "mamba" not in kind for kind in kinds) or numbers["layers"],
        context=_number(part, "max_position_embeddings", "n_positions"),
    )


_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "intermediate": ("intermediate_size", "moe_intermediate_size", "ffn_hidden_size"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocabulary": ("vocab_size",),
}


def _number(part: Mapping[str, Any], *names: str) -> int | None:
    found = (part.get(name) for name in names)
    return next((n for n in found if isinstance(n, int) and not isinstance(n, bool) and n > 0), None)


def tensors(folder: Path) -> list[Tensor]:
    """The tensors of the safetensors files in ``folder``, from their headers; none if it has none.

    Raises:
        OSError: a file cannot be read.
        ValueError: a header is no such header.
    """
    names = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        data: Any = decode_loose_json(read_regular(index))
        given = data.get("weight_map") if isinstance(data, dict) else None
        wanted = {str(name) for name in given.values()} if isinstance(given, dict) else set()
        names = sorted(wanted & {*names}) or names
    return [tensor for name in names for tensor in _of_file(folder / name)]


def _of_file(path: Path) -> Iterator[Tensor]:
    with open_binary(path) as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= _LARGEST_HEADER:
            raise ValueError(f"{path} is no file of safetensors")
        header: Any = decode_loose_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError(f"{path} is no file of safetensors")
    for name, entry in header.items():
        if name != "__metadata__" and isinstance(entry, dict):
            shape = entry.get("shape")
            if isinstance(shape, list) and all(isinstance(n, int) for n in shape):
                yield Tensor(name, str(entry.get("dtype")), tuple(shape))


def of_shape(shape: Shape) -> list[Tensor]:
    """The tensors that such a model has, where no file says it: a transformer as of Llama and Qwen."""
    hidden, width = shape.hidden, shape.heads * shape.head_dim
    keys = shape.kv_heads * shape.head_dim
    found = [Tensor("embed_tokens.weight", "BF16", (shape.vocabulary, hidden))]
    found += [] if shape.tied else [Tensor(_HEAD, "BF16", (shape.vocabulary, hidden))]
    for layer in range(shape.layers):
        at = f"layers.{layer}"
        found += [Tensor(f"{at}.q_proj.weight", "BF16", (width, hidden))]
        found += [Tensor(f"{at}{name}", "BF16", (keys, hidden)) for name in _KV]
        found += [
            Tensor(f"{at}.o_proj.weight", "BF16", (hidden, width)),
            Tensor(f"{at}.norm", "BF16", (2 * hidden,)),
        ]
        if shape.experts:
            inner = (3, shape.experts, shape.expert_intermediate, hidden)
            found += [Tensor(f"{at}.experts", "BF16", inner)]
            found += [Tensor(f"{at}.gate.weight", "BF16", (shape.experts, hidden))]
        dense = shape.shared_intermediate if shape.experts else shape.intermediate
        found += [Tensor(f"{at}.mlp", "BF16", (3, dense, hidden))]
    return found


def weight_bytes(parts: Iterable[Tensor], shape: Shape, tensor: int, width: int) -> int:
    """Bytes of the weights on one GPU of ``tensor``. ``width``: bytes of a floating-point number (vllm.dtype)."""
    total = 0.0
    for part in parts:
        if shape.tied and part.name.endswith(_HEAD):
            continue
        size = part.numbers * (width if part.dtype in _FLOATS else _BYTES.get(part.dtype, 1))
        total += size / _split(part, shape, tensor)
    return math.ceil(total)


def _split(part: Tensor, shape: Shape, tensor: int) -> int:
    """Over how many GPUs vLLM splits a tensor."""
    if len(part.shape) < 2 or part.name.endswith(_WHOLE):
        return 1
    return min(tensor, shape.kv_heads) if part.name.endswith(_KV) else tensor


def parameters(parts: Iterable[Tensor], shape: Shape) -> int:
    """How many numbers the model has, each once."""
    return sum(part.numbers for part in parts if not (shape.tied and part.name.endswith(_HEAD)))
