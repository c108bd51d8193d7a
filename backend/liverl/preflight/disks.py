"""On which file system each environment is: imports from a network's disk are slow in each of the run's processes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from liverl.config.schema import RunConfig
from liverl.environments.local_copy import NEVER
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.interpreter import environments_of
from liverl.util.file_systems import file_system

NAME = "disk of environment"
# Measured by LiveRL's documents on CPFS: 8.7 s in place of 1.8 s.
_COST = "importing torch from there takes about five times as long, in each process, at each start"


def checks(plan: Plan, config: RunConfig) -> Iterator[Check]:
    """One check for each environment that is there, or will be built, and that of a launch script."""
    for spec, place in environments_of(plan):
        if place.kind != "own":
            root = place.python.parent.parent
            key = f"environments.{spec.name}.local_copy"
            known = spec.name in config.environments
            yield _disk(spec.name, root, key if known else "", copied=spec.local_copy != NEVER)
    script = next((s for s in plan.services if s.ends_run), None)
    if plan.script is not None and script is not None and (venv := script.env.get("VENV_PATH")):
        yield _disk("the launch script", Path(venv), "", copied=False)


def _disk(name: str, root: Path, key: str, *, copied: bool) -> Check:
    title = f"{NAME} {name}"
    there = next((path for path in (root, *root.parents) if path.exists()), None)
    disk = file_system(there) if there is not None else None
    if disk is None:
        return Check(title, "skipped", f"{root}: its file system is not known")
    if not disk.network:
        return Check(title, "ok", f"{root}: {disk}")
    if copied:
        return Check(title, "ok", f"{root}: {disk}; a copy on a local disk is started ({key})")
    by_hand = f"liverl-tui envs localize {shlex.quote(str(root))}"
    fix = (
        f"set {key}: true, which copies it at each start; by hand: {by_hand}"
        if key
        else f"copy it: {by_hand}"
    )
    patch = {key: "true"} if key else {}
    return Check(title, "warn", f"{root} is on {disk}: {_COST}", fix=fix, patch=patch)
