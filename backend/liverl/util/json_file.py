"""Atomic writes of JSON files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from liverl.util.atomic_file import write_atomic
from liverl.util.checked_path import StrPath
from liverl.util.unicode_text import encode_json


def write_json(path: Path, value: Any, *, sync: bool = False, inside: StrPath | None = None) -> None:
    """Atomically replace ``path`` by ``value`` as one line of JSON; see ``encode_json``. ``inside``: see
    ``write_atomic``.

    Raises:
        OSError: see ``write_atomic``.
        TypeError: ``value`` cannot be encoded.
    """
    write_atomic(path, encode_json(value) + b"\n", sync=sync, inside=inside)
