"""The run's data and agents, checked in an environment that did not exist when the preflight checks ran."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from liverl.plan.spec import Plan
from liverl.supervise.services.environments import Check


def environment_checks(plan: Plan, config: Path) -> Mapping[str, Check]:
    """What is to be checked of the environments that the run builds, by their names. ``config``: the run's saved
    configuration."""

    async def check(_python: Path) -> str:
        return await asyncio.to_thread(_fault, plan, config)

    return {"verl": check} if plan.topology != "managed" else {}


def _fault(plan: Plan, saved: Path) -> str:
    """The checks of verl's data, agents and reward that fail, as one text; "" if none does."""
    from liverl.config import ConfigError
    from liverl.config.load import load_over
    from liverl.preflight import verl

    try:
        config = load_over(saved, read_secrets=False).config
    except ConfigError as error:
        return f"the run's configuration cannot be read: {error}"
    if config.trainer.kind != "verl":
        return ""
    failed = [check for check in verl.own_run(plan, config) if check.status == "fail"]
    return "; ".join(f"{check.name}: {check.text}" for check in failed)
