"""Keys and values: rows of one padded block for running requests, and prefixes kept of finished ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Kept(NamedTuple):
    """What a finished request leaves: its tokens, and their keys and values (layer, head, position, width)."""

    tokens: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


class Block:
    """Keys and values of ``rows`` requests with up to ``length`` tokens each."""

    def __init__(self, layers: int, heads: int, width: int, rows: int, length: int) -> None:
        self.keys = torch.zeros(layers, rows, heads, length, width)
        self.values = torch.zeros_like(self.keys)

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy the first ``tokens`` positions of one row to another."""
        for block in (self.keys, self.values):
            block[:, target, :, :tokens] = block[:, source, :, :tokens]

    def keep(self, row: int, tokens: Sequence[int]) -> Kept:
        count = len(tokens)
        keys, values = (block[:, row, :, :count].clone() for block in (self.keys, self.values))
        return Kept(torch.tensor(tokens), keys, values)

    def restore(self, row: int, kept: Kept, count: int) -> None:
        """Fill the first ``count`` positions of ``row`` from ``kept``."""
        self.keys[:, row, :, :count] = kept.keys[:, :, :count]
        self.values[:, row, :, :count] = kept.values[:, :, :count]


class Window:
    """What one forward pass sees of a block; the two methods that transformers' models call on a cache.

    The pass computes ``count`` new positions from ``starts`` on, one start per row, rows ``first`` and on.
    """

    def __init__(self, block: Block, first: int, starts: torch.Tensor, count: int) -> None:
        self._block = block
        self._first, self._last = first, first + len(starts)
        self._rows = torch.arange(first, self._last)[:, None]
        self.positions = starts[:, None] + torch.arange(count)
        self._seen: int = int(self.positions.max()) + 1
        self._count = count
        # True where position (row, query) may look at position (row, key).
        self.mask = (torch.arange(self._seen) <= self.positions[..., None])[:, None]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new keys and values of a layer; returns all that the pass may look at."""
        found = []
        for block, states in ((self._block.keys, key_states), (self._block.values, value_states)):
            block[layer_idx][self._rows, :, self.positions] = states.transpose(1, 2)
            found.append(block[layer_idx, self._first : self._last, :, : self._seen])
        return found[0], found[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions before this pass, in the longest row."""
        return self._seen - self._count


class Prefixes:
    """The newest ``capacity`` finished requests, looked up by the longest common prefix of tokens."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: list[Kept] = []

    def clear(self) -> None:
        self._kept.clear()

    def add(self, kept: Kept) -> None:
        self._kept.append(kept)
        del self._kept[: -self._capacity]

    def find(self, tokens: Sequence[int]) -> tuple[Kept | None, int]:
        """The entry that shares the most leading tokens, and how many: at least one token is left to compute."""
        wanted = torch.tensor(tokens[:-1])
        best: Kept | None = None
        longest = 0
        for kept in reversed(self._kept):
            both = min(len(wanted), len(kept.tokens))
            differ = (wanted[:both] != kept.tokens[:both]).nonzero()
            shared = int(differ[0]) if len(differ) else both
            if shared > longest:
                best, longest = kept, shared
        return best, longest
