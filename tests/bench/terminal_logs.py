"""The rows of ``terminal.py`` about logs: a large one, and one that grows fast; beside ``lnav``."""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from processes import cpu_seconds, pss_mib
from terminal_feed import LINE, lines
from terminal_tools import (
    GREETING,
    MINIMAL,
    Ear,
    Plan,
    Row,
    fake_run,
    interface,
    lnav,
    median,
    replay,
    shown,
    start,
    writer,
)

BIG_LINES = 6_700_000  # of LINE bytes: 1 GB
OLD_STAMP = b"ts=1790000000.000000"
LNAV_TERM = "screen-256color"  # a terminal without a sequence that the emulation does not know
LOG_ALONE = """
import sys
from pathlib import Path
from textual.app import App
from liverl_tui.widgets.log.view import LogView
class Log(App):
    def compose(self):
        yield LogView(Path(sys.argv[1]))
Log().run(mouse=False)
"""
_STAMPS = re.compile(r"ts=(\d{10}\.\d{6})")

Found = dict[str, list[float]]


def number(n: int) -> str:
    """What only the line ``n`` holds."""
    return f"n={n:012d}"


def write_big(path: Path, count: int) -> None:
    step = 100_000
    with path.open("wb") as file:
        for first in range(0, count, step):
            file.write(lines(min(step, count - first), first, OLD_STAMP))


# --- a large one ----------------------------------------------------------------------------------------


def big_log(plan: Plan) -> Iterator[Row]:
    count = plan.rounds(BIG_LINES, BIG_LINES // 10)
    with fake_run(plan.folder) as run:
        write_big(run.log, count)
        ours = look_at_big(plan, run.path, run.log, count)
        peer = {name: median(values) for name, values in lnav_at_big(plan, run.log, count).items()}

    def beside(name: str) -> dict[str, float]:
        return {"lnav": peer[name]} if peer else {}

    size = f"{count * LINE / 1e9:.1f} GB log"
    others = {"minimal Textual app": median(ours["minimal"]), **beside("opened")}
    yield Row(
        "big-log",
        f"{size} by itself: from the start to its last lines",
        "ms",
        ours["alone"],
        300,
        beside=others,
    )
    what = f"{size} in the dashboard: its last lines, after the first paint"
    note = f"from the start {median(ours['opened']):.0f} ms"
    later = [max(0.0, a - b) for a, b in zip(ours["opened"], ours["header"], strict=True)]
    yield Row("big-log", what, "ms", later, 300, note=note)
    note = f"resident {median(ours['resident']):.0f} MiB"
    yield Row(
        "big-log", f"{size}: memory (PSS)", "MiB", ours["memory"], 80, beside=beside("memory"), note=note
    )
    for name in ("top", "end"):
        yield Row("big-log", f"{size}: jump to its {name}", "ms", ours[name], 100, beside=beside(name))


def look_at_big(plan: Plan, run_dir: Path, log: Path, count: int) -> Found:
    found: Found = defaultdict(list)
    last = number(count - 1)
    for turn in range(plan.rounds(5, 2) + 1):
        if turn == 1:
            found.clear()  # the first ones have compiled the modules
        with start(plan, [sys.executable, "-c", MINIMAL]) as terminal:
            found["minimal"].append(terminal.wait_for(GREETING) * 1e3)
        with start(plan, [sys.executable, "-c", LOG_ALONE, str(log)]) as terminal:
            found["alone"].append(terminal.wait_for(last) * 1e3)
        with start(plan, interface(run_dir)) as terminal:
            found["header"].append(terminal.wait_for("bench/toy") * 1e3)
            found["opened"].append(terminal.wait_for(last) * 1e3)
            terminal.press("3")
            settle(terminal)
            jump(terminal, count, found)
    return found


def lnav_at_big(plan: Plan, log: Path, count: int) -> Found:
    found: Found = defaultdict(list)
    program = lnav()
    for turn in range(plan.rounds(3, 1) + 1 if program is not None else 0):
        if turn == 1:
            found.clear()  # its first start ever writes files of its own
        with start(plan, [str(program), str(log)], LNAV_TERM) as terminal:
            found["opened"].append(terminal.wait_for(number(count - 1), 60) * 1e3)
            settle(terminal)
            jump(terminal, count, found)
    return found


def jump(terminal: Ear, count: int, found: Found) -> None:
    """To both ends, by the keys that all pagers have; and how much memory that takes."""
    for name, key, wanted in (("top", "g", number(0)), ("end", "G", number(count - 1))):
        pressed = time.monotonic() - terminal.started_at
        terminal.press(key)
        found[name].append((terminal.wait_for(wanted, 60) - pressed) * 1e3)
    found["memory"].append(pss_mib([terminal.pid]))
    pages = int(Path(f"/proc/{terminal.pid}/statm").read_text().split()[1])
    found["resident"].append(pages * 4096 / 2**20)


def settle(terminal: Ear, seconds: float = 60.0) -> None:
    """Until the program uses little CPU: its index is done."""
    deadline = time.monotonic() + seconds
    before = cpu_seconds([terminal.pid])
    while time.monotonic() < deadline:
        time.sleep(1.0)
        now = cpu_seconds([terminal.pid])
        if now - before < 0.1:
            return
        before = now


# --- one that grows -------------------------------------------------------------------------------------


def follow(plan: Plan) -> Iterator[Row]:
    seconds, rate = plan.rounds(15, 5), 50.0
    with fake_run(plan.folder) as run:
        lags, cpu, sent = following(lambda: shown(plan, run.path), run.log, rate, seconds)
    lag50, lag_max, other_cpu, other_sent = lnav_following(plan, rate, seconds)
    what = f"follow {rate:g} MB/s"
    yield Row("follow", f"{what}: lag p50", "s", lags, 0.5, 0.5, lag50)
    yield Row("follow", f"{what}: lag max", "s", lags, 0.5, 1.0, lag_max)
    yield Row("follow", f"{what}: CPU", "%", [cpu], 20, beside=other_cpu)
    yield Row("follow", f"{what}: sent to the terminal", "KB/s", [sent], 60, beside=other_sent)


def lnav_following(plan: Plan, rate: float, seconds: float) -> tuple[dict[str, float], ...]:
    """What stands beside our four rows."""
    program = lnav()
    if program is None:
        return {}, {}, {}, {}
    log = plan.folder / "peer.log"
    log.write_bytes(lines(1000, stamp=OLD_STAMP))

    def opened() -> Ear:
        terminal = start(plan, [program, str(log)], LNAV_TERM)
        terminal.wait_for(number(999))
        return terminal

    lags, cpu, sent = following(opened, log, rate, seconds)
    log.unlink()
    return {"lnav": median(lags)}, {"lnav": max(lags)}, {"lnav": cpu}, {"lnav": sent}


def following(
    open_: Callable[[], Ear], log: Path, rate: float, seconds: float
) -> tuple[list[float], float, float]:
    """(lag every 20 ms in seconds, CPU %, KB/s) of a program that follows ``log`` while it grows."""
    with open_() as terminal:
        time.sleep(1.0)
        _ = terminal.lines  # what came until now is on the screen
        with writer(log, rate):
            time.sleep(1.0)
            before = terminal.take()
            began, used = time.monotonic(), cpu_seconds([terminal.pid])
            pieces = terminal.listen(seconds)
            ended = time.monotonic()
            cpu = (cpu_seconds([terminal.pid]) - used) / (ended - began) * 100
        sent = sum(len(data) for _, data in pieces) / (ended - began) / 1e3
        offset = time.time() - time.monotonic()
        newest: list[tuple[float, float]] = []  # (when it was on the screen, when it was written), monotonic
        for at, screen in replay(terminal, before + pieces):
            stamps = [float(stamp) - offset for row in screen for stamp in _STAMPS.findall(row)]
            if stamps:
                newest.append((at, max(stamps)))
    lags: list[float] = []
    place, moment = 0, began
    while moment < ended and newest:
        while place + 1 < len(newest) and newest[place + 1][0] <= moment:
            place += 1
        lags.append(moment - newest[place][1])
        moment += 0.02
    return lags, cpu, sent
