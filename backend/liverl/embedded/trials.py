"""One trial from its directory to its reward, and the files that tell its story."""

from __future__ import annotations

import asyncio
import hashlib
import time
import traceback
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from liverl.embedded.agent import SYSTEM, Conversation, Reply, TrialFailed, converse
from liverl.embedded.files import write_json
from liverl.embedded.grpo import TrialSample
from liverl.embedded.sandbox import EmptySandbox, Sandbox
from liverl.embedded.settings import TrainerConfig
from liverl.embedded.tasks import Task, verify
from liverl.embedded.tools import TOOLS
from liverl.files import write_atomic
from liverl.version import __version__

_PROCESS = uuid.uuid4().hex
SANDBOXES = {"full": Sandbox, "empty": EmptySandbox}


class TrialPlan(msgspec.Struct, frozen=True):
    """Which task, for which place in the batch."""

    step: int
    prompt_index: int
    sample_index: int
    task: Task

    def seed(self, run_seed: int) -> str:
        return f"{run_seed}:{self.step}:{self.prompt_index}:{self.sample_index}"

    def name(self) -> str:
        """``<task>-<8 hex>``; a trainer that repeats a step after a restart has names of its own."""
        text = f"{_PROCESS}:{self.step}:{self.prompt_index}:{self.sample_index}"
        return f"{self.task.id}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


class TrialOutcome(msgspec.Struct):
    """``sample`` is for the optimiser, the rest for the step's metrics. Lengths are tokens."""

    sample: TrialSample
    turns: int
    tool_calls: int
    retries: int
    prompt_length: int
    response_length: int  # from the first prompt's end to the last token, observations included
    seconds: float
    exception: str | None


async def run_trial(
    session: aiohttp.ClientSession,
    config: TrainerConfig,
    plan: TrialPlan,
    policy_version: int,
    run_key: str | None,
) -> TrialOutcome:
    """Run one trial and write its directory. A failed trial has reward 0, no trained token, and says why.

    Raises OSError if the run directory cannot be written: then no trial can run.
    """
    name = plan.name()
    directory = Path(config.run_dir) / "trials" / f"step_{plan.step:04d}" / name
    seed = plan.seed(config.seed)
    directory.mkdir(parents=True, exist_ok=True)
    where = {"step": plan.step, "task": plan.task.id}
    place = {"prompt_index": plan.prompt_index, "sample_index": plan.sample_index, "seed": seed}
    write_json(directory / "config.json", {**where, **place})
    sandbox = SANDBOXES[config.tool_executor](directory / "sandbox")
    sandbox.prepare(plan.task.files)
    conversation = Conversation(
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{plan.task.instruction}\nWorking directory: {name}/sandbox"},
        ]
    )
    headers = {"Content-Type": "application/json", "x-litellm-routing-key": name}
    if run_key is not None:
        headers["Authorization"] = f"Bearer {run_key}"
    started = time.time()
    reward, exception = 0.0, None
    try:
        await converse(session, config, name, conversation, sandbox, headers, seed)
        reward = verify(plan.task, sandbox.root)
    except TrialFailed as error:
        exception = {
            "exception_type": error.kind,
            "exception_message": str(error),
            "exception_traceback": traceback.format_exc(),
            "occurred_at": _iso(time.time()),
        }
        for sample in conversation.samples:
            sample.mask = [0] * len(sample.mask)
    finished = time.time()
    _write_story(directory, config, conversation, name)
    (directory / "verifier").mkdir(exist_ok=True)
    write_atomic(directory / "verifier" / "reward.txt", f"{reward}\n".encode(), sync=False)
    write_json(
        directory / "result.json",
        {
            "trial_name": name,
            "task_name": plan.task.id,
            "step": plan.step,
            "verifier_result": {"rewards": {"reward": reward}},
            "exception_info": exception,
            "started_at": _iso(started),
            "finished_at": _iso(finished),
            "turns": len(conversation.replies),
            "tool_calls": conversation.tool_calls,
            "policy_version": policy_version,
            "ended_by": "exception" if exception else conversation.ended_by,
            "retries": conversation.retries,
        },
    )
    replies = conversation.replies
    prompt = replies[0].prompt_tokens if replies else 0
    end = replies[-1].prompt_tokens + len(replies[-1].token_ids) if replies else 0
    return TrialOutcome(
        sample=TrialSample(group=plan.prompt_index, reward=reward, turns=conversation.samples),
        turns=len(replies),
        tool_calls=conversation.tool_calls,
        retries=conversation.retries,
        prompt_length=prompt,
        response_length=end - prompt,
        seconds=finished - started,
        exception=f"{exception['exception_type']}: {exception['exception_message']}" if exception else None,
    )


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _write_story(directory: Path, config: TrainerConfig, conversation: Conversation, name: str) -> None:
    """``agent/trajectory.json`` in ATIF: a step per message, observations with the turn that caused them."""
    steps: list[dict[str, Any]] = []
    replies = iter(conversation.replies)
    for message in conversation.messages:
        role = message["role"]
        if role == "tool":
            observation = steps[-1].setdefault("observation", {"results": []})
            observation["results"].append(
                {"source_call_id": message["tool_call_id"], "content": message["content"]}
            )
            continue
        step: dict[str, Any] = {
            "step_id": len(steps) + 1,
            "source": "agent" if role == "assistant" else role,
            "message": message.get("content") or "",
        }
        if role == "assistant":
            _add_turn(step, message, next(replies), config.served_model)
        steps.append(step)
    (directory / "agent").mkdir(exist_ok=True)
    write_json(
        directory / "agent" / "trajectory.json",
        {
            "schema_version": "ATIF-v1.8",
            "session_id": name,
            "agent": {
                "name": "liverl-embedded",
                "version": __version__,
                "model_name": config.served_model,
                "tool_definitions": list(TOOLS),
            },
            "steps": steps,
        },
    )


def _add_turn(step: dict[str, Any], message: dict[str, Any], reply: Reply, model: str) -> None:
    step["model_name"] = model
    step["llm_call_count"] = 1
    calls = [
        {
            "tool_call_id": call.get("id", ""),
            "function_name": call["function"]["name"],
            "arguments": _arguments(call["function"].get("arguments")),
        }
        for call in message.get("tool_calls") or ()
    ]
    if calls:
        step["tool_calls"] = calls
    step["metrics"] = {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": len(reply.token_ids),
        "completion_token_ids": reply.token_ids,
        "logprobs": reply.logprobs,
        "extra": {"finish_reason": reply.finish_reason},
    }


def _arguments(text: str | None) -> Any:
    try:
        return msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {"unreadable": text}


async def run_batch(
    session: aiohttp.ClientSession,
    config: TrainerConfig,
    plans: list[TrialPlan],
    policy_version: int,
    run_key: str | None,
    on_finished: Callable[[TrialOutcome], None],
) -> list[TrialOutcome]:
    """All trials of a step, ``num_workers`` at a time; ``on_finished`` hears of each as it ends."""
    seats = asyncio.Semaphore(config.num_workers)

    async def one(plan: TrialPlan) -> TrialOutcome:
        async with seats:
            outcome = await run_trial(session, config, plan, policy_version, run_key)
        on_finished(outcome)
        return outcome

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(plan)) for plan in plans]
    return [task.result() for task in tasks]
