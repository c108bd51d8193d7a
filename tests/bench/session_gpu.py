"""The sessions in front of two replicas, with the engine's tokens and with their own:
``python tests/bench/session_gpu.py [--stub] [--agents 512] [--out FOLDER]``.

Two ``vllm serve`` of a small Qwen3 with random weights, one on each of two GPUs (``--gpus 0,0``: both on one;
``--stub``: scripted ones), and one more on each for two further templates. Nothing is fetched, and nothing is needed
but vLLM in this Python.

Speed: each agent has four turns with tools, behind 200 and 6,000 tokens of history; all begin at once (``lockstep``),
or one after the other (``paced``). By the same client: ``generate`` straight to the replicas, and the sessions with
``tokenizer: engine`` and ``auto``. Truth: 2,000 turns of varied texts for each template, every prompt of ours compared
with the replica's. Results are written after each part, the table at the end; no part begins after ``--deadline``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "backend"), str(ROOT)]

import aiohttp  # noqa: E402
import psutil  # noqa: E402
from processes import cpu_seconds  # noqa: E402
from session_gpu_parts import DIFFERENCES, MAX_LENGTH, MODEL, TOOLS, text_of, write_models  # noqa: E402

CONTROL = "control-key-of-the-benchmark"
PARTS = str(HERE / "session_gpu_parts.py")
SYSTEM = 120  # tokens of the system prompt; with the tools and the first message a history of some 200
REPLY = 64  # tokens
PARSERS = {"hermes": "hermes", "coder": "qwen3_coder", "rewrites": "hermes"}


def say(text: str) -> None:
    """A line now."""
    print(f"[{time.monotonic() - BEGAN:5.0f} s] {text}", flush=True)


BEGAN = time.monotonic()


class Process:
    """A child with a log; ``stop`` ends it."""

    def __init__(
        self, argv: Sequence[str], log: Path, env: dict[str, str] | None = None, fds: Sequence[int] = ()
    ) -> None:
        self.log = log
        with log.open("wb") as file:
            self.child = subprocess.Popen(
                argv,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                pass_fds=tuple(fds),
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.child.pid

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that is not enough."""
        for number, patience in ((signal.SIGTERM, 15), (signal.SIGTERM, 10), (signal.SIGKILL, 30)):
            if self.child.poll() is None:
                self.child.send_signal(number)
                try:
                    self.child.wait(patience)
                except subprocess.TimeoutExpired:
                    continue


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Replica(Process):
    """One server of a model."""

    def __init__(self, folder: Path, name: str, gpu: int, args: argparse.Namespace, *, quick: bool) -> None:
        """``name``: of its template; ``quick``: it starts without CUDA graphs."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        which = f"{name}-{gpu}-{self.port}"  # two may share a GPU
        log = args.out / f"replica-{which}.log"
        if args.stub:
            super().__init__([sys.executable, PARTS, "replica", str(folder), str(self.port)], log)
            return
        argv = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(folder)]
        argv += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(self.port)]
        argv += ["--load-format", "dummy", "--dtype", "bfloat16", "--max-model-len", str(args.length)]
        argv += ["--max-num-seqs", str(args.max_num_seqs), "--enable-auto-tool-choice"]
        argv += ["--tool-call-parser", PARSERS[name], "--disable-uvicorn-access-log"]
        # The memory of the cache is given: two servers that start on one GPU would else count each other's.
        argv += ["--gpu-memory-utilization", "0.1" if quick else "0.4"]
        argv += ["--kv-cache-memory-bytes", str((4 if quick else 24) << 30)]
        argv += ["--enforce-eager"] if quick else []
        argv += args.vllm.split()
        env = {"CUDA_VISIBLE_DEVICES": str(gpu), "VLLM_LOGGING_LEVEL": "INFO"}
        env["VLLM_CACHE_ROOT"] = str(args.folder / f"vllm-cache-{which}")
        super().__init__(argv, log, env)

    async def ready(self, http: aiohttp.ClientSession, until: float) -> None:
        """Wait until it answers a sample.

        Raises:
            RuntimeError: it has ended, or the time is over; with the end of its log.
        """
        body = {
            "model": MODEL,
            "token_ids": [5, 6, 7],
            "sampling_params": {"max_tokens": 2, "logprobs": 0},
            "stream": False,
        }
        while self.child.poll() is None:
            try:
                async with http.post(f"{self.url}/inference/v1/generate", json=body) as response:
                    answer = await response.text()
                    if response.status == 200:
                        return
                    if response.status != 404:
                        say(f"{self.log.name}: {response.status} {answer[:200]}")
            except aiohttp.ClientError:
                pass
            if time.monotonic() > until:  # not before it was asked: it may have been ready for long
                break
            await asyncio.sleep(0.5)
        raise RuntimeError(f"{self.log.name} is not ready:\n{self.tail(40)}")


class Sessions(Process):
    """The service of a run, as a run starts it. ``compared``: with every prompt compared."""

    def __init__(
        self,
        folder: Path,
        name: str,
        tokenizer: str,
        urls: Sequence[str],
        *,
        processes: int = 1,
        compared: bool = False,
    ) -> None:
        self.run = folder / name
        (self.run / "trials").mkdir(parents=True)
        (self.run / "sessions").mkdir()
        (self.run / "key").write_text(CONTROL)
        (self.run / "token").write_text("")
        listed = [{"url": url, "model": MODEL} for url in urls]
        (self.run / "sessions" / "replicas.json").write_text(json.dumps(listed))
        settings = {
            "run_dir": str(self.run),
            "host": "127.0.0.1",
            "control_key_file": str(self.run / "key"),
            "replica_token_file": str(self.run / "token"),
            "max_body_bytes": 64 << 20,
            "rewrite": "split",
            "main_agent_prefix_match": 256,
            "request_timeout": 600.0,
            "tokenizer": tokenizer,
            "processes": processes,
        }
        (self.run / "settings.json").write_text(json.dumps(settings))
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(2048)
        fd = self.listener.fileno()
        program = [PARTS, "compared"] if compared else ["-P", "-m", "liverl.sessions"]
        env = {
            "LIVERL_LISTEN_FD": str(fd),
            "PYTHONPATH": os.pathsep.join(
                (str(ROOT / "backend"), str(ROOT), os.environ.get("PYTHONPATH", ""))
            ),
        }
        argv = [sys.executable, *program, "--config", str(self.run / "settings.json")]
        super().__init__(argv, folder / f"{name}.log", env, (fd,))

    async def open(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Open sessions, as soon as the service is there."""
        headers = {"Authorization": f"Bearer {CONTROL}"}
        opened = []
        async with aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(self.run / "sessions/control.sock"))
        ) as http:
            for name in names:
                where = self.run / "trials" / name
                where.mkdir()
                body = {"id": name, "trial_dir": str(where)}
                while True:
                    if self.child.poll() is not None:
                        raise RuntimeError(f"the sessions have ended:\n{self.tail()}")
                    try:
                        async with http.post(
                            "http://control/sessions", json=body, headers=headers
                        ) as response:
                            answer = await response.json()
                        break
                    except (OSError, aiohttp.ClientError):
                        await asyncio.sleep(0.1)
                if response.status >= 300:
                    raise RuntimeError(f"{response.status}: {answer}")
                opened.append(answer)
        return opened

    def all_pids(self) -> list[int]:
        """Of the service and its processes."""
        return [self.pid, *(child.pid for child in psutil.Process(self.pid).children(recursive=True))]

    def facts(self) -> dict[str, Any]:
        """What the service reports of its tokenizers and its turns."""
        report = json.loads((self.run / "sessions/status.1.json").read_text())
        return {"tokenizers": report.get("tokenizers"), "counters": report.get("counters")}

    def stop(self) -> None:
        """See ``Process.stop``."""
        super().stop()
        self.listener.close()


async def clients(count: int, jobs: dict[str, Any], agents: list[dict[str, Any]]) -> dict[str, Any]:
    """The same work of ``count`` processes, begun at the same time; what came of it together."""
    agents = [{**agent, "number": number, "of": len(agents)} for number, agent in enumerate(agents)]
    children = []
    for index in range(count):
        job = {**jobs, "agents": agents[index::count]}
        child = await asyncio.create_subprocess_exec(
            sys.executable, PARTS, "client", stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=64 << 20
        )
        assert child.stdin is not None
        child.stdin.write(json.dumps(job).encode() + b"\n")
        await child.stdin.drain()
        children.append(child)
    for child in children:
        assert child.stdout is not None
        await child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"go\n")
    parts = []
    for child in children:
        assert child.stdout is not None
        parts.append(json.loads(await child.stdout.readline()))
        await child.wait()
    seconds = sorted(each for part in parts for each in part["seconds"])
    errors = [each for part in parts for each in part["errors"]]
    wall = max(part["ended"] for part in parts) - min(part["began"] for part in parts)
    done = max(1, len(seconds))
    return {
        "turns": len(seconds),
        "errors": len(errors),
        "first_errors": errors[:3],
        "wall_s": round(wall, 2),
        "calls_per_s": round(len(seconds) / wall, 1),
        "p50_ms": round(seconds[len(seconds) // 2] * 1e3, 1) if seconds else None,
        "p95_ms": round(seconds[int(len(seconds) * 0.95)] * 1e3, 1) if seconds else None,
        "client_cpu_ms": round(sum(part["cpu"] for part in parts) / done * 1e3, 3),
        "tool_calls": sum(part["calls"] for part in parts),
    }


async def requests_at(http: aiohttp.ClientSession, replicas: Sequence[Replica]) -> dict[str, float]:
    """What the replicas were asked since their start, by route; empty where they do not count it."""
    counts: dict[str, float] = {}
    for replica in replicas:
        async with http.get(f"{replica.url}/metrics") as response:
            text = await response.text()
        for labels, value in re.findall(r"^http_requests_total\{([^}]*)\} (\S+)", text, re.M):
            path = re.search(r'handler="([^"]*)"', labels)
            if path and path[1] not in ("/metrics", "/health"):
                counts[path[1]] = counts.get(path[1], 0.0) + float(value)
    return counts


class Bench:
    """The measurements on replicas that serve. ``results``: what the file has."""

    def __init__(
        self, args: argparse.Namespace, models: dict[str, Path], http: aiohttp.ClientSession
    ) -> None:
        from tokenizers import Tokenizer

        self.args, self.models, self.http = args, models, http
        self.tokenizer = Tokenizer.from_file(str(models["hermes"] / "tokenizer.json"))
        self.results: dict[str, Any] = {
            "stub": args.stub,
            "agents": args.agents,
            "turns": args.turns,
            "cores": os.cpu_count(),
        }
        self.number = 0
        self.system = text_of(SYSTEM, "You are careful.", self.tokenizer)

    def keep(self, name: str, value: Any) -> None:
        """Add a result and write the file."""
        self.results[name] = value
        (self.args.out / "session_gpu.json").write_text(json.dumps(self.results, indent=1) + "\n")

    def first(self, history: int, agent: int) -> str:
        """An agent's first message."""
        return text_of(max(20, history - 180), f"{agent:06d}", self.tokenizer)

    async def speed(
        self, replicas: Sequence[Replica], history: int, way: str, spread: float
    ) -> dict[str, Any]:
        """One way once. ``way``: generate, engine or auto; ``auto 4``: with four processes."""
        args, sessions = self.args, None
        self.number += 1
        job = {"kind": "chat", "turns": args.turns, "spread": spread, "max_tokens": REPLY}
        warm = {**job, "turns": 2, "spread": 0}
        if way == "generate":
            job["kind"] = warm["kind"] = "generate"
            agents = [await self._ids(replicas, history, number) for number in range(args.agents)]
            await clients(1, warm, agents[:8])
        else:
            tokenizer, _, processes = way.partition(" ")
            name, urls = f"{self.number:02d}-{tokenizer}", [replica.url for replica in replicas]
            sessions = Sessions(args.folder, name, tokenizer, urls, processes=int(processes or 1))
        try:
            if sessions is not None:
                opened = await sessions.open([f"warm-{number:06d}" for number in range(8)])
                chat = {"system": self.system, "tools": True}
                firsts = [
                    {
                        **chat,
                        "first": self.first(history, 900_000 + n),
                        "url": o["openai_url"],
                        "key": o["key"],
                    }
                    for n, o in enumerate(opened)
                ]
                await clients(1, warm, firsts)
                opened = await sessions.open([f"task-{number:06d}" for number in range(args.agents)])
                agents = [
                    {**chat, "first": self.first(history, n), "url": o["openai_url"], "key": o["key"]}
                    for n, o in enumerate(opened)
                ]
            pids = [replica.pid for replica in replicas]
            asked = await requests_at(self.http, replicas)
            server, ours = cpu_seconds(pids), cpu_seconds(sessions.all_pids()) if sessions else 0.0
            one = await clients(args.clients, job, agents)
            turns = max(1, one["turns"])
            one["api_server_cpu_ms"] = round((cpu_seconds(pids) - server) / turns * 1e3, 3)
            if sessions is not None:
                one["ours_cpu_ms"] = round((cpu_seconds(sessions.all_pids()) - ours) / turns * 1e3, 3)
                await asyncio.sleep(1.2)  # a report each second
                one["facts"] = sessions.facts()
            now = await requests_at(self.http, replicas)
            one["requests_per_turn"] = {
                p: round((c - asked.get(p, 0)) / turns, 3) for p, c in now.items() if c > asked.get(p, 0)
            }
            return one
        finally:
            if sessions is not None:
                sessions.stop()

    async def _ids(self, replicas: Sequence[Replica], history: int, number: int) -> dict[str, Any]:
        """An agent of ``generate``: a prompt as long as one of the sessions, made without asking anybody."""
        if not hasattr(self, "_head"):
            messages = [{"role": "system", "content": self.system}, {"role": "user", "content": "?"}]
            body = {"model": MODEL, "messages": messages, "tools": TOOLS}
            async with self.http.post(f"{replicas[0].url}/v1/chat/completions/render", json=body) as response:
                self._head = (await response.json())["token_ids"]
            following = "<|im_end|>\n<|im_start|>user\nNow do the next thing, which is number 1.<|im_end|>\n"
            following += "<|im_start|>assistant\n"
            self._next = self.tokenizer.encode(following, add_special_tokens=False).ids
        ids = (
            self._head[:-6]
            + self.tokenizer.encode(self.first(history, number), add_special_tokens=False).ids
            + self._head[-6:]
        )
        return {"ids": ids, "next": self._next, "url": replicas[number % len(replicas)].url}

    async def truth(self, name: str, replicas: Sequence[Replica]) -> dict[str, Any]:
        """``--checks`` turns of varied texts with one template, each prompt compared."""
        sessions = Sessions(
            self.args.folder, f"truth-{name}", "auto", [replica.url for replica in replicas], compared=True
        )
        try:
            count = -(-self.args.checks // 4)
            opened = await sessions.open([f"task-{number:06d}" for number in range(count)])
            agents = [
                {
                    "system": self.system if n % 3 else "",
                    "tools": n % 2 == 0,
                    "first": f"{n} begin",
                    "url": o["openai_url"],
                    "key": o["key"],
                }
                for n, o in enumerate(opened)
            ]
            job = {"kind": "chat", "turns": 4, "spread": 0, "max_tokens": REPLY, "varied": True}
            one = await clients(1, job, agents)
            await asyncio.sleep(1.2)
            facts = sessions.facts()
        finally:
            sessions.stop()
        found = json.loads((sessions.run / DIFFERENCES).read_text())
        keys = ("healed", "rewrites", "num_calls", "doubted")
        counters = {key: (facts["counters"] or {}).get(key, 0) for key in keys}
        return {
            **{key: one[key] for key in ("turns", "errors", "first_errors", "tool_calls", "wall_s")},
            **found,
            "counters": counters,
        }


def table(results: dict[str, Any]) -> str:
    """The results as text."""
    lines = [
        "| | way | calls/s | of generate | p50 / p95 ms | p95 added ms | API server CPU ms | of generate "
        "| ours CPU ms | errors |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for part, ways in results.items():
        if not isinstance(ways, dict) or "generate" not in ways:
            continue
        alone = ways["generate"]
        for way, one in ways.items():
            speed = one["calls_per_s"] / max(0.001, alone["calls_per_s"])
            server = one["api_server_cpu_ms"] / max(1e-6, alone["api_server_cpu_ms"])
            added = (one["p95_ms"] or 0) - (alone["p95_ms"] or 0)
            lines.append(
                f"| {part} | {way} | {one['calls_per_s']} | {speed:.2f} | {one['p50_ms']} / {one['p95_ms']} "
                f"| {added:.0f} | "
                f"{one['api_server_cpu_ms']} | {server:.2f} | {one.get('ours_cpu_ms', '-')} | {one['errors']} |"
            )
    lines += [
        "",
        "| template | turns | compared | differences | route at the end | errors |",
        "|---|---|---|---|---|---|",
    ]
    for part, one in results.items():
        if isinstance(one, dict) and "differences" in one:
            (facts,) = one["models"]
            route = facts["route"] + (f": {facts['why']}" if facts["why"] else "")
            lines.append(
                f"| {part} | {one['turns']} | {facts['compared']} | {one['differences']} | {route} | {one['errors']} |"
            )
    return "\n".join(lines)


async def measure(args: argparse.Namespace) -> Bench:
    """All parts, as far as the time goes."""
    args.length = max(MAX_LENGTH, *(2 * each for each in args.histories))
    models = write_models(args.folder / "models", args.length)
    say("the models are written")
    gpus = [int(each) for each in args.gpus.split(",")]
    replicas = [Replica(models["hermes"], "hermes", gpu, args, quick=False) for gpu in gpus[:2]]
    others = {
        name: Replica(models[name], name, gpu, args, quick=True)
        for name, gpu in (("coder", gpus[0]), ("rewrites", gpus[-1]))
        if args.checks
    }
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as http:
        bench = Bench(args, models, http)
        try:
            await asyncio.gather(*(replica.ready(http, BEGAN + args.start) for replica in replicas))
            say("two replicas serve")
            parts = [(f"{history}, lockstep", history, 0.0) for history in args.histories]
            parts.append(
                (f"{args.histories[0]}, paced", args.histories[0], args.agents * args.turns / args.rate)
            )
            for name, history, spread in parts:
                if name == parts[-1][0] and args.checks:
                    await truths(bench, replicas, others, http)
                ways: dict[str, Any] = {}
                for way in args.ways:
                    if time.monotonic() - BEGAN > args.deadline:
                        say(f"the time is over: {name}, {way} and what follows are left out")
                        return bench
                    ways[way] = await bench.speed(replicas, history, way, spread)
                    if "generate" in ways:
                        bench.keep(name, ways)
                    say(f"{name}, {way}: {json.dumps({k: v for k, v in ways[way].items() if k != 'facts'})}")
        finally:
            for each in [*replicas, *others.values()]:
                each.stop()
    return bench


async def truths(
    bench: Bench, replicas: Sequence[Replica], others: dict[str, Replica], http: aiohttp.ClientSession
) -> None:
    """All templates at once, each with replicas of its own."""

    async def one(name: str, with_: Sequence[Replica]) -> None:
        try:
            await asyncio.gather(*(replica.ready(http, BEGAN + bench.args.start) for replica in with_))
            bench.keep(name, await bench.truth(name, with_))
            say(f"{name}: {json.dumps(bench.results[name])}")
        except Exception as error:
            say(f"{name} failed: {type(error).__name__}: {error}")

    await asyncio.gather(one("hermes", replicas), *(one(name, [replica]) for name, replica in others.items()))


def main() -> int:
    """Measure; 1 if a difference was found where the sessions made tokens, or a template was not compared."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--stub", action="store_true", help="scripted replicas")
    parser.add_argument("--agents", type=int, default=512)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--checks", type=int, default=2000, help="turns of each template; 0: none")
    parser.add_argument(
        "--ways",
        type=lambda text: text.split(","),
        default=["generate", "engine", "auto"],
        help="generate, engine, auto; with a number behind it: that many processes (auto 4)",
    )
    parser.add_argument("--clients", type=int, default=2, help="processes of the client")
    parser.add_argument("--rate", type=float, default=200.0, help="turns per second of the paced part")
    parser.add_argument(
        "--histories",
        type=lambda text: [int(each) for each in text.split(",")],
        default=[200, 6000],
        help="tokens",
    )
    parser.add_argument("--gpus", default="0,1")
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--vllm", default="", help="further arguments of vllm serve")
    parser.add_argument("--start", type=float, default=240.0, help="seconds for the replicas to start")
    parser.add_argument("--deadline", type=float, default=420.0, help="seconds after which no part begins")
    parser.add_argument("--out", type=Path, help="a folder for results and logs")
    args = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with tempfile.TemporaryDirectory(prefix="liverl-sessions-", ignore_cleanup_errors=True) as folder:
        args.folder = Path(folder)
        args.out = args.out or args.folder
        args.out.mkdir(parents=True, exist_ok=True)
        try:
            bench = asyncio.run(measure(args))
        finally:
            for log in args.folder.glob("*.log"):
                text = log.read_text(errors="replace")
                (args.out / log.name).write_text(
                    text[:20_000] + text[-20_000:] if len(text) > 40_000 else text
                )
    print(table(bench.results), flush=True)
    truth = [one for one in bench.results.values() if isinstance(one, dict) and "differences" in one]
    return int((args.checks > 0 and len(truth) < 3) or any(one["differences"] for one in truth))


if __name__ == "__main__":
    sys.exit(main())
