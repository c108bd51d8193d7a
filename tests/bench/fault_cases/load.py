"""Many children, huge and odd logs, deaf trees, stops in the middle of a swap: the run stays supervised and stops."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
from kit.runs import WEB, ToyRun, toy
from kit.waiting import wait_until

from fault_cases.base import Case, Outcome
from fault_cases.toys import (
    SERVICES,
    backend,
    judged,
    keeper,
    kill,
    leaders,
    named,
    names_end,
    names_kind,
    stopped,
    survives,
    toy_run,
)
from liverl.control.messages import ControlError
from liverl.plan.spec import PortSpec, Probe, Probes, ServiceSpec
from liverl.procs import procfs

CHILDREN = 500
# A service with many children, half of them in sessions of their own, which ignore SIGTERM.
MANY = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for number in range(int(sys.argv[1])):
    if os.fork() == 0:
        if number % 2: os.setsid()
        while True: signal.pause()
print("all there", flush=True)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
while True: signal.pause()
"""
SIGNS = {"nobody": (), "backend": (names_kind("adopting"),), "keeper": (names_kind("keeper"),)}
LOGS = {
    "1 GB without a newline": (1 << 30, b""),
    "1 GB without a newline, then a line": (1 << 30, b"\nERROR the end\n"),
    "only newlines": (0, b"\n" * 1_000_000),
    "bytes that are not UTF-8": (0, bytes(range(128, 256)) * 4096),
    "carriage returns only": (0, b"10%\r" * 250_000),
    "escape sequences that never end": (0, b"\x1b]0;" * 100_000),
    "a line nested 100,000 deep": (0, b"[" * 100_000 + b"\n"),
}


def cases() -> Iterator[Case]:
    """What a service can do to its supervisor, and commands at bad moments."""
    for killed in ("nobody", "backend", "keeper"):
        yield Case(f"{CHILDREN} children, {killed} killed", partial(_children, killed))
    for name, (hole, end) in LOGS.items():
        yield Case(f"a log of {name}", partial(_log, hole, end))
    for leader in ("", "deaf-leader"):
        for killed in ("nobody", "backend", "keeper"):
            for now in (False, True):
                how = "stop --now" if now else "stop"
                yield Case(
                    f"deaf tree {leader or 'with a leader that ends'}, {killed} killed, {how}",
                    partial(_deaf, leader, killed, now),
                )
    for seed in range(6):
        yield Case(f"stop in the middle of a swap, seed {seed}", partial(_swap, seed, False))
    for seed in range(3):
        yield Case(f"backend killed in the middle of a swap, seed {seed}", partial(_swap, seed, True))
    for number in (
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGPIPE,
        signal.SIGALRM,
        signal.SIGTERM,
    ):
        yield Case(f"the keeper gets {number.name}", partial(_signal, number))
    for count in (5, 10):
        yield Case(f"{count} kills of the backend in a row", partial(_row, count))
        yield Case(f"{count} stops at once", partial(_stops, count))
    for now in (False, True):
        yield Case(
            f"stop{' --now' if now else ''} of a run whose processes are all dead", partial(_all_dead, now)
        )


def _script(name: str, text: str, *argv: str, **fields: object) -> ServiceSpec:
    return msgspec.structs.replace(toy(name, **fields), argv=(sys.executable, "-I", "-S", "-c", text, *argv))


def _kill(run: ToyRun, killed: str) -> None:
    if killed == "backend":
        kill(backend(run))
        run.start()
    elif killed == "keeper" and (pid := keeper(run)) is not None:
        kill(pid)


def _children(killed: str, folder: Path) -> Outcome:
    probes = Probes(startup=Probe("log_line", pattern="all there", interval=0.1))
    many = _script("many", MANY, str(CHILDREN), probes=probes)

    def fault(run: ToyRun) -> float:
        run.until("many", lambda s: len(s.members) > CHILDREN)
        began = time.time()
        _kill(run, killed)
        return began

    return survives(folder, fault, (many, *SERVICES[:1]), SIGNS[killed])


def _log(hole: int, end: bytes, folder: Path) -> Outcome:
    def fault(run: ToyRun) -> float:
        log = run.run_dir / str(run.service("s0").log)
        with log.open("ab") as file:
            file.truncate(log.stat().st_size + hole)
            file.seek(0, os.SEEK_END)
            file.write(end)
        before = run.service("s0").pid
        assert before is not None
        began = time.time()
        kill(before)  # its last lines are read for the cause
        run.until("s0", lambda s: s.state == "ready" and s.pid != before)
        kill(backend(run))
        run.start()
        return began

    return survives(folder, fault, signs=(names_end("s0"),))


def _deaf(leader: str, killed: str, now: bool, folder: Path) -> Outcome:
    tree = toy("tree", "tree", *([leader] if leader else []))
    with toy_run(folder, (tree,)) as run:
        members = set(run.until("tree", lambda s: len(s.members) == 4).members)
        began = time.time()
        _kill(run, killed)
        found = judged(run)
        found = stopped(run, replace(found, named_s=named(run, began, *SIGNS[killed])), now=now)
        left = [pid for pid in members if procfs.alive(pid, None)]
        return _with_left(found, left)


def _with_left(found: Outcome, left: list[int]) -> Outcome:
    """The outcome, unstoppable too if processes are left that no longer show the tag of the run."""
    return replace(found, unstoppable=max(found.unstoppable, int(bool(left))))


def _swap(seed: int, kill_it: bool, folder: Path) -> Outcome:
    draw = random.Random(seed)
    held = {
        "kind": "proxy",
        "ports": (PortSpec("http", held=True),),
        "probes": Probes(startup=Probe("http", port="http", interval=0.05)),
    }
    with toy_run(folder, (_script("web", WEB, **held), *SERVICES[:1])) as run:

        def restart() -> None:
            try:
                run.command("restart", service="web")
            except ControlError:
                return  # the stop came first

        thread = threading.Thread(target=restart, daemon=True)
        thread.start()
        time.sleep(draw.uniform(0, 0.6))  # the moment of the swap is what the case is about
        outcome = Outcome()
        if kill_it:
            began = time.time()
            kill(backend(run))
            run.start()
            outcome = replace(judged(run), named_s=named(run, began, *SIGNS["backend"]))
        found = stopped(run, outcome)
        thread.join(10)
        return found


def _signal(number: int, folder: Path) -> Outcome:
    def fault(run: ToyRun) -> float:
        pid = keeper(run)
        assert pid is not None
        began = time.time()
        os.kill(pid, number)
        kill(leaders(run)["s0"][0])
        return began

    return survives(folder, fault, signs=(names_end("s0"),))


def _row(count: int, folder: Path) -> Outcome:
    def fault(run: ToyRun) -> float:
        for _ in range(count):
            began = time.time()
            kill(backend(run))
            run.start()
        return began

    return survives(folder, fault, signs=SIGNS["backend"])


def _stops(count: int, folder: Path) -> Outcome:
    with toy_run(folder) as run:
        found: list[Outcome] = []
        threads = [threading.Thread(target=lambda: found.append(stopped(run))) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(found) == count, "a stop has not returned"
        return Outcome(unstoppable=max(o.unstoppable for o in found), note="; ".join({o.note for o in found}))


def _all_dead(now: bool, folder: Path) -> Outcome:
    with toy_run(folder) as run:
        kill(backend(run))
        for pid in run.tagged():
            kill(pid)
        wait_until(lambda: not run.tagged(), what="the end of every process")
        return stopped(run, now=now)
