"""The tools that requests offer: those of all sessions of a run are the same, so that they are one object here, and are
written as JSON once."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

Tools = tuple[dict[str, Any], ...]
MOST = 16  # different lists of tools that are kept
LARGEST = 1 << 20  # bytes of the JSON of one that is kept


class SharedTools:
    """The lists of tools that were offered last."""

    def __init__(self, most: int = MOST) -> None:
        """``most``: how many are kept."""
        self._most = most
        self._same: OrderedDict[bytes, Tools] = OrderedDict()  # by their JSON
        self._json: dict[int, bytes] = {}  # by the identity of those above

    def same(self, tools: Tools) -> Tools:
        """Equal tools, in JSON by the letter: those that were given first."""
        if not tools:
            return tools
        data = msgspec.json.encode(tools)
        known = self._same.get(data)
        if known is not None:
            self._same.move_to_end(data)
            return known
        if len(data) <= LARGEST:
            self._same[data] = tools
            self._json[id(tools)] = data
        if len(self._same) > self._most:
            _, oldest = self._same.popitem(last=False)
            del self._json[id(oldest)]
        return tools

    def json(self, tools: Tools) -> bytes:
        """The JSON of tools. Those that are kept have it already; an identity is not given again while its object is
        kept."""
        known = self._json.get(id(tools))
        return msgspec.json.encode(tools) if known is None else known


SHARED = SharedTools()
