"""Eighteen questions that an engineer asks of a run, and the keys that answer them: seconds from the first key to the
answer on the screen: ``python tests/bench/questions.py FOLDER [--size 120x40] [--only 2,10] [--json FILE]``.

FOLDER gets the runs that are asked, unless it has them: one that learned, one after it with another learning rate, one
whose trainer was killed, and one that is live, which is stopped at the end. Keys are pressed a quarter of a second
after each other, as by somebody who knows them. The keys are those that people found who had never seen the program,
where it did not change since. Exits with 1 if an answer does not come.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]

from kit.terminal import Terminal, clean_environment  # noqa: E402
from kit.waiting import wait_until  # noqa: E402

PROGRAM = [sys.executable, "-m", "liverl_tui"]
A_KEY_S, PATIENCE_S, SETTLED_S = 0.25, 20.0, 4.0
LEARNS, FAILS = ("demo", "learns", "--speed", "20"), ("demo", "wrong-parser", "--speed", "20")


class Question(NamedTuple):
    """``of``: a run, or the words of a command; ``answer``: a pattern that the screen, or what it prints, then has."""

    text: str
    of: str | tuple[str, ...]
    keys: tuple[str, ...]
    answer: str


QUESTIONS = (
    Question("is it learning", "base", (), r"reward .*(all solved|learning)"),
    Question("where does a step's time go", "base", ("I",), r"generate .*%"),
    Question("which trials call no tool", FAILS, ("4", "!"), r"flagged trials only|no tool call"),
    Question("why reward 0", "lr2", ("4", "d"), r"expected"),
    Question("two trials of one prompt side by side", "lr2", ("4", "d"), r"first difference"),
    Question("why did the run fail", "crashed", (), r"killed by SIGKILL in step"),
    Question("which replica is slow", "nightly", ("I",), r"no replica is named slow|slow"),
    Question("who holds GPU 1", LEARNS, ("1", "down", "enter"), r"GPU 1 "),
    Question("what changed since I left", "nightly", ("E",), r"you left at|step \d+/"),
    Question(
        "this run against the previous one", "lr2", ("Z", "c"), r"(below|above|worse|better).*from step"
    ),
    Question("what differs in the configurations", "lr2", ("Z", "c"), r"algorithm\.learning_rate"),
    Question("again with another learning rate", "lr2", ("Z",), r"up --like"),
    Question("when will it be done", "nightly", (), r"ETA"),
    Question("is validation improving", LEARNS, ("M",), r"val-core"),
    Question("disk of the run, what may go", "nightly", ("K",), r"may go|goes"),
    Question("newest and best checkpoint, export", "base", ("K",), r"best: step \d+"),
    Question(
        "tell a colleague", ("report", "crashed", "--html", "-o", "colleague.html"), (), r"colleague\.html"
    ),
    Question("a metric as CSV", "base", ("M", "e"), r"\.csv"),
)


def started(folder: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    """Start a run of the embedded default."""
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*PROGRAM, "up", "--no-ui", "--run-root", folder, "--name", name]
            + ["--set", "infrastructure.litellm_port=0", *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip


def status(folder: Path, name: str) -> dict[str, object]:
    """The run's state; empty if there is none."""
    run = folder / "liverl" / name
    done = subprocess.run([*PROGRAM, "status", "--run", run, "--json"], capture_output=True, check=False)
    return dict(json.loads(done.stdout)) if done.returncode == 0 and done.stdout else {}


def make(folder: Path) -> subprocess.Popen[bytes]:
    """The runs; the live one is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in (("base", ()), ("lr2", ("--set", "algorithm.learning_rate=0.1"))):
        if not (folder / "liverl" / name).exists():
            assert started(folder, name, *words).wait() == 0, (folder / f"{name}.log").read_text()[-2000:]
    if not (folder / "liverl" / "crashed").exists():
        run = started(folder, "crashed", "--set", "training.total_steps=60")
        wait_until(lambda: int(str(status(folder, "crashed").get("step") or 0)) >= 5, 300, "five steps")
        services = status(folder, "crashed")["services"]
        assert isinstance(services, list)
        os.kill(next(s["pid"] for s in services if s["name"] == "trainer"), signal.SIGKILL)
        run.wait()
    resumed = ("--resume",) if (folder / "liverl" / "nightly").exists() else ()
    live = started(folder, "nightly", "--set", "training.total_steps=2000", *resumed)
    wait_until(lambda: int(str(status(folder, "nightly").get("step") or 0)) >= 6, 300, "six steps")
    return live


def asked(folder: Path, question: Question, size: tuple[int, int]) -> float | None:
    """Seconds until the answer; None if it does not come."""
    env = clean_environment()
    if isinstance(question.of, tuple) and question.of[0] == "report":
        command, run, *rest = question.of
        began = time.monotonic()
        done = subprocess.run(
            [*PROGRAM, command, folder / "liverl" / run, *rest],
            cwd=folder, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        return time.monotonic() - began if re.search(question.answer, done.stdout) else None
    run_words = (
        ("attach", "--readonly", "--run", str(folder / "liverl" / question.of))
        if isinstance(question.of, str)
        else question.of
    )
    terminal = Terminal([*PROGRAM, *run_words], size=size, env=env, cwd=folder)
    try:
        began = time.monotonic()
        wait_until(lambda: any("Trajectories" in line for line in terminal.lines), 60, "the first screen")
        if question.keys:
            time.sleep(SETTLED_S)
            began = time.monotonic()
        for number, key in enumerate(question.keys):
            if number:
                time.sleep(A_KEY_S)
            terminal.press(key)
        while time.monotonic() - began < PATIENCE_S:
            if any(re.search(question.answer, line) for line in terminal.lines):
                return time.monotonic() - began
            time.sleep(0.02)
        return None
    finally:
        terminal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--size", default="120x40", metavar="COLUMNSxROWS")
    parser.add_argument("--only", default="", metavar="N,N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    columns, rows = (int(each) for each in given.size.split("x"))
    only = {int(each) for each in given.only.split(",") if each}
    folder = given.folder.resolve()
    live, found = make(folder), []
    try:
        for number, question in enumerate(QUESTIONS, 1):
            if only and number not in only:
                continue
            seconds = asked(folder, question, (columns, rows))
            found.append({"question": question.text, "keys": len(question.keys), "seconds": seconds})
            told = "no answer" if seconds is None else f"{seconds:5.2f} s"
            print(f"{number:2}  {question.text:40} {len(question.keys)} keys  {told}", flush=True)
    finally:
        live.send_signal(signal.SIGTERM)
        live.wait()
    answered = [each for each in found if each["seconds"] is not None]
    keys = statistics.median(each["keys"] for each in found)
    seconds = statistics.median(each["seconds"] for each in answered) if answered else float("nan")
    print(f"{len(answered)} of {len(found)} answered, median {keys:g} keys and {seconds:.2f} s")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    raise SystemExit(len(answered) != len(found))


if __name__ == "__main__":
    main()
