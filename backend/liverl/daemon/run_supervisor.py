"""The supervisor of a run: with what knows why processes ended, which GPUs are free, and what replicas must answer."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

from liverl.daemon.end_causes import EndCauses
from liverl.daemon.run_catalogue import matcher_of
from liverl.observe.gpu.ledger import GpuLedger
from liverl.plan.spec import Plan
from liverl.sandboxes import bridge
from liverl.sessions.routes import check_routes
from liverl.supervise.services.supervisor import Supervisor


class RunSupervisor(Supervisor):
    """``options``: as for ``Supervisor``."""

    end_causes: EndCauses
    ledger: GpuLedger

    def __init__(self, plan: Plan, run_dir: Path, attempt: int, scan_interval: float, **options: Any) -> None:
        super().__init__(
            plan,
            run_dir,
            attempt,
            scan_interval,
            ledger=GpuLedger(),
            ends=_end_causes,
            token_routes=partial(check_routes, sample=True),
            addresses=partial(_address, plan),
            **options,
        )


async def _address(plan: Plan, host: str) -> tuple[str, str]:
    """The address of ``plan.spec.BRIDGE``: the gateway of the daemon that the trainer's variables name."""
    from liverl.preflight.subject import variables_of

    trainer = next((service for service in plan.services if service.ends_run), None)
    env = variables_of(trainer, os.environ) if trainer is not None else dict(os.environ)
    if plan.settings.docker_host:
        env["DOCKER_HOST"] = plan.settings.docker_host
    return await asyncio.to_thread(bridge.address, env)


def _end_causes(supervisor: Supervisor) -> EndCauses:
    return EndCauses(
        supervisor.run_dir,
        supervisor.records,
        supervisor.instances,
        supervisor.now,
        supervisor.oom_kills,
        matcher_of(supervisor.plan, supervisor.records.cannot_read),
    )
