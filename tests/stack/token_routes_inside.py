"""Runs in verl's Python: the CPU replica's token routes on the smoke model, behind the sessions that use them.

Prints one JSON object; the test beside it judges.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow.parquet as pq
from kit.session_host import SessionHost

from liverl.agents.tools import TOOLS
from liverl.sessions.routes import check_routes
from liverl.verl_runtime.cpuengine.core import Core
from liverl.verl_runtime.cpuengine.http import Api
from liverl.verl_runtime.cpuengine.request import Request
from liverl.verl_runtime.cpuengine.settings import Settings

SMOKE, FOLDER = Path(sys.argv[1]), Path(sys.argv[2])
SETTINGS = Settings(
    rank=0,
    model=str(SMOKE / "model"),
    served=("m",),
    tool_parser="qwen3_coder",
    max_model_len=512,
    max_num_seqs=8,
    prompt_length=256,
    response_length=96,
    seed=3,
    hybrid=True,
    free_cache_engine=True,
    load_weights=True,
)
TURNS, TRIALS = 3, 8
RENDER, GENERATE = "/v1/chat/completions/render", "/inference/v1/generate"
DERENDER = "/v1/chat/completions/derender"


class Replica:
    """The engine behind its server. ``log``: each request, as the engine got it."""

    def __init__(self, seed: int) -> None:
        self.core = Core(replace(SETTINGS, seed=seed))
        self.engine = self.core.engine
        self.log: list[Request] = []
        submit = self.engine.submit

        def logged(request: Request) -> None:
            self.log.append(request)
            submit(request)

        self.engine.submit = logged  # type: ignore[method-assign]
        self.api = Api(self.core)

    async def start(self) -> str:
        return f"http://127.0.0.1:{await self.api.listen('127.0.0.1')}"

    async def update(self, version: int, tokens: int) -> None:
        """As verl updates weights, when the running request has so many tokens: abort, load, resume."""
        reached, decode = threading.Event(), self.engine._decode

        def held() -> None:
            decode()
            if len(self.engine._running[0].tokens) >= tokens:
                reached.set()
                with self.engine._changed:
                    assert self.engine._changed.wait_for(lambda: self.engine._aborted, 60)

        self.engine._decode = held  # type: ignore[method-assign]
        assert await asyncio.to_thread(reached.wait, 60)
        await asyncio.to_thread(self.engine.pause)
        self.engine._decode = decode  # type: ignore[method-assign]
        await self.load(version)
        self.engine.resume()

    async def load(self, version: int) -> None:
        state = {name: tensor.clone() for name, tensor in self.engine.model.state_dict().items()}
        await asyncio.to_thread(self.engine.load_weights, state, last=True, version=version)


def divergences(rows: list[dict[str, Any]], log: list[Request]) -> int:
    """Requests of one session whose ids are not those of its row: what the engine read and sampled."""
    row = rows[-1]
    ids, prompt = row["traj_acc_ids"], row["initial_prompt_token_len"]
    mask, logprobs = row["traj_response_mask"], row["traj_response_logprobs"]
    wrong = 0
    sampled = [0] * len(mask)
    for request in log:
        start = len(request.prompt)
        end = start + len(request.tokens)
        same = ids[:start] == request.prompt and ids[start:end] == request.tokens
        same = same and all(
            abs(a - b) < 1e-6
            for a, b in zip(logprobs[start - prompt : end - prompt], request.logprobs, strict=True)
        )
        sampled[start - prompt : end - prompt] = [1] * (end - start)
        wrong += not same
    return wrong + (mask != sampled)


async def conversation(
    host: SessionHost, name: str, prompt: list[Any], **fields: Any
) -> list[dict[str, Any]]:
    """A trial of some turns; its messages."""
    opened = await host.open(name)
    messages = list(prompt)
    for turn in range(TURNS):
        status, body = await host.chat(opened, *messages, tools=list(TOOLS), **fields)
        assert status == 200, body
        reply = body["choices"][0]["message"]
        messages.append(reply)
        calls = reply.get("tool_calls") or []
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": f"result {turn}"} for call in calls
        ]
        if not calls:
            messages.append({"role": "user", "content": f"Go on, {turn}."})
    return messages


async def trials(host: SessionHost, replica: Replica, prompts: list[Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"rows": [], "divergences": [], "calls": 0, "turns": 0, "stops": [], "healed": 0}
    for number in range(TRIALS):
        replica.log.clear()
        name = f"task-{number:08x}"
        # The hotter half spells words as no encoder would.
        heat = 1.0 if number % 2 else 1.8
        messages = await conversation(host, name, prompts[number % len(prompts)], temperature=heat)
        _, state = await host.control("GET", f"/sessions/{name}")
        told["healed"] += state["counters"].get("healed", 0)
        rows = await host.finish(name)
        told["rows"].append(len(rows))
        told["divergences"].append(divergences(rows, replica.log))
        told["calls"] += sum(bool(message.get("tool_calls")) for message in messages)
        told["turns"] += len(replica.log)
        told["stops"] += [
            [request.finish, request.tokens[-1] in replica.engine._stop] for request in replica.log
        ]
    # What the engine was given between two replies is what the template writes there.
    messages = await conversation(host, "greedy", prompts[0], temperature=0.0)
    (row,) = await host.finish("greedy")
    async with aiohttp.ClientSession(host.urls[0]) as http:
        chat = {"messages": messages, "tools": list(TOOLS), "add_generation_prompt": False}
        _, rendered = await answer(http, RENDER, chat)
    decode = replica.core.tokenizer.decode
    behind = zip(
        row["traj_acc_ids"][row["initial_prompt_token_len"] :], row["traj_response_mask"], strict=True
    )
    given = [[token for token, _ in run] for mask, run in groupby(behind, lambda pair: pair[1]) if not mask]
    whole = decode(rendered["token_ids"])
    told["as_rendered"] = ["<|im_end|>" + decode(ids) in whole for ids in given]
    return told


async def cut(host: SessionHost, replica: Replica, prompt: list[Any]) -> dict[str, Any]:
    """A weight update within a reply, that of a session and that of a plain request."""
    replica.engine._stop = frozenset()  # the reply ends at its limit
    await replica.load(4)
    replica.log.clear()
    opened = await host.open("cut-00000001")
    asked = asyncio.create_task(host.chat(opened, *prompt, max_tokens=40, temperature=1.0))
    await replica.update(5, 6)
    status, _ = await asked
    rows = await host.finish("cut-00000001")
    first, second = replica.log
    told: dict[str, Any] = {
        "status": status,
        "finishes": [first.finish, second.finish],
        "parts": [len(first.tokens), len(second.tokens)],
        "continued": second.prompt == first.prompt + first.tokens,
        "divergences": divergences(rows, replica.log),
        "versions": rows[-1]["policy_versions"],
    }
    async with aiohttp.ClientSession(host.urls[0]) as http:
        body = {"model": "m", "token_ids": first.prompt, "sampling_params": {"max_tokens": 40, "logprobs": 0}}
        direct = asyncio.create_task(answer(http, GENERATE, body))
        await replica.update(6, 3)
        told["direct"] = await direct
    return told


async def answer(http: aiohttp.ClientSession, path: str, body: Any) -> list[Any]:
    async with http.post(path, json=body) as response:
        return [response.status, await response.json()]


async def check(http: aiohttp.ClientSession, *, sample: bool) -> str | None:
    """The check of a replica before its first trial."""

    async def post(path: str, body: Any) -> tuple[int, str]:
        async with http.post(path, json=body) as response:
            return response.status, await response.text()

    problem = await check_routes(post, "m", sample=sample)
    return None if problem is None else problem.words


async def routes(url: str, replica: Replica, prompt: list[Any]) -> dict[str, Any]:
    """The routes themselves."""
    told: dict[str, Any] = {}
    chat = {"model": "m", "messages": prompt, "tools": list(TOOLS)}
    async with aiohttp.ClientSession(url) as http:
        _, whole = await answer(http, RENDER, chat)
        _, ended = await answer(http, RENDER, chat | {"add_generation_prompt": False})
        told["opening"] = replica.core.tokenizer.decode(whole["token_ids"][len(ended["token_ids"]) :])
        told["prefix"] = whole["token_ids"][: len(ended["token_ids"])] == ended["token_ids"]
        told["room"] = whole["sampling_params"]["max_tokens"] + len(whole["token_ids"])
        parameters = {"temperature": 0.0, "max_tokens": 96, "logprobs": 0}
        sampling = {"model": "m", "token_ids": whole["token_ids"], "sampling_params": parameters}
        _, generated = await answer(http, GENERATE, sampling)
        _, completion = await answer(
            http,
            "/v1/chat/completions",
            chat | {"temperature": 0.0, "max_tokens": 96, "return_token_ids": True},
        )
        parsing = {"model": "m", "generate_response": generated, "chat_request": chat}
        _, parsed = await answer(http, DERENDER, parsing)
        told["generated"], told["parsed"], told["completion"] = generated, parsed, completion
        plain = {**parsing, "chat_request": chat | {"tool_choice": "none"}}
        told["unparsed"] = (await answer(http, DERENDER, plain))[1]
        no_ids = {"choices": [{"index": 0, "token_ids": []}]}
        wrong = [
            (GENERATE, {}),
            (GENERATE, sampling | {"token_ids": [10**6]}),
            (GENERATE, sampling | {"token_ids": [-1]}),
            (GENERATE, sampling | {"token_ids": [1] * 512}),
            (GENERATE, sampling | {"sampling_params": {"max_tokens": 512}}),
            (GENERATE, sampling | {"model": "nobody"}),
            (GENERATE, sampling | {"sampling_params": {"prompt_logprobs": 2}}),
            (RENDER, chat | {"messages": []}),
            (RENDER, chat | {"model": "nobody"}),
            (DERENDER, parsing | {"generate_response": no_ids}),
            (DERENDER, parsing | {"generate_response": {"choices": [{"token_ids": [10**6]}]}}),
            (DERENDER, parsing | {"model": "nobody"}),
        ]
        told["refused"] = [(await answer(http, path, body))[0] for path, body in wrong]
        told["scored"] = await scored(http, whole["token_ids"])
        told["alive"] = (await answer(http, GENERATE, sampling))[1]["choices"][0]["token_ids"]
        told["checks"] = [await check(http, sample=True), await check(http, sample=False)]
        await asyncio.to_thread(replica.engine.sleep)
        told["checks"].append(await check(http, sample=False))
        told["asleep"] = [
            (await answer(http, path, body))[0]
            for path, body in ((RENDER, chat), (DERENDER, parsing), (GENERATE, {}))
        ]
    return told


async def scored(http: aiohttp.ClientSession, prompt: list[int]) -> dict[str, Any]:
    """A reply sampled at temperature 1, and the log-probabilities of its prompt with it, twice: now it is cached."""
    parameters = {"temperature": 1.0, "max_tokens": 24, "logprobs": 0, "seed": 5}
    _, body = await answer(http, GENERATE, {"token_ids": prompt, "sampling_params": parameters})
    (choice,) = body["choices"]
    ids = [*prompt, *choice["token_ids"]]
    asked = {"token_ids": ids, "sampling_params": {"prompt_logprobs": 0, "max_tokens": 1, "temperature": 0.5}}
    answers = [(await answer(http, GENERATE, asked))[1] for _ in range(2)]
    return {
        "ids": ids,
        "sampled": [entry["logprob"] for entry in choice["logprobs"]["content"]],
        "prompt_logprobs": [each["prompt_logprobs"] for each in answers],
        "without": body["prompt_logprobs"],
        "next": answers[0]["choices"][0]["token_ids"],
    }


async def recomputed(folder: Path, url: str, prompt: list[Any]) -> dict[str, Any]:
    """A conversation that loses its first turn, with log-probabilities from this engine."""
    folder.mkdir()
    host = SessionHost(folder)
    host.urls, host.rewrite = [url], "recompute"
    await host.start()
    opened = await host.open()
    messages = list(prompt)
    for turn in range(3):
        status, body = await host.chat(opened, *messages, tools=list(TOOLS), temperature=0.0)
        assert status == 200, body
        messages += [body["choices"][0]["message"], {"role": "user", "content": f"Go on, {turn}."}]
    kept = [*prompt, *messages[len(prompt) + 2 :]]
    await host.chat(opened, *kept, tools=list(TOOLS), temperature=0.0)
    (row,) = await host.finish()
    counters = host.store.facts()["counters"]
    await host.stop()
    return {"row": row, "counters": [counters.recomputed, counters.recompute_unplaced]}


async def main() -> dict[str, Any]:
    prompts = [row["prompt"] for row in pq.read_table(SMOKE / "train.parquet").to_pylist()]
    replica = Replica(seed=3)
    url = await replica.start()
    host = SessionHost(FOLDER)
    host.urls = [url]
    await host.start()
    told = {
        "trials": await trials(host, replica, prompts),
        "recomputed": await recomputed(FOLDER / "recompute", url, prompts[0]),
        "routes": await routes(url, replica, prompts[0]),
    }
    await replica.api.close()
    replica = Replica(seed=4)
    host.urls = [await replica.start()]
    await host.stop()
    await host.start()
    told["cut"] = await cut(host, replica, prompts[1])
    await host.stop()
    await replica.api.close()
    return told


print(json.dumps(asyncio.run(main())))
