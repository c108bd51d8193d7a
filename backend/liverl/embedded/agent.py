"""One trial: a multi-turn conversation through the proxy, its tool calls executed in the trial's sandbox."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import aiohttp
import msgspec

from liverl.embedded.grpo import TurnSample
from liverl.embedded.policy import state_of
from liverl.embedded.sandbox import Sandbox
from liverl.embedded.settings import TrainerConfig
from liverl.embedded.tools import SUBMIT, TOOLS

SYSTEM = "You are an agent that works on files. Use one tool a turn and call submit when the work is done."
_BACKOFF_START, _BACKOFF_CAP = 0.1, 2.0  # seconds between two tries of one turn, doubled each time
_RETRIED = frozenset(
    (408, 409, 425, 429)
)  # besides every 5xx: what a proxy answers while it restarts or is full
_ERROR_TEXT = 300  # characters of a refusal that are kept


class TrialFailed(Exception):
    """The trial cannot go on; ``kind`` names why, as exception_info does."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Reply(msgspec.Struct):
    """What the trainer needs of one reply."""

    message: dict[str, Any]
    finish_reason: str | None
    token_ids: list[int]
    logprobs: list[float]
    prompt_tokens: int


class Conversation(msgspec.Struct):
    """A trial as it goes on."""

    messages: list[dict[str, Any]]
    samples: list[TurnSample] = []
    replies: list[Reply] = []
    tool_calls: int = 0
    retries: int = 0
    ended_by: str = ""  # submit, no_tool_call, max_iterations


def read_reply(body: bytes) -> Reply:
    """The reply in a chat completion; LiteLLM moves vLLM's ``token_ids`` into provider_specific_fields.

    Raises TrialFailed if the body lacks what training needs, ValueError if it is no chat completion at all.
    """
    try:
        answer = msgspec.json.decode(body)
        choice = answer["choices"][0]
        message = choice["message"]
        ids = choice.get("token_ids")
        for holder in (choice, message):
            if ids is None:
                ids = (holder.get("provider_specific_fields") or {}).get("token_ids")
        content = (choice.get("logprobs") or {}).get("content") or []
        logprobs = [float(entry["logprob"]) for entry in content]
        prompt_tokens = int(answer["usage"]["prompt_tokens"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"not a chat completion: {type(error).__name__}: {error}") from error
    if not ids or len(ids) != len(logprobs):
        raise TrialFailed(
            "NoTokensError", f"the reply carries {len(ids or ())} token ids and {len(logprobs)} logprobs"
        )
    kept = {key: message[key] for key in ("role", "content", "tool_calls") if message.get(key)}
    return Reply({"role": "assistant", **kept}, choice.get("finish_reason"), ids, logprobs, prompt_tokens)


async def converse(
    session: aiohttp.ClientSession,
    config: TrainerConfig,
    trial: str,
    conversation: Conversation,
    sandbox: Sandbox,
    headers: dict[str, str],
    seed: str,
) -> None:
    """Run the turns of one trial, growing ``conversation``. Raises TrialFailed."""
    deadline = time.monotonic() + config.trial_timeout
    for turn in range(config.max_iterations):
        request = {
            "model": config.served_model,
            "messages": conversation.messages,
            "tools": list(TOOLS),
            "tool_choice": "auto",
            "temperature": config.temperature,
            "max_tokens": config.max_tokens,
            "logprobs": True,
            "return_token_ids": True,
            # One seed per turn: a turn that is sent again is the same turn, whichever replica answers.
            "seed": random.Random(f"{seed}:{turn}").getrandbits(31),
        }
        reply = await _ask(session, config, request, headers, deadline, conversation)
        calls = reply.message.get("tool_calls") or []
        conversation.samples.append(
            TurnSample(
                state=state_of(conversation.messages),
                tokens=reply.token_ids,
                old_logprobs=reply.logprobs,
                # Only what was read as a call can be trained on: an unread turn has no action.
                mask=[1 if calls else 0] * len(reply.token_ids),
            )
        )
        conversation.replies.append(reply)
        conversation.messages.append(reply.message)
        if not calls:
            conversation.ended_by = "no_tool_call"
            return
        conversation.tool_calls += len(calls)
        for call in calls:
            name, observation = _execute(sandbox, call)
            conversation.messages.append(
                {"role": "tool", "tool_call_id": call.get("id", ""), "content": observation}
            )
            if name == SUBMIT:
                conversation.ended_by = "submit"
        if conversation.ended_by:
            return
    conversation.ended_by = "max_iterations"


def _execute(sandbox: Sandbox, call: dict[str, Any]) -> tuple[str, str]:
    function = call.get("function") or {}
    name = str(function.get("name"))
    try:
        arguments = msgspec.json.decode(function.get("arguments") or "{}")
    except ValueError as error:
        return name, f"error: the arguments are not JSON: {error}"
    if not isinstance(arguments, dict):
        return name, "error: the arguments are not an object"
    return name, sandbox.call(name, arguments)


async def _ask(
    session: aiohttp.ClientSession,
    config: TrainerConfig,
    request: dict[str, Any],
    headers: dict[str, str],
    deadline: float,
    conversation: Conversation,
) -> Reply:
    """One turn, tried again with backoff while the proxy is away, until the trial's time is up."""
    body = msgspec.json.encode(request)
    wait, why = _BACKOFF_START, "no try was made"
    while (left := deadline - time.monotonic()) > 0:
        try:
            async with session.post(
                config.chat_url, data=body, headers=headers, timeout=aiohttp.ClientTimeout(total=left)
            ) as response:
                answer = await response.read()
                if response.status == 200:
                    return read_reply(answer)
                why = f"HTTP {response.status}: {answer[:_ERROR_TEXT].decode(errors='replace')}"
                if response.status < 500 and response.status not in _RETRIED:
                    raise TrialFailed("ProxyRefusedError", why)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
        conversation.retries += 1
        await asyncio.sleep(min(wait * random.uniform(0.5, 1.0), max(deadline - time.monotonic(), 0)))
        wait = min(wait * 2, _BACKOFF_CAP)
    raise TrialFailed("TrialTimeoutError", f"no time left after {config.trial_timeout:g} s; last: {why}")
