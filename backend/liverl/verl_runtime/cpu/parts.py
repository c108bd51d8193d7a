"""Weights in parts of limited size, as both ways of a weight update send them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import torch
from verl.workers.rollout.utils import ensure_async_iterator


async def parts_of(weights: Any, limit: int) -> AsyncIterator[tuple[dict[str, torch.Tensor], bool]]:
    """Yield parts of at most ``limit`` bytes, each with whether it is the last; a larger tensor is a part of its own.

    ``weights``: an iterator or asynchronous iterator of names and tensors; without any, the only part is empty.
    """
    part: dict[str, torch.Tensor] = {}
    held = 0
    async for name, tensor in ensure_async_iterator(weights):
        if held and held + tensor.nbytes > limit:
            yield part, False
            part, held = {}, 0
        part[name] = tensor.detach().to("cpu")
        held += tensor.nbytes
    yield part, True
