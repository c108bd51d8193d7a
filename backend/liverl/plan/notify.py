"""The notification targets in the plan of a run."""

from __future__ import annotations

from liverl.config.schema import RunConfig
from liverl.config.secrets import FILE_SCHEME
from liverl.config.sections.notify import NotifyTarget as Configured
from liverl.plan.spec import NotifyPlan, NotifyTarget


def notify_plan(config: RunConfig) -> NotifyPlan:
    """Targets and events of a configuration; nothing without targets."""
    notify = config.notify
    if not notify.targets:
        return NotifyPlan()
    return NotifyPlan(
        tuple(map(_target, notify.targets)),
        tuple(dict.fromkeys(notify.events)),
        notify.min_level if "alert" in notify.events else "critical",
        notify.timeout,
    )


def _target(target: Configured) -> NotifyTarget:
    if target.command is not None:
        return NotifyTarget("command", words=target.command)
    kind = "webhook" if target.webhook else "apprise"
    return NotifyTarget(kind, file=getattr(target, kind).removeprefix(FILE_SCHEME))  # type: ignore[arg-type]
