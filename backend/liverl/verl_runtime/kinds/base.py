"""What an agent of any kind gets for a trial of verl, and what it gives back.

Independent of verl, so that it runs and is tested without it; for Python 3.10 with few packages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from liverl.agents.kinds import AgentSettings
from liverl.agents.loop import Conversation, Tools
from liverl.verl_runtime.carriers import Carrier, Line


class Trial(msgspec.Struct, frozen=True):
    """One trial. ``directory``: its own, absolute; ``row``: the columns of the data set's row, as plain values;
    ``request``: fields that all requests of the trial have (model, sampling); ``deadline``: Unix seconds; ``tools``:
    those of the run, None if it has none."""

    name: str
    directory: Path
    messages: list[dict[str, Any]]
    row: dict[str, Any]
    line: Line
    request: dict[str, Any]
    max_turns: int
    deadline: float
    agent: AgentSettings
    tools: Tools | None = None


# Runs a trial and keeps what happened in the conversation. Returns the reward; None: verl computes it. Raises
# TrialFailed if the trial cannot continue, and OSError if its files cannot be written.
Run = Callable[[Trial, Carrier, Conversation], Awaitable["float | None"]]


@dataclass(frozen=True)
class Kind:
    """A kind of agent. ``offers``: the tools that it always offers; ``shared_tools``: whether it offers those of the
    run; ``story``: whether liverl has the conversation, and writes it."""

    run: Run
    offers: Sequence[dict[str, Any]] = ()
    shared_tools: bool = False
    story: bool = True

    def definitions(self, tools: Tools | None) -> Sequence[dict[str, Any]]:
        """The schemas that the model was offered. ``tools``: those of the run."""
        return tools.definitions if self.shared_tools and tools is not None else self.offers
