"""Pictures of the real program: it runs on a pseudo terminal, gets keys, and what a person would see is saved.

``python screenshots/make.py [--png DIR]`` writes the SVG files beside this one; ``--png`` wants the package
``resvg-py`` (the extra ``dev``). Those of a healthy run are of the embedded default, which takes about three minutes;
those of a wrong parser, and ``demo.cast`` (asciinema, version 2), are of the packaged recording and need no stack:
``--replay`` makes only these.

The name of the host is in some of them. To show another, as root:
``unshare --uts sh -c 'hostname my-host && exec python screenshots/make.py'``.

``--demo DIR`` packs another recording for ``liverl-tui demo`` without an argument: what
``python -m liverl.replay.record`` wrote to DIR.
"""

from __future__ import annotations

import argparse
import codecs
import json
import shutil
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "backend"), str(HERE.parent)]

import msgspec  # noqa: E402
from kit.pictures import svg  # noqa: E402
from kit.terminal import Terminal, clean_environment  # noqa: E402
from kit.waiting import wait_until  # noqa: E402
from msgspec.structs import replace  # noqa: E402

from liverl.control import blocking  # noqa: E402
from liverl.control.messages import ControlError  # noqa: E402
from liverl.model import Snapshot  # noqa: E402
from liverl_tui.cli.demo import PACKAGED  # noqa: E402

SHOWN_ROOT = "~/runs"
SIZES = ((80, 24), (120, 40), (200, 50))
CAST_SIZE = (100, 30)
# Keys of demo.cast, each after so many seconds: alerts, a trajectory, metrics, a replica, the end.
CAST_KEYS = (
    ("tab", 5.0),
    ("!", 4.0),
    ("enter", 3.0),
    ("escape", 4.0),
    ("M", 3.0),
    ("escape", 3.0),
    ("r", 4.0),
    ("q", 3.0),
)
LARGEST_DEMO = 300_000  # bytes
# Prints access lines of the sessions as fast as sixteen trials cause them; the first word is where liverl is.
SESSIONS = """
import itertools, logging, sys, time
sys.path.insert(0, sys.argv[1])
from liverl.sessions.__main__ import LOG_FORMAT
from liverl.sessions.access_log import access_logger
logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)
for n in itertools.count():
    trial = f"gsm8k-{n % 16}-aa11"
    for path, status in ((f"/sess/{trial}/v1/chat/completions", 200), ("/sessions", 201), (f"/sessions/{trial}", 200)):
        access_logger.info('%s "%s %s HTTP/%s" %d, %.3f s', "127.0.0.1", "POST", path, "1.1", status, 0.25)
    time.sleep(0.05)
"""
SETTLE_S = 1.5  # for a screen to show what was asked for


class Studio:
    """A place for runs, and for their pictures."""

    def __init__(self, root: Path, png: Path | None) -> None:
        self.root = root
        self.png = png
        self.swap = [(str(root), SHOWN_ROOT), (sys.executable, "python")]  # no paths of this machine
        self.env = clean_environment(XDG_STATE_HOME=f"{root}/.state")

    def program(
        self,
        *arguments: str,
        size: tuple[int, int] = (120, 40),
        tap: Callable[[float, bytes], object] | None = None,
    ) -> Terminal:
        argv = [sys.executable, "-m", "liverl_tui.cli.main", *arguments]
        # Fewer bytes
        env = self.env if tap is None else {n: v for n, v in self.env.items() if n != "COLORTERM"}
        return Terminal(argv, size=size, env=env, cwd=self.root, tap=tap)

    def save(self, name: str, terminal: Terminal, *, cut: bool = False) -> None:
        """One picture."""
        _ = terminal.lines
        picture = svg(terminal.screen, self.swap, cut=cut)
        path = HERE / f"{name}.svg"
        path.write_text(picture)
        print(f"{path.name}: {len(picture) / 1024:.0f} KiB", flush=True)
        if self.png is not None:
            import resvg_py

            image = resvg_py.svg_to_bytes(svg_string=picture, zoom=1.5, monospace_family="DejaVu Sans Mono")
            (self.png / f"{name}.png").write_bytes(bytes(image))

    def run(self, name: str, *sets: str) -> list[str]:
        """The arguments that start a run."""
        given = ("infrastructure.litellm_port=0", *sets)
        return ["up", "--run-root", str(self.root), "--name", name, *(x for s in given for x in ("--set", s))]

    def folder(self, name: str) -> Path:
        return self.root / "liverl" / name

    def until(self, name: str, wanted: Callable[[Snapshot], object], seconds: float) -> None:
        """Wait for a state of a run."""

        def look() -> bool:
            try:
                return bool(wanted(blocking.snapshot(self.folder(name))))
            except ControlError:
                return False

        wait_until(look, seconds, name)

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """The run does not outlive this."""
        try:
            yield
        finally:
            try:
                blocking.command(self.folder(name), "stop", now=True)
            except ControlError:
                pass  # it has ended by itself
            wait_until((self.folder(name) / "result.json").exists, 60, "the run's end")


def press(terminal: Terminal, *keys: str) -> None:
    for key in keys:
        terminal.press(key)
        time.sleep(0.4)
    time.sleep(SETTLE_S)


def healthy(studio: Studio) -> None:
    """A run from its start to its end."""
    with studio.stopped("first"), studio.program(*studio.run("first")) as terminal:
        studio.until(
            "first", lambda s: any(x.kind == "proxy" and x.state == "starting" for x in s.services), 300
        )
        time.sleep(2 * SETTLE_S)
        studio.save("boot", terminal)
        studio.until("first", lambda s: (s.step or 0) >= 9, 300)
        for size in SIZES:
            terminal.resize(*size)
            time.sleep(SETTLE_S)
            studio.save(f"dashboard-{size[0]}x{size[1]}", terminal)
        terminal.resize(120, 40)
        press(terminal, "3", "z", "f", *"Weights|Progress|checkpoint", "enter", "/", *"checkpoint", "enter")
        studio.save("logs", terminal)
        press(terminal, "escape", "escape", "z", "4", *"jjjjjjjj", "enter", "j", "enter")
        studio.save("trajectory", terminal)
        press(terminal, "escape", "M")
        studio.save("metrics", terminal)
        press(terminal, "escape", "2", "enter")
        studio.save("replica", terminal)
        with studio.program("status", "--run", str(studio.folder("first")), size=(110, 40)) as status:
            status.wait()
            studio.save("status", status, cut=True)
        press(terminal, "escape", "D")
        terminal.wait()
        with studio.program("wait", "--for", "done", "--run", str(studio.folder("first"))) as wait:
            wait.wait(300)
        with studio.program("events", "--run", str(studio.folder("first")), size=(110, 70)) as events:
            events.wait()
            studio.save("run", events, cut=True)


def verl_like(studio: Studio) -> None:
    """The log pane beside sessions that serve some sixty requests a second. Simulated: the trainer prints what verl has
    printed on two H200s, the sessions only their access lines, by their own logger."""
    from kit.runs import QUICK_STOP, make_run

    from liverl.plan.spec import Plan, Probes, RestartPolicy, ServiceSpec

    def service(name: str, kind: Literal["trainer", "sessions"], argv: tuple[str, ...]) -> ServiceSpec:
        never = RestartPolicy(mode="never")
        return ServiceSpec(name, kind, argv, probes=Probes(), stop=QUICK_STOP, restart=never)

    log = HERE.parent / "tests" / "data" / "recordings" / "h200" / "verl.log"
    replay = f"while IFS= read -r line; do printf '%s\\n' \"$line\"; sleep 0.02; done < {log}; sleep 600"
    trainer = replace(
        service("trainer", "trainer", ("bash", "-c", replay)), stage_parser="trainer", ends_run=True
    )
    sessions = service("sessions", "sessions", (sys.executable, "-c", SESSIONS, str(HERE.parent / "backend")))
    run = make_run(studio.root, (trainer, sessions), name="verl")
    path = run.run_dir / "plan.json"
    plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    path.write_bytes(msgspec.json.encode(replace(plan, carrier="sessions")))
    try:
        run.start()
        with studio.program("attach", str(run.run_dir)) as terminal:
            wait_until(lambda: (run.snapshot().step or 0) >= 6, 120, "step 6")
            press(terminal, "escape")
            studio.save("verl-logs-120x40", terminal)
            press(terminal, "q")
    finally:
        run.end()


def wrong_parser(studio: Studio) -> None:
    """A model that writes one tool format, and an engine that parses another: most trials call no tool. Of the packaged
    recording."""
    with studio.program("demo") as terminal:
        terminal.wait_for("1 alert")
        press(terminal, "1")  # ends the hints, if this is the first start
        for size in SIZES:
            terminal.resize(*size)
            time.sleep(SETTLE_S)
            studio.save(f"demo-{size[0]}x{size[1]}", terminal)
        terminal.resize(120, 40)
        time.sleep(SETTLE_S)
        studio.save("zero-tool-calls", terminal)
        press(terminal, "!")
        studio.save("alerts", terminal)
        press(terminal, "escape", "q")
        terminal.wait()


def cast(studio: Studio) -> None:
    """``demo.cast``: half a minute of the demo, for ``asciinema play``."""
    columns, rows = CAST_SIZE
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    lines: list[tuple[float, str]] = []
    began = time.monotonic()

    def tap(at: float, data: bytes) -> None:
        lines.append((at, decode(data)))

    with studio.program("demo", size=CAST_SIZE, tap=tap) as terminal:
        began += terminal.wait_for("demo/wrong-parser") - 1.0
        for key, seconds in CAST_KEYS:
            time.sleep(seconds)
            terminal.press(key)
        terminal.wait()
    head = {"version": 2, "width": columns, "height": rows, "title": "liverl-tui demo"}
    path = HERE / "demo.cast"
    events = [
        json.dumps([round(max(0.0, at - began), 2), "o", text], ensure_ascii=False) for at, text in lines
    ]
    path.write_text("\n".join((json.dumps(head), *events)) + "\n", encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB", flush=True)


def new_demo(source: Path, begin: float | None, end: float | None, from_step: int) -> None:
    """Pack ``source`` as the recording of ``liverl-tui demo``; seconds count from the start of the recording."""
    given = {"--begin": begin, "--end": end, "--from-step": from_step}
    options = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    out = HERE.parent / "backend" / "liverl" / "replay" / "recordings" / PACKAGED
    env = {**clean_environment(), "PYTHONPATH": str(HERE.parent / "backend")}
    argv = [sys.executable, "-m", "liverl.replay.pack", str(source), "--out", str(out), *options]
    subprocess.run(argv, check=True, env=env)
    if out.stat().st_size >= LARGEST_DEMO:
        raise SystemExit(f"{out} has more than {LARGEST_DEMO} bytes: choose a later --begin, or --from-step")


def short_folder() -> Path:
    """A new directory whose path is as long as what is shown for it, so that no column moves."""
    for letter in string.ascii_letters:
        path = Path(f"/tmp/{letter}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise SystemExit("every one-letter name in /tmp is taken")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--png", type=Path, metavar="DIR", help="PNG files as well, there")
    parser.add_argument("--replay", action="store_true", help="only the pictures of the packaged recording")
    parser.add_argument("--demo", type=Path, metavar="DIR", help="pack this recording for the demo first")
    parser.add_argument(
        "--begin", type=float, metavar="S", help="of the new demo: seconds into the recording"
    )
    parser.add_argument("--end", type=float, metavar="S", help="its end")
    parser.add_argument("--from-step", type=int, default=0, metavar="N", help="its first step with trials")
    args = parser.parse_args()
    if args.demo is not None:
        new_demo(args.demo, args.begin, args.end, args.from_step)
    if args.png is not None:
        args.png.mkdir(parents=True, exist_ok=True)
    root = short_folder()
    try:
        studio = Studio(root, args.png)
        if not args.replay:
            healthy(studio)
            verl_like(studio)
        wrong_parser(studio)
        cast(studio)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
