"""``proxy/status.<generation>.json``: what this generation serves and counts, for its supervisor."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .files import replace

COUNTS_EVERY = 1.0  # seconds between two writes for counters alone
_COUNTS = frozenset(
    {
        "connections",
        "in_flight",
        "requests",
        "failures",
        "unattributed",
        "overridden",
        "refused",
        "too_large",
        "turned_away",
        "dropped",
        "descriptors",
        "clients",
    }
)


class StatusFile:
    """Replaced atomically: at once if anything but a counter changed, otherwise at most once a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[str, Any] | None = None
        self._at = 0.0  # monotonic seconds of the last write
        self._failed = False

    def update(self, facts: Mapping[str, Any], at_once: bool = False) -> None:
        """Write ``facts`` if they changed; ``at_once``: even if nothing but counters changed within the last
        second."""
        if self._written is not None and not at_once:
            changed = {key for key, value in facts.items() if self._written.get(key) != value}
            if not changed or (changed <= _COUNTS and time.monotonic() - self._at < COUNTS_EVERY):
                return
        text = json.dumps({**facts, "at": round(time.time(), 3)}, separators=(",", ":"))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace(self._path, text.encode())
        except OSError as error:
            if not self._failed:
                print(
                    f"liverl-proxy: cannot write {self._path}: {error.strerror}", file=sys.stderr, flush=True
                )
            self._failed = True
            return
        self._failed = False
        self._written = dict(facts)
        self._at = time.monotonic()
