"""The kinds of agents: how each runs a row. Which one does is decided in ``liverl.agents.kinds``."""

from __future__ import annotations

from liverl.agents.tools import TOOLS
from liverl.verl_runtime.kinds import command, harbor, python, talking
from liverl.verl_runtime.kinds.base import Kind

KINDS: dict[str, Kind] = {
    "task": Kind(talking.task, talking.verify_task, offers=TOOLS),
    "chat": Kind(talking.chat),
    "tools": Kind(talking.tools, shared_tools=True),
    "python": Kind(python.python),
    "command": Kind(command.command, command.verify, story=False),
    "harbor": Kind(harbor.harbor, story=False, timed_here=False, rules=harbor.rules, admit=harbor.admit),
}
