"""The command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

MAIN = (sys.executable, "-m", "liverl_tui.cli.main")


def run_cli(
    *args: object, command: Sequence[str] = MAIN, seconds: float = 120.0, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command without input and return what it printed. ``env``: variables in addition to ours."""
    return subprocess.run(
        [*command, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **env},
    )
