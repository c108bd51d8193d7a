"""verl's agent loop of ours through the real LiteLLM: before the embedded engine, and before vLLM's answers.

The embedded engine speaks vLLM's shape with token ids of its own; the part that runs inside verl's Python needs
an environment with verl 0.9.1 (variable LIVERL_TEST_VERL_PYTHON). What is called ``simulated`` stands for vLLM.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from kit.components import LITELLM
from kit.waiting import wait_until
from proxykit import MODEL, START_DEADLINE, Proxy, ToyReplica, say, wait_for

import liverl
from liverl.agents.tasks import dataset
from liverl.agents.tool_calls import render_qwen3_coder
from liverl.agents.tools import TOOLS
from liverl.embedded.engine.chat import prompt_ids
from liverl.embedded.tokenizer import EOS_ID, encode
from liverl.environments import default_cache_dir, ensure
from liverl.verl_runtime.carriers import ProxyCarrier
from liverl.verl_runtime.loop_trial import LoopSettings, Outcome, Prompt, run_trial
from liverl.verl_runtime.tokens import Row

pytestmark = [pytest.mark.stack]  # LiteLLM starts in the first test's time

VERL_PYTHON = "LIVERL_TEST_VERL_PYTHON"
TASK = next(task for task in dataset() if task.kind == "create")
MESSAGES = [{"role": "system", "content": "work"}, {"role": "user", "content": TASK.instruction}]
INSIDE = Path(__file__).parent / "agent_loop_inside.py"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """One LiteLLM for all tests of this module, without replicas; each test lists its own."""
    python = asyncio.run(ensure(LITELLM, default_cache_dir(), lambda text, share: say(text)))
    proxy = Proxy(python, tmp_path_factory.mktemp("run"))
    proxy.write_config()
    proxy.start(1)
    try:
        asyncio.run(proxy.serving(1))
        yield proxy
    finally:
        proxy.close()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an embedded engine."""
    with running_engine(tmp_path_factory.mktemp("engine")) as address:
        yield address


@contextlib.contextmanager
def running_engine(folder: Path, *flags: str) -> Iterator[str]:
    command = [sys.executable, "-m", "liverl.embedded.engine", "--model", "builtin:qwen3_coder"]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", "0", "--turn-latency", "0.01"]
    command += ["--tool-call-parser", "qwen3_coder", "--enable-auto-tool-choice", *flags]
    with open(folder / "engine.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def address() -> str | None:
        text = (folder / "engine.log").read_text()
        assert process.poll() is None, text
        ready = "Application startup complete." in text
        return text.partition("Starting vLLM server on ")[2].split()[0] if ready else None

    try:
        yield str(wait_until(address, what="the embedded engine's address"))
    finally:
        process.terminate()
        process.wait(60)


def settings(proxy: Proxy) -> LoopSettings:
    known: dict[str, Any] = {
        "run_dir": str(proxy.run_dir),
        "attempt_dir": str(proxy.run_dir / "attempt_001"),
        "served_model": MODEL,
        "prompt_length": 8000,
        "response_length": 8000,
        "trial_timeout": 400.0,
    }
    return LoopSettings(**known)


def key_file(proxy: Proxy) -> str:
    path = proxy.run_dir / "run-key"
    path.write_text(proxy.keys.run)
    return str(path)


async def run(proxy: Proxy, prompt: Prompt) -> Outcome:
    """A trial through LiteLLM."""
    given = settings(proxy)
    return await run_trial(given, prompt, ProxyCarrier(proxy.url, key_file(proxy), given.lengths))


def row_of(outcome: Outcome) -> Row | None:
    assert len(outcome.rows) < 2
    return outcome.rows[0] if outcome.rows else None


def prompt(step: int, **changes: Any) -> Prompt:
    row = {"extra_info": {"task_id": TASK.id}}
    known: dict[str, Any] = {"kind": "task", "label": TASK.id, "row": row, "messages": MESSAGES}
    known |= {
        "step": step,
        "validation": False,
        "uid": uuid.uuid4().hex,
        "session": 0,
        "sampling": {"temperature": 1.0},
    }
    return Prompt(**{**known, **changes})


async def test_trials_before_the_embedded_engine(proxy: Proxy, engine: str) -> None:
    """They start while no replica is listed (503), and every one of their tokens can be trained on."""
    await proxy.reload(1)
    uid = uuid.uuid4().hex
    trials = [asyncio.create_task(run(proxy, prompt(1, uid=uid, session=session))) for session in range(8)]
    names = [prompt(1, uid=uid, session=session).name() for session in range(8)]
    for name in names:
        await wait_for(
            lambda name=name: proxy.trajectory("step_0001", name), START_DEADLINE, "a first turn was refused"
        )
    await proxy.reload(1, engine)
    outcomes = await asyncio.gather(*trials)
    assert [outcome.name for outcome in outcomes] == names
    for outcome in outcomes:
        assert outcome.exception is None and outcome.divergences == 0 and outcome.retries >= 1
        assert row_of(outcome) is not None
        directory = proxy.run_dir / "trials" / "step_0001" / outcome.name
        steps = json.loads((directory / "agent" / "trajectory.json").read_text())["steps"]
        turns = [step["metrics"] for step in steps if step["source"] == "agent"]
        sampled = [token for turn in turns for token in turn["completion_token_ids"]]
        logprobs = [logprob for turn in turns for logprob in turn["logprobs"]]
        bits = row_of(outcome).mask
        assert [t for t, bit in zip(row_of(outcome).response, bits, strict=True) if bit] == sampled
        assert [p for p, bit in zip(row_of(outcome).logprobs, bits, strict=True) if bit] == logprobs
        assert any(logprobs) and len(row_of(outcome).prompt) == turns[0]["prompt_tokens"]
        whole = len(row_of(outcome).prompt) + len(row_of(outcome).response)
        assert whole == turns[-1]["prompt_tokens"] + turns[-1]["completion_tokens"]
        seen = await proxy.records("step_0001", outcome.name, count=outcome.retries + len(turns))
        # a record is written when its answer has gone out: those of failures may come in between
        assert sorted(record["success"] for record in seen) == [False] * outcome.retries + [True] * len(turns)
    assert len({tuple(row_of(outcome).response) for outcome in outcomes if row_of(outcome)}) > 1


async def test_a_context_that_is_full_ends_the_trial(proxy: Proxy, tmp_path: Path) -> None:
    """The engine's 400, in the words that LiteLLM puts around it, keeps what was sampled before."""
    room = len(prompt_ids(MESSAGES, TOOLS, render_qwen3_coder)) + 256 + 30
    with running_engine(tmp_path, "--max-model-len", str(room)) as small:
        await proxy.reload(1, small)
        outcomes = [await run(proxy, prompt(5, session=session)) for session in range(3)]
    for outcome in outcomes:
        assert outcome.exception is None and row_of(outcome) is not None and set(row_of(outcome).mask) == {1}
    assert "context_length" in [outcome.ended_by for outcome in outcomes]


@dataclass
class VllmShaped(ToyReplica):
    """vLLM 0.24's chat completion with ``return_token_ids``, key by key; solves the task in two turns."""

    retokenise: bool = False  # turn 2 sees a prompt in which one id differs

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        path, text = next(iter(TASK.expect.items()))
        name, arguments = [("write_file", {"path": path, "content": text}), ("submit", {})][turn]
        ids = prompt_ids(body["messages"], body["tools"], render_qwen3_coder)
        if turn and self.retokenise:
            ids[-40] += 1
        sampled = [*encode(render_qwen3_coder(name, arguments)), EOS_ID]
        function = {"name": name, "arguments": json.dumps(arguments)}
        message = {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "tool_calls": [{"id": f"chatcmpl-tool-{turn}", "type": "function", "function": function}],
            "reasoning": None,
        }
        content = [
            {"token": f"token_id:{t}", "logprob": -0.5, "bytes": [0], "top_logprobs": []} for t in sampled
        ]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": {"content": content},
            "finish_reason": "tool_calls",
            "stop_reason": None,
            "token_ids": sampled,
        }
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(sampled), "prompt_tokens_details": None}
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": None,
            "usage": {**usage, "total_tokens": len(ids) + len(sampled)},
            "prompt_logprobs": None,
            "prompt_token_ids": ids,
            "kv_transfer_params": None,
        }


async def simulated(proxy: Proxy, replica: VllmShaped, step: int) -> Outcome:
    await replica.start()
    try:
        await proxy.reload(1, replica.url)
        return await run(proxy, prompt(step))
    finally:
        await replica.stop()


async def test_simulated_vllm_keeps_its_ids_through_litellm(proxy: Proxy) -> None:
    replica = VllmShaped("vllm")
    outcome = await simulated(proxy, replica, 2)
    assert (outcome.reward, outcome.divergences, outcome.exception) == (1.0, 0, None)
    assert row_of(outcome) is not None and set(row_of(outcome).logprobs) == {0.0, -0.5}
    first = replica.seen[0]["body"]
    assert row_of(outcome).prompt == prompt_ids(first["messages"], first["tools"], render_qwen3_coder)
    assert first["return_token_ids"] is True and first["logprobs"] is True
    headers = {"authorization": f"Bearer {proxy.keys.run}", "x-litellm-routing-key": "shape"}
    replica = VllmShaped("vllm")
    await replica.start()
    try:
        await proxy.reload(1, replica.url)
        async with aiohttp.ClientSession(headers=headers) as session:
            url = f"{proxy.url}/v1/chat/completions"
            async with session.post(url, json={**first, "model": MODEL}) as response:
                answer = await response.json()
    finally:
        await replica.stop()
    # Where LiteLLM 1.106.2 leaves them; read_reply also finds them at vLLM's own places.
    assert answer["prompt_token_ids"] == row_of(outcome).prompt
    sampled = answer["choices"][0]["provider_specific_fields"]["token_ids"]
    assert sampled == row_of(outcome).response[: len(sampled)] and sampled[-1] == EOS_ID


async def test_simulated_retokenisation_is_counted_and_cut(proxy: Proxy) -> None:
    outcome = await simulated(proxy, VllmShaped("vllm", retokenise=True), 3)
    assert (outcome.reward, outcome.divergences) == (1.0, 1)
    assert row_of(outcome) is not None and set(row_of(outcome).mask) == {1}


def test_inside_verl(proxy: Proxy, engine: str, tmp_path: Path) -> None:
    """The loop as verl 0.9.1's worker makes and runs it, and its outputs as the worker stores them."""
    python = os.environ.get(VERL_PYTHON)
    if not python:
        pytest.skip(f"{VERL_PYTHON} names no Python with verl 0.9.1")
    asyncio.run(proxy.reload(1, engine))
    package = tmp_path / "path" / "liverl"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f'__path__ = ["{Path(liverl.__file__).parent}"]\n')
    given = settings(proxy)
    loop = {
        "name": "liverl_proxy",
        "_target_": "liverl.verl_runtime.agent_loop.ProxyAgentLoop",
        "proxy_url": proxy.url,
        "run_dir": given.run_dir,
        "attempt_dir": given.attempt_dir,
        "run_key_file": key_file(proxy),
        "served_model": MODEL,
        "max_turns": 8,
        "trial_timeout": 60.0,
        "temperature": 1.0,
        "max_tokens": 256,
    }
    row = {"raw_prompt": MESSAGES, "extra_info": {"task_id": TASK.id, "split": "train"}, "global_steps": 4}
    (tmp_path / "job.json").write_text(json.dumps({"loop": loop, "row": row}))
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    env |= {"PYTHONPATH": str(package.parent), "RAY_USAGE_STATS_ENABLED": "0", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [python, str(INSIDE), str(tmp_path / "job.json")],
        check=False,
        env=env,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["stored"] == 4 and set(told["rewards"]) <= {0.0, 1.0}
    assert all(turns >= 2 and turns % 2 == 0 for turns in told["turns"])
    assert set(told["fields"]) >= {"prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores"}
    assert told["stored_of_failed"] == 0  # verl then leaves the session out
    assert told["failed_validation"] == [[0], [0.0]]
    assert len(list((proxy.run_dir / "trials" / "step_0004").iterdir())) == 5
