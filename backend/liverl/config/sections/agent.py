"""The sections of config.yaml about a user's own agents, tools and rewards under verl.

``default.yaml`` contains every default and explains every key with its unit.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from msgspec import Struct

from liverl.agents.endings import Treatment
from liverl.config.sections.value_types import Name

AgentKind = Literal["auto", "task", "chat", "tools", "python", "command", "harbor"]
# What a row's column ``agent_name`` may say besides the names of agent loops -> the kind of agent.
ROW_KINDS: dict[str, str] = {f"liverl_{kind}": kind for kind in get_args(AgentKind) if kind != "auto"}


class AgentEndings(Struct, frozen=True, kw_only=True):
    """``agent.endings``: what becomes of a trial, by who caused its end."""

    limit: Treatment
    timeout: Treatment
    exit: Treatment
    infrastructure: Treatment


class Agent(Struct, frozen=True, kw_only=True):
    """``agent``: which agent runs a row of the data set."""

    kind: AgentKind
    python: str
    command: tuple[Name, ...] | None
    verifier: tuple[Name, ...] | None
    env: dict[str, str]
    tools: str
    functions: str
    path: tuple[Name, ...]
    endings: AgentEndings


class Reward(Struct, frozen=True, kw_only=True):
    """``reward``: the function that scores a trial whose agent gives no reward."""

    function: str
    kwargs: dict[str, Any]
