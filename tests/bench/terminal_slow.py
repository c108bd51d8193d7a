"""The rows of ``terminal.py`` through a line of 2 kB/s: a phone far from the tower, or a VPN across an ocean."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator

from terminal_tools import (
    GREETING,
    MINIMAL,
    MINIMAL_NAME,
    Ear,
    Plan,
    Row,
    fake_run,
    interface,
    median,
    quantile,
    start,
)

RATE = 2000.0  # bytes a second
LOOK_S = 0.02  # between two looks whether something has come
SILENCE_S = 1.5  # without a byte: the screen is complete
REST_S = 0.3  # without a byte: what was painted is through
Titles = dict[str, re.Pattern[bytes]]


def slow_line(plan: Plan, titles_of_ours: Titles, lights: Titles) -> Iterator[Row]:
    """The first screen, keys, and what is sent, each beside the minimal app through a line of its own."""
    through = "through 2 kB/s"
    ours: list[tuple[float, float]] = []
    least: list[tuple[float, float]] = []
    header: list[float] = []
    with fake_run(plan.folder, "--still") as run:
        for turn in range(plan.rounds(4, 2) + 1):
            with start(plan, [sys.executable, "-c", MINIMAL], rate=RATE) as terminal:
                terminal.wait_for(GREETING)
                least.append(whole(terminal))
            with start(plan, interface(run.path), rate=RATE) as terminal:
                header.append(terminal.wait_for("bench/toy"))
                ours.append(whole(terminal))
            if turn == 0:  # the first ones have compiled the modules
                ours, least, header = [], [], []
    note = f"its first line after {median(header):.1f} s"
    beside = {MINIMAL_NAME: median([seconds for seconds, _ in least])}
    yield Row(
        "slow", f"{through}: the whole first screen", "s", [s for s, _ in ours], beside=beside, note=note
    )
    beside = {MINIMAL_NAME: median([sent for _, sent in least])}
    yield Row("slow", f"{through}: sent for it", "kB", [sent for _, sent in ours], beside=beside)

    with fake_run(plan.folder) as run:
        mine = start(plan, interface(run.path), rate=RATE)
        other = start(plan, [sys.executable, "-c", MINIMAL], rate=RATE)
        with mine, other:
            mine.wait_for("bench/toy")
            other.wait_for(GREETING)
            answers: dict[str, list[float]] = {"ours": [], MINIMAL_NAME: []}
            for turn in range(plan.rounds(24, 12)):
                for name, terminal, titles in (("ours", mine, titles_of_ours), (MINIMAL_NAME, other, lights)):
                    key = "12"[turn % 2]
                    rest(terminal)
                    took = terminal.answer(key, titles[key], 30.0)
                    answers[name].append(30e3 if took is None else took * 1e3)
            rest(mine)
            seconds = plan.rounds(20, 10)
            sent = sum(len(data) for _, data in mine.listen(seconds)) / seconds / 1e3
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        beside = {MINIMAL_NAME: quantile(answers[MINIMAL_NAME], share)}
        yield Row("slow", f"{through}: key to paint: {name}", "ms", answers["ours"], None, share, beside)
    what = f"{through}: 8 GPUs, 8 replicas, trials at 2 Hz: sent"
    yield Row("slow", what, "KB/s", [sent], note="over ssh, so new numbers once a second")


def rest(terminal: Ear) -> None:
    """Until what was painted before is through the line."""
    deadline = time.monotonic() + 60.0
    while terminal.listen(REST_S) and time.monotonic() < deadline:
        pass


def whole(terminal: Ear) -> tuple[float, float]:
    """(Seconds from the start to the last byte of the first screen, kB until then)."""
    known, at = terminal.bytes, time.monotonic()
    while time.monotonic() - at < SILENCE_S:
        time.sleep(LOOK_S)
        if terminal.bytes != known:
            known, at = terminal.bytes, time.monotonic()
    return at - terminal.started_at, known / 1e3
