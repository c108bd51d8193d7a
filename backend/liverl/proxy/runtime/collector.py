"""Collects garbage between the event loop's callbacks only, where the interpreter would do it inside any allocation.

Before 3.12 the collector may run while ``ContextVar.set`` builds the next state of a context. A finalizer that runs
then (a generator left at a ``yield`` whose ``finally`` resets a variable; LiteLLM has dozens of such variables)
replaces the state that is being read: freed memory from there on. A request fails with 500 and a ``ContextVar`` for a
text, or the proxy ends with a segmentation fault (https://github.com/python/cpython/issues/148891; the first was seen
about once in 2,000 requests). Since 3.12 the interpreter collects between instructions itself.
"""

from __future__ import annotations

import asyncio
import gc
import sys

NEEDED = sys.version_info < (3, 12)
PAUSE = 0.02  # seconds between two looks at what has been allocated


def hold() -> None:
    """Stop the automatic collection; call before any request, and start ``collect`` in the loop that serves."""
    if NEEDED:
        gc.disable()


async def collect() -> None:
    """Collect for ever, by the interpreter's own thresholds; what exists now is never looked at again."""
    if not NEEDED:
        return
    gc.collect()
    gc.freeze()  # modules, models and routes: a full collection would stop all requests for a second
    while True:
        await asyncio.sleep(PAUSE)
        due = [made > most > 0 for made, most in zip(gc.get_count(), gc.get_threshold(), strict=True)]
        if any(due):
            gc.collect(2 - due[::-1].index(True))
