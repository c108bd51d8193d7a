"""What a request makes of the message of its reply. The sampled ids stay as they are. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from liverl.sessions.messages import Call, Message
from liverl.util.decode import decode_loose_json


def cut_at_stop(message: Message, stops: Sequence[str]) -> tuple[Message, str]:
    """The message without what begins at the earliest stop text, and that text; the message as it is and "" if it has
    none. Of several that begin at the same place the shortest counts: it was complete first.

    A model writes its reasoning, then its text, then its calls: what comes behind a part with a stop text is left out,
    and so is a call that has one, which is not whole.
    """
    if not stops:
        return message, ""
    reasoning, stop = _cut(message.reasoning, stops)
    if stop:
        return msgspec.structs.replace(message, reasoning=reasoning, text="", calls=()), stop
    text, stop = _cut(message.text, stops)
    if stop:
        return msgspec.structs.replace(message, text=text, calls=()), stop
    for index, call in enumerate(message.calls):
        stop = _stop_in(call, stops)
        if stop:
            return msgspec.structs.replace(message, calls=message.calls[:index]), stop
    return message, ""


def first_call_only(message: Message) -> Message:
    """The message with the first of its calls, for a request that allows one (``Chat.one_call``)."""
    return msgspec.structs.replace(message, calls=message.calls[:1])


def _cut(text: str, stops: Sequence[str]) -> tuple[str, str]:
    """The text before the earliest stop text, and that text."""
    begins = [(text.find(stop), len(stop), stop) for stop in stops if stop and stop in text]
    if not begins:
        return text, ""
    begin, _, stop = min(begins)
    return text[:begin], stop


def _stop_in(call: Call, stops: Sequence[str]) -> str:
    """The first stop text in what the model wrote of a call: its name, and the names and values of its arguments. How
    these are written down as JSON is ours, and says nothing."""
    return next((stop for part in _parts(call) if (stop := _cut(part, stops)[1])), "")


def _parts(call: Call) -> Iterator[str]:
    yield call.name
    try:
        parsed = decode_loose_json(call.arguments)
    except ValueError:
        parsed = call.arguments
    yield from _texts(parsed)


def _texts(value: Any) -> Iterator[str]:
    """The texts in a JSON value, and other values as text, in their order."""
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _texts(item)
    else:
        yield value if isinstance(value, str) else json.dumps(value)
