"""``kill -9`` of backend, keeper and service: alone, in pairs and all three, in every order, at random moments."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import Bench
from kills import BEATS, PHASES, one_kill
from kit.runs import ToyRun

from fault_cases.base import Case, Outcome
from fault_cases.toys import (
    backend,
    judged,
    keeper,
    kill,
    leaders,
    named,
    names_end,
    names_kind,
    stopped,
    toy_run,
)
from liverl.procs import procfs

SEEDS = 3  # random delays per order of kills
PHASE_SEEDS = 3
SIGNS = {
    "backend": names_kind("adopting"),
    "keeper": names_kind("keeper"),
    "service": names_end("s0"),
}
WHOM = tuple(SIGNS)


def cases() -> Iterator[Case]:
    """Every order of one to three kills with several seeds; and kills of the backend in each phase of a run."""
    for count in (1, 2, 3):
        for order in itertools.permutations(WHOM, count):
            for seed in range(SEEDS if count > 1 else 1):
                gaps = _gaps(seed, count)
                yield Case(f"kill {', '.join(order)}; gaps {gaps}", partial(_in_order, order, gaps))
    for phase in PHASES:
        for seed in range(PHASE_SEEDS):
            yield Case(f"kill backend during {phase}, seed {seed}", partial(_in_phase, phase, seed))


def _gaps(seed: int, count: int) -> tuple[float, ...]:
    """Seconds between the kills; none at all with the first seed."""
    draw = random.Random(seed)
    return tuple(round(draw.uniform(0, 0.3), 3) if seed else 0.0 for _ in range(count - 1))


def _in_order(order: tuple[str, ...], gaps: tuple[float, ...], folder: Path) -> Outcome:
    with toy_run(folder) as run:
        began = time.time()
        for whom, gap in itertools.zip_longest(order, gaps, fillvalue=0.0):
            _kill(run, str(whom))
            time.sleep(float(gap))  # the moment of the next kill is what the case is about
        if not procfs.alive(backend(run), None):
            run.start()
        found = judged(run)
        # With a backend that is killed too, the next one starts another keeper without a word.
        told = [whom for whom in order if whom != "keeper" or "backend" not in order]
        seconds = named(run, began, *(SIGNS[whom] for whom in told))
        return stopped(run, replace(found, named_s=seconds))


def _kill(run: ToyRun, whom: str) -> None:
    if whom == "backend":
        kill(backend(run))
    elif whom == "keeper":
        if (pid := keeper(run)) is not None:
            kill(pid)
    else:
        for pid in leaders(run).get("s0", [])[:1]:
            kill(pid)


def _in_phase(phase: str, seed: int, folder: Path) -> Outcome:
    bench = Bench(folder, quick=True, python=None)
    bench.random = random.Random(f"{phase} {seed}")
    with bench.peers(phase, BEATS) as (peer,):
        found: Counter[str] = one_kill(bench, peer, phase)
    return Outcome(lost=found["lost"] + found["missing"], doubled=found["doubled"], unstoppable=found["left"])
