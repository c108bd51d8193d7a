"""Which alerts say that something has failed. Imported at the start of the interface, so it imports nothing of the
rules."""

from __future__ import annotations

from liverl.model import Cause

RUN = "run_failed"
_SERVICE = ("service_failed", "service_gave_up")
_ENDS = ("service_", f"{RUN}:")  # how the ids of alerts begin that tell of an end, and of no reason
# How the ids of alerts begin that tell of what processes of a host share, or of a complaint in a log
_SHARED = ("disk_", "memory_", "process_", "gpu", "ray", "log:")
_FAILED = tuple(f"{rule}:" for rule in (RUN, *_SERVICE))


def ids_for(cause: Cause | None) -> tuple[str, ...]:
    """The ids of the alerts that say what the result's cause says."""
    return () if cause is None else tuple(f"{rule}:{cause.service}" for rule in (RUN, *_SERVICE))


def is_end(alert: str) -> bool:
    """Whether the alert with this id only tells that something has ended; its reason may be another alert."""
    return alert.startswith(_ENDS)


def is_failure(alert: str) -> bool:
    """Whether the alert with this id says that a service, or the run, has failed for good."""
    return alert.startswith(_FAILED)


def may_end_a_replica(alert: str) -> bool:
    """Whether what the alert with this id tells can be why a replica ended: not that requests to it fail then, nor what
    its trials do."""
    return alert.startswith(_SHARED)
