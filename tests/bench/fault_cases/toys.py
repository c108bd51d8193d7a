"""What the cases over toy services share: a run, what became of its processes, and its end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from fault_cases.base import Outcome
from liverl.control.messages import ControlError
from liverl.model import Event
from liverl.offline.stop import stop_run
from liverl.plan.spec import ServiceSpec
from liverl.procs import procfs

SERVICES = (toy("s0", "sleep"), toy("s1", "sleep"))
STOP_S = 30.0  # a stop that takes longer counts as none


@contextmanager
def toy_run(
    folder: Path,
    services: tuple[ServiceSpec, ...] = SERVICES,
    *,
    start: bool = True,
    replica: ServiceSpec | None = None,
) -> Iterator[ToyRun]:
    """A run of toys, started and ready; nothing of it is left afterwards. ``replica``: it has one of these."""
    run = make_run(folder, services, replica=replica, replicas=int(replica is not None), served_model="m")
    try:
        if start:
            run.start()
            until_ready(run)
        yield run
    finally:
        run.end()


def until_ready(run: ToyRun) -> None:
    """Wait until every service is ready, under whichever backend."""

    def ready() -> bool:
        try:
            return all(s.state == "ready" for s in run.snapshot().services)
        except ControlError:
            return False

    wait_until(ready, 40, "every service ready")


def leaders(run: ToyRun) -> dict[str, list[int]]:
    """The leaders of each service that live: name -> pids. A worker in a session of its own is none: its parent shows
    the same tag."""
    table = procfs.scan()
    found: dict[str, list[int]] = {}
    tags = run.tagged()
    for pid, tag in tags.items():
        service, _, generation = tag.split("/", 2)[2].rpartition("/")
        if (
            (proc := table.get(pid)) is not None
            and proc.session == pid
            and generation != "0"
            and tags.get(proc.ppid) != tag
        ):
            found.setdefault(service, []).append(pid)
    return found


def keeper(run: ToyRun) -> int | None:
    """The pid of the run's keeper, if it lives."""
    return next((pid for pid, tag in run.tagged().items() if tag.endswith("/keeper/0")), None)


def backend(run: ToyRun) -> int:
    """The pid of the newest backend."""
    return run.backends[-1]


def kill(pid: int) -> None:
    """SIGKILL, and wait for the end."""
    tick = procfs.start_tick(pid)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        wait_until(lambda: not procfs.alive(pid, tick), what=f"the end of {pid}")


def named(run: ToyRun, since: float, *signs: Callable[[Event], bool]) -> float | None:
    """Seconds from ``since`` (Unix time) until the run had told of all ``signs``, by the time stamps of its events;
    None if it has not told of one."""
    told = [event for event in run.events() if event.at >= since]
    firsts = [next((event.at for event in told if sign(event)), None) for sign in signs]
    found = [at - since for at in firsts if at is not None]
    return max(found) if found and len(found) == len(firsts) else None


def names_end(service: str) -> Callable[[Event], bool]:
    """A sign for ``named``: a service's process has ended."""
    return lambda event: event.service == service and event.level == "warning"


def names_kind(kind: str) -> Callable[[Event], bool]:
    """A sign for ``named``: an event of this kind."""
    return lambda event: event.kind == kind


def judged(run: ToyRun) -> Outcome:
    """How the run stands: who runs twice, and who runs without being supervised. Every service has to be ready."""
    until_ready(run)
    lost = doubled = 0

    def settled() -> bool:
        nonlocal lost, doubled
        living = leaders(run)
        known = {s.name: s.pid for s in run.snapshot().services}
        doubled = sum(len(pids) - 1 for pids in living.values())
        lost = sum(known.get(name) not in pids for name, pids in living.items()) + len(
            set(known) - set(living)
        )
        return not lost and not doubled

    give_up = time.monotonic() + 8.0
    while not settled() and time.monotonic() < give_up:
        time.sleep(0.1)
    return Outcome(lost=lost, doubled=doubled)


def stopped(run: ToyRun, outcome: Outcome | None = None, *, now: bool = False) -> Outcome:
    """The same outcome, once the run has been stopped: unstoppable if anything of it still lives."""
    outcome = outcome or Outcome()
    try:
        stop_run(run.run_dir, now=now)
    except ControlError as error:
        return replace(outcome, unstoppable=1, note=str(error))
    give_up = time.monotonic() + STOP_S
    while run.tagged() and time.monotonic() < give_up:
        time.sleep(0.05)
    left = run.tagged()
    return replace(outcome, unstoppable=int(bool(left)), note=f"left {sorted(left.values())}" if left else "")


def survives(
    folder: Path,
    fault: Callable[[ToyRun], float | None],
    services: tuple[ServiceSpec, ...] = SERVICES,
    signs: tuple[Callable[[Event], bool], ...] = (),
) -> Outcome:
    """Start a run, do ``fault`` to it, look at it, stop it. ``fault`` returns the Unix time from which the run can
    have told of it by ``signs``, None if there is nothing to tell."""
    with toy_run(folder, services) as run:
        began = fault(run)
        found = judged(run)
        if began is not None:
            found = replace(found, named_s=named(run, began, *signs))
        return stopped(run, found)
