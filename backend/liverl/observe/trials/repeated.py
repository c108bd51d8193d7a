"""Leaves out of a record what the record before it has, too: each request of a conversation repeats all messages of the
one before, so that a file of n turns has about n²/2 messages. Pure.

What is left out is whole elements of a list ``messages`` of a request, which no head of a trial needs: the request
begins, byte by byte, as the one before did up to the end of its last message. The rest decodes to the same values.
"""

from __future__ import annotations

import msgspec

# Keys: an unescaped quote is in no string of JSON.
_REQUEST, _MESSAGES = b'"request_body":', b'"messages":'
_LEAST = 512  # bytes of messages that are worth a cut


class Repeated:
    """What the request before says, for the records of one file in their order. Each record goes to ``without``, and,
    decoded, to ``take``."""

    __slots__ = ("_list", "_said", "_where")

    def __init__(self) -> None:
        self._said = bytearray()  # that request, up to the end of its last message
        self._list = 0  # offset in it of its first message
        # Of the newest record: what it stands in, where its request begins, where what is not repeated begins (0 if
        # nothing was cut), and where it ends. None if it has no request.
        self._where: tuple[bytes | bytearray, int, int, int] | None = None

    def without(self, data: bytes | bytearray, start: int, end: int) -> tuple[bytes | bytearray, int, int]:
        """The record in ``data[start:end]`` without the messages that it repeats, and where that stands."""
        key = data.find(_REQUEST, start, end)
        if key < 0:
            self._where = None
            return data, start, end
        request = _past_blank(data, key + len(_REQUEST))
        said, rest = self._said, 0
        if said and data.startswith(said, request, end):
            rest = request + len(said)
            following = data[rest : rest + 1]
            if following == b",":
                rest += 1
            elif following != b"]":  # its last message goes on
                rest = 0
        self._where = (data, request, rest, end)
        if not rest:
            return data, start, end
        short = data[start : request + self._list] + data[rest:end]
        return short, 0, len(short)

    def take(self, messages: msgspec.Raw | None) -> None:
        """Remember the newest request. ``messages``: those that were left of it, with their brackets; None if it has
        none."""
        where, self._where = self._where, None
        if where is None or messages is None:
            return
        data, request, rest, end = where
        said, left = self._said, bytes(messages)[:-1]
        if rest:
            new = data[request + len(said) : rest + len(left) - 1]
            if new.endswith(left[1:]):  # not so where a key stands twice
                said += new
                return
        said.clear()
        key = data.find(_MESSAGES, request, end)
        first = _past_blank(data, key + len(_MESSAGES)) if key >= 0 else end
        if not rest and len(left) >= _LEAST and data.startswith(left, first, end):
            self._list = first + 1 - request
            said += data[request:first] + left


def _past_blank(data: bytes | bytearray, at: int) -> int:
    return at + 1 if data[at : at + 1] == b" " else at
