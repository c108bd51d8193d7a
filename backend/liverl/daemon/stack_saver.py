"""Saves the stacks of processes that hang, once each time, into the attempt: before the alert that the trainer has
stalled, and before a service that hangs is killed. Only of processes in the run's own trees."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from liverl.model import ServiceStatus
from liverl.observe.hung_stacks import SUFFIX, HungStacks, saved_in
from liverl.procs import procfs, stacks
from liverl.procs.stack_text import Saved, file_text, in_order, parse
from liverl.procs.tree import Member
from liverl.supervise.services.instance import Instance
from liverl.supervise.services.supervisor import Supervisor
from liverl.util import redact
from liverl.util.atomic_file import write_atomic
from liverl.util.modes import make_directory
from liverl.util.stack_signal import ON_SIGNAL

MOST = 20  # processes
AT_ONCE = 4
# Seconds for all of them: a process takes under one, unless the host swaps or the kernel holds the process. Before a
# kill there is less time: its stages go on meanwhile.
STALL_S, KILL_S = 30.0, 8.0
ALERT_WAITS_S = 2.0  # seconds that an alert waits for stacks; what comes later is added to it
_STALLED = ".stalled"
_FIRST = ("trainer", "ray")  # kinds of services in whose processes the training runs


class StackSaver:
    """Of one attempt."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._folder = supervisor.attempt_dir / "stacks"
        self._taken: dict[str, asyncio.Task[HungStacks]] = {}  # by occasion

    def stall_over(self) -> None:
        """Take stacks anew at the next stall."""
        for occasion in [one for one in self._taken if one.endswith(_STALLED)]:
            del self._taken[occasion]

    async def of_stall(self, services: Sequence[ServiceStatus], since: float) -> HungStacks:
        """The stacks of the run's processes, taken the first time that it is asked in a stall. Empty as long as they
        are not there. ``since``: Unix time of the last progress; an earlier backend may have taken them since."""
        trainer = next((s for s in services if s.kind == "trainer"), None)
        if trainer is None or trainer.owner != "ours":
            return HungStacks()
        order = sorted(services, key=lambda s: _FIRST.index(s.kind) if s.kind in _FIRST else len(_FIRST))
        keys = [f"{service.name}.{service.generation}" for service in order]
        occasion = f"{trainer.name}.{trainer.generation}{_STALLED}"
        return await self._of(occasion, keys, "it makes no progress", STALL_S, ALERT_WAITS_S, since)

    async def before_kill(self, instance: Instance, why: str) -> None:
        """Save the stacks of an instance whose processes hang, and tell where in an event."""
        occasion = f"{instance.key}.killed"
        known = occasion in self._taken
        found = await self._of(occasion, [instance.key], why, KILL_S, KILL_S, 0.0)
        if not known and (found.saved or found.problem):
            text = found.words
            self._supervisor.say("stacks", f"before it is killed ({why}): {text}", "warning", instance.name)

    async def _of(
        self, occasion: str, keys: Sequence[str], why: str, limit: float, patience: float, since: float
    ) -> HungStacks:
        task = self._taken.get(occasion)
        if task is None:
            task = self._taken[occasion] = asyncio.ensure_future(
                self._save(occasion, keys, why, limit, since)
            )
        await asyncio.wait([task], timeout=patience)
        if not task.done() or task.cancelled():
            return HungStacks()
        if (error := task.exception()) is not None:
            self._supervisor.records.internal(error)
            return HungStacks()
        return task.result()

    async def _save(
        self, occasion: str, keys: Sequence[str], why: str, limit: float, since: float
    ) -> HungStacks:
        folder, supervisor = self._folder, self._supervisor
        loop = asyncio.get_running_loop()
        relative = str(folder.relative_to(supervisor.run_dir))
        earlier = await loop.run_in_executor(None, saved_in, folder, occasion)
        if earlier and min(one.at for one in earlier) >= since:  # by an earlier backend
            return HungStacks(tuple(in_order(earlier)), relative)
        if earlier:
            await loop.run_in_executor(None, _remove, folder, occasion)
        trees = supervisor.process_scan.trees
        members = {key: set(trees.members.get(key, ())) for key in keys}
        chosen = await loop.run_in_executor(None, _choose, members, trees.not_ours)
        py_spy = await loop.run_in_executor(None, stacks.find_py_spy, list(supervisor.pythons().values()))
        turns = asyncio.Semaphore(AT_ONCE)

        at = supervisor.now()

        async def one(place: int, key: str, process: Member, title: str) -> tuple[int, Saved | str]:
            async with turns:
                content = partial(file_text, key, process[0], _shown(title), why, at, place=place)
                take = partial(_take, folder / f"{occasion}.{process[0]}{SUFFIX}", process, py_spy, content)
                return process[0], await loop.run_in_executor(None, take)

        work = [asyncio.ensure_future(one(place, *each)) for place, each in enumerate(chosen)]
        if work:
            await asyncio.wait(work, timeout=limit)
        done = [task.result() for task in work if task.done()]
        saved = tuple(in_order(found for _, found in done if isinstance(found, Saved)))
        failed = [(pid, found) for pid, found in done if isinstance(found, str) and found != stacks.ENDED]
        for (_, process, _), task in zip(chosen, work, strict=True):
            if not task.done():
                task.cancel()  # one that waits for its turn
                failed.append((process[0], f"no answer within {limit:.0f} s"))
        if not failed:
            return HungStacks(saved, relative)
        return HungStacks(saved, relative, failed[0][1], failed[0][0])


def _remove(folder: Path, occasion: str) -> None:
    """Remove what an earlier stall has left, so that an attempt keeps the newest only."""
    for path in folder.glob(f"{occasion}.*{SUFFIX}"):
        with contextlib.suppress(OSError):
            path.unlink()


def _choose(members: dict[str, set[Member]], not_ours: frozenset[int]) -> list[tuple[str, Member, str]]:
    """At most ``MOST`` processes, those of the first services first, with the service and the title of each."""
    found: list[tuple[str, Member, str]] = []
    for key, processes in members.items():
        titles = {pid: procfs.command_line(pid) for pid, _ in processes if pid not in not_ours}
        own = [process for process in processes if process[0] in titles]
        found += [(key, process, titles[process[0]]) for process in stacks.in_order(own, titles)]
    return found[:MOST]


def _shown(title: str) -> str:
    return " ".join(redact.command(title.split()))[:300]


def _take(
    path: Path, process: Member, py_spy: Path | None, content: Callable[[str, str], str]
) -> Saved | str:
    """Save the stacks of one process; why there are none, if so. ``content``: of the file, from what took them and
    what that printed."""
    taken = stacks.take(process, py_spy, path.parent.parent / ON_SIGNAL)
    if not taken.text:
        return taken.problem
    text = content(taken.by, redact.value(taken.text))
    saved = parse(text)
    if saved is None:
        return f"{taken.by} found no Python thread"
    try:
        make_directory(path.parent, 0o700)
        write_atomic(path, text.encode(), 0o600, sync=False)
    except OSError as error:
        return f"they cannot be written: {error.strerror}"
    return saved
