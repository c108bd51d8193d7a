"""CPU of a turn of the sessions behind short and long histories, the first turn of a conversation apart from the later
ones: ``python tests/bench/session_turn.py [TREE ...] [--histories 200,6000,50000] [--tools 0]``.

TREE: a checkout of this project whose sessions are measured (this one without any); of several each does one turn after
the other's, so that other load on the machine meets all alike. The replica is scripted (``session_gpu_parts.py``), the
agents of a turn ask at once. No target.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]

import aiohttp  # noqa: E402
import session_gpu  # noqa: E402
from processes import cpu_seconds  # noqa: E402
from session_gpu_parts import MODEL, TOOLS, text_of, write_models  # noqa: E402

LENGTH = 200_000  # tokens of the model's context
PAUSE_S = 0.05  # seconds behind a turn, in which what follows a reply is done
WARM = 8  # agents and turns before what is measured


def further_tools(count: int) -> list[dict[str, Any]]:
    """As many tools of 6 KB each as an agent may offer: Claude Code has a dozen."""
    given = {"type": "string", "description": "what it is. " * 8, "enum": ["a", "b"]}
    parameters = {"type": "object", "properties": {f"p{n}": given for n in range(20)}, "required": ["p0"]}
    function = {"description": "words and words. " * 150, "parameters": parameters}
    return [{"type": "function", "function": {"name": f"tool_{n}", **function}} for n in range(count)]


class Agent:
    """A conversation. ``opened``: its session; ``tools``: that it offers."""

    def __init__(self, opened: dict[str, Any], first: str, tools: list[dict[str, Any]]) -> None:
        self._tools = tools
        self._url = f"{opened['openai_url']}/chat/completions"
        self._headers = {"Authorization": f"Bearer {opened['key']}"}
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You are careful."},
            {"role": "user", "content": first},
        ]
        self.seconds: list[float] = []

    async def turn(self, http: aiohttp.ClientSession) -> None:
        """Ask, and go on behind the reply."""
        body = {
            "model": MODEL,
            "messages": self._messages,
            "tools": self._tools,
            "max_tokens": session_gpu.REPLY,
        }
        began = time.monotonic()
        async with http.post(self._url, json=body, headers=self._headers) as response:
            answer = await response.json()
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {answer}")
        self.seconds.append(time.monotonic() - began)
        reply = answer["choices"][0]["message"]
        self._messages.append({name: value for name, value in reply.items() if value is not None})
        number, calls = len(self.seconds), reply.get("tool_calls") or ()
        for call in calls:
            said = f"The file of turn {number}."
            self._messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})
        if not calls:
            said = f"Now do the next thing, which is number {number}."
            self._messages.append({"role": "user", "content": said})


class Measured:
    """The sessions of one tree, and what they took for the first turns and for the later ones."""

    def __init__(self, tree: Path, sessions: session_gpu.Sessions) -> None:
        self.tree, self._sessions = tree, sessions
        self.agents: list[Agent] = []
        self.first = self.later = 0.0  # seconds of CPU
        self.seconds: list[float] = []

    async def begin(self, name: str, texts: list[str], tools: list[dict[str, Any]]) -> None:
        """New agents, one for each text."""
        opened = await self._sessions.open([f"{name}-{number:06d}" for number in range(len(texts))])
        self.agents = [Agent(each, text, tools) for each, text in zip(opened, texts, strict=True)]

    async def turn(self, http: aiohttp.ClientSession) -> float:
        """One turn of all agents at once; seconds of CPU."""
        began = cpu_seconds([self._sessions.pid])
        await asyncio.gather(*(agent.turn(http) for agent in self.agents))
        await asyncio.sleep(PAUSE_S)
        return cpu_seconds([self._sessions.pid]) - began


async def conversations(
    measured: list[Measured], name: str, texts: list[str], args: argparse.Namespace
) -> None:
    """One conversation of each agent, in all trees in turns."""
    timeout, connector = aiohttp.ClientTimeout(total=300), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        for each in measured:
            await each.begin(name, texts, TOOLS + further_tools(args.tools))
        for number in range(args.turns):
            for each in measured if number % 2 else reversed(measured):
                spent = await each.turn(http)
                each.first += 0.0 if number else spent
                each.later += spent if number else 0.0
        for each in measured:
            each.seconds += [second for agent in each.agents for second in agent.seconds[1:]]


async def measure(args: argparse.Namespace, folder: Path) -> None:
    """Print the table."""
    from tokenizers import Tokenizer

    args.stub, args.out, args.folder = True, folder, folder
    models = write_models(folder / "models", LENGTH)
    tokenizer = Tokenizer.from_file(str(models["hermes"] / "tokenizer.json"))
    replica = session_gpu.Replica(models["hermes"], "hermes", 0, args, quick=True)
    services: list[session_gpu.Sessions] = []
    try:
        async with aiohttp.ClientSession() as http:
            await replica.ready(http, time.monotonic() + 60)
        for number, tree in enumerate(args.trees):
            session_gpu.ROOT = tree
            services.append(session_gpu.Sessions(folder, f"{number}", args.tokenizer, [replica.url]))
        print(f"{args.agents} agents, {args.turns} turns, {args.rounds} rounds; ms of CPU for a turn")
        print("history      first      later   of the first tree   p50 / p95 ms   tree", flush=True)
        warm = [Measured(*each) for each in zip(args.trees, services, strict=True)]
        await conversations(warm, "warm", ["Begin."] * WARM, argparse.Namespace(turns=WARM, tools=args.tools))
        for history in args.histories:
            measured = [Measured(*each) for each in zip(args.trees, services, strict=True)]
            text = text_of(max(20, history - 180), "history", tokenizer)
            for number in range(args.rounds):
                texts = [f"{number} {agent} {text}" for agent in range(args.agents)]
                await conversations(measured, f"h{history}-{number}", texts, args)
            done = args.rounds * args.agents / 1e3
            for each in measured:
                first, later = each.first / done, each.later / done / (args.turns - 1)
                seconds = sorted(each.seconds)
                p50, p95 = (seconds[int(len(seconds) * share)] * 1e3 for share in (0.5, 0.95))
                ratio = each.later / measured[0].later
                print(
                    f"{history:7d} {first:10.2f} {later:10.3f} {ratio:19.2f} {p50:9.0f} / {p95:.0f}   {each.tree}"
                )
    finally:
        for service in services:
            service.stop()
        replica.stop()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, default=[HERE.parents[1]], metavar="TREE")
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tools", type=int, default=0, help="further tools of 6 KB that agents offer")
    parser.add_argument("--tokenizer", choices=("auto", "engine"), default="auto")
    parser.add_argument(
        "--histories",
        type=lambda text: [int(each) for each in text.split(",")],
        default=[200, 6000, 50_000],
        help="tokens",
    )
    args = parser.parse_args()
    args.trees = [tree.resolve() for tree in args.trees]
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with tempfile.TemporaryDirectory(prefix="liverl-sessions-", ignore_cleanup_errors=True) as folder:
        asyncio.run(measure(args, Path(folder)))


if __name__ == "__main__":
    main()
