"""Writing files so that a reader sees the old content or the new, never half."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec


def write_atomic(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Replace ``path`` by ``data``; ``sync`` also puts it on the disk first. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)


def write_json(path: Path, value: Any, *, sync: bool = False) -> None:
    """``write_atomic`` of ``value`` as JSON; NaN and infinities become null."""
    write_atomic(path, msgspec.json.encode(value) + b"\n", sync=sync)
