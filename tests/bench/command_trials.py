"""Many trials at once whose agent is a program. Run by hand, with PYTHONPATH=backend:.:tests:
``python tests/bench/command_trials.py [COUNT]`` (default 512).

The trials are run by the code that runs inside verl; sessions and a scripted replica are in this process, too. The
replica answers only when all COUNT agents have asked, so that all of them live at the same time. Each agent is a shell
script that calls curl once. Prints CPU per trial, beside that of a trial with the same request and no program, open
descriptors, and memory after each round; exit code 1 if descriptors are left open or a later round takes more memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from kit.own_runs import Trials
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from liverl.util.deadline import within

ROUNDS = 2
GROWTH_MB = 8.0  # that a later round may add
AGENT = """
curl -sS -f -m 580 -o reply.json -H "Authorization: Bearer $OPENAI_API_KEY" -H 'Content-Type: application/json' \
  -d "{\\"model\\": \\"$OPENAI_MODEL\\", \\"messages\\": [{\\"role\\": \\"user\\", \\"content\\": \\"2 + 3?\\"}]}" \
  "$OPENAI_BASE_URL/chat/completions" || exit 1
echo 1 > "$LIVERL_REWARD"
"""


class Round(NamedTuple):
    """What one round took. Times are seconds, of all trials."""

    cpu: float  # of this process: trials, sessions and replica
    children: float  # CPU of the agents
    wall: float
    most_open: int  # descriptors while all agents live
    open: int  # descriptors afterwards
    megabytes: float  # resident memory afterwards


def opened() -> int:
    """Open descriptors of this process."""
    return len(os.listdir("/proc/self/fd")) - 1


def resident() -> float:
    """Megabytes of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def children() -> float:
    """CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def measure(run: Trials, replica: TokenReplica, count: int, named: str) -> Round:
    """Run ``count`` trials at once."""
    done = asyncio.Event()
    replica.gate.clear()
    most = 0

    async def open_when_all_have_asked() -> None:
        nonlocal most
        while not done.is_set() and run.host.store.waiting < count:
            with contextlib.suppress(TimeoutError):
                await within(done.wait(), 0.05)
        most = opened()
        replica.gate.set()

    cpu, kids, wall = time.process_time(), children(), time.monotonic()
    gate = asyncio.ensure_future(open_when_all_have_asked())
    outcomes = await asyncio.gather(*(run.run(named=named, trial_timeout=600.0) for _ in range(count)))
    done.set()
    await gate
    took = time.process_time() - cpu, children() - kids, time.monotonic() - wall
    failed = {outcome.exception for outcome in outcomes} - {None}
    assert not failed, failed
    del outcomes
    for requests in (replica.prompts, replica.replies, replica.sampling, replica.parsed):
        requests.clear()
    await asyncio.sleep(0.5)  # connections that were kept are closed
    return Round(*took, most, opened(), resident())


async def bench(folder: Path, count: int) -> bool:
    """Print the numbers; whether nothing was left and nothing grew."""
    replica = TokenReplica(lambda _prompt, _turn: "5")
    url = await replica.start()
    host = SessionHost(folder)
    host.urls = [url]
    await host.start()
    (folder / "agent.sh").write_text(AGENT)
    run = Trials(folder, host, {"command": ("sh", str(folder / "agent.sh"))})
    try:
        await measure(run, replica, 8, "command")  # what is made once
        plain = await measure(run, replica, count, "chat")
        before = opened()
        print(f"{count} trials at once; before: {before} descriptors, {resident():.0f} MB")
        print(f"chat     {_text(plain, count)}")
        rounds = []
        for _ in range(ROUNDS):
            rounds.append(await measure(run, replica, count, "command"))
            print(f"command  {_text(rounds[-1], count)}", flush=True)
    finally:
        await host.stop()
        await replica.stop()
    growth = rounds[-1].megabytes - rounds[0].megabytes
    least = min(each.cpu for each in rounds)
    print(f"a program costs {(least - plain.cpu) / count * 1e3:.1f} ms of the loop's CPU per trial")
    print(
        f"growth from round 1 to {ROUNDS}: {growth:+.1f} MB, {rounds[-1].open - rounds[0].open:+d} descriptors"
    )
    return growth <= GROWTH_MB * (ROUNDS - 1) and rounds[-1].open <= max(before, rounds[0].open)


def _text(took: Round, count: int) -> str:
    return (
        f"CPU {took.cpu / count * 1e3:5.1f} ms per trial, agents {took.children / count * 1e3:5.1f} ms, "
        f"wall {took.wall:5.1f} s; descriptors {took.most_open} at most, {took.open} after; {took.megabytes:.0f} MB"
    )


def main() -> int:
    """Run it; the exit code."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if soft < hard else (soft, hard))
    if shutil.which("curl") is None:
        print("curl is missing", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="command-trials-") as folder:
        return 0 if asyncio.run(bench(Path(folder), count)) else 1


if __name__ == "__main__":
    sys.exit(main())
