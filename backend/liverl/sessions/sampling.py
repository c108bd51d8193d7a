"""How many tokens a turn may have, and with which parameters it is sampled. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from liverl.sessions.messages import Chat, openai_message
from liverl.sessions.shared_tools import SHARED
from liverl.util.http_limits import too_many_letters
from liverl.util.json_limits import letters_of

OVERFLOW = "exceed context limit!"  # begins the message of a prompt that is too long; agents look for it
# "prompt is too long: N tokens > M maximum" behind it is what Anthropic's API says: Claude Code then compacts.
_HAD = "has had"
TIME_OVER = "the time of session"  # begins the message of a request that comes behind the deadline; agents look for it

# Every parameter that shapes the distribution of a sampled token, with the value at which it changes nothing, in vLLM's
# and SGLang's names. All are sent: an engine applies the model's generation_config.json to whatever a request leaves
# out.
NEUTRAL: Mapping[str, float | int] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,  # no limit
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the trainer asks of one session.

    ``decides``: whose sampling parameters count. ``trainer``: those in ``sampling``, and ``NEUTRAL`` for what it leaves
    out, whatever the client asks for; a seed is never sent, with which every trial of a group would draw the same
    reply. ``client``: the client's, where ``sampling`` does not replace them. In both cases a reply has at most as many
    tokens as the client asks for, and ends at its stop texts.

    ``max_turns``: replies of the main conversation; ``max_response_tokens``: tokens of its row behind the prompt;
    ``max_consecutive_no_tool``: replies in sequence without a tool call, 0 for no limit; ``seconds``: that the
    session has from when it is opened. ``deadline``: Unix seconds of its end, from clients of earlier versions and for
    services of earlier versions; without meaning beside ``seconds``.
    """

    sampling: dict[str, Any] = msgspec.field(default_factory=dict)
    max_turns: int | None = None
    max_response_tokens: int | None = None
    disable_tools: bool = False
    max_consecutive_no_tool: int = 0
    deadline: float | None = None
    decides: Literal["trainer", "client"] = "trainer"
    seconds: float | None = None


# Letters of a byte of a request, at most: of a call's arguments ``1e15`` becomes 1000000000000000.0.
_OF_BYTE = 8
_OF_MESSAGE = 16  # letters of a message or a call beside its texts, at most: its role or type


class Overflow(ValueError):
    """The prompt leaves no room for a reply. ``row``: in its row; else in the model's context."""

    def __init__(self, message: str, *, row: bool = False) -> None:
        super().__init__(message)
        self.row = row


def turns_over(session: str, turns: int) -> str:
    """What a request behind the last turn of a trial is told."""
    return f"session {session} {_HAD} its {turns} turns"


def replies_over(session: str, replies: int) -> str:
    """What a request is told after the most replies in sequence that called no tool."""
    return f"session {session} {_HAD} {replies} replies without a tool call"


def at_limit(message: str) -> bool:
    """Whether a refusal says that a trial has used up a limit of its own (turns, tokens, context, time): that is its
    end, which its result tells, and no fault of the request."""
    if message.startswith((OVERFLOW, f"{TIME_OVER} ")):
        return True
    begin, had, rest = message.partition(f" {_HAD} ")
    return bool(had) and begin.startswith("session ") and rest.endswith((" turns", " without a tool call"))


def require_short(chat: Chat, context: int) -> None:
    """Check the letters of a request before a replica renders it, which takes long for a prompt of megabytes.
    ``context``: tokens of the model's context.

    Raises:
        Overflow: they cannot fit.
    """
    if chat.size and too_many_letters(chat.size * _OF_BYTE, context) is None:
        return
    if too_many_letters(_most_letters(chat), context) is None:
        return
    letters = letters_of(
        {"messages": [openai_message(each) for each in chat.messages], "tools": list(chat.tools)}
    )
    why = too_many_letters(letters, context)
    if why is not None:
        raise Overflow(f"{OVERFLOW} {why}")


def _most_letters(chat: Chat) -> int:
    """No fewer than the letters of a request, found in a fraction of the time: a text is not looked at, and the tools
    are encoded, which makes no letter less."""
    count = len(SHARED.json(chat.tools)) if chat.tools else 0
    for each in chat.messages:
        count += len(each.text) + len(each.reasoning) + len(each.call_id) + _OF_MESSAGE
        for call in each.calls:
            count += len(call.id) + len(call.name) + len(call.arguments) + _OF_MESSAGE
    return count


def room(prompt: int, context: int, response: int | None = None, limit: int | None = None) -> int:
    """The most tokens that a reply may have. ``prompt``: tokens of the prompt; ``context``: of the model's context;
    ``response``: tokens that the row will have behind its first prompt before this reply, at most ``limit`` with it.

    Raises:
        Overflow: there is no room for one token.
    """
    if prompt >= context:
        raise Overflow(f"{OVERFLOW} prompt is too long: {prompt} tokens > {context} maximum")
    left = context - prompt
    if limit is not None and response is not None:
        if response >= limit:
            words = (
                f"{OVERFLOW} the session has {response} tokens behind its first prompt, its limit is {limit}"
            )
            raise Overflow(words, row=True)
        left = min(left, limit - response)
    return left


def parameters(chat: Chat, limits: Limits, most: int) -> dict[str, Any]:
    """The engine's sampling parameters. ``most``: from ``room``; a larger ``max_tokens`` is cut."""
    wanted = [most, *(n for n in (chat.max_tokens, limits.sampling.get("max_tokens")) if n is not None)]
    common = {"max_tokens": min(wanted), "logprobs": 0}  # 0: that of the sampled token only
    if chat.stop:
        common["stop"] = list(chat.stop)
    trainers = {name: value for name, value in limits.sampling.items() if name != "seed"}
    if limits.decides == "trainer":
        return {**NEUTRAL, **trainers, **common}
    return {**chat.extra, **chat.asked, **trainers, **common}


def overridden(chat: Chat, limits: Limits) -> dict[str, Any]:
    """The parameters for which the client asks for another value than its reply is sampled with."""
    if limits.decides != "trainer":
        return {}
    chosen = {**NEUTRAL, **limits.sampling}
    return {n: value for n, value in chat.asked.items() if n == "seed" or not _equal(n, value, chosen[n])}


def _equal(name: str, one: float, other: float) -> bool:
    """Whether two values of a parameter sample alike: a ``top_k`` of 0 and of -1 are both no limit."""
    if name == "top_k":
        return max(one, 0) == max(other, 0)
    return one == other
