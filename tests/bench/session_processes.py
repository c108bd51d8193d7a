"""The sessions as one process and as several: ``python tests/bench/session_processes.py [--agents N] [--turns N]``.

Agents of some turns at once, before ``--replicas`` simulated replicas that answer at once, with a client of their own
each, and with one client for all of them, whose connections are for another session in each request. CPU of a turn is
told apart: of the sessions (all of their processes), of the clients (this process) and of the replicas (one process).

What the processes could carry with a core each is counted by the busiest of them, which ends first: turns for each
second of its CPU. ``linear`` compares that with so many times what one process carries in the same run; the target is
0.8. Then one of the last number is killed under load (``kill -9``). Exit code 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "stack"), str(HERE.parents[1] / "backend")]
sys.path.insert(4, str(HERE.parents[1]))
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[3:5])

import aiohttp  # noqa: E402
from kit.session_service import Service  # noqa: E402
from kit.token_replica import odd_ids  # noqa: E402
from processes import cpu_seconds, pss_mib  # noqa: E402
from proxykit import MODEL  # noqa: E402
from session_process import script  # noqa: E402
from sessions import Agent, milliseconds  # noqa: E402

LINEAR = 0.8


class Replicas:
    """Simulated replicas: one process, as many ports."""

    def __init__(self, count: int) -> None:
        listeners = [socket.create_server(("127.0.0.1", 0), backlog=2048) for _ in range(count)]
        self.urls = [f"http://127.0.0.1:{each.getsockname()[1]}" for each in listeners]
        fds = [each.fileno() for each in listeners]
        argv = [sys.executable, str(HERE / "session_process.py"), "replica", ",".join(map(str, fds))]
        self.process = subprocess.Popen(argv, pass_fds=fds)
        for each in listeners:
            each.close()


async def dialogues(agents: list[Agent], turns: int, shared: bool) -> float:
    """All agents at once; the seconds that it took. ``shared``: one client for all."""
    timeout = aiohttp.ClientTimeout(total=300)
    pool = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)

    async def one(agent: Agent) -> None:
        if shared:
            for _ in range(turns):
                await agent.turn(pool)
            return
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http:
            for _ in range(turns):
                await agent.turn(http)

    began = time.monotonic()
    async with pool:
        await asyncio.gather(*map(one, agents))
    return time.monotonic() - began


def pids_of(service: Service, of: int) -> dict[str, int]:
    """The processes of the service, by what they are."""
    main = service.processes[-1].pid
    if of == 1:
        return {"1": main}
    parts = [each["pid"] for each in service.report()["processes"]]
    return {"front": main, **{str(number + 1): pid for number, pid in enumerate(parts)}}


async def measured(
    service: Service, of: int, replicas: Replicas, args: argparse.Namespace, shared: bool
) -> dict[str, float]:
    """One row: see the module."""
    kind = "pool" if shared else "own"
    agents = []
    for index in range(args.agents):
        opened = await service.open(f"{kind}-{of}-{random.getrandbits(32):08x}-{index:04d}")
        agents.append(Agent(opened["openai_url"], opened["key"]))
    pids = pids_of(service, of)
    before = {name: cpu_seconds([pid]) for name, pid in pids.items()}
    stubs, clients = cpu_seconds([replicas.process.pid]), time.process_time()
    wall = await dialogues(agents, args.turns, shared)
    spent = {name: cpu_seconds([pid]) - before[name] for name, pid in pids.items()}
    turns = args.agents * args.turns
    found = {
        "sessions": sum(spent.values()) / turns * 1e3,
        "busiest": max(spent.values()) / turns * 1e3,
        "front": spent.get("front", 0.0) / turns * 1e3,
        "clients": (time.process_time() - clients) / turns * 1e3,
        "stubs": (cpu_seconds([replicas.process.pid]) - stubs) / turns * 1e3,
        "turns/s": turns / max(spent.values()),
        "p50": milliseconds(agents)[0],
        "wall": wall,
        "MiB": pss_mib(list(pids.values())),
    }
    for agent in agents:
        await finish(service, agent)
    return found


async def finish(service: Service, agent: Agent) -> list[Any]:
    """End a session; its rows."""
    name = agent.url.split("/sess/")[1].split("/")[0]
    status, body = await service.control("POST", f"/sessions/{name}/finish")
    if status != 200:
        raise RuntimeError(f"{name}: {status} {body}")
    return list(body["rows"])


async def killed(service: Service, of: int, args: argparse.Namespace) -> dict[str, int]:
    """``kill -9`` of one process after another while all agents ask: what became of the sessions."""
    agents = []
    for index in range(args.agents):
        opened = await service.open(f"kill-{index:04d}")
        agents.append(Agent(opened["openai_url"], opened["key"]))
    before = (await service.control("GET", "/sessions"))[1]["counters"].get("num_calls", 0)
    asking = asyncio.ensure_future(dialogues(agents, args.turns, shared=True))
    kills = 0
    while not asking.done() and kills < of:
        done = sum(len(agent.seconds) for agent in agents)
        if done > args.agents * args.turns * (kills + 1) / (of + 2):
            os.kill(pids_of(service, of)[str(kills + 1)], signal.SIGKILL)
            kills += 1
        await asyncio.sleep(0.01)
    await asking
    calls = (await service.control("GET", "/sessions"))[1]["counters"]["num_calls"] - before
    lost = 0
    for agent in agents:
        rows = await finish(service, agent)
        wanted = [odd_ids(script("", turn)) for turn in range(args.turns)]
        flat = [
            token
            for row in rows
            for token, bit in zip(
                row["traj_acc_ids"][row["initial_prompt_token_len"] :], row["traj_response_mask"], strict=True
            )
            if bit
        ]
        sampled = [token for token in flat if token < 256]
        lost += len(rows) != 1 or sampled != [token for part in wanted for token in part]
    return {
        "killed": kills,
        "refused": sum(agent.connection_errors for agent in agents)
        + sum(status != 200 for agent in agents for status in agent.statuses),
        "lost": lost,
        "sampled twice": calls - args.agents * args.turns,
    }


async def measure(args: argparse.Namespace, folder: Path) -> bool:
    """Print the table; whether a target is missed."""
    replicas, missed = Replicas(args.replicas), False
    columns = ("sessions", "busiest", "front", "clients", "stubs", "turns/s", "p50", "wall", "MiB")
    print(f"{args.agents} agents, {args.turns} turns, {args.replicas} replicas; ms of CPU for a turn")
    print("processes clients " + "".join(f"{name:>10s}" for name in columns) + "    linear", flush=True)
    base: dict[bool, float] = {}
    try:
        for of in args.processes:
            (folder / str(of)).mkdir()
            service = Service(folder / str(of))
            service.settings |= {"processes": of, "max_body_bytes": 16 << 20, "models": [MODEL]}
            service.list_replicas(*replicas.urls)
            service.listener.listen(2048)
            service.start()
            try:
                await service.serving()
                await measured(service, of, replicas, argparse.Namespace(agents=16, turns=2), False)  # warm
                for shared in (False, True):
                    row = await measured(service, of, replicas, args, shared)
                    base.setdefault(shared, row["turns/s"] / of)
                    linear = row["turns/s"] / base[shared] / of
                    missed |= linear < LINEAR
                    kind = "pool" if shared else "own"
                    words = "".join(f"{row[name]:10.2f}" for name in columns)
                    print(f"{of:9d} {kind:7s} {words}{linear:10.2f}", flush=True)
                if of > 1 and of == args.processes[-1]:
                    found = await killed(service, of, args)
                    missed |= any(found[name] for name in ("refused", "lost", "sampled twice"))
                    print("kill -9 under load:", ", ".join(f"{n} {name}" for name, n in found.items()))
            finally:
                service.processes[-1].send_signal(signal.SIGTERM)
                await service.ended()
                service.listener.close()
    finally:
        replicas.process.kill()
        replicas.process.wait()
    return missed


def main() -> int:
    """Measure; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--agents", type=int, default=256)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--processes", default="1,2,4", help="numbers, separated by commas")
    args = parser.parse_args()
    args.processes = [int(each) for each in args.processes.split(",")]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="liverl-sessions-") as folder:
        return int(asyncio.run(measure(args, Path(folder))))


if __name__ == "__main__":
    sys.exit(main())
