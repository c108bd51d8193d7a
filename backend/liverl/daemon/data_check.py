"""The run's data and agents, checked in an environment that did not exist when the preflight checks ran."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from liverl.plan.spec import Plan
from liverl.rundir.layout import RunDir
from liverl.supervise.services.environments import Check


def environment_checks(plan: Plan, config: Path) -> Mapping[str, Check]:
    """What is to be checked of the environments that the run builds, by their names. ``config``: the run's saved
    configuration."""
    if all(spec.name == "self" for spec in plan.environments):
        return {}
    from liverl.preflight.registry import CHECKS

    def in_environment(name: str) -> Check:
        async def checked(_python: Path) -> str:
            return await asyncio.to_thread(_fault, name, plan, config)

        return checked

    return {entry.environment: in_environment(entry.environment) for entry in CHECKS if entry.environment}


def _fault(environment: str, plan: Plan, saved: Path) -> str:
    """Those of the checks in an environment that fail, as one text; "" if none does. All that they find replaces, in
    ``preflight.json``, that they could not look."""
    from liverl.config import ConfigError
    from liverl.config.load import load_over
    from liverl.preflight import run_checks
    from liverl.preflight.record import replaced
    from liverl.preflight.registry import CHECKS

    try:
        config = load_over(saved, read_secrets=False).config
    except ConfigError as error:
        return f"the run's configuration cannot be read: {error}"
    entries = [entry for entry in CHECKS if entry.environment == environment and entry.when(config)]
    if not entries:
        return ""
    checks = run_checks(plan, config, entries=entries)
    replaced(RunDir(Path(plan.run_dir)), checks)
    return "; ".join(f"{check.name}: {check.text}" for check in checks if check.status == "fail")
