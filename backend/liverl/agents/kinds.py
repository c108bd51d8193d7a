"""Which kind of agent runs a row of a data set. Pure; for Python 3.10 with few packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from liverl.agents.tasks import TASKS


class AgentSettings(msgspec.Struct, frozen=True):
    """Section ``agent`` of the configuration. ``kind``: name of a kind of agent, or ``auto``; ``python``:
    ``module:Class``; ``command`` and ``verifier``: program and arguments; ``env``: further variables of both."""

    kind: str = "auto"
    python: str = ""
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    verifier: tuple[str, ...] = ()


def kind_of(row: Mapping[str, Any], named: str, agent: AgentSettings, has_tools: bool) -> str:
    """The kind that runs a row. ``named``: by the row's column ``agent_name``, "auto" if that names none;
    ``has_tools``: whether the run has tools.

    ``auto`` is ``task`` for a row of a built-in task, else the agent that the configuration sets, else ``tools`` or
    ``chat``.
    """
    for kind in (named, agent.kind):
        if kind != "auto":
            return kind
    if task_id(row) in TASKS:
        return "task"
    if agent.command:
        return "command"
    if agent.python:
        return "python"
    return "tools" if has_tools else "chat"


def task_id(row: Mapping[str, Any]) -> str | None:
    """``extra_info.task_id``; None if the row has none."""
    extra = row.get("extra_info")
    found = extra.get("task_id") if isinstance(extra, Mapping) else None
    return None if found is None else str(found)
