"""The rows of ``terminal.py`` but those of logs: each measures one promise of the interface, beside what else there
is."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from processes import cpu_seconds
from terminal_feed import LINE
from terminal_logs import big_log, follow
from terminal_slow import slow_line
from terminal_tools import (
    GREETING,
    MINIMAL,
    MINIMAL_NAME,
    Ear,
    Plan,
    Row,
    changed_bytes,
    environment,
    fake_run,
    interface,
    median,
    quantile,
    shown,
    start,
    writer,
)

from liverl_tui.text.themes import DARK

# --- paint ----------------------------------------------------------------------------------------------


def first_paint(plan: Plan) -> Iterator[Row]:
    ours: list[float] = []
    least: list[float] = []
    bare: list[float] = []
    with fake_run(plan.folder) as run:
        for turn in range(plan.rounds(9, 3) + 1):
            if turn == 1:  # the first ones have compiled the modules
                ours, least, bare = [], [], []
            began = time.monotonic()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            bare.append((time.monotonic() - began) * 1e3)
            with start(plan, [sys.executable, "-c", MINIMAL]) as terminal:
                least.append(terminal.wait_for(GREETING) * 1e3)
            with start(plan, interface(run.path)) as terminal:
                ours.append(terminal.wait_for(lambda text: "bench/toy" in text and "rollout" in text) * 1e3)
    beside = {MINIMAL_NAME: median(least), "python -c pass": median(bare)}
    yield Row("paint", "first paint of a live run", "ms", ours, 450, beside=beside)


# --- keys -----------------------------------------------------------------------------------------------

_FOCUS = ";".join(DARK["title_focus"].bgcolor.get_ansi_codes(foreground=False)).encode()  # type: ignore[union-attr]
_TITLES = {
    key: re.compile(re.escape(_FOCUS + b"m " + key.encode() + name))
    for key, name in (("1", b" GPUs "), ("2", b" Replicas "))
}
_LIGHTS = {"1": re.compile(rb" GPUs lit"), "2": re.compile(rb" Replicas lit")}


def press_keys(terminals: dict[str, Ear], count: int) -> dict[str, list[float]]:
    """For each terminal, milliseconds from a key that moves the focus to the complete new title; a key that shows
    nothing within five seconds counts as 5000. They take turns, so that each has what else runs by then."""
    took: dict[str, list[float]] = {name: [] for name in terminals}
    for turn in range(count):
        key = "12"[turn % 2]
        for name, terminal in terminals.items():
            wanted = _LIGHTS if name == MINIMAL_NAME else _TITLES
            seconds = terminal.answer(key, wanted[key])
            took[name].append(5000.0 if seconds is None else seconds * 1e3)
            time.sleep(0.03 + 0.037 * (turn % 5))  # at all phases of the paints
    return took


@contextmanager
def minimal(plan: Plan) -> Iterator[Ear]:
    """An app that does nothing else, once it is shown."""
    with start(plan, [sys.executable, "-c", MINIMAL]) as terminal:
        terminal.wait_for(GREETING)
        yield terminal


def keys(plan: Plan) -> Iterator[Row]:
    rate = 50_000
    count = plan.rounds(120, 60)
    with fake_run(plan.folder) as run:
        with shown(plan, run.path) as ours, minimal(plan) as least:
            time.sleep(1.5)
            idle = press_keys({"ours": ours, MINIMAL_NAME: least}, count)
        with shown(plan, run.path) as ours, minimal(plan) as least, writer(run.log, rate * LINE / 1e6):
            time.sleep(1.5)
            busy = press_keys({"ours": ours, MINIMAL_NAME: least}, count)

    def beside(share: float) -> dict[str, float]:
        return {
            "no lines": quantile(idle["ours"], share),
            MINIMAL_NAME: quantile(busy[MINIMAL_NAME], share),
            f"{MINIMAL_NAME}, no lines": quantile(idle[MINIMAL_NAME], share),
        }

    what = f"key to paint while {rate // 1000}k lines/s arrive"
    yield Row("keys", f"{what}: p50", "ms", busy["ours"], None, 0.5, beside(0.5))
    yield Row("keys", f"{what}: p95", "ms", busy["ours"], 50, 0.95, beside(0.95))


# --- bytes ----------------------------------------------------------------------------------------------


def watched(terminal: Ear, seconds: float) -> tuple[float, float, float]:
    """(KB/s sent, KB/s of changed characters, CPU %) of an interface that is left alone."""
    time.sleep(3.0)
    _ = terminal.lines
    began, used = time.monotonic(), cpu_seconds([terminal.pid])
    pieces = terminal.listen(seconds)
    span = time.monotonic() - began
    cpu = (cpu_seconds([terminal.pid]) - used) / span * 100
    sent = sum(len(data) for _, data in pieces) / span / 1e3
    return sent, changed_bytes(terminal, pieces) / span / 1e3, cpu


def sent_bytes(plan: Plan) -> Iterator[Row]:
    seconds = plan.rounds(20, 6)
    with fake_run(plan.folder, "--still") as run, shown(plan, run.path) as terminal:
        sent, least, cpu = watched(terminal, seconds)
        yield Row("bytes", "nothing moves: CPU", "%", [cpu], 1.0, note=f"{sent:.2f} KB/s sent")
    what = "8 GPUs, 8 replicas, trials at 2 Hz"
    with fake_run(plan.folder) as run, shown(plan, run.path) as terminal:
        sent, least, cpu = watched(terminal, seconds)
        beside = {"changed characters": least}
        yield Row("bytes", f"{what}: sent", "KB/s", [sent], 10, beside=beside)
        yield Row("bytes", f"{what}: CPU", "%", [cpu], 3)
    with fake_run(plan.folder) as run, shown(plan, run.path) as terminal, writer(run.log, 1.0):
        sent, least, cpu = watched(terminal, seconds)
        beside = {"changed characters": least}
        yield Row("bytes", f"{what}, and a log that grows 1 MB/s: sent", "KB/s", [sent], 60, beside=beside)
        yield Row("bytes", f"{what}, and a log that grows 1 MB/s: CPU", "%", [cpu])


def scale(plan: Plan) -> Iterator[Row]:
    what = "64 replicas, 10,000 trials"
    with fake_run(plan.folder, "--replicas", "64", "--arrivals", "1") as run:
        with shown(plan, run.path) as terminal:
            sent, least, cpu = watched(terminal, plan.rounds(20, 6))
        with shown(plan, run.path) as terminal, minimal(plan) as other:
            time.sleep(1.5)
            answers = press_keys({"ours": terminal, MINIMAL_NAME: other}, plan.rounds(120, 60))
    took, floor = answers["ours"], answers[MINIMAL_NAME]
    beside = {"changed characters": least}
    yield Row("scale", f"{what}, 2 new a second: sent", "KB/s", [sent], 10, beside=beside)
    yield Row("scale", f"{what}: CPU", "%", [cpu])
    yield Row("scale", f"{what}: key to paint p50", "ms", took, None, 0.5, {MINIMAL_NAME: median(floor)})
    yield Row(
        "scale",
        f"{what}: key to paint p95",
        "ms",
        took,
        50,
        0.95,
        {MINIMAL_NAME: quantile(floor, 0.95)},
    )


def trajectories(plan: Plan) -> Iterator[Row]:
    count = plan.rounds(1000, 100)
    script = Path(__file__).with_name("trials.py")
    told = subprocess.run(
        [sys.executable, script, str(count)],
        check=True,
        capture_output=True,
        text=True,
        env=environment(plan.folder),
    ).stdout
    seconds = float(re.search(r": ([\d.]+) s CPU", told)[1])  # type: ignore[index]
    what = f"{count} trajectories of 1 MB flagged: CPU"
    yield Row("trials", what, "s", [seconds], 1.5 * count / 1000)


ROWS: dict[str, Callable[[Plan], Iterator[Row]]] = {
    "paint": first_paint,
    "big-log": big_log,
    "follow": follow,
    "keys": keys,
    "bytes": sent_bytes,
    "slow": lambda plan: slow_line(plan, _TITLES, _LIGHTS),
    "scale": scale,
    "trials": trajectories,
}
