"""Keys and values: rows of a padded block for running requests, and prefixes of finished ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Kept(NamedTuple):
    """Tokens of a finished request and their keys and values, of shape (layer, head, position, width)."""

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
        """Return a copy of the keys and values of ``tokens`` in ``row``."""
        count = len(tokens)
        keys, values = (block[:, row, :, :count].clone() for block in (self.keys, self.values))
        return Kept(torch.tensor(tokens), keys, values)

    def restore(self, row: int, kept: Kept, count: int) -> None:
        """Fill the first ``count`` positions of ``row`` from ``kept``."""
        self.keys[:, row, :, :count] = kept.keys[:, :, :count]
        self.values[:, row, :, :count] = kept.values[:, :, :count]


class Window:
    """View of a block in one forward pass, with the two cache methods that transformers' models call.

    The pass computes ``count`` new positions per row, beginning at ``starts`` (one per row), for the rows
    from ``first`` on.
    """

    def __init__(self, block: Block, first: int, starts: torch.Tensor, count: int) -> None:
        self._block = block
        self._first, self._last = first, first + len(starts)
        self._rows = torch.arange(first, self._last)[:, None]
        self.positions = starts[:, None] + torch.arange(count)
        self._seen: int = int(self.positions.max()) + 1
        self._count = count
        # True where position (row, query) may attend to position (row, key).
        self.mask = (torch.arange(self._seen) <= self.positions[..., None])[:, None]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new keys and values of a layer; return all that the pass may attend to."""
        visible = []
        for block, states in ((self._block.keys, key_states), (self._block.values, value_states)):
            block[layer_idx][self._rows, :, self.positions] = states.transpose(1, 2)
            visible.append(block[layer_idx, self._first : self._last, :, : self._seen])
        return visible[0], visible[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of earlier positions in the longest row."""
        return self._seen - self._count


class Prefixes:
    """The newest ``capacity`` finished requests, looked up by the longest common prefix of tokens."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: list[Kept] = []

    def clear(self) -> None:
        """Drop all entries."""
        self._kept.clear()

    def add(self, kept: Kept) -> None:
        """Add an entry and drop the oldest ones beyond the capacity."""
        self._kept.append(kept)
        del self._kept[: -self._capacity]

    def find(self, tokens: Sequence[int]) -> tuple[Kept | None, int]:
        """Return the entry with the longest common prefix, and its length, leaving at least one token to
        compute."""
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
