"""The run's data and agents, checked in an environment that did not exist when the preflight checks ran."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.config.sections.run import HARBOR
from liverl.plan.spec import Plan
from liverl.supervise.services.environments import Check

if TYPE_CHECKING:
    from liverl import model
    from liverl.config.schema import RunConfig

    _Checks = Callable[[Plan, RunConfig], Iterator[model.Check]]


def environment_checks(plan: Plan, config: Path) -> Mapping[str, Check]:
    """What is to be checked of the environments that the run builds, by their names. ``config``: the run's saved
    configuration."""
    if plan.topology == "managed":
        return {}

    async def data(_python: Path) -> str:
        from liverl.preflight import verl

        return await asyncio.to_thread(_fault, verl.own_run, plan, config)

    async def names(_python: Path) -> str:
        from liverl.preflight import harbor

        return await asyncio.to_thread(_fault, harbor.checks, plan, config)

    return {"verl": data, HARBOR: names}


def _fault(checks: _Checks, plan: Plan, saved: Path) -> str:
    """Those of the checks that fail, as one text; "" if none does."""
    from liverl.config import ConfigError
    from liverl.config.load import load_over

    try:
        config = load_over(saved, read_secrets=False).config
    except ConfigError as error:
        return f"the run's configuration cannot be read: {error}"
    if config.trainer.kind != "verl":
        return ""
    failed = [check for check in checks(plan, config) if check.status == "fail"]
    return "; ".join(f"{check.name}: {check.text}" for check in failed)
