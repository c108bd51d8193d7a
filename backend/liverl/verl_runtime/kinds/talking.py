"""Agents that only talk: the built-in tasks, chats of one reply, and conversations with the run's tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from liverl.agents.checks import write_checks
from liverl.agents.loop import Conversation, Talk, Tools, converse
from liverl.agents.sandbox import Sandbox
from liverl.agents.tasks import TASKS, Task, checks, reward_of
from liverl.util import clocks
from liverl.verl_runtime.carriers import Carrier
from liverl.verl_runtime.kinds.base import Result, Trial

SANDBOX = "sandbox"  # in a trial's directory


class NoTools:
    """Offers nothing: the trial ends with the first reply."""

    definitions: Sequence[dict[str, Any]] = ()
    last = ""

    async def answer(self, name: str, arguments: dict[str, Any]) -> str:
        """See ``Tools.answer``. A model may write a call although it was offered none."""
        return f"error: there is no tool {name}"

    def not_called(self, name: str) -> None:
        """See ``Tools.not_called``."""


async def task(trial: Trial, carrier: Carrier, conversation: Conversation) -> Result:
    """A built-in task: files in a sandbox."""
    sandbox = Sandbox(trial.directory / SANDBOX)
    sandbox.prepare(_task_of(trial).files)
    await _talk(trial, carrier, conversation, sandbox)
    return Result()


async def verify_task(trial: Trial, conversation: Conversation) -> float | None:
    """The reward of a built-in task, by the files of its sandbox."""
    found = checks(_task_of(trial), Sandbox(trial.directory / SANDBOX).root)
    write_checks(trial.directory, found)
    return reward_of(found)


def _task_of(trial: Trial) -> Task:
    return TASKS[str(trial.row["extra_info"]["task_id"])]


async def chat(trial: Trial, carrier: Carrier, conversation: Conversation) -> Result:
    """One reply to the row's messages."""
    await _talk(trial, carrier, conversation, NoTools())
    return Result()


async def tools(trial: Trial, carrier: Carrier, conversation: Conversation) -> Result:
    """A conversation with the run's tools, until a reply calls none."""
    if trial.tools is not None:
        trial.tools.begin(conversation.messages)
    await _talk(trial, carrier, conversation, trial.tools or NoTools())
    return Result()


def talk_of(trial: Trial) -> Talk:
    """How the turns of a trial are requested."""
    return Talk(
        chat_url=trial.line.chat_url,
        headers=trial.line.headers,
        request=trial.request,
        max_turns=trial.max_turns,
        timeout=max(0.0, trial.deadline - clocks.ran()),
        held_up=trial.held_up,
        tokens=trial.line.tokens,
    )


async def _talk(trial: Trial, carrier: Carrier, conversation: Conversation, offered: Tools) -> None:
    talk = talk_of(trial)
    if not offered.definitions:
        talk = msgspec.structs.replace(talk, max_turns=1)
    async with aiohttp.ClientSession() as http:
        await converse(http, talk, conversation, offered, options=carrier.options, heard=carrier.heard)
