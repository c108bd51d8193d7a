"""Paths on this machine that several packages share. Pure: nothing here accesses the file system."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def default_cache_dir(env: Mapping[str, str] | None = None) -> Path:
    """Return ``$LIVERL_CACHE_DIR``, else ``$XDG_CACHE_HOME/liverl``, else ``~/.cache/liverl``."""
    env = os.environ if env is None else env
    if env.get("LIVERL_CACHE_DIR"):
        return Path(env["LIVERL_CACHE_DIR"]).expanduser()
    if os.path.isabs(env.get("XDG_CACHE_HOME", "")):  # the XDG specification ignores relative paths
        return Path(env["XDG_CACHE_HOME"]) / "liverl"
    return Path("~/.cache/liverl").expanduser()
