"""What the trials of a run have in Kubernetes while it goes on, as ``SeenSandboxes`` says it of Docker."""

from __future__ import annotations

import asyncio
import os
import shlex
import statistics
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from liverl.agents.pods import RUN_SELECTOR, is_pod_of
from liverl.model import SandboxesStatus, SandboxOom, SandboxStatus, SandboxTrouble
from liverl.sandboxes.kubernetes.kubeconfig import Access, KubeconfigError, default_path, load
from liverl.sandboxes.kubernetes.pod import Pod
from liverl.sandboxes.ledgers import Ledgers, lost
from liverl.sandboxes.whose import Trials

if TYPE_CHECKING:
    from liverl.sandboxes.kubernetes.watch import PodWatch

ROWS, TROUBLES = 200, 50  # pods and troubles that are named
KEEP_S = 600.0  # seconds for which a trouble is named
OVER_S = 30.0  # seconds after a trial's end in which its pod may still be going: a pod has 30 to obey SIGTERM
STARTS = 500  # newest starts of which the median is told

_Where = tuple[str, str, str]  # kubeconfig, namespace, selector


class SeenPods:
    """``spawn``: runs a coroutine in the background until the run is over; ``ledgers``: shared with who else looks at
    the run's sandboxes."""

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        ledgers: Ledgers | None = None,
    ) -> None:
        self._spawn, self._ledgers = spawn, ledgers or Ledgers()
        self._watch: tuple[_Where, PodWatch, Access, str, asyncio.Task[None]] | None = None
        self._why, self._since = "", 0.0
        self._over: dict[str, float] = {}
        self._troubles: dict[tuple[str, str], SandboxTrouble] = {}
        self._starts: dict[str, float] = {}
        self._trials = Trials({}, frozenset(), frozenset())
        self._now = self._began = 0.0

    async def look(self, run_dir: Path, now: float) -> SandboxesStatus | None:
        """What there is at ``now`` (Unix seconds). None: the run has begun nothing in a cluster.

        Raises:
            OSError: the ledger cannot be read.
        """
        self._now = now
        begun = await asyncio.to_thread(self._ledgers.read, run_dir)
        found = begun.pods
        if not found.begun:
            return None
        self._trials = found
        entry = next(reversed(found.begun.values()))
        asked = entry.cluster
        where = (asked.get("kubeconfig", ""), asked.get("namespace", ""), asked.get("selector", ""))
        if self._watch is None or self._watch[0] != where or self._watch[4].done():
            self._why_of(asked.get("fault", "") or await self._begin(where), now)
        for name in found.over:
            self._over.setdefault(name, now)
        gone = lost(found) | {name for name in found.over if now - self._over[name] > OVER_S}
        return self._status(where, gone, now)

    def _why_of(self, why: str, now: float) -> None:
        if why and not self._why:
            self._since = now
        self._why = why

    async def _begin(self, where: _Where) -> str:
        """Watch this cluster; returns why not."""
        # Here, since a backend whose trials have no pods needs no HTTP client.
        from liverl.sandboxes.kubernetes.client import Cluster
        from liverl.sandboxes.kubernetes.watch import PodWatch

        if self._watch is not None:
            self._watch[4].cancel()
            self._watch = None
        path = Path(where[0]) if where[0] else default_path(os.environ)
        try:
            access = await asyncio.to_thread(load, path)
        except KubeconfigError as error:
            return str(error)
        self._began = self._now
        cluster = Cluster(access, where[1], where[2])
        watch = PodWatch(cluster, lambda: self._now, self._took)
        self._watch = (where, watch, access, cluster.namespace, self._spawn(watch.run()))
        return ""

    def _trial(self, pod: Pod) -> str:
        """The trial of a pod; "" if it is none of the run's."""
        if pod.trial in self._trials.begun:
            return pod.trial
        return next((name for name in self._trials.begun if is_pod_of(pod.names, name)), "")

    def _took(self, pod: Pod, gone: bool) -> None:
        """Note what has happened to a pod that may be gone at the next look."""
        if pod.created is not None and pod.started is not None and pod.uid not in self._starts:
            self._starts[pod.uid] = max(0.0, pod.started - pod.created)
            if len(self._starts) > STARTS:
                del self._starts[next(iter(self._starts))]
        if pod.trouble is None:
            for key in [key for key in self._troubles if key[0] == pod.uid and key[1] in _PASSING]:
                del self._troubles[key]  # it was waiting, and waits no more
            return
        key = (pod.uid, pod.trouble)
        if gone and pod.trouble in _PASSING:
            self._troubles.pop(key, None)
        elif key not in self._troubles:
            self._troubles[key] = SandboxTrouble(
                pod.trouble, pod.name, "", self._now, pod.node, pod.reason, pod.message
            )

    def _status(self, where: _Where, gone: frozenset[str], now: float) -> SandboxesStatus:
        if self._watch is None:
            path = where[0] or str(default_path(os.environ))
            return SandboxesStatus(
                "kubernetes", reachable=False, why=self._why, since=self._since, server=path
            )
        _, watch, access, namespace, _ = self._watch
        kubectl = f"kubectl --kubeconfig {shlex.quote(str(access.path))} -n {shlex.quote(namespace)}"
        own = where[2].startswith(RUN_SELECTOR)  # others' pods may have the selector's labels
        rows: list[SandboxStatus] = []
        trials = {}
        for pod in watch.pods.values():
            trial = self._trial(pod)
            if trial or own:
                trials[pod.name] = trial
                rows.append(_row(pod, trial, self._trials, gone, kubectl))
        self._troubles = {
            key: one
            for key, one in self._troubles.items()
            if one.at > now - KEEP_S or (key[1] in _PASSING and key[0] in watch.pods)
        }
        told = [
            replace(one, trial=trial)
            for one in sorted(self._troubles.values(), key=lambda one: (-one.at, one.name))
            if (trial := trials.get(one.name) or self._named(one.name)) or own
        ]
        why = watch.why or ("" if watch.listed else "its pods have not been listed yet")
        running = [row for row in rows if row.state == "running"]
        rows.sort(key=lambda row: (not row.left, not row.reason, row.since or 0.0, row.name))
        return SandboxesStatus(
            backend="kubernetes",
            reachable=not why,
            why=why,
            since=(watch.since or self._began) if why else None,
            server=access.server,
            running=len(running),
            starting=sum(row.state == "created" for row in rows),
            ended=sum(row.state in ("exited", "removing") for row in rows),
            left=sum(row.left for row in rows),
            oldest=min((row.since for row in running if row.since is not None), default=None),
            rows=tuple(rows[:ROWS]),
            ooms=tuple(SandboxOom(one.name, one.trial, one.at) for one in told if one.kind == "oom")[
                :TROUBLES
            ],
            troubles=tuple(told[:TROUBLES]),
            kubectl=kubectl,
            start_s=statistics.median(self._starts.values()) if self._starts else None,
            readable=str(access.path) if access.readable else "",
            more=watch.more,
        )

    def _named(self, name: str) -> str:
        return next((trial for trial in self._trials.begun if is_pod_of((name,), trial)), "")


_PASSING = ("image_pull", "config", "unschedulable", "crash")  # over once the pod runs or is gone
_STATES = {"Pending": "created", "Running": "running", "Succeeded": "exited", "Failed": "exited"}


def _row(pod: Pod, trial: str, found: Trials, gone: frozenset[str], kubectl: str) -> SandboxStatus:
    state = "removing" if pod.deleting else _STATES.get(pod.phase, pod.phase.lower())
    entry = found.begun.get(trial)
    kept = entry is not None and entry.kept
    pod_name = shlex.quote(pod.name)
    return SandboxStatus(
        id=pod.name,
        name=pod.name,
        trial=trial,
        attempt=pod.attempt or (entry.attempt if entry is not None else ""),
        state=state,
        since=pod.ended or pod.started or pod.created,
        exit=pod.exit,
        oom=pod.oom,
        kept=kept,
        left=not kept and (entry is None or trial in gone),
        exec=f"{kubectl} exec -it {pod_name} -- sh" if state == "running" else "",
        logs=f"{kubectl} logs --all-containers {pod_name}",
        node=pod.node,
        phase=pod.phase,
        reason=pod.reason,
        message=pod.message,
        restarts=pod.restarts,
    )
