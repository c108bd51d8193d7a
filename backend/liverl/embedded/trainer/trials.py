"""Trials of the embedded trainer: one from its directory to its reward, and all trials of a step."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from liverl.agents.checks import write_checks
from liverl.agents.loop import SYSTEM, Conversation, Reply, Talk, TrialFailed, converse
from liverl.agents.sandbox import EmptySandbox, Sandbox
from liverl.agents.settings import TrainerConfig
from liverl.agents.tasks import Task, checks, reward_of
from liverl.agents.trial_files import exception_info, write_facts, write_outcome
from liverl.embedded.policy import state_of
from liverl.embedded.trainer.carriers import Carrier
from liverl.embedded.trainer.grpo import TrialSample, TurnSample
from liverl.util import clocks
from liverl.util.checked_path import RESOLVED
from liverl.util.modes import make_directory

_PROCESS = uuid.uuid4().hex
SANDBOXES = {"full": Sandbox, "empty": EmptySandbox}


class TrialPlan(msgspec.Struct, frozen=True):
    """Task and position in the batch of one trial."""

    step: int
    prompt_index: int
    sample_index: int
    task: Task

    def seed(self, run_seed: int) -> str:
        """Return the seed of the trial: the same for the same position in every attempt."""
        return f"{run_seed}:{self.step}:{self.prompt_index}:{self.sample_index}"

    def is_last(self, config: TrainerConfig) -> bool:
        """Whether it is the last trial of its step."""
        last = config.train_batch_size - 1, config.n_resp_per_prompt - 1
        return (self.prompt_index, self.sample_index) == last

    def name(self) -> str:
        """``<task>-<8 hex>``; unique even if a step is repeated after a restart."""
        text = f"{_PROCESS}:{self.step}:{self.prompt_index}:{self.sample_index}"
        return f"{self.task.id}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


class TrialOutcome(msgspec.Struct):
    """``sample`` is for the optimiser, the rest for the metrics of the step. Lengths are tokens."""

    sample: TrialSample
    turns: int
    tool_calls: int
    retries: int
    prompt_length: int
    response_length: int  # from the end of the first prompt to the last token, observations included
    seconds: float
    exception: str | None


class Phases:
    """The begin and end of each phase of a trial, in the form of Harbor's ``result.json``: Unix seconds."""

    def __init__(self) -> None:
        self.spans: dict[str, dict[str, float]] = {}

    @contextlib.contextmanager
    def of(self, phase: str) -> Iterator[None]:
        """Note the phase around a block. It has an end too if the block fails."""
        began, ran = time.time(), clocks.ran()
        try:
            yield
        finally:
            self.spans[phase] = {"started_at": began, "finished_at": began + clocks.ran() - ran}


class Slowly:
    """Tools that take ``seconds`` longer for each call: a fault."""

    def __init__(self, tools: Sandbox, seconds: float) -> None:
        self.definitions, self.last = tools.definitions, tools.last
        self._tools, self._seconds = tools, seconds

    async def answer(self, name: str, arguments: dict[str, Any]) -> str:
        """See ``liverl.agents.loop.Tools``."""
        await asyncio.sleep(self._seconds)
        return await self._tools.answer(name, arguments)

    def not_called(self, name: str) -> None:
        """See ``Tools.not_called``."""


async def run_trial(
    session: aiohttp.ClientSession,
    config: TrainerConfig,
    plan: TrialPlan,
    policy_version: int,
    carrier: Carrier,
    queued_at: float,
) -> TrialOutcome:
    """Run one trial and write its directory. A failed trial has reward 0, no trained token, and the reason.
    ``queued_at``: Unix seconds at which its step began.

    Raises:
        OSError: the run directory cannot be written, so that no trial can run.
    """
    name = plan.name()
    step = Path(config.run_dir) / "trials" / f"step_{plan.step:04d}"
    make_directory(step)
    directory = step.resolve() / name
    seed = plan.seed(config.seed)
    make_directory(directory, inside=RESOLVED)
    where = {"step": plan.step, "task": plan.task.id}
    place = {"prompt_index": plan.prompt_index, "sample_index": plan.sample_index, "seed": seed}
    write_facts(directory, {**where, **place, "queued_at": queued_at})
    started, began = time.time(), clocks.ran()
    phases = Phases()
    sandbox = SANDBOXES[config.tool_executor](directory / "sandbox")
    with phases.of("environment_setup"):
        await asyncio.sleep(config.faults.slow_sandbox)
        sandbox.prepare(plan.task.files)
    tools = Slowly(sandbox, config.faults.slow_tool) if config.faults.slow_tool else sandbox
    conversation = Conversation(
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{plan.task.instruction}\nWorking directory: {name}/sandbox"},
        ]
    )
    states: list[str] = []  # before each reply

    def options(turn: int) -> dict[str, Any]:
        """Return the seed of a turn."""
        # One seed per turn: a retried turn is the same turn on any replica.
        return {"seed": random.Random(f"{seed}:{turn}").getrandbits(31)}

    def heard(reply: Reply) -> str:
        """Note the state in which a reply was given."""
        states.append(state_of(conversation.messages))
        return ""

    reward, exception = 0.0, None
    try:
        line = await carrier.begin(name, directory.absolute(), config.trial_timeout)
        talk = Talk(
            chat_url=line.chat_url,
            headers=line.headers,
            request={
                "model": config.served_model,
                "temperature": config.temperature,
                "max_tokens": config.max_tokens,
            },
            max_turns=config.max_iterations,
            timeout=began + config.trial_timeout - clocks.ran(),
            tokens=line.tokens,
        )
        with phases.of("agent_execution"):
            try:
                await converse(session, talk, conversation, tools, options=options, heard=heard)
                await asyncio.sleep(config.faults.slow_last if plan.is_last(config) else 0.0)
            except TrialFailed:
                with contextlib.suppress(TrialFailed):  # the first one is the reason
                    await carrier.end(name, conversation)
                raise
            await carrier.end(name, conversation)
        with phases.of("verifier"):
            found = checks(plan.task, sandbox.root)
            write_checks(directory, found)
            reward = reward_of(found)
    except TrialFailed as error:
        exception = exception_info(error)
    seconds = clocks.ran() - began
    write_outcome(
        directory,
        conversation,
        agent="liverl-embedded",
        model=config.served_model,
        tools=sandbox.definitions,
        reward=reward,
        started=started,
        finished=started + seconds,
        exception=exception,
        facts={
            "task_name": plan.task.id,
            "step": plan.step,
            "policy_version": policy_version,
            **phases.spans,
        },
    )
    replies = conversation.replies
    prompt = replies[0].prompt_tokens if replies else 0
    end = replies[-1].prompt_tokens + len(replies[-1].token_ids) if replies else 0
    return TrialOutcome(
        sample=TrialSample(plan.prompt_index, reward, _samples(states, replies, trained=exception is None)),
        turns=len(replies),
        tool_calls=conversation.tool_calls,
        retries=conversation.retries,
        prompt_length=prompt,
        response_length=end - prompt,
        seconds=seconds,
        exception=f"{exception['exception_type']}: {exception['exception_message']}" if exception else None,
    )


def _samples(states: list[str], replies: list[Reply], *, trained: bool) -> list[TurnSample]:
    """The turns of a trial for the optimiser. ``trained``: False masks all tokens."""
    samples = []
    for state, reply in zip(states, replies, strict=True):
        # Only parsed tool calls are trained on: other turns have no action.
        bit = 1 if trained and reply.message.get("tool_calls") else 0
        samples.append(TurnSample(state, reply.token_ids, reply.logprobs, [bit] * len(reply.token_ids)))
    return samples


async def run_batch(
    session: aiohttp.ClientSession,
    config: TrainerConfig,
    plans: list[TrialPlan],
    policy_version: int,
    carrier: Carrier,
    on_finished: Callable[[TrialOutcome], None],
) -> list[TrialOutcome]:
    """Run all trials of a step, ``num_workers`` at a time; ``on_finished`` is called with each outcome."""
    free_workers, queued_at = asyncio.Semaphore(config.num_workers), time.time()

    async def one(plan: TrialPlan) -> TrialOutcome:
        """Run one trial within the limit of workers."""
        async with free_workers:
            outcome = await run_trial(session, config, plan, policy_version, carrier, queued_at)
        on_finished(outcome)
        return outcome

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(plan)) for plan in plans]
    return [task.result() for task in tasks]
