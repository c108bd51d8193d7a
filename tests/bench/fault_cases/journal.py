"""A damaged journal, under ``up`` and under ``stop``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from kit.damage import DAMAGES, flip, leaders
from kit.runs import make_run, toy

from fault_cases.base import Case, Outcome
from fault_cases.toys import named, names_kind
from liverl.offline.stop import stop_run
from liverl.rundir.layout import RunDir

FLIPS = 54  # journals with random flips of bytes
NAMES = ("a", "b", "work")


def cases() -> Iterator[Case]:
    """Each damage of ``kit.damage`` and ``FLIPS`` random ones, adopted and then stopped; each of the former also only
    stopped, with a damaged plan."""
    for name, damage in DAMAGES.items():
        yield Case(f"journal {name}: up", partial(_adopt, damage))
        yield Case(f"journal and plan {name}: stop", partial(_stop, damage))
    for seed in range(FLIPS):
        yield Case(f"journal with random flips {seed}: up", partial(_adopt, partial(flip, seed=seed)))


def _adopt(damage: Callable[[Path], None], folder: Path) -> Outcome:
    run = make_run(folder, [toy(name, "sleep", ends_run=name == "work") for name in NAMES])
    try:
        run.start()
        for name in NAMES:
            run.until(name, "ready")
        run.kill_backend()
        before, began = leaders(run), time.time()
        damage(RunDir(run.run_dir).journal)
        run.start()
        for name in NAMES:
            run.until(name, "ready")
        now = leaders(run)
        doubled = sum(len(pids) > 1 for pids in now.values())
        lost = sum(now.get(name) != pids for name, pids in before.items()) - doubled
        seconds = named(run, began, names_kind("journal"))  # None: no line is lost by it
        stop_run(run.run_dir)
        return Outcome(lost=lost, doubled=doubled, unstoppable=int(bool(leaders(run))), named_s=seconds)
    finally:
        run.end()


def _stop(damage: Callable[[Path], None], folder: Path) -> Outcome:
    run = make_run(folder, [toy(name, "sleep", ends_run=name == "work") for name in NAMES])
    try:
        run.start()
        for name in NAMES:
            run.until(name, "ready")
        run.kill_backend()
        damage(RunDir(run.run_dir).journal)
        damage(RunDir(run.run_dir).plan)
        stop_run(run.run_dir)
        return Outcome(unstoppable=int(bool(leaders(run))))
    finally:
        run.end()
