"""JSON files of the embedded run, replaced in one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from liverl.util.atomic_file import write_atomic


def write_json(path: Path, value: Any, *, sync: bool = False) -> None:
    """``write_atomic`` of ``value`` as JSON; NaN and infinities become null."""
    write_atomic(path, msgspec.json.encode(value) + b"\n", sync=sync)
