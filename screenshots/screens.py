"""PNG files of the screens beside the dashboard at four sizes, to be looked at before a release; none is committed.

``python screenshots/screens.py DIR [--runs ROOT] [--only WORDS]``. The screens are those of the packaged recordings of
real runs, played to their end: ``learns`` (real GRPO) and ``wrong-parser`` (every reward is 0). ``--runs``: a directory
of runs, of which the list and a comparison are drawn. ``eight-gpus`` is simulated, and its run is called so. Wants
``resvg-py`` (the extra ``dev``).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "backend"), str(HERE.parent)]

from kit.pictures import svg  # noqa: E402
from kit.terminal import Terminal, clean_environment  # noqa: E402

SIZES = ((80, 24), (120, 40), (200, 50), (250, 70))
SETTLE_S = 2.5  # for a screen to show what was asked for
PLAYED_S = 300.0  # until a recording is at its end
LEARNS, FAILS, RUNS, EIGHT = "demo learns", "demo", "runs", "eight-gpus"
# A run with eight GPUs that nobody has made. Its name says so.
SIMULATED = """
from kit.screens import FakeSource, gpu, view
from liverl_tui.app.app import LiverlApp
busy = tuple(gpu(n, utilization=(0.97, 0.96, 0.12, 0.98, 0.99, 0.95, 0.97, 0.0)[n]) for n in range(8))
LiverlApp(FakeSource(view=view(run="simulated/eight-gpus", gpus=busy))).run()
"""


class Shown(NamedTuple):
    """A screen: of which program, and the keys that lead to it; ``wanted``: a text that it shows once it is drawn."""

    of: str
    keys: tuple[str, ...]
    wanted: str


SCREENS: dict[str, Shown] = {
    "learns-dashboard": Shown(LEARNS, (), "reward"),
    "learns-metrics": Shown(LEARNS, ("M",), "Metrics"),
    "learns-timeline-step": Shown(LEARNS, ("I",), "Timeline"),
    "learns-timeline-all": Shown(LEARNS, ("I", "c"), "steps"),
    "learns-trial": Shown(LEARNS, ("4", "enter", "j", "enter"), "turn"),
    "learns-trial-why": Shown(LEARNS, ("4", "/", *"reward<1", "enter", "enter"), "reward"),
    "learns-tokens": Shown(LEARNS, ("4", "enter", "j", "enter", "t"), "okens"),
    "learns-pair": Shown(LEARNS, ("4", "d"), "first difference"),
    "learns-all-trials": Shown(LEARNS, ("4", "z", "/", *"reward<1", "enter"), "reward<1"),
    "learns-histogram": Shown(LEARNS, ("4", "z", "b"), "Rewards"),
    "learns-disk": Shown(LEARNS, ("K",), "Disk"),
    "fails-dashboard": Shown(FAILS, (), "1 alert"),
    "fails-alerts": Shown(FAILS, ("!",), "Alerts"),
    "fails-timeline-step": Shown(FAILS, ("I",), "Timeline"),
    "fails-trial": Shown(FAILS, ("4", "enter", "j", "enter"), "turn"),
    "fails-tokens": Shown(FAILS, ("4", "enter", "j", "enter", "t"), "okens"),
    "fails-pair": Shown(FAILS, ("4", "d"), "Two trials"),
    "fails-disk": Shown(FAILS, ("K",), "Disk"),
    "runs": Shown(RUNS, (), "Runs"),
    "compare": Shown(RUNS, ("*", "c"), "configurations differ"),
    "compare-differences": Shown(RUNS, ("*", "c", "tab"), "oldest"),
    "eight-gpus": Shown(EIGHT, (), "simulated"),
}


def command(of: str, runs: Path | None) -> list[str]:
    """The program that shows it."""
    if of == EIGHT:
        return [sys.executable, "-c", SIMULATED]
    main = [sys.executable, "-m", "liverl_tui.cli.main"]
    if of == RUNS:
        return [*main, "runs", "--run-root", str(runs)]
    return [*main, *of.split(), "--speed", "16"]


def save(folder: Path, name: str, terminal: Terminal) -> None:
    """One picture."""
    import resvg_py

    _ = terminal.lines
    picture = svg(terminal.screen, [(sys.executable, "python")])
    data = resvg_py.svg_to_bytes(svg_string=picture, zoom=1.0, monospace_family="DejaVu Sans Mono")
    (folder / f"{name}.png").write_bytes(bytes(data))


def pictures(folder: Path, of: str, names: list[str], runs: Path | None) -> None:
    """All pictures of one program, which is started once."""
    paths = ":".join(sys.path[:3])
    env = clean_environment(XDG_STATE_HOME=str(folder / ".state"), PYTHONPATH=paths)
    with Terminal(command(of, runs), size=SIZES[1], env=env) as terminal:
        if of in (LEARNS, FAILS):
            terminal.wait_for("recording has ended", PLAYED_S)  # also where the header is full
        else:
            terminal.wait_for("Runs" if of == RUNS else SCREENS[names[0]].wanted)
        terminal.press("escape")  # ends the hints of a first start
        time.sleep(SETTLE_S)  # escape and the next key at once would be one key with Alt
        for name in names:
            shown = SCREENS[name]
            terminal.resize(*SIZES[1])
            for key in shown.keys:
                terminal.press(key)
                time.sleep(0.3)
            time.sleep(SETTLE_S)
            if shown.wanted not in terminal.text:
                print(f"{name}: no {shown.wanted!r}", flush=True)
            for size in SIZES:
                terminal.resize(*size)
                time.sleep(SETTLE_S)
                save(folder, f"{name}-{size[0]}x{size[1]}", terminal)
            print(name, flush=True)
            for _ in range(8):  # back to the first screen, without marks and filters
                terminal.press("escape")
                time.sleep(0.2)
            if shown.of != RUNS:
                terminal.press("1")
        terminal.press("q")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--runs", type=Path, metavar="ROOT", help="a directory of runs")
    parser.add_argument("--only", default="", metavar="WORDS", help="only screens whose names contain this")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    names = [name for name in SCREENS if args.only in name]
    for of in (LEARNS, FAILS, RUNS, EIGHT):
        wanted = [name for name in names if SCREENS[name].of == of]
        if wanted and (of != RUNS or args.runs is not None):
            pictures(args.folder, of, wanted, args.runs)
    shutil.rmtree(args.folder / ".state", ignore_errors=True)


if __name__ == "__main__":
    main()
