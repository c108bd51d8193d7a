"""The run's tools, as verl loads them from its own configuration: ``BaseTool`` classes and functions.

They are called as verl 0.9.1's ``tool_agent`` calls them (verl/experimental/agent_loop/tool_agent_loop.py).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from verl.tools.function_tool import FunctionTool, normalize_function_tool_return

from liverl.agents.tool_results import cut
from liverl.verl_runtime.plain import plain

logger = logging.getLogger(__name__)


class VerlTools:
    """The tools of one row (``liverl.agents.loop.Tools``)."""

    last = ""

    def __init__(self, tools: Mapping[str, Any], most: int, side: str, row: Mapping[str, Any]) -> None:
        """``tools``: by name; ``most``: characters of a result; ``side``: where a longer one is cut (left, middle or
        right); ``row``: as verl hands it over."""
        self._tools, self._most, self._side, self._row = tools, most, side, row
        schemas = (tool.tool_schema for tool in tools.values())
        self.definitions: Sequence[dict[str, Any]] = [
            schema.model_dump(exclude_unset=True, exclude_none=True) for schema in schemas
        ]

    async def answer(self, name: str, arguments: dict[str, Any]) -> str:
        """See ``Tools.answer``."""
        tool = self._tools.get(name)
        if tool is None:
            return f"Unknown function '{name}'. Available tools: {list(self._tools)}"
        try:
            text = await self._call(tool, name, arguments)
        except Exception as error:  # noqa: BLE001 - the tool is the user's: the model gets the error, as in verl
            logger.warning("the tool %s failed: %s: %s", name, type(error).__name__, error)
            return f"Error executing tool '{name}': {error}"
        return cut(text, self._most, self._side)

    async def _call(self, tool: Any, name: str, arguments: dict[str, Any]) -> str:
        if isinstance(tool, FunctionTool):
            answer, *_ = normalize_function_tool_return(await tool.call(arguments))
            return answer.text or ""
        given = (self._row.get("tools_kwargs") or {}).get(name) or {}
        instance, _ = await tool.create(create_kwargs=given.get("create_kwargs", {}))
        try:
            answer, *_ = await tool.execute(instance, arguments, agent_data=None)
        finally:
            await tool.release(instance)
        return answer.text or ""


def verl_tools(multi_turn: Any, given: Any, row: Mapping[str, Any]) -> VerlTools:
    """The tools that a row may use: those of ``extra_info.tool_selection``, or all. ``multi_turn``: verl's section of
    that name; ``given``: what verl hands to agent loops as ``tools``; ``row``: as verl hands it over."""
    tools = {tool.name: tool for tool in getattr(given, "tools", None) or ()}
    chosen = (plain(row.get("extra_info")) or {}).get("tool_selection")
    if chosen:
        tools = {name: tools[name] for name in chosen if name in tools}
    return VerlTools(tools, multi_turn.max_tool_response_length, multi_turn.tool_response_truncate_side, row)
