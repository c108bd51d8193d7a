"""Faults of the keeper's clients and files: each kind of step of ``fuzz_keeper``, by itself and mixed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fuzz_keeper import SERVICES, BrokenError, Fuzz

from fault_cases.base import Case, Outcome

STEPS = 30  # of each case
SEEDS = (1, 2, 3)


def cases() -> Iterator[Case]:
    """A case for each kind of step and seed, and mixed ones."""
    kinds = (
        *("odd value", "changed bytes", "noise", "nesting", "long line", "half a request", "reads nothing"),
        *("many connections", "descriptor", "odd log", "odd exit file", "exit"),
    )
    for kind in kinds:
        for seed in SEEDS:
            yield Case(f"keeper: {kind}, seed {seed}", lambda folder, k=kind, s=seed: _fuzzed(folder, s, k))
    for seed in range(10, 20):
        yield Case(f"keeper: mixed, seed {seed}", lambda folder, s=seed: _fuzzed(folder, s, None))


def _fuzzed(folder: Path, seed: int, kind: str | None) -> Outcome:
    """``STEPS`` steps of one kind, None for all kinds. A keeper that ends or loses track loses all services."""
    fuzz = Fuzz(folder, seed)
    try:
        if kind is not None:
            fuzz.kinds = {kind: fuzz.kinds[kind]}
        report = fuzz.run(seconds=15.0, steps=STEPS)
    except BrokenError as error:
        return Outcome(lost=SERVICES, note=str(error))
    finally:
        fuzz.close()
    return Outcome(note=f"slowest answer {report.slowest:.2f} s")
