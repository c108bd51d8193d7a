"""Our supervisor beside ``supervisord`` on the same machine in the same minutes, against the targets.

``python tests/bench/supervise.py [--quick] [--json FILE] [--only 1,3] [--no-peer]``. Exit code 1 if a target is
missed. CPU seconds and ratios mean something on a busy machine, wall seconds only when they differ by much.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[2:4])

from bench import Bench, Line, figure, table  # noqa: E402
from kills import killed  # noqa: E402
from kit.waiting import wait_until  # noqa: E402
from peers import Ours, Peer, Toy, supervisord_python  # noqa: E402
from processes import births, copies, cpu_seconds, kill_payloads, payload, pss_mib  # noqa: E402
from stored import Recorder, add_option  # noqa: E402

from liverl.procs import procfs  # noqa: E402
from liverl.util.pace import QUIET_AFTER, QUIET_PERIOD  # noqa: E402


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ms ({min(values):.0f}-{max(values):.0f})"


# --- 1: death -> new generation -----------------------------------------------------------------------


def restarts(bench: Bench) -> Iterator[Line]:
    rounds = 8 if bench.quick else 20
    floor: list[float] = []
    took: dict[str, list[float]] = {}
    with bench.peers("restart", [Toy("a", "sleep")]) as peers:
        for peer in peers:
            peer.ready()
        wait_until(lambda: all(births(p.folder, "a") for p in peers))
        for _ in range(rounds):
            floor.append(bare_start(bench.folder))
            for peer in peers:
                took.setdefault(peer.title, []).append(one_restart(peer))
    base = statistics.median(floor)
    ratios = {title: statistics.median(values) / base for title, values in took.items()}
    shown = {title: f"{ratios[title]:.1f}x: {spread(values)}" for title, values in took.items()}
    what = f"child death -> new generation's first act; bare fork+exec: {spread(floor)}, n={rounds}"
    yield Line(
        "1",
        what,
        shown["liverl"],
        shown.get("supervisord", ""),
        "<= 4x",
        ratios["liverl"] <= 4,
        [
            figure(
                "a killed child is started again: median time to its first act",
                "ms",
                {**{title: statistics.median(v) for title, v in took.items()}, "bare fork and exec": base},
                4 * base,
                clock=True,
            )
        ],
    )


def bare_start(folder: Path) -> float:
    """Milliseconds from fork to the payload's first act."""
    before = len(births(folder, "bare"))
    argv = payload("sleep", folder, "bare")
    began = time.monotonic_ns()
    pid = os.fork()
    if pid == 0:
        os.execv(argv[0], argv)
    try:
        wait_for_birth(folder, "bare", before)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return (births(folder, "bare")[-1][1] - began) / 1e6


def one_restart(peer: Peer) -> float:
    """Milliseconds from SIGKILL to the next process's first act."""
    seen = births(peer.folder, "a")
    began = time.monotonic_ns()
    os.kill(seen[-1][0], signal.SIGKILL)
    wait_for_birth(peer.folder, "a", len(seen))
    took = (births(peer.folder, "a")[len(seen)][1] - began) / 1e6
    peer.generation_ready("a", seen[-1][0])
    return took


def wait_for_birth(folder: Path, name: str, before: int) -> None:
    give_up = time.monotonic() + 20
    while len(births(folder, name)) <= before:
        if time.monotonic() > give_up:
            raise AssertionError(f"{name} was not started again within 20 s")
        time.sleep(0.002)


# --- 2: log floods ------------------------------------------------------------------------------------


def floods(bench: Bench) -> Iterator[Line]:
    rounds = {"blocks": 2 if bench.quick else 5, "lines": 1}
    for kind, count in rounds.items():
        toys = [Toy("flood", "flood", (kind, 200, count))]
        cells: dict[str, str] = {}
        shares: dict[str, float] = {}
        with bench.peers(f"flood-{kind}", toys) as peers:
            for peer in peers:
                child, supervisor, wall = one_flood(peer)
                share = 100 * supervisor / child
                cells[peer.title] = (
                    f"{share:.2f} %: {supervisor * 1e3:.0f} ms of {child:.2f} s ({wall:.1f} s)"
                )
                shares[peer.title] = share
                peer.close()
        what = f"supervisor CPU during {count} x 200 MB in {kind}, of the child's (wall)"
        stored = figure(
            f"a child writes 200 MB in {kind}: CPU of the supervisor, of the child's", "%", shares, 1
        )
        ok = shares["liverl"] <= 1
        yield Line("2", what, cells["liverl"], cells.get("supervisord", ""), "<= 1 %", ok, [stored])


def one_flood(peer: Peer) -> tuple[float, float, float]:
    """CPU seconds of child and supervisor, and the child's wall seconds."""
    peer.ready()
    wait_until((peer.folder / "flood.waiting").exists, what="the flood's readiness")
    done = peer.folder / "flood.flooded"
    pids = peer.pids()
    before = cpu_seconds(pids)
    os.kill(births(peer.folder, "flood")[-1][0], signal.SIGUSR1)
    wait_until(lambda: done.exists() and done.read_text().endswith("\n"), 180, "the end of the flood")
    supervisor = cpu_seconds(pids) - before
    child, wall = (float(word) for word in done.read_text().split())
    return child, supervisor, wall


# --- 3: idle ------------------------------------------------------------------------------------------


def idle(bench: Bench) -> Iterator[Line]:
    windows, seconds = 3, QUIET_PERIOD if bench.quick else 2 * QUIET_PERIOD  # whole periods
    toys = [Toy(f"sleep{number}", "sleep") for number in range(10)]
    cpu: dict[str, list[float]] = {}
    memory: dict[str, float] = {}
    with bench.peers("idle", toys) as peers:
        for peer in peers:
            peer.ready()
        pids = {peer.title: peer.pids() for peer in peers}  # by a client
        time.sleep(QUIET_AFTER + 5)  # what a start and a client leave to do is not idling
        for _ in range(windows):
            before = {title: cpu_seconds(found) for title, found in pids.items()}
            began = time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - began
            for title, found in pids.items():
                cpu.setdefault(title, []).append((cpu_seconds(found) - before[title]) / took * 1e3)
        memory = {title: pss_mib(found) for title, found in pids.items()}
    # Others on the machine can only make the same work dearer: cold caches, a shared core.
    least = {title: min(values) for title, values in cpu.items()}
    shown = {t: f"{least[t]:.2f} ms/s ({', '.join(f'{v:.2f}' for v in values)})" for t, values in cpu.items()}
    what = f"CPU with 10 idle children, the least of {windows} x {seconds:g} s, no probes, no client"
    ok = least["liverl"] <= 0.5
    yield Line(
        "3",
        what,
        shown["liverl"],
        shown.get("supervisord", ""),
        "<= 0.5 ms/s",
        ok,
        [figure("10 children that do nothing: CPU of the supervisor", "ms/s", least, 0.5)],
    )
    shown = {title: f"{value:.1f} MiB" for title, value in memory.items()}
    ok = memory["liverl"] <= 60
    what = "PSS then (ours: backend + keeper)"
    yield Line(
        "3",
        what,
        shown["liverl"],
        shown.get("supervisord", ""),
        "<= 60 MiB",
        ok,
        [figure("10 children that do nothing: memory (PSS) of the supervisor", "MiB", memory, 60)],
    )


# --- 5: deaf grandchildren ----------------------------------------------------------------------------


def deaf(bench: Bench) -> Iterator[Line]:
    names = ("tree-inside", "tree-session", "tree-orphan")
    cells: dict[str, str] = {}
    left_by: dict[str, float] = {}
    seconds: dict[str, float] = {}
    with bench.peers("deaf", [Toy("tree", "tree")]) as peers:
        for peer in peers:
            peer.ready()
            for name in names:
                wait_until((peer.folder / f"{name}.deaf").exists, what=f"the deafness of {name}")
            began = time.monotonic()
            peer.ask_stop()
            wait_until(peer.ended, 30, "the supervisor's end")
            took = time.monotonic() - began
            left = sorted(copies(peer.folder))
            which = f" ({', '.join(name.removeprefix('tree-') for name in left)})" if left else ""
            cells[peer.title] = f"{len(left)} left{which}, {took:.1f} s"
            left_by[peer.title], seconds[peer.title] = float(len(left)), took
    what = "3 TERM-deaf grandchildren (in the session, in their own, orphaned) after stop; grace 1 s + 1 s"
    ok = left_by["liverl"] == 0
    stored = [
        figure(
            "stop with three grandchildren deaf to TERM: left alive",
            "processes",
            left_by,
            0,
            guarded=False,
        ),
        figure("the same: until the supervisor has ended", "s", seconds, guarded=False, clock=True),
    ]
    yield Line("5", what, cells["liverl"], cells.get("supervisord", ""), "0 left", ok, stored)


# --- 6: restart under load ----------------------------------------------------------------------------


def under_load(bench: Bench) -> Iterator[Line]:
    rounds = 2 if bench.quick else 5
    port = procfs.free_port()
    cells: dict[str, str] = {}
    failed: dict[str, float] = {}
    with bench.peers("load", [Toy("listener", "serve", (port,))]) as peers:
        for peer in peers:
            peer.ready()
            number = peer.port("listener") if isinstance(peer, Ours) else port
            while ask(number) == "refused":
                time.sleep(0.01)

            def work(peer: Peer = peer) -> None:
                for _ in range(rounds):
                    peer.restart("listener")
                    time.sleep(0.5)  # the replaced one drains under load, too

            count = load(number, work)
            cells[peer.title] = f"{count['refused']} refused, {count['cut']} cut of {sum(count.values())}"
            failed[peer.title] = 100.0 * (count["refused"] + count["cut"]) / max(1, sum(count.values()))
            peer.close()
    what = f"{rounds} restarts of a draining listener (a toy of 50 ms a request), 8 clients"
    ok = not failed["liverl"]
    stored = [
        figure("restarts of a listener under load: requests refused or cut", "%", failed, 0, guarded=False)
    ]
    yield Line("6", what, cells["liverl"], cells.get("supervisord", ""), "0 refused, 0 cut", ok, stored)


def ask(port: int) -> str:
    """One request on a connection of its own."""
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(b"hello\n")
            return "answered" if connection.recv(64) else "cut"
    except ConnectionRefusedError:
        return "refused"
    except OSError:
        return "cut"


def load(port: int, work: Callable[[], object]) -> Counter[str]:
    """What became of the requests of 8 clients while ``work`` ran."""
    over = threading.Event()
    count: Counter[str] = Counter()

    def client() -> None:
        while not over.is_set():
            outcome = ask(port)
            count[outcome] += 1
            if outcome != "answered":
                time.sleep(0.01)

    clients = [threading.Thread(target=client) for _ in range(8)]
    for thread in clients:
        thread.start()
    try:
        work()
    finally:
        over.set()
        for thread in clients:
            thread.join()
    return count


ROWS = {"1": restarts, "2": floods, "3": idle, "4": killed, "5": deaf, "6": under_load}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, about a minute")
    add_option(parser)
    parser.add_argument("--only", default=",".join(ROWS), metavar="ROWS", help="rows to measure, as in 1,3")
    parser.add_argument("--no-peer", action="store_true", help="without supervisord")
    args = parser.parse_args()
    wanted = args.only.split(",")
    if unknown := [row for row in wanted if row not in ROWS]:
        parser.error(f"no row {', '.join(unknown)}; there are: {', '.join(ROWS)}")
    try:
        python = None if args.no_peer else supervisord_python()
    except subprocess.CalledProcessError as error:
        parser.error(f"supervisord cannot be installed ({error}); --no-peer does without")
    folder = Path(tempfile.mkdtemp(prefix="supervise-"))
    os.environ["XDG_STATE_HOME"] = str(folder / "state")  # the user's list of runs is left alone
    bench = Bench(folder, args.quick, python)
    lines: list[Line] = []
    recorder = Recorder("Supervision: restarts, floods, idle cost, kills")
    try:
        for row in wanted:
            for line in ROWS[row](bench):
                lines.append(line)
                print(f"row {line.row}: {line.ours} | {line.peer}", file=sys.stderr, flush=True)
    finally:
        kill_payloads(folder)
        shutil.rmtree(folder, ignore_errors=True)
    print(table(lines))
    if args.json:
        recorder.write(args.json, [one for line in lines for one in line.figures])
    sys.exit(1 if any(line.ok is False for line in lines) else 0)


if __name__ == "__main__":
    main()
