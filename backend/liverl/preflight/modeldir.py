"""What a checkpoint's config.json says about tensor parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from liverl.util.decode import decode_loose_json
from liverl.util.regular_file import open_binary

_MAX_BYTES = 4 << 20


class Heads(msgspec.Struct, frozen=True):
    """Attention heads of a model; None = its config.json does not say."""

    attention: int | None = None
    key_value: int | None = None

    def problem(self, tensor_parallel: int) -> str:
        """Why the model cannot be split over ``tensor_parallel`` GPUs; "" = it can, or the heads are unknown."""
        if self.attention is not None and self.attention % tensor_parallel:
            return f"{self.attention} attention heads are not divisible by {tensor_parallel}"
        few = self.key_value
        if few is not None and few % tensor_parallel and tensor_parallel % few:
            return f"{few} key-value heads are not divisible by {tensor_parallel}"
        if few is not None and few % tensor_parallel:
            return (
                f"{few} key-value heads are fewer than {tensor_parallel}: vLLM replicates them, and some "
                f"kernels then fail with "
                "'an illegal memory access was encountered'"
            )
        return ""


def read_heads(config: Path) -> Heads:
    """The heads in a ``config.json``; of a model for text and pictures, those of its text part.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON mapping.
    """
    with open_binary(config) as file:
        data: Any = decode_loose_json(file.read(_MAX_BYTES))
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    inner = data.get("text_config")
    section = inner if isinstance(inner, dict) else data

    def number(key: str) -> int | None:
        value = section.get(key)
        return value if isinstance(value, int) and value > 0 else None

    attention = number("num_attention_heads")
    return Heads(attention, number("num_key_value_heads") or attention)
