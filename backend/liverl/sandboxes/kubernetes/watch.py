"""The pods of one cluster as they are now: a list, then a watch from its version, and again after a fault."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from liverl.sandboxes.kubernetes.client import MOST, ApiError, Cluster
from liverl.sandboxes.kubernetes.kubeconfig import KubeconfigError
from liverl.sandboxes.kubernetes.pod import Pod

FIRST_PAUSE, LONGEST_PAUSE = (
    0.5,
    15.0,
)  # seconds before the API is asked again after a fault; doubled each time
BREAKS = 3  # watches in a row that broke off before they told anything, from which on that is a fault


class PodWatch:
    """Keeps ``pods`` (by uid). ``why``: what was wrong at the last try, "" while the API answers, and ``since`` when
    that began (Unix seconds); ``listed``: pods were listed once; ``told``: is called with each pod that has changed
    and whether it is gone; ``more``: there are more pods than are kept."""

    def __init__(
        self,
        cluster: Cluster,
        now: Callable[[], float],
        told: Callable[[Pod, bool], None] = lambda pod, gone: None,
        pause: float = FIRST_PAUSE,
    ) -> None:
        self._cluster, self._now, self._told, self._first = cluster, now, told, pause
        self.pods: dict[str, Pod] = {}
        self.why, self.since = "", 0.0
        self.listed = self.more = False
        self.lists = self.watches = 0
        self._version = ""

    async def run(self) -> None:
        """List and watch until it is cancelled."""
        pause, broken = self._first, 0
        try:
            while True:
                opened = False
                try:
                    if not self._version:
                        await self._list()
                    self.watches += 1
                    async for change in self._cluster.changes(self._version):
                        opened = True
                        if broken < BREAKS:
                            self._fine()
                        if change.kind != "OPEN":
                            pause, broken = self._first, 0
                        if change.version:
                            self._version = change.version
                        if change.pod is not None:
                            self._take(change.pod, gone=change.kind == "DELETED")
                    self._fine()
                    pause, broken = self._first, 0
                    if self.more:
                        self._version = ""  # those that were left out are in no event
                except ApiError as error:
                    if error.status == 410:
                        # History that was forgotten is no fault, but a list that is is one
                        self._version = ""
                        if self.listed and not self.why:
                            continue
                    broken += opened
                    if not opened or broken >= BREAKS:
                        self._fault(error)
                    await asyncio.sleep(max(error.wait, pause * random.uniform(0.8, 1.2)))
                    pause = min(LONGEST_PAUSE, pause * 2)
                except KubeconfigError as error:
                    self._fault(error)
                    await asyncio.sleep(pause)
                    pause = min(LONGEST_PAUSE, pause * 2)
        finally:
            await self._cluster.close()

    def _fault(self, error: Exception) -> None:
        if not self.why:
            self.since = self._now()
        self.why = str(error)

    def _fine(self) -> None:
        self.why = ""

    async def _list(self) -> None:
        self.lists += 1
        pods, version, self.more = await self._cluster.pods()
        before, self.pods = self.pods, {pod.uid: pod for pod in pods}
        for uid, pod in before.items():
            if uid not in self.pods:
                self._told(pod, True)
        for pod in pods:
            if before.get(pod.uid) != pod:
                self._told(pod, False)
        self._version, self.listed = version, True
        self._fine()

    def _take(self, pod: Pod, *, gone: bool) -> None:
        if gone:
            self.pods.pop(pod.uid, None)
        elif pod.uid in self.pods or len(self.pods) < MOST:
            self.pods[pod.uid] = pod
        else:
            self.more = True
        self._told(pod, gone)
