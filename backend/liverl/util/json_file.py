"""Atomic writes of JSON files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from liverl.util.atomic_file import write_atomic


def write_json(path: Path, value: Any, *, sync: bool = False) -> None:
    """Atomically replace ``path`` by ``value`` as one line of JSON; NaN and infinities become null.

    Raises:
        OSError: see ``write_atomic``.
        TypeError: ``value`` cannot be encoded.
    """
    write_atomic(path, msgspec.json.encode(value) + b"\n", sync=sync)
