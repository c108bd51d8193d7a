"""An agent that is a class of the user's: ``async run(task, chat, dir) -> float | None``."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from liverl.agents.loop import REFUSED, Conversation, Talk, TrialFailed, ask
from liverl.agents.user_fields import shorter, without_sampling
from liverl.util.checked_path import RESOLVED
from liverl.util.deadline import within
from liverl.util.modes import new_directory
from liverl.verl_runtime.carriers import Carrier
from liverl.verl_runtime.kinds.base import Result, Trial
from liverl.verl_runtime.kinds.rewards import as_reward
from liverl.verl_runtime.kinds.talking import talk_of
from liverl.verl_runtime.stalls import STALLS


async def python(trial: Trial, carrier: Carrier, conversation: Conversation) -> Result:
    """Run ``agent.python`` in this process. An exception of the agent's fails the trial by its name."""
    work = trial.directory / "work"
    new_directory(work, inside=RESOLVED)
    conversation.messages.clear()  # the agent decides what it says
    async with aiohttp.ClientSession() as http:
        chat = Chat(http, talk_of(trial), carrier, conversation)
        try:
            value, error = await within(_result(trial, chat, work), trial.left(), trial.held_up)
        except TimeoutError:
            words = f"the agent took longer than {max(0.0, trial.deadline - trial.began):.0f} s"
            raise TrialFailed("AgentTimeoutError", words, "timeout", same="timeout") from None
    if isinstance(error, TrialFailed):
        if error.kind == REFUSED and error.cause != "limit":
            error.cause = "exit"  # the agent has chosen what it asks for
        raise error
    if error is not None:
        raise TrialFailed(type(error).__name__, str(error), "exit") from error
    conversation.ended_by = conversation.ended_by or "return"
    return Result(as_reward(value, f"the result of {trial.agent.python}"))


async def _result(trial: Trial, chat: Chat, work: Path) -> tuple[Any, BaseException | None]:
    """What the agent returns, or what it raises: as a value, because its own TimeoutError, CancelledError or SystemExit
    would otherwise be taken for the trial's."""
    STALLS.of(trial.name)  # it may block
    try:
        agent = found(trial.agent.python)()
        return await agent.run({"messages": trial.messages, "row": trial.row}, chat, work), None
    except (Exception, asyncio.CancelledError, SystemExit) as error:  # noqa: BLE001 - the agent is the user's
        return None, error


def found(name: str) -> Any:
    """The class that ``module:Class`` names.

    Raises:
        TrialFailed: there is none, or it has no coroutine method ``run``.
    """
    module, _, attribute = name.partition(":")
    try:
        value = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise TrialFailed("AgentNotFoundError", f"agent.python {name}: {error}") from error
    if not inspect.iscoroutinefunction(getattr(value, "run", None)):
        raise TrialFailed("AgentNotFoundError", f"agent.python {name} has no method `async def run`")
    return value


class Chat:
    """What the agent calls to get a reply: ``message = await chat(messages, tools=[...])``."""

    def __init__(
        self, http: aiohttp.ClientSession, talk: Talk, carrier: Carrier, conversation: Conversation
    ) -> None:
        self._http, self._talk, self._carrier, self._conversation = http, talk, carrier, conversation
        self._left = talk.timer()

    async def __call__(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = (), **fields: Any
    ) -> dict[str, Any]:
        """The model's message: ``role``, ``content`` ("" if it has none), and ``tool_calls`` if it has any. ``tools``:
        OpenAI schemas; ``fields``: further fields of the request. Model and sampling are the trainer's: a temperature
        among them, or any other such parameter, has no effect and is noted in the trial's result.

        Raises:
            TrialFailed: the trial cannot continue, or has had all its turns.
        """
        conversation = self._conversation
        turn = len(conversation.replies)
        if turn >= self._talk.max_turns:
            conversation.ended_by = "max_iterations"
            words = f"the trial may have {self._talk.max_turns} turns"
            raise TrialFailed("TooManyTurnsError", words, "limit")
        own, overridden = without_sampling(fields, self._talk.request)
        conversation.overridden = {**overridden, **conversation.overridden}  # the first of each
        asked = shorter(own, self._carrier.options(turn))
        reply = await ask(
            self._http, self._talk, conversation, self._left, list(messages), list(tools), asked
        )
        ended = self._carrier.heard(reply)
        conversation.replies.append(reply)
        conversation.tool_calls += len(reply.message.get("tool_calls") or ())
        conversation.messages[:] = [*messages, reply.message]
        if ended:
            conversation.ended_by = ended
            raise TrialFailed("ResponseTooLongError", f"nothing more can be trained: {ended}", "limit")
        return {"content": "", **reply.message}
