"""CPU of flagging many trajectories: ``python tests/bench/trials.py [COUNT] [MEGABYTES] [--json FILE]``.
``python tests/bench/trials.py --index [COUNT]``: time and memory of filters and orders over an index of COUNT trials
(default 100,000) that is read from its file. Target: first rows in 300 ms, 80 MiB.

Writes COUNT trials (default 1000) whose trajectories have about MEGABYTES (default 1) each, every second without
a tool call, scans them in one go and again without a change, and prints CPU seconds.
Target: 1,000 of 1 MB in 1.5 s.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from liverl.model import TrialHead
from liverl.observe.trials.index import Stored, TrialIndex, restored
from liverl.observe.trials.query import parsed
from liverl.observe.trials.scanner import TrialScanner

sys.path.insert(0, str(Path(__file__).resolve().parent))

from stored import Figure, Recorder, add_option

TURNS = 20
OLD = time.time() - 3600


def trajectory(size: int, with_tools: bool) -> bytes:
    """TURNS records whose request grows with each turn, as an agent's does."""
    share = 2 * size // (TURNS * (TURNS + 1))
    text = 'def f(x):\n    return "a\\b"\t# ü\n' * (share // 44 + 1)
    messages: list[dict[str, object]] = []
    lines = []
    for turn in range(TURNS):
        messages.append({"role": "user", "content": text})
        call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls"}'}}
        message = {"role": "assistant", "content": "ok", "tool_calls": [call] if with_tools else None}
        lines.append(
            json.dumps(
                {
                    "session_id": "s",
                    "success": True,
                    "request_time": 1.79e12 + turn,
                    "timestamp": "2026-11-21T00:00:00Z",
                    "duration_ms": 10,
                    "request_body": {"model": "policy", "messages": messages, "tools": [{"name": "bash"}]},
                    "response_body": {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]},
                    "usage": {"completion_tokens": 7},
                    "replica": "http://127.0.0.1:4001",
                }
            )
        )
        messages.append(message)
    return ("\n".join(lines) + "\n").encode()


FILTERS = (
    "reward<1 calls=0 step=3..9 task~move finish=timeout kind=command",
    "reward<1",
    "time>50",
    "target_77",
    "name~0001",
    "step!=3..9 reward!=1",
)


def made(number: int) -> TrialHead:
    """A trial as an index may have 100,000 of: tasks, endings and words that many share, numbers that few do."""
    step, task, began = number // 512, f"move-{number % 700:03d}", 1.8e9 + number
    return TrialHead(
        name=f"{task}-{number:08x}", step=step, task=task, state="finished", turns=number % 9, tool_calls=number % 7,
        reward=(0.0, 1.0, number * 7919 % 1000 / 1000)[number % 3], finish_reason="tool_calls",
        completion_tokens=number * 104_729 % 4000, replica=f"http://127.0.0.1:80{number % 8:02d}", started_at=began,
        updated_at=began + 60, ended_at=began + number * 7919 % 100,
        ended_by=("submit", "max_iterations", "AgentTimeoutError")[number % 3], group=str(number // 8 % 64),
        preview=f'bash {{"cmd": "make -j{number % 16} target_{number}"}}', kind="command",
        path=f"trials/step_{step:04d}/{task}-{number:08x}", phases={"agent": number % 60 + 0.5, "verifier": 1.0},
        rewards={"reward": 1.0},
    )  # fmt: skip


def resident() -> float:
    """MiB of memory that this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def write_index(path: Path, count: int) -> None:
    """The file of an index of ``count`` trials."""
    index = TrialIndex()
    for number in range(count):
        index.put(made(number))
    path.write_bytes(msgspec.msgpack.encode(index.stored()))


def ask_index(path: Path) -> None:
    """Read an index as a list of trials does, and print how long filters and orders take."""
    before, began = resident(), time.monotonic()
    index = restored(msgspec.msgpack.decode(path.read_bytes(), type=Stored))
    print(
        f"{len(index):,} trials, {path.stat().st_size / 2**20:.0f} MiB: read in {time.monotonic() - began:.2f} s"
    )
    worst = 0.0
    for text in FILTERS:
        for field in ("at", "reward", "finish", "name"):
            began = time.monotonic()
            rows = index.order(index.select(parsed(text)), field, descending=True)
            first = [index.head(row) for row in rows[:50]]
            seconds = time.monotonic() - began
            worst = max(worst, seconds)
            print(f"{1000 * seconds:5.0f} ms  {len(rows):6} rows, {len(first)} shown  {text}  by {field}")
    print(
        f"slowest {1000 * worst:.0f} ms; memory {resident():.0f} MiB, of which {before:.0f} before the index"
    )


def index_main(count: int) -> None:
    """Write an index in one process, and ask it in another, whose memory is that of the index alone."""
    with tempfile.TemporaryDirectory(prefix="trials-") as folder:
        path = Path(folder, "trials.index")
        writer = multiprocessing.get_context("spawn").Process(target=write_index, args=(path, count))
        writer.start()
        writer.join()
        ask_index(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, help="trials (1,000; with --index 100,000)")
    parser.add_argument("megabytes", nargs="?", type=float, default=1.0, help="of each trajectory")
    parser.add_argument("--index", action="store_true", help="filters and orders over an index")
    add_option(parser)
    args = parser.parse_args()
    if args.index:
        index_main(args.count or 100_000)
        return
    count, size = args.count or 1000, int(args.megabytes * 1e6)
    recorder = Recorder("Reading trajectories")
    kinds = [trajectory(size, with_tools) for with_tools in (True, False)]
    with tempfile.TemporaryDirectory(prefix="trials-") as run_dir:
        for number in range(count):
            trial = Path(run_dir, "trials", f"step_{number // 64 + 1:04d}", f"task-{number:08x}")
            trial.mkdir(parents=True)
            (trial / "litellm-trajectory.jsonl").write_bytes(kinds[number % 2])
            (trial / "result.json").write_text(
                '{"task_name": "task", "verifier_result": {"rewards": {"reward": 1}}}'
            )
            os.utime(trial / "litellm-trajectory.jsonl", (OLD, OLD))
            os.utime(trial / "result.json", (OLD, OLD))
        scanner = TrialScanner(run_dir)
        began, wall = time.process_time(), time.monotonic()
        status = scanner.scan(budget=600)
        first, first_wall = time.process_time() - began, time.monotonic() - wall
        began = time.process_time()
        for _ in range(100):
            scanner.scan(budget=600)
        again = (time.process_time() - began) / 100
        assert (status.total, status.finished, status.zero_tool_calls) == (count, count, count // 2), status
    print(f"{count} trajectories of {len(kinds[0]) / 1e6:.2f} MB: {first:.2f} s CPU, {first_wall:.2f} s wall")
    print(f"a scan without a change: {again * 1e6:.0f} us CPU")
    if args.json:
        what = f"{count:,} trajectories of {args.megabytes:g} MB"
        found = [
            Figure(f"{what}: CPU until all are read and flagged", first, "s", limit=1.5),
            Figure("the same: CPU of a look at them without a change", again * 1e3, "ms"),
        ]
        recorder.write(args.json, found)


if __name__ == "__main__":
    main()
