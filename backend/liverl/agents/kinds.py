"""Which kind of agent runs a row of a data set. Pure; for Python 3.10 with few packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from liverl.agents.endings import Endings
from liverl.agents.harbor.settings import HarborSettings
from liverl.agents.tasks import TASKS


class AgentSettings(msgspec.Struct, frozen=True):
    """Section ``agent`` of the configuration. ``kind``: name of a kind of agent, or ``auto``; ``python``:
    ``module:Class``; ``command`` and ``verifier``: program and arguments; ``env``: further variables of both;
    ``harbor``: for tasks of Harbor's, None in a run that has none; ``endings``: what becomes of trials that do not
    end well."""

    kind: str = "auto"
    python: str = ""
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    verifier: tuple[str, ...] = ()
    harbor: HarborSettings | None = None
    endings: Endings = Endings()


def kind_of(row: Mapping[str, Any], named: str, agent: AgentSettings, has_tools: bool) -> str:
    """The kind that runs a row. ``named``: by the row's column ``agent_name``, "auto" if that names none;
    ``has_tools``: whether the run has tools.

    ``auto`` is ``task`` for a row of a built-in task and ``harbor`` for one of Harbor's, else the agent that the
    configuration sets, else ``tools`` or ``chat``.
    """
    for kind in (named, agent.kind):
        if kind != "auto":
            return kind
    if task_id(row) in TASKS:
        return "task"
    if harbor_task(row) is not None and agent.harbor is not None:
        return "harbor"
    if agent.command:
        return "command"
    if agent.python:
        return "python"
    return "tools" if has_tools else "chat"


def harbor_task(row: Mapping[str, Any]) -> str | None:
    """``extra_info.task_path``, the directory of a task of Harbor's; None if the row has none."""
    extra = row.get("extra_info")
    found = extra.get("task_path") if isinstance(extra, Mapping) else None
    return str(found) if found else None


def task_id(row: Mapping[str, Any]) -> str | None:
    """``extra_info.task_id``; None if the row has none."""
    extra = row.get("extra_info")
    found = extra.get("task_id") if isinstance(extra, Mapping) else None
    return None if found is None else str(found)
