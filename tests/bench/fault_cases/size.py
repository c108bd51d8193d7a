"""Runs that are large: 64 replicas, 200,000 events, a journal of 20,000 records."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from kit.cli import run_cli
from kit.runs import ToyRun, toy

from fault_cases.base import Case, Outcome
from fault_cases.toys import SERVICES, backend, judged, keeper, kill, stopped, toy_run
from liverl.rundir.layout import RunDir

REPLICAS, EVENTS, RECORDS = 64, 200_000, 20_000
PATIENCE_S = 20.0  # for a command on a large run


def cases() -> Iterator[Case]:
    """Who is killed while much is there, and commands that read all of it."""
    for killed in ("nobody", "backend", "keeper"):
        for now in (False, True):
            how = "stop --now" if now else "stop"
            yield Case(f"{REPLICAS} replicas, {killed} killed, {how}", partial(_replicas, killed, now))
    for command in ("status --json", "status", "stop"):
        yield Case(f"{EVENTS:,} events: {command}", partial(_events, tuple(command.split())))
    yield Case(f"a journal of {RECORDS:,} records", _journal)


def _replicas(killed: str, now: bool, folder: Path) -> Outcome:
    services = tuple(toy(f"replica-{number}", "sleep", kind="replica") for number in range(REPLICAS))
    with toy_run(folder, services) as run:
        if killed == "backend":
            kill(backend(run))
            run.start()
        elif killed == "keeper" and (pid := keeper(run)) is not None:
            kill(pid)
        return stopped(run, judged(run), now=now)


def _repeat(path: Path, count: int, number: str | None) -> None:
    """Append the last line of a file ``count`` times; ``number`` is the key of its running number."""
    last = json.loads(path.read_bytes().splitlines()[-1])
    last.pop("crc", None)
    with path.open("a") as file:
        for _ in range(count):
            if number is not None:
                last[number] += 1
            file.write(json.dumps(last) + "\n")


def _again(run: ToyRun, path: Path, count: int, number: str | None) -> None:
    """Kill the backend, lengthen a file of the run, and start the backend again."""
    kill(backend(run))
    _repeat(path, count, number)
    run.start()


def _events(command: tuple[str, ...], folder: Path) -> Outcome:
    with toy_run(folder) as run:
        _again(run, run.run_dir / "events.jsonl", EVENTS, "seq")
        outcome = judged(run)
        began = time.monotonic()
        answer = run_cli(*command, "--run", run.run_dir, seconds=PATIENCE_S)
        took = time.monotonic() - began
        if answer.returncode:
            raise AssertionError(answer.stderr)
        if command == ("stop",):
            outcome = replace(outcome, unstoppable=int(bool(run.tagged())))
        else:
            outcome = stopped(run, outcome)
        return replace(outcome, named_s=took)


def _journal(folder: Path) -> Outcome:
    with toy_run(folder, SERVICES) as run:
        _again(run, RunDir(run.run_dir).journal, RECORDS, None)
        return stopped(run, judged(run))
