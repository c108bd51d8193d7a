"""One trial of verl's rollout: a row of the data set becomes a conversation through the proxy.

Knows nothing of verl, so that it runs and is tested without it; ``liverl.verl_runtime.agent_loop`` is the edge.
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

from liverl.agents.loop import Conversation, Reply, Talk, TrialFailed, converse, trial_headers
from liverl.agents.sandbox import Sandbox
from liverl.agents.settings import chat_url
from liverl.agents.tasks import Task, dataset, verify
from liverl.agents.trial_files import exception_info, write_config, write_outcome
from liverl.verl_runtime.tokens import Assembly, Row

logger = logging.getLogger(__name__)

_PROCESS = uuid.uuid4().hex  # of this agent-loop worker: a later attempt's trials have names of their own
_VALIDATION = frozenset(
    ("val", "valid", "validation", "test")
)  # values of extra_info.split, verl's convention
_TASKS: dict[str, Task] = {task.id: task for task in dataset()}


class LoopSettings(msgspec.Struct, frozen=True):
    """What a run's plan says. Lengths are tokens; ``prompt_length`` and ``response_length`` are verl's."""

    proxy_url: str
    run_dir: str
    attempt_dir: str
    served_model: str
    prompt_length: int
    response_length: int
    run_key_file: str | None = None  # its text is the bearer token; None = no Authorization header
    max_turns: int = 8
    max_tokens: int = 256  # of one turn
    trial_timeout: float = 2400.0  # seconds
    temperature: float = 1.0  # where verl names none

    def __post_init__(self) -> None:
        for name in ("prompt_length", "response_length", "max_turns", "max_tokens", "trial_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)}")


class Prompt(msgspec.Struct, frozen=True):
    """One session of one row of the data set.

    ``step`` is the trainer's global step when the row was handed out. The sync trainer counts it up before its
    first step and logs the batch under it, so it is also the step that the batch's metrics bear; a trainer
    that prefetches logs some rows under a later step. In a validation it is the last step that was finished.
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
        """The weights that the sync trainer's replicas hold: those of the last finished step."""
        return self.step if self.validation else self.step - 1


class Outcome(msgspec.Struct):
    """``row`` is None where nothing can be trained on: ``exception`` says why. Times are seconds."""

    name: str
    row: Row | None
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
    """The row that verl's agent-loop worker hands over, with the sampling parameters that it wants.

    Raises ValueError if the row names no task of ours, or comes from a worker that gives no step or session.
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
    # verl does not tell an agent loop whether it validates; the data set's split does.
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


async def run_trial(settings: LoopSettings, prompt: Prompt) -> Outcome:
    """Run one trial and write its directory. A failed trial has reward 0 and no row.

    Raises OSError if the run directory cannot be written or the run key cannot be read: no trial can run then.
    """
    name, task = prompt.name(), prompt.task
    trials = Path(settings.run_dir) / "trials"
    # A validation is no step of the training: its trials stand beside the steps, where readers expect
    # those of no step.
    directory = trials / name if prompt.validation else trials / f"step_{prompt.step:04d}" / name
    directory.mkdir(parents=True)
    split = {"validation_after_step" if prompt.validation else "step": prompt.step}
    place = {"uid": prompt.uid, "session": prompt.session, "attempt": Path(settings.attempt_dir).name}
    write_config(directory, {**split, "task": task.id, **place})
    sandbox = Sandbox(directory / "sandbox")
    sandbox.prepare(task.files)
    key = Path(settings.run_key_file).read_text().strip() if settings.run_key_file else None
    conversation, assembly = Conversation(messages=list(prompt.messages)), Assembly()
    talk = Talk(
        chat_url=chat_url(settings.proxy_url),
        headers=trial_headers(name, key),
        request={"model": settings.served_model, **prompt.sampling},
        max_turns=settings.max_turns,
        timeout=settings.trial_timeout,
    )
    started = time.time()
    reward, exception, row = 0.0, None, None
    try:
        async with aiohttp.ClientSession() as session:
            hooks = _Hooks(settings, assembly)
            await converse(session, talk, conversation, sandbox, options=hooks.options, heard=hooks.heard)
        reward = verify(task, sandbox.root)
        row = assembly.row(settings.response_length)
    except TrialFailed as error:
        exception = exception_info(error)
    write_outcome(
        directory,
        conversation,
        agent="liverl-verl",
        model=settings.served_model,
        reward=reward,
        started=started,
        finished=time.time(),
        exception=exception,
        facts={
            "task_name": task.id,
            **split,
            "policy_version": prompt.policy_version(),
            "divergences": [vars(divergence) for divergence in assembly.divergences],
            "turns_trained": assembly.turns_kept if row else 0,
            "tokens_trained": sum(row.mask) if row else 0,
        },
    )
    why = f"{exception['exception_type']}: {exception['exception_message']}" if exception else None
    if why:
        logger.warning("trial %s failed: %s", name, why)
    for found in assembly.divergences[:1]:
        logger.warning(
            "trial %s: the prompt of turn %d differs from the sampled tokens at token %d of %d; "
            "training uses %d of %d turns",
            name, found.turn + 1, found.position, found.expected, assembly.turns_kept, assembly.turns,
        )  # fmt: skip
    return Outcome(
        name=name,
        row=row,
        reward=reward,
        # As verl counts: the prompt, each assistant turn, and the observations between two of them.
        num_turns=max(2 * len(conversation.replies), 1),
        tool_calls=conversation.tool_calls,
        retries=conversation.retries,
        divergences=len(assembly.divergences),
        ended_by="exception" if exception else conversation.ended_by,
        asked_seconds=conversation.asked_seconds,
        tool_seconds=conversation.tool_seconds,
        exception=why,
    )


class _Hooks:
    """Puts the tokens together while the conversation goes on, and ends it where the row is full."""

    def __init__(self, settings: LoopSettings, assembly: Assembly) -> None:
        self._settings, self._assembly = settings, assembly

    def options(self, turn: int) -> dict[str, Any]:
        # No more than the row can still take. The observation since then is not known in tokens yet: what is
        # sampled past the row's end is cut from it.
        left = self._settings.response_length - self._assembly.response_length
        return {"max_tokens": min(self._settings.max_tokens, left)}

    def heard(self, reply: Reply) -> str:
        settings, assembly = self._settings, self._assembly
        if not reply.prompt_token_ids:
            raise TrialFailed("NoTokensError", "the response has no prompt_token_ids")
        # A reply without a tool call (a wrong tool parser makes nothing but such) is trained on, as in verl's
        # own tool agent: the ids were sampled, and reward 0 speaks against them. The embedded trainer masks
        # them instead, because the states of its policy are tool choices and such a reply has none.
        assembly.add(reply.prompt_token_ids, reply.token_ids, reply.logprobs)
        # verl cuts a longer prompt from the left before it samples. Here the engine has sampled from the whole
        # of it, so a row with a shorter one would not be what was sampled.
        if assembly.prompt_length > settings.prompt_length:
            raise TrialFailed(
                "PromptTooLongError",
                f"the prompt has {assembly.prompt_length} tokens, rollout.prompt_length is {settings.prompt_length}",
            )
        return "response_length" if assembly.response_length >= settings.response_length else ""
