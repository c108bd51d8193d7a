"""How many tokens a turn may have, and with which parameters it is sampled. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from liverl.sessions.messages import Chat

OVERFLOW = "exceed context limit!"  # begins the message of a prompt that is too long; agents look for it
# "prompt is too long: N tokens > M maximum" behind it is what Anthropic's API says: Claude Code then compacts.


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the trainer asks of one session. ``sampling``: parameters that replace the client's, such as temperature.

    ``max_turns``: replies of the main conversation; ``max_response_tokens``: tokens of its row behind the prompt;
    ``max_consecutive_no_tool``: replies in sequence without a tool call, 0 for no limit; ``deadline``: Unix seconds.
    """

    sampling: dict[str, Any] = msgspec.field(default_factory=dict)
    max_turns: int | None = None
    max_response_tokens: int | None = None
    disable_tools: bool = False
    max_consecutive_no_tool: int = 0
    deadline: float | None = None


class Overflow(ValueError):
    """The prompt leaves no room for a reply."""


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
            raise Overflow(
                f"{OVERFLOW} the session has {response} tokens behind its first prompt, its limit is {limit}"
            )
        left = min(left, limit - response)
    return left


def parameters(chat: Chat, limits: Limits, most: int) -> dict[str, Any]:
    """The engine's sampling parameters, in vLLM's names. ``most``: from ``room``; a larger ``max_tokens`` is cut."""
    asked = {
        "temperature": chat.temperature,
        "top_p": chat.top_p,
        "top_k": chat.top_k,
        "stop": list(chat.stop) or None,
        "seed": chat.seed,
    }
    chosen = {name: value for name, value in asked.items() if value is not None} | limits.sampling
    wanted = [most, *(n for n in (chat.max_tokens, limits.sampling.get("max_tokens")) if n is not None)]
    return {**chosen, "max_tokens": min(wanted), "logprobs": 0}  # 0: that of the sampled token only
