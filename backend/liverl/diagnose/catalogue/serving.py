"""Rules for what serves: replicas, the proxy, services and the disk they write to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from liverl.diagnose.tracker import GOING, SHOWN, Resolved, Window
from liverl.model import ReplicaStatus, ServiceStatus, Snapshot, Symptom

SERVING = ("ready", "degraded")
DOWN = ("failed", "gave_up")
LOW_DISK = 1 << 30  # bytes; checkpoints of a real model need more, logs and records less


# --- replicas -------------------------------------------------------------------------------------------


def replica_idle(seen: Window) -> Iterator[Symptom | Resolved]:
    """Verdict of ``observe.idle``; it is over once something runs there."""
    now = seen.now
    for replica in now.replicas.items:
        name = f"replica_idle:{replica.name}"
        if now.state in GOING and replica.idle_for is not None:
            yield Symptom(
                id=name,
                severity="warning",
                title=f"{replica.name} is loaded but idle",
                cause=f"it has run no request for {replica.idle_for:.0f} s during the rollout, although "
                f"requests were waiting: "
                "the proxy sends it no trials, or it no longer accepts requests",
                fix="check in its log whether requests arrive; if not, restart it: it then loads the current weights "
                "and is added to the proxy again",
                evidence=(_load(replica), *_gpus_of(now, replica), *_others(now, replica)),
                since=now.at - replica.idle_for,
                action=f"restart {replica.name}",
            )
        elif replica.engine.running or replica.state not in SERVING:
            yield Resolved(name)
    for name in _removed(seen, lambda snapshot: snapshot.replicas.items):
        yield Resolved(f"replica_idle:{name}")


def replica_missing(seen: Window) -> Iterator[Symptom | Resolved]:
    """Expected, ended, and not started again. ``service_down`` tells of those that failed as services of ours."""
    now = seen.now
    told = {s.name for s in now.services if s.state in DOWN}
    for replica in _expected(seen):
        if replica.state in ("stopped", *DOWN) and replica.name not in told:
            yield _absent("replica_missing", now, replica, "is missing", replica.why or replica.state)


def replica_late(seen: Window) -> Iterator[Symptom | Resolved]:
    """Expected, has served before, and still does not serve again."""
    for replica in _expected(seen):
        if replica.restarts and replica.state not in (*SERVING, "stopped", *DOWN):
            cause = f"{replica.state}: {replica.why}" if replica.why else replica.state
            yield _absent("replica_late", seen.now, replica, "has not served since its restart", cause)


def _expected(seen: Window) -> Iterator[ReplicaStatus]:
    """The replicas that should serve now. Those of verl end and come back with its trainer."""
    now = seen.now
    trainers = [s.state for s in now.services if s.kind == "trainer"]
    trains = not trainers or any(state in (*SERVING, "starting") for state in trainers)
    for replica in now.replicas.items if now.state in GOING else ():
        wanted = not replica.leaving and replica.name not in seen.beside.unwanted
        if wanted and (trains or replica.kind != "verl"):
            yield replica


def _absent(rule: str, now: Snapshot, replica: ReplicaStatus, what: str, cause: str) -> Symptom:
    serving = sum(r.state in SERVING for r in now.replicas.items)
    by_verl = replica.kind == "verl"
    return Symptom(
        id=f"{rule}:{replica.name}",
        severity="warning" if serving else "critical",
        title=f"{replica.name} {what}",
        cause=cause,
        fix="it is managed by verl; restart the trainer to restart it" if by_verl else "restart it",
        evidence=(f"{serving} of {now.replicas.expected} replicas are up",),
        action=None if by_verl else f"restart {replica.name}",
    )


def replica_unlisted(seen: Window) -> Iterator[Symptom | Resolved]:
    now = seen.now
    proxy = next((s for s in now.services if s.kind == "proxy"), None)
    if now.state not in GOING or proxy is None or proxy.state != "ready":
        return
    known = {_root(address) for address in now.proxy.backends}
    for replica in now.replicas.items:
        if replica.state != "ready" or replica.leaving or replica.address is None:
            continue
        if replica.listed and _root(replica.address) in known:
            continue
        version = replica.engine.policy_version
        behind = version != now.policy_version and now.policy_version is not None
        if replica.kind == "verl" and proxy.owner != "ours":
            cause = (
                "the configuration with which this proxy was started does not list it: the file was written "
            )
            cause += "before this replica was registered"
            fix = "add it to the proxy's configuration (key a), then restart the proxy (key r)"
            action = "scale +1"
        elif behind and replica.kind != "verl":
            cause = f"it has policy version {version}, the trainer has {now.policy_version}; it receives no "
            cause += "trials until it has the trainer's weights"
            fix = "the trainer sends its weights to new replicas; check the trainer's log for errors of that transfer"
            action = None
        elif replica.listed:
            cause = "the proxy has not loaded the newest list of replicas"
            fix = "check the proxy's log for the reason; restart the proxy to load the list (no requests are lost)"
            action = f"restart {proxy.name}"
        else:
            cause = "it is ready and has the current weights, but it is not in the proxy's list"
            fix = "restart it to register it again"
            action = f"restart {replica.name}"
        yield Symptom(
            id=f"replica_unlisted:{replica.name}",
            severity="warning",
            title=f"{replica.name} is ready but receives no trials",
            cause=cause,
            fix=fix,
            evidence=(
                f"{replica.name}: {replica.address}, policy version {version}",
                f"the proxy routes to {', '.join(now.proxy.backends) or 'no replica'}",
            ),
            action=action,
        )


def proxy_cooled_down(seen: Window) -> Iterator[Symptom | Resolved]:
    """Of replicas that are up: that one which has died cannot be reached is no news."""
    now = seen.now
    if now.state not in GOING:
        return
    up = [r for r in now.replicas.items if r.address is not None and r.state in SERVING]
    by_address = {_root(r.address or ""): r for r in up}
    for address in now.proxy.cooled_down:
        replica = by_address.get(_root(address))
        if replica is None:
            continue
        name = replica.name
        yield Symptom(
            id=f"proxy_cooled_down:{name}",
            severity="warning",
            title=f"the proxy has put {name} in cooldown",
            cause="requests to it failed: it could not be reached, or it returned three server errors in a row; "
            "its trials move to other replicas, which must compute their cached prefixes again",
            fix=f"check the last errors in the log of {name}; restart it if it does not recover",
            evidence=(
                f"in cooldown: {address}",
                _load(replica),
                f"{now.proxy.failures or 0} of {now.proxy.requests or 0} requests failed so far",
            ),
            action=f"restart {name}",
        )


# --- services -------------------------------------------------------------------------------------------


def service_down(seen: Window) -> Iterator[Symptom | Resolved]:
    """Failed, or given up on."""
    now = seen.now
    for service in now.services:
        if service.state not in DOWN:
            continue
        again = now.state in GOING and service.kind != "environment"
        gave_up = service.state == "gave_up"
        yield Symptom(
            id=f"service_{service.state}:{service.name}",
            severity="critical",
            title=f"{service.name} failed too often" if gave_up else f"{service.name} has failed",
            cause=_cause(seen, service),
            fix="fix the error shown in its log, then restart it"
            if again
            else "fix the error shown, then resume the run",
            evidence=_log_evidence(seen, service),
            since=service.since,
            action=f"restart {service.name}" if again else None,
        )


def service_backing_off(seen: Window) -> Iterator[Symptom | Resolved]:
    now = seen.now
    for service in now.services:
        name = f"service_backing_off:{service.name}"
        if service.state == "backing_off":
            yield Symptom(
                id=name,
                severity="warning",
                title=f"{service.name} keeps failing",
                cause=_cause(seen, service),
                fix="it is restarted automatically with increasing delays; after too many failures, restarts "
                "stop. Fix the error shown in its log",
                evidence=(*_log_evidence(seen, service), f"{service.restarts} restarts so far"),
                action=f"restart {service.name}",
            )
        elif service.state in ("stopped", *DOWN):
            yield Resolved(name)
    for name in _removed(seen, lambda snapshot: snapshot.services):
        yield Resolved(f"service_backing_off:{name}")


# --- the host -------------------------------------------------------------------------------------------


def disk_low(seen: Window) -> Iterator[Symptom | Resolved]:
    free = seen.beside.disk_free
    if free is not None and free < LOW_DISK:
        yield Symptom(
            id="disk_low",
            severity="warning",
            title="the run's disk is nearly full",
            cause=f"{free / (1 << 20):.0f} MiB are free in the run directory; a service that cannot write a "
            f"checkpoint or a log "
            "fails",
            fix="delete old checkpoints of this run, or other runs in the same directory",
            evidence=(f"{seen.now.run_dir}: {free / (1 << 20):.0f} MiB free",),
        )


# --- words and joins ------------------------------------------------------------------------------------


def _removed(
    seen: Window, members: Callable[[Snapshot], Iterable[ServiceStatus | ReplicaStatus]]
) -> set[str]:
    """The names of what the run had at the look before this one, and does not have any more."""
    if seen.before is None:
        return set()
    return {one.name for one in members(seen.before)} - {one.name for one in members(seen.now)}


def _root(address: str) -> str:
    return address.rstrip("/").removesuffix("/v1")


def _load(replica: ReplicaStatus) -> str:
    engine = replica.engine
    waiting = f", {engine.waiting:.0f} waiting" if engine.waiting is not None else ""
    running = "load unknown" if engine.running is None else f"{engine.running:.0f} running{waiting}"
    return f"{replica.name}: {replica.state}, {running}"


def _gpus_of(now: Snapshot, replica: ReplicaStatus) -> Iterator[str]:
    for gpu in now.gpus:
        if gpu.uuid in replica.gpus:
            memory = "?" if gpu.memory_used is None else f"{gpu.memory_used / (1 << 30):.0f}"
            use = "?" if gpu.utilization is None else f"{gpu.utilization * 100:.0f}"
            yield f"GPU {gpu.index}: {memory} GiB used, {use} % utilization"


def _others(now: Snapshot, replica: ReplicaStatus) -> list[str]:
    busy = [
        r for r in now.replicas.items if r.name != replica.name and (r.engine.running or r.engine.waiting)
    ]
    return [_load(r) for r in busy[:SHOWN]]


def _cause(seen: Window, service: ServiceStatus) -> str:
    found = seen.beside.causes.get(service.name)
    return found.text if found is not None else service.why


def _log_evidence(seen: Window, service: ServiceStatus) -> tuple[str, ...]:
    found = seen.beside.causes.get(service.name)
    lines = []
    if found is not None and found.log is not None:
        lines.append(f"{found.log} at byte {found.offset}: {found.text}")
    elif service.log is not None:
        lines.append(service.log)
    if found is None or found.text != service.why:
        lines.append(f"{service.name}: {service.why}")
    return tuple(lines)
