"""Finds and removes the pods that the trials of a run have left. Blocking; every question has a deadline."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection
from pathlib import Path

import msgspec

from liverl.agents.harbor.owned import Entry
from liverl.agents.pods import RUN_SELECTOR, is_pod_of
from liverl.model import Sandbox
from liverl.sandboxes.kubernetes.client import ApiError, Cluster
from liverl.sandboxes.kubernetes.kubeconfig import KubeconfigError, default_path, load
from liverl.sandboxes.kubernetes.pod import Pod
from liverl.sandboxes.whose import Trials
from liverl.util.plural import quantity

GRACE_S = 1  # seconds between SIGTERM and SIGKILL, as for a container: its work is over then
_PAUSE_S = 0.5  # between two looks at pods whose end was asked for
_KEPT = "harbor_agent.environment_delete is false"

_Where = tuple[str, str, str]  # kubeconfig, namespace, selector


class PodsEnd(msgspec.Struct):
    """``removed``: number of pods; the rest as in ``SandboxesEnd``."""

    removed: int = 0
    left: list[Sandbox] = []
    kept: list[Sandbox] = []
    unknown: list[str] = []


def end_pods(
    trials: Trials, seconds: float, *, remove: bool, only: Collection[str] | None = None, kept: bool = False
) -> PodsEnd | None:
    """Remove the pods of these trials, for at most ``seconds``; without ``remove`` only look. ``only``: of these
    trials; ``kept``: also what ``environment_delete: false`` keeps. None: none was begun. Does not raise."""
    wanted = [e for e in trials.begun.values() if only is None or e.trial in only]
    if not wanted:
        return None
    groups: dict[_Where, dict[str, Entry]] = {}
    for entry in wanted:
        asked = entry.cluster
        where = (asked.get("kubeconfig", ""), asked.get("namespace", ""), asked.get("selector", ""))
        if "fault" not in asked:  # then no pod could be made
            groups.setdefault(where, {})[entry.trial] = entry
    end, until = PodsEnd(), time.monotonic() + seconds
    for where, entries in groups.items():
        one = _Sweep(where, entries, end, until, everything=only is None, kept=kept)
        try:
            asyncio.run(one.carry_out() if remove else one.look())
        except (ApiError, KubeconfigError, TimeoutError) as error:
            number = len(entries.keys() & trials.open)
            if number:
                why = str(error) or "there was no time left"
                end.unknown.append(
                    f"the cluster cannot be asked for the pods of {quantity(number, 'trial')}: {why}"
                )
    return end


class _Sweep:
    def __init__(
        self,
        where: _Where,
        entries: dict[str, Entry],
        end: PodsEnd,
        until: float,
        *,
        everything: bool,
        kept: bool,
    ) -> None:
        self._where, self._entries, self._end = where, entries, end
        self._until, self._everything, self._kept = until, everything, kept
        self._why: dict[str, str] = {}

    async def look(self) -> None:
        async with asyncio.timeout(self._left_s()), self._cluster() as cluster:
            for pod, trial in await self._owned(cluster):
                to = self._end.kept if self._is_kept(trial) else self._end.left
                to.append(Sandbox("pod", pod.name, trial))

    async def carry_out(self) -> None:
        asked: set[str] = set()  # by uid
        seen: set[str] = set()
        found: list[tuple[Pod, str]] = []
        goes = found
        async with self._cluster() as cluster:
            while True:
                try:
                    async with asyncio.timeout(self._left_s()):
                        found = await self._owned(cluster)
                except (ApiError, TimeoutError):
                    if asked:  # nothing is known to have gone since it answered
                        break
                    raise
                goes = [(pod, trial) for pod, trial in found if self._kept or not self._is_kept(trial)]
                seen |= {pod.uid for pod, _ in goes}
                if not goes or all(pod.uid in self._why for pod, _ in goes):
                    break
                for pod, _ in goes:
                    if pod.uid not in asked:
                        asked.add(pod.uid)
                        await self._delete(cluster, pod)
                await asyncio.sleep(min(_PAUSE_S, max(0.0, self._left_s())))
        self._end.removed += len(seen - {pod.uid for pod, _ in goes})
        late = "its end was asked for, and it was still there when the time was over"
        self._end.left += [Sandbox("pod", pod.name, t, self._why.get(pod.uid) or late) for pod, t in goes]
        going = {pod.uid for pod, _ in goes}
        self._end.kept += [Sandbox("pod", pod.name, t, _KEPT) for pod, t in found if pod.uid not in going]

    async def _delete(self, cluster: Cluster, pod: Pod) -> None:
        try:
            async with asyncio.timeout(self._left_s()):
                await cluster.delete(pod, GRACE_S)
        except ApiError as error:
            self._why[pod.uid] = str(error)
        except TimeoutError:
            self._why[pod.uid] = "there was no time left"

    def _cluster(self) -> Cluster:
        path = Path(self._where[0]) if self._where[0] else default_path(os.environ)
        return Cluster(load(path), self._where[1], self._where[2], plugin_s=max(0.1, self._left_s()))

    async def _owned(self, cluster: Cluster) -> list[tuple[Pod, str]]:
        """The pods of these trials, each with its trial. A pod of the run's own label is the run's, whatever its trial;
        of others the exact name of a trial has to be in the pod's."""
        pods, _, _ = await cluster.pods()
        found = []
        for pod in pods:
            trial = pod.trial
            if trial not in self._entries:
                trial = next((name for name in self._entries if is_pod_of(pod.names, name)), "")
            if trial or (self._everything and self._where[2].startswith(RUN_SELECTOR)):
                found.append((pod, trial))
        return found

    def _is_kept(self, trial: str) -> bool:
        entry = self._entries.get(trial)
        return entry is not None and entry.kept

    def _left_s(self) -> float:
        return self._until - time.monotonic()
