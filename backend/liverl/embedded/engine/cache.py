"""Request scheduling and the prefix cache.

As in vLLM, a block has 16 tokens and is identified by the hash of all tokens up to its end; the last prompt
token is always computed. Blocks held by no running request are evicted least recently used first.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Sequence

BLOCK = 16  # tokens; vLLM's default block size


class Slot:
    """The batch slot and cache blocks of one running request."""

    def __init__(self, needed: int, cached_tokens: int) -> None:
        self.needed = needed
        self.cached_tokens = cached_tokens
        self.admitted = time.monotonic()


class Scheduler:
    """Runs at most ``max_seqs`` requests within ``num_blocks`` blocks; the others wait in order."""

    def __init__(self, max_seqs: int, num_blocks: int, *, caching: bool) -> None:
        self.max_seqs, self.num_blocks, self.caching = max_seqs, num_blocks, caching
        self.running = 0
        self.held = 0  # blocks reserved by running requests
        self.queries = 0  # tokens looked up in the prefix cache
        self.hits = 0  # of these, tokens that were cached
        self._known: OrderedDict[int, None] = OrderedDict()
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """Number of queued requests."""
        return sum(not future.cancelled() for _, future in self._waiters)

    @property
    def usage(self) -> float:
        """Share of the blocks reserved by running requests, 0..1."""
        return self.held / self.num_blocks

    async def admit(self, prompt: Sequence[int], max_new_tokens: int) -> Slot:
        """Wait for a free slot and enough blocks, then look the prompt up. Every slot must be released."""
        needed = min(-(-(len(prompt) + max_new_tokens) // BLOCK), self.num_blocks)
        if self.waiting or not self._fits(needed):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((needed, future))
            try:
                await future
            except asyncio.CancelledError:
                if future.cancelled():
                    self._wake()  # a request behind this one may fit now
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
        """Release a slot. ``tokens`` (prompt and reply) stay cached; None if nothing was computed."""
        if tokens is not None and self.caching:
            for block in _block_hashes(tokens):
                self._known[block] = None
                self._known.move_to_end(block)
            while len(self._known) > self.num_blocks:
                self._known.popitem(last=False)
        self._give_back(slot.needed)

    def reset(self) -> None:
        """Drop all cached blocks: their keys and values were computed with other weights."""
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
