"""Keys that have nothing to do now, and why. Pure.

A screen or pane whose keys need something (a row, a chart, a trial that was read) says so in a method
``idle(action, parameters) -> str``: why this action does nothing, "" if it does something. The key bar leaves out such
a key, and who presses it is told why. What only an end stops ("the last step is shown") is told by the action itself: a
key that comes and goes while one walks along a list would move all others. The keys of the scope ``moving`` are silent
at an end, as in other programs: where the cursor stays is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from textual.actions import parse

from liverl_tui.keys.key import Key


def why_idle(node: object, action: str, parameters: tuple[object, ...]) -> str:
    """Why an action of ``node`` does nothing now, a sentence; "" if it does something."""
    # Not a Protocol that is checked with ``isinstance``: this is asked of sixty keys for each view.
    idle: Callable[[str, tuple[object, ...]], str] | None = getattr(node, "idle", None)
    return "" if idle is None else idle(action, parameters)


def is_idle(node: object, key: Key) -> bool:
    """Whether a key whose action ``node`` has does nothing now."""
    return bool(why_idle(node, *_parsed(key.action)))


@lru_cache(maxsize=256)
def _parsed(action: str) -> tuple[str, tuple[object, ...]]:
    """Name and parameters of an action of the table."""
    _, name, parameters = parse(action)
    return name, parameters
