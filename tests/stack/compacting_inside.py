"""Imported at the start of every Python of an environment: from their third turn on, agents forget their first one.

As an agent that compacts its history: the system and user messages stay, then those after the first tool result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

LOOP = "liverl.agents.loop"
KEPT, TURN = 2, 2  # messages before the first turn, and the turn at which the first one is left out


class Finder(MetaPathFinder):
    """Changes ``converse`` of the module once it has been loaded."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's own specification, with a loader that adds the change."""
        spec = PathFinder.find_spec(name, path) if name == LOOP else None
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            module.converse = compacting(module.converse)  # type: ignore[attr-defined]

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def compacting(converse: Callable[..., Any]) -> Callable[..., Any]:
    """``converse`` of an agent that compacts its history once."""

    async def wrapped(session: Any, talk: Any, conversation: Any, sandbox: Any, **given: Any) -> None:
        options = given.pop("options")

        def shorter(turn: int) -> dict[str, Any]:
            if turn == TURN:
                messages = conversation.messages
                second = [i for i, message in enumerate(messages) if message["role"] == "assistant"][1]
                messages[KEPT:second] = []
            return dict(options(turn))

        await converse(session, talk, conversation, sandbox, options=shorter, **given)

    return wrapped


sys.meta_path.insert(0, Finder())
