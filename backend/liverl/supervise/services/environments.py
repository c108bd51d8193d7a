"""The Python environments of a plan, built in parallel when a run starts."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from liverl.environments import BuildError, default_cache_dir, ensure
from liverl.model import Level, ServiceState, ServiceStatus
from liverl.plan.spec import EnvironmentSpec


@dataclass
class _Entry:
    spec: EnvironmentSpec
    state: ServiceState = "waiting"
    text: str = "not checked yet"
    progress: float | None = None
    since: float = 0.0


class Environments:
    """``pythons``: interpreters of the environments that are ready, by name; ``self`` is the backend's own.
    ``failed``: why an environment cannot be built, by name.

    ``changed(name, text, level)`` is called for each step of a build and for its result.
    """

    def __init__(
        self, specs: tuple[EnvironmentSpec, ...], changed: Callable[[str, str, Level], None]
    ) -> None:
        self.pythons: dict[str, Path] = {"self": Path(sys.executable)}
        self.failed: dict[str, str] = {}
        self._entries = {spec.name: _Entry(spec) for spec in specs if spec.name != "self"}
        self._changed = changed
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to check or build every environment; must be called on the event loop."""
        for entry in self._entries.values():
            self._tasks.append(asyncio.ensure_future(self._build(entry)))

    async def _build(self, entry: _Entry) -> None:
        name = entry.spec.name
        self._set(entry, "preparing", "checking whether it is installed")

        def progress(text: str, share: float | None) -> None:
            entry.progress = share
            if text != entry.text:
                entry.text = text
                self._changed(name, text, "info")

        began = time.monotonic()
        try:
            python = await ensure(entry.spec, default_cache_dir(), progress)
        except BuildError as error:
            self.failed[name] = str(error)
            self._set(entry, "failed", str(error))
            self._changed(name, f"cannot be built: {error}", "error")
            return
        self.pythons[name] = python
        took = time.monotonic() - began
        self._set(entry, "ready", f"ready after {took:.1f} s")
        self._changed(name, entry.text, "info")

    @staticmethod
    def _set(entry: _Entry, state: ServiceState, text: str) -> None:
        entry.state, entry.text, entry.since = state, text, time.time()
        entry.progress = None

    def cancel(self) -> None:
        """Cancel the builds; the builder removes half-built environments (see ``closed``)."""
        for task in self._tasks:
            task.cancel()
        for entry in self._entries.values():
            if entry.state == "preparing":
                self._set(entry, "stopped", "cancelled")

    async def closed(self) -> None:
        """Wait until cancelled builders have cleaned up."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def statuses(self) -> list[ServiceStatus]:
        """A status for each environment, as a service named ``env:NAME``. ``progress``: 0..1 while it is built."""
        return [
            ServiceStatus(
                name=f"env:{name}",
                kind="environment",
                owner="ours",
                state=entry.state,
                why=entry.text,
                since=entry.since,
                pid=None,
                generation=0,
                restarts=0,
                log=None,
                progress=entry.progress,
            )
            for name, entry in self._entries.items()
        ]
