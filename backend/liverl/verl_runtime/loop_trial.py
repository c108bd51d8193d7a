"""One trial of verl's rollout: turns a row of the data set into a conversation with the model.

Independent of verl, so that it runs and is tested without it; ``liverl.verl_runtime.agent_loop`` adapts it.
"""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from liverl.agents.loop import Conversation, Talk, TrialFailed, converse
from liverl.agents.sandbox import Sandbox
from liverl.agents.tasks import Task, dataset, verify
from liverl.agents.trial_files import exception_info, write_config, write_outcome
from liverl.util.modes import DIRECTORY, make_directory
from liverl.verl_runtime.carriers import Carrier, Lengths
from liverl.verl_runtime.tokens import Row

logger = logging.getLogger(__name__)

_PROCESS = uuid.uuid4().hex  # identifies this agent-loop worker: trial names of different attempts differ
# Values of extra_info.split, verl's convention.
_VALIDATION = frozenset(("val", "valid", "validation", "test"))
_TASKS: dict[str, Task] = {task.id: task for task in dataset()}


class LoopSettings(msgspec.Struct, frozen=True):
    """Settings from the run's plan. Lengths are tokens; ``prompt_length`` and ``response_length`` are verl's."""

    run_dir: str
    attempt_dir: str
    served_model: str
    prompt_length: int
    response_length: int
    max_turns: int = 8
    max_tokens: int = 256  # per turn
    trial_timeout: float = 2400.0  # seconds
    temperature: float = 1.0  # used if verl specifies none

    @property
    def lengths(self) -> Lengths:
        """The limits of a row."""
        return Lengths(self.prompt_length, self.response_length, self.max_tokens)

    def __post_init__(self) -> None:
        for name in ("prompt_length", "response_length", "max_turns", "max_tokens", "trial_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)}")


class Prompt(msgspec.Struct, frozen=True):
    """One session of one row of the data set.

    ``step`` is the trainer's global step when the row was handed out. The sync trainer increments it before
    its first step and logs the batch under it, so it matches the batch's metrics; a trainer that prefetches
    logs some rows under a later step. In a validation it is the last completed step.
    """

    task: Task
    messages: list[dict[str, Any]]
    step: int
    validation: bool
    uid: str
    session: int
    sampling: dict[str, Any]

    def name(self) -> str:
        """``<task>-<8 hex>``: ``uid`` is new for each row of each step, ``session`` for each of its trials."""
        text = f"{_PROCESS}:{self.step}:{self.uid}:{self.session}"
        return f"{self.task.id}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"

    def policy_version(self) -> int:
        """Version of the weights in the sync trainer's replicas: the last completed step."""
        return self.step if self.validation else self.step - 1


class Outcome(msgspec.Struct):
    """Result of a trial. ``rows``: that of the main conversation last; empty if nothing can be trained on, and
    ``exception`` says why. Times are seconds."""

    name: str
    rows: list[Row]
    reward: float
    num_turns: int
    tool_calls: int
    retries: int
    divergences: int
    ended_by: str
    asked_seconds: float
    tool_seconds: float
    exception: str | None


def read_prompt(kwargs: Mapping[str, Any], sampling: Mapping[str, Any], fallback: float) -> Prompt:
    """Parse the row handed over by verl's agent-loop worker, and its sampling parameters.

    Raises:
        ValueError: the row names no known task, or the worker passed no step or session.
    """
    missing = {"raw_prompt", "extra_info", "global_steps", "uid", "session_id"} - kwargs.keys()
    if missing:
        raise ValueError(
            f"the agent-loop worker did not pass {', '.join(sorted(missing))}; verl's v1 trainer passes them"
        )
    extra = kwargs["extra_info"] or {}
    task = _TASKS.get(str(extra.get("task_id")))
    if task is None:
        raise ValueError(f"extra_info.task_id is {extra.get('task_id')!r}: not a task of liverl.agents.tasks")
    # verl does not pass whether this is a validation; the split in the data set tells.
    wanted: dict[str, Any] = {"temperature": float(sampling.get("temperature", fallback))}
    if float(sampling.get("top_p", 1.0)) != 1.0:
        wanted["top_p"] = float(sampling["top_p"])
    if int(sampling.get("top_k", -1)) > 0:
        wanted["top_k"] = int(sampling["top_k"])
    return Prompt(
        task=task,
        messages=[dict(message) for message in kwargs["raw_prompt"]],
        step=int(kwargs["global_steps"]),
        validation=extra.get("split") in _VALIDATION,
        uid=str(kwargs["uid"]),
        session=int(kwargs["session_id"]),
        sampling=wanted,
    )


async def run_trial(settings: LoopSettings, prompt: Prompt, carrier: Carrier) -> Outcome:
    """Run one trial and write its directory. A failed trial has reward 0 and no row.

    Raises:
        OSError: the run directory cannot be written or a key cannot be read, so that no trial can run.
    """
    name, task = prompt.name(), prompt.task
    trials = Path(settings.run_dir) / "trials"
    # A validation is not a training step: its trials are stored next to the steps, where readers expect
    # trials without a step.
    directory = trials / name if prompt.validation else trials / f"step_{prompt.step:04d}" / name
    make_directory(directory.parent)
    directory.mkdir(mode=DIRECTORY)
    split = {"validation_after_step" if prompt.validation else "step": prompt.step}
    place = {"uid": prompt.uid, "session": prompt.session, "attempt": Path(settings.attempt_dir).name}
    write_config(directory, {**split, "task": task.id, **place})
    sandbox = Sandbox(directory / "sandbox")
    sandbox.prepare(task.files)
    conversation = Conversation(messages=list(prompt.messages))
    started = time.time()
    reward, exception, rows = 0.0, None, []
    try:
        await _converse(settings, prompt, carrier, directory, conversation, sandbox)
        reward = verify(task, sandbox.root)
        rows = await carrier.rows()
    except TrialFailed as error:
        reward, exception = 0.0, exception_info(error)
        await carrier.abandon()
    write_outcome(
        directory,
        conversation,
        agent="liverl-verl",
        model=settings.served_model,
        tools=sandbox.definitions,
        reward=reward,
        started=started,
        finished=time.time(),
        exception=exception,
        facts={
            "task_name": task.id,
            **split,
            "policy_version": prompt.policy_version(),
            "divergences": [vars(divergence) for divergence in carrier.divergences],
            "turns_trained": sum(row.turns for row in rows),
            "tokens_trained": sum(sum(row.mask) for row in rows),
        },
    )
    why = f"{exception['exception_type']}: {exception['exception_message']}" if exception else None
    if why:
        logger.warning("trial %s failed: %s", name, why)
    for mismatch in carrier.divergences[:1]:
        logger.warning(
            "trial %s: the prompt of turn %d differs from the sampled tokens at token %d of %d; "
            "training uses %d of %d turns",
            name, mismatch.turn + 1, mismatch.position, mismatch.expected,
            sum(row.turns for row in rows), len(conversation.replies),
        )  # fmt: skip
    return Outcome(
        name=name,
        rows=rows,
        reward=reward,
        # Counted as in verl: the prompt, each assistant turn, and the observations between two turns.
        num_turns=max(2 * len(conversation.replies), 1),
        tool_calls=conversation.tool_calls,
        retries=conversation.retries,
        divergences=len(carrier.divergences),
        ended_by="exception" if exception else conversation.ended_by,
        asked_seconds=conversation.asked_seconds,
        tool_seconds=conversation.tool_seconds,
        exception=why,
    )


async def _converse(
    settings: LoopSettings,
    prompt: Prompt,
    carrier: Carrier,
    directory: Path,
    conversation: Conversation,
    sandbox: Sandbox,
) -> None:
    """Raises:
    TrialFailed: the trial cannot continue.
    """
    deadline = time.time() + settings.trial_timeout
    line = await carrier.begin(prompt.name(), directory, prompt.sampling, settings.max_turns, deadline)
    talk = Talk(
        chat_url=line.chat_url,
        headers=line.headers,
        request={"model": settings.served_model, **prompt.sampling},
        max_turns=settings.max_turns,
        timeout=settings.trial_timeout,
        tokens=line.tokens,
    )
    async with aiohttp.ClientSession() as http:
        await converse(http, talk, conversation, sandbox, options=carrier.options, heard=carrier.heard)
