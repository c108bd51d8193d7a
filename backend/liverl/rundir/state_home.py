"""The folders below ``$XDG_STATE_HOME/liverl``: where runs, their index and what the interface keeps are."""

from __future__ import annotations

import os
from pathlib import Path


def _state_home() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "liverl"


def default_run_root() -> Path:
    """Return the run root used unless the configuration sets one: ``$XDG_STATE_HOME/liverl/runs``."""
    return _state_home() / "runs"


def index_root() -> Path:
    """Return ``$XDG_STATE_HOME/liverl/index`` (default under ``~/.local/state``), which has one folder per
    host.

    It is next to the default run root, not in it, as a project may have the same name as a host.
    """
    return _state_home() / "index"


def interface_root() -> Path:
    """Return the directory for what the interface cannot write into a run directory."""
    return _state_home() / "interface"
