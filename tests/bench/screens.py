"""Bytes per second and CPU of each screen of a live run that is left alone, beside the dashboard's, as one table.

``python tests/bench/screens.py RUN [--seconds 15] [--size 120x40] [--only WORDS]``. RUN: the directory of a live run
whose trials go through the sessions, so that they have tokens. The interface is read-only and changes nothing of it.
The lists of runs and a comparison are of RUN and its neighbours.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]

from kit.terminal import clean_environment  # noqa: E402
from terminal_rows import watched  # noqa: E402
from terminal_tools import Ear  # noqa: E402

TRIAL = ("4", "enter", "j", "enter")
# Screen -> the keys that lead to it from the dashboard.
SCREENS: dict[str, tuple[str, ...]] = {
    "dashboard": (),
    "metrics": ("M",),
    "timeline of a step": ("I",),
    "timeline of all steps": ("I", "c"),
    "trial's page": TRIAL,
    "tokens": (*TRIAL, "t"),
    "two trials": ("4", "c", "j", "enter", "d"),
    "all trials, filtered": ("4", "z", "/", *"reward<1", "enter"),
    "histogram": ("4", "b"),
    "disk": ("K",),
    "runs": ("Z",),
    "compare": ("Z", "j", "c"),
}
QUIET_S = 4.0  # for a screen to be read and drawn


def measured(terminal: Ear, keys: tuple[str, ...], seconds: float) -> tuple[int, float, float]:
    """(bytes with which the screen was opened, bytes per second, CPU %)."""
    before = terminal.bytes
    for key in keys:
        terminal.press(key)
        time.sleep(0.4)
    time.sleep(QUIET_S)
    opened = terminal.bytes - before
    sent, _, cpu = watched(terminal, seconds)
    for _ in range(6):
        terminal.press("escape")
        time.sleep(0.3)
    return opened, sent * 1e3, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--size", default="120x40", metavar="COLUMNSxROWS")
    parser.add_argument("--only", default="", metavar="WORDS", help="only screens whose names contain this")
    args = parser.parse_args()
    columns, rows = map(int, args.size.split("x"))
    argv = [sys.executable, "-m", "liverl_tui.cli.main", "attach", str(args.run.resolve()), "--readonly"]
    print(f"| screen, {args.size} | opened with | bytes/s | CPU |\n|---|---|---|---|", flush=True)
    with Ear(argv, size=(columns, rows), env=clean_environment()) as terminal:
        terminal.wait_for("Trajectories")
        terminal.press("escape")
        time.sleep(QUIET_S)
        for name, keys in SCREENS.items():
            if args.only in name:
                opened, sent, cpu = measured(terminal, keys, args.seconds)
                print(f"| {name} | {opened:,} bytes | {sent:,.0f} | {cpu:.1f} % |", flush=True)
        terminal.press("q")


if __name__ == "__main__":
    main()
