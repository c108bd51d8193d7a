"""Rules for the start of a run. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.diagnose.tracker import GOING, Resolved, Window
from liverl.model import Evidence, ServiceStatus, Snapshot, Symptom

# Than the slowest of the other replicas: estimate; the same model on the same disk loads alike
TIMES_SLOWER = 2.0
LONGER_S = 15.0  # at least so many seconds longer than they took


def replica_boots_late(window: Window) -> Iterator[Symptom | Resolved]:
    """A replica has been starting for far longer than the others took, and nothing else may start before it. LiveRL's
    own scripts do not wait: with them such a replica stays out for the whole run."""
    now = window.now
    replicas = [s for s in now.services if s.kind == "replica"]
    took = [s.ready_at - s.started_at for s in replicas if _is_up(s) and s.ready_at and s.started_at]
    for service in replicas if now.state in GOING and took else ():
        if service.state != "starting" or service.started_at is None:
            continue
        if service.restarts or service.ready_at is not None:
            continue
        for_, usual = now.at - service.started_at, max(took)
        if for_ < max(TIMES_SLOWER * usual, usual + LONGER_S):
            continue
        name = service.name
        doing = ": ".join(filter(None, (service.stage, service.why)))
        yield Symptom(
            id=f"replica_late:{name}",
            severity="warning",
            title=f"{name} is not up, although the other replicas are",
            cause=f"{name} has been starting for {for_:.0f} s ({doing}); the slowest of the others "
            f"took {usual:.0f} s{_waiting(now)}",
            fix=f"read the end of the log of {name} for what it waits for, and compare its GPU, disk and host with "
            f"those of the others; if nothing moves, restart {name}. Once it is up, trials use it like the others",
            evidence=(
                Evidence("", log=service.log),
                Evidence(f"{len(took)} of {now.replicas.expected} replicas are up", value=len(took)),
            ),
            since=service.started_at + usual,
            action=f"restart {name}",
        )


def _is_up(service: ServiceStatus) -> bool:
    return service.state in ("ready", "degraded")


def _waiting(now: Snapshot) -> str:
    """Which services wait for the replicas; empty if none does."""
    names = [s.name for s in now.services if s.state == "waiting" and "replica" in s.depends_on]
    return f". {' and '.join(names)} wait{'s' if len(names) == 1 else ''} for it" if names else ""
