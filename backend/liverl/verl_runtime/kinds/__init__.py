"""The kinds of agents, and which of them runs a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from liverl.agents.tasks import TASKS
from liverl.agents.tools import TOOLS
from liverl.verl_runtime.kinds import command, python, talking
from liverl.verl_runtime.kinds.base import AgentSettings, Kind

KINDS: dict[str, Kind] = {
    "task": Kind(talking.task, offers=TOOLS),
    "chat": Kind(talking.chat),
    "tools": Kind(talking.tools, shared_tools=True),
    "python": Kind(python.python),
    "command": Kind(command.command, story=False),
}


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
