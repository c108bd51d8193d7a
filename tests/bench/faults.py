"""The fault table: faults and attacks, each tried on a run of its own, and what became of the run.

``python tests/bench/faults.py [--quick] [--only AREA,...] [--json FILE] [--jobs N] [--limit SECONDS]``. An area is a
module of ``fault_cases``. Exit code 1 if a case lost, doubled or leaked something, left a run that could
not be stopped, or could not be tried.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pkgutil
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[2:4])

import fault_cases  # noqa: E402
from fault_cases.base import Case, Outcome, Part, Shared  # noqa: E402

from liverl.procs import procfs  # noqa: E402

TAG = "LIVERL_FAULT_CASE"  # in the environment of all that a case starts; its value is the case's folder
LIMIT_S = 90.0  # a case that takes longer has left something that cannot be stopped
PART_S = 2.0  # and each fault of a shared run
LEAVE_S = 10.0  # for the last processes of a case to end by themselves
QUICK = 6  # with --quick one case in so many is tried, and the first of each area


@dataclass
class Tried:
    """What came of one case. ``problem``: why it could not be tried, or what it left."""

    area: str
    name: str
    outcome: Outcome
    problem: str = ""
    seconds: float = 0.0

    @property
    def survived(self) -> bool:
        """Whether it was tried and did no harm."""
        return self.outcome.survived and not self.problem


def collect(package: object = fault_cases, only: Iterable[str] = ()) -> dict[str, list[Case | Shared]]:
    """The cases of every module of a package that has a function ``cases``, by the module's name."""
    wanted = set(only)
    found: dict[str, list[Case | Shared]] = {}
    for module in pkgutil.iter_modules(package.__path__):  # type: ignore[attr-defined]
        if wanted and module.name not in wanted:
            continue
        cases = getattr(import_module(f"{package.__name__}.{module.name}"), "cases", None)  # type: ignore[attr-defined]
        if cases is not None:
            found[module.name] = list(cases())
    return found


# -- one case


def attempt(area: str, case: Case | Shared, folder: Path, limit: float = LIMIT_S) -> list[Tried]:
    """Run one case in a process of its own, and leave nothing of it behind. A shared one gives many results, and may
    take ``limit`` and ``PART_S`` for each."""
    limit += PART_S * case.count if isinstance(case, Shared) else 0.0
    folder.mkdir(parents=True)
    report = folder.with_name(f"{folder.name}.json")
    began = time.monotonic()
    process = multiprocessing.get_context("fork").Process(target=_inside, args=(case, folder, report))
    process.start()
    assert process.pid is not None
    session, tick = process.pid, procfs.start_tick(process.pid)
    process.join(limit)
    hung = process.is_alive()
    seconds = time.monotonic() - began
    parts = _read(report, case.name)
    if hung:
        parts = [Part(case.name, Outcome(unstoppable=1), f"did not end within {limit:g} s")]
    elif isinstance(case, Shared) and len(parts) < case.count and not any(p.problem for p in parts):
        parts.append(Part(case.name, problem=f"{len(parts)} were tried, of {case.count} at least"))
    left = _left(folder, session if tick is not None else None, LEAVE_S if not hung else 0.0)
    _kill({session: tick, **left})
    process.join(LEAVE_S)
    if left and not hung:
        words = f"left processes {sorted(left)}: {_commands(left)}"
        last = parts[-1]
        parts[-1] = Part(last.name, replace(last.outcome, leaked=len(left)), last.problem or words)
    shutil.rmtree(folder, ignore_errors=True)
    return [Tried(area, part.name, part.outcome, part.problem, seconds / len(parts)) for part in parts]


def _inside(case: Case | Shared, folder: Path, report: Path) -> None:
    """In the process of the case: try it and write down what came of it."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ[TAG] = str(folder)
    log = os.open(f"{report}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    told: dict[str, object]
    try:
        came = case.run(folder)
        parts = [Part(case.name, came)] if isinstance(came, Outcome) else came
        told = {"parts": [asdict(part) for part in parts]}
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        words = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        told = {"problem": f"{words} ({Path(last.filename).name}:{last.lineno})"}
    report.write_text(json.dumps(told))


def _read(report: Path, name: str) -> list[Part]:
    try:
        told = json.loads(report.read_text())
    except (OSError, ValueError):
        return [Part(name, problem="its process ended without a result")]
    parts = [Part(p["name"], Outcome(**p["outcome"]), p["problem"]) for p in told.get("parts", ())]
    return parts or [Part(name, problem=told.get("problem") or "nothing was tried")]


def _left(folder: Path, session: int | None, patience: float) -> dict[int, int | None]:
    """Processes of a case that still live after ``patience`` seconds: pid -> start tick."""
    give_up = time.monotonic() + patience
    while True:
        found = belonging(folder, session)
        if not found or time.monotonic() >= give_up:
            return found
        time.sleep(0.1)


def belonging(folder: Path, session: int | None = None) -> dict[int, int | None]:
    """The living processes that were started for a case: pid -> start tick. They have its folder in their environment
    or command line, or its session, or descend from one that has."""
    table = procfs.scan()
    place = os.fsencode(folder)
    ours: set[int] = set()
    for pid, proc in table.items():
        if proc.zombie or pid == os.getpid():
            continue
        if (session is not None and proc.session == session) or _names(pid, place):
            ours.add(pid)
    while more := {p.pid for p in table.values() if p.ppid in ours and not p.zombie} - ours:
        ours |= more
    return {pid: table[pid].tick for pid in ours if pid != os.getpid()}


def _names(pid: int, place: bytes) -> bool:
    """Whether a process has a folder, or a place in it, in its environment or among its arguments."""
    for file in ("environ", "cmdline"):
        try:
            words = Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
        except OSError:
            continue
        for word in words:
            value = word.partition(b"=")[2] if file == "environ" else word
            if value == place or value.startswith(place + b"/"):
                return True
    return False


def _kill(processes: dict[int, int | None]) -> None:
    """SIGKILL to processes by pid, if the start tick is still the same."""
    for pid, tick in processes.items():
        if tick is not None and procfs.start_tick(pid) == tick:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _commands(processes: Iterable[int]) -> str:
    return "; ".join(procfs.command_line(pid)[-80:] for pid in sorted(processes)[:3])


# -- all of them


def run_all(
    areas: Mapping[str, Sequence[Case | Shared]],
    folder: Path,
    *,
    jobs: int = 2,
    limit: float = LIMIT_S,
    on_tried: Callable[[Tried], None] = lambda tried: None,
) -> list[Tried]:
    """Try every case, ``jobs`` at a time, in the order of the areas."""
    todo = [(area, case) for area, cases in areas.items() for case in cases]

    def one(number: int) -> list[Tried]:
        area, case = todo[number]
        found = attempt(area, case, folder / f"{number:04}", limit)
        for tried in found:
            on_tried(tried)
        return found

    with ThreadPoolExecutor(jobs) as pool:
        return [tried for found in pool.map(one, range(len(todo))) for tried in found]


def size(areas: Mapping[str, Sequence[Case | Shared]]) -> int:
    """How many faults these are, at least."""
    return sum(c.count if isinstance(c, Shared) else 1 for cases in areas.values() for c in cases)


def table(found: list[Tried]) -> str:
    """One line per area, the total, and a line per case that did not survive."""
    rows = [("area", "tried", "survived", "named in s: median", "worst")]
    for area in dict.fromkeys(tried.area for tried in found):
        of_area = [tried for tried in found if tried.area == area]
        named = [tried.outcome.named_s for tried in of_area if tried.outcome.named_s is not None]
        times = (f"{statistics.median(named):.1f}", f"{max(named):.1f}") if named else ("-", "-")
        survived = sum(tried.survived for tried in of_area)
        rows.append((area, str(len(of_area)), str(survived), *times))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            c.ljust(w) if not i else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines += ["", total(found)]
    for tried in found:
        if not tried.survived:
            outcome = tried.outcome
            counts = (
                ("lost", outcome.lost),
                ("doubled", outcome.doubled),
                ("leaked", outcome.leaked),
                ("unstoppable", outcome.unstoppable),
            )
            harm = [f"{count} {word}" for word, count in counts if count]
            why = "; ".join(part for part in (*harm, tried.problem, outcome.note) if part)
            lines.append(f"FAILED {tried.area}: {tried.name}: {why}")
    return "\n".join(lines)


def total(found: list[Tried]) -> str:
    """``N tried, M survived, 0 lost, 0 doubled, 0 leaked, 0 unstoppable``."""
    outcomes = [tried.outcome for tried in found]
    return (
        f"{len(found)} tried, {sum(t.survived for t in found)} survived, {sum(o.lost for o in outcomes)} lost, "
        f"{sum(o.doubled for o in outcomes)} doubled, {sum(o.leaked for o in outcomes)} leaked, "
        f"{sum(o.unstoppable for o in outcomes)} unstoppable"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the table from the command line; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"one case in {QUICK}")
    parser.add_argument("--only", default="", metavar="AREA,...", help="only these areas")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcome of every case")
    parser.add_argument(
        "--jobs", type=int, default=2, metavar="N", help="cases at the same time (default: 2)"
    )
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="time of one case")
    options = parser.parse_args(arguments)
    only = [area for area in options.only.split(",") if area]
    areas = collect(only=only)
    if unknown := set(only) - set(areas):
        parser.error(f"no area {', '.join(sorted(unknown))}; areas: {', '.join(collect())}")
    if options.quick:
        areas = {area: cases[::QUICK] for area, cases in areas.items()}
    print(f"{size(areas)} faults in {len(areas)} areas", file=sys.stderr)
    # Ended by a signal it still ends the cases that it has begun, and begins no other.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="liverl-faults-"))

    def tell(tried: Tried) -> None:
        word = "ok" if tried.survived else "FAILED"
        print(f"{word:<6} {tried.seconds:5.1f} s  {tried.area}: {tried.name}", file=sys.stderr, flush=True)

    try:
        found = run_all(areas, folder, jobs=options.jobs, limit=options.limit, on_tried=tell)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(found))
    print(f"{time.monotonic() - began:.0f} s with {options.jobs} jobs")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(tried) for tried in found], indent=1))
    return 0 if all(tried.survived for tried in found) else 1


if __name__ == "__main__":
    sys.exit(main())
