"""Reads the requests of one session. Each repeats the messages of the one before and adds some: bytes that have not
changed are compared, which takes microseconds, and neither parsed nor checked again.

A request is taken apart: the messages that are known, those that are new, and the rest, in which one mark stands for
all of them. That the mark is what the rest has for messages shows that they were where they were looked for. Whatever
is unusual is read as a whole.
"""

from __future__ import annotations

import bisect
import re
import secrets
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from liverl.sessions.asked_fields import merged
from liverl.sessions.canonical import (
    anthropic_messages_of,
    openai_message_of,
    read_anthropic,
    read_body,
    read_openai,
    read_strict,
    ready,
)
from liverl.sessions.messages import Api, BadRequest, Chat, Message
from liverl.sessions.shared_tools import SHARED
from liverl.util.json_limits import MAX_VALUES, JsonRefused, check_json

MOST = 64 << 20  # bytes of messages that are kept, of the sessions that asked last
# Requests of one session in sequence that cannot be taken apart, after which no further one is tried.
UNUSUAL = 4
_READERS: dict[Api, Callable[[Mapping[str, Any], Sequence[Message] | None], Chat]] = {
    "openai": read_openai,
    "anthropic": read_anthropic,
}
_BEGIN = re.compile(rb'"messages"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*')
# A text, or a bracket outside of texts. A text that does not end is none, found out in a time that grows with it only.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]', re.DOTALL)
_BLANKS = b" \t\r\n"


class _Rest(NamedTuple):
    """``data``: a request with a mark for its messages; ``values``: of these bytes, at most; ``chat``: what they are,
    with no messages but those that stand elsewhere."""

    data: bytes
    values: int
    chat: Chat


class _Known(NamedTuple):
    """Messages of a request. ``block``: their bytes, with the commas between them; ``begin``: where that was;
    ``ends``: of each in the block; ``counts``: of each, how many ``messages`` there are with it; ``values``: of the
    block, at most; ``rest``: of the request."""

    api: Api
    block: bytes = b""
    begin: int = 0
    ends: Sequence[int] = ()
    messages: tuple[Message, ...] = ()
    counts: Sequence[int] = ()
    values: int = 0
    rest: _Rest | None = None

    @property
    def size(self) -> int:
        """Bytes that they keep."""
        return len(self.block) + (0 if self.rest is None else len(self.rest.data))

    def first(self, number: int) -> _Known:
        """The first ``number`` of them."""
        if number == len(self.ends):
            return self
        if not number:
            return _Known(self.api, rest=self.rest)
        end, count = self.ends[number - 1], self.counts[number - 1]
        return _Known(
            self.api,
            self.block[:end],
            self.begin,
            self.ends[:number],
            self.messages[:count],
            self.counts[:number],
            self.values,
            self.rest,
        )


class KnownRequests:
    """The known messages of all sessions, of which those that were asked for longest ago are forgotten."""

    def __init__(self, most: int = MOST) -> None:
        """``most``: bytes that are kept."""
        self._most = most
        self._known: OrderedDict[weakref.ref[object], _Known] = OrderedDict()
        self.size = 0  # bytes that are kept

    def get(self, owner: object) -> _Known | None:
        """Those of one owner."""
        return self._known.get(weakref.ref(owner))

    def put(self, owner: object, known: _Known) -> None:
        """Keep them in place of the owner's earlier ones."""
        place = weakref.ref(owner, self._forget)
        self._forget(place)
        self._known[place] = known
        self.size += known.size
        while self.size > self._most:
            self._forget(next(iter(self._known)))

    def forget(self, owner: object) -> None:
        """Keep none of an owner."""
        self._forget(weakref.ref(owner))

    def _forget(self, place: weakref.ref[object]) -> None:
        known = self._known.pop(place, None)
        self.size -= 0 if known is None else known.size


KNOWN = KnownRequests()


class RequestReader:
    """Reads the requests of one session."""

    def __init__(self, kept: KnownRequests = KNOWN) -> None:
        self._kept = kept
        # No client can know it, so that none can write it.
        self._mark = secrets.token_hex(16)
        self._whole = 0  # requests in sequence that had to be read as a whole

    def read(self, data: bytes, api: Api) -> Chat:
        """A request.

        Raises:
            BadRequest: see ``canonical.read_body`` and ``read_openai``.
        """
        if self._whole < UNUSUAL:
            try:
                chat = self._repeated(data, api)
            except (BadRequest, JsonRefused, ValueError):
                chat = None  # what is wrong with it is said of the whole
            if chat is not None:
                self._whole = 0
                return chat
            self._whole += 1
            self._kept.forget(self)
        return msgspec.structs.replace(_READERS[api](read_body(data), None), size=len(data))

    def _repeated(self, data: bytes, api: Api) -> Chat | None:
        """The request, of which only what is new is read; None if it is to be read as a whole. Raises as ``read``
        does, perhaps with other words."""
        known = self._kept.get(self)
        if known is None or known.api != api:
            known = _Known(api)
        found = _messages(data, known)
        if found is None:
            return None
        known, end = found
        rest = self._rest(data[: known.begin], data[end:], known)
        if rest is None or rest.values + known.values > MAX_VALUES:
            return None
        self._kept.put(self, known._replace(rest=rest))
        messages = ready((*rest.chat.messages, *known.messages))
        return msgspec.structs.replace(rest.chat, messages=messages, size=len(data))

    def _rest(self, before: bytes, behind: bytes, known: _Known) -> _Rest | None:
        """What is left of the request without these messages, which are all that it has. None: they are not its
        messages."""
        data = b'%b"%b"%b' % (before, self._mark.encode(), behind)
        if known.rest is not None and known.rest.data == data:
            return known.rest
        values = check_json(data)
        body, strict = read_strict(data)
        if not strict or not isinstance(body, dict) or merged(body).get("messages") != [self._mark]:
            return None
        chat = _READERS[known.api](body, known.messages)
        others = chat.messages[: len(chat.messages) - len(known.messages)]
        tools = SHARED.same(chat.tools)
        return _Rest(data, values, msgspec.structs.replace(chat, messages=others, tools=tools))


def _messages(data: bytes, known: _Known) -> tuple[_Known, int] | None:
    """The messages of a request, and where they end in it. None if they are not found.

    Raises:
        ValueError: the request is none, or has what is not read here.
    """
    known = _shared(data, known)
    if not known.ends:
        begin = _BEGIN.search(data)
        if begin is None:
            return None
        known = known._replace(begin=begin.end())
    ends = _ends(data, known.begin + len(known.block))
    if ends is None:
        return None
    if not ends:
        return (known, known.begin + len(known.block)) if known.ends else None
    new = data[known.begin + len(known.block) : ends[-1]]
    listed = new.lstrip(_BLANKS)
    if known.ends:
        if not listed.startswith(b","):
            return None
        listed = listed[1:]
    values = check_json(b'{"":[%b]}' % listed)  # as deep as in the request
    items, strict = read_strict(b"[%b]" % listed)
    if not strict or len(items) != len(ends) or not all(isinstance(item, dict) for item in items):
        return None
    messages, counts = list(known.messages), list(known.counts)
    for item in items:
        messages += _READ_ITEM[known.api](item)
        counts.append(len(messages))
    return known._replace(
        block=known.block + new,
        ends=[*known.ends, *(end - known.begin for end in ends)],
        messages=tuple(messages),
        counts=counts,
        values=known.values + values,
    ), ends[-1]


_READ_ITEM: dict[Api, Callable[[Mapping[str, Any]], list[Message]]] = {
    "openai": lambda item: [openai_message_of(item, "")],
    "anthropic": lambda item: anthropic_messages_of(item, ""),
}


def _shared(data: bytes, known: _Known) -> _Known:
    """Those of the known messages with which the messages of a request begin, if they stand where they may be."""
    if not known.ends:
        return known
    if not data.startswith(known.block[: known.ends[0]], known.begin):
        begin = data.find(known.block[: known.ends[0]])
        if begin < 0:
            return known.first(0)
        known = known._replace(begin=begin)
    if data.startswith(known.block, known.begin):
        return known
    # Behind one that differs none is equal: the first ``number`` are, and no more.
    differs = [*range(1, len(known.ends) + 1)]
    number = bisect.bisect_left(
        differs, True, key=lambda n: not data.startswith(known.block[: known.ends[n - 1]], known.begin)
    )
    return known.first(number)


def _ends(data: bytes, begin: int) -> list[int] | None:
    """Where the values of a list end whose first one, or whose next comma, is at ``begin``. None if the list does not
    end, or something else than blanks stands before its end."""
    ends: list[int] = []
    depth = 0
    for token in _TOKEN.finditer(data, begin):
        kind = data[token.start()]
        if kind in b"{[":
            depth += 1
        elif kind in b"}]":
            depth -= 1
            if depth < 0:
                last = ends[-1] if ends else begin
                return ends if not data[last : token.start()].strip(_BLANKS) else None
            if not depth:
                ends.append(token.end())
    return None
