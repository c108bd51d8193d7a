"""Runs in verl's Python: the CPU replica's engine and doors, on the smoke model, against transformers itself.

Prints one JSON object; the test beside it judges.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow.parquet as pq
import torch
from transformers import AutoModelForCausalLM

from liverl.agents.tools import TOOLS
from liverl.verl_runtime.cpuengine.core import Core
from liverl.verl_runtime.cpuengine.engine import digest_of
from liverl.verl_runtime.cpuengine.http import Api
from liverl.verl_runtime.cpuengine.settings import Settings

SMOKE = Path(sys.argv[1])
SETTINGS = Settings(
    rank=0,
    model=str(SMOKE / "model"),
    served=("policy",),
    tool_parser="qwen3_coder",
    max_model_len=512,
    max_num_seqs=8,
    prompt_length=256,
    response_length=96,
    seed=1,
    hybrid=True,
    free_cache_engine=True,
    load_weights=True,
)


def worst(model: Any, prompt: list[int], tokens: list[int], logprobs: list[float]) -> float:
    """The largest difference to the log-probabilities of one plain forward pass."""
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].float()
    expected = torch.log_softmax(logits, -1)[range(len(tokens)), tokens]
    return float((expected - torch.tensor(logprobs)).abs().max())


async def main() -> dict[str, Any]:
    told: dict[str, Any] = {}
    rows = pq.read_table(SMOKE / "train.parquet").to_pylist()
    core = Core(SETTINGS)
    model = AutoModelForCausalLM.from_pretrained(SMOKE / "model", dtype=torch.float32).eval()
    prompts = [
        core.tokenizer.apply_chat_template(
            row["prompt"], tools=list(TOOLS), add_generation_prompt=True, return_dict=False
        )
        for row in rows
    ]
    told["longest_prompt"] = max(map(len, prompts))

    async def turn(prompt: list[int], heat: float, seed: int | None = None) -> Any:
        return await core.generate(prompt, max_tokens=96, temperature=heat, seed=seed)

    # More requests than rows, of different lengths, all at once.
    greedy = await asyncio.gather(*(turn(prompt, 0.0) for prompt in prompts))
    told["as_transformers"] = all(
        result.tokens
        == model.generate(
            torch.tensor([result.prompt]),
            attention_mask=torch.ones(1, len(result.prompt)),
            do_sample=False,
            max_new_tokens=96,
        )[0, len(result.prompt) :].tolist()
        for result in greedy[:8]
    )
    sampled = await asyncio.gather(*(turn(prompt, 1.0) for prompt in prompts * 2))
    further = await asyncio.gather(*(turn([*r.prompt, *r.tokens, 3, 4], 1.0) for r in sampled[-8:]))
    told["logprob_error"] = max(
        worst(model, r.prompt, r.tokens, r.logprobs) for r in [*greedy, *sampled, *further]
    )
    told["cached"] = [r.cached >= len(r.prompt) - 4 for r in further]
    told["seeded"] = [r.tokens for r in await asyncio.gather(*(turn(prompts[0], 1.5, 7) for _ in range(3)))]

    # Sleep and new weights: a request waits and is answered by the new model.
    engine = core.engine
    await asyncio.to_thread(engine.sleep)
    late = asyncio.create_task(turn(prompts[0], 0.0))
    await asyncio.sleep(0.3)
    told["asleep"] = [engine.sleeping, late.done(), engine.waiting, engine.running]
    engine.wake_up(["weights"])
    other = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32).eval()
    names = [name for name, _ in other.named_parameters()]
    state = {name: tensor.to(torch.bfloat16) for name, tensor in other.state_dict().items()}
    other.load_state_dict(state)
    policies = [engine.policy]

    async def send(weights: dict[str, torch.Tensor], version: int | None) -> None:
        """In two parts, as a large model comes."""
        parts = [{name: weights[name] for name in some} for some in (names[:5], names[5:])]
        await asyncio.to_thread(engine.load_weights, parts[0], last=False, version=version)
        policies.append(engine.policy)
        await asyncio.to_thread(engine.load_weights, parts[1], last=True, version=version)
        policies.append(engine.policy)

    changed = state | {names[-1]: state[names[-1]] + 1.0}
    for weights, version in ((state, 4), (state, 4), (changed, None), (changed, 5), (state, 6)):
        await send(weights, version)
    told["policies"] = policies
    told["own_digest"] = digest_of(engine.model.state_dict())
    told["digest_of_others"] = digest_of(other.state_dict())
    engine.wake_up(["kv_cache"])
    async with asyncio.timeout(60):
        result = await late
    told["new_weights_error"] = worst(other, result.prompt, result.tokens, result.logprobs)
    told["refused"] = []
    for tensors in ({"nobody": torch.zeros(1)}, {names[0]: state[names[0]]}):
        try:
            engine.load_weights(tensors, last=True)
        except ValueError as error:
            told["refused"].append(str(error))

    told["http"] = await doors(rows)
    return told


async def doors(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One conversation over HTTP, as the agent loop has it, and what the other routes say."""
    told: dict[str, Any] = {}
    core = Core(replace(SETTINGS, seed=2))
    api = Api(core)
    port = await api.listen("127.0.0.1")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        messages = list(rows[0]["prompt"])
        body = {
            "model": "policy",
            "messages": messages,
            "tools": list(TOOLS),
            "temperature": 0.0,
            "max_tokens": 96,
            "logprobs": True,
            "return_token_ids": True,
        }
        async with session.post("/v1/chat/completions", json=body) as response:
            first = told["first"] = await response.json()
        messages.append(first["choices"][0]["message"])
        messages.append({"role": "tool", "tool_call_id": "x", "content": "wrote 16 characters"})
        async with session.post("/v1/chat/completions", json=body | {"messages": messages}) as response:
            told["second"] = await response.json()
        await asyncio.to_thread(core.engine.sleep)
        core.engine.policy = 4, "aa11"
        async with session.get("/metrics") as response:
            told["metrics"] = await response.text()
        async with session.get("/health") as response:
            told["health"] = response.status
        async with session.get("/v1/models") as response:
            told["models"] = [card["id"] for card in (await response.json())["data"]]
        told["errors"] = []
        for wrong in ({"model": "nobody"}, {"max_tokens": 4096}, {"messages": []}):
            async with session.post("/v1/chat/completions", json=body | wrong) as response:
                told["errors"].append(response.status)
    await api.close()
    return told


print(json.dumps(asyncio.run(main())))
