"""A long run of the embedded default, watched by the interface: does anything grow?

``python tests/bench/soak.py [--minutes 120] [--latency SECONDS] [--json FILE]``. Prints, for each process, its own
memory (RssAnon), descriptors and threads at the begin and at the end of the measured part, and how fast they grow; and
for each kind of file of the run, bytes per hour and per step. The first quarter is warming up and is not measured.
Exit code 1 if a process of ours that should not grow does (``LIMIT_MIB_H``, ``LIMIT_FDS``), or the run did not last.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[2:4])

from kit.cli import MAIN  # noqa: E402
from kit.real import real_run  # noqa: E402
from kit.runs import ToyRun  # noqa: E402

EVERY_S = 15.0  # between two samples
LIMIT_MIB_H = 4.0  # growth of backend, keeper and interface
LIMIT_FDS = 8  # further descriptors or threads
OURS = ("backend", "keeper", "interface")
KEYS = b"123456jjkk\t\x1b"  # what the interface is sent: other pages, other rows, back


def sample(pid: int) -> dict[str, float]:
    """Own memory in MiB, descriptors, threads of a process.

    Raises:
        OSError: it has ended.
    """
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "mib": int(fields["RssAnon"].split()[0]) / 1024,
        "fds": float(len(os.listdir(f"/proc/{pid}/fd"))),
        "threads": float(fields["Threads"]),
    }


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """The least-squares slope, per hour. ``times`` in seconds."""
    mean_t, mean_v = sum(times) / len(times), sum(values) / len(values)
    spread = sum((t - mean_t) ** 2 for t in times)
    return 3600 * sum((t - mean_t) * (v - mean_v) for t, v in zip(times, values, strict=True)) / spread


@contextmanager
def interface(run_dir: Path) -> Iterator[int]:
    """The interface in a terminal of 120x40, to which a key is sent every few seconds."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        os.execv(MAIN[0], [*MAIN, "attach", "--readonly", "--run", str(run_dir)])
    over = threading.Event()

    def drain() -> None:
        while True:
            try:
                if not os.read(terminal, 1 << 16):
                    return
            except OSError:
                return

    def press() -> None:
        chosen = random.Random(1)
        while not over.wait(5.0):
            try:
                os.write(terminal, bytes([chosen.choice(KEYS)]))
            except OSError:
                return

    threads = [threading.Thread(target=work, daemon=True) for work in (drain, press)]
    for thread in threads:
        thread.start()
    try:
        yield pid
    finally:
        over.set()
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
        os.waitpid(pid, 0)
        os.close(terminal)


def sizes(run_dir: Path) -> Counter[str]:
    """Bytes of the run's files by their kind: the first folder, or the name."""
    found: Counter[str] = Counter()
    for path in run_dir.rglob("*"):
        try:
            if path.is_file() and not path.is_symlink():
                parts = path.relative_to(run_dir).parts
                found["/".join(parts[:2]) if parts[0].startswith("attempt") else parts[0]] += (
                    path.stat().st_size
                )
        except FileNotFoundError:
            continue  # replaced meanwhile
    return found


def processes(run: ToyRun) -> dict[str, int]:
    """Name -> pid of the backend, the keeper and the leader of each service."""
    snapshot = run.snapshot()
    keeper = snapshot.backend.keeper_pid
    assert keeper is not None
    return {
        "backend": snapshot.backend.pid,
        "keeper": keeper,
        **{s.name: s.pid for s in snapshot.services if s.pid},
    }


def soak(run: ToyRun, minutes: float) -> tuple[bool, dict[str, object]]:
    """Run, sample, print; returns whether nothing grew, and the numbers."""
    run.start()
    run.until("trainer", "ready", 300)
    with interface(run.run_dir) as screen:
        watched = {**processes(run), "interface": screen}
        began = time.monotonic()
        time.sleep(minutes * 15)  # the first quarter
        first_step, first_sizes, first_at = run.snapshot().step or 0, sizes(run.run_dir), time.monotonic()
        times: list[float] = []
        samples: dict[str, list[dict[str, float]]] = {name: [] for name in watched}
        while time.monotonic() - began < minutes * 60:
            times.append(time.monotonic())
            for name, pid in watched.items():
                samples[name].append(sample(pid))
            print(
                f"{(times[-1] - began) / 60:6.1f} min, step {run.snapshot().step}",
                file=sys.stderr,
                flush=True,
            )
            time.sleep(EVERY_S)
        hours = (time.monotonic() - first_at) / 3600
        steps = (run.snapshot().step or 0) - first_step
        grown = sizes(run.run_dir) - first_sizes
        lasted = processes(run) == {name: pid for name, pid in watched.items() if name != "interface"}
    numbers: dict[str, object] = {"hours": hours, "steps": steps, "lasted": lasted}
    ok = lasted and steps > 0
    print(
        f"{hours:.2f} h measured, {steps} steps, {'no process was replaced' if lasted else 'A PROCESS WAS REPLACED'}"
    )
    print(f"{'process':12} {'MiB':>16} {'MiB/h':>8} {'descriptors':>12} {'threads':>9}")
    for name, taken in samples.items():
        rate = slope(times, [s["mib"] for s in taken])
        fds, threads = ([s[kind] for s in taken] for kind in ("fds", "threads"))
        if name in OURS:
            ok = ok and rate <= LIMIT_MIB_H
            ok = ok and max(fds[-4:]) - max(fds[:4]) <= LIMIT_FDS and threads[-1] - threads[0] <= LIMIT_FDS
        numbers[name] = {"mib_h": rate, "mib": [taken[0]["mib"], taken[-1]["mib"]], "fds": [fds[0], fds[-1]]}
        memory = f"{taken[0]['mib']:.1f} -> {taken[-1]['mib']:.1f}"
        print(
            f"{name:12} {memory:>16} {rate:8.2f} {f'{fds[0]:.0f} -> {fds[-1]:.0f}':>12} "
            f"{f'{threads[0]:.0f} -> {threads[-1]:.0f}':>9}"
        )
    print(f"{'files':24} {'KiB/h':>10} {'bytes/step':>11}")
    for kind, size in grown.most_common():
        print(f"{kind:24} {size / 1024 / hours:10.1f} {size / max(1, steps):11.0f}")
    numbers["files_per_hour"] = {kind: size / hours for kind, size in grown.items()}
    return ok, numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--latency", type=float, default=1.0, help="seconds before the first token of a turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    os.environ["XDG_STATE_HOME"] = str(folder / "state")  # the user's list of runs is left alone
    sets = (
        "training.total_steps=1000000",
        f"embedded.turn_latency={args.latency}",
        "training.train_batch_size=2",
        "training.train_prompt_mini_batch_size=2",
        "training.n_resp_per_prompt=4",
    )
    run = real_run(folder, *sets, small=False)
    try:
        ok, numbers = soak(run, args.minutes)
    finally:
        run.end()
        shutil.rmtree(folder, ignore_errors=True)
    if args.json:
        args.json.write_text(json.dumps(numbers, indent=2) + "\n")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
