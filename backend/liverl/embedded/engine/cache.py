"""Scheduling and the prefix cache: who runs, who waits, and which prompt tokens were seen before.

As in vLLM a block is 16 tokens and is known by the hash of all tokens up to its end; the last prompt token is
always computed. Blocks that no running request holds are evicted least recently used first.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Sequence

BLOCK = 16  # tokens; vLLM's default block size


class Slot:
    """What one running request holds: a seat in the batch and its blocks."""

    def __init__(self, needed: int, cached_tokens: int) -> None:
        self.needed = needed
        self.cached_tokens = cached_tokens
        self.admitted = time.monotonic()


class Scheduler:
    """At most ``max_seqs`` requests run, within ``num_blocks`` blocks; the others queue in order."""

    def __init__(self, max_seqs: int, num_blocks: int, *, caching: bool) -> None:
        self.max_seqs, self.num_blocks, self.caching = max_seqs, num_blocks, caching
        self.running = 0
        self.held = 0  # blocks reserved by running requests
        self.queries = 0  # tokens looked up
        self.hits = 0  # tokens found
        self._known: OrderedDict[int, None] = OrderedDict()
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        return sum(not future.cancelled() for _, future in self._waiters)

    @property
    def usage(self) -> float:
        return self.held / self.num_blocks

    async def admit(self, prompt: Sequence[int], max_new_tokens: int) -> Slot:
        """Wait for a seat and for room; then look the prompt up. Every slot must be released."""
        needed = min(-(-(len(prompt) + max_new_tokens) // BLOCK), self.num_blocks)
        if self.waiting or not self._fits(needed):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((needed, future))
            try:
                await future
            except asyncio.CancelledError:
                if future.cancelled():
                    self._wake()  # it may have stood in front of one that fits
                else:
                    self._give_back(needed)
                raise
        else:
            self._take(needed)
        cached = 0
        if self.caching:
            self.queries += len(prompt)
            usable = (len(prompt) - 1) // BLOCK
            for block in _block_hashes(prompt)[:usable]:
                if block not in self._known:
                    break
                cached += BLOCK
            self.hits += cached
        return Slot(needed, cached)

    def release(self, slot: Slot, tokens: Sequence[int] | None) -> None:
        """Give the seat back; ``tokens`` (prompt and reply) stay cached, None = nothing was computed."""
        if tokens is not None and self.caching:
            for block in _block_hashes(tokens):
                self._known[block] = None
                self._known.move_to_end(block)
            while len(self._known) > self.num_blocks:
                self._known.popitem(last=False)
        self._give_back(slot.needed)

    def reset(self) -> None:
        """Forget every cached block: its keys and values belong to other weights."""
        self._known.clear()

    def _fits(self, needed: int) -> bool:
        return self.running < self.max_seqs and self.held + needed <= self.num_blocks

    def _take(self, needed: int) -> None:
        self.running += 1
        self.held += needed

    def _give_back(self, needed: int) -> None:
        self.running -= 1
        self.held -= needed
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            needed, future = self._waiters[0]
            if not future.cancelled():
                if not self._fits(needed):
                    return
                self._take(needed)
                future.set_result(None)
            self._waiters.popleft()


def _block_hashes(tokens: Sequence[int]) -> list[int]:
    hashes, parent = [], 0
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        parent = hash((parent, tuple(tokens[start : start + BLOCK])))
        hashes.append(parent)
    return hashes
