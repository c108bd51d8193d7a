"""Pictures, videos and sounds in a row's prompt: sessions and LiteLLM carry text, and verl gets tokens of text only.

Independent of verl; for Python 3.10 with few packages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from liverl.agents.loop import TrialFailed

_WITHOUT = ("harbor",)  # kinds of agents that do not get the row's prompt
_TEXT = ("text", "input_text")


def refuse_pictures(kind: str, messages: Iterable[Mapping[str, Any]]) -> None:
    """Raises:
    TrialFailed: the agent gets a prompt with anything but text, which would be dropped.
    """
    found = None if kind in _WITHOUT else next(filter(None, map(_other, messages)), None)
    if found is not None:
        raise TrialFailed(
            "PicturesNotCarriedError",
            f"the row's prompt has a part of type {found}, which the agent {kind} cannot hand to the model: only text "
            "is trained. Leave such rows out, or have verl's own agent loop run them (agent_name: single_turn_agent)",
            again=False,
        )


def _other(message: Mapping[str, Any]) -> str | None:
    """The type of the first part of a message that is no text; None if all are."""
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping):
            kind = str(part.get("type") or next((name for name in part if name != "text"), "text"))
            if kind not in _TEXT:
                return kind
    return None
