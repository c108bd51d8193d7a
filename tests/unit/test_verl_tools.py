"""What tools of verl's get and give in a trial: as in verl's own agent with tools."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

PYTHON = os.environ.get("LIVERL_TEST_VERL_PYTHON", "")
BACKEND = Path(__file__).parents[2] / "backend"

# Tools and calls, for verl's own agent and for ours. `keeps` counts its calls in what the trial keeps.
_TOOLS = """
class Tool:
    def __init__(self, name):
        self.name = name

    @property
    def tool_schema(self):
        from types import SimpleNamespace
        return SimpleNamespace(model_dump=lambda **_: {"type": "function", "function": {"name": self.name}})

    async def create(self, create_kwargs=None):
        return "1", None

    async def release(self, instance):
        pass

class Keeps(Tool):
    async def execute(self, instance, arguments, agent_data=None):
        agent_data.extra_fields["calls"] = agent_data.extra_fields.get("calls", 0) + 1
        return ToolResponse(text=str(agent_data.extra_fields["calls"])), 0.25, {}

class Silent(Tool):
    async def execute(self, instance, arguments, agent_data=None):
        return ToolResponse(text=arguments["text"]), None, {}

class Fails(Tool):
    async def execute(self, instance, arguments, agent_data=None):
        raise ValueError("no")

TOOLS = {"keeps": Keeps("keeps"), "silent": Silent("silent"), "fails": Fails("fails")}
CALLS = [("keeps", {}), ("silent", {"text": "a"}), ("fails", {}), ("gone", {}), ("keeps", {}), ("silent", {})]
"""

_THEIRS = f"""
import asyncio, json
from verl.experimental.agent_loop.tool_agent_loop import AgentData, ToolAgentLoop
from verl.experimental.agent_loop.tool_parser import FunctionCall
from verl.tools.schemas import ToolResponse
{_TOOLS}
async def main():
    loop = object.__new__(ToolAgentLoop)
    loop.tools, loop.max_tool_response_length, loop.tool_response_truncate_side = TOOLS, 256, "middle"
    data = AgentData([], None, None, None, None, {{}}, "r", {{}})
    data._active_tools = TOOLS
    texts = []
    for name, arguments in CALLS:
        call = FunctionCall(name=name, arguments=json.dumps(arguments))
        response, reward, _ = await loop._call_tool(call, {{}}, data)
        texts.append(response.text)
        if reward is not None:
            data.tool_rewards.append(reward)
    told = {{**data.extra_fields, "turn_scores": data.turn_scores, "tool_rewards": data.tool_rewards}}
    print(json.dumps([texts, told, sorted(name for name in vars(data) if not name.startswith("_"))]))

asyncio.run(main())
"""

_OURS = f"""
import asyncio, json
try:
    from verl.tools.schemas import ToolResponse
except ImportError:
    from types import SimpleNamespace as ToolResponse
from liverl.verl_runtime.verl_tools import AgentData, VerlTools
{_TOOLS}
async def main():
    tools = VerlTools(TOOLS, 256, "middle", {{}})
    messages = []
    tools.begin(messages)
    texts = [await tools.answer(*call) for call in CALLS]
    names = sorted([*vars(AgentData([], {{}})), "assistant_turns", "user_turns"])
    return [texts, tools.told(), names]

found = asyncio.run(main())
"""


@pytest.fixture
def verl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stand-in for the one module of verl's that ours imports."""
    names = ("verl", "verl.tools", "verl.tools.function_tool")
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    module: Any = sys.modules[names[-1]]
    module.FunctionTool = type("FunctionTool", (), {})
    module.normalize_function_tool_return = lambda found: found
    monkeypatch.delitem(sys.modules, "liverl.verl_runtime.verl_tools", raising=False)
    yield
    sys.modules.pop("liverl.verl_runtime.verl_tools", None)


def ours() -> Any:
    names: dict[str, Any] = {}
    exec(_OURS, names)
    return names["found"]


@pytest.mark.usefixtures("verl")
def test_what_tools_reward_and_keep_is_told_to_the_reward_function() -> None:
    texts, told, _ = ours()
    assert texts[:2] == ["1", "a"] and texts[4] == "2"
    assert texts[2] == "Error executing tool 'fails': no"
    assert texts[3] == "Unknown function 'gone'. Available tools: ['keeps', 'silent', 'fails']"
    assert told == {"calls": 2, "turn_scores": [], "tool_rewards": [0.25, 0.0, 0.0, 0.25, 0.0]}


@pytest.mark.usefixtures("verl")
def test_a_function_rewards_as_a_class_does_and_each_attempt_begins_anew() -> None:
    from liverl.verl_runtime.verl_tools import FunctionTool, VerlTools

    async def call(arguments: dict[str, Any]) -> Any:
        return SimpleNamespace(text=arguments["text"]), 0.5, {}

    tool = FunctionTool()
    tool.name, tool.call = "f", call
    tool.tool_schema = SimpleNamespace(model_dump=lambda **_: {})
    tools = VerlTools({"f": tool}, 256, "middle", {})
    for _attempt in range(2):
        tools.begin([])
        assert asyncio.run(tools.answer("f", {"text": "x"})) == "x"
        assert tools.told() == {"turn_scores": [], "tool_rewards": [0.5]}


@pytest.mark.usefixtures("verl")
@pytest.mark.parametrize("arguments", ['{"text": ', "[1]", "nothing"])
def test_a_call_with_unreadable_arguments_has_the_reward_0(arguments: str) -> None:
    """verl 0.9.1 appends 0.0 for it, and a reward function that adds up the rewards saw one call fewer."""
    from liverl.agents.loop import _execute

    names: dict[str, Any] = {}
    exec(_OURS.partition("async def main")[0], names)
    tools = names["VerlTools"](names["TOOLS"], 256, "middle", {})
    for text in (arguments, "{}"):
        _, said = asyncio.run(_execute(tools, {"function": {"name": "keeps", "arguments": text}}))
        assert said.startswith("error: the arguments are not ") == (text != "{}")
    assert tools.told()["tool_rewards"] == [0.0, 0.25]


@pytest.mark.usefixtures("verl")
def test_a_tool_sees_the_conversation_and_what_the_row_gives_it() -> None:
    from liverl.verl_runtime.verl_tools import AgentData

    messages = [{"role": role} for role in ("user", "assistant", "tool", "tool", "assistant", "tool")]
    data = AgentData(messages, {"f": {"create_kwargs": {"a": 1}}})
    assert (data.assistant_turns, data.user_turns) == (2, 2)
    assert data.messages is messages and data.tools_kwargs == {"f": {"create_kwargs": {"a": 1}}}
    assert data.request_id != AgentData([], {}).request_id


@pytest.mark.skipif(not PYTHON, reason="LIVERL_TEST_VERL_PYTHON names no Python with verl 0.9.1")
def test_tools_are_called_as_by_verls_own_agent() -> None:
    def run(code: str) -> Any:
        env = {**os.environ, "PYTHONPATH": str(BACKEND), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [PYTHON, "-c", code], env=env, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    theirs, mine = run(_THEIRS), run(f"{_OURS}\nprint(json.dumps(found))")
    assert mine[:2] == theirs[:2]
    # What of a trial's state only verl's own agent has: tokens, and what is between two of its steps.
    tokens = {"prompt_ids", "response_ids", "response_mask", "response_logprobs", "routed_experts"}
    assert set(theirs[2]) - set(mine[2]) == {*tokens, "mm_processor_output", "tool_calls"}
