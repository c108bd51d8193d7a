"""What services that run print is named within ten seconds, also in a quiet run and by a backend that takes over.

SIMULATED: the services, which print what Ray, vLLM and LiteLLM print when a test lets them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until
from msgspec.structs import replace

from liverl.plan.spec import ServiceSpec
from liverl.util.pace import QUIET_AFTER

SOON_S = 10.0
PENDING = (
    "(autoscaler +34s) Warning: The following resource request cannot be scheduled right now: {'GPU': 1.0}. "
    "This is likely due to all cluster resources being claimed by actors."
)
FULL = "OSError: [Errno 28] No space left on device: '/ckpt/model.pt'"
# Prints the lines of the file "say" in its run directory as they come, and is well otherwise.
SAYS = """
import os, time
path = os.path.join(os.environ["LIVERL_RUN_DIR"], "say")
open(path, "a").close()
with open(path) as file:
    while True:
        line = file.readline()
        if line: print(line, end="", flush=True)
        else: time.sleep(0.02)
"""


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Callable[..., ToyRun]:
    return lambda *services, **options: ending(make_run(tmp_path, services, **options))


def trainer() -> ServiceSpec:
    return replace(toy("trainer", kind="trainer"), argv=(sys.executable, "-c", SAYS))


def say(run: ToyRun, line: str) -> float:
    """Have the service print a line; returns when, as Unix time."""
    with (run.run_dir / "say").open("a") as file:
        file.write(f"{line}\n")
    return time.time()


def raised(run: ToyRun) -> list[tuple[str, float]]:
    """Id and Unix time of each alert so far."""
    events = [json.loads(line) for line in (run.run_dir / "events.jsonl").read_text().splitlines()]
    return [
        (e["data"]["id"], e["at"]) for e in events if e["kind"] == "symptom" and e["data"]["what"] == "new"
    ]


def started(run: ToyRun) -> ToyRun:
    run.start()
    run.until("trainer", "ready")
    wait_until((run.run_dir / "say").exists)
    return run


def test_a_wait_is_named_soon_and_over_with_the_next_step(make: Callable[..., ToyRun]) -> None:
    run = started(make(trainer()))
    at = say(run, PENDING)
    ((name, when),) = wait_until(lambda: raised(run), what="the alert") or []
    assert name == "log:ray-request-pending:trainer" and when - at <= SOON_S
    symptom = next(s for s in run.snapshot().symptoms if s.id == name)
    assert symptom.title == "trainer: An actor or placement group waits for {'GPU': 1.0}"
    assert symptom.evidence[0].log == "attempt_001/logs/trainer.1.log" and symptom.evidence[0].offset == 0
    say(run, "step:1 - actor/loss:0.5")
    wait_until(lambda: not run.snapshot().symptoms, what="the end of the alert")


@pytest.mark.slow
def test_a_quiet_run_is_watched_too(make: Callable[..., ToyRun]) -> None:
    run = started(make(trainer()))
    began = time.monotonic()
    wait_until(
        lambda: time.monotonic() - began > QUIET_AFTER + 5, what="a quiet run"
    )  # nobody asks meanwhile
    at = say(run, FULL)
    ((name, when),) = wait_until(lambda: raised(run), what="the alert") or []
    assert name == "log:disk-full-path:trainer"
    assert when - at <= SOON_S, f"after {when - at:.1f} s"


def test_a_backend_that_takes_over_knows_what_was_printed_meanwhile(make: Callable[..., ToyRun]) -> None:
    run = started(make(trainer()))
    say(run, PENDING)
    wait_until(lambda: raised(run), what="the alert")
    run.kill_backend()
    say(run, FULL)
    run.start()
    wait_until(lambda: "log:disk-full-path:trainer" in dict(raised(run)), what="the other alert")
    assert "log:ray-request-pending:trainer" in {s.id for s in run.snapshot().symptoms}


def test_the_last_words_of_a_process_are_no_complaint_of_one_that_runs(make: Callable[..., ToyRun]) -> None:
    fails = f"import time; print({FULL!r}, flush=True); time.sleep(2); raise SystemExit(1)"
    run = make(replace(toy("trainer", kind="trainer"), argv=(sys.executable, "-c", fails), ends_run=True))
    run.start()
    assert run.result().state == "failed"
    assert not [name for name, _ in raised(run) if name.startswith("log:")]
