"""One live run seen by ``watch`` and by ``attach``: what both must say of it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from kit.cli import MAIN, run_cli

_OF_STEP = ("step", "total", "finished", "zero_tool_calls", "mean_reward", "calling")
_OF_ALL = ("total", "running", "finished", "zero_tool_calls", "cut_off")


def up(folder: Path, *words: object) -> subprocess.Popen[bytes]:
    """Start a run in ``folder``/runs. Its script sees RELEASE, a file that comes when it may end."""
    env = {**os.environ, "LIVERL_RUN__RUN_ROOT": str(folder / "runs"), "RELEASE": str(folder / "release")}
    with (folder / "up.log").open("wb") as log:
        command = [*MAIN, "up", "--no-ui", "--yes", "--name", "exp", *map(str, words)]
        return subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log)


def told(document: dict[str, Any]) -> dict[str, Any]:
    """What both must say of the run itself."""
    trials = document["trials"]
    heads = [(head["name"], head["turns"], head["tool_calls"], head["flags"]) for head in trials["newest"]]
    return {
        "step": document["step"],
        "total_steps": document["total_steps"],
        "unreadable": document["unreadable"],
        "metrics": document["metrics"],
        "steps": [{name: step[name] for name in _OF_STEP} for step in trials["steps"]],
        "trials": {name: trials[name] for name in _OF_ALL},
        "heads": sorted(heads),
        "alerts": sorted((one["id"], one["title"]) for one in document["symptoms"]),
    }


def watched(*words: object) -> dict[str, Any]:
    """What ``watch`` sees now."""
    found: dict[str, Any] = json.loads(run_cli("watch", *words, "--once", "--json").stdout)
    return found


def attached(run: Path) -> dict[str, Any]:
    """What the run's own backend says now."""
    found: dict[str, Any] = json.loads(run_cli("status", run, "--json").stdout)
    return found
