"""A second look right before the trainer starts: environments were built and replicas started since the checks before
the run, and by now somebody else may hold a port or a GPU, or have filled the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.daemon.run_supervisor import RunSupervisor
from liverl.model import Cause, Check
from liverl.plan.spec import Plan
from liverl.rundir.layout import RunDir
from liverl.supervise.services.failpoints import blockpoint
from liverl.supervise.services.instance import Instance
from liverl.util.blocking_call import BlockingCalls

if TYPE_CHECKING:
    from liverl.preflight.subject import Ours

_PAUSE = 0.1  # seconds until a stop of the run is seen that comes during the look
_NAME = "second look"


class SecondLooks:
    """Makes those checks again that are marked as changing (``preflight.registry``) before the first start of the
    trainer in an attempt. They run in threads of their own, with their time-outs."""

    def __init__(self, supervisor: RunSupervisor) -> None:
        self._supervisor = supervisor
        self._calls = BlockingCalls[list[Check]]()

    async def before(self, instance: Instance) -> Cause | None:
        """Look, if this is the trainer's first start; tell as events what is not ok and was not told before the run.
        Returns why it must not start: what fails; None if it may."""
        supervisor, plan = self._supervisor, self._supervisor.plan
        slot = supervisor.slots.get(instance.name)
        # A restart is no start of a run: the GPUs of the process before it may not be free yet.
        if slot is None or not instance.spec.ends_run or instance.role != "current" or slot.restarts:
            return None
        ours = _ours(supervisor)
        look = asyncio.ensure_future(
            self._calls.call(lambda: looked(plan, supervisor.attempt, ours), seconds=None)
        )
        while not look.done():
            if supervisor.stopping or instance.machine.state != "preparing":
                look.cancel()  # its thread ends by itself, and keeps nothing from ending
                return None
            await asyncio.wait([look], timeout=_PAUSE)
        news = look.result()
        failed = [check for check in news if check.status == "fail"]
        for check in news:
            if check.status != "fail":
                fix = f". {check.fix}" if check.fix else ""
                text = f"{check.name}: {check.text}{fix} (looked at again before {instance.name} starts)"
                supervisor.say(
                    "preflight", text, "warning", instance.name, check=check.id, status=check.status
                )
        return _cause(instance.name, failed, supervisor.now()) if failed else None


def looked(plan: Plan, attempt: int, ours: Ours) -> list[Check]:
    """Make the checks that change, add them to ``preflight.json``, and return those that are not ``ok``, without what
    was found just so before the run started. ``ours``: what the run holds by now. Blocks."""
    from liverl.config import ConfigError
    from liverl.config.load import load_over
    from liverl.preflight import run_checks
    from liverl.preflight.record import looked_again, read
    from liverl.preflight.registry import CHECKS

    blockpoint("second_look")
    run = RunDir(Path(plan.run_dir))
    first = read(run)
    if first is None and not run.config.exists():
        return []  # nothing was checked before it started, and nothing can be
    try:
        config = load_over(run.config, read_secrets=False).config
    except ConfigError as error:
        words = f"the run's configuration cannot be read: {error}"
        checks = [Check(_NAME, "skipped", words, _NAME.replace(" ", "-"))]
    else:
        entries = [entry for entry in CHECKS if entry.changes]
        checks = run_checks(plan, config, entries=entries, ours=ours)
    looked_again(run, attempt, checks)
    return news(checks, first.checks if first is not None else ())


def news(checks: Iterable[Check], before: Iterable[Check]) -> list[Check]:
    """Those of ``checks`` that are not ``ok``, and were not found just so ``before``. What fails is always news."""
    known = list(before)
    return [
        check for check in checks if check.status == "fail" or (check.status != "ok" and check not in known)
    ]


def _ours(supervisor: RunSupervisor) -> Ours:
    from liverl.preflight.subject import Ours

    members = {name: frozenset(pids) for name, pids in supervisor.process_scan.members().items()}
    manager = supervisor.keeper_manager
    return Ours(
        members,
        dict(supervisor.ledger.holders),
        manager.held_ports(),
        manager.held_hosts(),
        supervisor.attempt,
    )


def _cause(service: str, failed: Sequence[Check], now: float) -> Cause:
    """The checks' own sentences, fixes and patches, as the cause of the attempt's end."""
    return Cause(
        service,
        "was not started: " + "; ".join(f"{check.name}: {check.text}" for check in failed),
        now,
        fix="; ".join(check.fix for check in failed if check.fix),
        patch={key: value for check in failed for key, value in check.patch.items()},
        evidence=tuple(evidence for check in failed for evidence in check.evidence),
        guess=any(check.guess for check in failed),
    )
