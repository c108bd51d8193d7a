"""The run's tools, as verl loads them from its own configuration: ``BaseTool`` classes and functions.

They are called as verl 0.9.1's ``tool_agent`` calls them (verl/experimental/agent_loop/tool_agent_loop.py).
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from verl.tools.function_tool import FunctionTool, normalize_function_tool_return

from liverl.agents.tool_results import cut
from liverl.verl_runtime.plain import plain

logger = logging.getLogger(__name__)


class AgentData:
    """What a tool is told of its trial, with the names of verl's ``AgentData``. A tool may read ``messages``, which
    grow with the conversation, and keep what it likes in ``extra_fields``: the reward function gets it in
    ``extra_info``, with ``tool_rewards``. Tokens are in no tool's reach."""

    def __init__(self, messages: list[dict[str, Any]], tools_kwargs: dict[str, Any]) -> None:
        self.messages, self.tools_kwargs = messages, tools_kwargs
        self.request_id = uuid.uuid4().hex
        self.extra_fields: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}
        self.turn_scores: list[float] = []
        self.tool_rewards: list[float] = []
        self.image_data = self.video_data = self.audio_data = None
        self.mm_processor_kwargs: dict[str, Any] = {}

    @property
    def assistant_turns(self) -> int:
        """The replies so far."""
        return sum(one.get("role") == "assistant" for one in self.messages)

    @property
    def user_turns(self) -> int:
        """The turns of results so far: as in verl, the results of one reply's calls are one."""
        roles = ["", *(one.get("role") for one in self.messages)]
        return sum(now == "tool" != before for before, now in itertools.pairwise(roles))


class VerlTools:
    """The tools of one row (``liverl.verl_runtime.kinds.base.RunTools``)."""

    last = ""

    def __init__(self, tools: Mapping[str, Any], most: int, side: str, row: Mapping[str, Any]) -> None:
        """``tools``: by name; ``most``: characters of a result; ``side``: where a longer one is cut (left, middle or
        right); ``row``: as verl hands it over."""
        self._tools, self._most, self._side = tools, most, side
        self._kwargs: dict[str, Any] = row.get("tools_kwargs") or {}
        self._data = AgentData([], self._kwargs)
        schemas = (tool.tool_schema for tool in tools.values())
        self.definitions: Sequence[dict[str, Any]] = [
            schema.model_dump(exclude_unset=True, exclude_none=True) for schema in schemas
        ]

    def begin(self, messages: list[dict[str, Any]]) -> None:
        """See ``RunTools.begin``."""
        self._data = AgentData(messages, self._kwargs)

    def told(self) -> dict[str, Any]:
        """What verl hands to the reward function of the calls of this attempt, by name: what the tools kept, and the
        rewards that they gave."""
        data = self._data
        return {**data.extra_fields, "turn_scores": data.turn_scores, "tool_rewards": data.tool_rewards}

    async def answer(self, name: str, arguments: dict[str, Any]) -> str:
        """See ``Tools.answer``."""
        tool = self._tools.get(name)
        if tool is None:
            self._data.tool_rewards.append(0.0)
            return f"Unknown function '{name}'. Available tools: {list(self._tools)}"
        try:
            text, reward = await self._call(tool, name, arguments)
        except Exception as error:  # noqa: BLE001 - the tool is the user's: the model gets the error, as in verl
            logger.warning("the tool %s failed: %s: %s", name, type(error).__name__, error)
            self._data.tool_rewards.append(0.0)
            return f"Error executing tool '{name}': {error}"
        if reward is not None:
            self._data.tool_rewards.append(reward)
        return cut(text, self._most, self._side)

    def not_called(self, name: str) -> None:
        """See ``Tools.not_called``: as in verl such a call has the reward 0."""
        logger.warning("the tool %s was not called: its arguments are no JSON object", name)
        self._data.tool_rewards.append(0.0)

    async def _call(self, tool: Any, name: str, arguments: dict[str, Any]) -> tuple[str, float | None]:
        """The text of a tool's result, and the reward that it gave for this step."""
        if isinstance(tool, FunctionTool):
            answer, reward, _ = normalize_function_tool_return(await tool.call(arguments))
            return answer.text or "", reward
        given = self._kwargs.get(name) or {}
        instance, _ = await tool.create(create_kwargs=given.get("create_kwargs", {}))
        try:
            answer, reward, _ = await tool.execute(instance, arguments, agent_data=self._data)
        finally:
            await tool.release(instance)
        return answer.text or "", reward


def verl_tools(multi_turn: Any, given: Any, row: Mapping[str, Any]) -> VerlTools:
    """The tools that a row may use: those of ``extra_info.tool_selection``, or all. ``multi_turn``: verl's section of
    that name; ``given``: what verl hands to agent loops as ``tools``; ``row``: as verl hands it over."""
    tools = {tool.name: tool for tool in getattr(given, "tools", None) or ()}
    chosen = (plain(row.get("extra_info")) or {}).get("tool_selection")
    if chosen:
        tools = {name: tools[name] for name in chosen if name in tools}
    return VerlTools(tools, multi_turn.max_tool_response_length, multi_turn.tool_response_truncate_side, row)
