"""What the terminal's rows share: a pseudo terminal that is listened to, made-up runs, and the machine's load."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyte
from kit.terminal import Terminal, clean_environment
from kit.waiting import wait_until

HERE = Path(__file__).resolve().parent
FEED = HERE / "terminal_feed.py"
WIDE = (200, 50)
_FRAME_GAP_S = 0.004  # output that comes closer together belongs to one paint


class Ear(Terminal):
    """A terminal whose output is kept as it came; it is emulated when the measurement is over."""

    def take(self) -> list[tuple[float, bytes]]:
        """What has arrived since the last call, each piece with its monotonic time."""
        with self._news:
            pieces = list(self._waiting)
            self._waiting.clear()
        return pieces

    def listen(self, seconds: float) -> list[tuple[float, bytes]]:
        """What arrives within so many seconds."""
        self.take()
        time.sleep(seconds)
        return self.take()

    def answer(self, key: str, wanted: re.Pattern[bytes], seconds: float = 5.0) -> float | None:
        """Seconds from a key press to the arrival of output that matches; None if it does not come."""
        self.take()
        heard = b""
        pressed = time.monotonic()
        self.press(key)
        while time.monotonic() - pressed < seconds:
            for at, data in self.take():
                heard += data
                if wanted.search(heard):
                    return at - pressed
            with self._news:
                if not self._waiting:
                    self._news.wait(0.5)
        return None


def frames(pieces: list[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Pieces of output joined to paints: (time of the last byte, bytes)."""
    held, last = b"", 0.0
    for at, data in pieces:
        if held and at - last > _FRAME_GAP_S:
            yield last, held
            held = b""
        held += data
        last = at
    if held:
        yield last, held


def replay(terminal: Ear, pieces: list[tuple[float, bytes]]) -> Iterator[tuple[float, list[str]]]:
    """The screen after each paint, on top of what ``terminal`` had shown before."""
    stream = pyte.ByteStream(terminal.screen)
    for at, data in frames(pieces):
        stream.feed(data)
        yield at, terminal.screen.display


def changed_bytes(terminal: Ear, pieces: list[tuple[float, bytes]]) -> int:
    """Bytes of the characters that differ from one paint to the next: no program can send less."""
    before, total = terminal.screen.display, 0
    for _, after in replay(terminal, pieces):
        for old, new in zip(before, after, strict=True):
            if old != new:
                total += sum(len(b.encode()) for a, b in zip(old, new, strict=False) if a != b)
        before = after
    return total


# The least that Textual can do: one text, and two things that show which of them has the keys.
MINIMAL_NAME = "minimal Textual app"
GREETING = "hello from a minimal app"
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


# --- programs under test --------------------------------------------------------------------------------


def interface(run_dir: Path) -> list[str]:
    """The command line that shows a run."""
    return [sys.executable, "-m", "liverl_tui.cli.main", "attach", "--run", str(run_dir)]


def environment(folder: Path) -> dict[str, str]:
    """Of every program under test: no state of the user is read or written, and modules are compiled once, as
    an installer would have done."""
    paths = os.pathsep.join(str(p) for p in (HERE.parents[1] / "backend", HERE.parents[1]))
    home = folder / "home"
    home.mkdir(exist_ok=True)
    env = clean_environment(
        HOME=str(home),
        XDG_STATE_HOME=str(folder / "state"),
        PYTHONPATH=paths,
        PYTHONPYCACHEPREFIX=str(folder / "pyc"),
        LIVERL_UI__THEME="liverl-dark",
    )
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


@dataclass(frozen=True)
class Plan:
    folder: Path
    quick: bool

    def rounds(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def start(plan: Plan, argv: list[str], term: str = "xterm-256color", rate: float | None = None) -> Ear:
    """``rate``: bytes a second of a slow line, on which every program is told that it is there over ssh."""
    env = {**environment(plan.folder), "TERM": term}
    if rate is not None:
        env["SSH_CONNECTION"] = "192.0.2.1 50000 192.0.2.2 22"
    return Ear(argv, size=WIDE, env=env, cwd=plan.folder, rate=rate)


def shown(plan: Plan, run_dir: Path) -> Ear:
    """The interface on a run, once it shows it."""
    terminal = start(plan, interface(run_dir))
    terminal.wait_for("bench/toy")
    return terminal


@dataclass
class FakeRun:
    """A run directory with a live control server that serves made-up snapshots."""

    path: Path

    @property
    def log(self) -> Path:
        return self.path / "attempt_001" / "logs" / "trainer.1.log"


@contextmanager
def fake_run(folder: Path, *options: str) -> Iterator[FakeRun]:
    """A live run; ``options`` are those of the feed's backend."""
    run = FakeRun(folder / "runs" / "bench" / "toy")
    run.log.parent.mkdir(parents=True)
    (run.path / "plan.json").touch()
    run.log.write_bytes(b"INFO:trainer.worker:the trainer has begun\n")
    backend = subprocess.Popen([sys.executable, FEED, "backend", run.path, *options], start_new_session=True)
    try:
        wait_until((run.path / "backend.json").exists, 20, "the made-up backend")
        yield run
    finally:
        end(backend)
        shutil.rmtree(run.path)


@contextmanager
def writer(log: Path, rate: float) -> Iterator[None]:
    """Appends to ``log`` at ``rate`` MB/s."""
    process = subprocess.Popen([sys.executable, FEED, "writer", log, str(rate)], start_new_session=True)
    try:
        yield
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def lnav() -> str | None:
    return shutil.which("lnav")


# --- numbers --------------------------------------------------------------------------------------------


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least ``share`` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1))]


def median(values: list[float]) -> float:
    return quantile(values, 0.5)


@dataclass
class Row:
    """One line of the table. ``value`` decides against ``limit`` (both in ``unit``); no limit, no verdict."""

    row: str
    what: str
    unit: str
    values: list[float] = field(default_factory=list)
    limit: float | None = None
    share: float = 0.5  # which quantile is held against the limit
    beside: dict[str, float] = field(default_factory=dict)  # what was measured in the same minutes
    note: str = ""
    load: str = ""
    quiet: bool = True

    @property
    def value(self) -> float | None:
        return quantile(self.values, self.share) if self.values else None

    @property
    def verdict(self) -> str:
        if self.limit is None or not self.values:
            return "" if self.values else "none"
        return "pass" if quantile(self.values, self.share) <= self.limit else "MISS"


class Load:
    """How busy the machine was with other things: CPU that neither we nor what we started and reaped used."""

    def __init__(self) -> None:
        self._began = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float, float]:
        fields = [int(x) / os.sysconf("SC_CLK_TCK") for x in Path("/proc/stat").read_text().split()[1:9]]
        user, nice, system, idle, iowait, irq, softirq, steal = fields
        mine = sum(
            use.ru_utime + use.ru_stime
            for use in (
                resource.getrusage(resource.RUSAGE_SELF),
                resource.getrusage(resource.RUSAGE_CHILDREN),
            )
        )
        busy = user + nice + system + irq + softirq
        return busy, steal, busy + steal + idle + iowait, mine

    def told(self) -> tuple[str, bool]:
        """In words, and whether that counts as quiet."""
        busy, steal, total, mine = (b - a for a, b in zip(self._began, self._now(), strict=True))
        total = max(total, 1e-9)
        others = max(0.0, busy - mine) / total
        quiet = others < 0.08 and steal / total < 0.02
        return f"others {others:.0%}, steal {steal / total:.0%}", quiet
