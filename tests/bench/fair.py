"""What other trials of a run keep while one agent is greedy, or somebody floods the sessions' port.

``python tests/bench/fair.py [--seconds 60] [--connections 1300] [--json FILE] [--only WORDS]``. One run of the embedded
default through the sessions; after each trouble a quiet window of the same length, and the ratio is that of the steps
per minute to the mean of the quiet windows before and after it. A turn takes half a second at the replica, as with a
real model: what is compared is how long a trial waits, not how much CPU the troublemaker takes from a small machine (it
is a process of its own on the same cores, with its CPU seconds beside the ratio). Exit code 1 if a ratio is below 0.8.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[1:3])

import aiohttp  # noqa: E402
from kit.real import real_run  # noqa: E402
from kit.runs import ToyRun  # noqa: E402
from kit.waiting import wait_until  # noqa: E402

from liverl.sessions.client import OpenSession, ServiceSessions, service_sessions  # noqa: E402
from liverl.sessions.sampling import Limits  # noqa: E402

LEAST = 0.8  # of the quiet run's steps per minute
SETTINGS = ("training.total_steps=100000", "proxy.trials_through=sessions", "embedded.turn_latency=0.5")
CONNECTIONS = 1300  # half-open ones at once
BIG = 15_000_000  # characters of one prompt


async def _ask(http: aiohttp.ClientSession, opened: OpenSession, words: str, kind: Counter[str]) -> None:
    body = {"model": "policy", "messages": [{"role": "user", "content": words}], "max_tokens": 400}
    try:
        async with http.post(
            f"{opened.openai_url}/chat/completions",
            headers={"Authorization": f"Bearer {opened.key}"},
            json=body,
        ) as response:
            await response.read()
            kind[f"HTTP {response.status}"] += 1
    except (aiohttp.ClientError, TimeoutError) as error:
        kind[type(error).__name__] += 1


async def _opened(service: ServiceSessions, run: ToyRun, name: str, until: float) -> OpenSession:
    """A session of its own trial, which lasts a minute longer than the trouble."""
    folder = run.run_dir / "trials/attack" / name
    folder.mkdir(parents=True)
    return await service.open(name, folder, Limits(seconds=until - time.monotonic() + 60))


async def _greedy(run: ToyRun, until: float, connections: int) -> dict[str, Any]:
    """One agent that asks for 1,500 samples at once, and takes what its trial may have."""
    kind: Counter[str] = Counter()
    async with service_sessions(run.run_dir, run.run_dir / "secrets/sessions_key") as service:
        opened = await _opened(service, run, "greedy", until)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            asked = [
                asyncio.create_task(_ask(http, opened, f"q{n} " + "x" * 2000, kind)) for n in range(1500)
            ]
            await asyncio.wait(asked, timeout=until - time.monotonic())
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        result = await service.finish("greedy", 60)
    return {"answers": dict(kind), "rows": len(result.rows)}


async def _long(run: ToyRun, until: float, connections: int) -> dict[str, Any]:
    """One agent that sends a prompt of 15 MB again and again."""
    kind: Counter[str] = Counter()
    async with service_sessions(run.run_dir, run.run_dir / "secrets/sessions_key") as service:
        opened = await _opened(service, run, "long", until)
        async with aiohttp.ClientSession() as http:
            while time.monotonic() < until:
                await _ask(http, opened, "word " * (BIG // 5), kind)
                await asyncio.sleep(1.0)
        await service.finish("long", 60)
    return {"answers": dict(kind)}


async def _many(run: ToyRun, until: float, connections: int) -> dict[str, Any]:
    """512 agents of one address, each with its own session, that ask once in ten seconds."""
    kind: Counter[str] = Counter()
    async with service_sessions(run.run_dir, run.run_dir / "secrets/sessions_key") as service:
        opened = [await _opened(service, run, f"many{number}", until) for number in range(512)]

        async def agent(http: aiohttp.ClientSession, number: int) -> None:
            await asyncio.sleep(10 * number / 512)
            while time.monotonic() < until:
                await _ask(http, opened[number], f"agent {number}", kind)
                await asyncio.sleep(10)

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            await asyncio.gather(*[agent(http, number) for number in range(512)])
    return {"answers": dict(kind)}


async def _half_open(run: ToyRun, until: float, connections: int) -> dict[str, Any]:
    """Many connections without a key that send half a header; each that is closed comes again."""
    port = run.service("sessions").ports["http"]
    held: list[socket.socket] = []
    closed = 0
    while time.monotonic() < until:
        for sock in list(held):
            try:
                gone = sock.recv(1000) == b""
            except BlockingIOError:
                gone = False
            except OSError:
                gone = True
            if gone:
                sock.close()
                held.remove(sock)
                closed += 1
        while len(held) < connections and time.monotonic() < until:
            try:
                sock = socket.create_connection(("127.0.0.1", port), 1)
                sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-A: ")
                sock.setblocking(False)
                held.append(sock)
            except OSError:
                break
        await asyncio.sleep(0.5)
    for sock in held:
        sock.close()
    return {"closed": closed}


TROUBLES: dict[str, Callable[[ToyRun, float, int], Any]] = {
    "1,500 samples at once": _greedy,
    "prompts of 15 MB": _long,
    "512 agents of one address": _many,
    "half-open connections": _half_open,
}


def _make(name: str, run_dir: Path, seconds: float, connections: int, answer: Any) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    told = asyncio.run(TROUBLES[name](ToyRun(run_dir), time.monotonic() + seconds, connections))
    used = resource.getrusage(resource.RUSAGE_SELF)
    answer.put({**told, "cpu_s": round(used.ru_utime + used.ru_stime, 1)})


def _steps(run: ToyRun) -> list[float]:
    """When each step was told of, in Unix seconds."""
    return [event.at for event in run.events() if event.kind == "step"]


def _rate(run: ToyRun, began: float, ended: float) -> float:
    """Steps per minute from the first step's end in a window to the last one's; 0 if there are not two."""
    found = [at for at in _steps(run) if began <= at <= ended]
    return 60 * (len(found) - 1) / (found[-1] - found[0]) if len(found) > 1 else 0.0


def _quiet(run: ToyRun, seconds: float) -> float:
    began = time.time()
    time.sleep(seconds)
    return _rate(run, began, time.time())


def main() -> int:
    """Print a table; exit code 1 if the others keep too little."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of a window")
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help="half-open ones at once")
    parser.add_argument("--only", default="", help="troubles whose name has these words")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    spawn, rows = multiprocessing.get_context("spawn"), []
    with tempfile.TemporaryDirectory() as folder:
        run = real_run(Path(folder), *SETTINGS)
        try:
            run.start()
            wait_until(lambda: len(_steps(run)) >= 3, 180, "three steps")
            before = _quiet(run, options.seconds)
            for name in (name for name in TROUBLES if options.only in name):
                answer = spawn.SimpleQueue()
                maker = spawn.Process(
                    target=_make, args=(name, run.run_dir, options.seconds, options.connections, answer)
                )
                began = time.time()
                maker.start()
                told = answer.get()
                rate = _rate(run, began, time.time())
                maker.join()
                after = _quiet(run, options.seconds)
                ratio = 2 * rate / (before + after)
                rows.append(
                    {
                        "trouble": name,
                        "quiet": [before, after],
                        "steps_per_minute": rate,
                        "ratio": ratio,
                        **told,
                    }
                )
                print(
                    f"{name}: {rate:.1f} steps/min beside {before:.1f} and {after:.1f}: {ratio:.2f}x; {told}",
                    flush=True,
                )
                before = after
        finally:
            run.end()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return int(any(row["ratio"] < LEAST for row in rows))


if __name__ == "__main__":
    sys.exit(main())
