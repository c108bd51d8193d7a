"""A pod of the API, read to what is told of a sandbox. Pure.

Reasons as of Kubernetes 1.34: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ (phases, conditions),
``pkg/kubelet/images/types.go`` (images), ``pkg/kubelet/eviction``, ``pkg/controller/nodelifecycle``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

import msgspec

from liverl.agents.pods import POD_ATTEMPT, POD_TRIAL

Trouble = Literal["image_pull", "config", "unschedulable", "crash", "oom", "deadline", "evicted", "node_gone"]
IMAGE = frozenset({
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
    "RegistryUnavailable", "SignatureValidationFailed",
})  # fmt: skip
CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
EVICTED = frozenset(
    {"Evicted", "Preempting", "PreemptionByScheduler", "EvictionByEvictionAPI", "TerminationByKubelet"}
)
NODE = frozenset(
    {"NodeLost", "NodeShutdown", "DeletionByTaintManager", "DeletionByPodGC", "NodeAffinity", "Shutdown"}
)
_LONGEST = 300  # characters of a message that are kept


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Ended(msgspec.Struct, frozen=True):
    exitCode: int = 0
    reason: str = ""
    finishedAt: str | None = None


class _Running(msgspec.Struct, frozen=True):
    startedAt: str | None = None


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None
    running: _Running | None = None
    terminated: _Ended | None = None


class _Container(msgspec.Struct, frozen=True):
    name: str = ""
    restartCount: int = 0
    state: _State = _State()
    lastState: _State = _State()


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    startTime: str | None = None
    conditions: list[_Condition] | None = None
    containerStatuses: list[_Container] | None = None
    initContainerStatuses: list[_Container] | None = None


class _Spec(msgspec.Struct, frozen=True):
    nodeName: str = ""


class RawPod(msgspec.Struct, frozen=True):
    """The parts of a pod's JSON that are read; the rest is dropped while it is decoded."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class Pod(msgspec.Struct, frozen=True):
    """A pod. ``trial``, ``attempt``: by its annotations, "" without them; ``names``: by which a trial may be
    found; ``reason``, ``message``: of what it waits for or why it has ended, "" for nothing of note; ``started``: its
    containers run; times in Unix seconds, None if not told; ``deleting``: its end was asked for."""

    uid: str
    name: str
    namespace: str
    names: tuple[str, ...]
    trial: str
    attempt: str
    phase: str
    node: str
    reason: str
    message: str
    trouble: Trouble | None
    restarts: int
    exit: int | None
    oom: bool
    deleting: bool
    created: float | None
    started: float | None
    ended: float | None


def pod_of(raw: RawPod) -> Pod:
    """What a pod's JSON says."""
    meta, status = raw.metadata, raw.status
    containers = [*(status.initContainerStatuses or ()), *(status.containerStatuses or ())]
    main = status.containerStatuses or []
    ends = [one.state.terminated for one in main if one.state.terminated is not None]
    starts = [unix(one.state.running.startedAt) for one in main if one.state.running is not None]
    finished = [at for end in ends if (at := unix(end.finishedAt)) is not None]
    killed = any(
        end is not None and end.reason == "OOMKilled"
        for one in containers
        for end in (one.state.terminated, one.lastState.terminated)
    )
    trouble, reason, message = next(_troubles(status, containers, oom=killed), (None, "", ""))
    over = status.phase in ("Succeeded", "Failed")
    words = meta.annotations or {}
    labels = meta.labels or {}
    bad = next((end for end in ends if end.exitCode), ends[0] if ends else None)
    known = [at for at in starts if at is not None]
    return Pod(
        uid=meta.uid or f"{meta.namespace}/{meta.name}",
        name=meta.name,
        namespace=meta.namespace,
        names=tuple(filter(None, (meta.name, labels.get("session", ""), labels.get("harbor-session", "")))),
        trial=words.get(POD_TRIAL, ""),
        attempt=words.get(POD_ATTEMPT, ""),
        phase=status.phase or "Unknown",
        node=raw.spec.nodeName,
        reason=reason,
        message=message[:_LONGEST],
        trouble=trouble,
        restarts=sum(one.restartCount for one in containers),
        exit=bad.exitCode if bad is not None and over else None,
        oom=killed,
        deleting=meta.deletionTimestamp is not None,
        created=unix(meta.creationTimestamp),
        started=min(known) if known and len(starts) == len(main) else None,
        ended=max(finished) if finished and over else None,
    )


def _troubles(
    status: _Status, containers: list[_Container], *, oom: bool
) -> Iterator[tuple[Trouble | None, str, str]]:
    """(what is wrong, its reason, its message), the most telling first."""
    conditions = {one.type: one for one in status.conditions or ()}
    disrupted = conditions.get("DisruptionTarget")
    for reason, message in (
        (status.reason, status.message),
        *(
            [(disrupted.reason, disrupted.message)]
            if disrupted is not None and disrupted.status == "True"
            else []
        ),
    ):
        if reason == "DeadlineExceeded":
            yield "deadline", reason, message
        elif reason in EVICTED:
            yield "evicted", reason, message
        elif reason in NODE:
            yield "node_gone", reason, message
    if oom:
        yield "oom", "OOMKilled", ""
    for one in containers:
        waiting = one.state.waiting
        if waiting is None:
            continue
        if waiting.reason in IMAGE:
            yield "image_pull", waiting.reason, waiting.message
        elif waiting.reason in CONFIG:
            yield "config", waiting.reason, waiting.message
        elif waiting.reason == "CrashLoopBackOff":
            yield "crash", waiting.reason, waiting.message
    scheduled = conditions.get("PodScheduled")
    if scheduled is not None and scheduled.status == "False" and status.phase == "Pending":
        yield "unschedulable", scheduled.reason or "Unschedulable", scheduled.message
    for one in containers:  # nothing wrong: what it waits for, or how it has ended
        if one.state.waiting is not None and one.state.waiting.reason:
            yield None, one.state.waiting.reason, one.state.waiting.message
    for one in containers:
        ended = one.state.terminated
        if ended is not None and ended.exitCode and ended.reason:
            yield None, ended.reason, ""
    if status.reason:
        yield None, status.reason, status.message


def unix(text: str | None) -> float | None:
    """Unix seconds of one of the API's times, such as 2027-01-15T08:00:00Z; None for none."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
