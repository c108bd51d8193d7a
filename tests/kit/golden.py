"""The stored ``plan --json`` of each profile, and the command that stores it anew and prints what changed:

PYTHONPATH=tests .venv/bin/python -m kit.golden
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import liverl
from liverl.config import list_profiles
from liverl_tui.cli import main as cli
from liverl_tui.cli import plan

COMMAND = "PYTHONPATH=tests .venv/bin/python -m kit.golden"
FOLDER = Path(__file__).parents[1] / "data" / "golden" / "plan"
PROFILES = list_profiles()
HOME = "/home/user"
_PACKAGE = str(Path(liverl.__file__).parent)


def stored_at(profile: str) -> Path:
    return FOLDER / f"{profile}.json"


def planned(profile: str, env: Mapping[str, str] | None = None) -> str:
    """What ``plan --json`` prints for a profile under ``env`` and no other variable, with the places of this machine
    named. The run's directory is given, so that nothing else depends on the machine."""
    env = {"HOME": HOME} if env is None else env
    told = io.StringIO()
    arguments = ["plan", "--json", "--profile", profile, "--name", "golden", "--run-root", "/runs"]
    # Checks look at the machine.
    unseen = mock.patch.object(plan, "checks_of", return_value=[])
    with unseen, mock.patch.dict(os.environ, env, clear=True), contextlib.redirect_stdout(told):
        code = cli.run(arguments)
    assert code == 0, f"plan --profile {profile} ended with {code}"
    return told.getvalue().replace(_PACKAGE, "<package>").replace(env["HOME"], "<home>")


def changes(profile: str, now: str) -> str:
    """A unified diff from the stored plan to ``now``; empty where they are equal."""
    path = stored_at(profile)
    before = path.read_text() if path.exists() else ""
    lines = difflib.unified_diff(
        before.splitlines(), now.splitlines(), f"stored {profile}", f"planned {profile}", lineterm=""
    )
    return "\n".join(lines)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for profile in PROFILES:
        now = planned(profile)
        print(changes(profile, now) or f"{profile}: unchanged")
        stored_at(profile).write_text(now)
    for path in FOLDER.glob("*.json"):
        if path.stem not in PROFILES:
            print(f"{path.stem}: no such profile any more, removed")
            path.unlink()


if __name__ == "__main__":
    main()
