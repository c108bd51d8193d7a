"""CPU of flagging many trajectories. Run by hand: ``python tests/bench/trials.py [COUNT] [MEGABYTES]``.

Writes COUNT trials (default 1000) whose trajectories have about MEGABYTES (default 1) each, every second without
a tool call, scans them in one go and again without a change, and prints CPU seconds.
Target: 1,000 of 1 MB in 1.5 s.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from liverl.observe.trials.scanner import TrialScanner

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


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    size = int(float(sys.argv[2]) * 1e6) if len(sys.argv) > 2 else 1_000_000
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


if __name__ == "__main__":
    main()
