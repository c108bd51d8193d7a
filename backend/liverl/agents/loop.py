"""A multi-turn conversation of an agent with the model, through what carries the trial.

Shared by the embedded trainer and verl's agent loop, which may run Python 3.10 with few packages: this module
imports only the standard library, msgspec, aiohttp, and modules of liverl with the same restriction.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import aiohttp
import msgspec

from liverl.agents.endings import Cause
from liverl.sessions.sampling import OVERFLOW, TIME_OVER
from liverl.util.deadline import not_held_up
from liverl.util.decode import decode_json
from liverl.util.unicode_text import encode_json

SYSTEM = "You are an agent that works on files. Use one tool a turn and call submit when the work is done."
# Seconds between attempts of one turn: first and maximum delay, doubled each time.
_BACKOFF_START, _BACKOFF_CAP = 0.1, 2.0
# In addition to all 5xx: responses of a proxy that is restarting or full.
_RETRIED = frozenset((408, 409, 425, 429))
_ERROR_TEXT = 300  # maximum characters kept of an error response
REFUSED = "ProxyRefusedError"  # kind of the failure of a request that must not be repeated
# Parts of a 400: vLLM's, which LiteLLM wraps in text of its own, and that of the sessions.
_CONTEXT_FULL = ("maximum context length", OVERFLOW)


class TrialFailed(Exception):
    """The trial cannot continue; ``kind`` is the exception type for ``exception_info``, ``cause`` who caused it as far
    as is known here, ``same`` what equal endings have in common ("": ``kind``), ``again`` whether another attempt could
    end otherwise."""

    def __init__(
        self,
        kind: str,
        message: str,
        cause: Cause = "infrastructure",
        *,
        same: str = "",
        again: bool = True,
    ) -> None:
        super().__init__(message)
        self.kind, self.cause, self.same, self.again = kind, cause, same or kind, again


class Tools(Protocol):
    """What an agent offers to the model, and how it answers calls."""

    @property
    def definitions(self) -> Sequence[dict[str, Any]]:
        """OpenAI schemas; empty if there are no tools."""

    @property
    def last(self) -> str:
        """The name of the tool that ends the trial; "" if none does."""

    async def answer(self, name: str, arguments: dict[str, Any]) -> str:
        """The result of one call; a call that cannot be made has a text that says why."""

    def not_called(self, name: str) -> None:
        """The arguments of a call are no JSON object: the tool is not called."""


class Reply(msgspec.Struct):
    """What a trainer needs of one reply. ``prompt_token_ids`` is None if the response has none. Through a session the
    tokens are empty until the session has ended."""

    message: dict[str, Any]
    finish_reason: str | None
    token_ids: list[int]
    logprobs: list[float]
    prompt_tokens: int
    prompt_token_ids: list[int] | None = None


class Talk(msgspec.Struct, frozen=True):
    """How turns are requested. ``request`` holds the fields common to all turns: model, sampling."""

    chat_url: str
    headers: dict[str, str]
    request: dict[str, Any]
    max_turns: int
    timeout: float  # seconds for the whole trial
    # Seconds by which something that is not the trial's has held it up since: they are not of its time
    held_up: Callable[[], float] = not_held_up
    # Whether replies have the tokens that training needs; a session keeps them until its end
    tokens: bool = True

    def timer(self) -> Callable[[], float]:
        """From now on: how many seconds of the trial's time are left."""
        end = time.monotonic() + self.timeout
        return lambda: end + self.held_up() - time.monotonic()


class Conversation(msgspec.Struct):
    """State of a trial while it runs."""

    messages: list[dict[str, Any]]
    replies: list[Reply] = []
    tool_calls: int = 0
    retries: int = 0
    # The name of the tool that ends a trial, no_tool_call, reply (no tools were offered), max_iterations,
    # context_length, or the result of ``heard``.
    ended_by: str = ""
    asked_seconds: float = 0.0  # seconds spent waiting for replies, retries included
    # Those of them in which the proxy refused for the moment, or did not answer at all
    waited_seconds: float = 0.0
    tool_seconds: float = 0.0
    # Sampling parameters that the agent asked for and did not get -> the first value of each.
    overridden: dict[str, Any] = {}


def trial_headers(trial: str, run_key: str | None) -> dict[str, str]:
    """Return the headers by which the proxy identifies trial and run."""
    headers = {"Content-Type": "application/json", "x-litellm-routing-key": trial}
    if run_key is not None:
        headers["Authorization"] = f"Bearer {run_key}"
    return headers


def read_reply(body: bytes, *, tokens: bool = True) -> Reply:
    """Parse a chat completion. LiteLLM moves vLLM's ``token_ids`` to ``provider_specific_fields``. ``tokens``: whether
    it must have them.

    Raises:
        TrialFailed: the body lacks what training needs.
        ValueError: it is not a chat completion.
    """
    try:
        answer = decode_json(body)
        choice = answer["choices"][0]
        message = choice["message"]
        ids = _found("token_ids", choice, message)
        prompt_ids = _found("prompt_token_ids", answer, choice, message)
        content = (choice.get("logprobs") or {}).get("content") or []
        logprobs = [float(entry["logprob"]) for entry in content]
        prompt_tokens = int(answer["usage"]["prompt_tokens"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"not a chat completion: {type(error).__name__}: {error}") from error
    if tokens and (not ids or len(ids) != len(logprobs)):
        raise TrialFailed(
            "NoTokensError",
            f"the response has {len(ids or ())} token ids and {len(logprobs)} logprobs; "
            "training needs one logprob for each token id",
        )
    kept = {key: message[key] for key in ("role", "content", "tool_calls") if message.get(key)}
    return Reply(
        {"role": "assistant", **kept},
        choice.get("finish_reason"),
        ids or [],
        logprobs,
        prompt_tokens,
        prompt_ids,
    )


def _found(key: str, *holders: dict[str, Any]) -> list[int] | None:
    for holder in holders:
        for place in (holder, holder.get("provider_specific_fields") or {}):
            if place.get(key) is not None:
                return list(place[key])
    return None


async def converse(
    session: aiohttp.ClientSession,
    talk: Talk,
    conversation: Conversation,
    tools: Tools,
    *,
    options: Callable[[int], dict[str, Any]],
    heard: Callable[[Reply], str],
) -> None:
    """Run the turns of one trial and extend ``conversation`` with them.

    ``options(turn)`` returns additional request fields for a turn. ``heard(reply)`` is called before the
    reply is added to the messages; a non-empty result ends the trial with that reason.

    Raises:
        TrialFailed: the trial cannot continue.
    """
    left = talk.timer()
    for turn in range(talk.max_turns):
        asked = options(turn)
        try:
            reply = await ask(
                session, talk, conversation, left, conversation.messages, tools.definitions, asked
            )
        except ContextFull:
            if not conversation.replies:
                raise
            conversation.ended_by = "context_length"  # ended by its own length: the earlier turns count
            return
        ended = heard(reply)
        conversation.replies.append(reply)
        conversation.messages.append(reply.message)
        calls = reply.message.get("tool_calls") or []
        if ended or not calls:
            finished = "no_tool_call" if tools.definitions else "reply"
            cut = reply.finish_reason == "length"  # what it would have said, or called, is not known
            conversation.ended_by = ended or ("response_length" if cut else finished)
            return
        began = time.monotonic()
        for call in calls:
            name, observation = await _execute(tools, call)
            conversation.messages.append(
                {"role": "tool", "tool_call_id": call.get("id", ""), "content": observation}
            )
            if name == tools.last:
                conversation.ended_by = name
        conversation.tool_calls += len(calls)
        conversation.tool_seconds += time.monotonic() - began
        if conversation.ended_by:
            return
    conversation.ended_by = "max_iterations"


class ContextFull(TrialFailed):
    """The engine rejected a prompt that is too long."""


async def ask(
    session: aiohttp.ClientSession,
    talk: Talk,
    conversation: Conversation,
    left: Callable[[], float],
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]],
    options: dict[str, Any],
) -> Reply:
    """One turn: the reply to ``messages``. ``left``: seconds of the trial's time, see ``Talk.timer``; ``options``:
    further fields of the request, which do not replace those of ``talk``.

    Raises:
        ContextFull: the prompt is too long.
        TrialFailed: there is no usable reply.
    """
    request = {
        **({"tool_choice": "auto"} if tools else {}),
        **options,
        **talk.request,
        "messages": messages,
        **({"tools": list(tools)} if tools else {}),
        **({"logprobs": True, "return_token_ids": True} if talk.tokens else {}),
    }
    began = time.monotonic()
    try:
        return await _ask(session, talk, request, left, conversation)
    finally:
        conversation.asked_seconds += time.monotonic() - began


async def _execute(tools: Tools, call: dict[str, Any]) -> tuple[str, str]:
    function = call.get("function") or {}
    name = str(function.get("name"))
    try:
        arguments = decode_json(function.get("arguments") or "{}")
    except ValueError as error:
        tools.not_called(name)
        return name, f"error: the arguments are not JSON: {error}"
    if not isinstance(arguments, dict):
        tools.not_called(name)
        return name, "error: the arguments are not an object"
    return name, await tools.answer(name, arguments)


async def _ask(
    session: aiohttp.ClientSession,
    talk: Talk,
    request: dict[str, Any],
    left: Callable[[], float],
    conversation: Conversation,
) -> Reply:
    """Request one turn; retry with backoff while the proxy is unavailable, until the trial's timeout."""
    body = encode_json(request)
    wait, why, cut = _BACKOFF_START, "", ""
    while (rest := left()) > 0:
        began = time.monotonic()
        try:
            async with session.post(
                talk.chat_url, data=body, headers=talk.headers, timeout=aiohttp.ClientTimeout(total=rest)
            ) as response:
                answer = await response.read()
                if response.status == 200:
                    return read_reply(answer, tokens=talk.tokens)
                text = answer.decode(errors="replace")
                why = f"HTTP {response.status}: {text[:_ERROR_TEXT]}"
                if response.status == 410 and TIME_OVER in text:
                    break  # the session's clock was the first one to say so
                if response.status < 500 and response.status not in _RETRIED:
                    full = any(words in text for words in _CONTEXT_FULL)
                    failure = ContextFull if full else TrialFailed
                    raise failure(REFUSED, why, "limit" if full else "infrastructure")
        except asyncio.TimeoutError as error:  # noqa: UP041 (3.10)
            cut = f"no response in the last {rest:.1f} s" + (f" ({error})" if str(error) else "")
            began = time.monotonic()  # the model may have been writing all the time
        except (aiohttp.ClientError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
        conversation.retries += 1
        await asyncio.sleep(min(wait * random.uniform(0.5, 1.0), max(left(), 0)))
        wait = min(wait * 2, _BACKOFF_CAP)
        conversation.waited_seconds += time.monotonic() - began
    reason = "; ".join(
        filter(None, (f"no time left after {round(talk.timeout, 1):g} s", why and f"last: {why}", cut))
    )
    raise TrialFailed("TrialTimeoutError", reason, "timeout", same="timeout")
