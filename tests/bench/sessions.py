"""Sessions beside LiteLLM: ``python tests/bench/sessions.py [--quick] [--json FILE] [--only load,history,restart]``.

``load``: 64 agents of four turns at once, before two instant replicas: CPU of the proxy per request and latency.
``history``: 64 sessions of 50,000 tokens: memory, what a turn costs at the replica, and a restart with all of them.
``restart``: ``kill -9`` with 64 open sessions while the run holds the socket. Exit code 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "stack"), str(HERE.parents[1] / "backend")]
sys.path.insert(4, str(HERE.parents[1]))
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[3:5])

import aiohttp  # noqa: E402
from kit.components import LITELLM  # noqa: E402
from processes import cpu_seconds, pss_mib  # noqa: E402
from proxykit import MODEL, Proxy  # noqa: E402
from session_process import CONTROL  # noqa: E402
from stored import Figure, Recorder, add_option  # noqa: E402

from liverl.environments import default_cache_dir, ensure  # noqa: E402

AGENTS = 64
TURNS = 4
HISTORY = 50_000  # tokens; two characters each
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file of the repository.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
]
SYSTEM = "You are a careful engineer who repairs programs with the tools at hand. " * 12
OUTPUT = "def value(number):\n    return number + 1\n" * 12


class Child:
    """One process of ``session_process.py`` on a socket that this process holds."""

    def __init__(self, *words: str, env: dict[str, str] | None = None) -> None:
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(2048)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self._words, self._env = words, {**os.environ, **(env or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; requests queue on the socket until it accepts."""
        fd = self.listener.fileno()
        argv = [sys.executable, str(HERE / "session_process.py"), *self._words, str(fd)]
        self.process = subprocess.Popen(argv, pass_fds=[fd], env=self._env)

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None
        return self.process.pid

    def cpu(self) -> float:
        """CPU seconds so far."""
        return cpu_seconds([self.pid])

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it and close the socket."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        self.listener.close()


class Sessions(Child):
    """The sessions process, and the trainer's side of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__("sessions", str(folder))
        self._folder = folder

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        """A request of the trainer; its body."""
        headers = {"Authorization": f"Bearer {CONTROL}"}
        connector = aiohttp.UnixConnector(str(self._folder / "control"))
        async with (
            aiohttp.ClientSession(connector=connector) as http,
            http.request(method, f"http://control{path}", json=body, headers=headers) as response,
        ):
            answer = await response.json()
            if response.status >= 300:
                raise RuntimeError(f"{path} answered {response.status}: {answer}")
            return answer

    async def ready(self, replicas: list[str]) -> None:
        """Wait for its control socket, then name the replicas."""
        backends = [{"url": url, "model": MODEL} for url in replicas]
        for _ in range(1000):
            try:
                await self.control("PUT", "/backends", backends)
            except (OSError, aiohttp.ClientError):
                await asyncio.sleep(0.02)
            else:
                return
        raise RuntimeError("the sessions did not start")

    async def open(self, name: str) -> dict[str, Any]:
        """Open a session."""
        folder = self._folder / "trials" / name
        folder.mkdir(parents=True)
        return dict(await self.control("POST", "/sessions", {"id": name, "trial_dir": str(folder)}))


class Agent:
    """One agent with its conversation. ``seconds``: of each of its turns."""

    def __init__(self, url: str, key: str, first: str = "Repair the program.") -> None:
        self.url, self.key = url, key
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": first},
        ]
        self.seconds: list[float] = []
        self.statuses: list[int] = []
        self.connection_errors = 0

    async def turn(self, http: aiohttp.ClientSession) -> None:
        """Ask for the next reply and answer its calls."""
        body = {"model": MODEL, "messages": self.messages, "tools": TOOLS, "max_tokens": 1000}
        headers = {"Authorization": f"Bearer {self.key}"}
        began = time.monotonic()
        while True:
            try:
                async with http.post(f"{self.url}/chat/completions", json=body, headers=headers) as response:
                    answer = await response.json()
                break
            except aiohttp.ClientConnectorError:
                self.connection_errors += 1  # refused: the socket was not held
                raise
            except aiohttp.ClientError:
                continue  # the process was killed: ask again, as SDKs do
        self.seconds.append(time.monotonic() - began)
        self.statuses.append(response.status)
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {answer}")
        reply = answer["choices"][0]["message"]
        self.messages.append({name: value for name, value in reply.items() if value is not None})
        for call in reply.get("tool_calls") or ():
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": OUTPUT})


async def dialogues(agents: list[Agent], turns: int) -> float:
    """All agents at once, each ``turns`` turns; the seconds that it took."""
    timeout = aiohttp.ClientTimeout(total=300)
    connector = aiohttp.TCPConnector(limit=0)
    began = time.monotonic()
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:

        async def one(agent: Agent) -> None:
            for _ in range(turns):
                await agent.turn(http)

        await asyncio.gather(*(one(agent) for agent in agents))
    return time.monotonic() - began


def milliseconds(agents: list[Agent]) -> tuple[float, float]:
    """Median and 95th percentile of all turns."""
    every = sorted(seconds for agent in agents for seconds in agent.seconds)
    return statistics.median(every) * 1e3, every[int(len(every) * 0.95)] * 1e3


async def stats(replicas: list[Child]) -> dict[str, Any]:
    """What was asked of all replicas so far."""
    total: dict[str, Any] = {"rendered": 0, "received": {}}
    async with aiohttp.ClientSession() as http:
        for replica in replicas:
            async with http.get(f"{replica.url}/stats") as response:
                one = await response.json()
            total["rendered"] += one["rendered"]
            for path, (count, size) in one["received"].items():
                sums = total["received"].setdefault(path, [0, 0])
                sums[0] += count
                sums[1] += size
    return total


def peak_mib(pid: int) -> float:
    """The most memory that a process has had, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) / 1024


@contextmanager
def running(*children: Child) -> Any:
    """Start processes; none of them is left after."""
    try:
        for child in children:
            child.start()
        yield
    finally:
        for child in children:
            child.close()


class Table:
    """The lines, with what is missed."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        self._told: dict[str, tuple[str, float | None]] = {}
        self.missed = False

    def line(self, name: str, value: float, words: str, least: float | None = None) -> None:
        """Print one number. ``least``: it must not be above."""
        self.numbers[name] = value
        verdict = "" if least is None else f"  target {least:g}: {'pass' if value <= least else 'MISS'}"
        self._told[name] = words, least
        self.missed |= least is not None and value > least
        print(f"{name:34s} {value:12.3f} {words}{verdict}", flush=True)

    def figures(self) -> list[Figure]:
        """The lines as they are stored: LiteLLM's beside ours."""
        found = []
        for name, (what, unit) in STORED.items():
            if name in self.numbers:
                other = self.numbers.get(PEERS.get(name, ""))
                peer = "chat route of the replica" if name == "turn: replica CPU ms" else "LiteLLM"
                words, limit = self._told[name]
                beside = {} if other is None else {peer: other}
                clock = unit in ("ms", "s") and "CPU" not in name
                found.append(Figure(what, self.numbers[name], unit, beside, limit, words, clock=clock))
        return found


# Name of a line -> what the benchmarks page calls it, and its unit
STORED = {
    "sessions CPU ms/request": ("64 agents of four turns at once: CPU of a request", "ms"),
    "sessions p50 ms": ("the same: latency of a request, median", "ms"),
    "sessions p95 ms": ("the same: latency of a request, 95th percentile", "ms"),
    "sessions wall s": ("the same: until all have their last reply", "s"),
    "sessions PSS MiB": ("the same: memory (PSS)", "MiB"),
    "memory MiB": ("sessions of 50,000 tokens: memory of the process", "MiB"),
    "memory bytes/token": ("the same: memory of a token", "bytes"),
    "turn: sessions CPU ms": ("a turn behind 50,000 tokens: CPU of the sessions", "ms"),
    "turn: replica CPU ms": ("the same: CPU of the replica", "ms"),
    "restart: s until the first answer": ("kill -9 with 64 open sessions: until the first answer", "s"),
    "restart: refused": ("the same: connections refused", "agents"),
    "restart: lost": ("the same: replies lost", "sessions"),
    "restart: sampled twice": ("the same: replies sampled twice", "replies"),
}
PEERS = {
    **{name: name.replace("sessions ", "LiteLLM ", 1) for name in STORED if name.startswith("sessions ")},
    "turn: replica CPU ms": "turn: replica CPU ms, chat route",
}


async def load(folder: Path, table: Table, python: Path | None, rounds: int) -> None:
    """Row ``load``."""
    replicas = [Child("replica"), Child("replica")]
    sessions = Sessions(folder)
    with running(*replicas, sessions):
        urls = [replica.url for replica in replicas]
        await sessions.ready(urls)
        proxy = None
        try:
            if python is not None:
                (folder / "litellm").mkdir()
                proxy = Proxy(python, folder / "litellm")
                proxy.write_config(*urls)
                proxy.start(1)
                await proxy.serving(1)
            ours: list[Agent] = []
            theirs: list[Agent] = []
            spent = [0.0, 0.0]
            walls = [0.0, 0.0]
            for number in range(-1, rounds):  # the first is a warm-up
                agents = []
                for index in range(AGENTS if number >= 0 else 4):
                    opened = await sessions.open(f"load-{number + 1:04d}{index:04d}")
                    agents.append(Agent(opened["openai_url"], opened["key"]))
                before = sessions.cpu()
                wall = await dialogues(agents, TURNS)
                if number >= 0:
                    spent[0] += sessions.cpu() - before
                    walls[0] += wall
                    ours += agents
                if proxy is None:
                    continue
                agents = [
                    Agent(f"{proxy.url}/v1", f"{proxy.keys.run}.load-{number + 1:04d}{index:04d}")
                    for index in range(AGENTS if number >= 0 else 4)
                ]
                pid = proxy.processes[1].pid
                before = cpu_seconds([pid])
                wall = await dialogues(agents, TURNS)
                if number >= 0:
                    spent[1] += cpu_seconds([pid]) - before
                    walls[1] += wall
                    theirs += agents
            requests = rounds * AGENTS * TURNS
            mine, (p50, p95) = spent[0] / requests * 1e3, milliseconds(ours)
            table.line("sessions CPU ms/request", mine, "")
            table.line("sessions p50 ms", p50, "")
            table.line("sessions p95 ms", p95, "")
            table.line("sessions wall s", walls[0], f"{requests} requests")
            table.line("sessions PSS MiB", pss_mib([sessions.pid]), "")
            if proxy is not None:
                cpu, (other50, other95) = spent[1] / requests * 1e3, milliseconds(theirs)
                table.line("LiteLLM CPU ms/request", cpu, "")
                table.line("LiteLLM p50 ms", other50, "")
                table.line("LiteLLM p95 ms", other95, "")
                table.line("LiteLLM wall s", walls[1], f"{requests} requests")
                table.line("LiteLLM PSS MiB", pss_mib([proxy.processes[1].pid]), "")
                table.line("CPU ratio", mine / cpu, "", 0.2)
                table.line("p95 ratio", p95 / other95, "", 0.5)
            facts = (await sessions.control("GET", "/sessions"))["counters"]
            table.line("rewrites", facts.get("rewrites", 0), "turns that did not continue their row", 0)
            table.line("healed share", facts.get("healed", 0) / max(1, facts["num_calls"]), "of turns")
        finally:
            if proxy is not None:
                proxy.close()


async def history(folder: Path, table: Table, count: int) -> None:
    """Row ``history``: memory, cost of a turn at the replica, restart."""
    replicas = [Child("replica")]
    sessions = Sessions(folder)
    with running(*replicas, sessions):
        await sessions.ready([replicas[0].url])
        opened = await sessions.open("warm-0000")
        warm = Agent(opened["openai_url"], opened["key"])
        await dialogues([warm], 2)
        before = pss_mib([sessions.pid])
        agents = []
        for index in range(count):
            opened = await sessions.open(f"long-{index:04d}")
            text = f"{index:06d} " * (2 * HISTORY // 7)
            agents.append(Agent(opened["openai_url"], opened["key"], text))
        for agent in agents:
            await dialogues([agent], 2)
        after = pss_mib([sessions.pid])
        tokens = (await sessions.control("GET", "/sessions"))["counters"]["total_prompt_tokens"] / 2
        table.line("tokens held, million", tokens / 1e6, f"{count} sessions")
        table.line("memory bytes/token", (after - before) * 2**20 / tokens, "growth of PSS")
        limit = 50 + 12 * tokens / 2**20
        table.line("memory MiB", after, "the whole process", limit)

        asked, spent, engine = await stats(replicas), sessions.cpu(), replicas[0].cpu()
        await dialogues(agents, 1)
        now = await stats(replicas)
        turns = len(agents)
        table.line("turn: ids rendered", (now["rendered"] - asked["rendered"]) / turns, "")
        for path, (number, size) in sorted(now["received"].items()):
            old = asked["received"].get(path, [0, 0])
            if number > old[0] and path != "/stats":
                words = f"{(number - old[0]) / turns:g} requests a turn"
                table.line(f"turn: {path.rsplit('/', 1)[1]} KB", (size - old[1]) / turns / 1e3, words)
        table.line("turn: sessions CPU ms", (sessions.cpu() - spent) / turns * 1e3, "")
        ours = (replicas[0].cpu() - engine) / turns * 1e3
        table.line("turn: replica CPU ms", ours, "")
        table.line("peak RSS MiB, all turns at once", peak_mib(sessions.pid), "")
        engine = replicas[0].cpu()
        plain = [Agent(f"{replicas[0].url}/v1", "none", a.messages[1]["content"]) for a in agents]
        for agent, other in zip(plain, agents, strict=True):
            agent.messages = other.messages[:]
        await dialogues(plain, 1)
        chat = (replicas[0].cpu() - engine) / len(plain) * 1e3
        table.line("turn: replica CPU ms, chat route", chat, "")
        table.line("replica CPU ratio", ours / chat, "", 1.2)
        await restarted(sessions, agents, [replicas[0].url], table, "50k tokens each", 2)


async def restart(folder: Path, table: Table, count: int) -> None:
    """Row ``restart``."""
    replicas = [Child("replica"), Child("replica")]
    sessions = Sessions(folder)
    with running(*replicas, sessions):
        urls = [replica.url for replica in replicas]
        await sessions.ready(urls)
        agents = []
        for index in range(count):
            opened = await sessions.open(f"open-{index:04d}")
            agents.append(Agent(opened["openai_url"], opened["key"]))
        await dialogues(agents, 2)
        await restarted(sessions, agents, urls, table, "two turns each")


async def restarted(
    sessions: Sessions, agents: list[Agent], urls: list[str], table: Table, words: str, extra: int = 0
) -> None:
    """``kill -9`` while every agent asks, a new process on the same socket, and what became of the sessions. ``extra``:
    replies of other agents before."""
    asking = asyncio.ensure_future(dialogues(agents, 2))
    await asyncio.sleep(0.05)
    sessions.kill()
    before = [len(agent.seconds) for agent in agents]
    began = time.monotonic()
    sessions.start()

    async def first() -> float:
        while all(len(agent.seconds) == old for agent, old in zip(agents, before, strict=True)):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return time.monotonic() - began

    answered = asyncio.ensure_future(first())
    await sessions.ready(urls)
    table.line("restart: s until replicas are told", time.monotonic() - began, words)
    await asking
    table.line("restart: s until the first answer", await answered, words)
    refused = sum(agent.connection_errors for agent in agents)
    table.line("restart: refused", refused, f"of {len(agents)} agents", 0)
    facts = (await sessions.control("GET", "/sessions"))["counters"]
    lost = 0
    for agent in agents:
        name = agent.url.split("/sess/")[1].split("/")[0]
        rows = (await sessions.control("POST", f"/sessions/{name}/finish"))["rows"]
        replies = sum(message["role"] == "assistant" for message in agent.messages)
        ends = sum(
            token == 65794 and bit == 1  # the end of a turn
            for row in rows
            for token, bit in zip(
                row["traj_acc_ids"][row["initial_prompt_token_len"] :],
                row["traj_response_mask"],
                strict=True,
            )
        )
        lost += len(rows) != 1 or ends < replies
    table.line("restart: lost", lost, "sessions without one row of all replies", 0)
    twice = facts["num_calls"] - sum(len(agent.statuses) for agent in agents) - extra
    table.line("restart: sampled twice", twice, f"of {facts['num_calls']:g} replies", 0)


async def measure(args: argparse.Namespace, folder: Path, table: Table) -> None:
    """The rows that were asked for."""
    rows: dict[str, Callable[[Path], Awaitable[None]]] = {}
    python = None
    if "load" in args.only and not args.no_peer:
        python = await ensure(LITELLM, default_cache_dir(), lambda text, share: print(text, file=sys.stderr))
    rows["load"] = lambda where: load(where, table, python, 1 if args.quick else 3)
    rows["history"] = lambda where: history(where, table, 8 if args.quick else AGENTS)
    rows["restart"] = lambda where: restart(where, table, AGENTS)
    for name in args.only:
        where = folder / name
        (where / "trials").mkdir(parents=True)
        print(f"-- {name}, load average {os.getloadavg()[0]:.1f}", flush=True)
        await rows[name](where)
        shutil.rmtree(where, ignore_errors=True)


def main() -> int:
    """Measure; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sessions")
    parser.add_argument("--no-peer", action="store_true", help="without LiteLLM")
    parser.add_argument("--only", default="load,history,restart", help="rows, separated by commas")
    add_option(parser)
    args = parser.parse_args()
    args.only = args.only.split(",")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    table = Table()
    recorder = Recorder("Sessions beside LiteLLM, before replicas that answer at once")
    with tempfile.TemporaryDirectory(prefix="liverl-sessions-") as folder:
        asyncio.run(measure(args, Path(folder), table))
    if args.json is not None:
        recorder.write(args.json, table.figures())
    return int(table.missed)


if __name__ == "__main__":
    sys.exit(main())
