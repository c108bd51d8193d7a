"""The Python environments of a plan, built in parallel when a run starts."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from liverl.model import Level, ServiceState, ServiceStatus
from liverl.plan.spec import EnvironmentSpec

# Gets the interpreter of an environment that was just built; what does not hold in it, or "" if all does.
Check = Callable[[Path], Awaitable[str]]


@dataclass
class _Entry:
    spec: EnvironmentSpec
    state: ServiceState = "waiting"
    text: str = "not checked yet"
    progress: float | None = None
    since: float = 0.0


class Environments:
    """``pythons``: interpreters of the environments that are ready, by name; ``self`` is the backend's own.
    ``failed``: why an environment cannot be built, or what its check has found, by name. ``unchecked``: names of those
    that are being built and have a check; ``refused``: of those whose check has failed.

    ``changed(name, text, level)`` is called for each step of a build and for its result.
    """

    def __init__(
        self,
        specs: tuple[EnvironmentSpec, ...],
        changed: Callable[[str, str, Level], None],
        checks: Mapping[str, Check] | None,
        now: Callable[[], float],
    ) -> None:
        """``checks``: by name of the environment; called only for one that is built now: the preflight checks have
        looked at any other. ``now``: gives Unix seconds."""
        self.pythons: dict[str, Path] = {"self": Path(sys.executable)}
        self.failed: dict[str, str] = {}
        self.unchecked: set[str] = set()
        self.refused: set[str] = set()
        self._checks = checks or {}
        self._entries = {spec.name: _Entry(spec) for spec in specs if spec.name != "self"}
        self._changed = changed
        self._now = now
        self._tasks: list[asyncio.Task[None]] = []
        if (
            self._entries
        ):  # now, as an upgrade may replace the files before they are needed; few other runs ever do
            import liverl.environments.declared  # noqa: F401

    def start(self) -> None:
        """Begin to check or build every environment; must be called on the event loop."""
        for entry in self._entries.values():
            if entry.spec.name in self._checks and _is_to_be_built(entry.spec):
                self.unchecked.add(entry.spec.name)
            self._tasks.append(asyncio.ensure_future(self._build(entry)))

    async def _build(self, entry: _Entry) -> None:
        from liverl.environments import BuildError, default_cache_dir, ensure

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
            self._fail(entry, str(error), f"cannot be built: {error}")
            return
        if name in self.unchecked:
            progress("checking the run's data and agents in it", None)
            found = await self._checks[name](python)
            if found:
                self.refused.add(name)
                self._fail(entry, found, f"preflight check failed: {found}")
                return
            self.unchecked.discard(name)
        self.pythons[name] = python
        took = time.monotonic() - began
        self._set(entry, "ready", f"ready after {took:.1f} s")
        self._changed(name, entry.text, "info")

    def _fail(self, entry: _Entry, why: str, words: str) -> None:
        self.failed[entry.spec.name] = why
        self._set(entry, "failed", why)
        self._changed(entry.spec.name, words, "error")

    def _set(self, entry: _Entry, state: ServiceState, text: str) -> None:
        entry.state, entry.text, entry.since = state, text, self._now()
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


def _is_to_be_built(spec: EnvironmentSpec) -> bool:
    from liverl.environments import BuildError, default_cache_dir, resolve

    try:
        return not resolve(spec, default_cache_dir()).published
    except BuildError:
        return False  # the build reports it
