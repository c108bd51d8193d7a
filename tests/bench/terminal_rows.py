"""The rows of ``terminal.py``: each measures one promise of the interface, beside what else there is."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from processes import cpu_seconds, pss_mib
from terminal_feed import LINE, lines
from terminal_tools import (
    WIDE,
    Ear,
    Row,
    changed_bytes,
    environment,
    fake_run,
    interface,
    lnav,
    quantile,
    replay,
    writer,
)

from liverl_tui.themes import DARK

BIG_LINES = 6_700_000  # of LINE bytes: 1 GB
# The least that Textual can do: one text, and two things that show which of them has the keys.
MINIMAL = """
from textual.app import App
from textual.widgets import Static
class Light(Static, can_focus=True):
    def render(self):
        return f" {self.id} " + ("lit" if self.has_focus else "dark")
class Minimal(App):
    BINDINGS = [("1", "light('GPUs')"), ("2", "light('Replicas')")]
    def compose(self):
        yield Static("hello from a minimal app")
        yield Light(id="GPUs")
        yield Light(id="Replicas")
    def action_light(self, name):
        self.query_one("#" + name).focus()
Minimal().run(mouse=False)
"""
_STAMPS = re.compile(r"ts=(\d{10}\.\d{6})")


@dataclass(frozen=True)
class Plan:
    folder: Path
    quick: bool

    def rounds(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def start(plan: Plan, argv: list[str], term: str = "xterm-256color") -> Ear:
    return Ear(argv, size=WIDE, env={**environment(plan.folder), "TERM": term}, cwd=plan.folder)


def shown(plan: Plan, run_dir: Path) -> Ear:
    """The interface on a run, once it shows it."""
    terminal = start(plan, interface(run_dir))
    terminal.wait_for("bench/toy")
    return terminal


def median(values: list[float]) -> float:
    return quantile(values, 0.5)


# --- paint ----------------------------------------------------------------------------------------------


def first_paint(plan: Plan) -> Iterator[Row]:
    ours: list[float] = []
    minimal: list[float] = []
    bare: list[float] = []
    with fake_run(plan.folder) as run:
        for turn in range(plan.rounds(9, 3) + 1):
            if turn == 1:  # the first ones have compiled the modules
                ours, minimal, bare = [], [], []
            began = time.monotonic()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            bare.append((time.monotonic() - began) * 1e3)
            with start(plan, [sys.executable, "-c", MINIMAL]) as terminal:
                minimal.append(terminal.wait_for("hello from a minimal app") * 1e3)
            with start(plan, interface(run.path)) as terminal:
                ours.append(terminal.wait_for(lambda text: "bench/toy" in text and "rollout" in text) * 1e3)
    beside = {"minimal Textual app": median(minimal), "python -c pass": median(bare)}
    yield Row("paint", "first paint of a live run", "ms", ours, 450, beside=beside)


# --- logs -----------------------------------------------------------------------------------------------


def number(n: int) -> str:
    return f"n={n:012d}"


def write_big(path: Path, count: int) -> None:
    step = 100_000
    with path.open("wb") as file:
        for first in range(0, count, step):
            file.write(lines(min(step, count - first), first, b"ts=1790000000.000000"))


def big_log(plan: Plan) -> Iterator[Row]:
    count = plan.rounds(BIG_LINES, BIG_LINES // 10)
    size = f"{count * LINE / 1e9:.1f} GB"
    first, last = number(0), number(count - 1)
    with fake_run(plan.folder) as run:
        write_big(run.log, count)
        opened: list[float] = []
        header: list[float] = []
        jumps: dict[str, list[float]] = {"top": [], "end": []}
        memory: list[float] = []
        resident = 0.0
        for _ in range(plan.rounds(5, 2)):
            with start(plan, interface(run.path)) as terminal:
                header.append(terminal.wait_for("bench/toy") * 1e3)
                opened.append(terminal.wait_for(last) * 1e3)
                terminal.press("3")
                time.sleep(plan.rounds(4, 2))
                for name, key, wanted in (("top", "g", first), ("end", "G", last)):
                    pressed = time.monotonic() - terminal.started_at
                    terminal.press(key)
                    jumps[name].append((terminal.wait_for(wanted) - pressed) * 1e3)
                memory.append(pss_mib([terminal.pid]))
                resident = procfs_rss_mib(terminal.pid)
        peer = big_log_lnav(plan, run.log, first, last)
    yield Row(
        "big-log",
        f"{size} log in the dashboard: its last lines, after the first paint",
        "ms",
        [max(0.0, a - b) for a, b in zip(opened, header, strict=True)],
        300,
        beside={"lnav, from its start": peer["opened"], "lnav, any line": peer["any"]} if peer else {},
        note=f"from the start of the program {median(opened):.0f} ms",
    )
    yield Row(
        "big-log",
        f"{size} log: memory (PSS) with it open",
        "MiB",
        memory,
        80,
        beside={"lnav": peer["memory"]} if peer else {},
        note=f"resident {resident:.0f} MiB",
    )
    for name, values in jumps.items():
        beside = {"lnav": peer[name]} if peer else {}
        yield Row("big-log", f"{size} log: jump to its {name}", "ms", values, 100, beside=beside)


def procfs_rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20


def big_log_lnav(plan: Plan, log: Path, first: str, last: str) -> dict[str, float]:
    program = lnav()
    if program is None:
        return {}
    found: dict[str, list[float]] = {"any": [], "opened": [], "memory": [], "top": [], "end": []}
    for turn in range(plan.rounds(3, 1) + 1):
        with start(plan, [program, str(log)], "screen-256color") as terminal:
            if turn == 0:
                terminal.wait_for(last, 60)  # its first start ever writes its own files
                continue
            found["any"].append(terminal.wait_for(" n=0", 60) * 1e3)
            found["opened"].append(terminal.wait_for(last, 60) * 1e3)
            settle(terminal)
            for name, key, wanted in (("top", "g", first), ("end", "G", last)):
                pressed = time.monotonic() - terminal.started_at
                terminal.press(key)
                found[name].append((terminal.wait_for(wanted, 60) - pressed) * 1e3)
            found["memory"].append(pss_mib([terminal.pid]))
    return {name: median(values) for name, values in found.items()}


def settle(terminal: Ear, seconds: float = 60.0) -> None:
    """Until the program has used little CPU for a second: its index is done."""
    deadline = time.monotonic() + seconds
    before = cpu_seconds([terminal.pid])
    while time.monotonic() < deadline:
        time.sleep(1.0)
        now = cpu_seconds([terminal.pid])
        if now - before < 0.1:
            return
        before = now


def follow(plan: Plan) -> Iterator[Row]:
    seconds, rate = plan.rounds(15, 5), 50.0
    with fake_run(plan.folder) as run:
        lags, cpu, sent = following(plan, lambda: shown(plan, run.path), run.log, rate, seconds)
    peer: dict[str, list[float]] = {}
    program = lnav()
    if program is not None:
        log = plan.folder / "peer.log"
        log.write_bytes(lines(1000, stamp=b"ts=1790000000.000000"))

        def lnav_shown() -> Ear:
            terminal = start(plan, [program, str(log)], "screen-256color")
            terminal.wait_for(number(999))
            return terminal

        theirs, busy, written = following(plan, lnav_shown, log, rate, seconds)
        log.unlink()
        peer = {"lag": theirs, "cpu": [busy], "sent": [written]}
    what = f"follow {rate:g} MB/s"
    p50 = {"lnav p50": median(peer["lag"])} if peer else {}
    worst = {"lnav max": max(peer["lag"])} if peer else {}
    yield Row("follow", f"{what}: lag p50", "s", lags, 0.5, 0.5, p50)
    yield Row("follow", f"{what}: lag max", "s", lags, 0.5, 1.0, worst)
    yield Row("follow", f"{what}: CPU", "%", [cpu], 20, beside={"lnav": peer["cpu"][0]} if peer else {})
    beside = {"lnav": peer["sent"][0]} if peer else {}
    yield Row("follow", f"{what}: sent to the terminal", "KB/s", [sent], 60, beside=beside)


def following(
    plan: Plan, open_: Callable[[], Ear], log: Path, rate: float, seconds: float
) -> tuple[list[float], float, float]:
    """(lag every 20 ms in seconds, CPU %, KB/s) of a program that follows ``log`` while it grows."""
    with open_() as terminal:
        time.sleep(1.0)
        _ = terminal.lines  # what came until now is on the screen
        with writer(log, rate):
            time.sleep(1.0)
            pieces = terminal.take()
            began, used = time.monotonic(), cpu_seconds([terminal.pid])
            pieces_after = terminal.listen(seconds)
            ended = time.monotonic()
            cpu = (cpu_seconds([terminal.pid]) - used) / (ended - began) * 100
        sent = sum(len(data) for _, data in pieces_after) / (ended - began) / 1e3
        offset = time.time() - time.monotonic()
        newest: list[tuple[float, float]] = []  # (when it was on the screen, how new it is), monotonic
        for at, screen in replay(terminal, pieces + pieces_after):
            stamps = [float(s) - offset for row in screen for s in _STAMPS.findall(row)]
            if stamps:
                newest.append((at, max(stamps)))
    lags, place = [], 0
    moment = began
    while moment < ended and newest:
        while place + 1 < len(newest) and newest[place + 1][0] <= moment:
            place += 1
        lags.append(moment - newest[place][1])
        moment += 0.02
    return lags, cpu, sent


# --- keys -----------------------------------------------------------------------------------------------

_FOCUS = ";".join(DARK["title_focus"].bgcolor.get_ansi_codes(foreground=False)).encode()  # type: ignore[union-attr]
_TITLES = {
    key: re.compile(re.escape(_FOCUS + b"m " + key.encode() + name))
    for key, name in (("1", b" GPUs "), ("2", b" Replicas "))
}
_LIGHTS = {"1": re.compile(rb" GPUs lit"), "2": re.compile(rb" Replicas lit")}


def press_keys(terminal: Ear, count: int, shown: dict[str, re.Pattern[bytes]] = _TITLES) -> list[float]:
    """Milliseconds from a key that moves the focus to the complete new title; a key that shows nothing within
    five seconds counts as 5000."""
    took = []
    for turn in range(count):
        key = "12"[turn % 2]
        seconds = terminal.answer(key, shown[key])
        took.append(5000.0 if seconds is None else seconds * 1e3)
        time.sleep(0.05 + 0.037 * (turn % 5))  # at all phases of the paints
    return took


def minimal_keys(plan: Plan, count: int) -> list[float]:
    """The same of an app that does nothing else."""
    with start(plan, [sys.executable, "-c", MINIMAL]) as terminal:
        terminal.wait_for("hello from a minimal app")
        time.sleep(0.5)
        return press_keys(terminal, count, _LIGHTS)


def keys(plan: Plan) -> Iterator[Row]:
    rate = 50_000
    count = plan.rounds(120, 30)
    with fake_run(plan.folder) as run:
        with shown(plan, run.path) as terminal:
            time.sleep(1.5)
            idle = press_keys(terminal, count)
        with shown(plan, run.path) as terminal, writer(run.log, rate * LINE / 1e6):
            time.sleep(1.5)
            busy = press_keys(terminal, count)
    least = minimal_keys(plan, count)

    def beside(share: float) -> dict[str, float]:
        return {"no lines": quantile(idle, share), "minimal Textual app": quantile(least, share)}

    what = f"key to paint while {rate // 1000}k lines/s arrive"
    yield Row("keys", f"{what}: p50", "ms", busy, None, 0.5, beside(0.5))
    yield Row("keys", f"{what}: p95", "ms", busy, 50, 0.95, beside(0.95))


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
        with shown(plan, run.path) as terminal:
            time.sleep(1.5)
            took = press_keys(terminal, plan.rounds(120, 30))
    floor = minimal_keys(plan, plan.rounds(120, 30))
    beside = {"changed characters": least}
    yield Row("scale", f"{what}, 2 new a second: sent", "KB/s", [sent], 10, beside=beside)
    yield Row("scale", f"{what}: CPU", "%", [cpu])
    yield Row(
        "scale", f"{what}: key to paint p50", "ms", took, None, 0.5, {"minimal Textual app": median(floor)}
    )
    yield Row(
        "scale",
        f"{what}: key to paint p95",
        "ms",
        took,
        50,
        0.95,
        {"minimal Textual app": quantile(floor, 0.95)},
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
    "scale": scale,
    "trials": trajectories,
}
