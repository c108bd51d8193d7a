"""Mutation testing by hand: ``python tests/mutation/run.py GROUP``; see README.md beside this file."""

from __future__ import annotations

import argparse
import compileall
import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parent))

import judge
from equivalent import module_path, read_equivalents, stale
from mutants import Mutant, mutate, sites

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SEED = 10
SAMPLE = 150
T = TypeVar("T")
R = TypeVar("R")
ISOLATED = "LIVERL_MUTATION_ISOLATED"


@dataclass(frozen=True)
class Group:
    """Modules that are judged together, and the test files that judge them."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    always: tuple[str, ...] = ()  # run against every mutant: they run the modules in processes of their own


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    outcome: str  # killed | timeout | survived | uncovered | equivalent | wrongly-equivalent
    seconds: float = 0.0


def read_groups() -> dict[str, Group]:
    table = tomllib.loads((HERE / "groups.toml").read_text())
    return {
        name: Group(name, tuple(entry["modules"]), tuple(entry["tests"]), tuple(entry.get("always", ())))
        for name, entry in table.items()
    }


def copy_checkout(target: Path) -> None:
    """Copies what git knows of, and new files that it does not ignore: the working tree is never changed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        source, copy = ROOT / name, target / name
        if source.is_symlink() or source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    compileall.compile_dir(target / "backend", quiet=2)
    compileall.compile_dir(target / "liverl_tui", quiet=2)


def sample_of(group: Group, seed: int, size: int, root: Path) -> tuple[list[Mutant], int]:
    """The mutants to judge, and how many places of the group's modules could be changed."""
    every = [site for entry in group.modules for site in sites(root, entry)]
    # By a hash of what each place says, so that a change of one line leaves the rest of the sample as it is.
    every.sort(key=lambda site: hashlib.sha256(f"{seed} {site.says}".encode()).digest())
    chosen: list[Mutant] = []
    for site in every:
        if len(chosen) == size:
            break
        mutant = mutate(root, site)
        if mutant is not None:
            chosen.append(mutant)
    return sorted(chosen, key=lambda m: (m.path, m.line)), len(every)


def tests_for(mutant: Mutant, group: Group, found: judge.Baseline) -> list[str]:
    """The test files that run the mutated statement, the quickest first."""
    statement = set(range(mutant.first_line, mutant.last_line + 1))
    reached = [test for test in group.tests if found.lines[test].get(mutant.path, set()) & statement]
    if not mutant.function:  # run at import: every file that imports the module sees it
        reached = [test for test in group.tests if found.lines[test].get(mutant.path)]
    return sorted({*reached, *group.always}, key=found.seconds.__getitem__)


def judge_group(
    group: Group,
    seed: int,
    size: int,
    *,
    jobs: int = 1,
    only: str = "",
    before: Path | None = None,
    verbose: bool = False,
) -> list[Result]:
    """Judges the sample of ``group`` in ``jobs`` processes at a time, each with a copy of the checkout of its own."""
    equivalents = read_equivalents(group.name)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        places = [Path(folder) / str(number) for number in range(jobs)]
        copy = places[0] / "copy"
        copy_checkout(copy)
        for place in places[1:]:
            shutil.copytree(copy, place / "copy", symlinks=True)
        chosen, total = sample_of(group, seed, size, copy)
        for key in stale(equivalents, copy):
            print(f"stale equivalent: its original line is gone: {key}")
        paths = {str(module_path(copy, entry.partition(":")[0]).relative_to(copy)) for entry in group.modules}
        judge.import_ahead(["pytest", "hypothesis", "pytest_asyncio", "pytest_timeout"])

        found = judge.Baseline()
        for alone in _spread(
            places, lambda test, at: judge.alone(at / "copy", test, at, paths), all_tests(group)
        ):
            found.add(alone)
        print(
            f"{group.name}: {total} mutants, {len(chosen)} sampled; tests alone: {found.cpu:.1f} s of CPU",
            flush=True,
        )

        known = _killed_before(before)

        def result_of(mutant: Mutant, place: Path) -> Result:
            if mutant.diff in known:
                return Result(mutant, "killed")
            result = _judge_one(
                place / "copy", place, mutant, tests_for(mutant, group, found), found, verbose
            )
            if mutant.key in equivalents:
                survived = result.outcome in ("survived", "uncovered")
                result = Result(mutant, "equivalent" if survived else "wrongly-equivalent", result.seconds)
            if verbose:
                at = f"{mutant.path}:{mutant.line}"
                print(f"{result.outcome:10} {at} {mutant.operator} {result.seconds:.1f} s", flush=True)
            return result

        return _spread(places, result_of, [m for m in chosen if not only or only in f"{m.path}:{m.line}"])


def all_tests(group: Group) -> list[str]:
    """Each test file of ``group`` once."""
    return list(dict.fromkeys([*group.tests, *group.always]))


def _spread(places: list[Path], work: Callable[[T, Path], R], items: list[T]) -> list[R]:
    """Results of ``work(item, place)`` in the order of ``items``; no two at a time have the same place."""
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for place in places:
        free.put(place)

    def at_a_place(item: T) -> R:
        place = free.get()
        try:
            return work(item, place)
        finally:
            free.put(place)

    with ThreadPoolExecutor(len(places)) as pool:
        return list(pool.map(at_a_place, items))


def _judge_one(
    copy: Path, scratch: Path, mutant: Mutant, tests: list[str], found: judge.Baseline, verbose: bool
) -> Result:
    if not tests:
        return Result(mutant, "uncovered")
    path = copy / mutant.path
    original = path.read_bytes()
    for cached in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        cached.unlink()
    path.write_text(mutant.source)
    alone = sum(found.seconds[test] for test in tests)
    try:
        ran = judge.run(copy, tests, scratch, wall=30 + 8 * alone, cpu=int(15 + 4 * alone))
    finally:
        path.write_bytes(original)
    if verbose and ran.code == 0:
        print(mutant.diff)
    if ran.code in (5, 70):
        raise SystemExit(f"the tests did not run for {mutant.path}:{mutant.line}:\n{ran.output[-4000:]}")
    outcome = "timeout" if ran.code is None else "survived" if ran.code == 0 else "killed"
    return Result(mutant, outcome, ran.seconds)


def _killed_before(path: Path | None) -> set[str]:
    if path is None:
        return set()
    return {
        entry["diff"] for entry in json.loads(path.read_text()) if entry["outcome"] in ("killed", "timeout")
    }


def report(group: Group, results: list[Result], seconds: float, seed: int) -> float:
    """Prints survivors with file, line and diff, then the counts and the score; returns the score in percent."""
    for result in results:
        if result.outcome in ("survived", "uncovered", "wrongly-equivalent"):
            mutant = result.mutant
            print(
                f"\n{result.outcome}: {mutant.path}:{mutant.line} {mutant.function or 'module'} [{mutant.operator}]"
            )
            print(mutant.diff)
    counts = Counter(result.outcome for result in results)
    killed = counts["killed"] + counts["timeout"] + counts["wrongly-equivalent"]
    judged = len(results) - counts["equivalent"]
    score = 100 * killed / judged if judged else 100.0
    by_module = Counter(r.mutant.module for r in results if r.outcome in ("survived", "uncovered"))
    print("\nsurvivors by module:", dict(by_module.most_common()))
    print(
        f"{group.name} (seed {seed}): {score:.1f} % of {judged} killed; {counts['killed']} killed,"
        f" {counts['timeout']} timed out, {counts['survived']} survived, {counts['uncovered']} not run by any test,"
        f" {counts['equivalent']} equivalent, {counts['wrongly-equivalent']} wrongly listed as equivalent;"
        f" {seconds:.0f} s"
    )
    return score


def store(path: Path, results: list[Result]) -> None:
    entries = []
    for result in results:
        mutant = result.mutant
        names = ("module", "path", "line", "function", "operator", "was", "now", "diff")
        entries.append({"outcome": result.outcome, **{name: getattr(mutant, name) for name in names}})
    path.write_text(json.dumps(entries, indent=1))


def isolate() -> None:
    """Start this script again in a PID namespace of its own: a mutant may send a signal to a wrong process."""
    if ISOLATED in os.environ:
        return
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.getuid() != 0:
        command += ["--user", "--map-root-user"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command, "true"], check=False, capture_output=True).returncode != 0
    ):
        print(
            "warning: no PID namespace to be had here; a mutant may signal other processes", file=sys.stderr
        )
        return
    os.execvpe(command[0], [*command, sys.executable, *sys.argv], {**os.environ, ISOLATED: "1"})


def main() -> int:
    groups = read_groups()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", choices=sorted(groups))
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--sample", type=int, default=SAMPLE, help="mutants to judge where there are more")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="mutants at a time, each in a copy of its own; at most one per core",
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only mutants whose file:line contains TEXT"
    )
    parser.add_argument("--out", type=Path, help="write each mutant's outcome to this JSON file")
    parser.add_argument(
        "--again", type=Path, metavar="JSON", help="skip what this earlier --out counts as killed"
    )
    parser.add_argument("--min", type=float, default=0.0, help="exit 1 below this score in percent")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    isolate()
    group, started = groups[options.group], time.monotonic()
    results = judge_group(
        group,
        options.seed,
        options.sample,
        jobs=options.jobs,
        only=options.only,
        before=options.again,
        verbose=options.verbose,
    )
    if options.out:
        store(options.out, results)
    score = report(group, results, time.monotonic() - started, options.seed)
    return 1 if score < options.min else 0


if __name__ == "__main__":
    sys.exit(main())
