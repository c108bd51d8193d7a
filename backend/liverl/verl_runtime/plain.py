"""Values of a parquet file as plain ones, which JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """``value`` without numpy and torch: arrays and tensors are lists, their numbers Python's. What has no plain form
    is its text."""
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)  # numpy's float64 is a float, which JSON cannot hold
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(one) for one in value]
    listed = getattr(value, "tolist", None)  # an array, a number of numpy's, a tensor
    return plain(listed()) if callable(listed) else str(value)
