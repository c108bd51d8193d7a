"""What an agent of any kind gets for a trial of verl, and what it gives back.

Independent of verl, so that it runs and is tested without it; for Python 3.10 with few packages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from liverl.agents.kinds import AgentSettings
from liverl.agents.loop import Conversation, Tools, TrialFailed
from liverl.util import clocks
from liverl.util.deadline import not_held_up
from liverl.verl_runtime.carriers import Carrier, Lengths, Line


class RunTools(Tools, Protocol):
    """The tools of the run, as one trial has them."""

    def begin(self, messages: list[dict[str, Any]]) -> None:
        """An attempt of the trial begins: what the tools have kept of an earlier one is forgotten. ``messages``: the
        conversation, which grows."""


class Trial(msgspec.Struct, frozen=True):
    """One trial. ``directory``: its own, absolute; ``row``: the columns of the data set's row, as plain values;
    ``request``: fields that all requests of the trial have (model, sampling); ``began``, ``deadline``: on
    ``clocks.ran``; ``tools``: those of the run, None if it has none; ``place``: what ``Kind.admit`` gave; ``held_up``:
    seconds for which the code of other trials has stopped this worker since ``began``, which are not of its time."""

    name: str
    directory: Path
    messages: list[dict[str, Any]]
    row: dict[str, Any]
    line: Line
    request: dict[str, Any]
    max_turns: int
    began: float
    deadline: float
    agent: AgentSettings
    lengths: Lengths
    tools: RunTools | None = None
    place: Any = None
    held_up: Callable[[], float] = not_held_up

    def left(self) -> float:
        """Seconds of its time that are left."""
        return self.deadline + self.held_up() - clocks.ran()


@dataclass(frozen=True)
class Result:
    """What an agent gives back. ``reward``: its own or its verifier's, None if there is none; ``verified``: a verifier
    wrote it; ``failed``: what ended the agent, None if it said itself that it has finished; ``unverified``: why the
    verifier that should have rewarded it gave no reward, None if it gave one or if there is none."""

    reward: float | None = None
    verified: bool = False
    failed: TrialFailed | None = None
    unverified: TrialFailed | None = None


class Rules(msgspec.Struct, frozen=True):
    """``seconds``: for the whole trial; the others are those of its session, see ``Limits``."""

    seconds: float
    disable_tools: bool = False
    max_consecutive_no_tool: int = 0


class Where(msgspec.Struct, frozen=True):
    """Where a trial belongs. ``attempt``: the run's; ``worker``: a name that no other process of the run has; ``step``:
    "" for a validation."""

    run_dir: Path
    attempt: str
    worker: str
    step: str


def same_rules(agent: AgentSettings, timeout: float) -> Rules:
    """Those of agents that liverl runs itself. ``timeout``: seconds for a trial."""
    return Rules(seconds=timeout)


@asynccontextmanager
async def at_once(agent: AgentSettings, where: Where) -> AsyncIterator[None]:
    """Begin a trial without waiting."""
    yield None


# Runs a trial and keeps what happened in the conversation. Raises TrialFailed if the trial cannot continue, and
# OSError if its files cannot be written.
Run = Callable[[Trial, Carrier, Conversation], Awaitable[Result]]
# Rewards what the agent has done, after its end whatever it was, unless the infrastructure ended it. Raises as
# ``Run``.
Verify = Callable[[Trial, Conversation], Awaitable["float | None"]]


@dataclass(frozen=True)
class Kind:
    """A kind of agent. ``verify``: after ``run``; None if nothing of ours verifies; ``offers``: the tools that it
    always offers; ``shared_tools``: whether it offers those of the run; ``story``: whether liverl has the
    conversation, and writes it; ``timed_here``: whether this worker ends the agent when its time is over, so that its
    session need not; ``rules``: of a trial; ``admit``: entered before a trial begins, left at its end."""

    run: Run
    verify: Verify | None = None
    offers: Sequence[dict[str, Any]] = ()
    shared_tools: bool = False
    story: bool = True
    timed_here: bool = True
    rules: Callable[[AgentSettings, float], Rules] = same_rules
    admit: Callable[[AgentSettings, Where], AbstractAsyncContextManager[Any]] = at_once

    def definitions(self, tools: Tools | None) -> Sequence[dict[str, Any]]:
        """The schemas that the model was offered. ``tools``: those of the run."""
        return tools.definitions if self.shared_tools and tools is not None else self.offers
