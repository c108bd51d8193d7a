"""Plans of a fixed user on a fixed machine, and how to look something up in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from liverl.config import load_config, resolved
from liverl.plan import make_plan
from liverl.plan.spec import Plan, ServiceSpec

RUN_DIR = Path("/runs/p/n")


def plan_of(
    *sets: str, profile: str = "cpu-verl", run_dir: Path = RUN_DIR, env: Mapping[str, str] | None = None
) -> Plan:
    """The plan of a profile with some keys set."""
    env = {"HOME": "/home/u", **(env or {})}
    loaded = load_config(profile=profile, sets=["run.name=n", *sets], env=env)
    config = resolved(loaded.config, env=env, cwd=Path("/w"), now=0.0)
    return make_plan(replace(loaded, config=config), run_dir)


def service(plan: Plan, name: str) -> ServiceSpec:
    return next(s for s in plan.services if s.name == name)


def replica(plan: Plan) -> ServiceSpec:
    assert plan.replica_template is not None
    return plan.replica_template


def flags(argv: tuple[str, ...], start: int) -> dict[str, str | None]:
    """The options from ``argv[start]`` on: flag -> its value, or None for a switch. Each may stand once."""
    found: dict[str, str | None] = {}
    last = ""
    for word in argv[start:]:
        if word.startswith("--"):
            assert word not in found, f"{word} stands twice"
            last, found[word] = word, None
        else:
            assert last and found[last] is None, f"{word!r} belongs to no flag"
            found[last] = word
    return found
