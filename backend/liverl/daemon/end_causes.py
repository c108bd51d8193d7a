"""Why the processes of an attempt ended: one answer per process, for the result, alerts, events and commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from liverl.causes.inputs.busy import with_load
from liverl.causes.inputs.ended import Ended, Why, error_behind_success, why_ended
from liverl.causes.inputs.ray_deaths import is_consequence
from liverl.causes.inputs.refused import refused
from liverl.causes.inputs.shown import cause
from liverl.causes.match import Matcher, whole
from liverl.causes.quiet.told import Told, joined, read_told
from liverl.causes.verdict.gpu_neighbours import without_blame
from liverl.causes.verdict.unexplained import FIRST_ERROR, UNEXPLAINED, is_doubtful
from liverl.logs.files import also_written
from liverl.model import Cause
from liverl.observe.gpu.strangers import Stranger, told
from liverl.observe.oom_kills import OomKills
from liverl.supervise.services import state_machine
from liverl.util.blocking_call import BlockingCalls

if TYPE_CHECKING:
    from liverl.supervise.services.instance import Instance
    from liverl.supervise.services.leader import LeaderProcess
    from liverl.supervise.services.records import Records

READ_S = 10.0  # seconds for reading the logs; 128 MiB take about 3
TOLD_S = 60.0  # seconds for reading what a trainer with exit code 0 told; 512 MiB take 5 to 20
SOON_S = 2.0  # seconds for which an alert waits for them
_LISTED = re.compile(r"\bthis process has [^\n]{0,400}Of the allocated memory")
_OTHER = re.compile(r"\bProcess \d+ has\b")


class NotReadError(Exception):
    """The logs of a process could not be read; the text says which and why."""


class EndCauses:
    """``instances`` returns those of every service; ``now`` Unix seconds. ``logs_moved`` is called in a thread before
    the logs of a process are read, and links those that it has written elsewhere. ``further`` returns what is known of
    an end besides logs and exits, to be appended to the sentence. ``below`` returns the logs of what all processes run
    on that were written to since a Unix time; it is called in a thread. ``strangers`` returns who else holds GPU
    memory, as far as it is known. ``ray``: some of them may run on Ray; ``ray_dir``: the directory
    of the run's own one, "" without one. ``load``: of this host, the mean of one minute. ``matcher``: of the
    catalogue in which the logs are looked up, if it is another one than ours."""

    def __init__(
        self,
        run_dir: Path,
        records: Records,
        instances: Callable[[], Iterable[Instance]],
        now: Callable[[], float],
        oom_kills: OomKills,
        matcher: Matcher | None = None,
    ) -> None:
        self.logs_moved: Callable[[LeaderProcess], None] = lambda process: None
        self.further: Callable[[Instance], str] = lambda instance: ""
        self.below: Callable[[float], list[Path]] = lambda since: []
        self.strangers: Callable[[], tuple[Stranger, ...]] = tuple
        self.ray = False
        self.gpus = True  # something of the run may compute on some
        self.ray_dir = ""
        self.load: Callable[[], float] = lambda: os.getloadavg()[0]
        self.matcher = matcher or whole()  # of rows as they were at the start, see ``matcher_of``
        self._run_dir = run_dir
        self._records = records
        self._instances = instances
        self._now = now
        self._oom_kills = oom_kills
        self._reads = BlockingCalls[Why | None]()
        self._tellings = BlockingCalls[Told]()
        # (log, byte) of causes that are a process's which is none of the run
        self._of_others: set[tuple[str | None, int | None]] = set()
        self._found: dict[tuple[str, int], asyncio.Task[Cause | None]] = {}
        self.newest: dict[str, Cause] = {}  # service -> why its last process that ended by itself did so

    async def of(self, instance: Instance) -> Cause:
        """Why an instance is not up any more: what result, alerts, events and commands say."""
        found = await self.of_process(instance)
        machine, stated = instance.machine, self.stated(instance)
        if found is None:
            return stated
        text = found.text
        if machine.exit is not None and machine.exit.ok:
            # The log of a server that exits 0 seldom shows a fault.
            text = f"{stated.text}; {text.partition('; ')[2] if found.id == 'silent-exit' else text}"
        elif machine.ended_by_us:
            text = f"{stated.text}; {text}"
        else:
            additions = self._additions(instance)
            text = f"{text.rstrip('.')}{additions}" if additions else text
        return msgspec.structs.replace(found, text=text)

    def stated(self, instance: Instance) -> Cause:
        """The reason for an instance's state, which is known at once, without its logs."""
        machine = instance.machine
        how = machine.exit.words() if machine.exit is not None else ""
        reason = how if _not_started_again(instance) else machine.last_failure or machine.why or how
        addition = "" if machine.refused else self._additions(instance, reason)
        text = (reason + addition).removeprefix(f"{instance.name} ")  # it is shown behind the name
        found = refused(text, instance.name)
        if found is None:
            return Cause(instance.name, text, self._now())
        why = self._with_strangers(found.why) if found.id == "gpus-held" else found.why
        return Cause(
            instance.name,
            text,
            self._now(),
            id=found.id,
            why=why,
            fix=found.fix,
            command=found.command,
            patch=found.patch,
        )

    def _with_strangers(self, why: str) -> str:
        who = told(self.strangers())
        return f"{why} {who}" if who else why

    def _additions(self, instance: Instance, reason: str = "") -> str:
        again = f"; {instance.machine.why}" if _not_started_again(instance) else ""
        further = self.further(instance)
        return again + (f"; {further}" if further and further not in reason else "")

    async def of_process(self, instance: Instance) -> Cause | None:
        """Why the newest process of an instance ended; None if neither logs nor its exit tell."""
        task = self.begin(instance)
        # A caller that is cancelled must not cancel it for the others.
        return None if task is None else await asyncio.shield(task)

    def begin(self, instance: Instance) -> asyncio.Task[Cause | None] | None:
        """Find in the background what ``of_process`` returns, once for each process."""
        process = instance.process
        if process is None or not _explained_by_log(instance):
            return None
        key = (instance.name, process.generation)
        if key not in self._found:
            ended, others = self._ended(instance, process), list(self._others(instance))
            self._found[key] = asyncio.create_task(self._end_of(process, ended, others))
        return self._found[key]

    async def behind_success(self, instance: Instance, *, unfinished: bool) -> Cause | None:
        """The error that the log of an instance ends with although it exited with 0; None without one.
        ``unfinished``: it is known that work was left.

        Raises:
            NotReadError: whether there is one is not known.
        """
        process = instance.process
        if process is None:
            return None

        def read() -> Why | None:
            self.logs_moved(process)
            return error_behind_success(
                _with_links(self._ended(instance, process)), unfinished=unfinished, matcher=self.matcher
            )

        return await self._find(process, read, TOLD_S, strict=True)

    async def told(self, instance: Instance) -> Told:
        """What the logs of an instance tell about its steps; only what was not read where they cannot be read in
        time."""
        process = instance.process
        if process is None:
            return Told()

        def read() -> Told:
            self.logs_moved(process)
            logs = [(process.log, process.log_start), *((path, 0) for path in also_written(process.log))]
            found = []
            for path, start in logs:
                with contextlib.suppress(FileNotFoundError):
                    found.append(read_told(path, start, _shown(path, self._run_dir)))
            return joined(found)

        try:
            return await self._tellings.call(read, TOLD_S)
        except TimeoutError:
            why = f"reading {process.log.name} has taken longer than {TOLD_S:g} s"
        except OSError as error:
            why = f"cannot read {error.filename or process.log.name}: {error.strerror}"
        self._records.cannot_read(why)
        return Told(left_out=why)

    async def behind(self, seen: Cause, instance: Instance) -> Cause:
        """Why the run fails although the process of an instance goes on: what its log and those of what it runs on
        tell, followed by ``seen``, what was seen from outside."""
        process = instance.process
        if process is None or (seen.id and not is_consequence(seen.id, self.matcher)):
            return seen
        ended = msgspec.structs.replace(self._ended(instance, process), exit=None, waits=True)
        others = list(self._others(instance))
        found = await self._find(process, partial(self._read, process, ended, others))
        if found is None:
            return seen
        # What a program may have caught, or what the stop has brought about meanwhile, need have no part in it.
        names_a_process = found.id == "unknown" and FIRST_ERROR not in found.text
        if not names_a_process and (found.id in UNEXPLAINED or is_doubtful(found.id, self.matcher)):
            return seen
        return msgspec.structs.replace(found, text=f"{found.text.rstrip('.')}; {seen.text}")

    async def read(self) -> None:
        """Wait until the logs are read whose reading has begun, ``SOON_S`` seconds at most."""
        reading = [task for task in self._found.values() if not task.done()]
        if reading:
            await asyncio.wait(reading, timeout=SOON_S)

    def close(self) -> None:
        """Give up what is still being read."""
        for task in self._found.values():
            task.cancel()

    async def _end_of(self, process: LeaderProcess, ended: Ended, others: list[Ended]) -> Cause | None:
        found = await self._find(process, partial(self._read, process, ended, others))
        if found is not None:
            self.newest[ended.name] = found
        return found

    async def _find(
        self,
        process: LeaderProcess,
        read: Callable[[], Why | None],
        seconds: float = READ_S,
        *,
        strict: bool = False,
    ) -> Cause | None:
        """The cause that ``read`` finds; None if there is none, or, unless ``strict``, if it could not be read."""
        problem = ""
        try:
            why = await self._reads.call(read, seconds)
        except TimeoutError:
            problem = f"reading {process.log.name} has taken longer than {seconds:g} s; its cause is unknown"
        except OSError as error:
            problem = f"cannot read {error.filename or process.log.name}: {error.strerror}"
        if problem:
            self._records.cannot_read(problem)
            if strict:
                raise NotReadError(problem)
            return None
        if why is None:
            return None
        found = cause(why, self._run_dir, self._now(), ray=self.ray, ray_dir=self.ray_dir, gpus=self.gpus)
        if self.short_of_gpu_memory(found) and not _held_alone(found):
            found = self._without_blame(found)
        row = self.matcher.by_id.get(found.id)
        if row is not None and row.busy_host:
            found = with_load(found, self.load(), os.cpu_count() or 1)
        return found

    def _without_blame(self, found: Cause) -> Cause:
        """``found``, of memory of a GPU that was short, with who else holds some; the run is not to be changed for it
        where one of them had most of it."""
        pids = {one.pid for one in self.strangers()}
        other = without_blame(found, pids)
        if other is not None and other.log is not None:
            self._of_others.add((other.log, other.offset))
        found = found if other is None else other
        return msgspec.structs.replace(found, why=self._with_strangers(found.why))

    def too_large_for_gpus(self, found: Cause) -> bool:
        """Whether a GPU's memory was short, and no process of somebody else had most of it."""
        return self.short_of_gpu_memory(found) and (found.log, found.offset) not in self._of_others

    def short_of_gpu_memory(self, found: Cause) -> bool:
        """Whether a GPU's memory was short, in which a process of somebody else may have a part."""
        row = self.matcher.by_id.get(found.id)
        return row is not None and row.gpu_memory

    def _read(self, process: LeaderProcess, ended: Ended, others: list[Ended]) -> Why | None:
        self.logs_moved(process)
        below = self.below(process.started_at)
        return why_ended(_with_links(ended), [_with_links(other) for other in others], below, self.matcher)

    def _ended(self, instance: Instance, process: LeaderProcess) -> Ended:
        machine = instance.machine
        exit_ = None if machine.ended_by_us else machine.exit  # what stopped it is known
        oom = self._oom_kills.evidence(self._now())
        return Ended(instance.name, process.log, process.log_start, exit=exit_, oom=oom)

    def _others(self, instance: Instance) -> Iterator[Ended]:
        """The other processes that have ended by themselves."""
        for other in self._instances():
            process = other.process
            if process is None or other is instance or other.machine.ended_by_us or other.machine.completed:
                continue
            if other.machine.state not in state_machine.LIVE and _explained_by_log(other):
                yield self._ended(other, process)


def _held_alone(found: Cause) -> bool:
    """Whether torch listed all processes on the GPU, and there was no other: who holds memory now came later."""
    said = " ".join(one.text for one in found.evidence)
    return _LISTED.search(said) is not None and _OTHER.search(said) is None


def _shown(path: Path, run_dir: Path) -> str:
    return str(path.relative_to(run_dir)) if path.is_relative_to(run_dir) else str(path)


def _with_links(ended: Ended) -> Ended:
    return msgspec.structs.replace(ended, also=tuple(also_written(ended.log)))


def _not_started_again(instance: Instance) -> bool:
    """Whether the next process could not be started after the newest one had ended; the state says why."""
    process, machine = instance.process, instance.machine
    return process is not None and process.generation != machine.generation and machine.exit is not None


def _explained_by_log(instance: Instance) -> bool:
    machine = instance.machine
    return machine.exit is not None and not machine.shut_down and not machine.refused
