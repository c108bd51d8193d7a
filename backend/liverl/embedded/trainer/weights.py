"""Keeps every replica on the trainer's policy version.

After each update the weights are sent to every joining and listed replica of ``replicas.json``. A watcher
also reads that file every 0.3 s and sends the current weights to replicas that report another version, and to
joining ones that report another digest. A listed replica with the trainer's version and another digest had the
weights and lost them: something else has changed them. It is left as it is, so that the backend sees it and takes
it off the proxy's list.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Literal

import aiohttp
import msgspec

from liverl.embedded.policy import Policy, dump_logits
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular

_POLL = 0.3  # seconds between two reads of replicas.json
_TIMEOUT = aiohttp.ClientTimeout(total=5.0)  # per call; a push takes milliseconds
_RETRY = 0.1  # seconds


class Replica(msgspec.Struct, frozen=True):
    """One entry of replicas.json."""

    name: str
    url: str
    state: Literal["joining", "listed", "leaving"]
    generation: int = 0


class _ReplicasFile(msgspec.Struct, frozen=True):
    version: int
    replicas: list[Replica]


class _Held(msgspec.Struct, frozen=True):
    """The weights that a replica holds. ``digest``: None from a replica of an older version."""

    version: int
    digest: str | None = None


def read_replicas(path: Path) -> list[Replica]:
    """Return the replicas that must hold the current weights; none if the file is missing.

    Raises:
        ValueError: the file is not valid.
    """
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return []
    try:
        replicas = decode_json(data, type=_ReplicasFile).replicas
    except BAD_JSON as error:
        raise ValueError(f"{path}: {error}") from error
    return [replica for replica in replicas if replica.state != "leaving"]


class WeightSync:
    """Sends the weights of ``policy``. Call ``publish`` after each change, before the next rollout."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        replicas_path: Path,
        sync_timeout: float,
        token: str | None = None,
    ) -> None:
        """``token``: sent as bearer token; None for replicas of an older version, which require none."""
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session, self._path, self._sync_timeout = session, replicas_path, sync_timeout
        self._version = 0
        self._digest = ""
        self._payload = b""
        self._complained: set[tuple[str, int, str]] = set()

    async def publish(self, policy: Policy) -> None:
        """Send the weights to every replica; returns when each listed one holds them.

        A listed replica that does not respond is retried for ``sync_timeout`` seconds while it remains
        listed. A joining one may still be loading and is updated later by the watcher.

        Raises:
            ValueError: replicas.json is not valid.
        """
        payload = f'{{"version":{policy.version},"logits":{dump_logits(policy.logits)}}}'
        self._version, self._digest, self._payload = policy.version, policy.digest(), payload.encode()
        deadline = time.monotonic() + self._sync_timeout
        current: set[tuple[str, int]] = set()
        while True:
            replicas = [r for r in read_replicas(self._path) if (r.url, r.generation) not in current]
            failures = await asyncio.gather(*(self._push(r) for r in replicas))
            current.update(
                (r.url, r.generation) for r, why in zip(replicas, failures, strict=True) if why is None
            )
            behind = [
                (r, w)
                for r, w in zip(replicas, failures, strict=True)
                if w is not None and r.state == "listed"
            ]
            if not behind:
                return
            if time.monotonic() > deadline:
                for replica, why in behind:
                    print(f"WARNING: {replica.name} did not load version {self._version}: {why}", flush=True)
                return
            await asyncio.sleep(_RETRY)

    async def watch(self) -> None:
        """Update every replica that reports another version, forever."""
        while True:
            await asyncio.sleep(_POLL)
            if self._payload:
                await asyncio.gather(*(self._heal(replica) for replica in read_replicas(self._path)))

    async def _heal(self, replica: Replica) -> None:
        version, digest = self._version, self._digest
        try:
            async with self._session.get(
                f"{replica.url}/policy_version", headers=self._headers, timeout=_TIMEOUT
            ) as response:
                response.raise_for_status()
                held = decode_json(await response.read(), type=_Held)
        except (aiohttp.ClientError, TimeoutError, *BAD_JSON):
            return  # not up yet, or gone: the backend handles that
        if version != self._version:
            return  # the weights have changed meanwhile
        if held.version == version:
            if held.digest in (None, digest):
                return
            if replica.state == "listed":
                self._warn(
                    replica, f"has other weights than those of policy version {version} that were sent"
                )
                return
        why = await self._push(replica)
        if why is None:
            print(
                f"{replica.name} was at policy version {held.version}; updated it to {self._version}",
                flush=True,
            )
        else:
            self._warn(
                replica, f"is at policy version {held.version} and rejected version {self._version}: {why}"
            )

    def _warn(self, replica: Replica, what: str) -> None:
        """Print a warning once for each process of a replica."""
        if (replica.name, replica.generation, what) not in self._complained:
            self._complained.add((replica.name, replica.generation, what))
            print(f"WARNING: {replica.name} {what}", flush=True)

    async def _push(self, replica: Replica) -> str | None:
        """Send the weights; return None, or why the replica does not hold them."""
        version, digest = self._version, self._digest
        try:
            async with self._session.post(
                f"{replica.url}/update_weights",
                data=self._payload,
                headers={"Content-Type": "application/json", **self._headers},
                timeout=_TIMEOUT,
            ) as response:
                body = await response.read()
                if response.status != 200:
                    return f"HTTP {response.status}"
                held = decode_json(body, type=_Held)
                if held.version != version:
                    return f"it reported version {held.version}"
                return (
                    None
                    if held.digest in (None, digest)
                    else f"it reported other weights ({held.digest:.12})"
                )
        except (aiohttp.ClientError, TimeoutError, *BAD_JSON) as error:
            return f"{type(error).__name__}: {error}"
