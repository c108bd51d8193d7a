"""What a checkpoint's config.json says about tensor parallelism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from liverl.util.decode import decode_loose_json
from liverl.util.regular_file import open_binary

_MAX_BYTES = 4 << 20
# Where a model of text and something else keeps the numbers of its text part, the most usual first.
_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")
_DEPTH = 3  # of such sections in each other
_ATTENTION = ("num_attention_heads", "n_head", "n_heads")
_KEY_VALUE = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
# One or few key-value heads, whose number has another name.
_SHARED = ("multi_query", "multi_query_attention")


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

    def sequence_problem(self, sequence_parallel: int) -> str:
        """Why verl cannot split sequences of this model over ``sequence_parallel`` GPUs; "" = it can, or the heads are
        unknown. With Ulysses each gets a share of the heads, and key-value heads are repeated where there are fewer.
        Source: the assertions of verl's ``apply_monkey_patch``."""
        if self.attention is not None and self.attention % sequence_parallel:
            return f"{self.attention} attention heads are not divisible by {sequence_parallel}"
        few = self.key_value
        if few is not None and few % sequence_parallel and sequence_parallel % few:
            return f"{few} key-value heads are neither divisible by {sequence_parallel} nor a divisor of it"
        return ""

    def replicated(self, tensor_parallel: int) -> bool:
        """Whether the only problem is that vLLM replicates key-value heads."""
        few = self.key_value
        divides = self.attention is None or self.attention % tensor_parallel == 0
        return divides and few is not None and few < tensor_parallel and tensor_parallel % few == 0

    def divisors(self) -> tuple[int, ...]:
        """The sizes over which the model can be split, ascending; () = its heads are unknown."""
        known = [number for number in (self.attention, self.key_value) if number is not None]
        return tuple(n for n in range(1, min(known) + 1) if not any(k % n for k in known)) if known else ()


def read_heads(config: Path) -> Heads:
    """The heads in a ``config.json``; of a model for text and pictures, those of its text part.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON mapping.
    """
    with open_binary(config) as file:
        return heads_of(file.read(_MAX_BYTES))


def heads_of(text: bytes) -> Heads:
    """The heads in the text of a ``config.json``.

    Raises:
        ValueError: it is no JSON mapping.
    """
    data: Any = decode_loose_json(text)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    for section in sections(data):
        attention = _number(section, _ATTENTION)
        if attention is not None:
            shared = any(section.get(name) for name in _SHARED)
            return Heads(attention, _number(section, _KEY_VALUE) or (None if shared else attention))
    return Heads()


def sections(data: Mapping[str, Any], depth: int = _DEPTH) -> Iterator[Mapping[str, Any]]:
    """The sections of a config.json for text, innermost first, then the whole."""
    for name in _SECTIONS if depth else ():
        inner = data.get(name)
        if isinstance(inner, dict):
            yield from sections(inner, depth - 1)
    yield data


def _number(section: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    found = (section.get(name) for name in names)
    return next((n for n in found if isinstance(n, int) and not isinstance(n, bool) and n > 0), None)
